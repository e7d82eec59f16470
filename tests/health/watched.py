"""A simulated node under watch, without threads and with a clock of its own: readers, kernel log, node and health board are the real ones.

What a reader process adds (it ends when the library is down, and another one starts) is done here in a few lines.
"""

from __future__ import annotations

from typing import Any

import gpuwatch.node
from gpuwatch.device.fault_box import FaultBox
from gpuwatch.device.gpu_thread import GpuThread
from gpuwatch.device.kernel_log import KernelLog
from gpuwatch.device.nvml import NVMLError, error_name
from gpuwatch.device.readings import FaultEvent, GpuReading, Hello, Tick
from gpuwatch.device.simulated import SimulatedDriver
from gpuwatch.device.simulated.fault import Crash, Hang
from gpuwatch.device.simulated.scenario import load_scenario, parse_scenario
from gpuwatch.device.supervisor import Ending
from gpuwatch.device.wire import ReaderOptions
from gpuwatch.health.board import HealthBoard
from gpuwatch.health.xid import XidPolicy
from gpuwatch.snapshot import Snapshot, Verdict

EPOCH = 1_760_000_000.0
"""Unix time of the scenario's start."""
_LIBRARY_DOWN = {"uninitialized", "driver_not_loaded", "library_not_found", "lib_rm_version_mismatch"}


class Watched:
    """One node.

    ``text`` is a shipped scenario's name, or YAML of its ``gpus`` and what follows. ``read_seconds`` is the time between whole reads:
    the default is that of the daemon.
    """

    def __init__(self, text: str, *, read_seconds: float = 10.0, overrides: dict[int, XidPolicy] | None = None) -> None:
        self.scenario = load_scenario(text) if ":" not in text else parse_scenario(f"name: test\ndescription: A test.\n{text}".encode())
        self.t = 0.0
        self.read_seconds = read_seconds
        self.agent = gpuwatch.node.Node("node-1", "0", fast_seconds=read_seconds, medium_seconds=read_seconds, stall_seconds=5.0)
        self.board = HealthBoard(read_seconds=read_seconds, overrides=overrides)
        self.seen: list[tuple[float, int, Verdict]] = []
        """(time, GPU, verdict) whenever a state, an action or a reason changed."""
        self._readings: list[GpuReading] = []
        self._box = FaultBox()
        self._log = KernelLog(self._load().kernel_log(-1), self._box, started_at=EPOCH, wall=lambda: EPOCH + self.t)
        self._driver: Any = None
        self._threads: list[GpuThread] = []
        self._loaded_at = 0.0
        self.snapshot = self._judged()

    def verdict(self, gpu: int = 0) -> Verdict:
        """Of that GPU, now."""
        found = self.snapshot.gpus[gpu].verdict
        assert found is not None
        return found

    def run_to(self, t: float) -> Watched:
        """Read until the scenario's second ``t``; then ``snapshot`` is of that moment."""
        while self.t < t:
            self._step()
            self.t = min(t, self.t + self.read_seconds)
        self._step()
        return self

    def tell(self, *events: FaultEvent) -> None:
        """The driver tells of something now."""
        self.agent.apply(Tick(events=events), self.t, EPOCH + self.t)
        self.snapshot = self._judged()

    def xid(self, code: int, *, gpu: int = 0, text: str = "", pid: int | None = None) -> FaultEvent:
        """An XID of that GPU, now."""
        uuid = self.snapshot.gpus[gpu].identity.uuid
        return FaultEvent(kind="xid", code=code, uuid=uuid, source="kernel_log", at=EPOCH + self.t, text=text, pid=pid)

    def worst(self) -> set[str]:
        """Every reason above ``info`` that any verdict ever gave."""
        return {f"{reason.code} at {t:.0f} s" for t, _, verdict in self.seen for reason in verdict.reasons if reason.severity != "info"}

    def merged(self) -> Snapshot:
        """What the node knows now, before it is judged."""
        return self.agent.snapshot(self.t, EPOCH + self.t)

    def _step(self) -> None:
        now, wall = self.t, EPOCH + self.t
        if any(isinstance(fault, Crash) and self._loaded_at < fault.from_ <= now for fault in self.scenario.faults):
            self._end("crashed")
        if self._driver is None and not self._start():
            self._log.catch_up()
            self.snapshot = self._judged()
            return
        hung = {fault.gpu for fault in self.scenario.faults if isinstance(fault, Hang) and fault.covers(now)}
        for thread in self._threads:
            if thread.index not in hung:
                thread.read_both_tiers()
        self._log.catch_up()
        taken = self._box.take()
        faults = [reading.fault for reading in self._readings]
        self.agent.apply(
            Tick(readings=tuple(self._readings), events=taken.events, sources=taken.sources, log_lines=taken.log_lines), now, wall
        )
        self._readings.clear()
        if faults and all(fault in _LIBRARY_DOWN for fault in faults):
            self._end(faults[0])
        self.snapshot = self._judged()

    def _load(self) -> SimulatedDriver:
        return SimulatedDriver(self.scenario, lambda: self.t, sleep=lambda _: None)

    def _start(self) -> bool:
        driver = self._load()
        try:
            driver.nvmlInit()
            count = driver.nvmlDeviceGetCount()
        except NVMLError as error:
            self.agent.reader_ended(Ending(reason=error_name(error).lower()), {})
            return False
        if not count:
            self.agent.reader_ended(Ending(reason="no_gpu"), {})
            return False
        self._driver, self._loaded_at = driver, self.t
        options = ReaderOptions(medium_seconds=self.read_seconds, pcie_throughput=False)
        emit = self._readings.append
        self._threads = [GpuThread(driver, index, options=options, emit=emit, clock=lambda: self.t) for index in range(count)]
        version = str(driver.nvmlSystemGetDriverVersion())
        self.agent.apply(Hello(pid=1, gpu_count=count, driver_version=version), self.t, EPOCH + self.t)
        return True

    def _end(self, reason: str) -> None:
        self._driver, self._threads = None, []
        self.agent.reader_ended(Ending(reason=reason), {reason: 1})

    def _judged(self) -> Snapshot:
        before = {gpu: _shape(verdict) for _, gpu, verdict in self.seen}
        snapshot = self.board.judge(self.merged(), self.t)
        for gpu in snapshot.gpus:
            if gpu.verdict is not None and _shape(gpu.verdict) != before.get(gpu.identity.index):
                self.seen.append((self.t, gpu.identity.index, gpu.verdict))
        return snapshot


def _shape(verdict: Verdict) -> tuple[str, str, tuple[str, ...]]:
    return verdict.state, verdict.action, tuple(reason.code for reason in verdict.reasons)
