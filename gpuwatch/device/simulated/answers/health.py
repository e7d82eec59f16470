"""Answers to what changes slowly: energy, limits, violations, ECC, remapped rows, retired pages, modes."""

from __future__ import annotations

from types import SimpleNamespace

from gpuwatch.device import nvml
from gpuwatch.device.nvml import NVMLError
from gpuwatch.device.simulated import condition
from gpuwatch.device.simulated.view import Answer, View

_NANOSECONDS = 1_000_000_000
_CORRECTED, _UNCORRECTED = 0, 1
_DRAM, _SRAM = 2, 7
_VOLTA_LOCATIONS = {_CORRECTED: (0, 1, 2, 3), _UNCORRECTED: (0, 1, 2, 3, 6)}
"""L1, L2, device memory, register file; the CBU only counts uncorrected errors."""
_LOCATION_COUNT = 8
_FANS_START_CELSIUS, _FANS_FULL_CELSIUS = 50.0, 76.0


def violation_nanoseconds(view: View, policy: int) -> int:
    """Time held down by a policy: 0 power, 1 thermal, 2 sync boost, 3 board limit, 4 low utilisation, 5 reliability, 10 and 11 clocks."""
    counters = view.gpu.timeline.counters_at(view.t)
    seconds = {
        0: counters.capped_seconds,
        1: counters.software_thermal_seconds + counters.hardware_thermal_seconds,
        2: 0.0,
        3: 0.0,
        4: view.t,
        5: 0.0,
        10: view.t,
        11: view.t,
    }
    if policy not in seconds:
        raise NVMLError(nvml.INVALID_ARGUMENT)
    return int(seconds[policy] * _NANOSECONDS)


def violation(view: View, policy: int) -> SimpleNamespace:
    """``nvmlViolationTime_t``: reference time in µs, violation time in ns."""
    return SimpleNamespace(referenceTime=int(view.t * 1e6), violationTime=violation_nanoseconds(view, policy))


def energy(view: View) -> int:
    """Millijoules since the driver was loaded, which is the scenario's start."""
    return int(view.gpu.timeline.counters_at(view.t).energy_joules * 1000)


def power_limit(view: View) -> int:
    """Milliwatts."""
    return round(view.board.power.default_watts * 1000)


def fan_speed(view: View, fan: int) -> int:
    """Percent: still below 50 °C."""
    if not 0 <= fan < view.board.fans:
        raise NVMLError(nvml.INVALID_ARGUMENT)
    warm = view.gpu.timeline.temperature_at(view.t) - _FANS_START_CELSIUS
    return max(0, min(100, round(100 * warm / (_FANS_FULL_CELSIUS - _FANS_START_CELSIUS))))


def ecc_errors(view: View, severity: int, scope: int) -> int:
    """Errors of the whole GPU. Nobody resets a simulated board: volatile and aggregate counts are the same."""
    _check_ecc(severity, scope)
    if severity == _CORRECTED:
        return condition.corrected_dram_errors(view.gpu, view.t)
    return condition.uncorrected_dram_errors(view.gpu, view.t)


def ecc_errors_at(view: View, severity: int, scope: int, location: int) -> int:
    """Errors of one location: DRAM and SRAM on boards since Turing, caches and registers before; SRAM alone on a MIG device."""
    _check_ecc(severity, scope)
    if not 0 <= location < _LOCATION_COUNT:
        raise NVMLError(nvml.INVALID_ARGUMENT)
    if view.instance is not None:
        known: tuple[int, ...] = (_SRAM,) if (severity, scope) == (_UNCORRECTED, 0) else ()
    else:
        known = _VOLTA_LOCATIONS[severity] if "ecc_locations" in view.board.support else (_DRAM, _SRAM)
    if location not in known:
        raise NVMLError(nvml.NOT_SUPPORTED)
    return ecc_errors(view, severity, scope) if location == _DRAM else 0


def remapped_rows(view: View) -> tuple[int, int, int, int]:
    """(corrected, uncorrected, pending, failed)."""
    state = condition.remap(view.gpu, view.t)
    return (state.corrected, state.uncorrected, int(state.pending), int(state.failed))


def remap_histogram(view: View) -> SimpleNamespace:
    """Banks by spare rows left."""
    most, high, partial, low, none = condition.remap_banks(view.gpu, view.t)
    return SimpleNamespace(max=most, high=high, partial=partial, low=low, none=none)


def retired_pages(view: View, cause: int) -> list[int]:
    """Addresses: cause 0 several single-bit errors, 1 a double-bit error."""
    state = condition.retired(view.gpu, view.t)
    if cause not in {0, 1}:
        raise NVMLError(nvml.INVALID_ARGUMENT)
    return list(state.double_bit if cause else state.single_bit)


def _check_ecc(severity: int, scope: int) -> None:
    if severity not in {_CORRECTED, _UNCORRECTED} or scope not in {0, 1}:
        raise NVMLError(nvml.INVALID_ARGUMENT)


ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetTotalEnergyConsumption": energy,
    "nvmlDeviceGetEnforcedPowerLimit": power_limit,
    "nvmlDeviceGetPowerManagementLimit": power_limit,
    "nvmlDeviceGetPowerManagementDefaultLimit": power_limit,
    "nvmlDeviceGetPowerManagementLimitConstraints": lambda view: [
        round(view.board.power.min_watts * 1000),
        round(view.board.power.max_watts * 1000),
    ],
    "nvmlDeviceGetFanSpeed_v2": fan_speed,
    "nvmlDeviceGetViolationStatus": violation,
    "nvmlDeviceGetEccMode": lambda view: [int(view.board.ecc_enabled)] * 2,
    "nvmlDeviceGetTotalEccErrors": ecc_errors,
    "nvmlDeviceGetMemoryErrorCounter": ecc_errors_at,
    "nvmlDeviceGetRemappedRows": remapped_rows,
    "nvmlDeviceGetRowRemapperHistogram": remap_histogram,
    "nvmlDeviceGetRetiredPages": retired_pages,
    "nvmlDeviceGetRetiredPagesPendingStatus": lambda view: int(condition.retired(view.gpu, view.t).pending),
    "nvmlDeviceGetPersistenceMode": lambda _: 1,
    "nvmlDeviceGetComputeMode": lambda _: 0,
}
