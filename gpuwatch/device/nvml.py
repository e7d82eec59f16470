"""The only door to pynvml: NVIDIA's binding, plus the few calls it lacks, behind one object.

Everything above this module takes a *driver*: any object with pynvml's function names that raises :class:`NVMLError`. That is
:class:`RealDriver` here, :class:`gpuwatch.device.simulated.SimulatedDriver`, or :class:`gpuwatch.device.replay.ReplayDriver`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pynvml
from pynvml import NVMLError

__all__ = ["ERROR_NAMES", "Driver", "NVMLError", "RealDriver", "error_name", "field_value"]

Driver = Any
"""pynvml-shaped: resolved by name at each call, because any single symbol may be missing from the installed library."""

ERROR_NAMES: dict[int, str] = {
    code: name.removeprefix("NVML_ERROR_")
    for name, code in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(code, int)
}
"""NVML return code → its name in nvml.h without the prefix, e.g. 15 → ``GPU_IS_LOST``."""

UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
VGPU_ECC_NOT_SUPPORTED = 22
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26
UNKNOWN = 999

MEMORY_V2 = int(pynvml.nvmlMemory_v2)
ALL_LINKS = 0xFFFFFFFF
"""``scopeId`` that asks for the sum over all NVLinks."""
MAX_NVLINKS = int(pynvml.NVML_NVLINK_MAX_LINKS)

_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def error_name(error: NVMLError) -> str:
    """Name of an NVML error in nvml.h (``UNKNOWN`` for 999); a code newer than the binding is ``CODE_<n>``."""
    return ERROR_NAMES.get(int(error.value), f"CODE_{int(error.value)}")


def field_value(field: Any) -> float | int | None:
    """Value of one ``nvmlFieldValue_t``, read by its own ``valueType``; ``None`` for a type newer than this code."""
    kind = int(field.valueType)
    if not 0 <= kind < len(_VALUE_MEMBERS):
        return None
    value: float | int = getattr(field.value, _VALUE_MEMBERS[kind])
    return value


class RealDriver:
    """pynvml with what it lacks: one-call GPM metrics, fabric state, and the v1 process lists of drivers before 470.

    Functions of pynvml appear under their own names. Safe to call from several threads: ctypes releases the interpreter lock.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(pynvml, name)
        setattr(self, name, function)
        return function

    def gpm_metrics(self, first: Any, second: Any, ids: Sequence[int]) -> dict[int, float]:
        """GPM metrics between two samples, by metric id; those the board does not answer are left out. ``nvmlGpmMetricsGet``."""
        request = self._gpm_request(tuple(ids))
        request.sample1, request.sample2 = first, second
        pynvml.nvmlGpmMetricsGet(request)
        return {metric.metricId: metric.value for metric in request.metrics[: len(ids)] if metric.nvmlReturn == 0}

    def _gpm_request(self, ids: tuple[int, ...]) -> Any:
        """The request struct of this thread: 16 KiB, so it is built once per thread and list of ids."""
        cache: dict[tuple[int, ...], Any] = self._local.__dict__.setdefault("requests", {})
        if ids not in cache:
            request = pynvml.c_nvmlGpmMetricsGet_t()
            request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
            request.numMetrics = len(ids)
            for slot, metric_id in enumerate(ids):
                request.metrics[slot].metricId = metric_id
            cache[ids] = request
        return cache[ids]

    def fabric_info(self, handle: Any) -> Any:
        """NVSwitch fabric state (``.state``, ``.status``, ``.healthMask``). ``nvmlDeviceGetGpuFabricInfoV`` v2.

        The struct's version must be set: without it the driver has been seen to crash the process.
        """
        info = pynvml.c_nvmlGpuFabricInfo_v2_t()
        info.version = pynvml.nvmlGpuFabricInfo_v2
        pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        return info

    def nvmlDeviceGetComputeRunningProcesses_v1(self, handle: Any) -> list[Any]:  # noqa: N802 (pynvml's naming)
        """Process list of drivers before 470, which pynvml no longer wraps."""
        return _processes_v1("nvmlDeviceGetComputeRunningProcesses", handle)

    def nvmlDeviceGetGraphicsRunningProcesses_v1(self, handle: Any) -> list[Any]:  # noqa: N802
        """Process list of drivers before 470, which pynvml no longer wraps."""
        return _processes_v1("nvmlDeviceGetGraphicsRunningProcesses", handle)

    def nvmlDeviceGetMPSComputeRunningProcesses_v1(self, handle: Any) -> list[Any]:  # noqa: N802
        """Process list of drivers before 470, which pynvml no longer wraps."""
        return _processes_v1("nvmlDeviceGetMPSComputeRunningProcesses", handle)


class _ProcessV1(ctypes.Structure):
    """``nvmlProcessInfo_v1_t``: no instance ids."""

    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


def _processes_v1(symbol: str, handle: Any) -> list[Any]:
    """Call a v1 process list with a buffer of 64, doubling it while the driver says it is too small."""
    function = pynvml._nvmlGetFunctionPointer(symbol)  # noqa: SLF001 (pynvml has no public door to a symbol)
    size = 64
    while True:
        count = ctypes.c_uint(size)
        buffer = (_ProcessV1 * size)()
        code = function(handle, ctypes.byref(count), buffer)
        if code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE and size < 1 << 16:
            size *= 2
            continue
        if code:
            raise NVMLError(code)
        return list(buffer[: count.value])
