"""Drivers that hang, come late, are replaced or lock the container out, met by the real daemon. All nodes run side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from daemon import Daemon, Seen, demo, wait_for

PATIENT = ("read.stall_after=3s", "read.medium_interval=2s", "reader.backoff_max=1s")
"""Fresh enough to see a fault soon, patient enough for a busy machine."""
# Time enough for six daemons to start before anything fails, also on a busy machine.
NODES: dict[str, tuple[str, tuple[str, ...]]] = {
    "hang": (
        """
gpus: [{board: l40s, count: 3, loads: [{kind: matmul}]}]
faults:
  - {kind: hang, gpu: 1, from: 30, until: 32, seconds: 16}
  - {kind: garbage, gpu: 1, call: nvmlDeviceGetPowerUsage, value: 4294967295}
""",
        PATIENT,
    ),
    "late": (
        """
gpus: [{board: t4, count: 2}]
faults:
  - {kind: driver-missing, until: 12, code: 12}
  - {kind: driver-missing, from: 12, until: 24, code: 9}
""",
        (*PATIENT, "liveness.unreadable_after=2s"),
    ),
    "upgrade": (
        """
driver: "570.124.06"
gpus: [{board: a100-80gb-sxm, count: 2, loads: [{kind: held}]}]
faults: [{kind: driver-upgrade, from: 30, until: 42, driver: "580.159.04"}]
""",
        PATIENT,
    ),
    "cgroup": (
        "gpus: [{board: v100-sxm2, count: 2}]\nfaults: [{kind: cgroup-lost, from: 30}]\n",
        (*PATIENT, "liveness.unreadable_after=2s"),
    ),
    "empty": (
        "gpus: [{board: l40s, count: 2}]\nfaults: [{kind: no-gpu, until: 24}]\n",
        (*PATIENT, "liveness.unreadable_after=2s"),
    ),
    "silent": (
        "gpus: [{board: l40s}]\nfaults: [{kind: hang, calls: [nvmlInit], seconds: 600}]\n",
        (*PATIENT, "reader.start_deadline=5s"),
    ),
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Daemon]]:
    """Every node of :data:`NODES`, started."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(demo(tmp_path_factory.mktemp(name), body, *settings)) for name, (body, settings) in NODES.items()}


def waits_for(fault: str, seen: Seen) -> bool:
    """True while exposition and readiness name the fault."""
    return seen.fault() == fault and seen.readiness[1].startswith(f"{fault}: ")


def passes(seen: Seen) -> float:
    """Fast passes over the GPU whose power sensor tells nonsense, since each counts one."""
    return seen.value("gpuwatch_nvml_rejected_values_total", field="power") or 0.0


def history(daemon: Daemon, first: Seen, last: Seen) -> list[Seen]:
    """What was seen from ``first`` to ``last``."""
    return [seen for seen in daemon.seen if first.at <= seen.at <= last.at]


def threads(pid: int) -> int:
    """Threads of a process."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def test_driver_upgraded_underneath(nodes: dict[str, Daemon]) -> None:
    """An upgrade ends the reader, so that it releases the device files; a new one loads the new library (case D6)."""
    # First in this file: only before the upgrade is the present reader the old one.
    daemon = nodes["upgrade"]
    ready = daemon.until(lambda seen: seen.ready, "ready")
    old = daemon.reader()
    assert ready.value("gpuwatch_gpu_info", gpu="0", driver="570.124.06") == 1
    down = daemon.until(lambda seen: seen.fault() == "lib_rm_version_mismatch", "the mismatch", after=ready.at)
    assert (down.up(), down.readiness[0], down.health[0]) == (0, 503, 200)
    assert "different versions" in down.readiness[1]
    assert not Path(f"/proc/{old}").exists(), "the old reader still holds the device files"
    back = daemon.until(lambda seen: seen.ready and seen.up(0) == seen.up(1) == 1, "both GPUs again", after=down.at)
    assert back.value("gpuwatch_gpu_info", gpu="0", driver="580.159.04") == 1
    assert daemon.reader() != old


def test_before_the_first_pass(nodes: dict[str, Daemon]) -> None:
    """Before the driver has answered once, a scrape works: up 0 with its reason, not ready, alive, nothing about GPUs (case D21)."""
    first = nodes["silent"].until(lambda _: True, "an answer")
    assert (first.up(), first.fault()) == (0, "starting")
    assert first.readiness[0] == 503
    assert first.readiness[1].startswith("starting")
    assert first.health[0] == 200
    assert first.device_series == set()


def test_library_that_never_comes_up(nodes: dict[str, Daemon]) -> None:
    """A driver library that blocks in its start is ended after the start deadline and tried again; the daemon answers on."""
    daemon = nodes["silent"]
    seen = daemon.until(lambda seen: seen.value("gpuwatch_reader_restarts_total", reason="start_timeout") == 2, "two tries")
    assert (seen.up(), seen.health[0], seen.readiness[0]) == (0, 200, 503)
    assert seen.device_series == set()


def test_driver_that_comes_late(nodes: dict[str, Daemon]) -> None:
    """Without a driver the daemon stays up and says what it waits for; GPUs appear without a restart once it is there (case D5)."""
    daemon = nodes["late"]
    for fault in ("library_not_found", "driver_not_loaded"):
        missing = daemon.until(partial(waits_for, fault), fault)
        assert (missing.up(), missing.readiness[0], missing.device_series) == (0, 503, set())
        assert "waiting for it" in missing.readiness[1]
    ready = daemon.until(lambda seen: seen.ready and seen.up(0) == seen.up(1) == 1, "both GPUs")
    assert not ready.fault()
    assert daemon.process.poll() is None


def test_missing_driver_is_no_reason_to_die(nodes: dict[str, Daemon]) -> None:
    """A node that has no driver or no GPU is never reported sick, since a new container would change nothing (case D7)."""
    for name in ("late", "empty"):
        ready = nodes[name].until(lambda seen: seen.ready, "ready")
        before = [seen for seen in nodes[name].seen if seen.at <= ready.at]
        assert before[-1].at - before[0].at > 2.0, "not seen for longer than the liveness limit"
        assert {seen.health for seen in before} == {(200, "ok\n")}


def test_gpus_that_come_late(nodes: dict[str, Daemon]) -> None:
    """A driver that shows no GPU is waited for, and its GPUs appear by themselves."""
    daemon = nodes["empty"]
    missing = daemon.until(partial(waits_for, "no_gpu"), "no GPU")
    assert (missing.up(), missing.readiness[0], missing.device_series) == (0, 503, set())
    ready = daemon.until(lambda seen: seen.ready and seen.up(0) == seen.up(1) == 1, "both GPUs")
    assert not ready.fault()


def test_container_that_lost_its_devices(nodes: dict[str, Daemon]) -> None:
    """GPUs that answer only UNKNOWN after they were readable: up 0, not ready, and liveness fails after its limit (case D7)."""
    daemon = nodes["cgroup"]
    ready = daemon.until(lambda seen: seen.ready, "ready")
    lost = daemon.until(lambda seen: seen.up() == 0, "lost", after=ready.at)
    assert (lost.fault(), lost.readiness[0]) == ("unknown", 503)
    dead = daemon.until(lambda seen: seen.health[0] == 503, "sick")
    assert dead.at > lost.at
    assert "no GPU can be read" in dead.health[1]
    assert "unknown" in dead.health[1]
    assert (dead.up(), dead.up(0), dead.fault(0)) == (0, 0, "unknown")
    assert "gpuwatch_gpu_temperature_celsius" not in dead.device_series


def test_call_that_blocks(nodes: dict[str, Daemon]) -> None:
    """While a call on one GPU blocks, only that GPU is stalled; everything else answers, and no pass piles up behind it (case D3)."""
    daemon = nodes["hang"]
    ready = daemon.until(lambda seen: seen.ready and passes(seen) > 0, "ready")
    reader = daemon.reader()
    at_work = wait_for(lambda: daemon.seen[-1].at - ready.at > 3 and threads(reader), "a later look")
    stalled = daemon.until(lambda seen: seen.up(1) == 0, "the stall", after=ready.at)
    assert stalled.fault(1) == "stalled"
    assert stalled.value("gpuwatch_gpu_info", gpu="1") == 1
    assert stalled.value("gpuwatch_gpu_temperature_celsius", gpu="1", sensor="gpu") is None
    assert threads(reader) == at_work
    back = daemon.until(lambda seen: seen.up(1) == 1, "the return", after=stalled.at)
    blocked = [seen for seen in daemon.seen if stalled.at <= seen.at < back.at][-1]
    assert passes(blocked) == passes(stalled)
    later = daemon.until(lambda seen: passes(seen) >= passes(back) + 4, "more passes", after=back.at)
    # Passes that had piled up would all be made between two looks.
    assert passes(back) - passes(blocked) <= back.at - blocked.at + 2
    assert passes(later) - passes(back) <= later.at - back.at + 2
    for seen in history(daemon, ready, later):
        assert (seen.up(), seen.up(0), seen.up(2), seen.health[0], seen.readiness[0]) == (1, 1, 1, 200, 200)
    assert (daemon.reader(), threads(reader), daemon.broken) == (reader, at_work, [])
