"""XIDs on their whole way, by the real daemon: told once, counted for good, over a crash of the reader."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from daemon import Daemon, Seen, demo

SCENARIO = """
gpus: [{board: h100-sxm, count: 2, loads: [{kind: training}]}]
faults:
  - {kind: xid, code: 31, gpu: 1, from: 4, times: 2, every: 3}
  - {kind: xid, code: 119, gpu: 1, from: 5, source: kernel_log}
  - {kind: xid, code: 62, gpu: 1, from: 5, source: nvml}
  - {kind: crash, from: 10}
  - {kind: gpu-lost, gpu: 0, from: 16}
  - {kind: xid, code: 31, gpu: 1, from: 17}
"""
XIDS = "gpuwatch_gpu_xid_errors_total"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A node whose reader crashes between two XIDs."""
    with demo(tmp_path_factory.mktemp("xids"), SCENARIO, "read.medium_interval=2s", "reader.backoff_max=1s") as running:
        yield running


def count(seen: Seen, gpu: int, xid: int) -> float | None:
    """What the counter says; ``None`` without a series."""
    return seen.value(XIDS, gpu=str(gpu), xid=str(xid))


def test_nothing_before_the_first(daemon: Daemon) -> None:
    """While both sources listen and nothing has happened there is no series: zeros are not invented."""
    seen = daemon.until(lambda one: one.value("gpuwatch_xid_source_up", source="nvml") == 1, "the event set")
    assert seen.value("gpuwatch_xid_source_up", source="kernel_log") == 1
    early = next((one for one in daemon.seen if one.up() == 1), seen)
    assert count(early, 0, 79) is None


def test_each_fault_is_counted_once(daemon: Daemon) -> None:
    """What both sources tell counts once, what one tells counts too, what happens again counts again (rows 3 and 4, case O5)."""
    daemon.until(lambda one: count(one, 1, 31) == 2, "XID 31 twice")
    daemon.until(lambda one: (count(one, 1, 119), count(one, 1, 62)) == (1, 1), "an XID of one source alone")


def test_a_new_reader_repeats_nothing_and_misses_nothing(daemon: Daemon) -> None:
    """After a crash of the reader the counters stand as they were and go on (and never fell meanwhile)."""
    crashed = daemon.until(lambda one: one.value("gpuwatch_reader_restarts_total", reason="crashed") == 1, "the crash")
    last = daemon.until(lambda one: count(one, 1, 31) == 3, "the third XID 31", after=crashed.at)
    assert (count(last, 1, 119), count(last, 1, 62)) == (1, 1)
    values = [value for one in daemon.seen if (value := count(one, 1, 31)) is not None]
    assert values == sorted(values)


def test_a_lost_gpu_keeps_its_xid(daemon: Daemon) -> None:
    """XID 79 and the line without a number are one fault, shown although the GPU itself shows nothing any more (row 5)."""
    seen = daemon.until(lambda one: count(one, 0, 79) is not None and one.up(0) == 0, "XID 79")
    assert count(seen, 0, 79) == 1
    labels = {"gpu": "0", "xid": "79", "severity": "page"}
    assert seen.value("gpuwatch_gpu_xid_last_timestamp_seconds", **labels) is not None
