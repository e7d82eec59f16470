"""Alerts about heat, power and clocks, in the real promtool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rules.promtool import GPU, Moments, alert, both, fire, moved, prove, say

HELD = f'gpuwatch_job_gpu_info{{{GPU}, namespace="speech", pod="wav-0", container="c", job_kind="TFJob", job_name="wav"}}'
NAMES = (
    *("GpuHardwareThermalSlowdown", "GpuSoftwareThermalSlowdown", "GpuPowerBrake", "GpuNearSlowdown"),
    *("GpuMemoryHot", "GpuClocksStuckLow"),
)


def throttled(reason: str, seconds_a_minute: float) -> dict[str, str]:
    """Clocks held down for so many seconds of each minute, from the start on."""
    return {f'gpuwatch_gpu_throttled_seconds_total{{{GPU}, reason="{reason}"}}': f"0+{seconds_a_minute}x90"}


def memory(celsius: float, limit: float = 95) -> dict[str, str]:
    """Memory of a GPU and its limit."""
    return {
        f'gpuwatch_gpu_temperature_celsius{{{GPU}, sensor="memory"}}': f"{celsius}x90",
        f'gpuwatch_gpu_temperature_limit_celsius{{{GPU}, limit="memory_max"}}': f"{limit}x90",
    }


def judged(reason: str, values: str = "1x90") -> dict[str, str]:
    """A reason of the agent's verdict."""
    return {f'gpuwatch_gpu_health_reason{{{GPU}, reason="{reason}", action="inspect"}}': values}


HOT = alert("GpuHardwareThermalSlowdown", "warning", GPU)
VERY_HOT = alert("GpuHardwareThermalSlowdown", "critical", GPU)
DRIVER = alert("GpuSoftwareThermalSlowdown", "warning", GPU)
BRAKE = alert("GpuPowerBrake", "critical", 'node="n1"')
MEMORY = alert("GpuMemoryHot", "warning", GPU)
NEAR = alert("GpuNearSlowdown", "warning", GPU)
STUCK = alert("GpuClocksStuckLow", "warning", GPU)
KEPT = {"9m": [NEAR], "14m": [NEAR], "16m": []}
CASES: list[tuple[str, dict[str, str], dict[str, str], Moments]] = [
    # What it is; the series; the same just below; what fires when.
    (
        "most of the time by the board",
        throttled("hardware_thermal", 31),
        throttled("hardware_thermal", 2.9),
        {"5m": [], "6m": [HOT], "14m": [HOT], "15m": [HOT, VERY_HOT], "60m": [HOT, VERY_HOT]},
    ),
    (
        "half of the time by the board",
        throttled("hardware_thermal", 29),
        throttled("software_power_cap", 60),
        {"6m": [HOT], "60m": [HOT]},
    ),
    (
        "by the driver",
        throttled("software_thermal", 13),
        throttled("software_thermal", 11.9),
        {"28m": [], "29m": [DRIVER], "60m": [DRIVER]},
    ),
    (
        "by the supply, which is no heat",
        throttled("hardware_power_brake", 60) | throttled("hardware_slowdown", 60),
        throttled("hardware_power_brake", 2.9),
        {"3m": [], "4m": [BRAKE], "60m": [BRAKE]},
    ),
    ("hot memory", memory(92.5), memory(92), {"4m": [], "5m": [MEMORY], "60m": [MEMORY]}),
    (
        "near the limit, by both measures",
        judged("temperature", "1x9 stale") | judged("temperature_margin", "1x9 stale"),
        judged("hardware_thermal"),
        {"0m": [NEAR]} | KEPT,
    ),
    ("low clocks", judged("clocks_stuck_low", "1x9 stale"), judged("pcie_replays"), {"0m": [STUCK], "14m": [STUCK], "16m": []}),
]


@pytest.mark.parametrize(("series", "below", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_fires_when_it_should(tmp_path: Path, series: Mapping[str, str], below: Mapping[str, str], expected: Moments) -> None:
    """Not before its time, not below its value, not without its series, and once though two agents tell of it."""
    prove(tmp_path, series, below, expected)


def test_no_fixed_temperature(tmp_path: Path) -> None:
    """A T4 at 75 degrees, or a board that tells no limit of its memory, is not hot."""
    core = {f'gpuwatch_gpu_temperature_celsius{{{GPU}, sensor="gpu"}}': "75x60"}
    alone = {name: values for name, values in memory(99).items() if "limit" not in name}
    fire(tmp_path, core | alone, {"10m": [], "60m": []})


def test_an_agent_that_starts_anew_sets_nothing_off(tmp_path: Path) -> None:
    """Counters that begin again, or a new agent's high counter, are no heat; heat that goes on is told of through the change."""
    hot = f'gpuwatch_gpu_throttled_seconds_total{{{GPU}, reason="hardware_thermal"}}'
    old, new = both({hot: ""})
    cool = moved({hot: "900x20 0x60", new: "_x20 5000x60"}, "n2")
    fire(tmp_path, {old: "0+30x30 stale", new: "_x31 0+30x60"} | cool, {at: [HOT] for at in ("30m", "32m", "35m", "40m")})


def test_a_whole_node_is_one_power_brake(tmp_path: Path) -> None:
    """Eight braked GPUs are one page for the node, and it says how many."""
    series = {
        name.replace('gpu="0", uuid="GPU-0"', f'gpu="{number}", uuid="GPU-{number}"'): values
        for number in range(8)
        for name, values in throttled("hardware_power_brake", 60).items()
    }
    fire(tmp_path, series, {"10m": [BRAKE]})
    (told,) = say(tmp_path, series, "10m", "GpuPowerBrake")
    assert told["description"].startswith("8 GPUs of n1 are braked")


@pytest.mark.parametrize("name", NAMES)
def test_says_where_whom_and_what_to_do(tmp_path: Path, name: str) -> None:
    """Node, GPU, model, job, and a first thing to do."""
    causes = (throttled("hardware_thermal", 40), throttled("software_thermal", 40), throttled("hardware_power_brake", 40), memory(94))
    series = {HELD: "1x90"} | judged("temperature") | judged("clocks_stuck_low")
    for cause in causes:
        series |= cause
    for told in say(tmp_path, series, "60m", name):
        words = ("n1", "First: ") if name == "GpuPowerBrake" else ("GPU 0 (H100) on n1", "Held by TFJob speech/wav (pod wav-0).", "First: ")
        assert all(word in told["description"] for word in words), told
        assert told["runbook_url"].endswith(f"/{name}.md")


def test_thresholds_may_be_set(tmp_path: Path) -> None:
    """Another value and another window count."""
    changed = {"hardware_thermal": "0.6", "hardware_thermal_lasting": "0.9", "software_thermal_window": "5m", "memory_temperature": "5"}
    series = throttled("hardware_thermal", 35) | throttled("software_thermal", 13) | memory(91)
    fire(tmp_path, series, {"19m": [MEMORY], "20m": [MEMORY, DRIVER]}, thresholds=changed)
