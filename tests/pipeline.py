"""The way from driver to exposition in one process and without threads: real readers, the real node, the real text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

import gpuwatch.node
from faulty import FaultyDriver
from gpuwatch.device import nvml
from gpuwatch.device.gpu_thread import GpuThread
from gpuwatch.device.readings import GpuReading, Hello, Tick
from gpuwatch.device.wire import ReaderOptions
from gpuwatch.metrics.exposition import Exposition
from gpuwatch.snapshot import Snapshot
from nodes import Node

EPOCH = 1_760_000_000.0
_START = 100.0
_GPU = re.compile(r'gpu="(\d+)"')


class Pipeline:
    """``text`` as for :class:`nodes.Node`. ``driver`` is where a test breaks things; ``node.t`` is the time of everything."""

    def __init__(self, text: str, *, options: ReaderOptions | None = None, refused: Iterable[str] = ()) -> None:
        """``refused``: calls and fields that this node's boards do not support on top of what their models refuse."""
        self.node = Node(text, t=_START)
        self.driver = FaultyDriver(_refusing(self.node.driver, refused))
        self.options = options or ReaderOptions(pcie_throughput=False)
        self.readings: list[GpuReading] = []
        count = self.node.driver.nvmlDeviceGetCount()
        self.threads = [self._thread(index) for index in range(count)]
        self.agent = gpuwatch.node.Node("node-1", "0", fast_seconds=1.0, medium_seconds=10.0, stall_seconds=60.0)
        self.agent.apply(Hello(pid=1, gpu_count=count, driver_version="1"), self.node.t, EPOCH)
        self._exposition = Exposition(None)

    def _thread(self, index: int) -> GpuThread:
        return GpuThread(self.driver, index, options=self.options, emit=self.readings.append, clock=lambda: self.node.t)

    def read(self, passes: int = 1, *, gpus: int | None = None) -> Snapshot:
        """Passes of both tiers over the first ``gpus`` GPUs (all), a second apart, and what the node makes of them."""
        for _ in range(passes):
            for thread in self.threads[:gpus]:
                thread.read_both_tiers()
            self._step()
        return self.agent.snapshot(self.node.t, EPOCH)

    def read_fast(self, passes: int = 1) -> Snapshot:
        """The same with the fast tier alone."""
        for _ in range(passes):
            for thread in self.threads:
                thread.read_fast_tier()
            self._step()
        return self.agent.snapshot(self.node.t, EPOCH)

    def _step(self) -> None:
        self.agent.apply(Tick(readings=tuple(self.readings)), self.node.t, EPOCH)
        self.readings.clear()
        self.node.t += 1.0

    def lines(self, snapshot: Snapshot | None = None) -> list[str]:
        """The series of the exposition, one a line, without HELP and TYPE."""
        return [line for line in self.text(snapshot).splitlines() if not line.startswith("#")]

    def text(self, snapshot: Snapshot | None = None) -> str:
        """The exposition of the snapshot, or of the node now."""
        shown = snapshot or self.agent.snapshot(self.node.t, EPOCH)
        return self._exposition.render(shown, "", "")[0].decode()


def _refusing(driver: Any, calls: Iterable[str]) -> Any:
    """The driver, without these calls and fields for good."""
    if not calls:
        return driver
    board = FaultyDriver(driver)
    for call in calls:
        board.fail(call, nvml.NOT_SUPPORTED)
    return board


def check_text(text: str) -> None:
    """Raise when the exposition is not valid, or holds a value that is no number."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.value == sample.value, f"{sample.name} {sample.labels} is NaN"


def series(lines: Sequence[str]) -> set[str]:
    """Names and labels without values."""
    return {line.rpartition(" ")[0] for line in lines}


def families(lines: Sequence[str]) -> set[str]:
    """Names of the metrics."""
    return {line.partition("{")[0].partition(" ")[0] for line in lines}


def of_gpu(lines: Sequence[str], index: int) -> list[str]:
    """The series of one GPU."""
    return [line for line in lines if (found := _GPU.search(line)) and int(found.group(1)) == index]
