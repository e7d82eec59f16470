"""What the workers of a job are like beside each other: recorded once, for the alerts about waste and for its cause."""

from __future__ import annotations

from typing import Final

from gpuwatch.rules.alert import Recording
from gpuwatch.rules.recording import EXCUSED, JOB_INFO
from gpuwatch.rules.words import DEVICE, GPU, JOB

WORKER: Final = f"{GPU}, namespace, pod, job_kind, job_name, replica_type, replica_index"
TEAM: Final = f"{JOB}, replica_type"
BUSY: Final = "node_uuid_pod:gpuwatch_job_gpu_utilization:avg15m"
STRAGGLER: Final = "node_uuid_pod:gpuwatch_job_gpu:straggler"
_WORK: Final = 'job_kind!~"Deployment|ReplicaSet|DaemonSet|StaticPod|InferenceService|RayService"'
"""Replicas of a service share their load as it comes; only those of a training must be equal."""
_TENSOR: Final = f"max by ({WORKER}) (avg_over_time(gpuwatch_job_gpu_tensor_active_ratio[15m]))"
_CLOCK: Final = (
    f"max by ({WORKER}) (gpuwatch_job_gpu_info{{{_WORK}}}) * on ({DEVICE}) group_left () "
    f'max by ({DEVICE}) (avg_over_time(gpuwatch_gpu_clock_hertz{{clock="sm"}}[15m]))'
)
BLAMELESS: Final = (
    f"unless on ({JOB}) gpuwatch_job_gpu_idle_ok unless on ({JOB}) ({JOB_INFO} and on ({DEVICE}) {EXCUSED})"
)  # fmt: skip
"""Nobody said that the job may idle, and no GPU of it is broken or held down."""


def _behind(worker: str, share: str, team: str = TEAM, sign: str = "<") -> str:
    """Workers whose value is below (or above) that share of the most in their team."""
    return f"{worker} {sign} on ({team}) group_left () {share} * max by ({team}) ({worker})"


_LATE: Final = (
    f"{_behind(BUSY, '${straggler_busy_ratio}')} and on ({WORKER}) {_behind(_TENSOR, '${straggler_tensor_ratio}', sign='>')} {BLAMELESS}"
)
"""Measured: who waits in the collective reads 100 %, who waits for its input does not, and both compute as much."""
_SLOW: Final = (
    f"{_behind(_CLOCK, '${straggler_clock_ratio}', f'{TEAM}, model')} and on ({WORKER}) {BUSY} > ${{inefficient_busy_ratio}} "
    f"unless on ({JOB}) gpuwatch_job_gpu_idle_ok"
)
"""Among GPUs of one model, since models differ in their clocks. Heat is no excuse here: it is what is looked for."""

# fmt: off
WORKERS: Final = (
    Recording(
        name=BUSY, forward=False, says="Mean utilisation of each GPU of a training, by worker.",
        expression=f"max by ({WORKER}) (avg_over_time(gpuwatch_job_gpu_utilization_ratio{{{_WORK}}}[15m]))",
    ),
    Recording(
        name=STRAGGLER, forward=False,
        says="Workers that hold up their job by the signs of their GPU. Kind input: late for its input; clock: its clock is low.",
        expression=f'label_replace({_LATE}, "kind", "input", "", "") or label_replace({_SLOW}, "kind", "clock", "", "")',
    ),
)
# fmt: on
