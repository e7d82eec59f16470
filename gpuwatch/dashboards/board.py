"""The forms of a board: what it asks and shows. How that looks is the matter of the house style (:mod:`gpuwatch.dashboards.style`)."""

from __future__ import annotations

from typing import Literal

from gpuwatch.device.readings import Struct
from gpuwatch.rules.alert import Board as BoardName

Kind = Literal["stat", "graph", "table", "timeline", "grid", "bars", "text"]
"""``timeline``: states over time, a row each. ``grid``: numbers over time as coloured cells, a row each. ``bars``: one bar a series."""
Colour = Literal["green", "orange", "red", "blue", "purple", "yellow", "text"]
"""Green, orange and red are for states that ask for an action; the others tell families of series apart."""
UNKNOWN = -1.0
"""Stands in a column of a table for what is not reported, which is no zero. Only where values cannot be negative."""


class Step(Struct, frozen=True, kw_only=True):
    """The colour of values from ``value`` on; ``None``: of all below the first."""

    value: float | None
    colour: Colour


class Mark(Struct, frozen=True, kw_only=True):
    """A value that is shown as a word."""

    value: str
    text: str
    colour: Colour = "text"


class Link(Struct, frozen=True, kw_only=True):
    """A way from a row, a cell or a point to another board."""

    title: str
    board: BoardName
    carries: tuple[tuple[str, str], ...]
    """(variable of that board, column or label of the row that has its value)."""


class Query(Struct, frozen=True, kw_only=True):
    """What a panel asks Prometheus."""

    expression: str
    legend: str = ""
    """With ``{{label}}`` in it."""
    column: str = ""
    """In a table: the title of the column of values. Empty hides the values, when the labels say all."""
    colour: Colour | None = None
    """In a graph, where a series means one thing."""


class Column(Struct, frozen=True, kw_only=True):
    """How a column of a table looks: a label, or the values of a query."""

    title: str
    label: str = ""
    """The label it shows; empty for the values of the query with that title."""
    unit: str = ""
    decimals: int | None = None
    steps: tuple[Step, ...] = ()
    marks: tuple[Mark, ...] = ()
    width: int | None = None
    links: tuple[Link, ...] = ()


class Panel(Struct, frozen=True, kw_only=True):
    """One panel."""

    kind: Kind
    title: str
    description: str
    """What it shows, from what, how to read it, and what not to conclude."""
    queries: tuple[Query, ...] = ()
    width: int
    height: int = 8
    unit: str = "short"
    decimals: int | None = None
    minimum: float | None = 0.0
    maximum: float | None = None
    steps: tuple[Step, ...] = ()
    """In a graph they are drawn as dashed lines."""
    marks: tuple[Mark, ...] = ()
    empty: str = ""
    """What stands there when nothing was found: a fact, never a comfort."""
    stacked: bool = False
    columns: tuple[Column, ...] = ()
    sort: str = ""
    """Title of the column that a table is sorted by, with ``-`` before it for the greatest first."""
    links: tuple[Link, ...] = ()
    content: str = ""
    """Of a text, in Markdown."""
    exempt: str = ""
    """Why a query does not take the board's own variables; most do."""


class Row(Struct, frozen=True, kw_only=True):
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


class Variable(Struct, frozen=True, kw_only=True):
    """What a person chooses above a board. Its values are those of ``label`` in ``metric``."""

    name: str
    title: str
    label: str
    selector: str
    """An info metric with its matchers."""
    several: bool = True
    """Whether several or all may be chosen; else exactly one is."""


class Annotation(Struct, frozen=True, kw_only=True):
    """Events that are marked in every graph of a board."""

    name: str
    expression: str
    text: str
    colour: Colour
    at_value: bool = False
    """The value is the time of the event, in milliseconds of Unix time; else an event lasts while the query finds something."""


class Board(Struct, frozen=True, kw_only=True):
    """One board, which answers one question."""

    name: BoardName
    title: str
    question: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    annotations: tuple[Annotation, ...] = ()
    span: str = "6h"
    """The time that it shows at first, up to now."""

    @property
    def uid(self) -> str:
        """Never changes: alerts and bookmarks point to it."""
        return f"gpuwatch-{self.name}"
