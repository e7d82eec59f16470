"""Puts verdicts into snapshots: remembers each GPU, hears its events, and judges when there is something new."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from gpuwatch.device.readings import FaultEvent
from gpuwatch.health.evidence import PeerFault
from gpuwatch.health.history import GpuHistory
from gpuwatch.health.policy import XID_PAGE_HOLD
from gpuwatch.health.signs import LOST, LOST_XID
from gpuwatch.health.suspicion import PROGRAM_ERRORS, Suspicion
from gpuwatch.health.verdict import judge
from gpuwatch.health.xid import XidPolicy
from gpuwatch.health.xid_signs import GRAVE_FOR_PEERS
from gpuwatch.snapshot import Gpu, JobUse, Snapshot, Verdict

_AGAIN_SECONDS: Final = 5.0
"""A verdict is judged anew at least that often, since times run out without any news."""
_MOST_PEER_FAULTS: Final = 64


class HealthBoard:
    """The GPUs of one node. Used by the agent's loop only."""

    def __init__(self, *, read_seconds: float, overrides: Mapping[int, XidPolicy] | None = None) -> None:
        """``read_seconds``: time between whole reads; ``overrides``: rows of the XID table that the operator changed."""
        self._read_seconds = read_seconds
        self._overrides = overrides or {}
        self._histories: dict[str, GpuHistory] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._judged_at: dict[str, float] = {}
        self._suspicion = Suspicion()
        self._grave: deque[tuple[str, PeerFault]] = deque(maxlen=_MOST_PEER_FAULTS)
        self._heard = 0

    def judge(self, snapshot: Snapshot, now: float) -> Snapshot:
        """The snapshot with a verdict for each of its GPUs. ``now``: CLOCK_MONOTONIC, seconds."""
        keys = [_key(gpu) for gpu in snapshot.gpus]
        for gone in set(self._histories) - set(keys):
            for kept in (self._histories, self._verdicts, self._judged_at):
                kept.pop(gone, None)
        fresh = {key for key, gpu in zip(keys, snapshot.gpus, strict=True) if self._history(key).take(gpu, snapshot, now)}
        heard = self._hear(snapshot, now)
        for key, gpu in zip(keys, snapshot.gpus, strict=True):
            self._note_loss(key, gpu, snapshot.timestamp_seconds)
        gpus = []
        for key, gpu in zip(keys, snapshot.gpus, strict=True):
            if heard or key in fresh or now - self._judged_at.get(key, -_AGAIN_SECONDS) >= _AGAIN_SECONDS:
                self._verdicts[key] = self._judge(key, gpu, snapshot.timestamp_seconds, now)
                self._judged_at[key] = now
            gpus.append(msgspec.structs.replace(gpu, verdict=None if _is_exchanged(gpu, snapshot) else self._verdicts[key]))
        return msgspec.structs.replace(snapshot, gpus=tuple(gpus))

    def _history(self, key: str) -> GpuHistory:
        found = self._histories.get(key)
        if found is None:
            found = self._histories[key] = GpuHistory(self._read_seconds)
        return found

    def _hear(self, snapshot: Snapshot, now: float) -> bool:
        """Take the events that came since the snapshot before; whether there were any."""
        listening = snapshot.listening
        count = min(listening.event_count - self._heard, len(listening.events))
        self._heard = listening.event_count
        new = listening.events[-count:] if count > 0 else ()
        for event in new:
            self._note(event, snapshot, now)
        return bool(new)

    def _note(self, event: FaultEvent, snapshot: Snapshot, now: float) -> None:
        concerned = [gpu for gpu in snapshot.gpus if _is_of(event, gpu)]
        if event.kind == "reset":
            everyone = not event.uuid and not event.pci_bus_id
            for gpu in snapshot.gpus if everyone else concerned:
                self._history(_key(gpu)).clear(event.at)
                self._suspicion.forget(_key(gpu), event.at)
            return
        for gpu in concerned:
            job = ""
            if event.kind == "xid" and event.code in PROGRAM_ERRORS:
                job = _job_at(event, gpu, snapshot)
                self._suspicion.note(_key(gpu), job, event.at)
            self._history(_key(gpu)).note(event, job, now)
            if event.kind == "xid" and event.code in GRAVE_FOR_PEERS:
                fault = PeerFault(gpu=gpu.identity.index, code=event.code, from_at=event.at, until_at=event.at)
                self._grave.append((_key(gpu), fault))

    def _note_loss(self, key: str, gpu: Gpu, at: float) -> None:
        """A lost GPU is a grave fault for its peers as long as it is lost."""
        if gpu.up or gpu.fault not in LOST:
            return
        for place, (other, fault) in enumerate(self._grave):
            if other == key and fault.code == LOST_XID:
                self._grave[place] = (key, msgspec.structs.replace(fault, until_at=at))
                return
        self._grave.append((key, PeerFault(gpu=gpu.identity.index, code=LOST_XID, from_at=at, until_at=at)))

    def _judge(self, key: str, gpu: Gpu, at: float, now: float) -> Verdict:
        history = self._history(key)
        if history.reset_until is not None:
            self._suspicion.forget(key, history.reset_until)
        evidence = history.evidence(
            gpu,
            at,
            now,
            suspect_jobs=self._suspicion.jobs(key, at),
            guilty_jobs=self._suspicion.guilty(at),
            peers=self._peers_of(key, at),
        )
        return judge(evidence, self._overrides)

    def _peers_of(self, key: str, at: float) -> tuple[PeerFault, ...]:
        return tuple(msgspec.structs.replace(fault, stands=self._stands(other, fault, at)) for other, fault in self._grave if other != key)

    def _stands(self, key: str, fault: PeerFault, at: float) -> bool:
        """That GPU was not reset since, and its XID still counts."""
        history = self._histories.get(key)
        return history is not None and history.suffers_from(fault.code) and at - fault.until_at <= XID_PAGE_HOLD.seconds


def _key(gpu: Gpu) -> str:
    return gpu.identity.uuid or f"index:{gpu.identity.index}"


def _is_of(event: FaultEvent, gpu: Gpu) -> bool:
    if event.uuid:
        return event.uuid == gpu.identity.uuid
    return bool(event.pci_bus_id) and event.pci_bus_id == gpu.identity.pci_bus_id


def _is_exchanged(gpu: Gpu, snapshot: Snapshot) -> bool:
    """Another board answers at the address of this one, which does not."""
    address = gpu.identity.pci_bus_id
    return not gpu.up and bool(address) and any(other.up and other.identity.pci_bus_id == address for other in snapshot.gpus)


def _job_at(event: FaultEvent, gpu: Gpu, snapshot: Snapshot) -> str:
    """The job that held the GPU when the event came, as far as that is certain; empty where it is not.

    What an earlier life of the agent saw cannot be told: the holders of now are not those of then.
    """
    if event.replayed:
        return ""
    uses = [use for use in snapshot.jobs if use.holder.gpu_uuid == gpu.identity.uuid]
    instances = {one.uuid for one in (gpu.medium.mig_instances if gpu.medium else ()) if one.gpu_instance == event.gpu_instance}
    if event.gpu_instance is not None and instances:
        uses = [use for use in uses if use.holder.mig_uuid in instances]
    by_process = [use for use in uses if event.pid is not None and event.pid in use.holder.pids]
    for chosen in (by_process, [use for use in uses if use.held], uses):
        names = {_job_name(use) for use in chosen}
        if names:
            return names.pop() if len(names) == 1 else ""
    return ""


def _job_name(use: JobUse) -> str:
    job = use.holder.job
    return f"{use.holder.namespace}/{job.kind}/{job.name}"
