"""Event sets: what a board tells by itself, to those who have asked for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

from gpuwatch.device import nvml
from gpuwatch.device.nvml import NVMLError
from gpuwatch.device.simulated.alarm import Alarm
from gpuwatch.device.simulated.fault import EccStorm, GpuLost
from gpuwatch.device.simulated.view import Answer, Handle, View
from gpuwatch.device.simulated.world import World

SINGLE_BIT = 0x1
_ECC_TYPES, _OTHER_TYPES, _HOPPER_TYPES = 0x3, 0x1C, 0xFF80
_NO_INSTANCE = 0xFFFFFFFF
_MAX_STORM_PER_SECOND = 10_000.0


@dataclass(slots=True)
class EventSet:
    """What one ``nvmlEventSetCreate`` gave. ``wanted`` maps GPUs to event types, ``since`` to the time of asking."""

    wanted: dict[int, int] = field(default_factory=dict)
    since: dict[int, float] = field(default_factory=dict)
    told: set[Alarm] = field(default_factory=set)


def supported_types(view: View) -> int:
    """Bits of ``nvmlEventType*``: ECC events where the board counts errors, the newer ones from Hopper on (H200: 0xff9f)."""
    ecc = _ECC_TYPES if "ecc_counters" in view.board.support else 0
    newer = _HOPPER_TYPES if view.board.architecture in {"hopper", "blackwell"} else 0
    return ecc | _OTHER_TYPES | newer


def register(view: View, types: int, event_set: EventSet) -> None:
    """Ask for events of one GPU; those of the time before are not told."""
    if types & ~supported_types(view):
        raise NVMLError(nvml.NOT_SUPPORTED)
    event_set.wanted[view.gpu.index] = types
    event_set.since[view.gpu.index] = view.t


class EventQueue:
    """The driver's side of ``nvmlEventSetWait``. ``world`` is the node as it is now and will be."""

    def __init__(self, world: Callable[[], World], *, sleep: Callable[[float], None]) -> None:
        self._world = world
        self._sleep = sleep

    def wait(self, event_set: EventSet, clock: Callable[[], float], timeout_milliseconds: int) -> SimpleNamespace:
        """The next event; waits for it at most that long, then raises TIMEOUT. A lost GPU in the set spoils it."""
        now = clock()
        if (event := self._next(event_set, now)) is not None:
            return event
        pause, storm = self._pause(event_set, now, timeout_milliseconds / 1000), self._storm(event_set, now)
        if storm is not None and storm[0] <= pause:
            self._sleep(storm[0])
            return storm[1]
        self._sleep(pause)
        if (event := self._next(event_set, clock())) is None:
            raise NVMLError(nvml.TIMEOUT)
        return event

    def _next(self, event_set: EventSet, now: float) -> SimpleNamespace | None:
        world = self._world()
        for alarm in world.alarms:
            wanted = event_set.wanted.get(alarm.gpu, 0) & alarm.event_type
            if wanted and event_set.since[alarm.gpu] < alarm.at <= now and alarm not in event_set.told:
                event_set.told.add(alarm)
                return _event(alarm.gpu, alarm.event_type, alarm.code, alarm.gpu_instance)
        if any(world.gpus[index].active(GpuLost, now) for index in event_set.wanted):
            raise NVMLError(nvml.GPU_IS_LOST)
        return None

    def _pause(self, event_set: EventSet, now: float, longest: float) -> float:
        """Until the next alarm."""
        coming = [alarm.at - now for alarm in self._world().alarms if alarm.event_type and alarm.gpu in event_set.wanted and alarm.at > now]
        return max(0.0, min([longest, *coming]))

    def _storm(self, event_set: EventSet, now: float) -> tuple[float, SimpleNamespace] | None:
        """Seconds to the next error of a storm of corrected ones, and its event; ``None`` while there is no storm."""
        gpus = self._world().gpus
        for index, types in event_set.wanted.items():
            rate = sum(fault.per_second for fault in gpus[index].active(EccStorm, now))
            if rate and types & SINGLE_BIT:
                return 1.0 / min(rate, _MAX_STORM_PER_SECOND), _event(index, SINGLE_BIT, 0, None)
        return None


def _event(gpu: int, event_type: int, code: int, instance: int | None) -> SimpleNamespace:
    return SimpleNamespace(
        device=Handle(gpu),
        eventType=event_type,
        eventData=code,
        gpuInstanceId=_NO_INSTANCE if instance is None else instance,
        computeInstanceId=_NO_INSTANCE,
    )


ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetSupportedEventTypes": supported_types,
    "nvmlDeviceRegisterEvents": register,
}
