"""Series of jobs: their labels, their values, and when they are there."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.samples import Sample

from gpuwatch.kube.labels import LabelMap
from gpuwatch.kube.objects import JobRef, Pod
from gpuwatch.metrics.catalog import JOB_LABELS, METRICS
from gpuwatch.metrics.exposition import Exposition
from gpuwatch.snapshot import Holder, JobUse, Snapshot
from metrics.builders import GIB, h100, h100_mig, lost, mixed, snapshot
from metrics.scrape import OPENMETRICS

JOB_METRICS = [metric.name for metric in METRICS if metric.group == "job"]
COUNTERS = {name for name in JOB_METRICS if name.endswith("_total")}
POD_IDENTITY = {"namespace", "pod", "container", "job_kind", "job_name", "replica_type", "replica_index", "framework"}


def holder(
    gpu: int = 0,
    *,
    pod: str = "mnist-worker-0",
    mig: str = "",
    labels: tuple[str, ...] = (),
    shared: bool = False,
    requested: bool = True,
    idle_ok: bool = False,
) -> Holder:
    """A holder of that GPU of a node of H100."""
    job = JobRef(
        kind="TFJob",
        name="mnist",
        replica_type="worker",
        replica_index="0",
        framework="tensorflow",
        framework_reason="owner",
        queue="research",
    )
    return Holder(
        gpu_uuid=h100(gpu).identity.uuid,
        mig_uuid=mig,
        profile="1g.10gb" if mig else "",
        namespace="vision",
        pod=pod,
        container="tensorflow",
        job=job,
        labels=labels,
        shared=shared,
        requested=requested,
        idle_ok=idle_ok,
    )


def use(one: Holder, *, held: bool = True) -> JobUse:
    """Everything that a holder can get."""
    return JobUse(
        holder=one,
        held=held,
        allocated_seconds=60.5,
        busy_seconds=12.25,
        energy_joules=9000.0,
        nvlink_bytes={"rx": 5, "tx": 7},
        utilization_ratio=0.2,
        memory_used_bytes=GIB,
        power_watts=300.0,
        sm_active_ratio=0.1,
        tensor_active_ratio=0.05,
    )


def shown(*uses: JobUse) -> Snapshot:
    """A node of two H100 with these holders."""
    return msgspec.structs.replace(snapshot(h100(0), h100(1)), jobs=uses)


def scraped(node: Snapshot, pod_labels: tuple[str, ...] = (), *, openmetrics: bool = False) -> list[Sample]:
    """Samples of one scrape through a strict parser; a series that stands twice is an error."""
    text = Exposition(None, pod_labels).render(node, OPENMETRICS if openmetrics else "", "")[0].decode()
    families = parse_openmetrics(text) if openmetrics else parse_text(text)
    samples = [sample for family in families for sample in family.samples]
    keys = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples]
    assert len(set(keys)) == len(keys)
    return samples


def job_samples(samples: list[Sample]) -> dict[str, list[Sample]]:
    """Those of jobs, by name."""
    return {name: found for name in JOB_METRICS if (found := [sample for sample in samples if sample.name == name])}


def test_a_held_gpu_has_every_series() -> None:
    """All metrics of the group are there, each with the identity of device, container and job."""
    found = job_samples(scraped(shown(use(holder(idle_ok=True)))))
    assert set(found) == set(JOB_METRICS)
    wanted = {
        "node": "node-1",
        "gpu": "0",
        "uuid": h100(0).identity.uuid,
        "model": "NVIDIA H100 80GB HBM3",
        "mig_uuid": "",
        "profile": "",
        "namespace": "vision",
        "pod": "mnist-worker-0",
        "container": "tensorflow",
        "job_kind": "TFJob",
        "job_name": "mnist",
        "replica_type": "worker",
        "replica_index": "0",
        "framework": "tensorflow",
    }
    assert tuple(wanted) == JOB_LABELS
    assert all(wanted.items() <= sample.labels.items() for samples in found.values() for sample in samples)
    (info,) = found["gpuwatch_job_gpu_info"]
    own = {"queue": "research", "framework_reason": "owner", "shared": "false", "requested": "true"}
    assert (info.labels, info.value) == (wanted | own, 1.0)
    values = {name: {sample.labels.get("direction", ""): sample.value for sample in samples} for name, samples in found.items()}
    assert values["gpuwatch_job_gpu_nvlink_bytes_total"] == {"rx": 5.0, "tx": 7.0}
    assert values["gpuwatch_job_gpu_energy_joules_total"] == {"": 9000.0}
    assert values["gpuwatch_job_gpu_memory_used_bytes"] == {"": float(GIB)}


def test_only_a_pod_that_may_idle_says_so() -> None:
    """Its series is there while it holds the GPU; where nobody uses the annotation there is none at all."""
    name = "gpuwatch_job_gpu_idle_ok"
    (said,) = job_samples(scraped(shown(use(holder(idle_ok=True)), use(holder(1)))))[name]
    assert (said.labels["gpu"], said.value) == ("0", 1.0)
    assert name not in job_samples(scraped(shown(use(holder(idle_ok=True), held=False))))
    assert name not in Exposition(None).render(shown(use(holder())), "", "")[0].decode()


def test_labels_stand_in_one_order() -> None:
    """In the text: device, container, job, the operator's labels, then those of the metric."""
    text = Exposition(None, ("team", "label_app")).render(shown(use(holder(labels=("v", "w")))), "", "")[0].decode()
    (line,) = [line for line in text.splitlines() if line.startswith("gpuwatch_job_gpu_info{")]
    names = [pair.partition("=")[0] for pair in line[line.index("{") + 1 : line.index("}")].split(",")]
    assert names == [*JOB_LABELS, "team", "label_app", "queue", "framework_reason", "shared", "requested"]


def test_o2_no_series_has_more_than_20_labels() -> None:
    """With the settings as they come, also on a node where everything is held."""
    assert max(len(sample.labels) for sample in scraped(mixed())) <= 20
    assert max(len(sample.labels) for sample in scraped(shown(use(holder())))) <= 20


def test_k15_only_counters_are_left_in_the_grace() -> None:
    """After the end all gauges are gone, the info too; the counters stay, under the same labels."""
    exposition = Exposition(None)
    exposition.render(shown(use(holder())), "", "")
    after = job_samples(scraped(shown(use(holder(), held=False))))
    assert set(after) == COUNTERS
    before = job_samples(scraped(shown(use(holder()))))
    assert all(before[name] == after[name] for name in COUNTERS)
    text = exposition.render(shown(use(holder(), held=False)), "", "")[0].decode()
    assert "gpuwatch_job_gpu_info" not in text
    assert "gpuwatch_job" not in exposition.render(shown(), "", "")[0].decode()


def test_what_is_not_known_is_absent() -> None:
    """A holder of which only the time is known has that and its info, and no zero."""
    found = job_samples(scraped(shown(JobUse(holder=holder(shared=True, requested=False), allocated_seconds=0.0))))
    assert set(found) == {"gpuwatch_job_gpu_info", "gpuwatch_job_gpu_allocated_seconds_total"}
    labels = found["gpuwatch_job_gpu_info"][0].labels
    assert (labels["shared"], labels["requested"]) == ("true", "false")


def test_instances_and_lost_gpus_have_their_jobs() -> None:
    """A holder of a MIG instance bears its UUID and profile; that of a lost GPU keeps info and counters."""
    cut = h100_mig(1)
    assert cut.medium is not None
    instance = cut.medium.mig_instances[2].uuid
    node = msgspec.structs.replace(
        snapshot(lost(h100(0)), cut), jobs=(JobUse(holder=holder(0)), use(holder(1, mig=instance)), use(holder(7)))
    )
    infos = job_samples(scraped(node))["gpuwatch_job_gpu_info"]
    assert [(one.labels["gpu"], one.labels["mig_uuid"], one.labels["profile"]) for one in infos] == [
        ("0", "", ""),
        ("1", instance, "1g.10gb"),
    ]


def test_hardware_series_never_name_a_pod() -> None:
    """No series of a GPU, an instance or the agent changes its identity when pods come and go."""
    for held in (True, False):
        samples = scraped(msgspec.structs.replace(mixed(), jobs=(use(holder(labels=("v",)), held=held),)), ("team",))
        others = [sample for sample in samples if not sample.name.startswith("gpuwatch_job_")]
        assert others
        assert not [sample for sample in others if (POD_IDENTITY | {"team"}) & sample.labels.keys()]


def test_a_holder_that_stands_twice_is_shown_once() -> None:
    """Whatever the snapshot says, one scrape has no series twice."""
    assert len(job_samples(scraped(shown(use(holder()), use(holder()))))["gpuwatch_job_gpu_info"]) == 1


def test_k7_labels_that_would_collide_are_refused() -> None:
    """``a-b``, ``a.b`` and ``a/b`` cannot all be made into names; with names of their own each keeps its value."""
    with pytest.raises(ValueError, match="label_a_b"):
        LabelMap.parse(["a-b", "a.b", "a/b"])
    labels = LabelMap.parse({"a-b": "one", "a.b": "two", "a/b": "three"})
    values = labels.labels_of(Pod(uid="u", namespace="n", name="p", labels={"a-b": "1", "a.b": "2", "a/b": "3"}))
    (info,) = job_samples(scraped(shown(use(holder(labels=values))), labels.names))["gpuwatch_job_gpu_info"]
    assert (info.labels["one"], info.labels["two"], info.labels["three"]) == ("1", "2", "3")


HOSTILE = st.one_of(
    st.sampled_from(['"', "\\", "\n", '\\"', "\\n", "é" * 63, "a\nb", '"}', "{", "\r", " # ", "\u2028", "x" * 63, ""]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=63),
)


@given(st.lists(HOSTILE, min_size=2, max_size=2), st.booleans())
def test_k8_any_value_comes_back_equal(values: list[str], openmetrics: bool) -> None:
    """Values of pod labels with quotes, backslashes, line ends and letters of any script are read back as they were."""
    labels = LabelMap.parse({"team": "team", "app": "label_app"})
    told = labels.labels_of(Pod(uid="u", namespace="n", name="p", labels={"team": values[0], "app": values[1]}))
    samples = scraped(shown(use(holder(labels=told))), labels.names, openmetrics=openmetrics)
    (info,) = job_samples(samples)["gpuwatch_job_gpu_info"]
    assert [info.labels["team"], info.labels["label_app"]] == values


def test_two_holders_of_a_gpu_stay_apart() -> None:
    """Each has its own series under its own pod."""
    found = job_samples(scraped(shown(use(holder(pod="a", shared=True)), use(holder(pod="b", shared=True)))))
    assert all({sample.labels["pod"] for sample in samples} == {"a", "b"} for samples in found.values())
