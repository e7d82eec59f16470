"""What has happened to a GPU by now: ECC errors, remapped rows, retired pages, link errors. Pure functions of GPU and time."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.device.simulated.fault import (
    EccStorm,
    EccUncorrected,
    NvlinkDown,
    NvlinkErrors,
    PcieReplays,
    RecoveryAction,
    RemappedRows,
    RetiredPages,
)
from gpuwatch.device.simulated.gpu import SimulatedGpu

LINK_COUNTERS = ("replay", "recovery", "crc")


@dataclass(frozen=True, slots=True)
class Remap:
    """Rows remapped for good, one waiting for a reset, a remap that failed."""

    corrected: int
    uncorrected: int
    pending: bool
    failed: bool


@dataclass(frozen=True, slots=True)
class Retired:
    """Page addresses by cause, and whether one waits for a driver reload."""

    single_bit: tuple[int, ...]
    double_bit: tuple[int, ...]
    pending: bool


def corrected_dram_errors(gpu: SimulatedGpu, t: float) -> int:
    """Corrected errors of device memory up to ``t``."""
    return int(sum(storm.per_second * lasted for storm, lasted in gpu.begun(EccStorm, t)))


def uncorrected_dram_errors(gpu: SimulatedGpu, t: float) -> int:
    """Uncorrected errors of device memory up to ``t``."""
    return sum(fault.count for fault, _ in gpu.begun(EccUncorrected, t))


def remap(gpu: SimulatedGpu, t: float) -> Remap:
    """State of row remapping; an uncorrected error marks a row, which waits for a reset."""
    faults = [fault for fault, _ in gpu.begun(RemappedRows, t)]
    uncorrected = uncorrected_dram_errors(gpu, t)
    return Remap(
        corrected=sum(fault.corrected for fault in faults),
        uncorrected=sum(fault.uncorrected for fault in faults) + uncorrected,
        pending=any(fault.pending and fault.covers(t) for fault in faults) or bool(gpu.active(EccUncorrected, t)),
        failed=any(fault.failed for fault in faults),
    )


def remap_banks(gpu: SimulatedGpu, t: float) -> tuple[int, int, int, int, int]:
    """Banks with max, high, partial, low and no spare rows.

    On HBM boards each remapped row moves one bank down; on GDDR boards real captures show remapped rows and untouched banks.
    """
    state, banks = remap(gpu, t), gpu.board.remap_banks
    if "memory_temperature" not in gpu.board.support:
        return (banks, 0, 0, 0, 0)
    high, empty = state.corrected + state.uncorrected, int(state.failed)
    return (banks - high - empty, high, 0, 0, empty)


def retired(gpu: SimulatedGpu, t: float) -> Retired:
    """State of page retirement (V100, T4)."""
    faults = [fault for fault, _ in gpu.begun(RetiredPages, t)]
    single = sum(fault.single_bit for fault in faults)
    double = sum(fault.double_bit for fault in faults) + uncorrected_dram_errors(gpu, t)
    pending = any(fault.pending and fault.covers(t) for fault in faults) or bool(gpu.active(EccUncorrected, t))
    return Retired(tuple(range(0x1000, 0x1000 + single)), tuple(range(0x8000, 0x8000 + double)), pending)


def recovery_action(gpu: SimulatedGpu, t: float) -> int:
    """NVML field 230: what the driver recommends to do."""
    actions = [fault.action for fault in gpu.active(RecoveryAction, t)]
    return max(actions, default=0)


def pcie_replays(gpu: SimulatedGpu, t: float) -> int:
    """PCIe replays up to ``t``."""
    return int(sum(fault.count + fault.per_second * lasted for fault, lasted in gpu.begun(PcieReplays, t)))


def link_is_up(gpu: SimulatedGpu, link: int, t: float) -> bool:
    """True unless a fault takes the link down."""
    return all(fault.link != link for fault in gpu.active(NvlinkDown, t))


def link_errors(gpu: SimulatedGpu, counter: str, t: float, *, link: int | None) -> int:
    """Errors of one kind (``LINK_COUNTERS``) of one link, or of all with ``link`` None."""
    faults = gpu.begun(NvlinkErrors, t)
    return int(sum(fault.per_second * lasted for fault, lasted in faults if fault.counter == counter and link in {None, fault.link}))
