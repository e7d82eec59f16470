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
from gpuwatch.metrics.catalog import METRICS
from gpuwatch.metrics.families import device_rows

if TYPE_CHECKING:
    from gpuwatch.metrics.catalog import Metric
    from gpuwatch.metrics.row import Rows
    from gpuwatch.snapshot import Snapshot

Families = dict[str, dict[str, str]]
"""By metric: what stands before the value (name, labels, a space) → the whole line. Being a dict, it cannot hold a series twice."""

_SERIES_LIMIT = 50_000
"""Series remembered: many times a full node, so that only labels that change without end ever reach it."""
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


class _Series:
    """One series as it was last written. The line is written again only when the value differs (0.0 and -0.0 do not)."""

    __slots__ = ("line", "prefix", "value")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.value = math.nan  # equal to no value, so that the first one is written
        self.line = ""

    def write(self, value: float) -> str:
        """The line with this value, or an empty text if it is no number."""
        text = number(value)
        self.value, self.line = value, "" if text is None else f"{self.prefix}{text}\n"
        return self.line


_Known = dict[object, _Series]
"""Series of one device by the name of the metric, with the label value where it has labels of its own."""


class Encoder:
    """Turns snapshots into lines, for one way of escaping names. Owned by one thread."""

    __slots__ = ("_devices", "_names", "_series_count")

    def __init__(self, escaping: str) -> None:
        self._names = {
            metric.name: (escape_metric_name(metric.name, escaping), tuple(escape_label_name(label, escaping) for label in metric.labels))
            for metric in METRICS
        }
        self._devices: dict[tuple[str, ...], _Known] = {}
        self._series_count = 0

    def families(self, snapshot: Snapshot) -> Families:
        """Every series of the snapshot, by metric in display order. Metrics without a series have an empty dict."""
        if self._series_count > _SERIES_LIMIT:
            self._devices = {}
            self._series_count = 0
        families: Families = {name: {} for name in self._names}
        devices = {}
        for labels, rows in device_rows(snapshot):
            devices[labels] = self._add(families, labels, rows)
        series = sum(map(len, families.values()))
        node = (snapshot.node,)
        devices[node] = self._add(families, node, agent_rows(snapshot, series))
        # Devices that are gone are forgotten.
        self._devices = devices
        return families

    def _add(self, families: Families, labels: tuple[str, ...], rows: Rows) -> _Known:
        known = self._devices.get(labels, {})
        for name, values in rows:
            if values is None:
                continue
            family = families[name]
            if isinstance(values, (int, float)):
                series = known.get(name) or self._new_series(known, name, labels, ())
                line = series.line if series.value == values else series.write(values)
                if line:
                    family.setdefault(series.prefix, line)
                continue
            for key, value in values.items():
                series = known.get((name, key)) or self._new_series(known, name, labels, key)
                line = series.line if series.value == value else series.write(value)
                if line:
                    family.setdefault(series.prefix, line)
        return known

    def _new_series(self, known: _Known, name: str, device: tuple[str, ...], key: object) -> _Series:
        own = key if isinstance(key, tuple) else (key,)
        written, labels = self._names[name]
        block = ",".join(f'{label}="{label_value(str(value))}"' for label, value in zip(labels, (*device, *own), strict=True))
        self._series_count += 1
        series = known[(name, key) if own else name] = _Series(f"{written}{{{block}}} ")
        return series
