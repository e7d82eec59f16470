"""Pieces of the page: tables and values as HTML. Whatever comes from outside is escaped here or by the caller, exactly once."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

NOT_REPORTED = '<span class="na">n/a</span>'


def table(caption: str, heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table that a narrow screen shows as cards: each cell carries its heading. Cells are HTML already."""
    head = "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in heads)
    body = "".join(_row(heads, row) for row in rows)
    return (
        f'<section id="{name_of(caption)}"><h2>{caption}</h2><table role="table"><caption>{caption}</caption>'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead><tbody role="rowgroup">{body}</tbody></table></section>'
    )


def name_of(caption: str) -> str:
    """The id of a part of the page, by which links and the refreshing script find it."""
    return caption.lower().replace(" ", "-")


def _row(heads: tuple[str, ...], row: tuple[str, ...]) -> str:
    # The roles are spelled out because some browsers forget them once the style sheet turns rows into cards.
    cells = "".join(f'<td role="cell" data-head="{name}"><div>{cell}</div></td>' for name, cell in zip(heads[1:], row[1:], strict=True))
    return f'<tr role="row"><th role="rowheader" scope="row">{row[0]}</th>{cells}</tr>'


def text(value: str | None) -> str:
    """Escaped."""
    return NOT_REPORTED if value is None else escape(value)


def number(value: float | None, unit: str) -> str:
    """A whole number and its unit."""
    return NOT_REPORTED if value is None else f"{value:,.0f}{chr(160) if unit else ''}{unit}"


def of(value: str, limit: str) -> str:
    """A value against its limit; both are HTML already."""
    return value if value == limit == NOT_REPORTED else f"{value} of {limit}"


def gibibytes(value: int | None) -> str:
    """Bytes, shown in GiB."""
    return NOT_REPORTED if value is None else f"{value / 2**30:,.1f}{chr(160)}GiB"


def meter(share: float) -> str:
    """A bar for the eye; the number beside it says the same to everybody else."""
    return f'<svg aria-hidden="true"><rect width="{min(max(share, 0.0), 1.0):.1%}" height="100%"/></svg>'


def span(seconds: float) -> str:
    """A length of time in the largest unit that fits; below a second it is not worth a number."""
    if seconds < 1.0:
        return "now"
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:,.0f}{chr(160)}{unit}"
    return f"{seconds:.0f}{chr(160)}s"
