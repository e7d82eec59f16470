"""What happened within a time, in little memory: how much a counter grew, and the best value of what comes and goes.

A window is kept as a few buckets of time, so that seven days cost no more than three minutes. Times are CLOCK_MONOTONIC in seconds.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_BUCKETS: Final = 20


class Growth:
    """How much a counter grew within the window. A counter that fell was reset: its new value is what it has grown since.

    The first value is where counting begins, so that what was counted before the agent started raises no alarm.
    """

    __slots__ = ("_buckets", "_last", "_last_at", "_lost_gaps", "_width", "seconds")

    def __init__(self, seconds: float, *, lost_gaps: bool = False) -> None:
        """``lost_gaps``: growth over a pause longer than the window is not counted, since nobody knows when it was."""
        self.seconds = seconds
        self._width = seconds / _BUCKETS
        self._lost_gaps = lost_gaps
        self._buckets: deque[tuple[int, float]] = deque(maxlen=_BUCKETS + 2)
        self._last: float | None = None
        self._last_at = 0.0

    def update(self, value: float | None, now: float) -> None:
        """Take the counter's present value; ``None`` changes nothing."""
        if value is None:
            return
        if self._last is not None and not (self._lost_gaps and now - self._last_at > self.seconds):
            self.add(value - self._last if value >= self._last else value, now)
        self._last, self._last_at = value, now

    def add(self, amount: float, now: float) -> None:
        """Count what was not read from the counter."""
        if amount <= 0.0:
            return
        number = int(now // self._width)
        if self._buckets and self._buckets[-1][0] == number:
            self._buckets[-1] = (number, self._buckets[-1][1] + amount)
        else:
            self._buckets.append((number, amount))

    def amount(self, now: float) -> float | None:
        """Growth within the window; ``None`` before the counter was read once."""
        if self._last is None and not self._buckets:
            return None
        first = int((now - self.seconds) // self._width)
        return sum(amount for number, amount in self._buckets if number > first)

    def rate(self, now: float) -> float | None:
        """Growth a second, over the whole window even where less of it was seen: a start must not make a rate of one moment."""
        amount = self.amount(now)
        return None if amount is None else amount / self.seconds


class Best:
    """The largest value within the window; ``None`` until the window is full, so that what lasts can be told from what passes."""

    __slots__ = ("_buckets", "_last_at", "_seconds", "_since", "_width")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._width = seconds / _BUCKETS
        self._buckets: deque[tuple[int, float]] = deque(maxlen=_BUCKETS + 2)
        self._since = 0.0
        self._last_at: float | None = None

    def update(self, value: float | None, now: float) -> None:
        """Take the present value; ``None`` changes nothing. After a pause longer than the window it begins anew."""
        if value is None:
            return
        if self._last_at is None or now - self._last_at > self._seconds:
            self._buckets.clear()
            self._since = now
        self._last_at = now
        number = int(now // self._width)
        if self._buckets and self._buckets[-1][0] == number:
            self._buckets[-1] = (number, max(value, self._buckets[-1][1]))
        else:
            self._buckets.append((number, value))

    def value(self, now: float) -> float | None:
        """The largest value of the last ``seconds``."""
        if self._last_at is None or now - self._since < self._seconds or now - self._last_at > self._seconds:
            return None
        first = int((now - self._seconds) // self._width)
        return max((value for number, value in self._buckets if number > first), default=None)


class Growths:
    """One :class:`Growth` for each part of a counter: a part that is not reported once must not look like a reset of the sum."""

    __slots__ = ("_lost_gaps", "_parts", "seconds")

    def __init__(self, seconds: float, *, lost_gaps: bool = False) -> None:
        self.seconds = seconds
        self._lost_gaps = lost_gaps
        self._parts: dict[str, Growth] = {}

    def update(self, part: str, value: float | None, now: float) -> None:
        """Take the present value of one part."""
        self._part(part).update(value, now)

    def add(self, part: str, amount: float, now: float) -> None:
        """Count what was not read from a counter."""
        self._part(part).add(amount, now)

    def amount(self, now: float) -> float | None:
        """Growth of all parts within the window; ``None`` before any was read."""
        amounts = [amount for part in self._parts.values() if (amount := part.amount(now)) is not None]
        return sum(amounts) if amounts else None

    def rate(self, now: float) -> float | None:
        """Growth a second; see :meth:`Growth.rate`."""
        amount = self.amount(now)
        return None if amount is None else amount / self.seconds

    def _part(self, part: str) -> Growth:
        found = self._parts.get(part)
        if found is None:
            found = self._parts[part] = Growth(self.seconds, lost_gaps=self._lost_gaps)
        return found
