"""The simulated H200 answers as a real one did, call by call (driver 580.159.04)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.device import nvml
from gpuwatch.device.nvml import NVMLError
from gpuwatch.device.simulated.answers.fields import _FIELDS
from gpuwatch.device.simulated.board import load_board
from gpuwatch.device.simulated.driver import ANSWERS
from nodes import Node

RECORDING: dict[str, Any] = json.loads(Path(__file__).parents[2].joinpath("recordings/h200-driver-580-probe.json").read_text())
OF_THE_MACHINE = {
    "UUID",
    "Serial",
    "PciInfo",
    "BAR1MemoryInfo",
    "PcieThroughput",
    "TotalEnergyConsumption",
    "ViolationStatus",
    "PowerUsage",
    "ProcessUtilization",
}
"""Differ from board to board or from moment to moment: only the kind of answer is compared."""
TOLERANCE: dict[str, float] = {"Temperature": 2, "MarginTemperature": 2, "ClockInfo": 30}
MOVING_UNDER_LOAD = {"UtilizationRates", "MemoryInfo"}


def recorded_calls(state: str) -> list[tuple[str, tuple[int, ...], dict[str, Any]]]:
    """Recorded calls that the simulated driver has."""
    found = []
    for text, answer in RECORDING[state]["calls"].items():
        name, arguments = re.fullmatch(r"(\w+)(?:\((.*)\))?", text).groups()  # type: ignore[union-attr]
        if f"nvmlDeviceGet{name}" in ANSWERS:
            found.append((name, tuple(int(part) for part in (arguments or "").split(",") if part), answer))
    return found


def plain(value: Any) -> Any:
    """Answer in the form of the recording."""
    if hasattr(value, "__dict__"):
        return vars(value)
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("state", ["idle", "load"])
def test_calls(state: str) -> None:
    """Each recorded call answers with the recorded value, or with the recorded error."""
    node = Node("gpus: [{board: h200-sxm, loads: [{kind: matmul, from: 60}]}]", t=30.0 if state == "idle" else 600.0)
    calls = recorded_calls(state)
    assert len(calls) > 80
    for name, arguments, recorded in calls:
        try:
            answer = plain(node.ask(name, *arguments))
        except NVMLError as error:
            assert recorded == {"error": error.value}, (name, arguments)
            continue
        expected = recorded.get("value")
        if name in TOLERANCE:
            assert answer == pytest.approx(expected, abs=TOLERANCE[name]), (name, arguments)
        elif name in OF_THE_MACHINE or (state == "load" and name in MOVING_UNDER_LOAD):
            assert type(answer) is type(expected), (name, arguments)
            assert not isinstance(answer, dict) or answer.keys() >= expected.keys() - {"pciDeviceId", "pciSubSystemId"}
        else:
            assert answer == expected, (name, arguments)


@pytest.mark.parametrize("state", ["idle", "load"])
def test_fields(state: str) -> None:
    """Each field the simulator knows has the recorded type, or the recorded refusal."""
    node = Node("gpus: [{board: h200-sxm, loads: [{kind: matmul, from: 60}]}]", t=30.0 if state == "idle" else 600.0)
    for field in _FIELDS:
        recorded, answer = RECORDING[state]["fields"].get(str(field)), node.field(field)
        if recorded is None:
            continue
        assert (answer.nvmlReturn, answer.valueType) == (recorded.get("code", 0), recorded.get("type", 0)), field
        if field in {82, 91, 142, 143, 144, 145, 164, 193, 194, 195, 196, 230}:
            assert nvml.field_value(answer) == pytest.approx(recorded["value"], abs=2 if field == 82 else 0), field


def test_refused_fields() -> None:
    """A field that the recording refuses is refused, also when the simulator has never heard of it."""
    node = Node("gpus: [{board: h200-sxm}]")
    for field, recorded in RECORDING["idle"]["fields"].items():
        if "code" in recorded:
            assert node.field(int(field)).nvmlReturn in {nvml.INVALID_ARGUMENT, nvml.NOT_SUPPORTED}, field


def test_activity_under_load() -> None:
    """GPM says what it said on the real board under a matrix load, within a few percent."""
    node = Node("gpus: [{board: h200-sxm, loads: [{kind: matmul}]}]", t=600.0)
    first, second = node.driver.nvmlGpmSampleAlloc(), node.driver.nvmlGpmSampleAlloc()
    node.driver.nvmlGpmSampleGet(node.handle(), first)
    node.t += 1.0
    node.driver.nvmlGpmSampleGet(node.handle(), second)
    metrics = node.driver.gpm_metrics(first, second, [*range(1, 14), 20, 21, 60, 61, 248])
    recorded = {int(metric): value for metric, value in RECORDING["load"]["gpm"].items()}
    assert metrics.keys() == recorded.keys() & {*range(1, 14), 20, 21, 60, 61}
    for metric in range(1, 14):
        assert metrics[metric] == pytest.approx(recorded[metric], abs=9.0), metric


def test_signed_offsets_fool_who_ignores_the_type() -> None:
    """-8 read as an unsigned member is garbage, as in NVML's union; a small unsigned value reads the same in every member."""
    node = Node("gpus: [{board: h200-sxm}]")
    offset, count = node.field(193).value, node.field(91).value
    assert (offset.siVal, offset.uiVal) == (-8, 4294967288)
    assert count.uiVal == count.siVal == count.ullVal == count.sllVal == 18


def test_mig_profiles() -> None:
    """MIG profiles have the sizes the real driver states."""
    for profile in load_board("h200-sxm").mig_profiles:
        real = RECORDING["mig_profiles"][profile.name]
        expected = (real["sliceCount"], real["instanceCount"], real["multiprocessorCount"])
        assert (profile.slices, profile.max_instances, profile.multiprocessors) == expected
        assert profile.memory_mib == real["memorySizeMB"]
