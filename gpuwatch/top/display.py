"""What ``gpuwatch top`` prints: one table, one JSON document, or a table that lives until somebody presses q."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gpuwatch.top.keyboard import Keyboard, keyboard
from gpuwatch.top.order import SORTS, ordered
from gpuwatch.top.rows import NodeView, Row
from gpuwatch.top.screen import Look, node_line, note, table
from gpuwatch.top.watching import Watching

_LOOK_SECONDS: Final = 0.25
"""Between two looks for news; a key is heard at once."""
_FIXED_LINES: Final = 3
"""Title, headings and the last line."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What to show."""

    sort: str = ""
    job: str = ""


def print_table(views: list[NodeView], wish: Wish, console: Console) -> None:
    """Everything, once, however long."""
    look = _look(console)
    rows = ordered(views, sort=wish.sort, job=wish.job)
    lines = [node_line(view, look) for view in views]
    console.print(Group(*lines, *_body(rows, look, wish, several=len(views) > 1)), crop=False, no_wrap=True)


def run(watching: Watching, wish: Wish, console: Console) -> None:
    """Show the table until q or Ctrl-C."""
    watching.start()
    try:
        with (
            keyboard(sys.stdin.fileno()) as keys,
            Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live,
        ):
            Session(watching, wish, console).run(keys, lambda lines: live.update(Group(*lines), refresh=True))
    except KeyboardInterrupt:
        pass
    finally:
        watching.stop()


class Session:
    """The live table: what is shown of it, and what keys change."""

    def __init__(self, watching: Watching, wish: Wish, console: Console, wall: Callable[[], float] = time.time) -> None:
        self._watching = watching
        self._wish = wish
        self._console = console
        self._wall = wall
        self._first = 0
        self._page = 1

    def run(self, keys: Keyboard, draw: Callable[[list[Text]], None]) -> None:
        """Until the key that quits. Draws when something is different."""
        shown: list[Text] = []
        while True:
            lines = self.lines(self._watching.views())
            if lines != shown:
                shown = lines
                draw(lines)
            key = keys.wait(_LOOK_SECONDS)
            if key == "quit":
                return
            self.press(key)

    def press(self, key: str) -> None:
        """Scroll, or sort by the next column."""
        steps = {"down": 1, "up": -1, "page down": self._page, "page up": -self._page}
        self._first = max(0, self._first + steps.get(key, 0))
        if key == "sort":
            sorts = ("", *SORTS)
            self._wish = Wish(sort=sorts[(sorts.index(self._wish.sort) + 1) % len(sorts)], job=self._wish.job)

    def lines(self, views: list[NodeView]) -> list[Text]:
        """The whole screen: no more lines than the terminal has."""
        look, height = _look(self._console), self._console.height
        nodes = _node_lines(views, look, most=max(1, (height - _FIXED_LINES) // 3))
        rows = ordered(views, sort=self._wish.sort, job=self._wish.job)
        self._page = max(1, height - _FIXED_LINES - len(nodes))
        self._first = min(self._first, max(0, len(rows) - self._page))
        seen = rows[self._first : self._first + self._page]
        body = _body(seen, look, self._wish, several=len(views) > 1) if views else [note("asking …", look)]
        return [self._title(look), *nodes, *body, *self._rest(rows, seen, look)][:height]

    def _title(self, look: Look) -> Text:
        clock = f"{datetime.fromtimestamp(self._wall(), UTC).astimezone():%H:%M:%S}"
        wishes = (f"by {self._wish.sort}" if self._wish.sort else "", f"job {self._wish.job!r}" if self._wish.job else "")
        return note(" | ".join(("gpuwatch top", clock, *filter(None, wishes), "q quits, s sorts")), look)

    def _rest(self, rows: list[Row], seen: list[Row], look: Look) -> list[Text]:
        if len(seen) == len(rows):
            return []
        return [note(f"rows {self._first + 1} to {self._first + len(seen)} of {len(rows)}: arrows, space and page keys move", look)]


def json_of(views: list[NodeView], wish: Wish) -> bytes:
    """One document for scripts: a node each with its rows, in base units; the rows sorted and filtered as the table's."""
    documents = [msgspec.structs.replace(view, rows=tuple(ordered([view], sort=wish.sort, job=wish.job))) for view in views]
    return msgspec.json.format(msgspec.json.encode(documents), indent=2) + b"\n"


def _body(rows: list[Row], look: Look, wish: Wish, *, several: bool) -> list[Text]:
    if not rows and wish.job:
        return [note(f"no GPU is held by a job like {wish.job!r}", look)]
    return table(rows, look, several=several) if rows else []


def _node_lines(views: list[NodeView], look: Look, *, most: int) -> list[Text]:
    """One a node, those in trouble first where not all of them fit."""
    if len(views) <= most:
        return [node_line(view, look) for view in views]
    trouble = sorted(views, key=lambda view: (not view.problem, view.up))
    rest = trouble[most - 1 :]
    silent = sum(bool(view.problem) for view in rest)
    told = f"and {len(rest)} more nodes" + (f", {silent} of which do not answer" if silent else "")
    return [*(node_line(view, look) for view in trouble[: most - 1]), note(told, look, "bold red" if silent else "dim")]


def _look(console: Console) -> Look:
    return Look(width=console.width, ascii_only=console.options.ascii_only)
