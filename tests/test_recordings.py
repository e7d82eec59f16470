"""Recordings of real nodes, read by the real reader and shown as they were when a person last looked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gpuwatch.device.gpu_thread import GpuThread
from gpuwatch.device.reader import hello, open_driver
from gpuwatch.device.readings import GpuReading, Tick
from gpuwatch.device.wire import ReaderOptions
from gpuwatch.metrics.exposition import Exposition
from gpuwatch.node import Node

FOLDER = Path(__file__).parent / "recordings"
RECORDINGS = sorted(path for path in FOLDER.glob("*.json") if "answers" in json.loads(path.read_text()))


def exposition_of(recording: Path) -> str:
    """The exposition of the recorded node after two passes one second apart, on a clock that is nobody's and a Python of no version."""
    options = ReaderOptions(replay=str(recording), once=True)
    driver = open_driver(options)
    driver.nvmlInit()
    count = driver.nvmlDeviceGetCount()
    node = Node("node-1", "VERSION", fast_seconds=1.0, medium_seconds=10.0, stall_seconds=5.0)
    node.apply(hello(driver, count), 0.0, 0.0)
    now = [0.0]
    for index in range(count):
        now[0] = 0.0
        readings: list[GpuReading] = []
        GpuThread(driver, index, options=options, emit=readings.append, clock=lambda: now[0]).read_once(lambda: now.__setitem__(0, 1.0))
        node.apply(Tick(readings=tuple(readings)), now[0], 0.0)
    body, _ = Exposition(None).render(node.snapshot(now[0], 0.0), "", "")
    return re.sub(r'(?<=python=")[^"]*', "PYTHON", body.decode())


def test_there_is_a_recording() -> None:
    """At least one real node is replayed."""
    assert RECORDINGS


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
def test_recording(recording: Path, compare_expected: Callable[[str, str], None]) -> None:
    """A recorded node reads without one error or rejected value, and is shown exactly as expected."""
    text = exposition_of(recording)
    assert "gpuwatch_nvml_errors_total{" not in text
    assert "gpuwatch_nvml_rejected_values_total{" not in text
    assert {sample.value for family in parse_text(text) for sample in family.samples if sample.name == "gpuwatch_gpu_up"} == {1.0}
    compare_expected(f"recording-{recording.stem}.txt", text)
