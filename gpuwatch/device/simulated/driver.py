"""A driver without a GPU: pynvml's function names, answered from a scenario, failing where and how the scenario says.

Safe to call from any number of threads: what changes after construction are the count of nvmlInit calls, and the whole world at once
when faults are injected.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from gpuwatch.device import nvml
from gpuwatch.device.nvml import NVMLError
from gpuwatch.device.simulated.alarm import SimulatedFeed
from gpuwatch.device.simulated.answers import activity, events, fields, health, identity, instances, links
from gpuwatch.device.simulated.fault import (
    AnyFault,
    CallError,
    CgroupLost,
    Crash,
    DriverMissing,
    DriverUpgrade,
    Garbage,
    GpuLost,
    Hang,
    MissingSymbols,
    NoGpu,
)
from gpuwatch.device.simulated.gpu import SimulatedGpu
from gpuwatch.device.simulated.mig import MigInstance
from gpuwatch.device.simulated.scenario import Scenario
from gpuwatch.device.simulated.support import call_refusal, symbol_missing
from gpuwatch.device.simulated.view import Answer, Handle, View
from gpuwatch.device.simulated.world import Injected, World, build_world

ANSWERS: dict[str, Answer] = {
    **identity.ANSWERS,
    **activity.ANSWERS,
    **health.ANSWERS,
    **links.ANSWERS,
    **instances.ANSWERS,
    **fields.ANSWERS,
    **events.ANSWERS,
}
"""Calls whose first argument is a device handle."""

_CUDA_OF_BRANCH = (
    (595, 13020),
    (590, 13010),
    (580, 13000),
    (570, 12080),
    (560, 12060),
    (555, 12050),
    (550, 12040),
    (535, 12020),
    (530, 12010),
)
_OLDEST_CUDA = 12000
_DEFAULT_DRIVER = "580.159.04"


def wait_really(seconds: float) -> None:
    """Block the calling thread for real time; the default of :class:`SimulatedDriver`."""
    threading.Event().wait(seconds)


class SimulatedDriver:
    """What a process sees that loads the driver's library at the time it makes this object.

    Args:
        scenario: the node and what happens on it.
        clock: seconds since the scenario's start; never goes back.
        sleep: blocks for that many seconds, for calls that block or hang.
        injected: faults on top of the scenario's.
    """

    def __init__(
        self,
        scenario: Scenario,
        clock: Callable[[], float],
        *,
        sleep: Callable[[float], None] = wait_really,
        injected: Injected = tuple,
    ) -> None:
        self._scenario = scenario
        self._clock = clock
        self._sleep = sleep
        self._injected = injected
        self._lock = threading.Lock()
        self._known: tuple[AnyFault, ...] = injected()
        self._world = build_world(scenario, self._known)
        self._events = events.EventQueue(self._present, sleep=sleep)
        self._loaded_at = clock()
        self._opened = 0
        self._driver_version = self._version_loaded()
        self._driver_branch = int(self._driver_version.split(".")[0])
        self._node_calls: dict[str, Callable[..., Any]] = {
            "nvmlInit": self._open,
            "nvmlShutdown": self._close,
            "nvmlSystemGetDriverVersion": lambda: self._driver_version,
            "nvmlSystemGetNVMLVersion": lambda: f"{self._cuda_version() // 1000}.{self._driver_version}",
            "nvmlSystemGetCudaDriverVersion": self._cuda_version,
            "nvmlDeviceGetCount": lambda: len(self._visible()),
            "nvmlDeviceGetHandleByIndex": self._handle_by_index,
            "nvmlDeviceGetHandleByUUID": self._handle_by_uuid,
            "nvmlGpmSampleAlloc": instances.GpmSample,
            "nvmlGpmSampleFree": lambda _: None,
            "gpm_metrics": self._gpm_metrics,
            "nvmlEventSetCreate": events.EventSet,
            "nvmlEventSetFree": lambda _: None,
            "nvmlEventSetWait_v2": lambda event_set, timeout: self._events.wait(event_set, self._now, timeout),
        }

    def kernel_log(self, after: int) -> SimulatedFeed:
        """The node's kernel log behind the record of that number."""
        return SimulatedFeed(lambda: self._present().alarms, self._now, after=after, sleep=self._sleep)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or (name not in ANSWERS and name not in self._node_calls):
            raise AttributeError(f"the simulated driver has no function {name!r}")
        return functools.partial(self._call, name)

    def _present(self) -> World:
        """The world with what is injected now."""
        injected = self._injected()
        with self._lock:
            if injected is not self._known:
                self._known, self._world = injected, build_world(self._scenario, injected)
            return self._world

    def _call(self, name: str, *args: Any, **keywords: Any) -> Any:
        t, gpus = self._now(), self._present().gpus
        handle = args[0] if args and isinstance(args[0], Handle) else None
        index = self._gpu_meant(name, args) if handle is None else handle.index
        self._fail_if_asked(name, t, index)
        if name in self._node_calls:
            return self._spoil(name, self._node_calls[name](*args, **keywords), t, index)
        if handle is None or not 0 <= handle.index < len(gpus):
            raise NVMLError(nvml.INVALID_ARGUMENT)
        view = self._view(handle, t)
        refusal = call_refusal(name, board=view.board, mig_on=view.instances is not None, of_instance=view.instance is not None)
        if refusal is not None:
            raise NVMLError(refusal)
        return self._spoil(name, ANSWERS[name](view, *args[1:], **keywords), t, index)

    def _fail_if_asked(self, name: str, t: float, index: int | None) -> None:
        """Faults in the order in which a real process would meet them: its death, its library, the kernel module, the GPU."""
        faults = [fault for fault in self._world.scenario.faults if fault.hits(index)]
        if any(isinstance(fault, Crash) and self._loaded_at < fault.from_ <= t for fault in faults):
            os.kill(os.getpid(), signal.SIGSEGV)
        missing = any(isinstance(fault, MissingSymbols) and fault.covers(t) and name in fault.calls for fault in faults)
        if missing or symbol_missing(name, self._driver_branch):
            raise NVMLError(nvml.FUNCTION_NOT_FOUND)
        self._fail_as_driver(name, t)
        if name != "nvmlInit" and self._opened == 0:
            raise NVMLError(nvml.UNINITIALIZED)
        for fault in faults:
            if not fault.covers(t):
                continue
            if isinstance(fault, Hang) and _concerns(fault.calls, name):
                self._sleep(fault.seconds)
            if isinstance(fault, GpuLost) and index is not None:
                raise NVMLError(nvml.GPU_IS_LOST)
            if isinstance(fault, CallError) and _concerns(fault.calls, name):
                raise NVMLError(fault.code)

    def _fail_as_driver(self, name: str, t: float) -> None:
        """Faults of the driver as a whole."""
        for fault in self._world.scenario.faults:
            if isinstance(fault, DriverUpgrade) and (fault.covers(t) or self._loaded_at < fault.end <= t):
                raise NVMLError(nvml.LIB_RM_VERSION_MISMATCH)
            if isinstance(fault, CgroupLost) and fault.covers(t):
                raise NVMLError(nvml.UNKNOWN)
            if isinstance(fault, DriverMissing) and fault.covers(t) and name == "nvmlInit":
                raise NVMLError(fault.code)

    def _spoil(self, name: str, answer: Any, t: float, index: int | None) -> Any:
        """The answer, or what a faulty sensor says instead."""
        for fault in self._world.scenario.faults:
            if not (isinstance(fault, Garbage) and fault.call == name and fault.covers(t) and fault.hits(index)):
                continue
            if fault.member is None:
                return fault.value
            if isinstance(answer, list):
                answer[int(fault.member)] = fault.value
            else:
                setattr(answer, fault.member, fault.value)
        return answer

    def _view(self, handle: Handle, t: float) -> View:
        gpu = self._world.gpus[handle.index]
        instance = None
        if handle.mig_uuid:
            instance = _find_instance(gpu, handle.mig_uuid, t)
            if instance is None:
                raise NVMLError(nvml.INVALID_ARGUMENT)
        return View(gpu=gpu, t=t, driver_branch=self._driver_branch, instance=instance, block=self._sleep)

    def _gpu_meant(self, name: str, args: tuple[Any, ...]) -> int | None:
        """The GPU that a call without a handle is about."""
        if name == "nvmlDeviceGetHandleByIndex" and isinstance(args[0], int) and 0 <= args[0] < len(self._world.gpus):
            return args[0]
        if name == "nvmlDeviceGetHandleByUUID":
            return next((gpu.index for gpu in self._world.gpus if gpu.uuid == _text(args[0])), None)
        return None

    def _open(self) -> None:
        with self._lock:
            self._opened += 1

    def _close(self) -> None:
        with self._lock:
            self._opened = max(0, self._opened - 1)

    def _handle_by_index(self, index: int) -> Handle:
        if not 0 <= index < len(self._visible()):
            raise NVMLError(nvml.INVALID_ARGUMENT)
        return Handle(index)

    def _handle_by_uuid(self, uuid: str | bytes) -> Handle:
        wanted = _text(uuid)
        for gpu in self._visible():
            if gpu.uuid == wanted:
                return Handle(gpu.index)
            instance = _find_instance(gpu, wanted, self._now())
            if instance is not None:
                return Handle(gpu.index, instance.uuid)
        raise NVMLError(nvml.NOT_FOUND)

    def _gpm_metrics(self, first: instances.GpmSample, second: instances.GpmSample, ids: Sequence[int]) -> dict[int, float]:
        return instances.gpm_metrics(first, second, tuple(ids))

    def _visible(self) -> tuple[SimulatedGpu, ...]:
        hidden = any(isinstance(fault, NoGpu) and fault.covers(self._now()) for fault in self._world.scenario.faults)
        return () if hidden else self._world.gpus

    def _version_loaded(self) -> str:
        upgrades = [fault for fault in self._world.scenario.faults if isinstance(fault, DriverUpgrade) and fault.end <= self._loaded_at]
        if upgrades:
            return max(upgrades, key=lambda fault: fault.end).driver
        own = self._world.gpus[0].board.driver if self._world.gpus else _DEFAULT_DRIVER
        return self._scenario.driver or own

    def _cuda_version(self) -> int:
        return next((cuda for branch, cuda in _CUDA_OF_BRANCH if self._driver_branch >= branch), _OLDEST_CUDA)

    def _now(self) -> float:
        return max(0.0, self._clock())


def _concerns(calls: tuple[str, ...] | str, name: str) -> bool:
    return calls == "all" or name in calls


def _text(uuid: str | bytes) -> str:
    return uuid.decode() if isinstance(uuid, bytes) else uuid


def _find_instance(gpu: SimulatedGpu, uuid: str, t: float) -> MigInstance | None:
    return next((instance for instance in gpu.instances_at(t) or () if instance.uuid == uuid), None)
