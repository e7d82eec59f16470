"""Measures as a scrape sees them, held against prometheus_client's parsers and promtool."""

from __future__ import annotations

import math
import subprocess
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.samples import Sample

from gpuwatch.tensorflow.exposition import registry_of, samples_of
from gpuwatch.tensorflow.measures import PHASES, STEP_BUCKETS, Measures
from gpuwatch.tensorflow.series import DATASET_FACTS, FACTS, SERIES

PREFIX = "gpuwatch_tensorflow_"
Seen = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def full() -> Measures:
    """A process of which everything is known."""
    measures = Measures(training=True, steps=12, examples=384, traces=2, nonfinite_losses=1, replicas=2, gpus=1)
    for seconds in (0.004, 0.004, 0.7, 1000.0):
        measures.count_step(seconds)
    measures.count_step(0.02, steps=8)
    measures.phase_seconds |= {"input": 3.5, "compute": 0.25, "compile": 8.0}
    measures.first_step_seconds, measures.last_step_timestamp_seconds = 4.5, 1.7e9
    measures.nonfinite_loss_timestamp_seconds = 1.7e9 - 3
    measures.memory_in_use_bytes, measures.memory_peak_bytes = {"GPU:0": 3 << 30}, {"GPU:0": 5 << 30}
    measures.facts = {"tensorflow": "2.21.0", "strategy": "MirroredStrategy", "jit_compile": "true"}
    measures.dataset = {"source": "generator", "prefetch": "false"}
    return measures


def read(measures: Measures, *, openmetrics: bool = False, labels: dict[str, str] | None = None) -> Seen:
    """The samples by name and sorted labels, through the library's strict parser."""
    registry = registry_of(measures, labels)
    text = generate_openmetrics(registry).decode() if openmetrics else generate_latest(registry).decode()
    found: Seen = {}
    samples: list[Sample] = [sample for family in (parse_openmetrics if openmetrics else parse_text)(text) for sample in family.samples]
    for sample in samples:
        key = (sample.name, tuple(sorted(sample.labels.items())))
        assert key not in found, f"{key} stands twice"
        found[key] = sample.value
    return found


def value(seen: Seen, name: str, **labels: str) -> float | None:
    """One sample; ``None`` where there is none."""
    return seen.get((PREFIX + name, tuple(sorted(labels.items()))))


def test_a_process_that_has_just_begun_shows_its_counters_and_nothing_else() -> None:
    """Counters stand at 0 before their first event; what is not known yet is absent."""
    seen = read(Measures())
    counters = {(f"{PREFIX}phase_seconds_total", (("phase", phase),)) for phase in PHASES}
    counters |= {(PREFIX + name, ()) for name in ("steps_total", "traces_total", "nonfinite_losses_total", "training")}
    histogram = {key for key in seen if key[0].startswith(f"{PREFIX}step_duration_seconds")}
    assert len(histogram) == len(STEP_BUCKETS) + 3
    assert set(seen) == counters | histogram
    assert set(seen.values()) == {0.0}


def test_everything_that_is_known_is_told() -> None:
    """Every family of the catalogue appears, in its order, with its type, help, source and labels."""
    families = list(registry_of(full()).collect())
    assert [(one.name, one.type) for one in families] == [(one.name.removesuffix("_total"), one.type) for one in SERIES]
    for family, series in zip(families, SERIES, strict=True):
        assert family.documentation == f"{series.help} Source: {series.source}."
        assert {tuple(label for label in sample.labels if label != "le") for sample in family.samples} == {series.labels}
    assert set(samples_of(Measures())) == {one.name for one in SERIES}


def test_values_are_those_of_the_measures() -> None:
    """Each value, by hand."""
    seen = read(full())
    assert value(seen, "phase_seconds_total", phase="input") == 3.5
    assert value(seen, "phase_seconds_total", phase="checkpoint") == 0.0
    assert value(seen, "step_duration_seconds_bucket", le="0.005") == 2
    assert value(seen, "step_duration_seconds_bucket", le="0.025") == 10
    assert value(seen, "step_duration_seconds_bucket", le="300.0") == 11
    assert value(seen, "step_duration_seconds_bucket", le="+Inf") == value(seen, "step_duration_seconds_count") == 12
    assert value(seen, "step_duration_seconds_sum") == pytest.approx(1000.868)
    assert value(seen, "memory_peak_bytes", device="GPU:0") == 5 << 30
    facts = dict.fromkeys(FACTS, "") | full().facts
    assert value(seen, "info", **facts) == 1.0
    assert value(seen, "dataset_info", **(dict.fromkeys(DATASET_FACTS, "") | full().dataset)) == 1.0
    assert (value(seen, "examples_total"), value(seen, "training"), value(seen, "replicas")) == (384, 1, 2)


def test_labels_of_a_text_file_stand_on_every_series() -> None:
    """Of the histogram's lines too."""
    seen = read(full(), labels={"namespace": "vision", "pod": "mnist-worker-0"})
    assert all({("namespace", "vision"), ("pod", "mnist-worker-0")} <= set(labels) for _, labels in seen)


def test_the_librarys_own_registry_stays_the_users() -> None:
    """Nothing of ours is registered where the training may register metrics of its own, and nothing of those is exported."""
    registry_of(full())
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("gpuwatch")]
    assert all(family.name.startswith(PREFIX) for family in registry_of(full()).collect())


@pytest.mark.parametrize("measures", [Measures(), full()], ids=["new", "full"])
@pytest.mark.parametrize("labels", [None, {"namespace": "vision", "pod": "mnist-worker-0"}], ids=["endpoint", "file"])
def test_promtool_finds_nothing_to_say(measures: Measures, labels: dict[str, str] | None) -> None:
    """Prometheus's own linter reads it without an error or a remark."""
    body = generate_latest(registry_of(measures, labels))
    check = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True, check=False)
    assert (check.returncode, check.stdout, check.stderr) == (0, b"", b"")


TEXTS = st.text(max_size=20)
NUMBERS = st.floats(min_value=0) | st.just(math.nan) | st.integers(0, 1 << 62)
FACT = st.dictionaries(st.sampled_from((*FACTS, *DATASET_FACTS, "unheard-of")), TEXTS, max_size=4)
MEASURES = st.builds(
    Measures,
    training=st.booleans(),
    steps=st.integers(0, 1 << 53),
    examples=st.integers(0, 1 << 53),
    phase_seconds=st.fixed_dictionaries(dict.fromkeys(PHASES, NUMBERS)),
    step_counts=st.lists(st.integers(0, 1 << 40), min_size=len(STEP_BUCKETS) + 1, max_size=len(STEP_BUCKETS) + 1),
    step_seconds=st.floats(min_value=0),
    first_step_seconds=st.none() | NUMBERS,
    last_step_timestamp_seconds=st.none() | NUMBERS,
    traces=st.integers(0, 1000),
    nonfinite_losses=st.integers(0, 1000),
    memory_in_use_bytes=st.dictionaries(TEXTS, st.integers(0, 1 << 50), max_size=3),
    memory_peak_bytes=st.dictionaries(TEXTS, st.integers(0, 1 << 50), max_size=3),
    facts=FACT,
    dataset=FACT,
    replicas=st.none() | st.integers(1, 1000),
    gpus=st.none() | st.integers(0, 16),
)


@settings(max_examples=60)
@given(MEASURES, st.none() | st.fixed_dictionaries({"namespace": TEXTS, "pod": TEXTS}))
def test_any_measures_give_a_sound_exposition(measures: Measures, labels: dict[str, str] | None) -> None:
    """Whatever was measured and whatever things are called: both strict parsers read the same values, and none of them is NaN."""
    text, openmetrics = (read(measures, openmetrics=one, labels=labels) for one in (False, True))
    assert text == openmetrics
    assert all(math.isfinite(one) for one in text.values())
    given = {name: _sent(one) for name, one in (labels or {}).items()}
    for phase, seconds in measures.phase_seconds.items():
        assert value(text, "phase_seconds_total", phase=phase, **given) == (float(seconds) if math.isfinite(seconds) else None)
    assert value(text, "steps_total", **given) == measures.steps
    assert value(text, "examples_total", **given) == (measures.examples or None)
    for name in ("replicas", "gpus", "first_step_seconds", "last_step_timestamp_seconds"):
        known = getattr(measures, name)
        assert value(text, name, **given) == (None if known is None or not math.isfinite(known) else float(known))
    assert (value(text, "info", **(dict.fromkeys(FACTS, "") | _facts(measures.facts, FACTS)), **given) == 1.0) == bool(measures.facts)
    total = value(text, "step_duration_seconds_count", **given)
    assert total == (sum(measures.step_counts) if math.isfinite(measures.step_seconds) else None)


def _sent(one: str) -> str:
    return one.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _facts(known: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: _sent(one) for name, one in known.items() if name in names}


@pytest.mark.parametrize("name", ['"', "\\", "\n", "é", "\ud800", "a\udcffb", "} 1\n# EOF"])
def test_hostile_names_read_back_equal(name: str) -> None:
    """A strict parser reads each label as it was; what UTF-8 cannot carry is replaced."""
    measures = Measures(facts={"strategy": name}, memory_in_use_bytes={name: 1})
    for openmetrics in (False, True):
        assert value(read(measures, openmetrics=openmetrics), "memory_in_use_bytes", device=_sent(name)) == 1


def test_a_histogram_that_is_read_while_it_is_written_is_always_sound() -> None:
    """While the training counts, the buckets of each scrape grow from bound to bound, end in the count, and never fall later."""
    measures, stop = Measures(), threading.Event()

    def train() -> None:
        while not stop.is_set():
            for index, bound in enumerate(STEP_BUCKETS):
                measures.count_step(bound)
                measures.memory_in_use_bytes[f"GPU:{index}"] = index
                measures.facts[f"fact-{measures.steps % 50}"] = "x"
                measures.steps += 1
            measures.memory_in_use_bytes.clear()

    thread = threading.Thread(target=train)
    thread.start()
    try:
        last = [0.0] * (len(STEP_BUCKETS) + 1)
        for _ in range(100):
            seen = read(measures)
            buckets = [one for (name, _), one in seen.items() if name.endswith("_bucket")]
            assert buckets == sorted(buckets)
            assert buckets[-1] == value(seen, "step_duration_seconds_count")
            assert all(now >= before for now, before in zip(buckets, last, strict=True))
            last = buckets
    finally:
        stop.set()
        thread.join()
