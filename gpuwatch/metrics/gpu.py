"""Identity, use, memory, heat, power and clocks of a physical GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwatch.device.readings import THROTTLE_REASONS
from gpuwatch.metrics.catalog import GPU_LABELS, metrics_by_name

if TYPE_CHECKING:
    from gpuwatch.device.readings import Activity, Fast, Identity, Medium, Memory
    from gpuwatch.metrics.row import Rows
    from gpuwatch.snapshot import Gpu, Snapshot, Totals

_IDLE = "idle"
_NO_THROTTLES = frozenset({_IDLE, "application_clocks", "display_clocks", "sync_boost"})
"""Reasons that hold the clocks where somebody wanted them."""
_THROTTLES = tuple(reason for reason in THROTTLE_REASONS.values() if reason not in _NO_THROTTLES)
_FACTS = metrics_by_name()["gpuwatch_gpu_info"].labels[len(GPU_LABELS) :]


def identity_rows(snapshot: Snapshot, gpu: Gpu) -> Rows:
    """Whether the GPU answers, and who it is as far as that is known."""
    yield "gpuwatch_gpu_info", {_facts(snapshot, gpu): 1}
    yield "gpuwatch_gpu_up", gpu.up
    if not gpu.up:
        yield "gpuwatch_gpu_fault", {gpu.fault or "unknown": 1}


def _facts(snapshot: Snapshot, gpu: Gpu) -> tuple[str, ...]:
    identity, modes = gpu.identity, gpu.modes
    facts = {
        "driver": snapshot.driver_version,
        "cuda": snapshot.cuda_version,
        "vbios": identity.vbios,
        "pci_bus_id": identity.pci_bus_id,
        "serial": identity.serial,
        "board_part_number": identity.board_part_number,
        "architecture": identity.architecture,
        "compute_capability": identity.compute_capability,
        "minor_number": None if identity.minor_number is None else str(identity.minor_number),
        "ecc": _mode(modes.ecc_enabled),
        "mig_mode": _mode(modes.mig_enabled),
        "mig_mode_pending": _mode(modes.mig_pending),
        "compute_mode": modes.compute_mode,
        "persistence_mode": _mode(modes.persistence_mode),
    }
    return tuple(facts[label] or "" for label in _FACTS)


def _mode(enabled: bool | None) -> str:
    return "" if enabled is None else "enabled" if enabled else "disabled"


def total_rows(totals: Totals) -> Rows:
    """Counters that the agent keeps. They are shown for a lost GPU too: a counter must never vanish or fall."""
    yield "gpuwatch_gpu_busy_seconds_total", totals.busy_seconds
    yield "gpuwatch_gpu_energy_joules_total", totals.energy_joules
    throttled = totals.throttled_seconds
    yield "gpuwatch_gpu_throttled_seconds_total", {reason: seconds for reason, seconds in throttled.items() if reason not in _NO_THROTTLES}


def limit_rows(identity: Identity) -> Rows:
    """Limits that belong to the board."""
    absolute, offsets = identity.temperature_limit_celsius, identity.temperature_limit_offset_celsius
    yield "gpuwatch_gpu_temperature_limit_celsius", absolute
    yield "gpuwatch_gpu_temperature_limit_offset_celsius", {limit: value for limit, value in offsets.items() if limit not in absolute}
    yield "gpuwatch_gpu_clock_max_hertz", identity.clock_max_hertz


def fast_rows(fast: Fast) -> Rows:
    """What moves from second to second."""
    yield "gpuwatch_gpu_utilization_ratio", fast.utilization_ratio
    yield "gpuwatch_gpu_memory_activity_ratio", fast.memory_activity_ratio
    yield "gpuwatch_gpu_engine_utilization_ratio", fast.engine_utilization_ratio
    if fast.memory is not None:
        yield from _memory_rows(fast.memory)
    yield "gpuwatch_gpu_temperature_celsius", fast.temperature_celsius
    yield "gpuwatch_gpu_power_watts", fast.power_watts
    yield "gpuwatch_gpu_power_instant_watts", fast.power_instant_watts
    yield "gpuwatch_gpu_clock_hertz", fast.clock_hertz
    yield "gpuwatch_gpu_performance_state", fast.performance_state
    if fast.throttle_reasons is not None:
        yield "gpuwatch_gpu_throttle_active", {reason: reason in fast.throttle_reasons for reason in _THROTTLES}
    if fast.processes is not None:
        # One process may be listed as compute and as graphics.
        yield "gpuwatch_gpu_processes", len({process.pid for process in fast.processes})


def _activity_rows(activity: Activity) -> Rows:
    yield "gpuwatch_gpu_sm_active_ratio", activity.sm_active_ratio
    yield "gpuwatch_gpu_sm_occupancy_ratio", activity.sm_occupancy_ratio
    yield "gpuwatch_gpu_tensor_active_ratio", activity.tensor_active_ratio
    yield "gpuwatch_gpu_pipe_active_ratio", activity.pipe_active_ratio
    yield "gpuwatch_gpu_dram_active_ratio", activity.dram_active_ratio


def _memory_rows(memory: Memory) -> Rows:
    yield "gpuwatch_gpu_memory_total_bytes", memory.total_bytes
    yield "gpuwatch_gpu_memory_used_bytes", memory.used_bytes
    yield "gpuwatch_gpu_memory_free_bytes", memory.free_bytes
    yield "gpuwatch_gpu_memory_reserved_bytes", memory.reserved_bytes


def medium_rows(medium: Medium) -> Rows:
    """Limits, fans and modes, which move slowly."""
    if medium.activity is not None:
        yield from _activity_rows(medium.activity)
    yield "gpuwatch_gpu_bar1_used_bytes", medium.bar1_used_bytes
    yield "gpuwatch_gpu_temperature_margin_celsius", medium.temperature_margin_celsius
    yield "gpuwatch_gpu_power_limit_watts", medium.power_limit_watts
    yield "gpuwatch_gpu_fan_speed_ratio", medium.fan_speed_ratio
