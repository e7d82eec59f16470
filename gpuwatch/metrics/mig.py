"""MIG instances: slices of a GPU that work like GPUs of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwatch.device.readings import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuwatch.device.readings import Activity, MigInstance
    from gpuwatch.metrics.row import Rows
    from gpuwatch.snapshot import Gpu


def mig_labels(instance: MigInstance) -> tuple[str, ...]:
    """Values of the labels that a MIG instance adds to those of its GPU, in the order of ``MIG_LABELS``."""
    return (instance.uuid, instance.profile or "", str(instance.gpu_instance), str(instance.compute_instance))


def mig_instances(gpu: Gpu, unattributed: Mapping[tuple[str, str], str]) -> Iterator[tuple[MigInstance, Rows]]:
    """Each instance of the GPU with its rows; nothing for a GPU without MIG. ``unattributed``: reason by GPU and MIG UUID."""
    if gpu.medium is None:
        return
    memories = gpu.fast.mig_memory if gpu.fast else {}
    shown_by = _memory_shown_by(gpu.medium.mig_instances, memories)
    for instance in gpu.medium.mig_instances:
        memory = memories.get(instance.uuid, Memory()) if shown_by[instance.gpu_instance] == instance.uuid else None
        yield (
            instance,
            _mig_rows(instance, memory, gpu.medium.mig_activity.get(instance.uuid), unattributed.get((gpu.identity.uuid, instance.uuid))),
        )


def _memory_shown_by(instances: tuple[MigInstance, ...], memories: dict[str, Memory]) -> dict[int, str]:
    """By GPU instance, the one compute instance that shows its memory, the one with a reading: a sum must not count it twice."""
    shown_by: dict[int, str] = {}
    for instance in sorted(instances, key=lambda each: (each.uuid not in memories, each.compute_instance)):
        shown_by.setdefault(instance.gpu_instance, instance.uuid)
    return shown_by


def _mig_rows(instance: MigInstance, memory: Memory | None, activity: Activity | None, unattributed: str | None) -> Rows:
    yield "gpuwatch_mig_info", 1
    if unattributed is not None:
        yield "gpuwatch_mig_unattributed", {unattributed: 1}
    if memory is not None:
        yield "gpuwatch_mig_memory_total_bytes", instance.memory_total_bytes if memory.total_bytes is None else memory.total_bytes
        yield "gpuwatch_mig_memory_used_bytes", memory.used_bytes
    if activity is not None:
        yield "gpuwatch_mig_graphics_active_ratio", activity.graphics_ratio
        yield "gpuwatch_mig_sm_active_ratio", activity.sm_active_ratio
        yield "gpuwatch_mig_tensor_active_ratio", activity.tensor_active_ratio
        yield "gpuwatch_mig_dram_active_ratio", activity.dram_active_ratio
    yield "gpuwatch_mig_multiprocessors", instance.sm_count
