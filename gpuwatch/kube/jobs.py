"""The job that a pod belongs to. Pure: everything is read from the pod itself, so no further rights are needed.

Asked in this order: the labels of a framework's operator, the owner (by group *and* kind: ``Job`` is a kind of ``batch`` and of
``batch.volcano.sh``), labels that nobody controls, the pod's name. The kinds are data: see :mod:`gpuwatch.kube.job_kinds`.
"""

from __future__ import annotations

import msgspec

from gpuwatch.kube.framework import framework_of
from gpuwatch.kube.job_kinds import JOB_KINDS, KNOWN_KINDS, JobKind
from gpuwatch.kube.labels import clean_text
from gpuwatch.kube.objects import JobRef, Owner, Pod
from gpuwatch.kube.tf_config import task_of

_QUEUE = ("kueue.x-k8s.io/local-queue-name", "kueue.x-k8s.io/queue-name", "volcano.sh/queue-name")
# Labels of training jobs and replicas on pods that are of no kind that is known here.
_ANY_NAME = ("training.kubeflow.org/job-name",)
_ANY_TYPE = ("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role")
_ANY_INDEX = ("training.kubeflow.org/replica-index", "batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index")


def job_of(pod: Pod) -> JobRef:
    """Return the job that ``pod`` belongs to; a pod that nothing explains is a job of kind ``Pod`` and of its own name.

    Never raises, whatever stands in labels and variables; every text is of bounded length.
    """
    entry = _marked(pod) or _owning(pod)
    job = _unknown(pod) if entry is None else _known(pod, entry)
    if entry is not None and entry.refine is not None:
        job = entry.refine(pod, job)
    job = _with_task(pod, job, bare=pod.owner is None and entry is None)
    framework = framework_of(pod)
    return JobRef(
        kind=clean_text(job.kind),
        name=clean_text(job.name),
        replica_type=clean_text(job.replica_type),
        replica_index=clean_text(job.replica_index),
        framework=framework.name,
        framework_reason=framework.reason,
        queue=clean_text(_first(pod, _QUEUE)),
    )


def _marked(pod: Pod) -> JobKind | None:
    """The kind whose mark the pod bears, unless something controls the pod that such a job has nothing to do with: labels get copied."""
    owner = None if pod.owner is None else (pod.owner.group, pod.owner.kind)
    for entry in JOB_KINDS:
        if owner is not None and owner not in entry.owners and owner not in entry.builders:
            continue
        if any(_value(pod, key) == value if value else _value(pod, key) for key, value in entry.marks):
            return entry
    return None


def _owning(pod: Pod) -> JobKind | None:
    if pod.owner is None:
        return None
    owner = (pod.owner.group, pod.owner.kind)
    return next((entry for entry in JOB_KINDS if owner in entry.owners), None)


def _known(pod: Pod, entry: JobKind) -> JobRef:
    """What the labels of an entry say; the owner's name only where the owner is the job and no part of it."""
    is_owner = pod.owner is not None and (pod.owner.group, pod.owner.kind) in entry.owners
    owner_name = pod.owner.name if pod.owner is not None and is_owner else ""
    return JobRef(
        kind=entry.kind,
        name=_first(pod, entry.name) or owner_name or pod.name,
        replica_type=_first(pod, entry.replica_type),
        replica_index=_first(pod, entry.replica_index),
    )


def _unknown(pod: Pod) -> JobRef:
    """The owner as it is, or the bare pod."""
    return JobRef(
        kind=_kind_of(pod.owner) if pod.owner else "Pod",
        name=(pod.owner.name if pod.owner else _first(pod, _ANY_NAME)) or pod.name,
        replica_type=_first(pod, _ANY_TYPE),
        replica_index=_first(pod, _ANY_INDEX),
    )


def _kind_of(owner: Owner) -> str:
    """The owner's kind, with its group where it could be taken for a kind that is known here."""
    kind = owner.kind or "Pod"
    return f"{kind}.{owner.group}" if owner.group and kind in KNOWN_KINDS else kind


def _with_task(pod: Pod, job: JobRef, *, bare: bool) -> JobRef:
    """What ``TF_CONFIG`` says of the replica where labels say nothing. Bare pods named ``<job>-<type>-<index>`` are one job."""
    task = task_of(pod)
    if task is None:
        return job
    suffix = f"-{task.type}-{task.index}"
    is_part = bare and task.type and task.index and pod.name.endswith(suffix) and len(pod.name) > len(suffix)
    return msgspec.structs.replace(
        job,
        name=pod.name.removesuffix(suffix) if is_part else job.name,
        replica_type=job.replica_type or task.type,
        replica_index=job.replica_index or task.index,
    )


def _first(pod: Pod, keys: tuple[str, ...]) -> str:
    return next(filter(None, (_value(pod, key) for key in keys)), "")


def _value(pod: Pod, key: str) -> str:
    """The label, else the annotation: some operators moved from one to the other."""
    return pod.labels.get(key) or pod.annotations.get(key, "")
