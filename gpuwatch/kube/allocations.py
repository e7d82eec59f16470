"""From the bytes of a PodResources reply to allocations: a pure function, so that recorded replies can be replayed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from google.protobuf.message import DecodeError

from gpuwatch.device.readings import Struct
from gpuwatch.kube import podresources_v1_pb2 as v1
from gpuwatch.kube import podresources_v1alpha1_pb2 as v1alpha1
from gpuwatch.kube.device_ids import parse_device_id
from gpuwatch.kube.objects import Allocation

_MAX_NAME = 512
"""Longer than any name that Kubernetes allows (253, or 317 for a resource), so only junk is longer."""


class ReplyError(Exception):
    """The kubelet's reply is not what the PodResources API promises."""


class Reply(Struct, frozen=True, kw_only=True):
    """A reply, understood."""

    allocations: tuple[Allocation, ...] = ()
    rejected: int = 0
    """Entries left out because a name in them is empty or longer than any name can be."""
    example: str = ""
    """One of those entries, for the log."""


def decode_v1(payload: bytes) -> Reply:
    """Decode a reply of ``/v1.PodResourcesLister/List``.

    Each device of a container comes once, though the kubelet lists a device once for each of its NUMA nodes. Devices that are certainly no
    NVIDIA GPU (by id and resource name) are left out. CDI names are not read: those of a claim's second device also name its first.

    Raises:
        ReplyError: The bytes are no such message.
    """
    reply = v1.ListPodResourcesResponse()
    _fill(reply, payload)
    found: list[Allocation] = []
    for pod in reply.pod_resources:
        for container in pod.containers:
            holder = _Holder(pod.namespace, pod.name, container.name)
            found.extend(_devices(holder, container.devices))
            found.extend(_dynamic_resources(holder, container.dynamic_resources))
    return _sort_out(found)


def decode_v1alpha1(payload: bytes) -> Reply:
    """The same for ``/v1alpha1.PodResourcesLister/List``, which knows no dynamic resources."""
    reply = v1alpha1.ListPodResourcesResponse()
    _fill(reply, payload)
    found: list[Allocation] = []
    for pod in reply.pod_resources:
        for container in pod.containers:
            found.extend(_devices(_Holder(pod.namespace, pod.name, container.name), container.devices))
    return _sort_out(found)


class _Holder(NamedTuple):
    namespace: str
    pod: str
    container: str


def _fill(reply: v1.ListPodResourcesResponse | v1alpha1.ListPodResourcesResponse, payload: bytes) -> None:
    try:
        reply.ParseFromString(payload)
    except DecodeError as error:
        raise ReplyError(f"{len(payload)} bytes that are no ListPodResourcesResponse: {error}") from error
    if payload and not reply.pod_resources:
        # Protobuf takes almost any bytes for fields that it does not know; believing that would take every GPU from its holder.
        raise ReplyError(f"{len(payload)} bytes without a single pod")


def _devices(holder: _Holder, devices: Iterable[v1.ContainerDevices | v1alpha1.ContainerDevices]) -> Iterator[Allocation]:
    for entry in devices:
        for device_id in entry.device_ids:
            if "nvidia" in entry.resource_name or parse_device_id(device_id).kind != "unknown":
                yield Allocation(
                    namespace=holder.namespace,
                    pod=holder.pod,
                    container=holder.container,
                    device_id=device_id,
                    resource=entry.resource_name,
                )


def _dynamic_resources(holder: _Holder, claims: Iterable[v1.DynamicResource]) -> Iterator[Allocation]:
    for claim in claims:
        for result in claim.claim_resources:
            yield Allocation(
                namespace=holder.namespace,
                pod=holder.pod,
                container=holder.container,
                claim_namespace=claim.claim_namespace,
                claim=claim.claim_name,
                driver=result.driver_name,
                pool=result.pool_name,
                device=result.device_name,
            )


def _sort_out(found: Iterable[Allocation]) -> Reply:
    unique = dict.fromkeys(found)
    good = tuple(allocation for allocation in unique if _is_sound(allocation))
    example = next((_describe(allocation) for allocation in unique if not _is_sound(allocation)), "")
    return Reply(allocations=good, rejected=len(unique) - len(good), example=example)


def _is_sound(allocation: Allocation) -> bool:
    holder = (allocation.namespace, allocation.pod, allocation.container)
    device = (allocation.driver, allocation.pool, allocation.device) if allocation.claim else (allocation.device_id, allocation.resource)
    return all(0 < len(name) <= _MAX_NAME for name in (*holder, *device)) and len(allocation.claim_namespace) <= _MAX_NAME


def _describe(allocation: Allocation) -> str:
    parts = (allocation.namespace, allocation.pod, allocation.container, allocation.device_id or allocation.device)
    return " ".join(repr(part[:64]) for part in parts)
