"""What the modules of this package yield: a metric's name with its value, or its values by label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

Values = (
    Mapping[str, float]
    | Mapping[int, float]
    | Mapping[tuple[str, str], float]
    | Mapping[tuple[str, str, str], float]
    | Mapping[tuple[str, ...], float]
)
"""One value for each label value. A tuple where the metric has several labels of its own, in the order of the catalogue."""

Row = tuple[str, float | Values | None]
"""Full name of a metric and what it is now. ``None`` and an empty mapping are "not reported": they make no series."""

Rows = Iterator[Row]
