"""The measures as Prometheus reads them. All work is done by the scrape; the training only counts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gpuwatch.tensorflow.measures import STEP_BUCKETS, Measures
from gpuwatch.tensorflow.series import DATASET_FACTS, FACTS, SERIES

Labels = dict[str, str]
Sample = tuple[str, Labels, float | None]
"""What follows the name of the family, its own labels, and the value; ``None`` and what is not finite have no line."""

_BOUNDS: Final = (*map(floatToGoString, STEP_BUCKETS), "+Inf")


class MeasuresCollector(Collector):
    """The families of :data:`gpuwatch.tensorflow.series.SERIES`, in that order. What is not known has no series: never 0, never NaN."""

    def __init__(self, measures: Measures, labels: Mapping[str, str] | None = None) -> None:
        """``labels`` stand on every series; those of a text file, whose reader does not know the pod."""
        self._measures = measures
        self._labels = {name: _clean(value) for name, value in (labels or {}).items()}

    def collect(self) -> Iterator[Metric]:
        """One family for each metric that has a series now. May run in any thread while the training counts on."""
        samples = samples_of(self._measures)
        for series in SERIES:
            family = Metric(series.name.removesuffix("_total"), f"{series.help} Source: {series.source}.", series.type)
            for suffix, own, value in samples[series.name]:
                if value is not None and math.isfinite(value):
                    labels = self._labels | {name: _clean(text) for name, text in own.items()}
                    family.add_sample(series.name + suffix, labels, float(value))
            if family.samples:
                yield family


def registry_of(measures: Measures, labels: Mapping[str, str] | None = None) -> CollectorRegistry:
    """A registry with these measures alone: what the training registers in the library's own one stays its own."""
    registry = CollectorRegistry()
    registry.register(MeasuresCollector(measures, labels))
    return registry


def samples_of(measures: Measures) -> dict[str, list[Sample]]:
    """The samples of each metric, by its name.

    Counters are there from the start, so that ``increase()`` sees the first event too. Examples are the exception: that they are 0 says
    only that the size of a batch cannot be read.
    """
    # Each copy is one operation of the interpreter, so that none is seen half changed.
    phases, facts, dataset = dict(measures.phase_seconds), dict(measures.facts), dict(measures.dataset)
    values: dict[str, list[Sample]] = {
        "info": _facts(facts, FACTS),
        "dataset_info": _facts(dataset, DATASET_FACTS),
        "training": _one(float(measures.runs)),
        "replicas": _one(measures.replicas),
        "gpus": _one(measures.gpus),
        "steps_total": _one(measures.steps),
        "examples_total": _one(measures.examples or None),
        "step_duration_seconds": _histogram(list(measures.step_counts), measures.step_seconds),
        "phase_seconds_total": [("", {"phase": phase}, seconds) for phase, seconds in phases.items()],
        "first_step_seconds": _one(measures.first_step_seconds),
        "last_step_timestamp_seconds": _one(measures.last_step_timestamp_seconds),
        "traces_total": _one(measures.traces),
        "nonfinite_losses_total": _one(measures.nonfinite_losses),
        "nonfinite_loss_timestamp_seconds": _one(measures.nonfinite_loss_timestamp_seconds),
        "memory_in_use_bytes": _devices(dict(measures.memory_in_use_bytes)),
        "memory_peak_bytes": _devices(dict(measures.memory_peak_bytes)),
    }
    return {f"gpuwatch_tensorflow_{name}": samples for name, samples in values.items()}


def _one(value: float | None) -> list[Sample]:
    return [("", {}, value)]


def _facts(known: Mapping[str, str], names: tuple[str, ...]) -> list[Sample]:
    return [("", {name: known.get(name, "") for name in names}, 1.0)] if known else []


def _devices(known: Mapping[str, int]) -> list[Sample]:
    return [("", {"device": device}, value) for device, value in known.items()]


def _histogram(counts: list[int], seconds: float) -> list[Sample]:
    """From one copy of the counts, so that the buckets grow and end in the count. Without its sum it would be none, so there is none."""
    if not math.isfinite(seconds):
        return []
    grown = list(accumulate(counts))
    buckets: list[Sample] = [("_bucket", {"le": bound}, count) for bound, count in zip(_BOUNDS, grown, strict=True)]
    return [*buckets, ("_count", {}, grown[-1]), ("_sum", {}, seconds)]


def _clean(value: object) -> str:
    """Half of a surrogate pair, as bytes of the environment that are no UTF-8 become, cannot be sent; it becomes U+FFFD."""
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
