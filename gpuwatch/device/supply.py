"""Medium tier: energy, power limits, thermal margin, fans, and how long the driver held the clocks back."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from gpuwatch.device.calls import Calls

_THROTTLE_FIELDS = {
    "power": 74,
    "thermal": 75,
    "sync_boost": 76,
    "board_limit": 77,
    "reliability": 79,
    "software_thermal": 269,
    "hardware_thermal": 270,
    "hardware_power_brake": 271,
}
"""``NVML_FI_DEV_PERF_POLICY_*`` and, from driver 570, ``NVML_FI_DEV_CLOCKS_EVENT_REASON_*``: nanoseconds since the driver was loaded."""
_POLICIES = {"power": 0, "thermal": 1, "sync_boost": 2, "board_limit": 3, "reliability": 5}
"""``nvmlPerfPolicyType_t``, for drivers whose fields do not answer."""
_MILLI = 1_000
_NANO = 1_000_000_000
_MAX_MILLIWATTS = 5_000_000
_MAX_FAN_PERCENT = 200
"""NVML: "this value may exceed 100 %" when a fan spins faster than its rating."""

Step = Generator[None, None, dict[str, Any]]
"""Yields between dear calls, so that the fast tier on the same thread waits for one of them at most; returns fields of a reading."""


def read_supply(calls: Calls) -> Step:
    """Fields of :class:`~gpuwatch.device.readings.Medium` about power and heat."""
    energy = calls.check_count("energy", calls.ask("nvmlDeviceGetTotalEnergyConsumption"))
    yield
    margin = calls.check("temperature_margin", calls.ask("nvmlDeviceGetMarginTemperature"), -100, 150)
    yield
    limits = _power_limits(calls)
    yield
    throttled = yield from _throttled_seconds(calls)
    return {
        "energy_joules": None if energy is None else energy / _MILLI,
        "temperature_margin_celsius": None if margin is None else float(margin),
        "power_limit_watts": limits,
        "fan_speed_ratio": _fans(calls),
        "throttled_seconds": throttled,
    }


def _power_limits(calls: Calls) -> dict[str, float]:
    constraints = calls.ask("nvmlDeviceGetPowerManagementLimitConstraints") or (None, None)
    milliwatts = {
        "enforced": calls.ask("nvmlDeviceGetEnforcedPowerLimit"),
        "default": calls.ask("nvmlDeviceGetPowerManagementDefaultLimit"),
        "min": constraints[0],
        "max": constraints[1],
    }
    checked = {name: calls.check("power_limit", value, 1, _MAX_MILLIWATTS) for name, value in milliwatts.items()}
    return {name: value / _MILLI for name, value in checked.items() if value is not None}


def _fans(calls: Calls) -> dict[int, float]:
    """Speeds by fan; empty on passive boards. 0 is a stopped fan, no fault by itself."""
    count = calls.ask("nvmlDeviceGetNumFans")
    speeds = {}
    for fan in range(min(count or 0, 16)):
        if (percent := calls.check("fan_speed", calls.ask("nvmlDeviceGetFanSpeed_v2", fan), 0, _MAX_FAN_PERCENT)) is not None:
            speeds[fan] = percent / 100.0
    return speeds


def _throttled_seconds(calls: Calls) -> Generator[None, None, dict[str, float]]:
    values = calls.fields(*_THROTTLE_FIELDS.values())
    seconds = {}
    for reason, field in _THROTTLE_FIELDS.items():
        nanoseconds = calls.check_count("throttled", values.get(field))
        if nanoseconds is None and reason in _POLICIES and calls.refuses(f"field {field}"):
            yield
            status = calls.ask("nvmlDeviceGetViolationStatus", _POLICIES[reason])
            nanoseconds = None if status is None else calls.check_count("throttled", status.violationTime)
        if nanoseconds is not None:
            seconds[reason] = nanoseconds / _NANO
    return seconds
