"""Recording rules: the few results that alerts and boards share. ``forward`` marks what a fleet of many clusters should send on.

Those about causes are in :mod:`gpuwatch.rules.cause`.
"""

from __future__ import annotations

from typing import Final

from gpuwatch.rules.alert import Recording
from gpuwatch.rules.words import DEVICE, JOB

JOB_INFO: Final = "node_uuid_pod:gpuwatch_job_gpu:info"
EXCUSED: Final = "node_uuid:gpuwatch_gpu:excused"
NVLINKS_UP: Final = "node_uuid:gpuwatch_gpu_nvlink_up:sum"
PCIE_WIDTH: Final = "node_uuid:gpuwatch_gpu_pcie_link_width:max"
FREE: Final = "cluster_model:gpuwatch_gpu_free:count"
RATIO_SHORT: Final = "namespace_job_name:gpuwatch_job_gpu_busy_per_allocated:ratio_rate_short"
RATIO_LONG: Final = "namespace_job_name:gpuwatch_job_gpu_busy_per_allocated:ratio_rate_long"
RATIO_NOW: Final = "namespace_job_name:gpuwatch_job_gpu_busy_per_allocated:ratio_rate_now"
_HOLDING: Final = f"{DEVICE}, mig_uuid, namespace, pod, container, job_kind, job_name"
_HELD: Final = "gpuwatch_job_gpu_allocated_seconds_total"
_BUSY: Final = "gpuwatch_job_gpu_busy_seconds_total"
HELD_DOWN: Final = "hardware_thermal|software_thermal|hardware_slowdown|hardware_power_brake"
"""Not ``software_power_cap``: a GPU that waits for its input most of the time still touches the cap in every burst."""


def _per_job(counter: str) -> str:
    """Rate over five minutes, each holding once."""
    return f"sum by ({JOB}) (max by ({_HOLDING}) (rate({counter}[5m])))"


def _used(window: str) -> str:
    """Busy time of a job per time held.

    Only holdings whose use is known count: a MIG instance without GPM must not make its job look idle. Agents are not merged here: of two
    at once both sides double, and of two that follow each other each has its part of the window.
    """
    return f"sum by ({JOB}) (rate({_BUSY}[{window}])) / sum by ({JOB}) (rate({_HELD}[{window}]) and rate({_BUSY}[{window}]))"


def broken(window: str) -> str:
    """GPUs that were broken for more than a moment of the window. What cannot be read is not idle either."""
    return f'max by ({DEVICE}) (avg_over_time(gpuwatch_gpu_health_state{{state=~"failed|unknown"}}[{window}])) > ${{excused_ratio}}'


def slowed(window: str) -> str:
    """GPUs that were held down for more than a moment of the window."""
    return f'max by ({DEVICE}) (rate(gpuwatch_gpu_throttled_seconds_total{{reason=~"{HELD_DOWN}"}}[{window}])) > ${{excused_ratio}}'


def _free() -> str:
    """Devices that a job could get now: given to nobody, sound, and on a node that takes pods (where kube-state-metrics tells)."""
    gpus = f'max by ({DEVICE}, model) (gpuwatch_gpu_unattributed{{reason="not_allocated"}})'
    instances = f'max by ({DEVICE}, model, mig_uuid) (gpuwatch_mig_unattributed{{reason="not_allocated"}})'
    return (
        f"count by (cluster, model) (("
        f'{gpus} unless on ({DEVICE}) gpuwatch_gpu_info{{mig_mode="enabled"}} or {instances}) '
        f'unless on ({DEVICE}) gpuwatch_gpu_health_state{{state=~"failed|unknown"}} == 1 '
        f"unless on (cluster, node) kube_node_spec_unschedulable == 1)"
    )


# fmt: off
SHARED: Final = (
    Recording(
        name=JOB_INFO, forward=False, says="Who holds which GPU, once each: the table to join hardware with jobs.",
        expression=f"max by ({DEVICE}, mig_uuid, namespace, pod, job_kind, job_name, replica_type, replica_index) (gpuwatch_job_gpu_info)",
    ),
    Recording(
        name=EXCUSED, forward=False,
        says="GPUs that were broken, or held down by heat or their supply: waste on them is no fault of the job.",
        expression=f"{broken('${underutilized_window}')} or {slowed('${underutilized_window}')}",
    ),
    Recording(
        name=NVLINKS_UP, forward=False, says="NVLinks of a GPU that are up, by UUID, since its number may change.",
        expression=f"sum by ({DEVICE}) (max by ({DEVICE}, link) (gpuwatch_gpu_nvlink_up))",
    ),
    Recording(
        name=PCIE_WIDTH, forward=False, says="PCIe lanes of a GPU, by UUID.",
        expression=f"max by ({DEVICE}) (gpuwatch_gpu_pcie_link_width)",
    ),
    Recording(
        name="node_uuid:gpuwatch_gpu_busy_seconds:rate5m", forward=False, says="Use of each GPU, 0 to 1.",
        expression=f"max by ({DEVICE}, model) (rate(gpuwatch_gpu_busy_seconds_total[5m]))",
    ),
    Recording(
        name="cluster_model:gpuwatch_gpu:count", forward=True, says="GPUs that exist, by model.",
        expression="count by (cluster, model) (max by (cluster, node, gpu, model) (gpuwatch_gpu_info))",
    ),
    Recording(
        name=FREE, forward=True, says="Sound GPUs and MIG instances that nobody holds, by model.",
        expression=_free(),
    ),
    Recording(
        name="cluster_model_state:gpuwatch_gpu_health:count", forward=True, says="GPUs by model and state of health.",
        expression="sum by (cluster, model, state) (max by (cluster, node, gpu, model, state) (gpuwatch_gpu_health_state))",
    ),
    Recording(
        name="cluster_model:gpuwatch_gpu_busy_seconds:rate5m", forward=True, says="GPUs' worth of work by model.",
        expression="sum by (cluster, model) (node_uuid:gpuwatch_gpu_busy_seconds:rate5m)",
    ),
    Recording(
        name="cluster_model:gpuwatch_gpu_power_watts:sum", forward=True, says="Power draw by model, watts.",
        expression="sum by (cluster, model) (max by (cluster, node, gpu, model) (gpuwatch_gpu_power_watts))",
    ),
    Recording(
        name="namespace_job_name:gpuwatch_job_gpu_allocated_seconds:rate5m", forward=True, says="GPUs that a job holds.",
        expression=_per_job(_HELD),
    ),
    Recording(
        name="namespace_job_name:gpuwatch_job_gpu_busy_seconds:rate5m", forward=True, says="GPUs' worth of work of a job.",
        expression=_per_job(_BUSY),
    ),
    Recording(
        name="namespace_job_name:gpuwatch_job_gpu_energy_joules:rate5m", forward=True, says="Power that a job draws, watts.",
        expression=_per_job("gpuwatch_job_gpu_energy_joules_total"),
    ),
    Recording(
        name=RATIO_SHORT, forward=False,
        says="Share of its GPUs that a job used over the window for idle jobs, without those whose use is not known (as MIG without GPM).",
        expression=_used("${idle_window}"),
    ),
    Recording(
        name=RATIO_LONG, forward=True, says="The same over the window for underutilised jobs.",
        expression=_used("${underutilized_window}"),
    ),
    Recording(
        name=RATIO_NOW, forward=False, says="The same over the window for causes.",
        expression=_used("${cause_window}"),
    ),
)
# fmt: on
