"""The catalogue against the naming rules of Prometheus and against what is really exported."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from gpuwatch.metrics.catalog import GPU_LABELS, METRICS, MIG_LABELS, UNITS, Metric, metrics_by_name
from gpuwatch.metrics.exposition import Exposition, process_registry
from gpuwatch.snapshot import Gpu, Snapshot
from metrics.builders import down, h100, h100_mig, mixed, snapshot
from metrics.scrape import OPENMETRICS, samples, text

FORBIDDEN_LABELS = {"job", "instance", "cluster", "le", "quantile"}
"""Set by Prometheus or by its operators; a target that sets them breaks their configuration."""
MOST_LABELS = 20


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_each_entry_follows_the_naming_rules(metric: Metric) -> None:
    """Prefix, suffix, unit and labels are as Prometheus asks, and the help is a sentence with a source."""
    assert re.fullmatch(r"gpuwatch_[a-z0-9]+(_[a-z0-9]+)*", metric.name)
    assert (metric.type == "counter") == metric.name.endswith("_total")
    assert metric.unit in ("", *UNITS)
    assert not metric.unit or metric.family.endswith(f"_{metric.unit}")
    assert metric.help.endswith(".")
    assert metric.source
    assert not metric.source.endswith(".")
    assert len(set(metric.labels)) == len(metric.labels) <= MOST_LABELS
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in metric.labels)
    assert not FORBIDDEN_LABELS & set(metric.labels)


def test_names_are_given_once() -> None:
    """Neither a name nor an OpenMetrics family is used by two entries."""
    assert len(metrics_by_name()) == len(METRICS) == len({metric.family for metric in METRICS})


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_device_labels_come_first(metric: Metric) -> None:
    """Every series of a device can be joined on the same first labels; the agent's own series name the node."""
    first = MIG_LABELS if metric.name.startswith("gpuwatch_mig_") else GPU_LABELS if metric.name.startswith("gpuwatch_gpu_") else ("node",)
    assert metric.labels[: len(first)] == first


@pytest.mark.parametrize("shown", [pytest.param(mixed(), id="mixed"), pytest.param(down(), id="down")])
def test_each_sample_has_exactly_the_labels_of_its_entry(shown: Snapshot) -> None:
    """Names and labels that are exported are those that the catalogue promises, in its order."""
    catalogue = metrics_by_name()
    for sample in samples(shown):
        assert tuple(sample.labels) == catalogue[sample.name].labels


def test_each_entry_is_exported() -> None:
    """No entry is an empty promise: together the example nodes show every metric of the catalogue."""
    assert {sample.name for shown in (mixed(), down()) for sample in samples(shown)} == set(metrics_by_name())


def test_families_come_in_the_order_of_the_catalogue() -> None:
    """A person who reads an exposition finds it in the order of the documentation."""
    shown = re.findall(r"^# TYPE (\S+)", text(mixed(), OPENMETRICS), re.MULTILINE)
    assert shown == [metric.family for metric in METRICS if metric.family in shown]


@pytest.mark.parametrize(("build", "budget"), [(h100, 1000), (h100_mig, 2500)])
def test_a_full_node_stays_within_its_budget_of_series(build: Callable[[int], Gpu], budget: int) -> None:
    """Eight boards that report everything: at most 1,000 series, and 2,500 when each is cut in seven."""
    assert len(samples(snapshot(*map(build, range(8))))) <= budget


def test_the_series_that_gpuwatch_counts_are_those_it_shows() -> None:
    """``gpuwatch_series`` is the number of series of devices in the same exposition."""
    shown = samples(mixed())
    count = next(sample.value for sample in shown if sample.name == "gpuwatch_series")
    assert count == sum(sample.name.startswith(("gpuwatch_gpu_", "gpuwatch_mig_", "gpuwatch_job_")) for sample in shown)


def test_the_process_shares_no_name_with_the_catalogue() -> None:
    """The library's metrics of the process can be added without a clash."""
    assert not {metric.name for metric in process_registry().collect()} & {metric.family for metric in METRICS}
    assert Exposition(process_registry()).render(down(), OPENMETRICS, "")[0].count(b"# TYPE gpuwatch_up ") == 1
