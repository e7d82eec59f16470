"""A simulated node for tests: a scenario, its driver, and a clock the test sets."""

from __future__ import annotations

from typing import Any

from gpuwatch.device.nvml import NVMLError
from gpuwatch.device.simulated import SimulatedDriver
from gpuwatch.device.simulated.scenario import Scenario, load_scenario, parse_scenario


class Node:
    """``text`` is a shipped scenario's name, or YAML of its ``gpus`` and what follows. ``t`` is the scenario's time in seconds."""

    def __init__(self, text: str, *, t: float = 0.0) -> None:
        self.scenario: Scenario = load_scenario(text) if "\n" not in text and ":" not in text else parse_scenario(_whole(text))
        self.t = t
        self.waited: list[float] = []
        self.driver = self.load()
        self.driver.nvmlInit()

    def load(self) -> SimulatedDriver:
        """A driver object as a new process would make it now."""
        return SimulatedDriver(self.scenario, lambda: self.t, sleep=self.waited.append)

    def handle(self, index: int = 0) -> Any:
        """Handle of a GPU."""
        return self.driver.nvmlDeviceGetHandleByIndex(index)

    def ask(self, call: str, *arguments: Any, gpu: int = 0) -> Any:
        """Answer of ``nvmlDeviceGet<call>``."""
        return getattr(self.driver, f"nvmlDeviceGet{call}")(self.handle(gpu), *arguments)

    def code(self, call: str, *arguments: Any, gpu: int = 0) -> int:
        """Error code of ``nvmlDeviceGet<call>``; 0 when it answers."""
        try:
            self.ask(call, *arguments, gpu=gpu)
        except NVMLError as error:
            return int(error.value)
        return 0

    def field(self, field: int, scope: int = 0, *, gpu: int = 0) -> Any:
        """One answer of ``nvmlDeviceGetFieldValues``."""
        return self.ask("FieldValues", [(field, scope)], gpu=gpu)[0]


def _whole(text: str) -> bytes:
    return f"name: test\ndescription: A test.\n{text}".encode()
