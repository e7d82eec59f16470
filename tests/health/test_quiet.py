"""Nothing that is normal raises anything above info: hours of it, read as the daemon reads."""

from __future__ import annotations

import pytest

from health.watched import Watched

DAY = 86_400.0
_BUSY_THEN_IDLE = "loads: [{kind: training, from: 600, until: 40000}, {kind: matmul, from: 50000, until: 52000}]"
LONG = {
    "idle node": "gpus: [{board: a100-80gb-sxm}, {board: t4}, {board: v100-sxm2}, {board: rtx4090}]",
    "healthy training": "gpus: [{board: h100-sxm, count: 2, loads: [{kind: training}]}, {board: l40s, loads: [{kind: training}]}]",
    "work that comes and goes, idle PCIe": f"gpus: [{{board: t4, {_BUSY_THEN_IDLE}}}, {{board: rtx4090, {_BUSY_THEN_IDLE}}}]",
    "A100 PCIe without bridges": "gpus: [{board: a100-80gb-pcie, loads: [{kind: matmul}]}]",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_a_day(text: str) -> None:
    """24 hours bring one verdict, ok, and never another one."""
    watched = Watched(text, read_seconds=120.0).run_to(DAY)
    assert watched.worst() == set()
    assert {verdict.state for _, _, verdict in watched.seen} == {"ok"}


HOUR = ("idle", "training", "data-starved", "straggler", "single-h200", "mixed-fleet", "garbage-values", "mig-reshape", "crash")


@pytest.mark.parametrize("scenario", HOUR)
def test_half_an_hour_at_the_daemons_pace(scenario: str) -> None:
    """Scenarios without a fault of a board stay ok: power caps, straggling jobs, changes of MIG instances, garbage values, a crash."""
    watched = Watched(scenario).run_to(1800)
    assert watched.worst() == set()
    assert {verdict.state for _, _, verdict in watched.seen} == {"ok"}


@pytest.mark.parametrize("scenario", ["driver-upgrade", "driver-late", "no-gpu"])
def test_a_driver_that_comes_and_goes(scenario: str) -> None:
    """While the driver is down the state is unknown, for no fault of the board; afterwards it is ok."""
    watched = Watched(scenario).run_to(1200)
    assert watched.worst() == set()
    assert {gpu.verdict.state for gpu in watched.snapshot.gpus if gpu.verdict} == {"ok"}


def test_first_scrape_after_boot() -> None:
    """The first whole read finds volatile counts, replays and throttled seconds of before, and none of them is news."""
    faults = (
        "faults: [{kind: pcie-replays, count: 82}, {kind: ecc-storm, per_second: 5000, until: 60},"
        " {kind: nvlink-errors, link: 1, per_second: 500, until: 60}, {kind: thermal-throttle, until: 900, slowdown: hardware}]"
    )
    watched = Watched(f"gpus: [{{board: h100-sxm, loads: [{{kind: training}}]}}]\n{faults}")
    watched.t = 3000.0
    watched.run_to(6600)
    assert watched.worst() == set()


def test_t4_at_75_degrees() -> None:
    """A T4 that is busy runs at 75 °C for hours, 18 °C below its slowdown."""
    watched = Watched("gpus: [{board: t4, loads: [{kind: matmul}]}]").run_to(3600)
    fast = watched.snapshot.gpus[0].fast
    assert fast is not None
    assert 70 <= fast.temperature_celsius["gpu"] <= 78
    assert watched.worst() == set()


def test_teardown_storm() -> None:
    """The end of a job writes XID 45 on every GPU, many times: nobody is called (health report 1)."""
    watched = Watched("training").run_to(60)
    for _ in range(50):
        watched.tell(*(watched.xid(45, gpu=gpu) for gpu in range(8)))
    watched.run_to(120)
    assert watched.worst() == set()
    assert {gpu.verdict.state for gpu in watched.snapshot.gpus if gpu.verdict} == {"ok"}


def test_node_drain() -> None:
    """All work ends at once and the boards go to sleep: links, clocks and PCIe generation fall, and that is no fault."""
    text = "gpus: [{board: v100-sxm2, count: 2, loads: [{kind: matmul, until: 1800}]}, {board: l40s, loads: [{kind: matmul, until: 1800}]}]"
    assert Watched(text).run_to(5400).worst() == set()


def test_mig_instances_come_and_go() -> None:
    """A GPU with NVLinks up is cut into instances, which hides links, remapped rows and utilisation, and made whole again."""
    faults = "\n".join(
        f"  - {{kind: mig-reshape, gpu: 0, from: {1000 * n}, layout: {'[1g.10gb, 1g.10gb]' if n % 2 else chr(34) + 'off' + chr(34)}}}"
        for n in range(1, 5)
    )
    watched = Watched(f"gpus: [{{board: h100-sxm, loads: [{{kind: matmul}}]}}]\nfaults:\n{faults}").run_to(6000)
    assert watched.worst() == set()
    assert {verdict.state for _, _, verdict in watched.seen} == {"ok"}
