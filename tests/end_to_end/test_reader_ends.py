"""Readers that die or stop under the real daemon: a new one goes on, and no counter loses what it had counted (case D4)."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from daemon import Daemon, Seen, demo, wait_for

NODE = """
gpus:
  - {board: l40s, count: 2, loads: [{kind: matmul}]}
  - {board: a100-80gb-sxm, mig: [3g.40gb, 2g.20gb], loads: [{kind: matmul, mig: 0}]}
"""
SETTINGS = ("read.medium_interval=1s", "read.stall_after=20s", "reader.heartbeat_deadline=3s", "reader.backoff_max=1s")
ENDS = {signal.SIGSEGV: "crashed", signal.SIGABRT: "crashed", signal.SIGKILL: "killed", signal.SIGSTOP: "hung"}
GROUNDS = (
    "gpuwatch_gpu_info",
    "gpuwatch_gpu_up",
    "gpuwatch_gpu_memory_used_bytes",
    "gpuwatch_gpu_temperature_celsius",
    "gpuwatch_mig_info",
)
"""Series that one pass is enough for; means over time need two and may pause."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[signal.Signals, Daemon]]:
    """A ready node for each kind of end, all at once."""
    with contextlib.ExitStack() as stack:
        nodes = {number: stack.enter_context(demo(tmp_path_factory.mktemp(number.name), NODE, *SETTINGS)) for number in ENDS}
        for daemon in nodes.values():
            daemon.until(is_complete, "a busy, ready node")
        yield nodes


def is_complete(seen: Seen) -> bool:
    """True once every counter that the test looks at has begun to count."""
    busy = [value for (name, _), value in seen.samples.items() if name == "gpuwatch_gpu_busy_seconds_total"]
    return seen.ready and len(busy) == 2 and min(busy) > 1


@pytest.mark.parametrize("number", ENDS, ids=lambda number: number.name)
def test_reader_is_replaced(nodes: dict[signal.Signals, Daemon], number: signal.Signals) -> None:
    """A reader ended by a signal is replaced; the restart is counted and logged with its reason; counters never fall, series stay."""
    daemon, reason = nodes[number], ENDS[number]
    before = daemon.until(is_complete, "a busy, ready node")
    old = daemon.reader()
    os.kill(old, number)
    after = daemon.until(lambda seen: seen.value("gpuwatch_reader_restarts_total", reason=reason) == 1, "the restart")
    new = wait_for(lambda: [pid for pid in daemon.readers if pid != old], "a new reader")
    energy = after.value("gpuwatch_gpu_energy_joules_total", gpu="0")
    assert energy is not None
    grown = daemon.until(
        lambda seen: (seen.value("gpuwatch_gpu_energy_joules_total", gpu="0") or 0) > energy and is_complete(seen),
        "more energy",
        after=after.at,
    )
    wait_for(lambda: old not in daemon.readers, "the end of the old reader")
    assert daemon.readers == new
    assert_kept([seen for seen in daemon.seen if before.at <= seen.at <= grown.at])
    [line] = [event for event in daemon.events if event["event"] == "the reader ended unexpectedly; a new one is started"]
    assert (line["level"], line["reason"]) == ("warning", reason)
    assert (number.name if reason != "hung" else "silent for 3 s") in line["detail"]
    assert daemon.broken == []


def test_a_second_signal_changes_nothing(tmp_path: Path) -> None:
    """An agent that is asked to end again and again, until it has, still ends well."""
    with demo(tmp_path, NODE, watch=False) as daemon:
        reader = daemon.reader()
        while daemon.process.poll() is None:
            daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.returncode == 0
    wait_for(lambda: not Path(f"/proc/{reader}").exists(), "the end of the reader")


def test_idle_clients_leave_room_for_a_new_reader(tmp_path: Path) -> None:
    """D4: more idle connections than the process may open files do not keep it from starting a new reader."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (96, limits[1]))
        daemon = stack.enter_context(demo(tmp_path, NODE, watch=False))
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        host, port = daemon.url.removeprefix("http://").split(":")
        for _ in range(200):
            stack.enter_context(socket.create_connection((host, int(port))))
        old = daemon.reader()
        os.kill(old, signal.SIGKILL)
        wait_for(lambda: [pid for pid in daemon.readers if pid != old], "a new reader")


def assert_kept(seen: list[Seen]) -> None:
    """Nothing that was there is ever gone or less, and the node is up all the while."""
    for earlier, later in pairwise(seen):
        assert later.up() == 1
        assert {key for key in earlier.samples if key[0] in GROUNDS} <= later.samples.keys()
        for key, value in earlier.counters.items():
            assert later.samples.get(key, -1.0) >= value, f"{key} fell from {value} to {later.samples.get(key)}"
