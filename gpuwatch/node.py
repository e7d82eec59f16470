"""What the agent knows of its node: frames of the reader go in, frozen snapshots come out. No input or output, no clock of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from gpuwatch.accounting import GpuAccount
from gpuwatch.device.readings import Fast, Frame, GpuReading, Hello, Identity, Medium, Tick
from gpuwatch.device.supervisor import Ending
from gpuwatch.health.hearing import Hearing, classified
from gpuwatch.snapshot import Agent, Gpu, Modes, Snapshot

_STALE_MEDIUM_READS = 3
"""A medium reading is shown until three more should have come."""
_GAP_READS = 5

FAULTS_IN_WORDS = {
    "starting": "the first read has not been made yet",
    "driver_not_loaded": "the NVIDIA kernel driver is not loaded; waiting for it",
    "library_not_found": "libnvidia-ml.so.1 is not found: no NVIDIA driver here, or the container has no access to it; waiting for it",
    "lib_rm_version_mismatch": "the driver library and the kernel driver have different versions (an upgrade is under way); trying again",
    "no_gpu": "the driver is loaded and shows no GPU; waiting for one",
    "no_permission": "the driver refuses access to the GPUs: check the device files and the container's device permissions",
    "unknown": "every call to the driver fails with an unknown error: the container has probably lost its device files",
    "crashed": "the driver library crashed the reader process; starting it again",
    "hung": "the driver blocked the reader process; starting it again",
    "start_timeout": "the driver library does not come up; trying again",
    "stalled": "no GPU answers within its deadline",
    "no_gpu_readable": "no GPU can be read, each for a reason of its own",
}


@dataclass(slots=True)
class _GpuState:
    """The last that was heard of one GPU."""

    identity: Identity
    account: GpuAccount
    heard_at: float = 0.0
    fault: str = ""
    fast: Fast | None = None
    fast_at: float = 0.0
    medium: Medium | None = None
    medium_at: float = 0.0
    modes: Modes = Modes()  # noqa: RUF009 (frozen)
    in_this_life: bool = False
    unsupported: dict[str, str] = field(default_factory=dict)
    durations: dict[str, float] = field(default_factory=dict)


class Node:
    """Merges readings by GPU UUID and decides what is fresh. ``now`` is CLOCK_MONOTONIC in seconds everywhere."""

    def __init__(
        self,
        name: str,
        version: str,
        *,
        fast_seconds: float,
        medium_seconds: float,
        stall_seconds: float,
        simulated: bool = False,
        once: bool = False,
        classify: Callable[[int], tuple[str, str]] = classified,
    ) -> None:
        """``once``: what was read stays fresh, since no GPU is read again while others are waited for.

        ``classify`` gives category and severity of an XID.
        """
        self._hearing = Hearing(classify)
        self._name = name
        self._version = version
        self._simulated = simulated
        self._once = once
        self._fast_stale_seconds = fast_seconds + stall_seconds
        self._medium_stale_seconds = _STALE_MEDIUM_READS * medium_seconds + stall_seconds
        self._max_gap_seconds = max(_GAP_READS * fast_seconds, self._fast_stale_seconds)
        self._gpus: dict[str, _GpuState] = {}
        self._hello: Hello | None = None
        self._hello_at = 0.0
        self._versions: dict[str, str | None] = {}
        self._ending = Ending(reason="starting")
        self._errors: Counter[tuple[str, str]] = Counter()
        self._rejected: Counter[str] = Counter()
        self._restarts: dict[str, int] = {}
        self._last_read: dict[str, float] = {}
        self._complete = False

    def apply(self, frame: Frame, now: float, wall: float) -> None:
        """Take one frame. ``wall`` is the Unix time, for the exported timestamps."""
        if isinstance(frame, Hello):
            self._hello, self._hello_at = frame, now
            self._versions = {name: getattr(frame, name) for name in ("driver_version", "nvml_version", "cuda_version")}
            for state in self._gpus.values():
                state.in_this_life = False
        elif isinstance(frame, Tick):
            for reading in frame.readings:
                self._take(reading, now, wall)
            self._hearing.take(frame)

    def reader_ended(self, ending: Ending, restarts: dict[str, int]) -> None:
        """The reader is gone; what it read stays shown until it is stale."""
        self._hello = None
        self._hearing.reader_ended()
        self._ending = ending
        self._restarts = restarts

    def snapshot(self, now: float, wall: float) -> Snapshot:
        """The node as it is at ``now``."""
        gpus = tuple(self._gpu(state, now) for state in self._in_order(now))
        up = any(gpu.up for gpu in gpus)
        self._complete = self._complete or (up and all(not gpu.up or gpu.medium is not None for gpu in gpus))
        fault = "" if up else self._fault(gpus)
        return Snapshot(
            node=self._name,
            timestamp_seconds=wall,
            version=self._version,
            simulated=self._simulated,
            up=up,
            fault=fault,
            detail="" if up else self._detail(fault),
            ready=up and self._complete,
            gpus=gpus,
            agent=self._agent(),
            listening=self._hearing.listening(),
            driver_version=self._versions.get("driver_version"),
            nvml_version=self._versions.get("nvml_version"),
            cuda_version=self._versions.get("cuda_version"),
        )

    def _take(self, reading: GpuReading, now: float, wall: float) -> None:
        state = self._state(reading)
        state.in_this_life = True
        state.heard_at = now
        for error in reading.errors:
            self._errors[error.call, error.error] += error.count
        self._rejected.update(reading.rejected)
        for tier in reading.duration_seconds:
            self._last_read[tier] = wall
        state.durations |= reading.duration_seconds
        state.account.update(reading)
        if reading.unsupported is not None:
            state.unsupported = reading.unsupported
        if reading.identity is not None:
            state.identity = reading.identity
            self._hearing.learn(reading.identity)
            self._let_go(state)
        if reading.fault or reading.fast is not None:
            state.fault = reading.fault
        if reading.fast is not None:
            state.fast, state.fast_at = reading.fast, now
        if reading.medium is not None:
            state.medium, state.medium_at = reading.medium, now
            state.modes = _modes(reading.medium, state.modes)
        if reading.fault:
            state.fast = state.medium = None

    def _let_go(self, state: _GpuState) -> None:
        """Another GPU has this index now: whoever had it before is not waited for."""
        for other in self._gpus.values():
            if other is not state and other.identity.index == state.identity.index:
                other.in_this_life = False

    def _state(self, reading: GpuReading) -> _GpuState:
        """By UUID. A fault without one is that of the GPU that had this index and has not been heard of since, or of a new unknown one.

        Values without a UUID never go to a known GPU: the index may mean another one by now.
        """
        key = reading.uuid or (self._silent_key(reading.index) if reading.fault else _placeholder(reading.index))
        state = self._gpus.get(key)
        if state is None:
            state = _GpuState(Identity(index=reading.index, uuid=reading.uuid), GpuAccount(self._max_gap_seconds))
            self._gpus[key] = state
        if reading.uuid:
            self._gpus.pop(_placeholder(reading.index), None)
        return state

    def _silent_key(self, index: int) -> str:
        for key, state in self._gpus.items():
            if state.identity.index == index and (not state.in_this_life or state.fault):
                return key
        return _placeholder(index)

    def _in_order(self, now: float) -> list[_GpuState]:
        """Every known GPU by index, and those the reader has announced but not read within the deadline."""
        if self._hello is not None and now - self._hello_at > self._fast_stale_seconds:
            heard = {state.identity.index for state in self._gpus.values()}
            for index in set(range(self._hello.gpu_count)) - heard:
                self._gpus[_placeholder(index)] = _GpuState(Identity(index=index), GpuAccount(self._max_gap_seconds))
        return sorted(self._gpus.values(), key=lambda state: (state.identity.index, state.identity.uuid))

    def _gpu(self, state: _GpuState, now: float) -> Gpu:
        fault = state.fault or self._silence(state, now)
        fresh_medium = not fault and state.medium is not None and (self._once or now - state.medium_at <= self._medium_stale_seconds)
        return Gpu(
            identity=state.identity,
            up=not fault,
            fault=fault,
            fast=None if fault else state.fast,
            medium=state.medium if fresh_medium else None,
            modes=state.modes,
            totals=state.account.totals(),
            unsupported=state.unsupported,
            xids=self._hearing.xids(state.identity.uuid),
        )

    def _silence(self, state: _GpuState, now: float) -> str:
        """Why an unanswering GPU is silent; empty while its last fast reading is fresh."""
        if state.fast is not None and (self._once or now - state.fast_at <= self._fast_stale_seconds):
            return ""
        if self._hello is None:
            return "reader_down"
        if now - self._hello_at <= self._fast_stale_seconds:
            return "starting"
        return "stalled" if state.in_this_life or self._awaited(state.identity.index) else "missing"

    def _awaited(self, index: int) -> bool:
        """Whether the reader has announced a GPU with this index and told of none yet."""
        taken = any(state.in_this_life and state.identity.index == index for state in self._gpus.values())
        return self._hello is not None and index < self._hello.gpu_count and not taken

    def _fault(self, gpus: tuple[Gpu, ...]) -> str:
        if self._hello is None:
            return self._ending.reason
        faults = {gpu.fault for gpu in gpus}
        if not faults:
            return "starting"
        return faults.pop() if len(faults) == 1 else "no_gpu_readable"

    def _detail(self, fault: str) -> str:
        """What the last reader said at its end explains nothing once the next one speaks."""
        return FAULTS_IN_WORDS.get(fault) or (self._hello is None and self._ending.detail) or fault

    def _agent(self) -> Agent:
        durations: dict[str, float] = {}
        for state in self._gpus.values():
            for tier, seconds in state.durations.items():
                durations[tier] = max(durations.get(tier, 0.0), seconds)
        return Agent(
            read_duration_seconds=durations,
            last_read_timestamp_seconds=dict(self._last_read),
            nvml_errors=dict(self._errors),
            nvml_rejected_values=dict(self._rejected),
            reader_restarts=dict(self._restarts),
        )


def _modes(medium: Medium, before: Modes) -> Modes:
    """The modes told now, and those told before where a call failed this time: a failed call does not rename a GPU."""
    told = {name: getattr(medium, name, None) for name in Modes.__struct_fields__} | {"ecc_enabled": medium.health.ecc_enabled}
    return Modes(**{name: getattr(before, name) if value is None else value for name, value in told.items()})


def _placeholder(index: int) -> str:
    return f"index:{index}"
