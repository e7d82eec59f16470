"""Scrapes as a reader sees them: through the strict parsers of prometheus_client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric as LibraryMetric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector

from gpuwatch.metrics.agent import agent_rows
from gpuwatch.metrics.catalog import METRICS
from gpuwatch.metrics.exposition import Exposition
from gpuwatch.metrics.families import device_rows

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

    from gpuwatch.snapshot import Snapshot

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:\\.|[^"\\])*)"', re.DOTALL)


def text(snapshot: Snapshot, accept: str = "") -> str:
    """What a fresh gpuwatch answers, without the metrics of its own process."""
    return Exposition(None).render(snapshot, accept, "")[0].decode()


def samples(snapshot: Snapshot, accept: str = "") -> list[Sample]:
    """The samples of that answer."""
    parse = parse_openmetrics if accept else parse_text
    return [sample for family in parse(text(snapshot, accept)) for sample in family.samples]


def values(snapshot: Snapshot, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Values of one metric by the values of some of its labels."""
    return {tuple(sample.labels[label] for label in labels): sample.value for sample in samples(snapshot) if sample.name == name}


def names(snapshot: Snapshot) -> set[str]:
    """Names of the metrics that have a series."""
    return {sample.name for sample in samples(snapshot)}


class SnapshotCollector(Collector):
    """The rows of a snapshot as prometheus_client's own metric families: the long way to the same text."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[LibraryMetric]:
        """One family for each metric of the catalogue that has a sample."""
        families = {metric.name: LibraryMetric(metric.family, metric.documentation, metric.type, metric.unit) for metric in METRICS}
        labels = {metric.name: metric.labels for metric in METRICS}
        devices = list(device_rows(self._snapshot))
        rows = [(device, *row) for device, rows in devices for row in rows]
        count = sum(1 if isinstance(value, float | int) else len(value) for _, _, value in rows if value is not None)
        rows += [((self._snapshot.node,), *row) for row in agent_rows(self._snapshot, count)]
        for device, name, value in rows:
            each = {(): value} if isinstance(value, float | int) else value or {}
            for key, number in each.items():
                own = key if isinstance(key, tuple) else (key,)
                pairs = zip(labels[name], map(str, (*device, *own)), strict=True)
                families[name].add_sample(name, dict(pairs), number)
        return (family for family in families.values() if family.samples)


def with_sorted_labels(exposition: str) -> str:
    """The same exposition with the labels of each line in alphabetical order, as prometheus_client writes them."""
    lines = []
    for line in exposition.split("\n"):
        start, end = line.find("{"), line.rfind("}")
        if line.startswith("#") or start < 0:
            lines.append(line)
            continue
        block = ",".join(f'{name}="{value}"' for name, value in sorted(_LABEL.findall(line[start : end + 1])))
        lines.append(f"{line[:start]}{{{block}{line[end:]}")
    return "\n".join(lines)
