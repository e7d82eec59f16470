"""The boards as Grafana reads them, and how it would fill in their queries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from gpuwatch.dashboards.pack import BOARDS

ROOT: Final = Path(__file__).parents[2]
UIDS: Final = tuple(board.uid for board in BOARDS)
INSTANT: Final = ("stat", "table", "bargauge")
SCRAPE_SECONDS: Final = 60
_UNITS: Final = {"m": 60, "h": 3600, "d": 86_400}
_VARIABLE: Final = re.compile(r"\$(\w+)")


@cache
def drawn(uid: str) -> dict[str, Any]:
    """The committed JSON of a board."""
    return dict(json.loads((ROOT / "dashboards" / "grafana" / f"{uid}.json").read_text(encoding="utf-8")))


def panels_of(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every panel, rows and those folded into a row too."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", ())


@dataclass(frozen=True, slots=True)
class Asked:
    """One query of a panel."""

    uid: str
    panel: dict[str, Any]
    reference: str
    expression: str

    @property
    def instant(self) -> bool:
        """Whether it asks for one moment."""
        return bool(self.panel["type"] in INSTANT)

    def __str__(self) -> str:
        return f"{self.uid} / {self.panel['title']} / {self.reference}"


@cache
def queries_of(uid: str) -> list[Asked]:
    """Every query of a board."""
    return [Asked(uid, panel, target["refId"], target["expr"]) for panel in panels_of(drawn(uid)) for target in panel.get("targets", ())]


def span_of(uid: str) -> float:
    """Seconds that a board shows at first."""
    text = drawn(uid)["time"]["from"].removeprefix("now-")
    return float(text[:-1]) * _UNITS[text[-1]]


def filled(expression: str, chosen: Mapping[str, str], seconds: float) -> str:
    """The query as Grafana sends it for a range of so many seconds; what was not chosen is all."""
    own = {
        "__rate_interval": f"{4 * SCRAPE_SECONDS}s",
        "__range_s": f"{seconds:.0f}",
        "__range": f"{seconds:.0f}s",
    }
    return _VARIABLE.sub(lambda found: own.get(found[1], chosen.get(found[1], ".*")), expression)


Row = dict[str, str | float]
"""A row of a table, by the titles of its columns."""


def rows_of(panel: Mapping[str, Any], answers: list[list[dict[str, Any]]]) -> list[Row]:
    """What Grafana's transformations make of the answers to a table's queries: one row for each set of labels, with renamed columns."""
    arranged = next(one["options"] for one in panel["transformations"] if one["id"] == "organize")
    merged: dict[tuple[tuple[str, str], ...], dict[str, str | float]] = {}
    for target, answer in zip(panel["targets"], answers, strict=True):
        field = f"Value #{target['refId']}" if len(answers) > 1 else "Value"
        for one in answer:
            labels = {name: value for name, value in one["metric"].items() if name != "__name__"}
            merged.setdefault(tuple(sorted(labels.items())), dict(labels))[field] = float(one["value"][1])
    names, hidden = arranged["renameByName"], arranged["excludeByName"]
    rows = [{names[field]: value for field, value in row.items() if field in names and field not in hidden} for row in merged.values()]
    order = panel["options"].get("sortBy") or []
    for rule in order:
        rows.sort(key=lambda row: (isinstance(row.get(rule["displayName"]), str), row.get(rule["displayName"], -1)), reverse=rule["desc"])
    return rows


def links_of(panel: Mapping[str, Any], column: str) -> list[dict[str, str]]:
    """Links of a column's cells: title and url."""
    properties = [
        one for override in panel["fieldConfig"]["overrides"] if override["matcher"]["options"] == column for one in override["properties"]
    ]
    return next((list(one["value"]) for one in properties if one["id"] == "links"), [])


def followed(url: str, row: Mapping[str, str | float]) -> tuple[str, dict[str, str]]:
    """Where a link leads from a row: the board's uid and its variables."""
    path, _, query = url.partition("?")
    variables = dict(part.removeprefix("var-").split("=", 1) for part in query.split("&") if part.startswith("var-"))
    return path.removeprefix("/d/"), {
        name: str(row.get(place.removeprefix("${__data.fields.").removesuffix("}"), "")) for name, place in variables.items()
    }
