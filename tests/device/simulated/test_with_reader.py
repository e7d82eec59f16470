"""The real reader over the simulated driver: nothing that is sound looks like an error."""

from __future__ import annotations

import pytest

from gpuwatch.device.gpu_thread import GpuThread
from gpuwatch.device.readings import GpuReading
from gpuwatch.device.wire import ReaderOptions
from nodes import Node


def read(node: Node) -> list[GpuReading]:
    """What the reader says about every GPU of the node after two passes, one second apart."""
    readings: list[GpuReading] = []

    def pass_a_second() -> None:
        node.t += 1.0

    for gpu in range(node.driver.nvmlDeviceGetCount()):
        thread = GpuThread(node.driver, gpu, options=ReaderOptions(), emit=readings.append, clock=lambda: node.t)
        thread.read_once(pass_a_second)
    return readings


@pytest.mark.parametrize("name", ["training", "mixed-fleet", "data-starved", "straggler", "single-h200", "mig-full", "power-brake"])
def test_sound_drivers_bring_no_errors(name: str) -> None:
    """A node whose driver works is read without one error or rejected value, whatever its boards refuse."""
    node = Node(name)
    node.t = 200.0
    readings = read(node)
    assert {reading.index for reading in readings} == set(range(node.scenario.gpu_count))
    assert [reading for reading in readings if reading.errors or reading.rejected or reading.fault] == []


def test_impossible_values_are_rejected() -> None:
    """What the garbage scenario's sensors say never reaches a reading (case D13)."""
    rejected = {(reading.index, name) for reading in read(Node("garbage-values")) for name in reading.rejected}
    assert {index for index, _ in rejected} == {0, 1, 2}
    assert len(rejected) == 5
