"""What a board reports of all that it may report, and why the rest is absent."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpuwatch.doctor.lines import line
from gpuwatch.snapshot import Gpu


class _Feature(msgspec.Struct, frozen=True, kw_only=True):
    """Something a board may report. ``calls``: beginnings of the NVML calls or fields that would give it."""

    name: str
    reported: Callable[[Gpu], object]
    calls: tuple[str, ...]


_FEATURES = (
    _Feature(name="utilisation", reported=lambda gpu: _fast(gpu, "utilization_ratio"), calls=("nvmlDeviceGetUtilizationRates",)),
    _Feature(name="SM and tensor activity (GPM)", reported=lambda gpu: _medium(gpu, "activity"), calls=("nvmlGpm",)),
    _Feature(name="memory", reported=lambda gpu: _fast(gpu, "memory"), calls=("nvmlDeviceGetMemoryInfo",)),
    _Feature(name="temperature", reported=lambda gpu: _fast(gpu, "temperature_celsius"), calls=("nvmlDeviceGetTemperature",)),
    _Feature(
        name="memory temperature",
        reported=lambda gpu: gpu.fast and gpu.fast.temperature_celsius.get("memory"),
        calls=("field 82",),
    ),
    _Feature(name="power", reported=lambda gpu: _fast(gpu, "power_watts"), calls=("nvmlDeviceGetPowerUsage", "field 185", "field 186")),
    _Feature(name="clocks", reported=lambda gpu: _fast(gpu, "clock_hertz"), calls=("nvmlDeviceGetClockInfo",)),
    _Feature(name="throttle reasons", reported=lambda gpu: _fast(gpu, "throttle_reasons"), calls=("nvmlDeviceGetCurrentClocks",)),
    _Feature(name="processes", reported=lambda gpu: _fast(gpu, "processes"), calls=("nvmlDeviceGetComputeRunningProcesses",)),
    _Feature(
        name="energy counter",
        reported=lambda gpu: _medium(gpu, "energy_joules"),
        calls=("nvmlDeviceGetTotalEnergyConsumption", "field 83"),
    ),
    _Feature(
        name="fans", reported=lambda gpu: gpu.medium and gpu.medium.fan_speed_ratio, calls=("nvmlDeviceGetFanSpeed", "nvmlDeviceGetNumFans")
    ),
    _Feature(
        name="ECC error counters",
        reported=lambda gpu: gpu.medium and gpu.medium.health.ecc_errors,
        calls=("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetMemoryErrorCounter", "nvmlDeviceGetEccMode"),
    ),
    _Feature(
        name="row remapping",
        reported=lambda gpu: gpu.medium and gpu.medium.health.remapped_rows,
        calls=("nvmlDeviceGetRemappedRows", "field 142"),
    ),
    _Feature(
        name="retired pages",
        reported=lambda gpu: gpu.medium and gpu.medium.health.retired_pages,
        calls=("nvmlDeviceGetRetiredPages",),
    ),
    _Feature(name="NVLink", reported=lambda gpu: gpu.medium and gpu.medium.links.nvlink_up, calls=("nvmlDeviceGetNvLinkState", "field 91")),
    _Feature(name="MIG", reported=lambda gpu: _medium(gpu, "mig_enabled"), calls=("nvmlDeviceGetMigMode",)),
)

_REASONS = {
    "NOT_SUPPORTED": "this board or driver does not offer it",
    "FUNCTION_NOT_FOUND": "the driver is too old for it",
    "ARGUMENT_VERSION_MISMATCH": "the driver is too old for it",
    "DEPRECATED": "the driver no longer offers it",
    "INVALID_ARGUMENT": "the driver does not know it",
    "NO_PERMISSION": "the driver allows it to root only",
    "VGPU_ECC_NOT_SUPPORTED": "a virtual GPU has no ECC",
}


def feature_lines(gpu: Gpu) -> list[str]:
    """Of a GPU that is read: what it reports, then by reason what it does not."""
    reported = [feature.name for feature in _FEATURES if _is_reported(feature, gpu)]
    first = line("reports", ", ".join(reported) or "nothing", good=bool(reported))
    reasons: dict[str, list[str]] = {}
    for feature in _FEATURES:
        if feature.name not in reported:
            reasons.setdefault(_reason(feature, gpu), []).append(feature.name)
    return [first] + [line("absent", f"{', '.join(names)}: {reason}") for reason, names in reasons.items()]


def _is_reported(feature: _Feature, gpu: Gpu) -> bool:
    """Zero and an empty list of processes are reports too."""
    value = feature.reported(gpu)
    return value is not None and value != {} and (value != () or feature.name in {"processes", "throttle reasons"})


def _reason(feature: _Feature, gpu: Gpu) -> str:
    """Why a feature is absent, in words."""
    if feature.name == "fans" and not any(call.startswith(feature.calls) for call in gpu.unsupported):
        return "the board has none of its own"
    if feature.name == "ECC error counters" and gpu.medium and gpu.medium.health.ecc_enabled is False:
        return "ECC is switched off"
    error = next((error for call, error in gpu.unsupported.items() if call.startswith(feature.calls)), None)
    if error is None:
        return "not reported in this read"
    if error == "NOT_SUPPORTED" and gpu.medium and gpu.medium.mig_enabled:
        return "not offered while MIG is on, or not by this board at all"
    return _REASONS.get(error, f"the driver says {error}")


def _fast(gpu: Gpu, field: str) -> object:
    return None if gpu.fast is None else getattr(gpu.fast, field)


def _medium(gpu: Gpu, field: str) -> object:
    return None if gpu.medium is None else getattr(gpu.medium, field)
