"""The XIDs in the report, and whether anybody listened for them."""

from __future__ import annotations

import msgspec

from gpuwatch.device.readings import SourceHealth
from gpuwatch.doctor.xids import xid_lines
from gpuwatch.snapshot import Gpu, Listening, Snapshot, XidCount
from snapshots import h100, node

NOW = node().timestamp_seconds


def heard(*gpus: Gpu, up: bool = True, fault: str = "", lines: dict[str, int] | None = None) -> Snapshot:
    """A node whose kernel log was read, or not."""
    listening = Listening(sources=(SourceHealth(source="kernel_log", up=up, fault=fault),), log_lines=lines or {})
    return msgspec.structs.replace(node(*gpus), listening=listening)


def with_xids(*counts: XidCount, gpu: int = 0) -> Gpu:
    """A GPU with these."""
    return msgspec.structs.replace(h100(gpu), xids=counts)


def xid(number: str, age: float, count: int = 1, severity: str = "page") -> XidCount:
    """One that was last seen ``age`` seconds ago."""
    return XidCount(xid=number, category="x", severity=severity, count=count, last_seen_seconds=NOW - age)


def test_nothing_heard_is_one_line() -> None:
    """A log that was read and holds none is told apart from one that was not read."""
    assert xid_lines(heard()) == ["XIDs: none in the kernel log of the last two hours"]
    assert "was not read" in "\n".join(xid_lines(node()))
    assert xid_lines(Snapshot(node="n", timestamp_seconds=0.0, version="0")) == []


def test_source_that_is_down_is_named_with_the_cure() -> None:
    """Without the right to read the log, silence proves nothing."""
    text = "\n".join(xid_lines(heard(up=False, fault="permission")))
    assert "BAD kernel" in text
    assert "CAP_SYSLOG" in text
    assert "none in" not in text
    assert "operation failed" in "\n".join(xid_lines(heard(up=False, fault="operation_failed")))


def test_newest_xid_comes_first() -> None:
    """Each with what it means, how often, and when: in UTC and as an age."""
    lines = xid_lines(heard(with_xids(xid("48", 7200)), with_xids(xid("31", 180, 12, "info"), gpu=1)))
    assert lines[1].split() == ["GPU", "XID", "COUNT", "SEVERITY", "LAST", "SEEN", "MEANING"]
    assert lines[2].split()[:4] == ["1", "31", "12", "info"]
    assert "2025-10-09 08:50:20 UTC, 3 min ago" in lines[2]
    assert "2 h ago" in lines[3]
    assert "Uncorrectable ECC error" in lines[3]


def test_many_xids_are_counted_not_listed() -> None:
    """The newest ten are shown, and how many more there are."""
    lines = xid_lines(heard(with_xids(*(xid(str(number), number) for number in range(1, 31)), xid("other", 100))))
    assert lines[2].split()[1] == "1"
    assert lines[-1] == "  and 21 older"


def test_lines_about_a_silent_gpu_are_not_lost() -> None:
    """A GPU that is lost from the start has no address to match the log with; the log's lines are told of all the same."""
    silent = msgspec.structs.replace(h100(2), identity=msgspec.structs.replace(h100(2).identity, uuid=""))
    text = "\n".join(xid_lines(heard(h100(), silent, lines={"xid": 1, "lost": 1})))
    assert "perhaps GPU 2" in text
    assert "none in" not in text
    assert "perhaps" not in "\n".join(xid_lines(heard(h100(), lines={"xid": 1})))
