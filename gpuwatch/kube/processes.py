"""Source: the kernel, which tells by a process's cgroup in which pod and container it runs.

The driver names processes by the PIDs of the node, whoever asks. They mean something here only when ``/proc`` shows the node's processes:
with ``hostPID``, or when the node's ``/proc`` is mounted. No capability is needed for either.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import structlog

from gpuwatch.kube.objects import ProcessOwner, ProcessOwners, SourceState
from gpuwatch.kube.procfiles import ProcFileError, read_place, read_start

FAULTS = frozenset({"starting", "no_proc", "no_host_pid", "permission"})
"""Every value of ``state.fault`` beside the empty one."""

_KTHREADD = "kthreadd"
"""The kernel's own process 2 of every node; no container has it, unless it sees the node's processes."""
_MAX_PIDS = 4096
_MAX_BYTES = 65536
_EMPTY_PASSES = 3
"""So many passes without one of the driver's PIDs are no chance: a process that ends is missed once."""
_NO_HOST_PID = "the node's processes cannot be seen: set hostPID, or mount the node's /proc; allocations are known without it"

_log = structlog.get_logger("gpuwatch.kube")


class _Known(NamedTuple):
    start_ticks: int
    read_at: float
    owner: ProcessOwner


@dataclass(slots=True, kw_only=True)
class _Pass:
    """What one pass has found so far."""

    now: float
    latest_ticks: float
    reads_left: int
    found: dict[int, _Known] = field(default_factory=dict)
    senseless: dict[int, str] = field(default_factory=dict)
    seen: int = 0
    denied: int = 0


def boot_offset_seconds() -> float:
    """Time since boot minus CLOCK_MONOTONIC: not zero on a machine that was suspended. The kernel counts start times from boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


class ProcessSource:
    """Looks processes up, and remembers them by PID and start time. To be used by one thread at a time; files only, so it hardly blocks.

    Args:
        root: ``/proc``, or where the node's is mounted.
        recheck_seconds: How long a place is believed of a process that goes on living. 60 s: processes hardly ever change cgroups.
        max_reads: Cgroup files read in one pass; what is above comes in the next ones.
        boot_offset: Time since boot minus CLOCK_MONOTONIC, in seconds.
        ticks_per_second: Unit of the kernel's start times.
    """

    def __init__(
        self,
        root: Path = Path("/proc"),
        *,
        recheck_seconds: float = 60.0,
        max_reads: int = 256,
        boot_offset: Callable[[], float] = boot_offset_seconds,
        ticks_per_second: float = os.sysconf("SC_CLK_TCK"),
    ) -> None:
        self._root = root
        self._recheck = recheck_seconds
        self._max_reads = max_reads
        self._boot_offset = boot_offset
        self._ticks_per_second = ticks_per_second
        self._known: dict[int, _Known] = {}
        self._empty_passes = 0
        self._told_fault = "starting"
        self._told_senseless = False
        self._view = ProcessOwners()

    @property
    def view(self) -> ProcessOwners:
        """The owners of the last pass. May be read from any thread."""
        return self._view

    def look_up(self, pids: Iterable[int], now: float) -> ProcessOwners:
        """Say whose these processes are.

        Args:
            pids: What the driver listed, at most 4096 of them.
            now: CLOCK_MONOTONIC at which the driver listed them. A process that started later bears the PID of one that has ended since,
                and is left out.

        Returns:
            The owners of the processes that still live. Never raises.
        """
        wanted = sorted({pid for pid in pids if pid > 0})[:_MAX_PIDS]
        done = _Pass(now=now, latest_ticks=(now + self._boot_offset()) * self._ticks_per_second, reads_left=self._max_reads)
        fault, detail = self._blindness()
        if not fault:
            for pid in wanted:
                self._note(pid, done)
            fault, detail = self._judge(len(wanted), done)
        # A source that is blind keeps no facts: it could not see that a PID has passed to another process.
        self._known = {} if fault else done.found
        self._view = ProcessOwners(
            state=SourceState(up=not fault, fault=fault, detail=detail, updated_at=self._view.state.updated_at if fault else now),
            owners={pid: known.owner for pid, known in self._known.items()},
            rejected=len(done.senseless),
        )
        self._tell(fault, detail, done.senseless)
        return self._view

    def _blindness(self) -> tuple[str, str]:
        """Fault and detail when the processes of the node cannot be seen at all; a wrong one might bear the PID otherwise."""
        try:
            name = self._read(2, "comm").strip()
        except OSError:
            name = ""
        if name == _KTHREADD:
            return "", ""
        if not os.path.isdir(self._root):  # noqa: PTH112 (Path.is_dir raises where it may not look)
            return "no_proc", f"{self._root} is no directory: mount the node's /proc there, or use /proc with hostPID"
        return "no_host_pid", _NO_HOST_PID

    def _note(self, pid: int, done: _Pass) -> None:
        try:
            start = read_start(self._read(pid, "stat"))
            done.seen += 1
            known = self._known.get(pid)
            if start is None:
                return
            if known is not None and known.start_ticks == start and (done.now - known.read_at < self._recheck or done.reads_left <= 0):
                done.found[pid] = known
            elif start + 1 <= done.latest_ticks and done.reads_left > 0:
                done.reads_left -= 1
                place = read_place(self._read(pid, "cgroup"))
                if read_start(self._read(pid, "stat")) == start:
                    owner = ProcessOwner(pid=pid, pod_uid=place.pod_uid, container_id=place.container_id)
                    done.found[pid] = _Known(start, done.now, owner)
        except PermissionError:
            done.denied += 1
        except ProcFileError as error:
            done.senseless[pid] = str(error)
        except OSError:
            return  # it has ended since the driver listed it

    def _judge(self, wanted: int, done: _Pass) -> tuple[str, str]:
        if done.denied and not done.found:
            return "permission", f"{self._root} lets none of {done.denied} processes be looked up: is it mounted with hidepid?"
        if wanted:
            self._empty_passes = 0 if done.seen or done.senseless or done.denied else self._empty_passes + 1
        if self._empty_passes >= _EMPTY_PASSES:
            return "no_host_pid", f"{self._root} has none of the processes that the driver lists; {_NO_HOST_PID}"
        return "", ""

    def _read(self, pid: int, name: str) -> str:
        with (self._root / str(pid) / name).open("rb") as file:
            # Names in a path are any bytes; those that are no text match nothing.
            return file.read(_MAX_BYTES).decode(errors="replace")

    def _tell(self, fault: str, detail: str, senseless: dict[int, str]) -> None:
        if fault and fault != self._told_fault:
            _log.warning("processes cannot be told apart by pod", source="processes", fault=fault, detail=detail)
        if self._told_fault and not fault:
            _log.info("processes are told apart by pod", source="processes")
        self._told_fault = fault
        if senseless and not self._told_senseless:
            self._told_senseless = True
            pid, text = next(iter(senseless.items()))
            _log.warning("the kernel's files about a process make no sense; it belongs to nobody", source="processes", pid=pid, detail=text)
