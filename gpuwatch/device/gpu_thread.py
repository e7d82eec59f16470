"""One GPU, one thread: opens the handle, reads the tiers when they are due, tells when the GPU is down and when it is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import Any

from gpuwatch.device import nvml
from gpuwatch.device.calls import Calls, GpuLost
from gpuwatch.device.events import EventWatch
from gpuwatch.device.faults import read_faults
from gpuwatch.device.gpm import Gpm
from gpuwatch.device.identity import completed, read_identity
from gpuwatch.device.links import read_links
from gpuwatch.device.mig import MigInstances
from gpuwatch.device.nvml import Driver, NVMLError
from gpuwatch.device.pcie import PcieMeter
from gpuwatch.device.readings import GpuReading, Identity, Medium, Process
from gpuwatch.device.sharing import ProcessShares
from gpuwatch.device.supply import read_supply
from gpuwatch.device.use import read_fast
from gpuwatch.device.wire import ReaderOptions

Clock = Callable[[], float]
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}


class GpuThread:
    """Reads the GPU with one NVML index and hands each reading to ``emit``.

    The fast tier goes first whenever it is due, but never twice in a row while the medium tier waits: a slow driver must not starve it.
    The medium tier is a generator that yields between dear calls, so on this one thread a dear call delays a fast pass by its own length
    at most. A call that hangs costs this GPU only.
    """

    def __init__(
        self,
        driver: Driver,
        index: int,
        *,
        options: ReaderOptions,
        emit: Callable[[GpuReading], None],
        clock: Clock = time.monotonic,
        watch: EventWatch | None = None,
    ) -> None:
        """``watch`` listens to the events of this GPU; it is told whenever the handle is a new one."""
        self.index = index
        self._watch = watch
        self._driver = driver
        self._options = options
        self._emit = emit
        self._clock = clock
        self._stop = threading.Event()
        self._uuid = ""
        self._identity = Identity(index=index)
        self._static_wait_seconds = 0.0
        self._calls = Calls(driver)
        self._gpm = Gpm(self._calls)
        self._mig = MigInstances(self._calls)
        self._shares = ProcessShares(self._calls)
        self._processes: tuple[Process, ...] = ()
        self._pcie: PcieMeter | None = None
        self._medium: Generator[None, None, Medium] | None = None
        self._medium_seconds = 0.0
        self._mig_state: tuple[bool | None, int] = (None, 0)
        self._told_unsupported: dict[str, str] = {}
        self._due = {"static": 0.0, "medium": 0.0, "fast": 0.0}
        self._up = False
        self._fast_was_last = False

    def run(self) -> None:
        """Read until :meth:`stop`. A mistake in this code costs this GPU a pass, never its thread."""
        while not self._stop.is_set():
            try:
                pause = self.take_turn()
            except Exception as error:  # noqa: BLE001 (the last place that can keep the GPU)
                pause = self._options.fast_seconds
                self._calls.count_mistake(error)
                self._go_down("internal_error")
            self._stop.wait(pause)

    def stop(self) -> None:
        """Ask the loop to end; a call that is blocked in the driver is not waited for."""
        self._stop.set()
        if self._pcie is not None:
            self._pcie.stop()

    def take_turn(self) -> float:
        """Do what is most urgent; seconds until something is due again."""
        now = self._clock()
        medium_waits = self._up and (self._medium is not None or now >= self._due["medium"])
        if now >= self._due["fast"] and not (medium_waits and self._fast_was_last):
            self._fast_was_last = True
            self._due["fast"] = _next_tick(now, self._options.fast_seconds)
            self.read_fast_tier()
        elif medium_waits:
            self._fast_was_last = False
            self._step_medium(now)
        else:
            soonest = min(self._due["fast"], self._due["medium"]) if self._up else self._due["fast"]
            return max(soonest - now, 0.0)
        return 0.0

    def read_fast_tier(self) -> None:
        """One fast pass; before it, whatever a GPU that just came (back) needs: its handle and its identity."""
        started = self._clock()
        identity, static_seconds = None, 0.0
        try:
            self._calls.begin_pass()
            if self._calls.handle is None and not self._open():
                return
            if not self._up or started >= self._due["static"]:
                identity = self._read_static(started)
                static_seconds = self._clock() - started
            if not self._up:
                self._listen()
            passed = self._clock()
            self._calls.begin_pass()
            fast = read_fast(self._calls, self._mig.read_memory())
        except GpuLost:
            self._go_down("gpu_is_lost")
            return
        if fault := self._calls.end_pass():
            self._go_down(fault)
            return
        self._processes = fast.processes or ()
        self._gpm.saw(fast.utilization_ratio)
        durations = {"fast": self._clock() - passed}
        if identity is not None:
            durations["static"] = static_seconds
        self._up = True
        self._send(fast=fast, identity=identity, duration_seconds=durations)

    def read_once(self, between: Callable[[], None]) -> None:
        """Two passes of both tiers, so that what is a difference has one; ``between`` lets time pass."""
        self.read_both_tiers()
        between()
        self.read_both_tiers()

    def read_both_tiers(self) -> None:
        """A fast pass and, if the GPU answers, a whole medium pass."""
        self.read_fast_tier()
        if self._up:
            self._step_medium(self._clock())
        while self._medium is not None:
            self._step_medium(self._clock())

    def _step_medium(self, now: float) -> None:
        if self._medium is None:
            self._due["medium"] = _next_tick(now, self._options.medium_seconds)
            self._medium, self._medium_seconds = self._read_medium(), 0.0
        try:
            next(self._medium)
        except StopIteration as end:
            self._medium = None
            self._medium_seconds += self._clock() - now
            self._send(medium=end.value, duration_seconds={"medium": self._medium_seconds})
        except GpuLost:
            self._go_down("gpu_is_lost")
        else:
            self._medium_seconds += self._clock() - now

    def _read_medium(self) -> Generator[None, None, Medium]:
        fields: dict[str, Any] = yield from read_supply(self._calls)
        fields |= yield from read_faults(self._calls)
        fields |= yield from self._mig.enumerate()
        self._notice_mig_change(fields)
        activity = self._gpm.read()
        yield
        fields["process_utilization_ratio"] = self._shares.read(self._processes)
        yield
        fields |= yield from read_links(
            self._calls,
            self._pcie_rates(),
            nvlink_count=self._identity.nvlink_count,
            errors_every_link=self._options.nvlink_errors_per_link,
        )
        fields["mig_activity"] = yield from self._mig.read_activity()
        bar1 = self._calls.ask("nvmlDeviceGetBAR1MemoryInfo")
        persistence = self._calls.ask("nvmlDeviceGetPersistenceMode")
        mode = self._calls.ask("nvmlDeviceGetComputeMode")
        return Medium(
            bar1_used_bytes=None if bar1 is None else self._calls.check_count("bar1_used", bar1.bar1Used),
            persistence_mode=None if persistence is None else bool(persistence),
            compute_mode=None if mode is None else _COMPUTE_MODES.get(mode),
            activity=activity,
            **fields,
        )

    def _notice_mig_change(self, fields: dict[str, Any]) -> None:
        """MIG switched on or off changes what the board supports: ask everything anew."""
        state = (fields["mig_enabled"], len(fields["mig_instances"]))
        if state[0] != self._mig_state[0] and self._mig_state != (None, 0):
            self._calls.forget()
            self._listen()
        self._mig_state = state

    def _listen(self) -> None:
        if self._watch is not None:
            self._watch.arm(self._calls.handle, self._identity)

    def _pcie_rates(self) -> dict[str, float]:
        """From the blocking call, only where GPM does not answer and no recent driver refused it."""
        if not self._options.pcie_throughput or not self._gpm.refused:
            return {}
        if self._pcie is None:
            self._pcie = PcieMeter(Calls(self._driver, self._calls.handle), self._options.medium_seconds)
            if not self._options.once:
                self._pcie.start()
        measured = self._pcie.measure() if self._options.once else None
        rates, errors, rejected = self._pcie.take(time.monotonic())
        self._calls.add_counts(errors, rejected)
        return rates if measured is None else measured

    def _read_static(self, now: float) -> Identity:
        """What a call told before stays when it fails now; a read with failures is made again soon, and later and later if they stay."""
        self._calls.forget()
        self._identity = completed(read_identity(self._calls, self.index), self._identity)
        self._uuid = self._identity.uuid
        again = max(2.0 * self._static_wait_seconds, self._options.fast_seconds)
        self._static_wait_seconds = 0.0 if self._calls.complete else again
        self._due["static"] = now + min(self._static_wait_seconds or self._options.static_seconds, self._options.static_seconds)
        return self._identity

    def _open(self) -> bool:
        """Get the handle: by UUID once it is known, since an index may point elsewhere after a reset."""
        by_uuid = bool(self._uuid) and not self._calls.refuses("nvmlDeviceGetHandleByUUID")
        call = "nvmlDeviceGetHandleByUUID" if by_uuid else "nvmlDeviceGetHandleByIndex"
        try:
            self._calls.handle = getattr(self._driver, call)(self._uuid if by_uuid else self.index)
        except NVMLError as error:
            if by_uuid and error.value == nvml.FUNCTION_NOT_FOUND:
                self._calls.unsupported[call] = nvml.error_name(error)
                return self._open()
            self._calls.count_error(call, error)
            self._go_down(nvml.error_name(error).lower())
            return False
        return True

    def _go_down(self, fault: str) -> None:
        self._up = False
        self._calls.handle = None
        self._medium = None
        self._mig_state = (None, 0)
        self._due["medium"] = 0.0
        if self._pcie is not None:
            self._pcie.stop()
            self._pcie = None
        self._gpm.close()
        self._mig.close()
        self._send(fault=fault)

    def _send(self, **parts: Any) -> None:
        unsupported = None
        # The list is whole only once both tiers were read.
        if "medium" in parts and self._calls.unsupported != self._told_unsupported:
            unsupported = self._told_unsupported = dict(self._calls.unsupported)
        errors = self._calls.take_errors()
        self._emit(
            GpuReading(
                index=self.index,
                uuid=self._uuid,
                at=self._clock(),
                errors=errors,
                rejected=self._calls.take_rejected(),
                unsupported=unsupported,
                **parts,
            )
        )


def _next_tick(now: float, interval: float) -> float:
    """The next multiple of the interval: the same for all GPUs, so that their readings share a frame; missed ticks are skipped."""
    return interval * (int(now / interval) + 1)
