"""The table as text with colours: every line is as wide as the terminal at most, whatever the values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from gpuwatch.doctor.lines import plain
from gpuwatch.top.rows import NodeView, Row

NOT_REPORTED: Final = "n/a"
_STYLES: Final = {"failed": "bold red", "down": "bold red", "unknown": "magenta", "degraded": "yellow", "up": "", "ok": "green"}
_NOISE: Final = re.compile(r"^(nvidia|geforce|tesla|quadro|graphics|device|pcie|sxm\d*|hbm\w*|nvl|generation)$", re.IGNORECASE)
_PARTS: Final = " ▏▎▍▌▋▊▉"
_HUGE: Final = 1e5
_EIGHTHS: Final = len(_PARTS)
_PERCENT: Final = 4
"""Columns of a share in percent."""
_NARROW: Final = 100
"""Below it the bar is short, and with several nodes there is none."""


@dataclass(frozen=True, slots=True)
class Look:
    """What fits on the terminal. ``ascii_only``: it shows nothing else."""

    width: int
    ascii_only: bool = False

    def shown(self, text: str) -> str:
        """Safe for a terminal."""
        safe = plain(text)
        return safe.encode("ascii", "backslashreplace").decode("ascii") if self.ascii_only else safe

    def cut(self, text: str, width: int) -> str:
        """In exactly so many columns, some of which a letter may need two of."""
        safe = self.shown(text)
        if cell_len(safe) <= width:
            return set_cell_size(safe, width)
        more = "~" if self.ascii_only else "…"
        return set_cell_size(safe, width - 1) + more if width > 0 else ""

    def tail(self, text: str, width: int) -> str:
        """At most so many columns, of which the last ones are kept: names of nodes differ at their end."""
        safe = self.shown(text)
        if cell_len(safe) <= width:
            return safe
        while cell_len(safe) > width - 1:
            safe = safe[1:]
        return ("~" if self.ascii_only else "…") + safe


def table(rows: list[Row], look: Look, *, several: bool) -> list[Text]:
    """Headings and one line a row. ``several``: of more than one node, so each row names its own."""
    columns = _columns(rows, look, several=several)
    heads = Text(" ".join(f"{name:<{width}.{width}}" for name, width in columns.items()), style="bold")
    return [_fitted(line, look) for line in (heads, *(_line(row, columns, look) for row in rows))]


def node_line(view: NodeView, look: Look) -> Text:
    """One node in a line: what it has and how that does, or why it does not answer."""
    if view.problem:
        return _fitted(
            Text.assemble((look.shown(view.source), "bold"), (f" does not answer: {look.shown(view.problem)}", "bold red")), look
        )
    parts: list[tuple[str, str]] = [(look.shown(view.node) or "unnamed node", "bold")]
    if view.simulated:
        parts.append((" SIMULATED", "bold yellow"))
    parts.append((f" {look.shown(view.summary)}", ""))
    if not view.up:
        parts.append((f"; not reading GPUs: {look.shown(view.detail)}", "bold red"))
    elif view.driver_version:
        parts.append((f", driver {look.shown(view.driver_version)}", "dim"))
    return _fitted(Text.assemble(*parts), look)


def note(text: str, look: Look, style: str = "dim") -> Text:
    """A line of ours."""
    return _fitted(Text(look.shown(text), style=style), look)


def short_model(model: str) -> str:
    """What tells boards apart: ``NVIDIA A100-SXM4-80GB`` is ``A100 80GB``."""
    words = [word for word in re.split(r"[\s-]+", model) if word and not _NOISE.match(word)]
    return " ".join(words) or model


def short_node(name: str) -> str:
    """Without its domain; an address is none."""
    first = name.partition(".")[0]
    return first if any(letter.isalpha() for letter in first) else name


def _columns(rows: list[Row], look: Look, *, several: bool) -> dict[str, int]:
    """Widths by heading; what is left over goes to the job."""
    narrow = look.width < _NARROW
    longest = max((cell_len(look.shown(short_node(row.node))) for row in rows), default=0)
    nodes = {"NODE": min(max(longest, 4), 12 if narrow else 32)} if several else {}
    use = (_PERCENT if several else 11) if narrow else 17
    columns = {"GPU": 4, **nodes, "MODEL": 9 if narrow else 16, "USE": use, "MEMORY": 8, "POWER": 8, "HEAT": 7, "STATE": 8}
    left = look.width - sum(columns.values()) - len(columns)
    return columns | {"JOB": max(left, 3)}


def _line(row: Row, columns: dict[str, int], look: Look) -> Text:
    line = Text()
    for name, (content, style) in zip(columns, _cells(row, columns, look), strict=True):
        # The bar has its width already, and its blanks have a meaning.
        line.append(set_cell_size(content, columns[name]) if name == "USE" else look.cut(content, columns[name]), style).append(" ")
    line.rstrip()
    return line


def _cells(row: Row, columns: dict[str, int], look: Look) -> Iterator[tuple[str, str]]:
    """Text and style, in the order of the columns."""
    state = _STYLES.get(row.state, "magenta")
    yield row.gpu, "bold"
    if "NODE" in columns:
        yield look.tail(short_node(row.node), columns["NODE"]), ""
    yield short_model(row.model) or "unknown", ""
    yield _bar(row.utilization_ratio, columns["USE"], look), "" if row.utilization_ratio is None else "cyan"
    yield _pair(_gibi(row.memory_used_bytes), _gibi(row.memory_total_bytes), "G"), ""
    yield _pair(row.power_watts, row.power_limit_watts, "W"), ""
    hot = row.temperature_celsius is not None and row.temperature_celsius >= (row.temperature_limit_celsius or float("inf"))
    yield _pair(row.temperature_celsius, row.temperature_limit_celsius, "C" if look.ascii_only else "°C"), "bold red" if hot else ""
    yield row.state, state
    yield _job(row)


def _job(row: Row) -> tuple[str, str]:
    """Its holders; for a GPU in trouble that nobody holds, what is wrong."""
    if row.instances:
        return f"{row.instances_held}/{row.instances} MIG held", "dim"
    if row.jobs:
        more = f" +{len(row.jobs) - 1}" if len(row.jobs) > 1 else ""
        return row.jobs[0].title + more, ""
    return (row.fault, "red") if row.fault else ("-", "dim")


def _bar(share: float | None, width: int, look: Look) -> str:
    """The number, with a bar that says the same where there is room."""
    number = f"{NOT_REPORTED if share is None else _figure(share * 100) + '%':>{_PERCENT}}"
    room = width - _PERCENT - 1
    if room < 1:
        return number
    full, part = divmod(round(min(max(share or 0.0, 0.0), 1.0) * room * _EIGHTHS), _EIGHTHS)
    bar = "#" * (full + (part >= _EIGHTHS // 2)) if look.ascii_only else "█" * full + _PARTS[part].strip()
    return f"{bar:<{room}} {number}"


def _pair(value: float | None, limit: float | None, unit: str) -> str:
    if value is None:
        return NOT_REPORTED
    return f"{_figure(value)}/{_figure(limit)}{unit}" if limit is not None else f"{_figure(value)}{unit}"


def _gibi(count: float | None) -> float | None:
    return None if count is None else count / 2**30


def _figure(value: float) -> str:
    return f"{value:.0e}" if abs(value) >= _HUGE else f"{value:.0f}"


def _fitted(line: Text, look: Look) -> Text:
    """No line is longer than the terminal, so none is ever wrapped."""
    line.no_wrap = True
    line.truncate(look.width, overflow="crop" if look.ascii_only else "ellipsis")
    return line
