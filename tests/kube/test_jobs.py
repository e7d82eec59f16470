"""From pod to job: one fixture a kind and generation, the recorded node, and whatever users may write."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kube.framework import FRAMEWORKS, REASONS
from gpuwatch.kube.job_kinds import JOB_KINDS, KNOWN_KINDS, JobKind
from gpuwatch.kube.jobs import job_of
from gpuwatch.kube.labels import MAX_VALUE_LENGTH
from gpuwatch.kube.objects import Container, JobRef, Owner, Pod
from gpuwatch.kube.pods import decode_pod

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.json"))
RECORDING = Path(__file__).parent.parent / "recordings" / "kubernetes" / "pods-list.json"


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_the_job_of_each_kind_and_generation(path: Path) -> None:
    """A pod as the operator makes it gives exactly the job that stands beside it."""
    fixture = json.loads(path.read_text(encoding="utf-8"))
    assert msgspec.to_builtins(job_of(decode_pod(json.dumps(fixture["pod"]).encode()))) == {
        key: value for key, value in fixture["job"].items() if value or key in {"kind", "name"}
    }


def test_every_kind_has_a_fixture() -> None:
    """No kind is in the table, and no framework or reason is told, without a pod that proves it."""
    jobs = [json.loads(path.read_text(encoding="utf-8"))["job"] for path in FIXTURES]
    assert {job["kind"] for job in jobs} >= KNOWN_KINDS
    assert {job["framework"] for job in jobs} == {"", *(known.name for known in FRAMEWORKS)}
    assert {job["framework_reason"] for job in jobs} == REASONS


def test_the_jobs_of_a_recorded_node() -> None:
    """The pods of a real node give the jobs that ran there."""
    pods = [decode_pod(json.dumps(item).encode()) for item in json.loads(RECORDING.read_text(encoding="utf-8"))["items"]]
    told = {pod.name: job_of(pod) for pod in pods}
    assert told["resnet50-chief-0"] == JobRef(
        kind="TFJob", name="resnet50", replica_type="chief", replica_index="0", framework="tensorflow", framework_reason="owner"
    )
    assert {(job.kind, job.name, job.replica_type, job.replica_index, job.queue) for name, job in told.items()} == {
        *(("TFJob", "resnet50", role, "0", "") for role in ("chief", "evaluator", "ps", "worker")),
        ("TFJob", "legacy", "worker", "0", ""),
        ("Job", "finetune", "", "0", "research"),
        ("Notebook", "notebook-ana", "", "", ""),
        ("Deployment", "cpu-web", "", "", ""),
        ("InferenceService", "bert", "predictor", "", ""),
        *(("Pod", name, "", "", "") for name in ("d1", "d2", "mig-a", "mig-b", "sidecar", "weird-labels")),
    }


def test_every_owner_has_one_kind() -> None:
    """No two entries claim the same owner, so that the order of the table never decides about an owner."""
    owners = [owner for entry in JOB_KINDS for owner in entry.owners]
    assert len(owners) == len(set(owners))


@pytest.mark.parametrize(("entry", "mark"), [(entry, mark) for entry in JOB_KINDS for mark in entry.marks])
def test_each_mark_alone_tells_the_kind(entry: JobKind, mark: tuple[str, str]) -> None:
    """One label of an operator is enough on a pod that nobody controls, and no kind hides another's mark."""
    key, value = mark
    assert job_of(Pod(uid="u", namespace="n", name="p", labels={key: value or "x"})).kind == entry.kind


@pytest.mark.parametrize(("entry", "owner"), [(entry, owner) for entry in JOB_KINDS for owner in entry.owners])
def test_each_owner_alone_tells_kind_and_name(entry: JobKind, owner: tuple[str, str]) -> None:
    """An owner is enough on a pod that has lost its labels; the name is the owner's, but for the node of a static pod."""
    job = job_of(Pod(uid="u", namespace="n", name="p-x", owner=Owner(group=owner[0], kind=owner[1], name="x")))
    assert (job.kind, job.name) == (entry.kind, "p" if entry.kind == "StaticPod" else "x")


def test_jobs_of_two_groups_are_told_apart() -> None:
    """The kind Job of batch and of Volcano never become one job, whatever name they share."""
    pods = [
        Pod(uid="u", namespace="n", name="x-1", owner=Owner(group=group, kind="Job", name="x")) for group in ("batch", "batch.volcano.sh")
    ]
    assert [job_of(pod).kind for pod in pods] == ["Job", "VolcanoJob"]


_KNOWN_LABELS = sorted({key for entry in JOB_KINDS for key in (*entry.name, *entry.replica_type, *entry.replica_index)})
_MARKS = sorted({mark for entry in JOB_KINDS for mark in entry.marks})
_OWNERS = sorted({owner for entry in JOB_KINDS for owner in (*entry.owners, *entry.builders)})
_ANY_TEXT = st.text(st.characters(), max_size=300)
_LABELS = st.one_of(
    st.dictionaries(st.one_of(st.sampled_from(_KNOWN_LABELS), _ANY_TEXT), _ANY_TEXT, max_size=8),
    st.dictionaries(st.sampled_from([key for key, _ in _MARKS]), st.sampled_from(["", *(value for _, value in _MARKS)]), max_size=4),
)
_OWNER = st.one_of(
    st.none(),
    st.sampled_from(_OWNERS).map(lambda owner: Owner(group=owner[0], kind=owner[1], name="name-12345678")),
    st.builds(Owner, group=_ANY_TEXT, kind=_ANY_TEXT, name=_ANY_TEXT),
)
_CONTAINER = st.builds(
    Container,
    name=_ANY_TEXT,
    image=st.one_of(_ANY_TEXT, st.text("/:@.-tf", max_size=40)),
    environment=st.dictionaries(st.one_of(st.sampled_from(["TF_CONFIG", "VC_TASK_INDEX", "JOB_COMPLETION_INDEX"]), _ANY_TEXT), _ANY_TEXT),
    ports=st.lists(_ANY_TEXT, max_size=2).map(tuple),
)


@given(
    pod=st.builds(
        Pod,
        uid=st.just("u"),
        namespace=st.just("n"),
        name=_ANY_TEXT,
        labels=_LABELS,
        annotations=_LABELS,
        owner=_OWNER,
        containers=st.lists(_CONTAINER, max_size=3).map(tuple),
    )
)
def test_whatever_stands_in_a_pod_gives_a_job(pod: Pod) -> None:
    """Any labels, owner, image and environment give a kind and bounded text that UTF-8 can write; nothing raises."""
    job = job_of(pod)
    assert job.kind
    assert job.framework_reason in REASONS
    for text in msgspec.structs.astuple(job):
        assert isinstance(text, str)
        assert len(text) <= MAX_VALUE_LENGTH
        text.encode()
