"""Why a job wastes its GPUs: one cause for each job that does, from what its processes and its GPUs say, joined by pod.

The causes form a chain. A later one is looked at only for jobs that no earlier one has, so that a job never has two.
"""

from __future__ import annotations

from typing import Final

from gpuwatch.rules.alert import Recording
from gpuwatch.rules.recording import JOB_INFO, NVLINKS_UP, PCIE_WIDTH, RATIO_NOW, broken, slowed
from gpuwatch.rules.waste import SM, inefficient, mean_of, power_of, settled
from gpuwatch.rules.words import DEVICE, JOB
from gpuwatch.rules.workers import BLAMELESS, BUSY, STRAGGLER, TEAM
from gpuwatch.tensorflow.measures import LOOP_PHASES

PHASE: Final = "namespace_pod:gpuwatch_tensorflow_phase:ratio_rate"
JOB_PHASE: Final = "namespace_job_name:gpuwatch_tensorflow_phase:ratio_rate"
LOW: Final = "namespace_job_name:gpuwatch_job:low"
UNEQUAL: Final = "namespace_job_name_pod:gpuwatch_job:unequal"
CAUSE: Final = "namespace_job_name:gpuwatch_job:cause"
WINDOW: Final = "${cause_window}"
POD: Final = "cluster, namespace, pod"
_MEMBER: Final = f"{POD}, job_kind, job_name, replica_type"
LOOP: Final = f'phase=~"{"|".join(LOOP_PHASES)}"'
_LINE_RATE: Final = "123e6"
"""Bytes a second of a PCIe lane are this times two to the power of the generation: 985 MB with the third, 1,969 MB with the fourth."""


def _phases() -> str:
    """Share of each phase in the time of a pod's training loops, over all its processes, with the job that the pod belongs to.

    A pod that is told of by two agents, under two names of its job while one of them has not heard of it yet, must not break the join.
    """
    rate = f"rate(gpuwatch_tensorflow_phase_seconds_total[{WINDOW}])"
    job = f"topk by ({POD}) (1, max by ({_MEMBER}) ({JOB_INFO}))"
    return (
        f"sum by ({POD}, phase) ({rate}) / on ({POD}) group_left () (sum by ({POD}) ({rate}) > 0) "
        f"* on ({POD}) group_left (job_kind, job_name, replica_type) {job}"
    )


def _input_share(labels: str, phases: str) -> str:
    """Share of its steps and what lies between them for which the host stood and waited for a batch."""
    return f'sum by ({labels}) ({phases}{{phase="input"}}) / sum by ({labels}) ({phases}{{{LOOP}}})'


INPUT_SHARE: Final = _input_share(JOB, JOB_PHASE)
HOST_SHARE: Final = f'sum by ({JOB}) ({JOB_PHASE}{{phase=~"host|checkpoint"}})'
_LITTLE_USED: Final = f"{RATIO_NOW} < ${{underutilized_ratio}}"


def _unequal() -> str:
    """Workers that hold up their job or do nothing for it, each with the kind. What a process says goes before the signs of its GPU."""
    input_share = (
        f"({_input_share(_MEMBER, PHASE)}) and on ({POD}) max by ({POD}) (max_over_time(gpuwatch_tensorflow_replicas[{WINDOW}])) > 1"
    )
    late = f"({input_share}) - on ({TEAM}) group_left () min by ({TEAM}) ({input_share}) > ${{late_input_ratio}}"
    less = f"max by ({TEAM}) ({BUSY}) - on ({TEAM}) group_right () {BUSY} > ${{imbalance_ratio}} {BLAMELESS}"
    worker = f"{JOB}, pod"
    said, used = _labelled("kind", "input", late, by=worker), _labelled("kind", "use", less, by=worker)
    return f"{said} or on ({JOB}) group by ({worker}, kind) ({STRAGGLER}) or on ({JOB}) {used}"


def _labelled(label: str, value: str, vector: str, *, by: str = JOB) -> str:
    """Value 1 for each job of the vector, with the label."""
    return f'label_replace(group by ({by}) ({vector}), "{label}", "{value}", "", "")'


def _of_gpus(vector: str) -> str:
    """Jobs that hold such a GPU."""
    return f"{JOB_INFO} and on ({DEVICE}) ({vector})"


def _of_pods(vector: str) -> str:
    """Jobs that have such a pod."""
    return f"{JOB_INFO} and on ({POD}) ({vector})"


def _of(metric: str) -> str:
    """One value for each pod, whatever processes and scrapes it has."""
    return f"max by ({POD}) ({metric})"


def _link_share() -> str:
    """Traffic of a GPU as a share of what its links carry, the busier direction: over NVLink, else over PCIe."""
    nvlink = (
        f"max by ({DEVICE}) (rate(gpuwatch_gpu_nvlink_bytes_total[{WINDOW}])) "
        f"/ on ({DEVICE}) ({NVLINKS_UP} * on ({DEVICE}) max by ({DEVICE}) (gpuwatch_gpu_nvlink_speed_bytes_per_second))"
    )
    pcie = (
        f"max by ({DEVICE}) (avg_over_time(gpuwatch_gpu_pcie_throughput_bytes_per_second[{WINDOW}])) "
        f"/ on ({DEVICE}) ({PCIE_WIDTH} * on ({DEVICE}) ({_LINE_RATE} * 2 ^ "
        f"max by ({DEVICE}) (max_over_time(gpuwatch_gpu_pcie_link_generation[{WINDOW}]))))"
    )
    return f"({nvlink}) > ${{communication_link_ratio}} or ({pcie}) > ${{communication_link_ratio}}"


_UTILIZATION: Final = mean_of("gpuwatch_job_gpu_utilization_ratio", WINDOW)
_NO_STEP: Final = (
    f"{_of('gpuwatch_tensorflow_training')} == 1 and {_of(f'gpuwatch_tensorflow_training offset {WINDOW}')} == 1 "
    f"and {_of(f'max_over_time(gpuwatch_tensorflow_steps_total[{WINDOW}])')} == 0"
)
_TRAINS: Final = _of_pods(f"max_over_time(gpuwatch_tensorflow_training[{WINDOW}]) == 1")
_LITTLE_WORK: Final = (
    f"{mean_of(SM, WINDOW)} < ${{communication_sm_ratio}} or ({power_of(WINDOW)} < ${{inefficient_power_ratio}} unless on ({JOB}) {SM})"
)
_DOES_NOTHING: Final = (
    f"max by ({JOB}) (gpuwatch_job_gpu_memory_used_bytes) > ${{held_idle_bytes}} and on ({JOB}) {RATIO_NOW} < ${{idle_ratio}}"
)
_TINY_KERNELS: Final = (
    f"{mean_of(SM, WINDOW)} / on ({JOB}) ({_UTILIZATION} > ${{idle_ratio}}) < ${{inefficient_sm_ratio}}"
)  # fmt: skip
"""Measured: back to back they read 19 % utilisation with 0.2 % of the multiprocessors at work; a starved GPU reads 31 and 25 %."""
_ALONE: Final = f"unless on ({DEVICE}) count by ({DEVICE}) (group by ({DEVICE}, namespace, job_kind, job_name) ({JOB_INFO})) > 1"
"""Links belong to the whole GPU: which of two jobs fills them is not known."""
_COMPUTES: Final = f'{JOB_PHASE}{{phase="compute"}} > 0.5 and on ({JOB}) {JOB_PHASE}{{phase="input"}}'
"""Where no fetch was seen the wait is in the time of computing, and is no work."""
_CHAIN: Final = (
    ("throttled", _of_gpus(slowed(WINDOW))),
    # Its work and its waiting say nothing then; the alerts about the GPU do.
    ("unknown", f"({_of_gpus(broken(WINDOW))}) and on ({JOB}) {LOW}"),
    ("not_started", f'({_of_pods(_NO_STEP)} or {JOB_PHASE}{{phase="compile"}} > ${{compile_ratio}}) and on ({JOB}) {_LITTLE_USED}'),
    ("memory_held_idle", f"{_DOES_NOTHING} unless on ({JOB}) ({_TRAINS})"),
    ("imbalanced", UNEQUAL),
    ("input_bound", f"{INPUT_SHARE} > ${{input_bound_ratio}} and on ({JOB}) {LOW}"),
    # A loop that waits on the host leaves the GPU idle; where it is busy, the host only does its part meanwhile.
    ("host_bound", f"{HOST_SHARE} > ${{host_bound_ratio}} and on ({JOB}) {_LITTLE_USED}"),
    ("communication_bound", f"({_of_gpus(_link_share())} {_ALONE}) and on ({JOB}) ({_LITTLE_WORK})"),
    ("small_work", f'({_COMPUTES} or {_TINY_KERNELS} or {LOW}{{kind="work"}}) and on ({JOB}) {LOW}'),
    ("unknown", LOW),
)
CAUSE_NAMES: Final = tuple(dict.fromkeys(name for name, _ in _CHAIN))

# fmt: off
CAUSES: Final = (
    Recording(
        name=PHASE, forward=False,
        says="Share of each phase in the training loops of a pod, with its job: what the processes of a job say of themselves.",
        expression=_phases(),
    ),
    Recording(
        name=JOB_PHASE, forward=True, says="The same for a job, the mean of its pods.",
        expression=f"avg by ({JOB}, phase) ({PHASE})",
    ),
    Recording(
        name=LOW, forward=False, says="Jobs that use little of their GPUs now (kind use), or keep them busy with little work (kind work).",
        expression=f"{_labelled('kind', 'use', _LITTLE_USED)} or on ({JOB}) {_labelled('kind', 'work', inefficient(WINDOW))}",
    ),
    Recording(
        name=UNEQUAL, forward=False,
        says="Workers that hold up their job. Kind input: late for its input; clock: slow itself; use: does much less than the others.",
        expression=_unequal(),
    ),
    Recording(
        name=CAUSE, forward=True,
        says="Why a job wastes its GPUs: one cause for each job that does, none for all others. docs/tensorflow.md explains them.",
        expression=f"({f' or on ({JOB}) '.join(_labelled('cause', *one) for one in _CHAIN)}) "
        f"{settled(WINDOW)} unless on ({JOB}) gpuwatch_job_gpu_idle_ok",
    ),
)
# fmt: on
