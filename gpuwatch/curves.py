"""The last five minutes of each GPU and MIG instance, for the curves of the page.

One sample every five seconds in a ring of fixed size: four curves of 61 single-precision numbers a GPU, two a MIG instance. What was not
reported is no number there, so a gap stays a gap. Owned by the agent's event loop.
"""

from __future__ import annotations

from array import array
from math import isfinite, nan
from typing import Final

from gpuwatch.device.readings import Fast, Medium, Memory
from gpuwatch.snapshot import Gpu, Snapshot

STEP_SECONDS: Final = 5.0
LENGTH: Final = 61
"""Both ends count: from the oldest sample to the newest it is five minutes."""
MINUTES: Final = 5
_MOST_DEVICES: Final = 1024
"""More than a node of 16 GPUs with 7 instances each can have; above it a device has no curve."""
_GAP: Final = nan
_EMPTY: Final = array("f", [_GAP]) * LENGTH

Curve = tuple[float | None, ...]
"""Oldest first, a sample every ``STEP_SECONDS``; ``None``: not reported, or nobody looked."""


class _Ring:
    """Samples of one device: each value at the place of its time in the ring."""

    __slots__ = ("seen", "values")

    def __init__(self) -> None:
        self.values: dict[str, array[float]] = {}
        self.seen = 0

    def put(self, name: str, place: int, value: float | None) -> None:
        values = self.values.get(name)
        if values is None:
            if value is None:
                return  # what a board never reports takes no room
            values = self.values[name] = array("f", _EMPTY)
        values[place] = _GAP if value is None else value

    def clear(self, place: int) -> None:
        for values in self.values.values():
            values[place] = _GAP


class Curves:
    """Notes a sample of each device; ``now`` is CLOCK_MONOTONIC in seconds."""

    def __init__(self) -> None:
        self._rings: dict[tuple[str, str], _Ring] = {}
        self._step: int | None = None
        """Number of the newest sample: the time, counted in steps."""

    def note(self, snapshot: Snapshot, now: float) -> None:
        """Take a sample, if the last one is old enough; steps that were slept through stay gaps."""
        step = int(now // STEP_SECONDS)
        if step == self._step:
            return
        passed = LENGTH if self._step is None else min(max(step - self._step, 1), LENGTH)
        self._step = step
        for ring in self._rings.values():
            for back in range(passed):
                ring.clear((step - back) % LENGTH)
        for gpu in snapshot.gpus:
            self._note_gpu(gpu, step)
        for key in [key for key, ring in self._rings.items() if step - ring.seen >= LENGTH]:
            del self._rings[key]

    def of(self, name: str, gpu_uuid: str, mig_uuid: str = "") -> Curve:
        """One curve of a GPU or MIG instance; empty while nothing is known in these five minutes.

        ``name``: ``utilization_ratio``, ``memory_ratio``, ``power_watts``, ``temperature_celsius``; of an instance ``memory_ratio`` and
        ``sm_active_ratio``.
        """
        ring = self._rings.get((gpu_uuid, mig_uuid))
        values = ring.values.get(name) if ring else None
        if values is None or self._step is None:
            return ()
        start = (self._step + 1) % LENGTH
        curve = tuple(value if isfinite(value) else None for value in (*values[start:], *values[:start]))
        return curve if any(value is not None for value in curve) else ()

    def _note_gpu(self, gpu: Gpu, step: int) -> None:
        uuid, fast, medium = gpu.identity.uuid, gpu.fast or Fast(), gpu.medium or Medium()
        ring = self._ring(uuid, "", step)
        if ring is None:
            return
        place = step % LENGTH
        ring.put("utilization_ratio", place, fast.utilization_ratio)
        ring.put("memory_ratio", place, share_of(fast.memory))
        ring.put("power_watts", place, fast.power_watts)
        ring.put("temperature_celsius", place, fast.temperature_celsius.get("gpu"))
        for instance in medium.mig_instances:
            part = self._ring(uuid, instance.uuid, step)
            if part is None:
                continue
            activity = medium.mig_activity.get(instance.uuid)
            part.put("memory_ratio", place, share_of(fast.mig_memory.get(instance.uuid)))
            part.put("sm_active_ratio", place, activity.sm_active_ratio if activity else None)

    def _ring(self, gpu_uuid: str, mig_uuid: str, step: int) -> _Ring | None:
        """Of this device, which was seen at this step; ``None`` for one whose name is not known, or one too many."""
        key = (gpu_uuid, mig_uuid)
        ring = self._rings.get(key)
        if ring is None:
            if not gpu_uuid or len(self._rings) >= _MOST_DEVICES:
                return None
            ring = self._rings[key] = _Ring()
        ring.seen = step
        return ring


def share_of(memory: Memory | None) -> float | None:
    """Used memory as a share of the whole, 0 to 1; ``None`` where either is not reported."""
    if memory is None or memory.used_bytes is None or not memory.total_bytes:
        return None
    return memory.used_bytes / memory.total_bytes
