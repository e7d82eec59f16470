"""GPM: how busy the parts of a GPU (or of one MIG GPU instance) were between two samples. Hopper and newer.

A sample costs 0.06 to 0.2 ms and the metrics between two samples 1.8 ms of processor time (H200), so GPM belongs to the medium tier.
That loses nothing: the metrics are means over the time between the samples, and a longer mean covers more of what happened between scrapes.

The driver's counters can be out of order. Of four pairs of H200 one was seen (driver 580.159.04) whose counters had counted twice and ran
backwards in every second interval, in which the driver then divides by nearly 2^64: multiprocessors at 98 % work were 0.00002 % active, and
in the other intervals all was twice too high. A single such interval proves nothing: a GPU that copies all the time is 100 % utilised
without its multiprocessors, and a small kernel now and then looks the same. Their turns do.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import Any

from gpuwatch.device.calls import Calls, GpuLost
from gpuwatch.device.readings import Activity

_RATIOS = {1: "graphics_ratio", 2: "sm_active_ratio", 3: "sm_occupancy_ratio", 5: "tensor_active_ratio", 10: "dram_active_ratio"}
_PIPES = {
    4: "integer",
    7: "tensor_half",
    9: "tensor_integer",
    11: "fp64",
    12: "fp32",
    13: "fp16",
}
_PCIE = {20: "tx", 21: "rx"}
_NVLINK = {60: "rx", 61: "tx"}
_IDS = (*_RATIOS, *_PIPES, *_PCIE, *_NVLINK)
_INSTANCE_IDS = (*_RATIOS, *_PIPES)
_MEBIBYTE = 1 << 20
_ROUNDING_PERCENT = 1.0
"""The driver's division can end a little above 100."""
_MAX_MIB_PER_SECOND = 1e8
_BACKWARDS, _FORWARDS = 1e-6, 1e-4
"""SM active is below the one where all that a GPU does in a minute is divided by 2^64, and above the other where a kernel runs on."""
_BUSY = 0.1
_TURNS = 4
_DOUBTED_READS = 360
"""An hour. The other intervals cannot be told from sound ones, nor can those of an idle GPU."""


class Gpm:
    """The last two samples of one GPU (``gpu_instance`` None) or one GPU instance. Call :meth:`close` to free them."""

    def __init__(self, calls: Calls, gpu_instance: int | None = None) -> None:
        self._calls = calls
        self._gpu_instance = gpu_instance
        self._ids = _IDS if gpu_instance is None else _INSTANCE_IDS
        self._samples: list[Any] = []
        self._turn = 0
        self._taken = 0
        self._doubted_reads = 0
        self._backwards: deque[bool | None] = deque(maxlen=_TURNS)
        """Whether the counters seem to have run backwards in the last intervals; ``None``: it cannot be told."""
        self._utilization: list[float] = []
        """In the passes since the last read."""

    def saw(self, utilization_ratio: float | None) -> None:
        """How busy the whole GPU was in a pass between two reads."""
        if utilization_ratio is not None:
            self._utilization.append(utilization_ratio)

    def read(self) -> Activity | None:
        """Activity since the previous call; ``None`` the first time, without GPM, when a sample failed, and while it is not believed."""
        busy = self._least_utilization()
        if not self._allocate():
            return None
        newer, older = self._samples[self._turn], self._samples[1 - self._turn]
        if not self._take(newer):
            self._taken = 0
            return None
        self._turn = 1 - self._turn
        self._taken += 1
        if self._taken < len(self._samples):
            return None
        metrics = self._calls.ask_driver("gpm_metrics", older, newer, self._ids)
        return None if metrics is None else self._believed(self._activity(metrics), busy)

    @property
    def refused(self) -> bool:
        """True once the board, or a driver before 520, is known not to answer for the whole GPU, or is not believed."""
        return self._doubted_reads > 0 or any(
            self._calls.refuses(call) for call in ("nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "gpm_metrics")
        )

    def close(self) -> None:
        """Free both samples (56 MIG instances would leak otherwise); the next read starts anew."""
        for sample in self._samples:
            with contextlib.suppress(GpuLost):  # a sample is the library's memory: it is freed whatever the GPU does
                self._calls.ask_driver("nvmlGpmSampleFree", sample)
        self._samples.clear()
        self._backwards.clear()
        self._taken = self._doubted_reads = 0

    def _least_utilization(self) -> float:
        """Of the passes since the last read; 0 where one alone, or none, says too little."""
        seen, self._utilization = self._utilization, []
        return min(seen) if len(seen) > 1 else 0.0

    def _believed(self, activity: Activity, busy: float) -> Activity | None:
        """The activity, unless the counters run backwards by turns, or did. ``busy``: the GPU was at least that in the same time."""
        self._doubted_reads = max(self._doubted_reads - 1, 0)
        active = activity.sm_active_ratio or 0.0
        told = busy >= _BUSY and (0 < active < _BACKWARDS or active > _FORWARDS)
        self._backwards.append(active < _BACKWARDS if told else None)
        if list(self._backwards) in ([True, False] * 2, [False, True] * 2):
            self._calls.rejected["gpm"] += 1
            self._doubted_reads = _DOUBTED_READS
        return None if self._doubted_reads else activity

    def _allocate(self) -> bool:
        """True when both samples exist. A board that refuses samples is not asked for them again."""
        if self._calls.refuses("nvmlGpmSampleGet" if self._gpu_instance is None else f"nvmlGpmMigSampleGet({self._gpu_instance})"):
            return False
        while len(self._samples) < 2:  # noqa: PLR2004 (a difference needs two)
            sample = self._calls.ask_driver("nvmlGpmSampleAlloc")
            if sample is None:
                return False
            self._samples.append(sample)
        return True

    def _take(self, sample: Any) -> bool:
        if self._gpu_instance is None:
            return self._calls.ask("nvmlGpmSampleGet", sample) is not None
        return self._calls.ask("nvmlGpmMigSampleGet", self._gpu_instance, sample) is not None

    def _activity(self, metrics: dict[int, float]) -> Activity:
        ratios = {name: self._ratio(name, metrics.get(metric)) for metric, name in _RATIOS.items()}
        return Activity(
            pipe_active_ratio=_present({name: self._ratio("pipe_active_ratio", metrics.get(metric)) for metric, name in _PIPES.items()}),
            pcie_bytes_per_second=self._rates("pcie_bytes_per_second", _PCIE, metrics),
            nvlink_bytes_per_second=self._rates("nvlink_bytes_per_second", _NVLINK, metrics),
            **ratios,
        )

    def _ratio(self, name: str, percent: float | None) -> float | None:
        value = self._calls.check(name, percent, 0.0, 100.0 + _ROUNDING_PERCENT)
        return None if value is None else min(value / 100.0, 1.0)

    def _rates(self, name: str, ids: dict[int, str], metrics: dict[int, float]) -> dict[str, float]:
        checked = {key: self._calls.check(name, metrics.get(metric), 0.0, _MAX_MIB_PER_SECOND) for metric, key in ids.items()}
        return {key: value * _MEBIBYTE for key, value in checked.items() if value is not None}


def _present(values: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}
