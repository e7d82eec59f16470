"""Alerts about XIDs: by the severity that the policy gives each number, so that an override in the agent's settings counts here too."""

from __future__ import annotations

from typing import Final

from gpuwatch.rules.alert import Alert
from gpuwatch.rules.words import DEVICE, HOLDERS, JOB, THE_JOB, WHERE, asked, per_gpu

_GROUP: Final = "gpuwatch-xid"
_LAST: Final = "gpuwatch_gpu_xid_last_timestamp_seconds"
_MEANING: Final = "What the number means and what to do for it stands in the runbook."


def _recent(matchers: str) -> str:
    """Age of XIDs, while they are new. ``increase()`` would miss the first of a series."""
    return f"time() - max by (cluster, node, gpu, uuid, model, xid) ({_LAST}{{{matchers}}}) < ${{xid_age}}"


_PAGE: Final = f'time() - max by (cluster, node, gpu, uuid, model, xid) ({_LAST}{{severity="page"}})'
_STANDS: Final = 'label_replace(gpuwatch_gpu_health_reason{reason=~"xid_.+"}, "xid", "$1", "reason", "xid_(.+)")'
"""The verdict holds it against the GPU still: a page that ends by itself while the GPU is dead would send a person back to bed."""
_HOLDER: Final = f"{DEVICE}, namespace, pod, job_kind, job_name"
_HELD: Final = "gpuwatch_job_gpu_allocated_seconds_total"
_PROGRAM: Final = "severity='info', category=~'user_app|media_engine'"
_ERRED: Final = f"max by ({DEVICE}) ({_LAST}{{{_PROGRAM}}}) > time() - ${{xid_age}}"
"""Time of the last XID of a program's kind."""
_BOARD_FAULT: Final = f"{_LAST}{{severity=~'page|ticket'}} > time() - ${{xid_age}}"
"""Beside it the program's XID is only the echo in the program."""
_SINCE: Final = f"min by ({_HOLDER}) (timestamp({_HELD}) - {_HELD})"
"""Since when somebody holds a GPU. Who came after the XID is not to blame."""
_HELD_THEN: Final = f"({_ERRED} >= on ({DEVICE}) group_right () {_SINCE} and on ({_HOLDER}) gpuwatch_job_gpu_info)"
_GONE: Final = (
    f"(({_ERRED}) * on ({DEVICE}) group_right () max by ({_HOLDER}) ({_HELD} >= bool 0) "
    f"unless on ({_HOLDER}) gpuwatch_job_gpu_info unless on ({DEVICE}) {_HELD_THEN})"
)
"""Most such XIDs end the pod at once; its counters stay for a while. It is meant where nobody who is there now held the GPU then."""
_WHICH: Final = asked(
    f"max by (node, gpu, model, xid) ({_LAST}{{{_PROGRAM}}} > time() - ${{xid_age}}) "
    "and on (node, gpu) gpuwatch_job_gpu_info{namespace=%q, job_name=%q}",
    "namespace", "job_name",
    each="XID {{ .Labels.xid }} on GPU {{ .Labels.gpu }} ({{ .Labels.model }}) of {{ .Labels.node }}.",
)  # fmt: skip
_XID: Final = f"XID {{{{ $labels.xid }}}} {{{{ $value | humanizeDuration }}}} ago on {WHERE}.{HOLDERS}"

XIDS: Final = (
    Alert(
        name="GpuXidCritical", group=_GROUP, severity="critical", subject="gpu", board="node",
        expression=f"{_PAGE} < ${{xid_age}} or {_PAGE} and on (cluster, node, uuid, xid) {_STANDS}",
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
        description=f"Several jobs had XID 13 or 31 on {WHERE} within a day, and none of them elsewhere: the board is suspect."
        f"{HOLDERS} "
        "First: take it out of service and run the vendor's diagnostics.",
    ),
    Alert(
        name="GpuXidApplication", group=_GROUP, severity="info", subject="job", board="job",
        expression=f"time() - max by ({JOB}) (({_HELD_THEN} or {_GONE}) unless on ({DEVICE}) {_BOARD_FAULT})",
        summary="A program made an error on its GPU.",
        description=f"{THE_JOB} made an error on a GPU that it held {{{{ $value | humanizeDuration }}}} ago.{_WHICH} "
        "First: look in its log for an illegal access or an assertion; compute-sanitizer finds the place.",
    ),
)  # fmt: skip
