"""What an answer is made from: one GPU (or one of its MIG devices) at one moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuwatch.device.simulated.board import Board
from gpuwatch.device.simulated.gpu import SimulatedGpu
from gpuwatch.device.simulated.load import Level
from gpuwatch.device.simulated.mig import MigInstance


@dataclass(frozen=True, slots=True)
class Handle:
    """Device handle: a GPU, or with ``mig_uuid`` a MIG device. Like NVML's it says nothing about its GPU by itself."""

    index: int
    mig_uuid: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """One GPU at ``t`` seconds of the scenario. ``instance`` is set when the handle is a MIG device's."""

    gpu: SimulatedGpu
    t: float
    driver_branch: int
    instance: MigInstance | None
    block: Callable[[float], None]
    """Waits that many seconds, for calls that really block."""

    @property
    def board(self) -> Board:
        """Model of the GPU."""
        return self.gpu.board

    @property
    def level(self) -> Level:
        """Load of the whole GPU now."""
        return self.gpu.phase_at(self.t).level

    @property
    def instances(self) -> tuple[MigInstance, ...] | None:
        """MIG devices now; ``None`` while MIG mode is off."""
        return self.gpu.instances_at(self.t)


Answer = Callable[..., Any]
"""``answer(view, *arguments of the NVML call)``; raises NVMLError where the driver would."""
