"""Alerts about NVLink, its fabric and PCIe, in the real promtool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rules.promtool import GPU, Moments, alert, fire, moved, prove, say

HELD = f'gpuwatch_job_gpu_info{{{GPU}, namespace="speech", pod="wav-0", container="c", job_kind="TFJob", job_name="wav"}}'
WIDTH, FABRIC = f"gpuwatch_gpu_pcie_link_width{{{GPU}}}", f"gpuwatch_gpu_fabric_healthy{{{GPU}}}"
NAMES = ("GpuNvlinkDown", "GpuNvlinkErrors", "GpuFabricUnhealthy", "GpuPcieWidthDegraded", "GpuPcieReplays")


def links(*values: str) -> dict[str, str]:
    """Each link's values."""
    return {f'gpuwatch_gpu_nvlink_up{{{GPU}, link="{number}"}}': value for number, value in enumerate(values)}


def errors(**a_minute: float) -> dict[str, str]:
    """NVLink errors of each kind a minute."""
    return {f'gpuwatch_gpu_nvlink_errors_total{{{GPU}, kind="{kind}"}}': f"0+{count}x90" for kind, count in a_minute.items()}


def replays(a_minute: float, *, lanes: int = 16, generation: str = "4x90") -> dict[str, str]:
    """PCIe packets sent again, and the line they go over."""
    return {
        f"gpuwatch_gpu_pcie_replays_total{{{GPU}}}": f"0+{a_minute}x90",
        f"gpuwatch_gpu_pcie_link_generation{{{GPU}}}": generation,
        WIDTH: f"{lanes}x90",
    }


DOWN = alert("GpuNvlinkDown", "critical", GPU)
STORM = alert("GpuNvlinkErrors", "critical", GPU)
RETRIES = alert("GpuNvlinkErrors", "warning", GPU)
UNJOINED = alert("GpuFabricUnhealthy", "critical", GPU)
NARROW = alert("GpuPcieWidthDegraded", "warning", GPU)
REPLAYS = alert("GpuPcieReplays", "warning", GPU)
CASES: list[tuple[str, dict[str, str], dict[str, str], Moments]] = [
    # What it is; the series; the same just below; what fires when.
    (
        "a link went down, and came back",
        links("1x90", "1x19 0x30 1x40", "0x90"),
        links("1x90", "1x19 0 1x70", "0x90"),
        {"19m": [], "21m": [], "22m": [DOWN], "50m": [DOWN], "51m": []},
    ),
    ("a link was not read, which is not down", links("1x19 stale", "1x90"), links("0x90", "0x90"), {"30m": [], "60m": []}),
    ("the GPU was lost with its links", links("1x19 stale", "1x19 stale"), {}, {"30m": [], "60m": []}),
    ("damaged packets all the time", errors(crc=6010), errors(crc=5900), {"9m": [], "10m": [STORM], "60m": [STORM]}),
    (
        "retries and new trainings together",
        errors(replay=1.2, recovery=0.9),
        errors(replay=0.4, recovery=0.4),
        {"7m": [], "8m": [RETRIES], "60m": [RETRIES]},
    ),
    ("one retry", {f'gpuwatch_gpu_nvlink_errors_total{{{GPU}, kind="replay"}}': "0x20 1x70"}, {}, {"22m": [], "30m": []}),
    ("not in the fabric", {FABRIC: "0x90"}, {FABRIC: "0x9 1x80"}, {"9m": [], "10m": [UNJOINED], "60m": [UNJOINED]}),
    ("fewer lanes than before", {WIDTH: "16x19 8x70"}, {WIDTH: "8x90"}, {"34m": [], "35m": [NARROW], "60m": [NARROW]}),
    ("fewer lanes for a while", {WIDTH: "16x19 8x13 16x60"}, {WIDTH: "8x20 16x70"}, {"34m": [], "35m": [], "60m": []}),
    ("more replays than generation 4 may", replays(16), replays(15), {"19m": [], "20m": [REPLAYS], "60m": [REPLAYS]}),
    (
        "the same at rest: the generation is that under load",
        replays(16, generation="4 1x89"),
        replays(15),
        {"20m": [REPLAYS], "40m": [REPLAYS]},
    ),
    ("few lanes, old generation", replays(2, lanes=8, generation="1x90"), replays(1, lanes=8, generation="1x90"), {"40m": [REPLAYS]}),
    ("a generation that is not known", replays(1000, generation="9x90"), replays(1000, generation="_x90"), {"40m": []}),
]


@pytest.mark.parametrize(("series", "below", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_fires_when_it_should(tmp_path: Path, series: Mapping[str, str], below: Mapping[str, str], expected: Moments) -> None:
    """Not before its time, not below its value, not without its series, and once though two agents tell of it."""
    prove(tmp_path, series, below, expected)


def test_a_gpu_keeps_its_past_under_another_number(tmp_path: Path) -> None:
    """After a start of the node GPU 0 may be GPU 1: what it had before is known by its UUID."""
    before = links("1x20 stale", "1x20 stale") | {WIDTH: "16x20 stale"}
    after = {
        name.replace('gpu="0"', 'gpu="1"'): values for name, values in (links("_x30 1x60", "_x30 0x60") | {WIDTH: "_x30 4x60"}).items()
    }
    found = [one | {"gpu": "1"} for one in (DOWN, NARROW)]
    fire(tmp_path, before | after, {"25m": [], "32m": found[:1], "46m": found})


def test_counters_that_begin_anew_set_nothing_off(tmp_path: Path) -> None:
    """A driver that was loaded again, or a new agent that finds high counters, is no storm."""
    names = [*errors(crc=0, replay=0), next(iter(replays(0)))]
    olds = dict.fromkeys(names, "900000x20 0x60")
    news = dict.fromkeys(names, "_x20 900000x60")
    line = {name: values for name, values in replays(0).items() if name not in names}
    fire(tmp_path, olds | line | moved(news | line, "n2"), {at: [] for at in ("21m", "26m", "32m", "60m")})


@pytest.mark.parametrize("name", NAMES)
def test_says_where_whom_and_what_to_do(tmp_path: Path, name: str) -> None:
    """Node, GPU, model, job, and a first thing to do."""
    series = {HELD: "1x90", FABRIC: "0x90"} | links("1x20 0x70") | errors(crc=9000, recovery=3) | replays(50) | {WIDTH: "16x20 8x70"}
    told = say(tmp_path, series, "60m", name)
    assert len(told) == (2 if name == "GpuNvlinkErrors" else 1)
    for one in told:
        words = ("GPU 0 (H100) on n1", "Held by TFJob speech/wav (pod wav-0).", "First: ")
        assert all(word in one["description"] for word in words), one
        assert one["runbook_url"].endswith(f"/{name}.md")


def test_thresholds_may_be_set(tmp_path: Path) -> None:
    """Another value and another window count."""
    changed = {"nvlink_down": "2", "nvlink_errors": "10", "fabric_window": "20m", "pcie_replays": "2"}
    series = links("1x90", "1x20 0x70") | errors(replay=5) | {FABRIC: "0x90"} | replays(20)
    fire(tmp_path, series, {"19m": [], "20m": [UNJOINED], "60m": [UNJOINED]}, thresholds=changed)
