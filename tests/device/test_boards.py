"""What real boards refuse or tell oddly: nothing is invented, nothing sound looks like a fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from gpuwatch.device import nvml
from gpuwatch.device.readings import Fast, Medium
from gpuwatch.journal import Journal
from gpuwatch.snapshot import Gpu
from pipeline import Pipeline, check_text, families

BOARDS = ("a100-40gb-sxm", "a100-80gb-pcie", "a100-80gb-sxm", "h100-sxm", "h200-sxm", "l40s", "rtx4090", "t4", "v100-pcie", "v100-sxm2")


def read(board: str, *, faults: str = "", load: str = "idle", driver: str = "") -> Pipeline:
    """A node with one such GPU, read three times."""
    version = f"driver: {driver}\n" if driver else ""
    pipeline = Pipeline(f"{version}gpus: [{{board: {board}, loads: [{{kind: {load}}}]}}]\nfaults: [{faults}]\n")
    pipeline.read(3)
    return pipeline


def gpu_of(pipeline: Pipeline) -> Gpu:
    """GPU 0 now."""
    return pipeline.agent.snapshot(pipeline.node.t, 0.0).gpus[0]


def parts_of(pipeline: Pipeline) -> tuple[Fast, Medium]:
    """Both tiers of GPU 0."""
    gpu = gpu_of(pipeline)
    assert gpu.fast is not None
    assert gpu.medium is not None
    return gpu.fast, gpu.medium


@pytest.mark.parametrize(
    ("board", "present", "absent"),
    [
        (
            "rtx4090",
            {"remapped_rows", "row_remap_banks", "fan_speed_ratio", "utilization_ratio"},
            {"ecc_errors_total", "retired_pages", "nvlink_up", "sm_active_ratio", "fabric_healthy"},
        ),
        (
            "t4",
            {"retired_pages", "ecc_errors_total"},
            {"remapped_rows", "row_remap_banks", "fan_speed_ratio", "nvlink_up", "sm_active_ratio", "temperature_margin_celsius"},
        ),
        (
            "l40s",
            {"remapped_rows", "ecc_errors_total", "temperature_margin_celsius"},
            {"retired_pages", "fan_speed_ratio", "nvlink_up", "sm_active_ratio"},
        ),
    ],
)
def test_what_a_board_refuses_is_absent(board: str, present: set[str], absent: set[str]) -> None:
    """D11: no value stands in for what a board refuses, and the log says once what that is."""
    pipeline = read(board, load="matmul")
    journal = Journal()
    with capture_logs() as logs:
        for _ in range(20):
            journal.note(pipeline.read())
    shown = {name.removeprefix("gpuwatch_gpu_") for name in families(pipeline.lines())}
    assert present <= shown
    assert not absent & shown
    assert not [line for line in pipeline.lines() if 'sensor="memory"' in line or line.startswith("gpuwatch_mig_")]
    assert [line["event"] for line in logs].count("not supported by this board or driver") == 1


@pytest.mark.parametrize("board", BOARDS)
def test_no_board_makes_a_nan(board: str) -> None:
    """D12: whatever is unsupported, every line has a number, and no error is counted."""
    pipeline = read(board)
    for call in ("nvmlDeviceGetNumFans", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetTemperatureThreshold", "nvmlDeviceGetFanSpeed_v2"):
        pipeline.driver.fail(call, nvml.NOT_SUPPORTED)
    pipeline.node.t += 3600.0
    snapshot = pipeline.read(3)
    check_text(pipeline.text())
    assert "nan" not in pipeline.text().lower().replace("nanosecond", "")
    assert {key for key, count in snapshot.agent.nvml_errors.items() if count} <= {
        ("nvmlDeviceGetFanSpeed_v2", "NOT_SUPPORTED"),
        *lost_links(),
    }


def lost_links() -> set[tuple[str, str]]:
    """Links that answered before and now refuse are a surprise that is counted."""
    return {("nvmlDeviceGetNvLinkState", "NOT_SUPPORTED"), ("nvmlDeviceGetNumFans", "NOT_SUPPORTED")}


def two_thermal_languages() -> None:
    """Older boards tell absolute limits, newer ones offsets; what a board does not tell is not worked out."""
    absolute, offsets = read("t4"), read("l40s")
    assert gpu_of(absolute).identity.temperature_limit_offset_celsius == {}
    assert gpu_of(absolute).identity.temperature_limit_celsius["slowdown"] == 93.0
    assert gpu_of(offsets).identity.temperature_limit_offset_celsius["slowdown"] == -2.0


def margin_is_read_and_never_derived() -> None:
    """The margin follows the hottest sensor, so it is what the driver says or nothing."""
    pipeline = read("h200-sxm", load="matmul")
    pipeline.driver.answer("nvmlDeviceGetMarginTemperature", 24)
    pipeline.read()
    assert parts_of(pipeline)[1].temperature_margin_celsius == 24.0
    pipeline.driver.fail("nvmlDeviceGetMarginTemperature", nvml.UNKNOWN)
    pipeline.read()
    assert parts_of(pipeline)[1].temperature_margin_celsius is None


def the_4090_tells_some_and_refuses_some() -> None:
    """ECC mode and remapped rows answer, counters and retired pages do not."""
    health = parts_of(read("rtx4090"))[1].health
    assert (health.ecc_enabled, health.ecc_errors, health.retired_pages) == (False, (), {})
    assert health.row_remap_banks["max"] == 192


def the_histogram_is_shown_as_told() -> None:
    """On GDDR boards remapped rows leave the histogram alone."""
    pipeline = read("l40s", faults="{kind: remapped-rows, corrected: 2}")
    health = parts_of(pipeline)[1].health
    assert health.remapped_rows == {"corrected": 2, "uncorrected": 0}
    assert sum(health.row_remap_banks.values()) == 192


def two_books_of_errors() -> None:
    """Remapped rows and ECC counters need not agree, and a pending remap need not ask for a reset."""
    health = parts_of(read("a100-80gb-sxm", faults="{kind: remapped-rows, corrected: 1, pending: true}"))[1].health
    assert health.remapped_rows["corrected"] == 1
    assert health.row_remap_pending is True
    assert [ecc.count for ecc in health.ecc_errors if ecc.scope == "aggregate" and ecc.location == "dram"] == [0, 0]
    assert health.recovery_action in {None, 0}


def a_power_cap_at_idle_is_the_drivers_word() -> None:
    """The reason is shown, the GPU stays up."""
    pipeline = read("rtx4090")
    pipeline.driver.answer("nvmlDeviceGetCurrentClocksEventReasons", 0x4)
    pipeline.read()
    fast = parts_of(pipeline)[0]
    assert fast.throttle_reasons == ("software_power_cap",)
    assert gpu_of(pipeline).up


def half_the_lanes_are_shown_beside_the_most() -> None:
    """Width and generation below the maximum are common on sound boards."""
    pipeline = read("t4", faults="{kind: pcie-width, width: 8}")
    links, identity = parts_of(pipeline)[1].links, gpu_of(pipeline).identity
    assert (links.pcie_width, identity.pcie_width_max, links.pcie_generation, identity.pcie_generation_max) == (8, 16, 1, 3)


def a_fan_at_rest_is_zero_and_no_fan_is_absent() -> None:
    """0 % where the board says so, nothing on passive boards."""
    assert parts_of(read("rtx4090"))[1].fan_speed_ratio == {0: 0.0, 1: 0.0}
    assert parts_of(read("a100-80gb-sxm"))[1].fan_speed_ratio == {}


def an_engine_at_zero_is_shown_as_told() -> None:
    """Zero is what the board says; what it refuses is absent."""
    assert parts_of(read("h100-sxm"))[0].engine_utilization_ratio["encoder"] == 0.0
    assert "jpeg" not in parts_of(read("t4"))[0].engine_utilization_ratio


def mig_takes_values_away() -> None:
    """Heat, ECC and clocks stay for the whole GPU, use, NVLink and remapped rows go."""
    pipeline = Pipeline("gpus: [{board: h100-sxm, mig: [3g.40gb]}]\n")
    pipeline.read(3)
    fast, medium = parts_of(pipeline)
    assert (fast.utilization_ratio, fast.engine_utilization_ratio) == (None, {})
    assert (medium.links.nvlink_up, medium.health.remapped_rows) == ({}, {})
    assert fast.temperature_celsius["gpu"] > 0.0
    assert medium.health.ecc_enabled is True


def p2_is_no_throttle() -> None:
    """GeForce boards run CUDA in P2 with a lower memory clock."""
    fast = parts_of(read("rtx4090", load="held"))[0]
    assert fast.performance_state == 2
    assert fast.throttle_reasons == ()
    assert fast.clock_hertz["memory"] == 10_251e6


def replays_are_a_counter() -> None:
    """Some replays are normal."""
    assert parts_of(read("h100-sxm", faults="{kind: pcie-replays, count: 9}"))[1].links.pcie_replays == 9


def a_power_brake_is_named() -> None:
    """Both bits, by their names."""
    fast = parts_of(read("h100-sxm", load="matmul", faults="{kind: power-brake}"))[0]
    assert set(fast.throttle_reasons or ()) == {"hardware_slowdown", "hardware_power_brake"}


def memory_activity_without_utilisation() -> None:
    """A desktop moves memory without one kernel."""
    pipeline = read("rtx4090")
    pipeline.driver.answer("nvmlDeviceGetUtilizationRates", lambda true: changed(true, gpu=0, memory=23))
    pipeline.read()
    fast = parts_of(pipeline)[0]
    assert (fast.utilization_ratio, fast.memory_activity_ratio) == (0.0, 0.23)


def mean_and_instant_power_are_two_values() -> None:
    """The mean lags behind a job that has just ended."""
    pipeline = read("l40s")
    pipeline.driver.answer("nvmlDeviceGetPowerUsage", 183_000)
    pipeline.driver.answer("field 186", 120_000)
    pipeline.read()
    fast = parts_of(pipeline)[0]
    assert (fast.power_watts, fast.power_instant_watts) == (183.0, 120.0)


def limits_are_each_boards_own() -> None:
    """Two boards of one model may have different limits."""
    pipeline = Pipeline("gpus: [{board: a100-80gb-sxm, count: 2}]\n")
    pipeline.driver.answer("nvmlDeviceGetPowerManagementLimitConstraints", [100_000, 400_000], gpu=1)
    gpus = pipeline.read(2).gpus
    assert [gpu.medium.power_limit_watts["max"] for gpu in gpus if gpu.medium] == [500.0, 400.0]


def words_in_place_of_values() -> None:
    """A serial of 0, a deprecated call and an unknown error are three ways to say nothing."""
    pipeline = Pipeline("gpus: [{board: h100-sxm}]\n")
    pipeline.driver.answer("nvmlDeviceGetSerial", "0")
    pipeline.driver.fail("nvmlDeviceGetVbiosVersion", nvml.DEPRECATED)
    pipeline.driver.fail("nvmlDeviceGetMaxPcieLinkGeneration", nvml.UNKNOWN)
    identity = pipeline.read(2).gpus[0].identity
    assert (identity.serial, identity.vbios, identity.pcie_generation_max) == (None, None, None)


def changed(answer: object, **members: int) -> object:
    """The answer with other members."""
    for name, value in members.items():
        setattr(answer, name, value)
    return answer


TRAPS: dict[int, Callable[[], None]] = {
    1: two_thermal_languages,
    2: margin_is_read_and_never_derived,
    3: the_4090_tells_some_and_refuses_some,
    4: the_histogram_is_shown_as_told,
    5: two_books_of_errors,
    6: a_power_cap_at_idle_is_the_drivers_word,
    7: half_the_lanes_are_shown_beside_the_most,
    8: a_fan_at_rest_is_zero_and_no_fan_is_absent,
    9: an_engine_at_zero_is_shown_as_told,
    10: mig_takes_values_away,
    11: p2_is_no_throttle,
    12: replays_are_a_counter,
    13: a_power_brake_is_named,
    14: memory_activity_without_utilisation,
    15: mean_and_instant_power_are_two_values,
    16: limits_are_each_boards_own,
    17: words_in_place_of_values,
}


@pytest.mark.parametrize("number", TRAPS, ids=lambda number: f"trap-{number}-{TRAPS[number].__name__}")
def test_traps(number: int) -> None:
    """D22: what sound boards tell oddly is shown as told: no value is invented and none is taken for a fault."""
    TRAPS[number]()
