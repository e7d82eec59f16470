"""What the agent has heard of faults: the merged stream, its counters and the newest events. Outlives every reader."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from gpuwatch.device.readings import FaultEvent, Identity, SourceHealth, Tick
from gpuwatch.health.stream import FaultStream
from gpuwatch.health.xid import policy_of
from gpuwatch.health.xid_counters import XidCounters
from gpuwatch.snapshot import Listening, XidCount

KEPT_EVENTS: Final = 256
"""As many as one frame can bring, so that who looks after each frame misses none."""
_READER_DOWN: Final = "reader_down"


def classified(code: int) -> tuple[str, str]:
    """Category and severity of an XID by the table that ships with gpuwatch."""
    policy = policy_of(code)
    return policy.category, policy.severity


class Hearing:
    """One for the node. ``classify`` gives category and severity of an XID."""

    def __init__(self, classify: Callable[[int], tuple[str, str]] = classified) -> None:
        self._stream = FaultStream()
        self._counters = XidCounters(classify)
        self._events: deque[FaultEvent] = deque(maxlen=KEPT_EVENTS)
        self._event_count = 0
        self._log_lines: Counter[str] = Counter()
        self._sources: dict[str, SourceHealth] = {}
        self._unplaced: deque[FaultEvent] = deque(maxlen=KEPT_EVENTS)

    def learn(self, identity: Identity) -> None:
        """A GPU was identified: events that came before it belong to it from now on."""
        self._stream.learn(identity)
        for event in tuple(self._unplaced):
            placed = self._stream.placed(event)
            if placed.uuid:
                self._unplaced.remove(event)
                self._take(placed)

    def take(self, tick: Tick) -> None:
        """What one frame told."""
        self._log_lines.update(tick.log_lines)
        self._sources.update({health.source: health for health in tick.sources})
        for event in self._stream.merge(tick.events):
            if event.kind == "xid" and not event.uuid:
                self._unplaced.append(event)
            else:
                self._take(event)

    def reader_ended(self) -> None:
        """Nobody listens until the next reader says so."""
        self._sources = {
            source: SourceHealth(source=health.source, up=False, fault=health.fault or _READER_DOWN)
            for source, health in self._sources.items()
        }

    def xids(self, uuid: str) -> tuple[XidCount, ...]:
        """The counters of one GPU."""
        return self._counters.of_gpu(uuid)

    def listening(self) -> Listening:
        """What belongs to the node, as it is now."""
        return Listening(
            sources=tuple(self._sources[source] for source in sorted(self._sources)),
            log_lines=dict(self._log_lines),
            sxid_errors=self._counters.sxids(),
            events=tuple(self._events),
            event_count=self._event_count,
        )

    def _take(self, event: FaultEvent) -> None:
        self._counters.add(event)
        self._events.append(event)
        self._event_count += 1
