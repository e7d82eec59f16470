"""Panels as HTML with inline SVG: enough to see what a board says, not an imitation of Grafana."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from values import marked, stepped, worded

COLOURS: Final = {
    "green": "#2f9e58", "orange": "#e8912d", "red": "#d6453d", "blue": "#4a90d9", "purple": "#9467bd", "super-light-yellow": "#e6c84c",
    "text": "#555e6b",
}  # fmt: skip
_PALETTE: Final = (
    "#4a90d9", "#e0a030", "#5aa469", "#9467bd", "#d06a8c", "#3fb0ac", "#8c6d4f", "#7f8fa6", "#c9743c", "#6b7fd7", "#a3b840", "#b05a5a",
)  # fmt: skip
_AXIS, _BOTTOM, _LINE = 52, 18, 15
_TICKS: Final = 4


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a graph."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """Size of a panel's inside in pixels, and the time that it shows."""

    width: int
    height: int
    start: float
    end: float


def stat(panel: Mapping[str, Any], values: Sequence[float], now: float) -> str:
    """One number, on its colour where it asks for an action."""
    defaults = panel["fieldConfig"]["defaults"]
    if not values:
        return f'<div class="none">{escape(defaults["noValue"])}</div>'
    mark = marked(values[0], defaults.get("mappings", ()))
    colour = mark[1] if mark else stepped(values[0], defaults["thresholds"]["steps"])
    text = mark[0] if mark else worded(values[0], defaults["unit"], defaults.get("decimals"), now=now)
    filled = panel["options"]["colorMode"] == "background" and colour != "text"
    look = f"background:{COLOURS[colour]};color:#fff" if filled else "color:#1f2430"
    return f'<div class="stat" style="{look}">{escape(text)}</div>'


def bars(panel: Mapping[str, Any], values: Sequence[tuple[str, float]], now: float) -> str:
    """One bar for each value."""
    defaults = panel["fieldConfig"]["defaults"]
    if not values:
        return f'<div class="none">{escape(defaults["noValue"])}</div>'
    most = max(1e-9, *(value for _, value in values))
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="bar"><div style="width:{value / most * 100:.0f}%;'
        f'background:{COLOURS[stepped(value, defaults["thresholds"]["steps"])]}"></div></td>'
        f"<td>{escape(worded(value, defaults['unit'], defaults.get('decimals'), now=now))}</td></tr>"
        for name, value in values
    )
    return f'<table class="bars">{rows}</table>'


def table(panel: Mapping[str, Any], rows: Sequence[Mapping[str, str | float]], height: int, now: float) -> str:
    """As many rows as fit."""
    if not rows:
        return f'<div class="none">{escape(panel["fieldConfig"]["defaults"]["noValue"])}</div>'
    looks = {
        one["matcher"]["options"]: {part["id"]: part["value"] for part in one["properties"]} for one in panel["fieldConfig"]["overrides"]
    }
    fit = max((height - 26) // 21, 1)
    head = "".join(f"<th>{escape(title)}</th>" for title in looks)
    body = "".join(f"<tr>{''.join(_cell(row.get(title), looks[title], now) for title in looks)}</tr>" for row in rows[:fit])
    more = f'<div class="more">{len(rows) - fit} more</div>' if len(rows) > fit else ""
    return f'<table class="rows"><tr>{head}</tr>{body}</table>{more}'


def _cell(value: float | str | None, looks: Mapping[str, Any], now: float) -> str:
    mark = marked(value, looks.get("mappings", ()))
    colour, side = "", "" if isinstance(value, str) else ' class="number"'
    if mark:
        text, colour = mark
    elif value is None:
        text = ""
    elif isinstance(value, str):
        text = value
    else:
        text = worded(value, looks.get("unit", "short"), looks.get("decimals"), now=now)
        colour = stepped(value, looks["thresholds"]["steps"]) if "thresholds" in looks else ""
    style = f' style="color:{COLOURS[colour]};font-weight:600"' if colour and colour != "text" else ""
    inside = f"<a>{escape(text)}</a>" if "links" in looks and text else escape(text)
    return f"<td{side}{style}>{inside}</td>"


def graph(panel: Mapping[str, Any], series: Sequence[Series], frame: Frame, now: float) -> str:
    """Lines or stacked areas, with axes and a legend."""
    defaults = panel["fieldConfig"]["defaults"]
    if not series:
        return f'<div class="none">{escape(defaults["noValue"])}</div>'
    stacked = defaults["custom"].get("stacking", {}).get("mode") == "normal"
    fixed = {one["matcher"]["options"]: one["properties"][0]["value"].get("fixedColor") for one in panel["fieldConfig"]["overrides"]}
    colours = [COLOURS.get(fixed.get(one.name, ""), _PALETTE[place % len(_PALETTE)]) for place, one in enumerate(series)]
    right = panel["options"]["legend"]["placement"] == "right"
    legend = min(260, frame.width // 3) if right else 0
    shown = (frame.height - 4) // _LINE if right else 2
    width, height = frame.width - legend - 8, frame.height - (0 if right else _LINE * 2 + 4)
    layers = _layers(series) if stacked else [one.points for one in series]
    top = defaults.get("max") or _rounded(max(value for points in layers for _, value in points))
    low = min(0.0, *(value for points in layers for _, value in points))
    plot = _Plot(width, height, frame, low, top)
    lines = [plot.axes(defaults, now)]
    order = reversed(range(len(series))) if stacked else range(len(series))
    lines += [plot.line(layers[place], colours[place], filled=stacked) for place in order]
    lines += (
        [plot.level(step["value"], COLOURS[step["color"]]) for step in defaults["thresholds"]["steps"] if step["value"] is not None]
        if defaults["custom"].get("thresholdsStyle", {}).get("mode") == "dashed"
        else []
    )
    names = "".join(
        f'<div><i style="background:{colour}"></i>{escape(one.name)}</div>'
        for one, colour in list(zip(series, colours, strict=True))[: shown * (1 if right else 3)]
    )
    side = f'style="width:{legend}px;height:{frame.height}px"' if right else f'style="height:{_LINE * 2}px"'
    return (
        f'<div class="{"beside" if right else "below"}"><svg width="{width}" height="{height}">{"".join(lines)}</svg>'
        f'<div class="legend" {side}>{names}</div></div>'
    )


def _layers(series: Sequence[Series]) -> list[tuple[tuple[float, float], ...]]:
    """Each series on top of those before it."""
    below: dict[float, float] = {}
    layers = []
    for one in series:
        for at, value in one.points:
            below[at] = below.get(at, 0.0) + value
        layers.append(tuple((at, below[at]) for at, _ in one.points))
    return layers


def _rounded(value: float) -> float:
    """A little above, with one digit or two."""
    if value <= 0:
        return 1.0
    size = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 10.0 ** -len(f"{value:.12f}"[2:].rstrip("0")[:1] or "0")
    return next(step * size for step in (0.1, 0.2, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12) if step * size >= value)


@dataclass(frozen=True, slots=True)
class _Plot:
    width: int
    height: int
    frame: Frame
    low: float
    top: float

    def x(self, at: float) -> float:
        return _AXIS + (at - self.frame.start) / (self.frame.end - self.frame.start) * (self.width - _AXIS - 4)

    def y(self, value: float) -> float:
        return 4 + (1 - (min(value, self.top) - self.low) / (self.top - self.low)) * (self.height - _BOTTOM - 6)

    def axes(self, defaults: Mapping[str, Any], now: float) -> str:
        """Lines of the grid with their values, and minutes before now."""
        parts = []
        for tick in range(_TICKS + 1):
            value = self.low + (self.top - self.low) * tick / _TICKS
            whole = defaults["unit"] == "percentunit" and self.top > 0.1  # noqa: PLR2004
            y, text = self.y(value), worded(value, defaults["unit"], 0 if whole else None, now=now)
            parts.append(f'<line class="grid" x1="{_AXIS}" x2="{self.width - 4}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{_AXIS - 5}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>')
        return "".join(parts) + hours(self.frame, self.x, self.height)

    def line(self, points: Sequence[tuple[float, float]], colour: str, *, filled: bool) -> str:
        """Broken where nothing was known."""
        runs: list[list[tuple[float, float]]] = []
        for point in points:
            if not runs or point[0] - runs[-1][-1][0] > 150:  # noqa: PLR2004 (two steps and a half)
                runs.append([])
            runs[-1].append(point)
        drawn = []
        for run in runs:
            path = " ".join(f"{self.x(at):.1f},{self.y(value):.1f}" for at, value in run)
            if filled:
                base = f"{self.x(run[-1][0]):.1f},{self.y(0):.1f} {self.x(run[0][0]):.1f},{self.y(0):.1f}"
                drawn.append(f'<polygon points="{path} {base}" fill="{colour}" stroke="#fff" stroke-width=".5"/>')
            else:
                drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        return "".join(drawn)

    def level(self, value: float, colour: str) -> str:
        """A threshold."""
        y = self.y(value)
        return f'<line x1="{_AXIS}" x2="{self.width - 4}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" stroke-dasharray="6 4"/>'


def hours(frame: Frame, x: Callable[[float], float], height: int) -> str:
    """Marks of time along the bottom."""
    parts = []
    for half in range(int((frame.end - frame.start) / 1800) + 1):
        at = frame.end - half * 1800
        name = "now" if not half else f"-{half / 2:g} h"
        anchor = "end" if not half else "middle"
        parts.append(f'<text x="{x(at):.0f}" y="{height - 3}" text-anchor="{anchor}">{name}</text>')
    return "".join(parts)


def timeline(panel: Mapping[str, Any], series: Sequence[Series], frame: Frame, *, shaded: bool) -> str:
    """A row for each series: states in their colours, or shades of how much."""
    defaults = panel["fieldConfig"]["defaults"]
    if not series:
        return f'<div class="none">{escape(defaults["noValue"])}</div>'
    room = (frame.height - _BOTTOM) / len(series)
    left = min(max(len(one.name) for one in series) * 6 + 12, frame.width // 3)
    step = 60.0

    def x(at: float) -> float:
        return left + (at - frame.start) / (frame.end - frame.start) * (frame.width - left - 6)

    parts = []
    for row, one in enumerate(series):
        y, height = row * room, min(room * 0.84, 26)
        parts.append(f'<text x="{left - 6}" y="{y + height / 2 + 4:.1f}" text-anchor="end">{escape(one.name)}</text>')
        for begin, end, value in _runs(one.points, step, by=600.0 if shaded else 0.0):
            mark = marked(value, defaults.get("mappings", ()))
            colour = _shade(value) if shaded else COLOURS[mark[1] if mark else stepped(value, defaults["thresholds"]["steps"])]
            first = max(begin, frame.start)
            width = max(x(min(end, frame.end)) - x(first) - (1 if shaded else 0), 1)
            parts.append(f'<rect x="{x(first):.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>')
            if mark and width > len(mark[0]) * 8:
                parts.append(f'<text class="state" x="{x(first) + 6:.1f}" y="{y + height / 2 + 4:.1f}">{escape(mark[0])}</text>')
    return f'<svg width="{frame.width}" height="{frame.height}">{"".join(parts)}{hours(frame, x, frame.height)}</svg>'


def _runs(points: Sequence[tuple[float, float]], step: float, by: float) -> list[tuple[float, float, float]]:
    """Times of equal values; or means of pieces of time."""
    runs: list[tuple[float, float, float]] = []
    if by:
        pieces: dict[float, list[float]] = {}
        for at, value in points:
            pieces.setdefault(at // by * by, []).append(value)
        return [(at, at + by, sum(values) / len(values)) for at, values in pieces.items()]
    for at, value in points:
        if runs and runs[-1][2] == value and at - runs[-1][1] < step / 2:
            runs[-1] = (runs[-1][0], at + step, value)
        else:
            runs.append((at, at + step, value))
    return runs


def _shade(share: float) -> str:
    """From pale to dark."""
    pale, dark = (232, 240, 250), (38, 70, 140)
    return "#" + "".join(f"{round(low + (high - low) * min(max(share, 0), 1)):02x}" for low, high in zip(pale, dark, strict=True))
