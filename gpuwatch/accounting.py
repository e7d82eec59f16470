"""Counters that outlive the reader: what is remembered of a GPU from one reading to the next.

Every counter here only grows while the agent runs. A device counter that fell was reset by the device (driver reload, GPU reset):
its new value is what has been counted since.
"""

from __future__ import annotations

from gpuwatch.device.readings import GpuReading
from gpuwatch.snapshot import Totals

_SAMPLED_REASONS = {
    "software_power_cap": "power",
    "hardware_slowdown": "hardware_slowdown",
    "sync_boost": "sync_boost",
    "software_thermal": "software_thermal",
    "hardware_thermal": "hardware_thermal",
    "hardware_power_brake": "hardware_power_brake",
}
"""Reason bit → reason of the counter it fills where the driver keeps none (before 570, or never for ``hardware_slowdown``)."""


class ContinuedCounter:
    """Continues a device counter over its resets. ``total`` is ``None`` until the device reported once.

    It starts at the device's value, so that a restart of the agent loses nothing of what the device counted meanwhile.
    """

    __slots__ = ("_last", "total")

    def __init__(self) -> None:
        self.total: float | None = None
        self._last = 0.0

    def update(self, value: float | None) -> None:
        """Take the device's present value; ``None`` (not reported this time) changes nothing."""
        if value is None:
            return
        if self.total is None:
            self.total = value
        else:
            self.total += value - self._last if value >= self._last else value
        self._last = value


class GpuAccount:
    """The counters of one GPU.

    ``max_gap_seconds``: two fast readings further apart than this say nothing about the time between them, which is not counted.
    """

    def __init__(self, max_gap_seconds: float) -> None:
        self._max_gap_seconds = max_gap_seconds
        self._read_at: float | None = None
        self._busy_seconds: float | None = None
        self._energy = ContinuedCounter()
        self._throttled: dict[str, ContinuedCounter] = {}
        self._sampled: dict[str, float] = {}
        self._medium_seen = False

    def update(self, reading: GpuReading) -> None:
        """Take one reading of this GPU."""
        if reading.fault:
            self._read_at = None
        if reading.medium is not None:
            self._energy.update(reading.medium.energy_joules)
            self._medium_seen = True
            for reason, seconds in reading.medium.throttled_seconds.items():
                counter = self._throttled.setdefault(reason, ContinuedCounter())
                counter.update(seconds)
                # What was sampled before the driver's counter answered is part of it; where that is less, the total still does not fall.
                counter.total = max(counter.total or 0.0, self._sampled.pop(reason, 0.0))
        if reading.fast is not None:
            self._take_fast(reading)

    def totals(self) -> Totals:
        """The counters now."""
        counted = {reason: counter.total for reason, counter in self._throttled.items() if counter.total is not None}
        return Totals(
            busy_seconds=self._busy_seconds,
            energy_joules=self._energy.total,
            throttled_seconds=self._sampled | counted,
        )

    def _take_fast(self, reading: GpuReading) -> None:
        assert reading.fast is not None  # noqa: S101 (the caller looked)
        gap = 0.0 if self._read_at is None else reading.at - self._read_at
        self._read_at = reading.at
        if not 0.0 <= gap <= self._max_gap_seconds:
            gap = 0.0
        utilization = reading.fast.utilization_ratio
        if utilization is not None:
            self._busy_seconds = (self._busy_seconds or 0.0) + utilization * gap
        if reading.fast.throttle_reasons is not None and self._medium_seen:
            self._sample_reasons(reading.fast.throttle_reasons, gap)

    def _sample_reasons(self, active: tuple[str, ...], gap: float) -> None:
        """Add the gap to the active reasons that the driver does not count itself; known from the first medium reading on."""
        for bit, reason in _SAMPLED_REASONS.items():
            if reason not in self._throttled:
                self._sampled[reason] = self._sampled.get(reason, 0.0) + (gap if bit in active else 0.0)
