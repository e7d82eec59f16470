"""The fast tier: how a GPU is used now, and its heat, power and clocks. Everything here costs microseconds."""

from __future__ import annotations

from typing import Any

from gpuwatch.device import nvml
from gpuwatch.device.calls import Calls
from gpuwatch.device.identity import CLOCKS, MEGAHERTZ
from gpuwatch.device.readings import THROTTLE_REASONS, Fast, Memory, Process

_ENGINES = {
    "encoder": "nvmlDeviceGetEncoderUtilization",
    "decoder": "nvmlDeviceGetDecoderUtilization",
    "jpeg": "nvmlDeviceGetJpgUtilization",
    "ofa": "nvmlDeviceGetOfaUtilization",
}
_PROCESS_LISTS = {"compute": "Compute", "graphics": "Graphics", "mps": "MPSCompute"}
_MEMORY_TEMPERATURE, _AVERAGE_POWER, _INSTANT_POWER = 82, 185, 186
_NO_INSTANCE = 0xFFFFFFFF
_UNKNOWN_PERFORMANCE_STATE = 32
_MILLI = 1_000
_MAX_MILLIWATTS = 5_000_000
_MAX_CELSIUS = 150
"""Hotter than any limit NVIDIA states; 255 and all ones are what failed sensors answer."""


def read_fast(calls: Calls, mig_memory: dict[str, Memory]) -> Fast:
    """One pass of the fast tier. ``mig_memory`` comes from :meth:`gpuwatch.device.mig.MigInstances.read_memory`."""
    rates = calls.ask("nvmlDeviceGetUtilizationRates")
    fields = calls.fields(_MEMORY_TEMPERATURE, _AVERAGE_POWER, _INSTANT_POWER)
    return Fast(
        utilization_ratio=_percent(calls, "utilization", None if rates is None else rates.gpu),
        memory_activity_ratio=_percent(calls, "memory_activity", None if rates is None else rates.memory),
        engine_utilization_ratio=_engines(calls),
        memory=read_memory(calls),
        temperature_celsius=_temperatures(calls, fields.get(_MEMORY_TEMPERATURE)),
        power_watts=_watts(calls, calls.ask("nvmlDeviceGetPowerUsage")) or _watts(calls, fields.get(_AVERAGE_POWER)),
        power_instant_watts=_watts(calls, fields.get(_INSTANT_POWER)),
        clock_hertz=_clocks(calls),
        performance_state=_performance_state(calls),
        throttle_reasons=_throttle_reasons(calls),
        processes=_processes(calls),
        mig_memory=mig_memory,
    )


def read_memory(calls: Calls, *, on: Any = None) -> Memory | None:
    """Framebuffer of the GPU, or of the MIG instance ``on``: v2 tells reserved memory apart, v1 (drivers before 510) counts it as used."""
    version = nvml.MEMORY_V2
    info = calls.ask("nvmlDeviceGetMemoryInfo", on=on, version=version)
    reserved = None if info is None else info.reserved
    if info is None and calls.refuses("nvmlDeviceGetMemoryInfo", version=version, mig=on is not None):
        info = calls.ask("nvmlDeviceGetMemoryInfo", on=on)
    if info is None or calls.check("memory_total", info.total, 1, 1 << 50) is None:
        return None
    return Memory(
        total_bytes=info.total,
        used_bytes=calls.check_whole("memory_used", info.used, 0, info.total),
        free_bytes=calls.check_whole("memory_free", info.free, 0, info.total),
        reserved_bytes=calls.check_whole("memory_reserved", reserved, 0, info.total),
    )


def _percent(calls: Calls, name: str, value: float | None) -> float | None:
    checked = calls.check(name, value, 0, 100)
    return None if checked is None else checked / 100.0


def _engines(calls: Calls) -> dict[str, float]:
    ratios = {}
    for engine, call in _ENGINES.items():
        answer = calls.ask(call)
        if answer is not None and (ratio := _percent(calls, f"{engine}_utilization", answer[0])) is not None:
            ratios[engine] = ratio
    return ratios


def _temperatures(calls: Calls, memory: float | None) -> dict[str, float]:
    temperatures = {}
    for sensor, value in (("gpu", calls.ask("nvmlDeviceGetTemperature", 0)), ("memory", memory)):
        if (checked := calls.check(f"{sensor}_temperature", value, 1, _MAX_CELSIUS)) is not None:
            temperatures[sensor] = float(checked)
    return temperatures


def _watts(calls: Calls, milliwatts: float | None) -> float | None:
    checked = calls.check("power", milliwatts, 1, _MAX_MILLIWATTS)
    return None if checked is None else checked / _MILLI


def _clocks(calls: Calls) -> dict[str, float]:
    clocks = {}
    for name, clock in CLOCKS.items():
        if (value := calls.check("clock", calls.ask("nvmlDeviceGetClockInfo", clock), 0, 20_000)) is not None:
            clocks[name] = value * MEGAHERTZ
    return clocks


def _performance_state(calls: Calls) -> int | None:
    state = calls.ask("nvmlDeviceGetPerformanceState")
    if state is None or state == _UNKNOWN_PERFORMANCE_STATE:
        return None
    return calls.check_whole("performance_state", state, 0, 15)


def _throttle_reasons(calls: Calls) -> tuple[str, ...] | None:
    bits = calls.ask("nvmlDeviceGetCurrentClocksEventReasons")
    if bits is None and calls.refuses("nvmlDeviceGetCurrentClocksEventReasons"):
        bits = calls.ask("nvmlDeviceGetCurrentClocksThrottleReasons")  # its name before driver 535
    return None if bits is None else tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


def _processes(calls: Calls) -> tuple[Process, ...] | None:
    """Processes of all kinds; ``None`` when the board tells none of the lists."""
    lists = {kind: _process_list(calls, name) for kind, name in _PROCESS_LISTS.items()}
    if all(listed is None for listed in lists.values()):
        return None
    return tuple(_process(kind, entry) for kind, listed in lists.items() for entry in listed or ())


def _process_list(calls: Calls, name: str) -> list[Any] | None:
    for version in (3, 2, 1):
        call = f"nvmlDeviceGet{name}RunningProcesses_v{version}"
        listed: list[Any] | None = calls.ask(call)
        if listed is not None or not calls.refuses(call):
            return listed
    return None


def _process(kind: str, entry: Any) -> Process:
    used = entry.usedGpuMemory
    gpu_instance = getattr(entry, "gpuInstanceId", _NO_INSTANCE)
    compute_instance = getattr(entry, "computeInstanceId", _NO_INSTANCE)
    return Process(
        pid=entry.pid,
        kind=kind,
        used_bytes=None if used is None or used >= 1 << 63 else used,
        gpu_instance=None if gpu_instance == _NO_INSTANCE else gpu_instance,
        compute_instance=None if compute_instance == _NO_INSTANCE else compute_instance,
    )
