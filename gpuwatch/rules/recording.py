"""Recording rules: the few results that alerts and boards share. ``forward`` marks what a fleet of many clusters should send on."""

from __future__ import annotations

from typing import Final

from gpuwatch.rules.alert import Recording

JOB_INFO: Final = "node_uuid_pod:gpuwatch_job_gpu:info"
EXCUSED: Final = "node_uuid:gpuwatch_gpu:excused"
RATIO_SHORT: Final = "namespace_job_name:gpuwatch_job_gpu_busy_per_allocated:ratio_rate_short"
RATIO_LONG: Final = "namespace_job_name:gpuwatch_job_gpu_busy_per_allocated:ratio_rate_long"
_JOB: Final = "cluster, namespace, job_kind, job_name"
_HELD: Final = "gpuwatch_job_gpu_allocated_seconds_total"
_BUSY: Final = "gpuwatch_job_gpu_busy_seconds_total"


def _known(window: str) -> str:
    """Allocated time of those devices only whose use is known: no MIG instance without GPM makes its job look idle."""
    device = "cluster, node, uuid, mig_uuid, namespace, pod, container"
    return f"(max by ({device}, job_kind, job_name) (rate({_HELD}[{window}])) and on ({device}) rate({_BUSY}[{window}]))"


def _busy(window: str) -> str:
    device = "cluster, node, uuid, mig_uuid, namespace, pod, container"
    return f"sum by ({_JOB}) (max by ({device}, job_kind, job_name) (rate({_BUSY}[{window}])))"


# fmt: off
RECORDINGS: Final = (
    Recording(name=JOB_INFO, forward=False, says="Who holds which GPU, once each: the table to join hardware with jobs.",
              expression="max by (cluster, node, uuid, mig_uuid, namespace, pod, job_kind, job_name, replica_type, replica_index) (gpuwatch_job_gpu_info)"),
    Recording(name=EXCUSED, forward=False, says="GPUs that have failed or were held down by heat or their supply: no fault of the job on them.",
              expression='max by (cluster, node, uuid) (gpuwatch_gpu_health_state{state="failed"}) == 1 or sum by (cluster, node, uuid) '
              '(max by (cluster, node, uuid, reason) (rate(gpuwatch_gpu_throttled_seconds_total'
              '{reason=~"hardware_thermal|software_thermal|hardware_power_brake"}[${underutilized_window}]))) > ${excused_ratio}'),
    Recording(name="node_uuid:gpuwatch_gpu_busy_seconds:rate5m", forward=False, says="Use of each GPU, 0 to 1.",
              expression="max by (cluster, node, uuid, model) (rate(gpuwatch_gpu_busy_seconds_total[5m]))"),
    Recording(name="cluster_model:gpuwatch_gpu:count", forward=True, says="GPUs that exist, by model.",
              expression="count by (cluster, model) (max by (cluster, node, gpu, model) (gpuwatch_gpu_info))"),
    Recording(name="cluster_model_state:gpuwatch_gpu_health:count", forward=True, says="GPUs by model and state of health.",
              expression="sum by (cluster, model, state) (max by (cluster, node, gpu, model, state) (gpuwatch_gpu_health_state))"),
    Recording(name="cluster_model:gpuwatch_gpu_busy_seconds:rate5m", forward=True, says="GPUs' worth of work by model.",
              expression="sum by (cluster, model) (node_uuid:gpuwatch_gpu_busy_seconds:rate5m)"),
    Recording(name="cluster_model:gpuwatch_gpu_power_watts:sum", forward=True, says="Power draw by model, watts.",
              expression="sum by (cluster, model) (max by (cluster, node, gpu, model) (gpuwatch_gpu_power_watts))"),
    Recording(name="namespace_job_name:gpuwatch_job_gpu_allocated_seconds:rate5m", forward=True, says="GPUs that a job holds.",
              expression=f"sum by ({_JOB}) (max by (cluster, node, uuid, mig_uuid, namespace, pod, container, job_kind, job_name) (rate({_HELD}[5m])))"),
    Recording(name="namespace_job_name:gpuwatch_job_gpu_busy_seconds:rate5m", forward=True, says="GPUs' worth of work of a job.",
              expression=_busy("5m")),
    Recording(name="namespace_job_name:gpuwatch_job_gpu_energy_joules:rate5m", forward=True, says="Power that a job draws, watts.",
              expression=f"sum by ({_JOB}) (max by (cluster, node, uuid, mig_uuid, namespace, pod, container, job_kind, job_name) (rate(gpuwatch_job_gpu_energy_joules_total[5m])))"),
    Recording(name=RATIO_SHORT, forward=False,
              says="Share of its GPUs that a job used over the window for idle jobs; what cannot be known (MIG without GPM, shared GPUs) is left out.",
              expression=f"{_busy('${idle_window}')} / sum by ({_JOB}) ({_known('${idle_window}')})"),
    Recording(name=RATIO_LONG, forward=True,
              says="The same over the window for underutilised jobs.", expression=f"{_busy('${underutilized_window}')} / sum by ({_JOB}) ({_known('${underutilized_window}')})"),
)
# fmt: on
