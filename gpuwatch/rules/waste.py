"""Alerts about GPUs that are held and not used, or used badly. Most are by job, and go to its owner.

There is none about full memory: TensorFlow maps nearly all memory of a GPU when it starts, so that memory in use is no sign of need.
"""

from __future__ import annotations

from typing import Final

from gpuwatch.rules.alert import Alert
from gpuwatch.rules.recording import FREE, JOB_INFO, RATIO_LONG, RATIO_SHORT
from gpuwatch.rules.words import DEVICE, JOB, THE_JOB, WHERE, per_gpu
from gpuwatch.rules.workers import BLAMELESS, BUSY, STRAGGLER, TEAM

_GROUP: Final = "gpuwatch-waste"
SM: Final = "gpuwatch_job_gpu_sm_active_ratio"
GPUS: Final = (
    '{{ range query (printf "count by (node, model) (max by (node, uuid, mig_uuid, model) '
    '(gpuwatch_job_gpu_info{cluster=%q, namespace=%q, job_kind=%q, job_name=%q}))" '
    "$labels.cluster $labels.namespace $labels.job_kind $labels.job_name) }}"
    " It holds {{ .Value }} x {{ .Labels.model }} on {{ .Labels.node }}.{{ end }}"
)


def settled(window: str) -> str:
    """The job holds GPUs now and did a window ago."""
    return f"and on ({JOB}) {JOB_INFO} and on ({JOB}) {JOB_INFO} offset {window}"


def mean_of(metric: str, window: str) -> str:
    """Of a job's own metric, over its GPUs."""
    return f"avg by ({JOB}) (avg_over_time({metric}[{window}]))"


def power_of(window: str) -> str:
    """Mean power of a job's GPUs as a share of their limits."""
    return (
        f"avg by ({JOB}) ({JOB_INFO} * on ({DEVICE}) group_left () "
        f"(max by ({DEVICE}) (avg_over_time(gpuwatch_gpu_power_watts[{window}])) "
        f'/ max by ({DEVICE}) (gpuwatch_gpu_power_limit_watts{{limit="enforced"}})))'
    )


def inefficient(window: str) -> str:
    """Jobs that look busy and work little: by the multiprocessors, or by the power where those are not told."""
    return (
        f"({mean_of(SM, window)} < ${{inefficient_sm_ratio}} or "
        f"({power_of(window)} < ${{inefficient_power_ratio}} unless on ({JOB}) {SM})) "
        f"and on ({JOB}) {mean_of('gpuwatch_job_gpu_utilization_ratio', window)} > ${{inefficient_busy_ratio}}"
    )


WASTE: Final = (
    Alert(
        name="GpuJobIdle", group=_GROUP, severity="info", for_="5m", subject="job", board="job",
        expression=f"{RATIO_SHORT} < ${{idle_ratio}} {settled('${idle_window}')} {BLAMELESS}",
        summary="A job holds GPUs and does not use them.",
        description=f"{THE_JOB} used {{{{ $value | humanizePercentage }}}} of the GPUs it holds.{GPUS} "
        'First: look whether it waits, is done, or was forgotten; end it, or mark its pods with gpuwatch.io/idle-ok: "true".',
    ),
    Alert(
        name="GpuJobUnderutilized", group=_GROUP, severity="info", for_="10m", subject="job", board="job",
        expression=f"{RATIO_LONG} < ${{underutilized_ratio}} unless on ({JOB}) {RATIO_SHORT} < ${{idle_ratio}} "
        f"{settled('${underutilized_window}')} {BLAMELESS}",
        summary="A job uses little of its GPUs.",
        description=f"{THE_JOB} used {{{{ $value | humanizePercentage }}}} of its GPUs.{GPUS} "
        "First: look whether it waits for its input: prefetch, parallel reading, a larger batch.",
    ),
    Alert(
        name="GpuJobBusyButInefficient", group=_GROUP, severity="info", for_="15m", subject="job", board="job",
        expression=f"{inefficient('${underutilized_window}')} {settled('${underutilized_window}')} {BLAMELESS}",
        summary="A job keeps its GPUs busy with little work.",
        description=f"{THE_JOB} looks busy and works with {{{{ $value | humanizePercentage }}}} of the multiprocessors, "
        f"or of the power where those are not told.{GPUS} First: larger batches, mixed precision, XLA; many tiny kernels look like this.",
    ),
    Alert(
        name="GpuJobImbalance", group=_GROUP, severity="info", for_="30m", subject="job", board="job",
        expression=f"max by ({TEAM}) ({BUSY}) - min by ({TEAM}) ({BUSY}) > ${{imbalance_ratio}} {BLAMELESS}",
        summary="The workers of a job are not equally busy.",
        description=f"Among the GPUs of the {{{{ $labels.replica_type }}}} replicas of {THE_JOB} utilisation differs by "
        f"{{{{ $value | humanizePercentage }}}}.{GPUS} First: look at the least busy one: its input, its host; or it is not used at all.",
    ),
    Alert(
        name="GpuJobStraggler", group=_GROUP, severity="info", for_="15m", subject="job", board="job",
        expression=STRAGGLER,
        summary="One worker holds up its job.",
        description=f"{THE_JOB} waits for pod {{{{ $labels.pod }}}} ({WHERE}): "
        '{{ if eq $labels.kind "input" }}it is late for its input while it computes as much as the others. '
        "First: look at its host, disk and network.{{ else }}its clock is below that of the others. "
        "First: look at heat, power and locked clocks there.{{ end }}",
    ),
    Alert(
        name="GpuMemoryHeldWithoutPod", group=_GROUP, severity="warning", for_="30m", subject="gpu", board="node",
        expression=f"{per_gpu('gpuwatch_gpu_memory_used_bytes')} > ${{memory_held_bytes}} "
        f'and on ({DEVICE}) gpuwatch_gpu_unattributed{{reason!="source_down"}} unless on ({DEVICE}) gpuwatch_mig_info',
        summary="Memory of a GPU is held and no pod holds the GPU.",
        description=f"{{{{ $value | humanize1024 }}}}B are in use on {WHERE}. First: look for the process with nvidia-smi on the node: "
        "one outside Kubernetes, or left over from a pod.",
    ),
    Alert(
        name="GpuHeldByInactivePod", group=_GROUP, severity="warning", for_="30m", subject="job", board="job",
        expression=f"max by (cluster, namespace, pod, job_kind, job_name) ({JOB_INFO}) "
        'and on (cluster, namespace, pod) kube_pod_status_phase{phase=~"Pending|Succeeded|Failed|Unknown"} == 1',
        summary="A pod that does not run holds a GPU.",
        description=f"Pod {{{{ $labels.namespace }}}}/{{{{ $labels.pod }}}} of {THE_JOB} holds a GPU"
        '{{ range query (printf "count by (node) (gpuwatch_job_gpu_info{namespace=%q, pod=%q})" $labels.namespace $labels.pod) }}'
        " of {{ .Labels.node }}{{ end }} and does not run"
        '{{ range query (printf "max by (phase) (kube_pod_status_phase{namespace=%q, pod=%q}) == 1" $labels.namespace $labels.pod) }}'
        " ({{ .Labels.phase }}){{ end }}. First: look at its events; delete it if nobody waits for it.",
    ),
    Alert(
        name="GpuMigWithoutInstances", group=_GROUP, severity="info", for_="1h", subject="gpu", board="mig",
        expression=per_gpu('gpuwatch_gpu_info{mig_mode="enabled"}')
        + f" unless on ({DEVICE}) gpuwatch_mig_info and on ({DEVICE}) gpuwatch_gpu_up == 1",
        summary="A GPU is in MIG mode and has no instances.",
        description=f"Nobody can use {WHERE}. First: create instances, or switch MIG off.",
    ),
    Alert(
        name="GpuFreeWhileJobsQueue", group=_GROUP, severity="info", for_="${queue_window}", subject="fleet", board="fleet",
        expression=f"sum by (cluster) ({FREE}) > 0 and on (cluster) sum by (cluster) (kueue_pending_workloads) > 0",
        summary="GPUs are free while jobs wait in the queue.",
        description="{{ $value }} GPUs or MIG instances are free and workloads are pending in Kueue. "
        "First: look whether quota, flavour or the size of a job keeps them apart.",
    ),
)  # fmt: skip
