"""A stop watch that is in exactly one phase at a time, so that phases add up to the time that passed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gpuwatch.tensorflow.measures import PHASES, Phase


@dataclass(slots=True)
class PhaseClock:
    """Owned by one thread. ``now`` gives seconds and never goes back."""

    now: Callable[[], float]
    seconds: dict[Phase, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    """Up to the last change of phase."""
    running: Phase | None = None
    """The phase of now; ``None`` while it stands."""
    _since: float = 0.0

    def enter(self, phase: Phase | None) -> Phase | None:
        """Leave the phase of now for another, ``None`` to stop; returns the one that was left."""
        return self.enter_at(self.now(), phase)

    def enter_at(self, at: float, phase: Phase | None) -> Phase | None:
        """The same, for who has just looked at the time."""
        left = self.running
        if left is not None:
            self.seconds[left] += at - self._since
        self.running, self._since = phase, at
        return left

    @contextlib.contextmanager
    def within(self, phase: Phase) -> Iterator[None]:
        """A phase inside another, which goes on afterwards. Nothing happens while the clock stands."""
        if self.running is None:
            yield
            return
        outer = self.enter(phase)
        try:
            yield
        finally:
            self.enter(outer)

    def abandon(self) -> None:
        """Stand still, and forget how long the phase of now has lasted: nobody knows when it ended."""
        self.running = None

    def settle(self) -> None:
        """Bring ``seconds`` up to now."""
        self.enter(self.enter(None))

    def move(self, seconds: float, *, source: Phase, target: Phase) -> None:
        """Count time as another phase than it was counted at first."""
        self.seconds[source] -= seconds
        self.seconds[target] += seconds
