"""What one read of a GPU returns: plain data that crosses from the reader process to the agent.

Every value is in base units (bytes, seconds, watts, hertz, joules, degrees Celsius, ratios 0 to 1) and ``None`` or a missing key means
"not reported": the board refuses it, or the call failed this time. A value is zero only where the device said zero.
The structs double as the wire format between the two processes (msgpack through msgspec).
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Struct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of all readings: frozen, keyword-only, small on the wire."""


class Identity(Struct, frozen=True, kw_only=True):
    """Facts of a GPU that change only with the board, its firmware or the driver. Source: NVML static queries."""

    index: int
    uuid: str = ""
    model: str = ""
    serial: str | None = None
    minor_number: int | None = None
    pci_bus_id: str | None = None
    vbios: str | None = None
    board_part_number: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    clock_max_hertz: dict[str, float] = {}
    temperature_limit_celsius: dict[str, float] = {}
    temperature_limit_offset_celsius: dict[str, float] = {}
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None
    nvlink_count: int | None = None
    """Links the board has; 0 or ``None`` on boards without NVLink."""
    nvlink_speed_bytes_per_second: float | None = None
    """Of one link, one direction."""


class Activity(Struct, frozen=True, kw_only=True):
    """Share of time or capacity in use since the previous medium read, from GPM (Hopper and newer). Ratios 0 to 1."""

    graphics_ratio: float | None = None
    sm_active_ratio: float | None = None
    sm_occupancy_ratio: float | None = None
    tensor_active_ratio: float | None = None
    dram_active_ratio: float | None = None
    pipe_active_ratio: dict[str, float] = {}
    """Keys: ``fp64``, ``fp32``, ``fp16``, ``integer``, ``tensor_half`` (HMMA), ``tensor_integer`` (IMMA)."""
    pcie_bytes_per_second: dict[str, float] = {}
    """Keys: ``rx`` (to the GPU), ``tx`` (from the GPU)."""
    nvlink_bytes_per_second: dict[str, float] = {}
    """Keys: ``rx``, ``tx``: sum over all links."""


class Memory(Struct, frozen=True, kw_only=True):
    """Framebuffer in bytes, as nvidia-smi shows it: ``reserved`` (driver, firmware) apart from ``used`` where NVML tells them apart."""

    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    reserved_bytes: int | None = None


class Process(Struct, frozen=True, kw_only=True):
    """A process with a context on the GPU. Instance ids only under MIG; memory may be unknown."""

    pid: int
    kind: str
    """``compute``, ``graphics`` or ``mps``."""
    used_bytes: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


class Fast(Struct, frozen=True, kw_only=True):
    """The fast tier (default 1 s): everything that costs microseconds."""

    utilization_ratio: float | None = None
    memory_activity_ratio: float | None = None
    engine_utilization_ratio: dict[str, float] = {}
    """Keys: ``encoder``, ``decoder``, ``jpeg``, ``ofa``."""
    memory: Memory | None = None
    temperature_celsius: dict[str, float] = {}
    """Keys: ``gpu``, ``memory``."""
    power_watts: float | None = None
    """Mean over the last second on Ampere (except GA100) and newer, else the board's momentary value: what nvidia-smi calls the draw."""
    power_instant_watts: float | None = None
    clock_hertz: dict[str, float] = {}
    """Keys: ``sm`` (the graphics clock too), ``memory``, ``video``."""
    performance_state: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """Reasons that are active now (names in ``THROTTLE_REASONS``); empty: none is; ``None``: not reported."""
    processes: tuple[Process, ...] | None = None
    mig_memory: dict[str, Memory] = {}
    """By UUID of the MIG instance; of two compute instances in one GPU instance only the first has it, so that sums are right."""


class EccCount(Struct, frozen=True, kw_only=True):
    """One ECC error counter.

    ``severity``: ``corrected|uncorrected``; ``scope``: ``volatile|aggregate``; ``location``: ``dram|sram|…``, or ``total`` alone.
    """

    severity: str
    scope: str
    location: str
    count: int


class Health(Struct, frozen=True, kw_only=True):
    """Faults the board has counted or repaired."""

    ecc_enabled: bool | None = None
    ecc_errors: tuple[EccCount, ...] = ()
    remapped_rows: dict[str, int] = {}
    """Keys: ``corrected``, ``uncorrected``."""
    row_remap_pending: bool | None = None
    row_remap_failed: bool | None = None
    row_remap_banks: dict[str, int] = {}
    """Banks by spare rows left. Keys: ``max``, ``high``, ``partial``, ``low``, ``none``."""
    retired_pages: dict[str, int] = {}
    """Keys: ``single_bit``, ``double_bit``."""
    retired_pages_pending: bool | None = None
    recovery_action: int | None = None
    """NVML field 230: 0 none, 1 reset GPU, 2 reboot node, 3 drain P2P, 4 drain and reset, 5 recover the IMEX domain."""


class Links(Struct, frozen=True, kw_only=True):
    """PCIe and NVLink. Byte and error counts are the device's own counters."""

    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_replays: int | None = None
    pcie_bytes_per_second: dict[str, float] = {}
    """``rx``, ``tx``; only from the blocking call, on boards without GPM."""
    nvlink_up: dict[int, bool] = {}
    nvlink_bytes: dict[str, int] = {}
    """``rx``, ``tx``: data bytes over all links since the driver was loaded."""
    nvlink_errors: dict[str, int] = {}
    """Sum over links by kind: ``replay``, ``recovery``, ``crc``, …"""
    nvlink_link_errors: dict[int, dict[str, int]] = {}
    """The same by link; only read on request."""
    fabric_healthy: bool | None = None
    """Only on boards of an NVSwitch fabric: registered, and no fault in the health mask."""


class MigInstance(Struct, frozen=True, kw_only=True):
    """One MIG device (a compute instance in a GPU instance). ``profile`` as in ``1g.10gb`` or ``1c.3g.40gb``."""

    uuid: str
    gpu_instance: int
    compute_instance: int
    profile: str | None = None
    sm_count: int | None = None
    memory_total_bytes: int | None = None


class Medium(Struct, frozen=True, kw_only=True):
    """The medium tier (default 10 s): what costs up to a few milliseconds."""

    energy_joules: float | None = None
    temperature_margin_celsius: float | None = None
    power_limit_watts: dict[str, float] = {}
    """Keys: ``enforced`` (in force now), ``default``, ``min``, ``max``."""
    fan_speed_ratio: dict[int, float] = {}
    throttled_seconds: dict[str, float] = {}
    """The driver's own counters, by reason (names in ``THROTTLE_REASONS`` plus policy names). Empty where it keeps none."""
    bar1_used_bytes: int | None = None
    persistence_mode: bool | None = None
    compute_mode: str | None = None
    mig_enabled: bool | None = None
    mig_pending: bool | None = None
    mig_instances: tuple[MigInstance, ...] = ()
    activity: Activity | None = None
    mig_activity: dict[str, Activity] = {}
    """By UUID of the MIG instance, as ``mig_memory``."""
    process_utilization_ratio: dict[int, float] = {}
    """By process id; only while several processes share the GPU."""
    health: Health = Health()
    links: Links = Links()


class NvmlError(Struct, frozen=True, kw_only=True):
    """``count`` failures of one NVML call with one error (``GPU_IS_LOST``, ``UNKNOWN``, …) since the previous frame."""

    call: str
    error: str
    count: int = 1


class GpuReading(Struct, frozen=True, kw_only=True):
    """One GPU thread's news. Parts that were not read this time are ``None`` and keep their last value in the agent."""

    index: int
    at: float
    """CLOCK_MONOTONIC of the pass, seconds; the same clock in both processes."""
    uuid: str = ""
    fault: str = ""
    """Empty: the GPU answers. Else why it does not: the lower-case NVML error (``gpu_is_lost``, ``unknown``, …)."""
    identity: Identity | None = None
    fast: Fast | None = None
    medium: Medium | None = None
    duration_seconds: dict[str, float] = {}
    """By tier, of the passes in this reading."""
    errors: tuple[NvmlError, ...] = ()
    rejected: dict[str, int] = {}
    """Values outside their physical range, by field name: dropped and counted."""
    unsupported: dict[str, str] | None = None
    """Calls this board or driver refuses → the error name. Sent whole when it changed."""


class FaultEvent(Struct, frozen=True, kw_only=True):
    """One fault that the driver told of by itself, as an NVML event or as a line of the kernel log."""

    kind: Literal["xid", "sxid", "ecc_single", "ecc_double", "reset"]
    """``sxid`` is an XID of an NVSwitch; ``reset`` says that a GPU (or, without an address, the driver) has started anew."""
    code: int = 0
    """Number of the XID or SXid; 0 for the other kinds."""
    uuid: str = ""
    """Of the GPU; empty where only its address is known."""
    pci_bus_id: str = ""
    """As NVML writes it, in lower case: ``00000000:3b:00.0``. Empty where it is not known."""
    source: Literal["nvml", "kernel_log"]
    at: float
    """Unix time of the event itself, seconds."""
    text: str = ""
    """The driver's own words, cut off; empty for events of NVML, which have none."""
    pid: int | None = None
    gpu_instance: int | None = None
    replayed: bool = False
    """It happened before the agent started."""
    completes: bool = False
    """The kernel log's account of a fault that NVML has told of before: it adds the driver's words and the process, and counts no more."""


class SourceHealth(Struct, frozen=True, kw_only=True):
    """Whether a source of fault events listens, or why not (``permission``, ``missing``, ``stalled``, an NVML error in lower case)."""

    source: Literal["nvml", "kernel_log"]
    up: bool
    fault: str = ""


class Hello(Struct, frozen=True, kw_only=True, tag="hello"):
    """First frame of a reader: the library answered. ``gpu_count`` threads now start."""

    pid: int
    gpu_count: int
    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: str | None = None


class Tick(Struct, frozen=True, kw_only=True, tag="tick"):
    """At least one a second, also empty: the reader's process is alive."""

    readings: tuple[GpuReading, ...] = ()
    events: tuple[FaultEvent, ...] = ()
    sources: tuple[SourceHealth, ...] = ()
    """Sent when one of them has changed."""
    log_lines: dict[str, int] = {}
    """Lines of the kernel log about GPUs since the previous frame, by kind, each of them counted also in a storm."""
    log_sequence: int | None = None
    """Number of the last record of the kernel log that was read; the next reader goes on behind it."""


class Goodbye(Struct, frozen=True, kw_only=True, tag="goodbye"):
    """Last frame: the reader ends itself because the library is down or shows no GPU. ``reason`` is a bounded token."""

    reason: str
    detail: str = ""


Frame = Hello | Tick | Goodbye

THROTTLE_REASONS: dict[int, str] = {
    0x1: "idle",
    0x2: "application_clocks",
    0x4: "software_power_cap",
    0x8: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "hardware_power_brake",
    0x100: "display_clocks",
}
"""Bits of ``nvmlDeviceGetCurrentClocksEventReasons``. ``idle`` is reported by the driver but is no throttle."""
