"""The whole way from a snapshot to the bytes of a scrape, held against prometheus_client."""

from __future__ import annotations

import gzip
import math
import subprocess
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gpuwatch.device.readings import EccCount, Fast, Health, Identity, Links, Medium, MigInstance
from gpuwatch.metrics.catalog import metrics_by_name
from gpuwatch.metrics.exposition import Exposition, process_registry
from gpuwatch.snapshot import Gpu, Snapshot, Totals
from metrics.builders import down, h100, h100_identity, h100_mig, lost, mixed, snapshot, t4
from metrics.scrape import OPENMETRICS, SnapshotCollector, samples, text, values, with_sorted_labels

SNAPSHOTS = [
    pytest.param(mixed(), id="mixed"),
    pytest.param(down(), id="down"),
    pytest.param(snapshot(), id="no-gpu"),
    pytest.param(snapshot(*map(h100_mig, range(2))), id="mig"),
    pytest.param(snapshot(lost(t4(0), fault="")), id="lost"),
]
TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=63)
HOSTILE = ['"', "\\", "\n", 'a="b",c="', "{}", "} 1\n# EOF", "é" * 63, "\u2028", "#", " ", "\\n", "\r"]


def registry_of(shown: Snapshot) -> CollectorRegistry:
    """The same snapshot in the library's hands."""
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(shown))
    return registry


def one_gpu(*, node: str, uuid: str, model: str, reason: str, value: float) -> Snapshot:
    """A node with a GPU whose names and value come from outside."""
    gpu = Gpu(
        identity=Identity(index=0, uuid=uuid, model=model, serial=reason),
        up=True,
        fast=Fast(power_watts=value, temperature_celsius={reason: value}),
    )
    return snapshot(gpu, lost(h100(1), fault=reason), node=node)


@pytest.mark.parametrize("shown", SNAPSHOTS)
def test_the_text_format_is_byte_for_byte_the_librarys(shown: Snapshot) -> None:
    """Apart from the order of labels, prometheus_client's generator writes the same bytes for the same samples."""
    assert with_sorted_labels(text(shown)) == generate_latest(registry_of(shown)).decode()


@pytest.mark.parametrize("shown", SNAPSHOTS)
def test_openmetrics_is_byte_for_byte_the_librarys(shown: Snapshot) -> None:
    """The same for OpenMetrics, with its units and its end."""
    assert with_sorted_labels(text(shown, OPENMETRICS)) == generate_openmetrics(registry_of(shown)).decode()


@pytest.mark.parametrize("escaping", ["underscores", "allow-utf-8", "dots", "values"])
def test_each_escaping_of_names_is_the_librarys(escaping: str) -> None:
    """Names are escaped as the scraper asks; ``dots`` doubles each underscore."""
    accept = f"text/plain;version=1.0.0;escaping={escaping}"
    assert with_sorted_labels(text(mixed(), accept)) == generate_latest(registry_of(mixed()), escaping=escaping).decode()


@given(node=TEXTS, uuid=TEXTS, model=TEXTS, reason=TEXTS, value=st.floats(allow_nan=False))
def test_names_and_values_from_outside_equal_the_librarys(node: str, uuid: str, model: str, reason: str, value: float) -> None:
    """Whatever a board calls itself and whatever it reports, both formats stay equal to prometheus_client's."""
    shown = one_gpu(node=node, uuid=uuid, model=model, reason=reason, value=value)
    assert with_sorted_labels(text(shown)) == generate_latest(registry_of(shown)).decode()
    assert with_sorted_labels(text(shown, OPENMETRICS)) == generate_openmetrics(registry_of(shown)).decode()


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_read_back_equal(name: str, accept: str) -> None:
    """A strict parser reads each label value back as it was (K8)."""
    shown = one_gpu(node=name, uuid=name, model=name, reason=name, value=1.5)
    power = next(sample for sample in samples(shown, accept) if sample.name == "gpuwatch_gpu_power_watts")
    assert power.labels == {"node": name, "gpu": "0", "uuid": name, "model": name}
    assert power.value == 1.5


def test_half_a_surrogate_pair_does_not_break_the_scrape() -> None:
    """What UTF-8 cannot carry is replaced, in both formats."""
    shown = one_gpu(node="n", uuid="GPU-\ud800", model="\udfffx", reason="é\ud83d", value=1.0)
    assert {sample.labels.get("uuid") for sample in samples(shown) if "power" in sample.name} == {"GPU-\ufffd"}
    assert text(shown, OPENMETRICS).endswith("# EOF\n")


@pytest.mark.parametrize(
    "shown",
    [
        *SNAPSHOTS,
        pytest.param(one_gpu(node=HOSTILE[5], uuid=HOSTILE[0], model=HOSTILE[1], reason=HOSTILE[6], value=math.inf), id="hostile"),
    ],
)
def test_promtool_finds_nothing_to_say(shown: Snapshot) -> None:
    """Prometheus's own linter reads the exposition, that of the process included, without an error or a remark."""
    body, _ = Exposition(process_registry()).render(shown, "", "")
    check = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True, check=False)
    assert (check.returncode, check.stdout, check.stderr) == (0, b"", b"")


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_no_series_is_written_twice(accept: str) -> None:
    """Two boards that claim the same identity, or names that become equal when cleaned, never make the scrape invalid."""
    twins = snapshot(h100(0), h100(0), h100_mig(1), h100_mig(1), lost(t4(2)), lost(t4(2)))
    halves = [msgspec.structs.replace(h100(3), identity=Identity(index=3, uuid=uuid)) for uuid in ("\ud800", "\ud801")]
    for shown in (twins, snapshot(*halves)):
        seen = Counter((sample.name, tuple(sorted(sample.labels.items()))) for sample in samples(shown, accept))
        assert max(seen.values()) == 1


def test_nothing_is_ever_nan() -> None:
    """A value that is no number is absent, alone."""
    shown = snapshot(
        msgspec.structs.replace(h100(0), fast=Fast(power_watts=math.nan, temperature_celsius={"gpu": math.nan, "memory": 61.0}))
    )
    assert "NaN" not in text(shown)
    assert values(shown, "gpuwatch_gpu_temperature_celsius", "sensor") == {("memory",): 61.0}


KEYED = st.dictionaries(TEXTS, st.one_of(st.floats(), st.integers(), st.booleans()), max_size=3)
NUMBERED = st.dictionaries(st.integers(), st.floats(), max_size=3)
MAYBE = st.one_of(st.none(), st.floats(), st.integers())
ECC = st.builds(EccCount, severity=TEXTS, scope=TEXTS, location=TEXTS, count=st.integers())
INSTANCE = st.builds(MigInstance, uuid=TEXTS, gpu_instance=st.integers(0, 2), compute_instance=st.integers(0, 2), memory_total_bytes=MAYBE)
GPUS = st.builds(
    Gpu,
    identity=st.builds(Identity, index=st.integers(0, 2), uuid=TEXTS, serial=TEXTS, clock_max_hertz=KEYED),
    up=st.booleans(),
    fault=TEXTS,
    fast=st.none() | st.builds(Fast, utilization_ratio=MAYBE, temperature_celsius=KEYED, throttle_reasons=st.none() | st.tuples(TEXTS)),
    medium=st.none()
    | st.builds(
        Medium,
        energy_joules=MAYBE,
        fan_speed_ratio=NUMBERED,
        mig_instances=st.lists(INSTANCE, max_size=3).map(tuple),
        health=st.builds(Health, ecc_errors=st.lists(ECC, max_size=3).map(tuple), recovery_action=MAYBE),
        links=st.builds(Links, nvlink_errors=KEYED, pcie_bytes_per_second=KEYED),
    ),
    totals=st.builds(Totals, busy_seconds=MAYBE, throttled_seconds=KEYED),
)


@settings(max_examples=50)
@given(st.lists(GPUS, max_size=4))
def test_any_snapshot_gives_a_sound_exposition(gpus: list[Gpu]) -> None:
    """Whatever the boards report: a strict parser reads it, nothing is NaN, nothing is there twice, each label is in the catalogue."""
    shown = samples(snapshot(*gpus))
    catalogue = metrics_by_name()
    assert not any(math.isnan(sample.value) for sample in shown)
    assert len({(sample.name, tuple(sample.labels.items())) for sample in shown}) == len(shown)
    assert all(tuple(sample.labels) == catalogue[sample.name].labels for sample in shown)


@settings(max_examples=30)
@given(st.lists(st.lists(st.sampled_from([0.0, -0.0, 1.0, 1.5, 2e9, math.nan, math.inf, True]), max_size=3), max_size=6))
def test_an_exposition_that_remembers_equals_a_fresh_one(history: list[list[float]]) -> None:
    """GPUs and values that come, go and change leave no trace in later scrapes."""
    exposition = Exposition(None)
    for readings in history:
        gpus = [Gpu(identity=h100_identity(index), up=True, fast=Fast(power_watts=value)) for index, value in enumerate(readings)]
        shown = snapshot(*gpus)
        assert exposition.render(shown, "", "")[0].replace(b" -0.0", b" 0.0") == text(shown).encode().replace(b" -0.0", b" 0.0")


def test_many_scrapes_of_one_snapshot_cost_one_rendering() -> None:
    """The same snapshot gives the very same bytes object for each format; the next snapshot gives new ones."""
    exposition, shown = Exposition(process_registry()), mixed()
    for accept in ("", OPENMETRICS):
        for encoding in ("", "gzip"):
            first, _ = exposition.render(shown, accept, encoding)
            assert all(exposition.render(shown, accept, encoding)[0] is first for _ in range(50))
    assert exposition.render(down(), "", "")[0] != exposition.render(shown, "", "")[0]


def test_compression_is_announced_and_lossless() -> None:
    """A gzip answer says so, and unpacks to the plain one."""
    exposition, shown = Exposition(process_registry()), mixed()
    plain, plain_headers = exposition.render(shown, "", "identity")
    packed, headers = exposition.render(shown, "", "gzip, deflate")
    assert gzip.decompress(packed) == plain
    assert headers == {**plain_headers, "Content-Encoding": "gzip"}
    assert plain_headers == {"Content-Type": "text/plain; version=0.0.4; charset=utf-8", "Vary": "Accept, Accept-Encoding"}


def test_the_metrics_of_the_process_follow_ours() -> None:
    """One exposition holds both, in each format, with a single end in OpenMetrics."""
    exposition = Exposition(process_registry())
    plain = exposition.render(mixed(), "", "")[0].decode()
    openmetrics = exposition.render(mixed(), OPENMETRICS, "")[0].decode()
    for families in (parse_text(plain), parse_openmetrics(openmetrics)):
        assert {"gpuwatch_gpu_up", "process_cpu_seconds", "process_open_fds"} <= {family.name for family in families}
    assert openmetrics.count("# EOF") == 1
    assert openmetrics.endswith("# EOF\n")
