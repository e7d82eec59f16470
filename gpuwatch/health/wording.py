"""What a person is told of a GPU: the message of an event, for the node and for a pod. Pure text."""

from __future__ import annotations

from typing import Final

from gpuwatch.health.actions import errand_of
from gpuwatch.health.policy import POLICY
from gpuwatch.health.telling import Kind, Notice
from gpuwatch.kube.client import one_line
from gpuwatch.kube.events import MAX_MESSAGE
from gpuwatch.snapshot import Action, Holder, Reason

_STATES: Final[dict[Kind, str]] = {"GpuFailed": "has failed", "GpuDegraded": "works with a flaw", "GpuRecovered": "is sound again"}
_FOR_POD: Final[dict[Kind, dict[Action, str]]] = {
    "GpuFailed": {"restart_job": "start the job again, on this GPU or another"},
    "GpuDegraded": {"restart_job": "start the job again, on this GPU or another"},
}
_FAILED_POD: Final = "save what can be saved and start again on another node; the node's administrator must repair the GPU"
_DEGRADED_POD: Final = "nothing at once: look whether the work is slow or wrong, and tell the node's administrator"
_INSTANCE: Final = "The driver names the MIG instance; holders of the others are not told"
_ALL_INSTANCES: Final = "It is a fault of the whole GPU, so of all its MIG instances"


def node_message(notice: Notice) -> str:
    """For who runs the node: which GPU, the first action, what is wrong, who held it."""
    if notice.kind == "GpuRecovered":
        return f"{_subject(notice)} {_STATES[notice.kind]}."
    errand = errand_of(notice.action, one_line(notice.uuid))
    parts = [f"{_subject(notice)} {_STATES[notice.kind]}. First action: {errand}.", *_scope(notice)]
    if notice.holders:
        parts.append(f"Held by {', '.join(map(_holder, notice.holders))}.")
    return _with_reasons(parts, [_cleaned(reason.detail or reason.code) for reason in notice.reasons])


def pod_message(notice: Notice) -> str:
    """For the owner of a pod that holds it. Names nobody else's work."""
    if notice.kind == "GpuRecovered":
        return f"{_subject(notice)} {_STATES[notice.kind]}."
    usual = _FAILED_POD if notice.kind == "GpuFailed" else _DEGRADED_POD
    action = _FOR_POD[notice.kind].get(notice.action, usual)
    parts = [f"{_subject(notice)}, which this pod holds or just held, {_STATES[notice.kind]}. First action: {action}.", *_scope(notice)]
    return _with_reasons(parts, [_own(reason) for reason in notice.reasons])


def _subject(notice: Notice) -> str:
    names = ", ".join(name for name in (notice.model, notice.uuid) if name)
    return f"GPU {notice.gpu}" + (f" ({one_line(names)})" if names else "")


def _holder(holder: Holder) -> str:
    job = "" if holder.job.kind == "Pod" else f" of {holder.job.kind} {holder.job.name}"
    return f"{holder.namespace}/{holder.pod} ({holder.container}){job}"


def _scope(notice: Notice) -> list[str]:
    return {"gpu": [], "all_instances": [f"{_ALL_INSTANCES}."], "instance": [f"{_INSTANCE}."]}[notice.scope]


def _own(reason: Reason) -> str:
    """Without the names of jobs, which may be another team's."""
    if reason.code in POLICY:
        return POLICY[reason.code].says if reason.code == "suspect_hardware" else _cleaned(reason.detail)
    return _cleaned(reason.detail.partition(";")[0])


def _cleaned(text: str) -> str:
    return one_line(text).rstrip(".")


def _with_reasons(parts: list[str], reasons: list[str]) -> str:
    """The reasons stand before the rest but after the action, as many as there is room for."""
    head, *tail = parts
    room = MAX_MESSAGE - len(" ".join(parts).encode()) - len(" What is wrong: .")
    shown: list[str] = []
    for reason in reasons:
        room -= len(f"{reason}; ".encode())
        if room < 0:
            break
        shown.append(reason)
    return " ".join([head, *([f"What is wrong: {'; '.join(shown)}."] if shown else []), *tail])
