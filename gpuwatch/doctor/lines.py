"""Lines of the report: aligned, wrapped, and safe for a terminal whatever the values."""

from __future__ import annotations

import textwrap
from typing import Final

WIDTH: Final = 100
"""Columns of a table or a wrapped text. A terminal at 3 a.m. is rarely narrower."""
INDENT: Final = " " * 16
"""Of a line that belongs to the one above it."""
_MOST_CHARACTERS: Final = 2000


def line(name: str, text: str, good: bool | None = None) -> str:
    """A fact with its name, marked as good, bad or neither."""
    mark = {True: "ok  ", False: "BAD ", None: "    "}[good]
    return f"  {mark}{plain(name):<9} {plain(text)}"


def plain(text: str) -> str:
    """The text on one line; what would steer a terminal or turn the writing around is shown as its escape."""
    spaced = " ".join(text.split())
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in spaced)


def wrapped(lead: str, text: str) -> list[str]:
    """``lead``, then the text in lines of at most ``WIDTH`` columns that all begin below its first one; a flood of text is cut."""
    shown = plain(text)
    if len(shown) > _MOST_CHARACTERS:
        shown = shown[: _MOST_CHARACTERS - 1] + "…"
    return textwrap.wrap(shown, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead)) or [lead.rstrip()]


def cut(text: str, width: int) -> str:
    """The text on one line, at most ``width`` columns."""
    shown = plain(text)
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
