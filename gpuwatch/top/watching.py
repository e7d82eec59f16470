"""Asks every source again and again, each from a thread of its own, so that one that hangs holds nobody up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gpuwatch.top.agents import NoAnswerError, Source
from gpuwatch.top.rows import NodeView, view_of

_SPARE_SECONDS: Final = 2.0
"""A source that takes longer than its own deadline by this much hangs where no deadline reaches, as in the look-up of its name."""


def ask(source: Source) -> NodeView:
    """Ask once; whatever goes wrong is part of the answer."""
    try:
        return view_of(source.name, source.fetch())
    except NoAnswerError as error:
        return NodeView(source=source.name, problem=str(error))


@dataclass(slots=True)
class _Seat:
    """The newest of one source. Written by its thread, one assignment at a time."""

    source: Source
    asked_at: float
    view: NodeView | None = None
    waiting: bool = True
    thread: threading.Thread | None = field(default=None, repr=False)


class Watching:
    """``start``, then ``views`` as often as wished. ``monotonic`` is in seconds."""

    def __init__(
        self, sources: list[Source], *, interval_seconds: float, timeout_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval = interval_seconds
        self._patience = timeout_seconds + _SPARE_SECONDS
        self._monotonic = monotonic
        self._stopped = threading.Event()
        self._seats = [_Seat(source, monotonic()) for source in sources]

    def start(self, *, once: bool = False) -> None:
        """Begin to ask; ``once``: each source only once."""
        for seat in self._seats:
            seat.thread = threading.Thread(target=self._ask, args=(seat, once), name=f"ask {seat.source.name}", daemon=True)
            seat.thread.start()

    def stop(self) -> None:
        """Ask no more. A thread that hangs is left to the end of the process."""
        self._stopped.set()

    def wait(self) -> list[NodeView]:
        """What all answered, once every one of them has, or has had the time to."""
        give_up_at = self._monotonic() + self._patience
        for seat in self._seats:
            if seat.thread is not None:
                seat.thread.join(max(0.0, give_up_at - self._monotonic()))
        return [seat.view or self._silent(seat, self._patience) for seat in self._seats]

    def views(self) -> list[NodeView]:
        """The newest of each source that has answered; one that hangs is shown so."""
        now = self._monotonic()
        found = []
        for seat in self._seats:
            waited = now - seat.asked_at
            if seat.waiting and waited > self._patience:
                found.append(self._silent(seat, waited))
            elif seat.view is not None:
                found.append(seat.view)
        return found

    def _ask(self, seat: _Seat, once: bool) -> None:
        while not self._stopped.is_set():
            seat.asked_at, seat.waiting = self._monotonic(), True
            seat.view = ask(seat.source)
            seat.waiting = False
            if once or self._stopped.wait(self._interval):
                return

    def _silent(self, seat: _Seat, waited: float) -> NodeView:
        return NodeView(source=seat.source.name, problem=f"no answer for {waited:.0f} s")
