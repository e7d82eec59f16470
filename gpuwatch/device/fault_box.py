"""Where the listening threads of the reader leave fault events until the next frame takes them.

Bounded in every direction, whatever the driver or the kernel log pours out: one event a second for each GPU and code, at most
:data:`MAX_EVENTS` a frame; what is left out is counted.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from gpuwatch.device.readings import FaultEvent, SourceHealth

MAX_EVENTS: Final = 256
_MAX_KEYS: Final = 1024
_APART_SECONDS: Final = 1.0
"""The driver writes one fault as several lines; a person counts it once."""
Source = Literal["nvml", "kernel_log"]


@dataclass(frozen=True, slots=True)
class Taken:
    """What came since the previous frame."""

    events: tuple[FaultEvent, ...] = ()
    sources: tuple[SourceHealth, ...] = ()
    log_lines: dict[str, int] = field(default_factory=dict)
    log_sequence: int | None = None


class Damper:
    """Lets one event a second through for each source, GPU and code. Used by one thread at a time."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, int, str], float] = {}

    def passes(self, event: FaultEvent) -> bool:
        """True for an event that is not one of a burst. A clock that was set back starts anew."""
        key = (event.source, event.kind, event.code, event.pci_bus_id or event.uuid)
        last = self._last.get(key)
        if last is not None and 0.0 <= event.at - last < _APART_SECONDS:
            return False
        if len(self._last) >= _MAX_KEYS:
            self._last.clear()
        self._last[key] = event.at
        return True


class FaultBox:
    """Safe to use from several threads. ``ring`` is called, without the lock, when there is something to take."""

    def __init__(self, ring: Callable[[], None] = lambda: None) -> None:
        self._ring = ring
        self._lock = threading.Lock()
        self._damper = Damper()
        self._events: list[FaultEvent] = []
        self._lines: Counter[str] = Counter()
        self._sequence: int | None = None
        self._told: dict[Source, SourceHealth] = {}
        self._changed: set[Source] = set()

    def add(self, event: FaultEvent) -> bool:
        """Leave one event; false when it was left out as one of a burst."""
        with self._lock:
            taken = self._put(event)
        if taken:
            self._ring()
        return taken

    def add_log(self, events: list[FaultEvent], lines: Counter[str], sequence: int | None) -> None:
        """Leave what a stretch of the kernel log said, together with its last record's number: a frame has both or neither."""
        with self._lock:
            taken = [event for event in events if self._put(event)]
            self._lines.update(lines)
            if sequence is not None:
                self._sequence = sequence
        if taken:
            self._ring()

    def set_source(self, source: Source, fault: str) -> None:
        """Say that a source listens (empty ``fault``), or why it does not."""
        health = SourceHealth(source=source, up=not fault, fault=fault)
        with self._lock:
            if self._told.get(source) == health:
                return
            self._told[source] = health
            self._changed.add(source)
        self._ring()

    def take(self) -> Taken:
        """Everything since the previous call."""
        with self._lock:
            taken = Taken(
                events=tuple(self._events),
                sources=tuple(self._told[source] for source in sorted(self._changed)),
                log_lines=dict(self._lines),
                log_sequence=self._sequence,
            )
            self._events.clear()
            self._lines.clear()
            self._changed.clear()
            self._sequence = None
        return taken

    def _put(self, event: FaultEvent) -> bool:
        if not self._damper.passes(event):
            return False
        if len(self._events) >= MAX_EVENTS:
            self._lines["dropped"] += 1
            return False
        self._events.append(event)
        return True
