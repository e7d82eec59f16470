"""What is remembered of one GPU between snapshots, so that evidence can be made of it: its windows, its XIDs, when it was reset.

A reset is told by a line of the kernel log, by counters that started again, by a driver that was loaded anew, or by a GPU that was lost
and answers again, also when it was lost before the agent started. A reboot ends the agent too, and another board has another UUID: neither
leaves anything behind.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gpuwatch.device.readings import FaultEvent, Health, Medium
from gpuwatch.health.evidence import Evidence, PeerFault, XidSeen
from gpuwatch.health.measures import Measures
from gpuwatch.health.signs import LOST_XID, NODE_FAULTS, RECOVERY_CHANGED
from gpuwatch.health.xid import recovery_of_text
from gpuwatch.snapshot import Gpu, Snapshot

_GONE: Final = frozenset({"gpu_is_lost", "missing", "not_found", "reset_required"})
_DRIVER_DOWN: Final = frozenset({"driver_not_loaded", "lib_rm_version_mismatch", "no_gpu"})
_MOST_CODES: Final = 64


class GpuHistory:
    """One GPU. ``now`` is CLOCK_MONOTONIC, ``at`` and ``until`` are Unix time, in seconds. Used by the agent's loop only."""

    def __init__(self, read_seconds: float) -> None:
        self._measures = Measures(read_seconds)
        self._xids: dict[int, XidSeen] = {}
        self._taken: Medium | None = None
        self._medium: Medium | None = None
        self._read_at = 0.0
        self._recovery_read_at: float | None = None
        self._health = Health()
        self._volatile: dict[tuple[str, str], int] = {}
        self._driver: str | None = None
        self._down_since: float | None = None
        self._gone_at: float | None = None
        self._unloaded_at: float | None = None
        self._lost_before: float | None = None
        self.reset_until: float | None = None
        """The newest reset that was noticed; who remembers things of this GPU elsewhere forgets what is older."""

    def take(self, gpu: Gpu, snapshot: Snapshot, now: float) -> bool:
        """Take what a snapshot tells of the GPU; returns whether there is something new to judge."""
        at = snapshot.timestamp_seconds
        changed = self._take_state(gpu, snapshot, now)
        if gpu.medium is not None and gpu.medium is not self._taken:
            if self._lost_before is not None:
                self.clear(self._lost_before)
                self._lost_before = None
            if self._has_started_anew(gpu.medium, snapshot.driver_version):
                self.clear(self._read_at, from_zero=True)
            self._taken = self._medium = gpu.medium
            self._read_at = at
            self._driver = snapshot.driver_version or self._driver
            self._volatile |= _volatile(gpu.medium.health)
            if gpu.medium.health.recovery_action is not None:
                self._recovery_read_at = at
            self._health = _merged(gpu.medium.health, self._health)
            self._measures.take(gpu, now)
            changed = True
        return changed

    def note(self, event: FaultEvent, job: str, now: float) -> None:
        """Take an XID or an ECC event. ``job``: who held the GPU, where that is known and matters."""
        if event.kind == "ecc_double" and not event.replayed and not event.completes:
            self._measures.note_uncorrected(now)
        if event.kind != "xid" or event.code <= 0 or (self.reset_until is not None and event.at <= self.reset_until):
            return
        if event.code == LOST_XID and event.replayed:
            # It fell off the bus in an earlier life of the agent. If it is read in this one, it was reset in between.
            if self._taken is not None:
                self.clear(event.at)
                return
            self._lost_before = max(event.at, self._lost_before or 0.0)
        before = self._xids.get(event.code)
        if event.code == RECOVERY_CHANGED and recovery_of_text(event.text) == 0:
            # The driver says that nothing is left to do. NVML's account of the same may bear a slightly later time.
            self._forget_xids(max(event.at, before.last_at) if before is not None and event.completes else event.at)
            return
        if before is None and len(self._xids) >= _MOST_CODES:
            del self._xids[min(self._xids, key=lambda code: self._xids[code].last_at)]
        newest = before is None or event.completes or event.at >= before.last_at
        self._xids[event.code] = XidSeen(
            code=event.code,
            last_at=event.at if before is None else max(before.last_at, event.at),
            count=1 if before is None else before.count + (not event.completes),
            text=event.text if before is None or (newest and event.text) else before.text,
            job=job or (before.job if before else ""),
            replayed=event.replayed and (before is None or before.replayed),
        )

    def suffers_from(self, code: int) -> bool:
        """Whether that XID came and no reset since."""
        return code in self._xids

    def clear(self, until: float, *, from_zero: bool = False) -> None:
        """The GPU was reset at that time: what happened before is over. ``from_zero``: its counters were seen to begin again.

        A reset of before the last read (a log that is read again after a restart of the agent) only ends the XIDs before it.
        """
        self.reset_until = until if self.reset_until is None else max(until, self.reset_until)
        self._forget_xids(until)
        if until <= self._read_at and not from_zero:
            return
        self._measures.clear(from_zero=from_zero)
        self._health = Health()
        self._volatile.clear()
        self._medium = None

    def _forget_xids(self, until: float) -> None:
        self._xids = {code: seen for code, seen in self._xids.items() if seen.last_at > until}

    def evidence(
        self, gpu: Gpu, at: float, now: float, *, suspect_jobs: tuple[str, ...], guilty_jobs: frozenset[str], peers: tuple[PeerFault, ...]
    ) -> Evidence:
        """Everything that is known now."""
        health = self._health
        ecc = {key: count for key, count in self._volatile.items() if key[0] == "uncorrected"}
        fields = self._measures.fields(now)
        if gpu.up and gpu.medium is None and self._medium is not None:
            fields["missing"] = ("everything but the fast tier",)
        down_since = self._measures.nvlinks_down_since
        return Evidence(
            at=at,
            fault="" if gpu.up else gpu.fault or "unknown",
            down_seconds=0.0 if self._down_since is None else now - self._down_since,
            read=self._medium is not None,
            recovery_action=health.recovery_action,
            recovery_read_at=self._recovery_read_at,
            xids=tuple(self._xids.values()),
            guilty_jobs=guilty_jobs,
            suspect_jobs=suspect_jobs,
            peers=peers,
            ecc_uncorrected=sum(ecc.values()) if ecc else None,
            sram_uncorrected_ever=_sum(health, "uncorrected", "aggregate", "sram"),
            row_remap_pending=health.row_remap_pending,
            row_remap_failed=health.row_remap_failed,
            rows_remapped_uncorrected=health.remapped_rows.get("uncorrected"),
            banks_without_spare=health.row_remap_banks.get("none"),
            retired_pages=sum(health.retired_pages.values()) if health.retired_pages else None,
            retired_pages_uncorrected=health.retired_pages.get("double_bit"),
            retired_pages_pending=health.retired_pages_pending,
            nvlinks_down_at=None if down_since is None else at - (now - down_since),
            **fields,
        )

    def _take_state(self, gpu: Gpu, snapshot: Snapshot, now: float) -> bool:
        """Whether the GPU answers, and if it does again, whether that was a reset."""
        if gpu.up:
            was_down, self._down_since = self._down_since is not None, None
            reset_at = self._gone_at if self._gone_at is not None else self._unloaded_at
            self._gone_at = self._unloaded_at = None
            if reset_at is not None:
                self.clear(reset_at)
            return was_down
        began = self._down_since is None
        if self._down_since is None:
            self._down_since = now
        if gpu.fault in _GONE:
            self._gone_at = snapshot.timestamp_seconds
        elif gpu.fault in _DRIVER_DOWN or (gpu.fault in NODE_FAULTS and snapshot.fault in _DRIVER_DOWN):
            self._unloaded_at = snapshot.timestamp_seconds
        return began

    def _has_started_anew(self, medium: Medium, driver: str | None) -> bool:
        """The driver's counters began again, or it is another driver."""
        before = self._medium
        if self._driver is not None and driver is not None and driver != self._driver:
            return True
        now = _volatile(medium.health)
        if any(count < self._volatile.get(key, 0) for key, count in now.items()):
            return True
        if before is None or before.energy_joules is None or medium.energy_joules is None:
            return False
        return medium.energy_joules < before.energy_joules


def _volatile(health: Health) -> dict[tuple[str, str], int]:
    return {(ecc.severity, ecc.location): ecc.count for ecc in health.ecc_errors if ecc.scope == "volatile"}


def _sum(health: Health, severity: str, scope: str, location: str) -> int | None:
    counts = [ecc.count for ecc in health.ecc_errors if (ecc.severity, ecc.scope, ecc.location) == (severity, scope, location)]
    return sum(counts) if counts else None


def _merged(new: Health, before: Health) -> Health:
    """The new facts; a bad one that is not told this time (a call failed, MIG hides it) is still there."""
    kept: dict[str, object] = {
        name: True
        for name in ("row_remap_pending", "row_remap_failed", "retired_pages_pending")
        if getattr(new, name) is None and getattr(before, name)
    }
    for name in ("recovery_action", "remapped_rows", "row_remap_banks", "retired_pages", "ecc_errors"):
        if not getattr(new, name) and getattr(new, name) != 0:
            kept[name] = getattr(before, name)
    return msgspec.structs.replace(new, **kept)
