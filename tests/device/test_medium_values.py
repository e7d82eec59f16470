"""The medium and the static tier on values that cannot be: supply, faults, links and identity (case D13, the whole kind)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwatch.device import nvml
from gpuwatch.device.readings import Identity, Medium
from pipeline import Pipeline, check_text

BOARDS = {name: f"gpus: [{{board: {name}, loads: [{{kind: matmul}}]}}]\n" for name in ("h200-sxm", "v100-sxm2", "rtx4090", "t4")}
ALL_ONES, ALL_ONES_64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
COUNT = (ALL_ONES, ALL_ONES_64, -1)
WATTS = (0, ALL_ONES, -1)
LANES = (0, ALL_ONES, 255)
H200, V100, RTX4090 = "h200-sxm", "v100-sxm2", "rtx4090"


def read(pipeline: Pipeline) -> tuple[Identity, Medium]:
    """Identity and medium reading of GPU 0."""
    gpu = pipeline.read(2).gpus[0]
    assert gpu.up
    assert gpu.medium is not None
    check_text(pipeline.text())
    return gpu.identity, gpu.medium


def part(place: int) -> Callable[[int], Callable[[Any], Any]]:
    """Replaces one element of a list."""
    return lambda value: lambda true: [value if number == place else one for number, one in enumerate(true)]


def member(name: str) -> Callable[[int], Callable[[Any], Any]]:
    """Replaces one member of a struct."""
    return lambda value: lambda true: SimpleNamespace(**(vars(true) | {name: value}))


MEDIUM_CASES: list[tuple[str, str, Callable[[int], Any] | None, tuple[int, ...], Callable[[Medium], Any]]] = [
    (H200, "nvmlDeviceGetTotalEnergyConsumption", None, COUNT, lambda medium: medium.energy_joules),
    (H200, "nvmlDeviceGetMarginTemperature", None, (ALL_ONES, -101, 255), lambda medium: medium.temperature_margin_celsius),
    (H200, "nvmlDeviceGetEnforcedPowerLimit", None, WATTS, lambda medium: medium.power_limit_watts.get("enforced")),
    (H200, "nvmlDeviceGetPowerManagementDefaultLimit", None, WATTS, lambda medium: medium.power_limit_watts.get("default")),
    (H200, "nvmlDeviceGetPowerManagementLimitConstraints", part(0), WATTS, lambda medium: medium.power_limit_watts.get("min")),
    (H200, "nvmlDeviceGetPowerManagementLimitConstraints", part(1), WATTS, lambda medium: medium.power_limit_watts.get("max")),
    (RTX4090, "nvmlDeviceGetFanSpeed_v2", None, (ALL_ONES, 201, -1), lambda medium: medium.fan_speed_ratio.get(0)),
    (H200, "field 74", None, COUNT, lambda medium: medium.throttled_seconds.get("power")),
    (H200, "field 270", None, COUNT, lambda medium: medium.throttled_seconds.get("hardware_thermal")),
    (H200, "nvmlDeviceGetBAR1MemoryInfo", member("bar1Used"), (ALL_ONES_64, -1), lambda medium: medium.bar1_used_bytes),
    (H200, "nvmlDeviceGetMemoryErrorCounter", None, COUNT, lambda medium: medium.health.ecc_errors or None),
    (H200, "nvmlDeviceGetRemappedRows", part(0), COUNT, lambda medium: medium.health.remapped_rows.get("corrected")),
    (H200, "nvmlDeviceGetRemappedRows", part(1), COUNT, lambda medium: medium.health.remapped_rows.get("uncorrected")),
    (H200, "nvmlDeviceGetRowRemapperHistogram", member("max"), COUNT, lambda medium: medium.health.row_remap_banks.get("max")),
    (H200, "field 230", None, (ALL_ONES, -1, 65), lambda medium: medium.health.recovery_action),
    (H200, "nvmlDeviceGetCurrPcieLinkGeneration", None, LANES, lambda medium: medium.links.pcie_generation),
    (H200, "nvmlDeviceGetCurrPcieLinkWidth", None, LANES, lambda medium: medium.links.pcie_width),
    (H200, "field 94", None, COUNT, lambda medium: medium.links.pcie_replays),
    (H200, "field 138", None, COUNT, lambda medium: medium.links.nvlink_bytes.get("tx")),
    (H200, "field 139", None, COUNT, lambda medium: medium.links.nvlink_bytes.get("rx")),
    (V100, "field 38", None, COUNT, lambda medium: medium.links.nvlink_errors.get("crc")),
]


@pytest.mark.parametrize(
    ("board", "call", "spoil", "wrong", "value"), MEDIUM_CASES, ids=[f"{one[1]}-{n}" for n, one in enumerate(MEDIUM_CASES)]
)
def test_impossible_values(
    board: str, call: str, spoil: Callable[[int], Any] | None, wrong: tuple[int, ...], value: Callable[[Medium], Any]
) -> None:
    """D13: a value that cannot be is dropped and counted, and sound values are shown."""
    assert value(read(Pipeline(BOARDS[board]))[1]) is not None
    for one in wrong:
        pipeline = Pipeline(BOARDS[board])
        pipeline.driver.answer(call, one if spoil is None else spoil(one))
        assert value(read(pipeline)[1]) is None, one
        assert pipeline.agent.snapshot(pipeline.node.t, 0.0).agent.nvml_rejected_values, one


@pytest.mark.parametrize(
    ("call", "wrong", "value"),
    [
        ("nvmlDeviceGetTemperatureThreshold", (0, 255, -1, ALL_ONES), lambda identity: identity.temperature_limit_celsius or None),
        ("nvmlDeviceGetMaxClockInfo", (0, -1, ALL_ONES), lambda identity: identity.clock_max_hertz or None),
        ("nvmlDeviceGetMaxPcieLinkGeneration", LANES, lambda identity: identity.pcie_generation_max),
        ("nvmlDeviceGetMaxPcieLinkWidth", LANES, lambda identity: identity.pcie_width_max),
        ("field 194", (-101, 101, ALL_ONES), lambda identity: identity.temperature_limit_offset_celsius.get("slowdown")),
    ],
)
def test_impossible_facts(call: str, wrong: tuple[int, ...], value: Callable[[Identity], Any]) -> None:
    """D13: likewise for what never changes."""
    assert value(read(Pipeline(BOARDS[H200]))[0]) is not None
    for one in wrong:
        pipeline = Pipeline(BOARDS[H200])
        pipeline.driver.answer(call, one)
        assert value(read(pipeline)[0]) is None, one
        assert pipeline.agent.snapshot(pipeline.node.t, 0.0).agent.nvml_rejected_values, one


def test_an_ecc_total_never_stands_in_for_a_failure() -> None:
    """Locations that fail once leave no total in their place, or a sum over locations would count twice; boards that refuse them do."""
    pipeline = Pipeline(BOARDS[H200])
    pipeline.driver.fail("nvmlDeviceGetMemoryErrorCounter", nvml.UNKNOWN)
    assert read(pipeline)[1].health.ecc_errors == ()
    old = Pipeline(BOARDS["t4"])
    old.driver.fail("nvmlDeviceGetMemoryErrorCounter", nvml.NOT_SUPPORTED)
    assert {ecc.location for ecc in read(old)[1].health.ecc_errors} == {"total"}


def test_links_that_are_down_are_not_links_that_are_absent() -> None:
    """A link that is down is shown as down; a board without NVLink shows no link."""
    text = "gpus: [{board: h200-sxm}]\nfaults: [{kind: nvlink-down, link: 3}]\n"
    up = read(Pipeline(text))[1].links.nvlink_up
    assert [link for link, is_up in up.items() if not is_up] == [3]
    assert len(up) == 18
    assert read(Pipeline(BOARDS["t4"]))[1].links.nvlink_up == {}


@pytest.mark.parametrize(
    ("state", "status", "mask", "healthy"),
    [
        (3, 0, 0, True),
        (0, 0, 0, None),
        (2, 0, 0, False),
        (3, 1, 0, False),
        (3, 0, 0b01, False),
        (3, 0, 0b0100, False),
        (3, 0, 0b1010, True),
        (3, 0, 0x200, False),
    ],
)
def test_the_fabric(state: int, status: int, mask: int, healthy: bool | None) -> None:
    """Healthy is registered without an error and without a fault bit; a board that takes no part in a fabric has no such value."""
    pipeline = Pipeline(BOARDS[H200])
    pipeline.driver.answer("fabric_info", SimpleNamespace(state=state, status=status, healthMask=mask))
    assert read(pipeline)[1].links.fabric_healthy is healthy


def test_facts_are_read_again_until_they_are_whole() -> None:
    """A fact that failed at the start comes soon after, not an hour later, and a fact that fails later is kept."""
    pipeline = Pipeline(BOARDS[H200])
    pipeline.driver.fail("nvmlDeviceGetSerial", nvml.UNKNOWN)
    assert pipeline.read(2).gpus[0].identity.serial is None
    pipeline.driver.mend()
    serial = pipeline.read_fast(5).gpus[0].identity.serial
    assert serial is not None
    pipeline.driver.fail("nvmlDeviceGetSerial", nvml.UNKNOWN)
    pipeline.node.t += 3600.0
    assert pipeline.read_fast(2).gpus[0].identity.serial == serial


def test_facts_that_never_answer_are_asked_ever_more_seldom() -> None:
    """A fact that fails for good costs some ten reads of the static tier in an hour."""
    pipeline = Pipeline("gpus: [{board: t4}]\n")
    pipeline.driver.fail("nvmlDeviceGetSerial", nvml.UNKNOWN)
    pipeline.driver.log = log = []
    pipeline.read_fast(3_600)
    assert 8 <= [call for call, _ in log].count("nvmlDeviceGetSerial") <= 14


@pytest.mark.parametrize(("told", "known"), [("0", None), ("", None), ("1650000000001", "1650000000001")])
def test_serial_numbers(told: str, known: str | None) -> None:
    """A serial number of 0 is none."""
    pipeline = Pipeline(BOARDS[H200])
    pipeline.driver.answer("nvmlDeviceGetSerial", told)
    assert read(pipeline)[0].serial == known


@pytest.mark.parametrize(("number", "name"), [(9, "hopper"), (7, "ampere"), (42, "arch-42")])
def test_architectures(number: int, name: str) -> None:
    """An architecture newer than this code is shown by its number."""
    pipeline = Pipeline(BOARDS[H200])
    pipeline.driver.answer("nvmlDeviceGetArchitecture", number)
    assert read(pipeline)[0].architecture == name
