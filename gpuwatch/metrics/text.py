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
from gpuwatch.metrics.catalog import JOB_LABELS, METRICS
from gpuwatch.metrics.families import device_rows

if TYPE_CHECKING:
    from gpuwatch.metrics.catalog import Metric
    from gpuwatch.metrics.row import Rows, Values
    from gpuwatch.snapshot import Snapshot

Families = dict[str, dict[str, str]]
"""By metric, then by the written name and device labels: the lines. Keyed by what is written, it cannot hold a series twice."""

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


def _labels(metric: Metric, pod_labels: tuple[str, ...]) -> tuple[str, ...]:
    if metric.group != "job":
        return metric.labels
    return (*JOB_LABELS, *pod_labels, *metric.labels[len(JOB_LABELS) :])


class _Block:
    """What one device has of one metric, as it was last written. It is written again only when a value differs (0.0 and -0.0 do not)."""

    __slots__ = ("_prefixes", "_written", "count", "start", "text", "values")

    def __init__(self, written: tuple[str, tuple[str, ...]], device: tuple[str, ...]) -> None:
        name, labels = written
        shared = ",".join(f'{label}="{label_value(value)}"' for label, value in zip(labels, device, strict=False))
        self.start = f"{name}{{{shared}"
        self._written = labels[len(device) :]
        self._prefixes: dict[object, str] = {}
        self.values: object = None
        self.text = ""
        self.count = 0

    def write(self, values: float | Values) -> None:
        """Take new values: a number, or one for each label value. What is no number has no line."""
        self.values = values
        pairs = (((), values),) if isinstance(values, (int, float)) else values.items()
        lines: dict[str, str] = {}  # two label values may be written alike
        for key, value in pairs:
            if (text := number(value)) is not None:
                prefix = self._prefixes.get(key) or self._prefix(key)
                lines.setdefault(prefix, f"{prefix}{text}\n")
        self.text, self.count = "".join(lines.values()), len(lines)

    def _prefix(self, key: object) -> str:
        """What stands before the value: name, labels, a space."""
        own = key if isinstance(key, tuple) else (key,)
        block = "".join(f',{label}="{label_value(str(value))}"' for label, value in zip(self._written, own, strict=True))
        prefix = self._prefixes[key] = f"{self.start}{block}}} "
        return prefix


_Known = dict[str, _Block]
"""Blocks of one device by the name of the metric."""


class Encoder:
    """Turns snapshots into lines, for one way of escaping names. Owned by one thread."""

    __slots__ = ("_devices", "_names")

    def __init__(self, escaping: str, pod_labels: tuple[str, ...] = ()) -> None:
        """``pod_labels``: names of the labels that follow ``JOB_LABELS`` in the metrics of jobs."""
        self._names = {
            metric.name: (
                escape_metric_name(metric.name, escaping),
                tuple(escape_label_name(label, escaping) for label in _labels(metric, pod_labels)),
            )
            for metric in METRICS
        }
        self._devices: dict[tuple[str, ...], _Known] = {}

    def families(self, snapshot: Snapshot) -> Families:
        """Every series of the snapshot, by metric in display order. Metrics without a series have an empty dict."""
        families: Families = {name: {} for name in self._names}
        devices: dict[tuple[str, ...], _Known] = {}
        series = 0
        for labels, rows in device_rows(snapshot):
            if labels not in devices:
                devices[labels] = known = self._devices.get(labels, {})
                series += self._add(families, labels, rows, known)
        node = (snapshot.node,)
        devices[node] = known = self._devices.get(node, {})
        self._add(families, node, agent_rows(snapshot, series), known)
        # Devices that are gone are forgotten.
        self._devices = devices
        return families

    def _add(self, families: Families, labels: tuple[str, ...], rows: Rows, known: _Known) -> int:
        """Add what one device has; returns how many series."""
        series = 0
        for name, values in rows:
            if values is None:
                continue
            block = known.get(name)
            if block is None:
                block = known[name] = _Block(self._names[name], labels)
            if block.values != values:
                block.write(values)
            if block.count and block.start not in families[name]:
                families[name][block.start] = block.text
                series += block.count
        return series
