"""Lengths of time as people write them: a number and its unit, never a bare number."""

from __future__ import annotations

import re

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_WHOLE = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+")
_MAX_LENGTH = 40
_MILLISECONDS_IN_SECOND = 1000


def parse_duration(text: str) -> float:
    """Return ``text`` in seconds.

    Args:
        text: One or more numbers with a unit of ``ms``, ``s``, ``m`` or ``h``: ``500ms``, ``2m``, ``1m30s``.

    Raises:
        ValueError: The text is not a duration with a unit. A bare number is refused on purpose: nobody can tell whether 3 means seconds.
    """
    if len(text) > _MAX_LENGTH or not _WHOLE.fullmatch(text):
        raise ValueError(f"{text[:_MAX_LENGTH]!r} is not a duration with a unit, such as 500ms, 1s, 2m or 1h")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text))


def format_duration(seconds: float) -> str:
    """Return ``seconds`` (0 or more) in the largest unit that leaves a whole number, to the millisecond."""
    milliseconds = round(seconds * _MILLISECONDS_IN_SECOND)
    for unit in ("h", "m", "s"):
        size = round(_UNIT_SECONDS[unit] * _MILLISECONDS_IN_SECOND)
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"
