"""Answers about MIG devices, and GPM samples of GPUs and GPU instances."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from gpuwatch.device import nvml
from gpuwatch.device.nvml import NVMLError
from gpuwatch.device.simulated.gpu import SimulatedGpu
from gpuwatch.device.simulated.mig import MAX_INSTANCES, MigInstance
from gpuwatch.device.simulated.view import Answer, Handle, View

_ZERO_METRICS = frozenset({6, 8, 9, 11, 13})
"""DFMA, DMMA and IMMA tensor pipes, FP64, FP16: no load uses them."""
_PERCENT_METRICS = {1: "utilization", 2: "sm", 3: "occupancy", 5: "tensor", 7: "tensor", 10: "dram", 12: "fp32"}
_INTEGER_METRIC, _INTEGER_SHARE_OF_SM = 4, 0.014
_RATE_METRICS = {20: "pcie_tx", 21: "pcie_rx", 60: "nvlink", 61: "nvlink"}
"""MiB/s; not per MIG instance."""
_MEMBERS = tuple(dict.fromkeys([*_PERCENT_METRICS.values(), *_RATE_METRICS.values()]))


@dataclass(slots=True)
class GpmSample:
    """A buffer that ``nvmlGpmSampleGet`` fills; one thread owns it."""

    gpu: SimulatedGpu | None = None
    gpu_instance: int | None = None
    t: float = 0.0


def gpm_metrics(first: GpmSample, second: GpmSample, ids: tuple[int, ...]) -> dict[int, float]:
    """Metrics between two samples, by id: percent, or MiB/s; ids the board does not answer are left out.

    Raises:
        NVMLError: the samples are not two moments of one GPU.
    """
    if first.gpu is None or second.gpu is None or first.gpu.uuid != second.gpu.uuid:
        raise NVMLError(nvml.INVALID_ARGUMENT)
    if first.gpu_instance != second.gpu_instance or first.t >= second.t:
        raise NVMLError(nvml.INVALID_ARGUMENT)
    means = second.gpu.timeline.means(first.t, second.t, gpu_instance=first.gpu_instance, members=_MEMBERS)
    if not means:
        return {}
    metrics = {metric: min(100.0, means[member]) for metric, member in _PERCENT_METRICS.items()}
    metrics |= dict.fromkeys(_ZERO_METRICS, 0.0) | {_INTEGER_METRIC: means["sm"] * _INTEGER_SHARE_OF_SM}
    if first.gpu_instance is None:
        metrics |= {metric: means[member] for metric, member in _RATE_METRICS.items()}
    return {metric: metrics[metric] for metric in ids if metric in metrics}


def take_sample(view: View, sample: GpmSample) -> GpmSample:
    """``nvmlGpmSampleGet``: the whole GPU."""
    sample.gpu, sample.gpu_instance, sample.t = view.gpu, None, view.t
    return sample


def take_instance_sample(view: View, gpu_instance: int, sample: GpmSample) -> GpmSample:
    """``nvmlGpmMigSampleGet``: one GPU instance of a GPU in MIG mode."""
    if all(instance.gpu_instance != gpu_instance for instance in view.instances or ()):
        raise NVMLError(nvml.INVALID_ARGUMENT)
    sample.gpu, sample.gpu_instance, sample.t = view.gpu, gpu_instance, view.t
    return sample


def mig_mode(view: View) -> list[int]:
    """[current, pending]."""
    return [int(view.instances is not None)] * 2


def mig_device(view: View, index: int) -> Handle:
    """Handle of the MIG device in that slot.

    Raises:
        NVMLError: NOT_FOUND when the slot is empty or MIG is off, INVALID_ARGUMENT when there is no such slot.
    """
    if not 0 <= index < MAX_INSTANCES:
        raise NVMLError(nvml.INVALID_ARGUMENT if view.instances is not None else nvml.NOT_FOUND)
    for instance in view.instances or ():
        if instance.index == index:
            return Handle(view.gpu.index, instance.uuid)
    raise NVMLError(nvml.NOT_FOUND)


def parent(view: View) -> Handle:
    """Handle of the GPU that the MIG device is a part of."""
    _instance(view)
    return Handle(view.gpu.index)


def attributes(view: View) -> SimpleNamespace:
    """Size of a MIG device."""
    instance = _instance(view)
    return SimpleNamespace(
        multiprocessorCount=instance.multiprocessors,
        gpuInstanceSliceCount=instance.profile.slices,
        computeInstanceSliceCount=instance.compute_slices,
        memorySizeMB=instance.profile.memory_mib,
    )


def _instance(view: View) -> MigInstance:
    if view.instance is None:
        raise NVMLError(nvml.INVALID_ARGUMENT)
    return view.instance


ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetMigMode": mig_mode,
    "nvmlDeviceGetMaxMigDeviceCount": lambda view: 0 if view.instances is None else MAX_INSTANCES,
    "nvmlDeviceGetMigDeviceHandleByIndex": mig_device,
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": parent,
    "nvmlDeviceGetGpuInstanceId": lambda view: _instance(view).gpu_instance,
    "nvmlDeviceGetComputeInstanceId": lambda view: _instance(view).compute_instance,
    "nvmlDeviceGetAttributes_v2": attributes,
    "nvmlGpmSampleGet": take_sample,
    "nvmlGpmMigSampleGet": take_instance_sample,
}
