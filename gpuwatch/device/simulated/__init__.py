"""A simulated NVIDIA driver: the whole pipeline runs on it, in tests and in the demo, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpuwatch.device.simulated.driver import SimulatedDriver
from gpuwatch.device.simulated.injection import InjectionError, inject
from gpuwatch.device.simulated.injection_file import FaultsFile
from gpuwatch.device.simulated.scenario import Scenario, ScenarioError, load_scenario, scenario_names
from gpuwatch.device.wire import Simulation

__all__ = [
    "InjectionError",
    "Scenario",
    "ScenarioError",
    "SimulatedDriver",
    "inject",
    "load_scenario",
    "open_simulation",
    "scenario_names",
]


def open_simulation(simulation: Simulation, clock: Callable[[], float]) -> SimulatedDriver:
    """The driver of that simulation. ``clock``: seconds since the scenario's start.

    Raises:
        ScenarioError: there is no such scenario.
        InjectionError: a fault cannot be injected into it.
    """
    scenario = load_scenario(simulation.scenario)
    always = inject(scenario, simulation.inject)
    if simulation.injected_file:
        return SimulatedDriver(scenario, clock, injected=FaultsFile(Path(simulation.injected_file), always))
    return SimulatedDriver(scenario, clock, injected=lambda: always)
