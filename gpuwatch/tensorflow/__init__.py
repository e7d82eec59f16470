"""Why a TensorFlow job does not use its GPUs: measured in the job itself, which alone knows what it waits for.

Never imported by the agent. The names below load TensorFlow when they are first used; the modules of data and of export do not need it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuwatch.tensorflow.callback import GpuWatchCallback
    from gpuwatch.tensorflow.monitor import Monitor, process_monitor

__all__ = ["GpuWatchCallback", "Monitor", "process_monitor"]
_ROOMS = {"GpuWatchCallback": "callback", "Monitor": "monitor", "process_monitor": "monitor"}


def __getattr__(name: str) -> object:
    """Load what needs TensorFlow.

    Raises:
        ImportError: TensorFlow is not installed, in one line.
    """
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_ROOMS[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in ("tensorflow", "keras", "prometheus_client"):
            raise
        raise ImportError(f"gpuwatch.tensorflow.{name} needs {error.name}, which is not installed: see docs/tensorflow.md") from None
