"""A curve of the last five minutes as a small picture, with the same told in words for those who do not see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from gpuwatch.curves import LENGTH, MINUTES, Curve

_WIDTH, _HEIGHT = LENGTH - 1, 240
"""Of the drawing, in its own units: one across is one sample. The style sheet stretches it."""
_EDGE = 10
"""Kept free above and below, so that a line at zero or at the limit is seen whole."""
_FOOT, _RISE = _HEIGHT - _EDGE, _HEIGHT - 2 * _EDGE


def sparkline(name: str, curve: Curve, *, limit: float | None, show: Callable[[float], str]) -> str:
    """An inline SVG; zero is its lower edge, the limit (or without one the highest value) its upper edge.

    Args:
        name: what it is, as plain text of ours.
        curve: at least one value of it is known.
        limit: what the board is allowed; a dashed line. ``None`` or 0: not known.
        show: a value with its unit, as text.
    """
    if limit is None or not math.isfinite(limit) or limit <= 0:
        limit = None
    known = [value for value in curve if value is not None]
    top = max(limit or 0.0, *known, 0.0) or 1.0
    lines = "".join(_lines(curve, top))
    bound = f'<path class="limit" d="M0 {_height(limit, top)}h{_WIDTH}"/>' if limit else ""
    return (
        f'<svg class="curve" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none">'
        f"<title>{_title(name, curve, known, show)}</title><desc>{_description(limit, show)}</desc>"
        f'{bound}<path d="{lines}"/></svg>'
    )


def _title(name: str, curve: Curve, known: list[float], show: Callable[[float], str]) -> str:
    now = curve[-1]
    last = "not reported now" if now is None else f"now {show(now)}"
    lowest, highest = show(min(known)), show(max(known))
    extent = f"always {lowest}" if lowest == highest else f"{lowest} to {highest}"
    return f"{name} in the last {MINUTES} minutes: {extent}, {last}"


def _description(limit: float | None, show: Callable[[float], str]) -> str:
    edge = f"The dashed line is its limit, {show(limit)}." if limit else "The upper edge is the highest value."
    return f"{edge} Where the line is broken, nothing was reported."


def _lines(curve: Curve, top: float) -> Iterator[str]:
    """One line for each run of known values; a lone value is a dot. Of a level stretch only the ends are told."""
    heights = [None if value is None else _height(value, top) for value in curve]
    before: int | None = None
    for place, (height, after) in enumerate(zip(heights, (*heights[1:], None), strict=True)):
        if height is not None and not before == height == after:
            yield f"{'M' if before is None else 'L'}{place} {height}{'h0' if before is after is None else ''}"
        before = height


def _height(value: float, top: float) -> int:
    """Of a value from 0 to ``top``; what is below 0 is drawn as 0."""
    return _FOOT - int(value / top * _RISE + 0.5) if value > 0 else _FOOT
