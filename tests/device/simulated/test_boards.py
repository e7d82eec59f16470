"""Each board refuses what the real one refuses, on the driver it was captured with."""

from __future__ import annotations

import pytest

from gpuwatch.device import nvml
from gpuwatch.device.simulated.board import BoardError, board_names, load_board
from nodes import Node

YES, REFUSED, NO_SYMBOL = 0, nvml.NOT_SUPPORTED, nvml.FUNCTION_NOT_FOUND
BOARDS = ("t4", "v100-sxm2", "v100-pcie", "a100-40gb-sxm", "a100-80gb-sxm", "a100-80gb-pcie", "l40s", "rtx4090", "h100-sxm", "h200-sxm")

MATRIX: dict[tuple[str, tuple[int, ...]], dict[str, int]] = {
    ("Serial", ()): {"rtx4090": REFUSED},
    ("BoardPartNumber", ()): {"rtx4090": REFUSED},
    ("Temperature", (0,)): {},
    ("TemperatureThreshold", (0,)): {},
    ("TemperatureThreshold", (2,)): dict.fromkeys(("t4", "l40s", "rtx4090"), REFUSED),
    ("TemperatureThreshold", (5,)): {board: REFUSED for board in BOARDS if board != "rtx4090"},
    ("MarginTemperature", ()): {board: NO_SYMBOL for board in BOARDS if board not in {"l40s", "h100-sxm", "h200-sxm"}},
    ("EccMode", ()): {},
    ("TotalEccErrors", (0, 0)): {"rtx4090": REFUSED},
    ("MemoryErrorCounter", (1, 0, 2)): {"rtx4090": REFUSED},
    ("MemoryErrorCounter", (1, 0, 7)): dict.fromkeys(("rtx4090", "v100-sxm2", "v100-pcie"), REFUSED),
    ("MemoryErrorCounter", (1, 0, 3)): {board: REFUSED for board in BOARDS if not board.startswith("v100")},
    ("RetiredPages", (0,)): {board: REFUSED for board in BOARDS if not board.startswith(("v100", "t4"))},
    ("RetiredPagesPendingStatus", ()): {board: REFUSED for board in BOARDS if not board.startswith(("v100", "t4"))},
    ("RemappedRows", ()): dict.fromkeys(("t4", "v100-sxm2", "v100-pcie"), REFUSED),
    ("RowRemapperHistogram", ()): dict.fromkeys(("t4", "v100-sxm2", "v100-pcie"), REFUSED),
    ("UtilizationRates", ()): {},
    ("EncoderUtilization", ()): {},
    ("JpgUtilization", ()): {"t4": NO_SYMBOL, "v100-sxm2": REFUSED, "v100-pcie": REFUSED},
    ("NvLinkState", (0,)): dict.fromkeys(("t4", "v100-pcie", "a100-80gb-pcie", "l40s", "rtx4090"), REFUSED),
    ("MigMode", ()): dict.fromkeys(("t4", "v100-sxm2", "v100-pcie", "l40s", "rtx4090"), REFUSED),
    ("CurrentClocksEventReasons", ()): {"t4": NO_SYMBOL},
    ("CurrentClocksThrottleReasons", ()): {},
    ("TotalEnergyConsumption", ()): {},
}
"""NVML call → how the boards that do not answer it refuse."""

FIELDS: dict[int, tuple[str, ...]] = {
    82: ("v100-sxm2", "v100-pcie", "a100-40gb-sxm", "a100-80gb-sxm", "a100-80gb-pcie", "h100-sxm", "h200-sxm"),
    91: ("v100-sxm2", "a100-40gb-sxm", "a100-80gb-sxm", "h100-sxm", "h200-sxm"),
    52: ("v100-sxm2", "a100-40gb-sxm", "a100-80gb-sxm"),
    161: ("h100-sxm", "h200-sxm"),
    142: ("a100-40gb-sxm", "a100-80gb-sxm", "a100-80gb-pcie", "l40s", "rtx4090", "h100-sxm", "h200-sxm"),
    185: ("l40s", "rtx4090", "h100-sxm", "h200-sxm"),
    193: ("l40s", "rtx4090", "h100-sxm", "h200-sxm"),
    195: ("h100-sxm", "h200-sxm"),
    230: ("l40s", "h100-sxm", "h200-sxm"),
    269: ("l40s", "h100-sxm", "h200-sxm"),
}
"""NVML field → boards that answer it on the driver of their capture."""


def whole_node(board: str, more: str = "") -> Node:
    """A node with one such board on the driver of its capture."""
    return Node(f"gpus: [{{board: {board}}}]\n{more}")


def test_every_board_is_in_the_matrix() -> None:
    """No board ships without a test of what it refuses."""
    assert set(board_names()) == set(BOARDS)


@pytest.mark.parametrize("board", BOARDS)
def test_refusals(board: str) -> None:
    """A call that the real board refuses is refused with the same error, and no other one is."""
    node = whole_node(board)
    wrong = {
        (call, arguments): node.code(call, *arguments)
        for (call, arguments), refusals in MATRIX.items()
        if node.code(call, *arguments) != refusals.get(board, YES)
    }
    assert not wrong


@pytest.mark.parametrize("board", BOARDS)
def test_fields(board: str) -> None:
    """A field answers on the boards and drivers that have it; elsewhere it has its own return code and the call succeeds."""
    node = whole_node(board)
    answered = {field for field in FIELDS if node.field(field).nvmlReturn == 0}
    assert answered == {field for field, boards in FIELDS.items() if board in boards}


@pytest.mark.parametrize("board", BOARDS)
def test_idle_values(board: str) -> None:
    """An idle board reads its own limits, idle power and empty memory."""
    node, facts = whole_node(board, "seed: 3\n"), load_board(board)
    assert node.ask("Name") == facts.name
    assert node.ask("PowerUsage") == pytest.approx(facts.power.idle_watts * 1000, rel=0.02)
    assert node.ask("PowerManagementLimitConstraints") == [facts.power.min_watts * 1000, facts.power.max_watts * 1000]
    memory = node.driver.nvmlDeviceGetMemoryInfo(node.handle(), version=nvml.MEMORY_V2)
    assert memory.used == 0
    assert memory.total == memory.free + memory.reserved
    assert node.ask("ClockInfo", 1) == facts.clocks.graphics_idle
    assert node.ask("CurrentClocksThrottleReasons") == 1


def test_memory_v1_counts_the_reserved_part_as_used() -> None:
    """The old call shows memory as used that only the driver holds (case D14)."""
    node = whole_node("a100-40gb-sxm")
    assert node.ask("MemoryInfo").used == 620 << 20


@pytest.mark.parametrize("board", ["t4", "v100-sxm2", "a100-80gb-sxm", "l40s", "h100-sxm", "h200-sxm"])
def test_passive_boards_have_no_fan(board: str) -> None:
    """A board without fans says so and refuses their speed."""
    node = whole_node(board)
    assert node.ask("NumFans") == 0
    assert node.code("FanSpeed_v2", 0) == nvml.INVALID_ARGUMENT


def test_geforce_fans_stand_still_when_cold() -> None:
    """0 percent on an idle RTX 4090 is a value, and it turns under load."""
    node = Node("gpus: [{board: rtx4090, loads: [{kind: matmul, from: 10}]}]")
    assert node.ask("FanSpeed_v2", 0) == 0
    node.t = 600.0
    assert 70 <= node.ask("FanSpeed_v2", 1) <= 100


def test_geforce_computes_in_p2_below_its_maximum_memory_clock() -> None:
    """An RTX 4090 under CUDA runs in P2 with 10251 of 10501 MHz, which is no throttle."""
    node = Node("gpus: [{board: rtx4090, loads: [{kind: fp32}]}]")
    assert (node.ask("PerformanceState"), node.ask("ClockInfo", 2), node.ask("MaxClockInfo", 2)) == (2, 10251, 10501)


def test_gpm_is_for_hopper() -> None:
    """Only Hopper boards give activity samples."""
    supported = {board for board in BOARDS if (node := whole_node(board)).driver.nvmlGpmQueryDeviceSupport(node.handle()).isSupportedDevice}
    assert supported == {"h100-sxm", "h200-sxm"}


def test_unset_fabric_version_is_refused() -> None:
    """A fabric struct without its version fails, where the real library may take the process with it."""

    class Struct:
        version = 0

    node = whole_node("h200-sxm")
    assert node.code("GpuFabricInfoV", Struct()) == nvml.ARGUMENT_VERSION_MISMATCH
    assert node.driver.fabric_info(node.handle()).state == 3


def test_unknown_board_is_named() -> None:
    """A board that does not exist is one clear error with the boards that do."""
    with pytest.raises(BoardError, match=r"'h900'.*h100-sxm"):
        load_board("h900")
