"""What a job gets: series that are there while the GPU is held, with the identity of the job in their labels.

The hardware's own series never carry these labels, so that its counters keep their identity when pods come and go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuwatch.metrics.row import Rows
    from gpuwatch.snapshot import Gpu, JobUse, Snapshot


def job_devices(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], Rows]]:
    """Each holder: the values of ``JOB_LABELS`` followed by those of the operator's pod labels, and its rows."""
    gpus = {gpu.identity.uuid: gpu for gpu in snapshot.gpus}
    for use in snapshot.jobs:
        gpu = gpus.get(use.holder.gpu_uuid)
        if gpu is not None:
            yield _labels(snapshot.node, gpu, use), job_rows(use)


def _labels(node: str, gpu: Gpu, use: JobUse) -> tuple[str, ...]:
    holder, job, identity = use.holder, use.holder.job, gpu.identity
    return (
        *(node, str(identity.index), identity.uuid, identity.model),
        *(holder.mig_uuid, holder.profile, holder.namespace, holder.pod, holder.container),
        *(job.kind, job.name, job.replica_type, job.replica_index, job.framework),
        *holder.labels,
    )


def job_rows(use: JobUse) -> Rows:
    """Counters also in the grace period after the end, the rest only while the device is held."""
    yield "gpuwatch_job_gpu_allocated_seconds_total", use.allocated_seconds
    yield "gpuwatch_job_gpu_busy_seconds_total", use.busy_seconds
    yield "gpuwatch_job_gpu_energy_joules_total", use.energy_joules
    yield "gpuwatch_job_gpu_nvlink_bytes_total", use.nvlink_bytes
    if not use.held:
        return
    holder = use.holder
    facts: tuple[str, ...] = (holder.job.queue, holder.job.framework_reason, _flag(value=holder.shared), _flag(value=holder.requested))
    yield "gpuwatch_job_gpu_info", {facts: 1}
    yield "gpuwatch_job_gpu_idle_ok", 1 if holder.idle_ok else None
    yield "gpuwatch_job_gpu_utilization_ratio", use.utilization_ratio
    yield "gpuwatch_job_gpu_memory_used_bytes", use.memory_used_bytes
    yield "gpuwatch_job_gpu_power_watts", use.power_watts
    yield "gpuwatch_job_gpu_sm_active_ratio", use.sm_active_ratio
    yield "gpuwatch_job_gpu_tensor_active_ratio", use.tensor_active_ratio


def _flag(*, value: bool) -> str:
    return "true" if value else "false"
