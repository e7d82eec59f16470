"""Medium tier: how busy each process keeps a GPU that several share. One call of 2 ms, so it is made only where it tells something."""

from __future__ import annotations

from collections.abc import Iterable

from gpuwatch.device import nvml
from gpuwatch.device.calls import Calls
from gpuwatch.device.readings import Process

_CALL = "nvmlDeviceGetProcessUtilization"
_SHARERS_NEEDED = 2


class ProcessShares:
    """Utilisation by process of one GPU since the previous read. Used by the GPU's thread only."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._newest_microseconds = 0

    def read(self, processes: Iterable[Process]) -> dict[int, float]:
        """Process id → mean SM utilisation (ratio). Empty while fewer than two processes hold the GPU.

        Empty too where NVML refuses (MIG) or fails.
        NVML lists only processes that kept an SM busy: one that holds the GPU and is not listed did nothing, and gets zero.
        """
        pids = {process.pid for process in processes}
        if len(pids) < _SHARERS_NEEDED or self._calls.refuses(_CALL):
            return {}
        samples = self._calls.ask(_CALL, self._newest_microseconds, key=_CALL, nothing=(nvml.NOT_FOUND,), empty=())
        if samples is None:
            return {}
        fresh = [sample for sample in samples if sample.timeStamp > self._newest_microseconds and sample.pid in pids]
        self._newest_microseconds = max((sample.timeStamp for sample in samples), default=self._newest_microseconds)
        shares: dict[int, list[float]] = {pid: [] for pid in pids}
        for sample in fresh:
            if (percent := self._calls.check("process_utilization", sample.smUtil, 0, 100)) is None:
                shares.pop(sample.pid, None)  # it was busy, and nobody knows how much: not zero
            elif sample.pid in shares:
                shares[sample.pid].append(percent / 100.0)
        return {pid: sum(ratios) / len(ratios) if ratios else 0.0 for pid, ratios in shares.items()}
