"""A simulated NVIDIA driver: the whole pipeline runs on it, in tests and in the demo, without a GPU."""

from __future__ import annotations

from gpuwatch.device.simulated.driver import SimulatedDriver
from gpuwatch.device.simulated.scenario import Scenario, ScenarioError, load_scenario, scenario_names

__all__ = ["Scenario", "ScenarioError", "SimulatedDriver", "load_scenario", "scenario_names"]
