"""What a GPU does under each kind of work: measured patterns, scaled to any board.

The table holds means over 4 to 5 s of two H200 (cap 700 W, idle 82 W, 1980 MHz) under ten kinds of work. A board takes the same
share of its own power range, clock range, memory and links.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

from gpuwatch.device.simulated.board import Board

LoadKind = Literal["idle", "held", "starved", "tiny", "memory_bound", "fp32", "matmul", "training", "straggler_wait", "straggler_late"]

IDLE, POWER_CAP, SLOWDOWN = 0x1, 0x4, 0x8
SOFTWARE_THERMAL, HARDWARE_THERMAL, POWER_BRAKE = 0x20, 0x40, 0x80
"""Bits of ``nvmlDeviceGetCurrentClocksEventReasons``."""

_H200_IDLE_WATTS, _H200_CAP_WATTS, _H200_MHZ = 82.0, 700.0, 1980.0
_H200_NVLINK_MB_PER_SECOND = 18 * 26562


@dataclass(frozen=True, slots=True)
class Pattern:
    """One row as measured: percent, watts and MHz of an H200; MiB/s for links."""

    utilization: float
    memory_utilization: float
    jitter: float
    watts: float
    instant_watts: float
    megahertz: float
    reasons: int
    capped_share: float
    sm: float
    occupancy: float
    tensor: float
    dram: float
    fp32: float
    pcie_rx: float
    nvlink: float
    memory_share: float


PATTERNS: dict[LoadKind, Pattern] = {
    #                      util   mem  jit      W   inst    MHz  why   cap    sm   occ tensor dram  fp32   pcie  nvlink  held
    "idle": Pattern(0.0, 0.0, 0.0, 82, 82, 345, IDLE, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0, 0.0),
    "held": Pattern(0.1, 0.0, 0.4, 113, 112, 1816, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.8, 0, 0.55),
    "starved": Pattern(30.6, 8.4, 3.0, 361, 486, 1877, POWER_CAP, 1.0, 25.5, 3.8, 24.7, 5.7, 0.0, 0.9, 0, 0.5),
    "tiny": Pattern(19.4, 0.0, 1.5, 115, 116, 1980, 0, 0.0, 0.2, 0.1, 0.0, 0.1, 0.1, 125, 0, 0.2),
    "memory_bound": Pattern(99.4, 99.0, 0.5, 606, 610, 1980, 0, 0.0, 98.3, 84.1, 0.0, 86.9, 1.6, 20, 0, 0.7),
    "fp32": Pattern(99.9, 4.0, 0.3, 574, 564, 1980, 0, 0.0, 96.2, 12.3, 0.0, 2.9, 76.4, 3.0, 0, 0.4),
    "matmul": Pattern(99.1, 22.9, 0.8, 689, 688, 1506, POWER_CAP, 1.0, 95.5, 14.1, 92.7, 16.2, 0.0, 12, 0, 0.6),
    "training": Pattern(99.8, 22.6, 0.2, 690, 690, 1470, POWER_CAP, 1.0, 92.6, 13.8, 89.1, 16.0, 0.0, 15, 7568, 0.8),
    "straggler_wait": Pattern(99.9, 8.7, 0.1, 410, 394, 1959, POWER_CAP, 0.87, 39.0, 7.3, 24.9, 6.1, 0.0, 5.8, 2916, 0.8),
    "straggler_late": Pattern(32.5, 8.7, 3.0, 414, 419, 1952, POWER_CAP, 1.0, 25.8, 3.8, 24.8, 6.1, 0.0, 4.5, 2883, 0.8),
}


@dataclass(frozen=True, slots=True)
class Level:
    """How busy one GPU (or one MIG instance) is: percent, watts, MHz, MiB/s; shares 0 to 1."""

    utilization: float
    memory_utilization: float
    jitter: float
    watts: float
    instant_watts: float
    graphics_mhz: float
    memory_mhz: float
    video_mhz: float
    reasons: int
    capped_share: float
    software_thermal_share: float
    hardware_thermal_share: float
    power_brake_share: float
    sm: float
    occupancy: float
    tensor: float
    dram: float
    fp32: float
    pcie_rx: float
    pcie_tx: float
    nvlink: float
    memory_share: float
    performance_state: int
    pcie_generation: int


def level_of(kind: LoadKind, board: Board) -> Level:
    """The pattern on that board."""
    pattern, clocks = PATTERNS[kind], board.clocks
    active = kind != "idle"
    return Level(
        utilization=pattern.utilization,
        memory_utilization=pattern.memory_utilization,
        jitter=pattern.jitter,
        watts=_watts(pattern.watts, board),
        instant_watts=_watts(pattern.instant_watts, board),
        graphics_mhz=clocks.graphics_max * pattern.megahertz / _H200_MHZ if active else clocks.graphics_idle,
        memory_mhz=clocks.memory_busy if active else clocks.memory_idle,
        video_mhz=clocks.video_max if active else clocks.video_idle,
        reasons=pattern.reasons,
        capped_share=pattern.capped_share,
        software_thermal_share=0.0,
        hardware_thermal_share=0.0,
        power_brake_share=0.0,
        sm=pattern.sm,
        occupancy=pattern.occupancy,
        tensor=pattern.tensor,
        dram=pattern.dram,
        fp32=pattern.fp32,
        pcie_rx=pattern.pcie_rx,
        pcie_tx=pattern.pcie_rx * 0.7,
        nvlink=pattern.nvlink * _nvlink_share(board),
        memory_share=pattern.memory_share,
        performance_state=board.performance_state_busy if active else board.performance_state_idle,
        pcie_generation=board.pcie.generation if active else board.pcie.idle_generation,
    )


def blend(parts: list[tuple[float, Level]], idle: Level) -> Level:
    """One GPU whose MIG instances run ``parts`` (share of the board, level of the instance): work adds up, the rest is idle."""
    busy = [level for _, level in parts if not level.reasons & IDLE]
    if not busy:
        return idle
    mixed = {
        name: getattr(idle, name) + sum(share * (getattr(level, name) - getattr(idle, name)) for share, level in parts)
        for name in _ADDITIVE
    }
    fastest = max(busy, key=lambda level: level.graphics_mhz)
    # The board's cap is shared: a part of the board alone does not reach it.
    return replace(fastest, **mixed, reasons=0, capped_share=0.0, nvlink=0.0)


def throttled(level: Level, reason: int, *, clock_share: float) -> Level:
    """The level with its clocks held down for ``reason``: power and work fall with the clock, utilisation stays."""
    return replace(
        level,
        watts=level.watts * clock_share,
        instant_watts=level.instant_watts * clock_share,
        graphics_mhz=level.graphics_mhz * clock_share,
        reasons=(level.reasons & ~(IDLE | POWER_CAP)) | reason,
        capped_share=0.0,
        software_thermal_share=1.0 if reason & SOFTWARE_THERMAL else 0.0,
        hardware_thermal_share=1.0 if reason & HARDWARE_THERMAL else 0.0,
        nvlink=level.nvlink * clock_share,
        pcie_rx=level.pcie_rx * clock_share,
        pcie_tx=level.pcie_tx * clock_share,
    )


def braked(level: Level, board: Board) -> Level:
    """The level under a power brake: on a real H100 86 of 1980 MHz and 68 W, a little under idle."""
    watts = board.power.idle_watts * 0.97
    return replace(
        throttled(level, SLOWDOWN | POWER_BRAKE, clock_share=86 / _H200_MHZ),
        graphics_mhz=board.clocks.graphics_max * 86 / _H200_MHZ,
        watts=watts,
        instant_watts=watts,
        power_brake_share=1.0,
    )


def power_share(watts: float, board: Board) -> float:
    """Where ``watts`` lies between the board's idle power (0) and its default limit (1)."""
    power = board.power
    return max(0.0, (watts - power.idle_watts) / (power.default_watts - power.idle_watts))


def _watts(h200_watts: float, board: Board) -> float:
    share = (h200_watts - _H200_IDLE_WATTS) / (_H200_CAP_WATTS - _H200_IDLE_WATTS)
    return board.power.idle_watts + share * (board.power.default_watts - board.power.idle_watts)


def _nvlink_share(board: Board) -> float:
    if board.nvlink is None:
        return 0.0
    return board.nvlink.links * board.nvlink.speed_mb_per_second / _H200_NVLINK_MB_PER_SECOND


_ADDITIVE = tuple(
    field.name
    for field in fields(Level)
    if field.name
    in {
        "utilization",
        "memory_utilization",
        "watts",
        "instant_watts",
        "sm",
        "occupancy",
        "tensor",
        "dram",
        "fp32",
        "pcie_rx",
        "pcie_tx",
        "memory_share",
    }
)
