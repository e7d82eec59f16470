"""The boards as Grafana reads them, and how it would fill in their queries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpuwatch.dashboards.pack import BOARDS

ROOT: Final = Path(__file__).parents[2]
UIDS: Final = tuple(board.uid for board in BOARDS)
INSTANT: Final = ("stat", "table", "bargauge")
SCRAPE_SECONDS: Final = 60
_UNITS: Final = {"m": 60, "h": 3600, "d": 86_400}
_VARIABLE: Final = re.compile(r"\$(\w+)")


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
