"""Small clusters for tests: GPUs as NVML shows them, and what kubelet, API server and kernel say of them."""

from __future__ import annotations

from typing import Any

from gpuwatch.attribution import Attribution, attribute
from gpuwatch.device.readings import Activity, Fast, Identity, Links, Medium, Memory, MigInstance, Process
from gpuwatch.kube.jobs import job_of
from gpuwatch.kube.objects import (
    Allocation,
    Allocations,
    Container,
    DraDevice,
    DraDevices,
    Pod,
    Pods,
    ProcessOwner,
    ProcessOwners,
    SourceState,
    Views,
)
from gpuwatch.snapshot import Gpu, Holder, Modes, Totals

UP = SourceState(up=True, fault="", updated_at=1.0)
GONE = SourceState(up=False, fault="unreachable", detail="connection refused", updated_at=1.0)


def gpu_uuid(number: int) -> str:
    """UUID of a GPU."""
    return f"GPU-{number:08x}-aaaa-4bbb-8ccc-000000000000"


def mig_uuid(number: int, slot: int) -> str:
    """UUID of a MIG instance of a GPU."""
    return f"MIG-{number:08x}-1111-5222-8333-{slot:012x}"


def process(pid: int, **more: Any) -> Process:
    """A process on a GPU."""
    return Process(pid=pid, kind="compute", **more)


def gpu(number: int = 0, *processes: Process, minor: int | None = None, uuid: str = "", totals: Totals | None = None) -> Gpu:
    """A whole GPU that reports everything."""
    return Gpu(
        identity=Identity(
            index=number, uuid=uuid or gpu_uuid(number), model="NVIDIA H200", minor_number=number if minor is None else minor
        ),
        up=True,
        fast=Fast(utilization_ratio=0.5, memory=Memory(used_bytes=1000), power_watts=300.0, processes=processes),
        medium=Medium(activity=Activity(sm_active_ratio=0.4, tensor_active_ratio=0.3), links=Links(nvlink_bytes={"rx": 10, "tx": 20})),
        totals=totals or Totals(busy_seconds=0.0, energy_joules=0.0),
    )


def mig_gpu(number: int, *instances: tuple[int, int, str], processes: tuple[Process, ...] = (), uuids: tuple[str, ...] = ()) -> Gpu:
    """A GPU in MIG mode with these (GPU instance, compute instance, profile)."""
    names = uuids or tuple(mig_uuid(number, slot) for slot in range(len(instances)))
    cut = tuple(
        MigInstance(uuid=uuid, gpu_instance=gi, compute_instance=ci, profile=profile)
        for uuid, (gi, ci, profile) in zip(names, instances, strict=True)
    )
    return Gpu(
        identity=Identity(index=number, uuid=gpu_uuid(number), model="NVIDIA H200", minor_number=number),
        up=True,
        fast=Fast(power_watts=400.0, processes=processes, mig_memory={uuid: Memory(used_bytes=77) for uuid in names}),
        medium=Medium(
            mig_enabled=True,
            mig_instances=cut,
            mig_activity={uuid: Activity(graphics_ratio=0.25, sm_active_ratio=0.2) for uuid in names},
        ),
        modes=Modes(mig_enabled=True),
        totals=Totals(energy_joules=0.0),
    )


def given(pod: str, device_id: str, *, container: str = "main", resource: str = "nvidia.com/gpu", namespace: str = "team") -> Allocation:
    """The kubelet gave a device to a container."""
    return Allocation(namespace=namespace, pod=pod, container=container, device_id=device_id, resource=resource)


def claimed(pod: str, device: str, *, claim: str = "claim", driver: str = "gpu.nvidia.com") -> Allocation:
    """The kubelet gave a device to a container by DRA."""
    return Allocation(
        namespace="team", pod=pod, container="main", claim_namespace="team", claim=claim, driver=driver, pool="node-1", device=device
    )


def dra_device(device: str, **more: str) -> DraDevice:
    """A device of a slice."""
    return DraDevice(driver="gpu.nvidia.com", pool="node-1", device=device, **more)


def pod(name: str, *containers: str, namespace: str = "team", phase: str = "Running", **more: Any) -> Pod:
    """A pod; the uid is ``uid-<name>`` and each container's id its name, unless told otherwise."""
    made = tuple(Container(name=one, ids=(f"id-{name}-{one}",)) for one in containers or ("main",))
    return Pod(**{"uid": f"uid-{name}", "namespace": namespace, "name": name, "phase": phase, "containers": made} | more)


def owner(pid: int, pod_name: str = "", container: str = "main") -> ProcessOwner:
    """A process of a pod's container; without a pod one outside every pod."""
    if not pod_name:
        return ProcessOwner(pid=pid)
    return ProcessOwner(pid=pid, pod_uid=f"uid-{pod_name}", container_id=f"id-{pod_name}-{container}")


def views(
    *allocations: Allocation,
    pods: tuple[Pod, ...] | None = None,
    owners: tuple[ProcessOwner, ...] | None = None,
    devices: tuple[DraDevice, ...] = (),
    admin: frozenset[tuple[str, str]] = frozenset(),
    kubelet: SourceState = UP,
    api: SourceState = UP,
    kernel: SourceState = UP,
) -> Views:
    """What all sources say; without ``pods`` or ``owners`` that source is switched off."""
    return Views(
        allocations=Allocations(state=kubelet, allocations=allocations),
        pods=None if pods is None else Pods(state=api, pods=pods),
        dra=None if pods is None else DraDevices(state=api, devices=devices, admin_claims=admin),
        processes=None if owners is None else ProcessOwners(state=kernel, owners={one.pid: one for one in owners}),
    )


def attributed(gpus: list[Gpu], said: Views) -> Attribution:
    """Who holds what, with the real job names and the pod label ``team``."""
    return attribute(gpus, said, job_of=job_of, labels_of=lambda one: (one.labels.get("team", "") if one else "",))


def pods_on(found: Attribution, device: str = "") -> list[str]:
    """Names of the pods that hold a device (a UUID of a GPU or an instance), or any, sorted."""
    return sorted(one.pod for one in found.holders if not device or device in (one.gpu_uuid, one.mig_uuid))


def reasons(found: Attribution) -> list[str]:
    """Reasons of the devices without a holder, in order."""
    return [one.reason for one in found.unattributed]


def only(found: Attribution) -> Holder:
    """The one holder there is."""
    (holder,) = found.holders
    return holder
