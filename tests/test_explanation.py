"""Words for what attribution found: none is missing, and the advice names what to grant."""

from __future__ import annotations

import pytest

from gpuwatch.attribution import REASONS
from gpuwatch.explanation import REASONS as WORDS
from gpuwatch.explanation import advice_on, marks_of, reason_of, title_of
from gpuwatch.kube import podresources, pods, processes, slices
from gpuwatch.kube.objects import JobRef
from gpuwatch.snapshot import Holder

FAULTS = {"podresources": podresources.FAULTS, "pods": pods.FAULTS, "dra": slices.FAULTS, "processes": processes.FAULTS}
ADVISED = [
    ("podresources", "permission", "runAsUser: 0"),
    ("podresources", "permission", "pod-resources"),
    ("podresources", "no_directory", "kubernetes.kubelet_root"),
    ("pods", "forbidden", 'list and watch on "pods"'),
    ("dra", "forbidden", '"resourceslices"'),
    ("processes", "no_host_pid", "hostPID: true"),
]


def holder(**changes: object) -> Holder:
    """A holder of a job without replicas."""
    return Holder(gpu_uuid="GPU-1", namespace="n", pod="p", container="c", **{"job": JobRef(kind="Notebook", name="alice"), **changes})  # type: ignore[arg-type]


def test_every_reason_has_words() -> None:
    """Each reason why a device has no holder is put into words, and no other is."""
    assert set(WORDS) == REASONS
    assert reason_of("some_new_reason") == "some new reason"


@pytest.mark.parametrize(("source", "fault", "words"), ADVISED)
def test_advice_names_the_right(source: str, fault: str, words: str) -> None:
    """What can be cured by a right or a setting names it as it is written in a manifest."""
    assert words in advice_on(source, fault)


@pytest.mark.parametrize("source", sorted(FAULTS))
def test_advice_is_a_sentence_or_nothing(source: str) -> None:
    """Advice for any fault of any source is complete text without a gap; where waiting is all there is to do, it is empty."""
    for fault in FAULTS[source]:
        advice = advice_on(source, fault)
        assert "{" not in advice
        assert advice == "" or advice.endswith((".", "?"))


def test_title_leaves_out_what_is_not_known() -> None:
    """A job without replicas has no dangling comma; one with an index only shows it."""
    assert title_of(holder()) == "Notebook alice"
    assert title_of(holder(job=JobRef(kind="TFJob", name="a", replica_type="ps", replica_index="1"))) == "TFJob a, ps 1"
    assert title_of(holder(job=JobRef(kind="Job", name="a", replica_index="3"))) == "Job a, 3"


def test_marks_tell_sharing_and_use_without_request() -> None:
    """An ordinary holder has no mark."""
    assert marks_of(holder()) == ()
    assert marks_of(holder(shared=True, requested=False)) == ("shared", "not requested")
