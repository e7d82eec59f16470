"""What can go wrong, and when: one struct a kind of fault, as scenario files write them.

Times are seconds since the scenario's start; a fault holds from ``from`` until ``until`` (open: for ever). ``gpu`` is the index in
the node; left out, every GPU has the fault. Each kind copies something that happened to a user (case ids in the tests).
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from gpuwatch.device.simulated.mig import MigSlice


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """Base of the faults: a window of time and the GPU that has it."""

    from_: float = msgspec.field(name="from", default=0.0)
    until: float | None = None
    gpu: int | None = None

    @property
    def end(self) -> float:
        """Second at which the fault is over; infinity when it stays."""
        return math.inf if self.until is None else self.until

    def covers(self, t: float) -> bool:
        """True while the fault holds."""
        return self.from_ <= t < self.end

    def hits(self, gpu: int | None) -> bool:
        """True when the fault concerns that GPU (``None``: a call to no GPU, which only a fault of the whole node hits)."""
        return self.gpu is None or self.gpu == gpu


class GpuLost(Fault, frozen=True, kw_only=True, tag="gpu-lost"):
    """Every call to the GPU answers GPU_IS_LOST."""


class CallError(Fault, frozen=True, kw_only=True, tag="call-error"):
    """``calls`` (``all``: every call) answer the NVML error ``code``."""

    calls: tuple[str, ...] | Literal["all"] = "all"
    code: int


class Hang(Fault, frozen=True, kw_only=True, tag="hang"):
    """``calls`` block for ``seconds`` of real time, then answer, whether the fault is over by then or not."""

    calls: tuple[str, ...] | Literal["all"] = "all"
    seconds: float = 60.0


class Crash(Fault, frozen=True, kw_only=True, tag="crash"):
    """The first call after ``from`` kills the process with SIGSEGV, if its driver object is older than that."""


class DriverMissing(Fault, frozen=True, kw_only=True, tag="driver-missing"):
    """nvmlInit fails: 9 DRIVER_NOT_LOADED or 12 LIBRARY_NOT_FOUND."""

    code: Literal[9, 12] = 9


class DriverUpgrade(Fault, frozen=True, kw_only=True, tag="driver-upgrade"):
    """LIB_RM_VERSION_MISMATCH within the window; a library loaded before its end mismatches for ever, a new process sees ``driver``."""

    driver: str


class MissingSymbols(Fault, frozen=True, kw_only=True, tag="missing-symbols"):
    """The library lacks these functions."""

    calls: tuple[str, ...]


class CgroupLost(Fault, frozen=True, kw_only=True, tag="cgroup-lost"):
    """Every call answers UNKNOWN: the container lost its device files (a systemd reload)."""


class NoGpu(Fault, frozen=True, kw_only=True, tag="no-gpu"):
    """The driver answers and counts no GPU."""


class EccStorm(Fault, frozen=True, kw_only=True, tag="ecc-storm"):
    """Corrected DRAM errors at a steady rate."""

    per_second: float


class EccUncorrected(Fault, frozen=True, kw_only=True, tag="ecc-uncorrected"):
    """Uncorrected DRAM errors at ``from``, told as an XID. Boards with row remapping wait for a reset, older ones retire a page."""

    count: int = 1
    xid: Literal[48, 94, 95] = 48


class ThermalThrottle(Fault, frozen=True, kw_only=True, tag="thermal-throttle"):
    """Cooling fails at ``from``: the GPU heats to its limit, then its clocks fall until ``until``."""

    slowdown: Literal["software", "hardware"] = "software"


class PowerBrake(Fault, frozen=True, kw_only=True, tag="power-brake"):
    """The chassis asserts the power brake on the GPU: clocks and power fall to almost nothing."""


class NvlinkDown(Fault, frozen=True, kw_only=True, tag="nvlink-down"):
    """One link is inactive."""

    link: int


class NvlinkErrors(Fault, frozen=True, kw_only=True, tag="nvlink-errors"):
    """One link counts errors at a steady rate."""

    link: int
    counter: Literal["replay", "recovery", "crc"] = "crc"
    per_second: float


class PcieWidth(Fault, frozen=True, kw_only=True, tag="pcie-width"):
    """The PCIe link runs with fewer lanes."""

    width: int


class PcieReplays(Fault, frozen=True, kw_only=True, tag="pcie-replays"):
    """PCIe replays at a steady rate, on top of ``count`` at once."""

    count: int = 0
    per_second: float = 0.0


class RetiredPages(Fault, frozen=True, kw_only=True, tag="retired-pages"):
    """Pages retired at ``from`` (V100, T4)."""

    single_bit: int = 0
    double_bit: int = 0
    pending: bool = False


class RemappedRows(Fault, frozen=True, kw_only=True, tag="remapped-rows"):
    """Rows remapped at ``from`` (Ampere and newer)."""

    corrected: int = 0
    uncorrected: int = 0
    pending: bool = False
    failed: bool = False


class RecoveryAction(Fault, frozen=True, kw_only=True, tag="recovery-action"):
    """What the driver itself recommends, NVML field 230: 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset, 5 recover IMEX."""

    action: int


class Xid(Fault, frozen=True, kw_only=True, tag="xid"):
    """The driver reports an XID at ``from``: as an NVML event, as a line of the kernel log, or both. ``until`` ends repetitions."""

    code: int
    text: str = "injected by the scenario"
    pid: int | None = None
    gpu_instance: int | None = None
    source: Literal["both", "nvml", "kernel_log"] = "both"
    times: int = 1
    every: float = 60.0
    """Seconds between repetitions."""


class Garbage(Fault, frozen=True, kw_only=True, tag="garbage"):
    """``call`` answers ``value``; ``member`` names the member where the call answers a struct."""

    call: str
    value: int
    member: str | None = None


class MigReshape(Fault, frozen=True, kw_only=True, tag="mig-reshape"):
    """From ``from`` on the GPU has this MIG layout; ``off``: MIG mode is off."""

    gpu: int
    layout: tuple[str | MigSlice, ...] | Literal["off"]


AnyFault = (
    GpuLost
    | CallError
    | Hang
    | Crash
    | DriverMissing
    | DriverUpgrade
    | MissingSymbols
    | CgroupLost
    | NoGpu
    | EccStorm
    | EccUncorrected
    | ThermalThrottle
    | PowerBrake
    | NvlinkDown
    | NvlinkErrors
    | PcieWidth
    | PcieReplays
    | RetiredPages
    | RemappedRows
    | RecoveryAction
    | Xid
    | Garbage
    | MigReshape
)
