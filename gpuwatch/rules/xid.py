"""Alerts about XIDs: by the severity that the policy gives each number, so that an override in the agent's settings counts here too."""

from __future__ import annotations

from typing import Final

from gpuwatch.rules.alert import Alert
from gpuwatch.rules.recording import JOB_INFO
from gpuwatch.rules.words import HOLDERS, THE_JOB, WHERE, per_gpu

_GROUP: Final = "gpuwatch-xid"
_LAST: Final = "gpuwatch_gpu_xid_last_timestamp_seconds"
_MEANING: Final = "What the number means and what to do for it stands in the runbook."


def _recent(matchers: str) -> str:
    """Age of XIDs, while they are new. ``increase()`` would miss the first of a series."""
    return f"time() - max by (cluster, node, gpu, uuid, model, xid) ({_LAST}{{{matchers}}}) < ${{xid_age}}"


_XID: Final = f"XID {{{{ $labels.xid }}}} {{{{ $value | humanizeDuration }}}} ago on {WHERE}.{HOLDERS}"

XIDS: Final = (
    Alert(
        name="GpuXidCritical", group=_GROUP, severity="critical", subject="gpu", board="node",
        expression=_recent('severity="page"'),
        summary="The driver reported a fatal error of a GPU.",
        description=f"{_XID} First: drain the GPU. {_MEANING}",
    ),
    Alert(
        name="GpuXidDrainSoon", group=_GROUP, severity="warning", subject="gpu", board="node",
        expression=_recent('severity="ticket", category!="unknown"'),
        summary="The driver reported an error that needs a repair soon.",
        description=f"{_XID} First: let the job end, then repair. {_MEANING}",
    ),
    Alert(
        name="GpuXidUnknown", group=_GROUP, severity="warning", subject="gpu", board="node",
        expression=_recent('severity="ticket", category="unknown"'),
        summary="The driver reported an error that gpuwatch does not know.",
        description=f"{_XID} First: keep the kernel log and the output of nvidia-bug-report.sh, and look the number up.",
    ),
    Alert(
        name="GpuXidAcrossJobs", group=_GROUP, severity="warning", subject="gpu", board="node",
        expression=per_gpu('gpuwatch_gpu_health_reason{reason="suspect_hardware"}') + " == 1",
        summary="Different jobs died on one GPU of errors that are usually a program's.",
        description=f"Several jobs had XID 13 or 31 on {WHERE} within a day, and on no other GPU: the board is suspect.{HOLDERS} "
        "First: take it out of service and run the vendor's diagnostics.",
    ),
    Alert(
        name="GpuXidApplication", group=_GROUP, severity="info", subject="job", board="job",
        expression=f"max by (cluster, namespace, job_kind, job_name) ({JOB_INFO} "
        f'* on (cluster, node, uuid) group_left () (time() - max by (cluster, node, uuid) ({_LAST}{{severity="info", xid=~"13|31|43|69"}}) '
        "< ${xid_age}))",
        summary="A job made errors on its GPU.",
        description=f"{THE_JOB} had an XID of a program's kind (13, 31, 43 or 69) on its GPU {{{{ $value | humanizeDuration }}}} ago. "
        "First: look in its log for an illegal access or an assertion; compute-sanitizer finds the place.",
    ),
)  # fmt: skip
