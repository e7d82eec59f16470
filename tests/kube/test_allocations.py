"""Replies of the PodResources API, recorded from a real kubelet and made up."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kube import podresources_v1_pb2 as v1
from gpuwatch.kube.allocations import ReplyError, decode_v1, decode_v1alpha1
from gpuwatch.kube.objects import Allocation
from kube.kubelet import LISTED

GPU = "GPU-00000001-aaaa-4bbb-8ccc-000000000001"


def of_pod(name: str) -> list[Allocation]:
    """What the recorded kubelet gave to a pod."""
    return [allocation for allocation in decode_v1(LISTED).allocations if allocation.pod == name]


def reply_of(*devices: v1.ContainerDevices, pod: str = "p", container: str = "c") -> bytes:
    """A reply with one container that has these devices."""
    containers = [v1.ContainerResources(name=container, devices=devices)]
    return v1.ListPodResourcesResponse(pod_resources=[v1.PodResources(name=pod, namespace="n", containers=containers)]).SerializeToString()


def test_every_recorded_device_is_found() -> None:
    """The whole recorded answer: plain GPUs, MIG, time slices and claims, each under its pod and container."""
    reply = decode_v1(LISTED)
    assert reply.rejected == 0
    assert len(reply.allocations) == 15
    assert of_pod("resnet50-chief-0") == [
        Allocation(namespace="team-vision", pod="resnet50-chief-0", container="tensorflow", device_id=GPU, resource="nvidia.com/gpu")
    ]
    assert [a.device_id[:12] for a in of_pod("legacy-worker-0")] == ["GPU-00000005", "GPU-00000007"]
    assert [a.resource for a in of_pod("mig-a")] == ["nvidia.com/mig-1g.5gb"]


def test_k11_a_native_sidecar_is_a_container() -> None:
    """The container that holds the GPU is named, also when it is an init container that stays."""
    assert [a.container for a in of_pod("sidecar")] == ["gpu-sidecar"]


def test_two_numa_nodes_are_one_device() -> None:
    """A device that the kubelet lists once for each NUMA node comes once."""
    assert len(of_pod("finetune-0-m62sr")) == 1


def test_two_slices_of_one_gpu_stay_apart() -> None:
    """Ids are not interpreted here: two replicas are two allocations."""
    assert [a.device_id[-3:] for a in of_pod("serve-2")] == ["::2", "::3"]


def test_k12_claims_are_read_without_their_cdi_names() -> None:
    """Each device of a claim comes once, though the kubelet repeats the CDI name of the first under the second."""
    assert [(a.claim, a.driver, a.pool, a.device) for a in of_pod("d1")] == [
        ("d1-g-mxs88", "gpu.nvidia.com", "private-node", "gpu-1"),
        ("d1-g-mxs88", "gpu.nvidia.com", "private-node", "gpu-2-mig-1g18gb-19-0"),
    ]
    assert [a.claim for a in of_pod("d2")] == ["d2-extended-resources-lrb4w"]


def test_devices_of_others_are_left_out() -> None:
    """A network card is no GPU; a renamed GPU resource and an NVIDIA resource with a strange id are kept."""
    devices = [
        v1.ContainerDevices(resource_name="rdma/hca", device_ids=["mlx5_0"]),
        v1.ContainerDevices(resource_name="example.com/fast", device_ids=[f"{GPU}::1"]),
        v1.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["strange"]),
    ]
    assert [a.device_id for a in decode_v1(reply_of(*devices)).allocations] == [f"{GPU}::1", "strange"]


@pytest.mark.parametrize(("pod", "container"), [("", "c"), ("p", ""), ("p" * 600, "c")])
def test_entries_without_sense_are_counted_and_shown(pod: str, container: str) -> None:
    """A device without a holder's name is left out, counted, and one is shown in short."""
    reply = decode_v1(reply_of(v1.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=[GPU]), pod=pod, container=container))
    assert reply.allocations == ()
    assert reply.rejected == 1
    assert GPU in reply.example
    assert len(reply.example) < 300


def test_a_node_without_pods_is_an_answer() -> None:
    """No bytes at all is the message of a node on which nothing runs."""
    assert decode_v1(b"").allocations == ()
    assert decode_v1alpha1(b"").allocations == ()


def test_the_old_version_reads_the_same_devices() -> None:
    """The fields that both versions know mean the same, so a v1 answer read as v1alpha1 differs by its claims only."""
    plain = tuple(allocation for allocation in decode_v1(LISTED).allocations if not allocation.claim)
    assert decode_v1alpha1(LISTED).allocations == plain


@given(st.binary(max_size=300))
def test_any_bytes_are_an_answer_or_a_reply_error(payload: bytes) -> None:
    """Junk never raises anything else."""
    for decode in (decode_v1, decode_v1alpha1):
        with contextlib.suppress(ReplyError):
            assert decode(payload).rejected >= 0


@given(st.integers(0, len(LISTED) - 1), st.binary(min_size=1, max_size=4))
def test_a_damaged_answer_never_raises_anything_else(at: int, damage: bytes) -> None:
    """Neither a real answer cut short nor one with some bytes changed."""
    for payload in (LISTED[:at], LISTED[:at] + damage + LISTED[at + len(damage) :]):
        with contextlib.suppress(ReplyError):
            decode_v1(payload)
