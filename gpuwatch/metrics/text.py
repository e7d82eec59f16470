"""The text formats, line by line: numbers, label values, headers and the series of a snapshot.

Text format 0.0.4 and 1.0.0 and OpenMetrics 1.0.0 write a series in the same way; only headers and the end differ. Names are escaped
as the scraper asked for, with prometheus_client's rules. The expensive part of a line, its name and labels, is built once and kept:
device labels do not change while the device exists.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from prometheus_client.openmetrics.exposition import escape_label_name, escape_metric_name
from prometheus_client.utils import floatToGoString

from gpuwatch.metrics.agent import agent_rows
from gpuwatch.metrics.catalog import METRICS, metrics_by_name
from gpuwatch.metrics.families import device_rows

if TYPE_CHECKING:
    from gpuwatch.metrics.catalog import Metric
    from gpuwatch.metrics.row import Rows
    from gpuwatch.snapshot import Snapshot

Families = dict[str, dict[str, str]]
"""By metric: what stands before the value (name, labels, a space) → the value. Being a dict, it cannot hold a series twice."""

_Key = tuple[str, object]
_PREFIX_LIMIT = 50_000
"""Kept beginnings of lines: many times a full node, so that only values that change without end ever reach it."""
_EXPONENT_FROM = 1e6


def number(value: float) -> str | None:
    """The value as prometheus_client writes it, or ``None`` if it is no number (NaN, or an integer beyond a double)."""
    if -_EXPONENT_FROM < value < _EXPONENT_FROM:
        return repr(float(value))
    try:
        large = float(value)
    except OverflowError:
        return None
    return None if math.isnan(large) else str(floatToGoString(large))  # type: ignore[no-untyped-call]  # the library has no hints here


def label_value(value: str) -> str:
    """The value between quotes, escaped. Half of a surrogate pair, which UTF-8 cannot carry, becomes U+FFFD."""
    if not value.isascii():
        value = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def header(metric: Metric, escaping: str, *, openmetrics: bool) -> str:
    """HELP, TYPE and, in OpenMetrics, UNIT of one family."""
    name = escape_metric_name(metric.family if openmetrics else metric.name, escaping)
    text = metric.documentation.replace("\\", r"\\").replace("\n", r"\n")
    if openmetrics:
        text = text.replace('"', r"\"")
    lines = f"# HELP {name} {text}\n# TYPE {name} {metric.type}\n"
    # The unit must end the name, which it no longer does once the escaping has changed its underscores.
    if openmetrics and metric.unit and name.endswith(f"_{metric.unit}"):
        lines += f"# UNIT {name} {metric.unit}\n"
    return lines


class Encoder:
    """Turns snapshots into series, for one way of escaping names."""

    __slots__ = ("_metrics", "_names", "_prefix_count", "_prefixes")

    def __init__(self, escaping: str) -> None:
        self._metrics = metrics_by_name()
        self._names = {
            metric.name: (escape_metric_name(metric.name, escaping), tuple(escape_label_name(label, escaping) for label in metric.labels))
            for metric in METRICS
        }
        self._prefixes: dict[tuple[str, ...], dict[_Key, str]] = {}
        self._prefix_count = 0

    def families(self, snapshot: Snapshot) -> Families:
        """Every series of the snapshot, by metric in display order. Metrics without a series have an empty dict."""
        if self._prefix_count > _PREFIX_LIMIT:
            self._prefixes = {}
            self._prefix_count = 0
        families: Families = {name: {} for name in self._metrics}
        seen = {}
        for labels, rows in device_rows(snapshot):
            seen[labels] = self._add(families, labels, rows)
        series = sum(map(len, families.values()))
        node = (snapshot.node,)
        seen[node] = self._add(families, node, agent_rows(snapshot, series))
        # Devices that are gone take their beginnings of lines with them.
        self._prefixes = seen
        return families

    def _add(self, families: Families, labels: tuple[str, ...], rows: Rows) -> dict[_Key, str]:
        prefixes = self._prefixes.get(labels, {})
        for name, values in rows:
            if values is None:
                continue
            family = families[name]
            for key, value in ((None, values),) if isinstance(values, float | int) else values.items():
                text = number(value)
                if text is None:
                    continue
                prefix = prefixes.get((name, key))
                if prefix is None:
                    prefix = prefixes[name, key] = self._prefix(name, labels, key)
                family.setdefault(prefix, text)
        return prefixes

    def _prefix(self, name: str, device: tuple[str, ...], key: object) -> str:
        self._prefix_count += 1
        own = () if key is None else key if isinstance(key, tuple) else (key,)
        written, labels = self._names[name]
        pairs = zip(labels, (*device, *own), strict=True)
        block = ",".join(f'{label}="{label_value(str(value))}"' for label, value in pairs)
        return f"{written}{{{block}}} "
