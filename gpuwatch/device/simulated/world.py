"""The simulated node as a whole: its GPUs and everything its driver tells by itself, made of a scenario and of what is injected into it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gpuwatch.device.simulated.alarm import Alarm, alarms_of
from gpuwatch.device.simulated.fault import AnyFault
from gpuwatch.device.simulated.gpu import SimulatedGpu, build_gpus
from gpuwatch.device.simulated.scenario import Scenario

Injected = Callable[[], tuple[AnyFault, ...]]
"""Answers the faults that are injected now; the same tuple as before while nothing has changed. What has begun is never taken back."""


@dataclass(frozen=True, slots=True)
class World:
    """Immutable, so every thread may read it."""

    scenario: Scenario
    """With the injected faults among its own."""
    gpus: tuple[SimulatedGpu, ...]
    alarms: tuple[Alarm, ...]


def build_world(scenario: Scenario, injected: tuple[AnyFault, ...] = ()) -> World:
    """The node of the scenario, on which the injected faults happen too."""
    whole = msgspec.structs.replace(scenario, faults=(*scenario.faults, *injected))
    gpus = build_gpus(whole)
    return World(whole, gpus, alarms_of(whole, gpus))
