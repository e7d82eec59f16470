"""How often each GPU reported which XID, and when last. They outlive the reader, and a reset of the GPU: a counter never falls.

A counter begins with the first event: a series of zeros would claim that somebody has listened all the time. What the kernel logged in
the two hours before the agent started is counted too, with its own time, so that an XID during a restart of the agent is not missed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gpuwatch.device.readings import FaultEvent
from gpuwatch.snapshot import XidCount

MAX_CODES: Final = 64
"""Of one GPU; the rest is counted together."""
_MAX_GPUS: Final = 64
_MAX_SXIDS: Final = 256
_OTHER: Final = "other"

Classify = Callable[[int], tuple[str, str]]
"""Category and severity of an XID."""


@dataclass(slots=True)
class _Tally:
    category: str
    severity: str
    count: int = 0
    last_seen_seconds: float = 0.0


class XidCounters:
    """The counters of all GPUs of the node, by UUID."""

    def __init__(self, classify: Classify) -> None:
        self._classify = classify
        self._of_gpu: dict[str, dict[str, _Tally]] = {}
        self._sxids: dict[tuple[str, str], int] = {}
        self._told: dict[str, tuple[XidCount, ...]] = {}

    def add(self, event: FaultEvent) -> None:
        """Count one event of the merged stream; what is no XID or SXid, or belongs to no known GPU, is not counted here."""
        if event.completes:
            return
        if event.kind == "sxid":
            self._add_sxid(event)
        elif event.kind == "xid" and event.uuid:
            self._add_xid(event)

    def of_gpu(self, uuid: str) -> tuple[XidCount, ...]:
        """The counters of one GPU in the order of their first event."""
        if uuid in self._told:
            return self._told[uuid]
        counts = tuple(
            XidCount(xid=xid, category=one.category, severity=one.severity, count=one.count, last_seen_seconds=one.last_seen_seconds)
            for xid, one in self._of_gpu.get(uuid, {}).items()
        )
        self._told[uuid] = counts
        return counts

    def sxids(self) -> dict[tuple[str, str], int]:
        """Errors of the node's NVSwitches by (SXid, severity)."""
        return dict(self._sxids)

    def _add_xid(self, event: FaultEvent) -> None:
        if event.uuid not in self._of_gpu and len(self._of_gpu) >= _MAX_GPUS:
            return
        tallies = self._of_gpu.setdefault(event.uuid, {})
        xid = str(event.code)
        if xid not in tallies and len(tallies) >= MAX_CODES:
            xid = _OTHER
        if xid not in tallies:
            category, severity = (_OTHER, "ticket") if xid == _OTHER else self._classify(event.code)
            tallies[xid] = _Tally(category, severity)
        tally = tallies[xid]
        tally.count += 1
        tally.last_seen_seconds = max(tally.last_seen_seconds, event.at)
        self._told.pop(event.uuid, None)

    def _add_sxid(self, event: FaultEvent) -> None:
        key = (str(event.code), sxid_severity(event.text))
        if key not in self._sxids and len(self._sxids) >= _MAX_SXIDS:
            key = (_OTHER, key[1])
        self._sxids[key] = self._sxids.get(key, 0) + 1


def sxid_severity(text: str) -> str:
    """``fatal``, ``non_fatal`` or ``unknown``, as the switch's driver itself says at the beginning of the text."""
    word = text.lower().lstrip()
    if word.startswith(("non-fatal", "nonfatal", "non fatal")):
        return "non_fatal"
    return "fatal" if word.startswith("fatal") else "unknown"
