"""PCIe throughput on boards without GPM, by the one call that blocks: 20 ms a direction, in a thread of its own."""

from __future__ import annotations

import threading
import time

from gpuwatch.device.calls import Calls, GpuLost
from gpuwatch.device.readings import NvmlError

_DIRECTIONS = {"tx": 0, "rx": 1}
"""``nvmlPcieUtilCounter_t``."""
_KIBIBYTE = 1024
_MAX_KIB_PER_SECOND = 1_000_000_000


class PcieMeter:
    """Measures one GPU every ``interval_seconds``. The GPU's own thread collects the last values; it never waits for them."""

    def __init__(self, calls: Calls, interval_seconds: float) -> None:
        self._calls = calls
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        self._rates: dict[str, float] = {}
        self._measured_at = 0.0
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def start(self) -> None:
        """Start measuring; does nothing when it already runs."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._measure_for_ever, name="pcie", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; it is not waited for, since it may be blocked in the driver."""
        self._stop.set()

    def take(self, now: float) -> tuple[dict[str, float], tuple[NvmlError, ...], dict[str, int]]:
        """Last rates in bytes per second (none when older than two intervals); errors and rejected values since the last call."""
        with self._lock:
            fresh = now - self._measured_at <= 2 * self._interval_seconds
            return (dict(self._rates) if fresh else {}), self._calls.take_errors(), self._calls.take_rejected()

    def measure(self) -> dict[str, float]:
        """Both directions once, in bytes per second. Blocks for 40 ms."""
        self._calls.begin_pass()
        rates = {}
        for direction, counter in _DIRECTIONS.items():
            value = self._calls.ask("nvmlDeviceGetPcieThroughput", counter)
            if (checked := self._calls.check("pcie_throughput", value, 0, _MAX_KIB_PER_SECOND)) is not None:
                rates[direction] = float(checked * _KIBIBYTE)
        return rates

    def _measure_for_ever(self) -> None:
        while not self._stop.wait(self._interval_seconds if self._measured_at else 0):
            try:
                rates = self.measure()
            except GpuLost:
                rates = {}
            with self._lock:
                self._rates, self._measured_at = rates, time.monotonic()
