"""What each holder has got of its device: counters that survive a change of its labels, and stay for a while after its end.

Everything is a share of what :mod:`gpuwatch.accounting` counted for the GPU, so the sum over the holders of an exclusive GPU is the GPU's
own counter while it was held. Of a shared device, only what is known per process is given to anybody; power and energy never are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gpuwatch.device.readings import Activity
from gpuwatch.snapshot import Gpu, Holder, JobUse

Key = tuple[str, str, str, str, str]
"""(GPU UUID, MIG UUID, namespace, pod, container): who holds what, under whatever labels."""


@dataclass(slots=True)
class _Account:
    """Counters of one holder."""

    holder: Holder
    seen_at: float
    allocated_seconds: float = 0.0
    busy_seconds: float | None = None
    energy_joules: float | None = None
    nvlink_bytes: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Marks:
    """Where the counters of a GPU stood at the last update."""

    busy_seconds: float | None = None
    energy_joules: float | None = None
    nvlink_bytes: dict[str, int] = field(default_factory=dict)


class Ledger:
    """Accounts of the holders of one node. ``now`` is CLOCK_MONOTONIC in seconds.

    ``grace_seconds``: counters of an ended holder stay that long, so that a scrape or two still sees the last value.
    ``max_gap_seconds``: a longer pause between two updates (a stopped machine) is nobody's time.
    """

    def __init__(self, *, grace_seconds: float, max_gap_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._max_gap_seconds = max_gap_seconds
        self._accounts: dict[Key, _Account] = {}
        self._marks: dict[str, _Marks] = {}
        self._updated_at: float | None = None

    def update(self, holders: Iterable[Holder], gpus: Iterable[Gpu], now: float) -> tuple[JobUse, ...]:
        """Book the time since the last update on the present holders; returns every account, ended ones in their grace too."""
        gap = 0.0 if self._updated_at is None else now - self._updated_at
        self._updated_at = now
        gap = gap if 0.0 <= gap <= self._max_gap_seconds else 0.0
        by_uuid = {gpu.identity.uuid: gpu for gpu in gpus if gpu.identity.uuid}
        present = set()
        grown = {uuid: self._growth(uuid, gpu) for uuid, gpu in by_uuid.items()}
        uses = []
        for holder in holders:
            gpu = by_uuid.get(holder.gpu_uuid)
            account = self._account(holder, now)
            present.add(_key(holder))
            if gpu is not None:
                self._book(account, gpu, grown[holder.gpu_uuid], gap)
            uses.append(_use(account, gpu))
        return (*uses, *self._ended(present, now))

    def _account(self, holder: Holder, now: float) -> _Account:
        key = _key(holder)
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = _Account(holder, now)
        account.holder, account.seen_at = holder, now
        return account

    def _growth(self, uuid: str, gpu: Gpu) -> _Marks:
        """How much the counters of the GPU grew since the last update; a device counter that fell was reset."""
        before = self._marks.get(uuid)
        carried = gpu.medium.links.nvlink_bytes if gpu.medium is not None else {}
        now = _Marks(gpu.totals.busy_seconds, gpu.totals.energy_joules, carried or (before.nvlink_bytes if before else {}))
        self._marks[uuid] = now
        if before is None:
            return _Marks()
        return _Marks(
            _difference(now.busy_seconds, before.busy_seconds),
            _difference(now.energy_joules, before.energy_joules),
            {
                name: value - before.nvlink_bytes[name]
                for name, value in now.nvlink_bytes.items()
                if value >= before.nvlink_bytes.get(name, value + 1)
            },
        )

    def _book(self, account: _Account, gpu: Gpu, grown: _Marks, gap: float) -> None:
        account.allocated_seconds += gap
        holder = account.holder
        if holder.shared or holder.mig_uuid:
            share = _own_utilization(holder, gpu)
            if share is not None:
                account.busy_seconds = (account.busy_seconds or 0.0) + share * gap
            return
        if gpu.totals.busy_seconds is not None:
            # The GPU's counter grows by whole reads: what it gained in a read that began before the holder came was never the holder's.
            account.busy_seconds = min((account.busy_seconds or 0.0) + (grown.busy_seconds or 0.0), account.allocated_seconds)
        if gpu.totals.energy_joules is not None:
            account.energy_joules = (account.energy_joules or 0.0) + (grown.energy_joules or 0.0)
        for name, value in grown.nvlink_bytes.items():
            account.nvlink_bytes[name] = account.nvlink_bytes.get(name, 0) + value

    def _ended(self, present: set[Key], now: float) -> list[JobUse]:
        """Accounts that nobody holds any more: counters only, until their grace is over."""
        ended = []
        for key, account in list(self._accounts.items()):
            if key in present:
                continue
            if now - account.seen_at > self._grace_seconds:
                del self._accounts[key]
            else:
                ended.append(_counters(account, held=False))
        return ended


def _key(holder: Holder) -> Key:
    return (holder.gpu_uuid, holder.mig_uuid, holder.namespace, holder.pod, holder.container)


def _difference(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else max(now - before, 0.0)


def _counters(account: _Account, *, held: bool) -> JobUse:
    return JobUse(
        holder=account.holder,
        held=held,
        allocated_seconds=account.allocated_seconds,
        busy_seconds=account.busy_seconds,
        energy_joules=account.energy_joules,
        nvlink_bytes=dict(account.nvlink_bytes),
    )


def _use(account: _Account, gpu: Gpu | None) -> JobUse:
    """The counters with what the holder gets right now."""
    counters = _counters(account, held=True)
    if gpu is None or not gpu.up or gpu.fast is None:
        return counters
    holder = account.holder
    activity = _own_activity(holder, gpu)
    return JobUse(
        **{name: getattr(counters, name) for name in ("holder", "allocated_seconds", "busy_seconds", "energy_joules", "nvlink_bytes")},
        utilization_ratio=_own_utilization(holder, gpu),
        memory_used_bytes=_own_memory(holder, gpu),
        power_watts=None if holder.shared or holder.mig_uuid else gpu.fast.power_watts,
        sm_active_ratio=None if activity is None else activity.sm_active_ratio,
        tensor_active_ratio=None if activity is None else activity.tensor_active_ratio,
    )


def _own_activity(holder: Holder, gpu: Gpu) -> Activity | None:
    """GPM of the device, when it is this holder's alone."""
    if holder.shared or gpu.medium is None:
        return None
    return gpu.medium.mig_activity.get(holder.mig_uuid) if holder.mig_uuid else gpu.medium.activity


def _own_utilization(holder: Holder, gpu: Gpu) -> float | None:
    """Of an exclusive GPU its utilisation; of a MIG instance what GPM says; of a shared device the sum over the holder's processes."""
    if gpu.fast is None or not gpu.up:
        return None
    if holder.shared:
        told = gpu.medium.process_utilization_ratio if gpu.medium is not None else {}
        mine = [told[pid] for pid in holder.pids if pid in told]
        return min(sum(mine), 1.0) if mine else None
    if holder.mig_uuid:
        activity = _own_activity(holder, gpu)
        return None if activity is None else activity.graphics_ratio
    return gpu.fast.utilization_ratio


def _own_memory(holder: Holder, gpu: Gpu) -> int | None:
    """Memory of the device, when it is this holder's alone; else the sum over its processes, if all of them tell."""
    if gpu.fast is None:
        return None
    if not holder.shared:
        memory = gpu.fast.mig_memory.get(holder.mig_uuid) if holder.mig_uuid else gpu.fast.memory
        return None if memory is None else memory.used_bytes
    used: dict[int, int | None] = {}
    for process in gpu.fast.processes or ():
        if process.pid in holder.pids:
            # A process with compute and graphics contexts is listed twice, with the same memory.
            used[process.pid] = process.used_bytes if used.get(process.pid) is None else used[process.pid]
    known = [value for value in used.values() if value is not None]
    return sum(known) if known and len(known) == len(used) else None
