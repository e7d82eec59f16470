"""Following the kernel log: from the ring at boot to a storm, over overwritten records and restarts of the reader."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpuwatch.device.fault_box import MAX_EVENTS, FaultBox
from gpuwatch.device.kernel_log import KernelLog, KmsgFeed, Stretch
from gpuwatch.device.readings import FaultEvent

NOW = 1_760_000_000.0
UPTIME = 100_000.0
XID = "NVRM: Xid (PCI:0000:3b:00): {code}, pid={pid}, name=python3, {text}"
UUID = "GPU-44ec53bd-277c-984f-fa9f-cded30fbfd5d"


class ClockedFeed(KmsgFeed):
    """The real feed on a clock that is nobody's."""

    @property
    def now_seconds(self) -> float:
        """Seconds since boot."""
        return UPTIME


def record(number: int, text: str, *, ago: float = 0.0) -> str:
    """A record as ``/dev/kmsg`` gives it."""
    return f"4,{number},{int((UPTIME - ago) * 1e6)},-;{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n"


def xid(code: int, *, pid: int = 1, text: str = "told") -> str:
    """A line of the driver."""
    return XID.format(code=code, pid=pid, text=text)


class Log:
    """A log in a file, and what is made of it. ``started_ago``: seconds since the agent's start; ``after``: what it has seen before."""

    def __init__(self, path: Path, *, started_ago: float = 0.0, after: int = -1) -> None:
        self.path = path
        self.box = FaultBox()
        self.feed = ClockedFeed(str(path), after)
        self.log = KernelLog(self.feed, self.box, started_at=NOW - started_ago, wall=lambda: NOW)
        self.lines: Counter[str] = Counter()
        self.sequence: int | None = None

    def write(self, *records: str) -> None:
        """The kernel writes."""
        with self.path.open("a") as file:
            file.write("".join(records))

    def read(self) -> list[FaultEvent]:
        """Everything that is new."""
        self.log.catch_up()
        taken = self.box.take()
        self.lines.update(taken.log_lines)
        self.sequence = taken.log_sequence if taken.log_sequence is not None else self.sequence
        return list(taken.events)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """An empty log of an agent that has just started."""
    path = tmp_path / "kmsg"
    path.touch()
    made = Log(path)
    yield made
    made.feed.close()


def codes(events: Sequence[FaultEvent]) -> list[int]:
    """Numbers of the events."""
    return [event.code for event in events]


def test_an_xid_is_an_event(log: Log) -> None:
    """A line becomes an event with everything it said; the source is up (row 4: no NVML event is needed)."""
    log.write(record(7, xid(119, pid=42, text="GSP timeout")))
    (event,) = log.read()
    expected = ("xid", 119, "00000000:3b:00.0", "kernel_log", NOW, "name=python3, GSP timeout", 42, False)
    told = (event.kind, event.code, event.pci_bus_id, event.source, event.at, event.text, event.pid, event.replayed)
    assert told == expected
    assert log.lines == {"xid": 1}
    assert log.sequence == 7


def test_the_ring_of_before_is_replayed_with_its_own_times(log: Log) -> None:
    """What was logged before the start has its own time and is marked; what is older than two hours is only counted."""
    log.write(record(1, xid(79), ago=7300), record(2, xid(48), ago=3600.5), record(3, xid(31)))
    events = log.read()
    assert [(event.code, event.at, event.replayed) for event in events] == [(48, NOW - 3600.5, True), (31, NOW, False)]
    assert log.lines == {"too_old": 1, "xid": 2}


def test_a_clock_that_ran_away_does_not_move_news(log: Log) -> None:
    """The kernel's clock may be minutes off after months: a line that was just written happened now."""
    log.read()
    log.write(record(1, xid(48), ago=400.0))
    assert [event.at for event in log.read()] == [NOW]


def test_a_new_reader_neither_repeats_nor_misses(log: Log) -> None:
    """The next reader goes on behind the last record that the agent has seen; what came meanwhile is news, not replayed."""
    log.write(record(1, xid(48)), record(2, "eth0: link up"))
    assert codes(log.read()) == [48]
    assert log.sequence == 2
    log.write(record(3, xid(63), ago=20.0))
    following = Log(log.path, started_ago=10.0, after=log.sequence)
    assert [(event.code, event.at, event.replayed) for event in following.read()] == [(63, NOW - 20.0, False)]
    following.feed.close()


def test_the_driver_names_the_gpu(log: Log) -> None:
    """The line before the first XID says which GPU it is, also when the GPU itself cannot be asked any more."""
    log.write(record(1, f"NVRM: GPU at PCI:0000:3b:00: {UUID}"), record(2, xid(79)))
    assert [event.uuid for event in log.read()] == [UUID]


@pytest.mark.parametrize("first", ["numbered", "plain"])
def test_a_gpu_falls_off_once(log: Log, first: str) -> None:
    """The line without a number is XID 79, and none of its own when the numbered one is there (row 5)."""
    plain = "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."
    lines = [xid(79), plain] if first == "numbered" else [plain, xid(79)]
    log.write(*(record(number, text) for number, text in enumerate([*lines, plain])))
    assert codes(log.read()) == [79]
    assert log.lines == {"xid": 1, "lost": 2}


def test_a_gpu_falls_off_over_three_records(log: Log) -> None:
    """Older drivers spread the news over three records, with the address in the first (row 5)."""
    parts = ("The NVIDIA GPU 0000:b3:00.0", "(PCI ID: 10de:26b5) installed in this system has", "fallen off the bus and is not responding")
    log.write(*(record(number, f"NVRM: {part}") for number, part in enumerate(parts)))
    assert [(event.code, event.pci_bus_id) for event in log.read()] == [(79, "00000000:b3:00.0")]


def test_a_reset_makes_the_next_loss_a_new_one(log: Log) -> None:
    """After a reset a GPU that falls off the bus again has fallen off twice (row 13)."""
    plain = "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."
    log.write(record(1, plain, ago=9), record(2, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.1", ago=5), record(3, plain))
    assert [event.kind for event in log.read()] == ["xid", "reset", "xid"]


def test_a_switch_reports_once_however_many_details_follow(log: Log) -> None:
    """Severity and data lines belong to the error before them."""
    start = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, "
    log.write(
        *(record(n, start + text) for n, text in enumerate(("Non-fatal, Link 29 MC TS crumbstore MCTO", "Severity 0 Engine", "Data {0x1}")))
    )
    assert [(event.kind, event.code, event.uuid) for event in log.read()] == [("sxid", 28006, "")]
    assert log.lines == {"sxid": 3}


def test_xid_0_is_none(log: Log) -> None:
    """A number that means nothing makes no event."""
    log.write(record(1, xid(0)))
    assert log.read() == []


def test_one_fault_in_several_lines_is_one_event(log: Log) -> None:
    """The driver prints a graphics exception as three lines; they are one fault, and three lines of the log."""
    log.write(*(record(number, xid(13, text=f"part {number}"), ago=0.3 - number * 0.1) for number in range(3)))
    assert codes(log.read()) == [13]
    assert log.lines == {"xid": 3}


def test_the_same_fault_a_second_later_is_another(log: Log) -> None:
    """Bursts end: two faults are two events (row 3)."""
    log.write(record(1, xid(31), ago=2.0), record(2, xid(31), ago=1.0))
    assert codes(log.read()) == [31, 31]


def test_a_storm_is_counted_and_bounded(log: Log) -> None:
    """Thousands of lines make an event a second for each GPU and number, and every line is counted (row 2)."""
    for minute in range(20):
        log.write(*(record(minute * 1000 + n, xid(95, text=str(n)), ago=20.0 - minute - n / 1000) for n in range(1000)))
    events = log.read()
    assert len(events) == 20
    assert log.lines == {"xid": 20_000}


def test_a_storm_of_all_numbers_is_bounded_too(log: Log) -> None:
    """Whoever invents a number a line gets a full frame, and the rest is counted as dropped."""
    log.write(*(record(number, xid(number)) for number in range(1, 1001)))
    assert len(log.read()) == MAX_EVENTS
    assert log.lines == {"xid": 1000, "dropped": 1000 - MAX_EVENTS}


def test_what_was_overwritten_is_counted(log: Log) -> None:
    """Numbers that are missing between two records were overwritten before anyone could read them."""
    log.write(record(5, "eth0: link up"), record(105, xid(48)))
    assert codes(log.read()) == [48]
    assert log.lines == {"overwritten": 99, "xid": 1}


def test_an_overtaken_reader_goes_on(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """EPIPE says that the ring has overtaken the reader, EINVAL that a record was too long: neither ends the following."""
    log.write(record(1, xid(48)))
    answers = [OSError(errno.EPIPE, "overwritten"), OSError(errno.EINVAL, "too long")]
    read = os.read

    def troubled(descriptor: int, size: int) -> bytes:
        if answers:
            raise answers.pop()
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", troubled)
    assert codes(log.read()) == [48]


def test_lines_in_pieces(tmp_path: Path) -> None:
    """A FIFO gives half records; they are put together."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    log = Log(path)
    assert log.read() == []
    writer = os.open(path, os.O_WRONLY)
    whole = record(1, xid(48)).encode()
    os.write(writer, whole[:30])
    assert log.read() == []
    os.write(writer, whole[30:])
    assert codes(log.read()) == [48]
    os.close(writer)
    log.feed.close()


@pytest.mark.parametrize(
    ("error", "fault"), [(PermissionError(errno.EPERM, "no"), "permission"), (FileNotFoundError(errno.ENOENT, "no"), "missing")]
)
def test_a_log_that_cannot_be_read_says_why(tmp_path: Path, error: OSError, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the right or the file the source is down, once, and up when it can be read (row 4)."""
    path = tmp_path / "kmsg"
    log = Log(path)

    def refuse(*_: object) -> Stretch:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(log.feed, "read", refuse)
        log.log.catch_up()
        (health,) = log.box.take().sources
        assert (health.source, health.up, health.fault) == ("kernel_log", False, fault)
        log.log.catch_up()
        assert log.box.take().sources == ()
    path.touch()
    log.log.catch_up()
    (health,) = log.box.take().sources
    assert (health.up, health.fault) == (True, "")
    log.feed.close()


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    """The real feed says so with the system's own error."""
    log = Log(tmp_path / "nothing")
    log.log.catch_up()
    assert [health.fault for health in log.box.take().sources] == ["missing"]


def test_events_and_their_number_travel_together() -> None:
    """A frame has the events of a stretch and its last number, or neither: a reader that dies between them loses none."""
    box = FaultBox()
    box.add_log([], Counter(), 12)
    assert box.take().log_sequence == 12
    assert box.take().log_sequence is None


def test_bursts_of_different_gpus_are_apart(log: Log) -> None:
    """The limit is one a second for each GPU, not for the node."""
    log.write(*(record(bus, f"NVRM: Xid (PCI:0000:{bus:02x}:00): 45, pid=1, name=a, Ch 1") for bus in range(8)))
    assert codes(log.read()) == [45] * 8
