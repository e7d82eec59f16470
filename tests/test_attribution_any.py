"""Attribution holds whatever the sources say together: devices, claims, pods and processes that fit or do not."""

from __future__ import annotations

import msgspec
from hypothesis import given as for_all
from hypothesis import strategies as st

from cluster import GONE, attributed, claimed, dra_device, given, gpu, gpu_uuid, mig_gpu, mig_uuid, owner, pod, process, views
from gpuwatch.attribution import REASONS
from gpuwatch.kube.objects import Allocation, DraDevice, SourceState, Views
from gpuwatch.snapshot import Gpu

GPU_0, GPU_1 = gpu_uuid(0), gpu_uuid(1)
SEVEN = tuple((7 + slot, 0, "1g.18gb") for slot in range(7))
NAMES = st.sampled_from(["a", "b", "c", "d"])
GPUS = st.lists(
    st.one_of(
        st.builds(lambda n, pids: gpu(n, *(process(one) for one in pids)), st.integers(0, 3), st.lists(st.integers(1, 6), max_size=3)),
        st.builds(lambda n, cut: mig_gpu(n, *cut), st.integers(0, 3), st.permutations(SEVEN).map(lambda cut: cut[:3])),
        st.builds(lambda n: msgspec.structs.replace(mig_gpu(n, *SEVEN), up=False, fast=None, medium=None), st.integers(0, 3)),
    ),
    max_size=3,
    unique_by=lambda one: one.identity.uuid,
)
DEVICE_IDS = st.one_of(
    st.integers(0, 4).map(gpu_uuid),
    st.tuples(st.integers(0, 4), st.integers(0, 3)).map(lambda pair: mig_uuid(*pair)),
    st.tuples(st.integers(0, 4), st.integers(0, 3)).map(lambda pair: f"{gpu_uuid(pair[0])}::{pair[1]}"),
    st.sampled_from(["all", "nvidia0", "nvidia1/gi7", "tegra", "", "junk"]),
    st.text(max_size=8),
)
ALLOCATIONS = st.one_of(
    st.builds(lambda name, one, box: given(name, one, container=box), NAMES, DEVICE_IDS, st.sampled_from(["main", "side"])),
    st.builds(lambda name, one: claimed(name, one, claim=one), NAMES, st.sampled_from(["gpu-0", "mig", "vfio", "none"])),
)
STATES = st.sampled_from([SourceState(), SourceState(up=True, fault="", updated_at=1.0), GONE])
PODS = st.lists(
    st.builds(lambda name, phase: pod(name, "main", "side", phase=phase), NAMES, st.sampled_from(["Running", "Failed", "Pending", ""]))
)
OWNERS = st.lists(
    st.builds(
        owner,
        st.integers(1, 6),
        st.sampled_from(["", "a", "b", "z"]),
        st.sampled_from(["main", "x"]),
    )
)
DEVICES = st.lists(
    st.sampled_from(
        [
            dra_device("gpu-0", uuid=GPU_0),
            dra_device("mig", kind="mig", parent_uuid=GPU_1, profile="1g.18gb"),
            dra_device("vfio", kind="vfio"),
        ]
    )
)


@st.composite
def any_views(draw: st.DrawFn) -> Views:
    """Whatever the sources might say together."""
    allocations: list[Allocation] = draw(st.lists(ALLOCATIONS, max_size=6))
    devices: list[DraDevice] = draw(DEVICES)
    return views(
        *allocations,
        pods=draw(st.none() | PODS.map(tuple)),
        owners=draw(st.none() | OWNERS.map(tuple)),
        devices=tuple(devices),
        admin=draw(st.sampled_from([frozenset(), frozenset({("team", "gpu-0")})])),
        kubelet=draw(STATES),
        api=draw(STATES),
        kernel=draw(STATES),
    )


@for_all(GPUS, any_views())
def test_whatever_is_said_each_device_has_holders_or_one_reason(gpus: list[Gpu], said: Views) -> None:
    """Nothing raises; a device is held or has one of the reasons; nobody holds twice, and nobody who neither claims nor runs anything."""
    found = attributed(gpus, said)
    held = {(one.gpu_uuid, one.mig_uuid) for one in found.holders}
    free = [(one.gpu_uuid, one.mig_uuid) for one in found.unattributed]
    assert len(set(free)) == len(free)
    assert not held & set(free)
    shown = set()
    for one in gpus:
        instances = one.medium.mig_instances if one.medium else ()
        shown |= {(one.identity.uuid, mig.uuid) for mig in instances}
        if not instances and one.medium:
            shown.add((one.identity.uuid, ""))
    assert held | set(free) == shown
    assert {one.reason for one in found.unattributed} <= REASONS
    keys = [(one.gpu_uuid, one.mig_uuid, one.namespace, one.pod, one.container) for one in found.holders]
    assert len(set(keys)) == len(keys)
    claims = {one.pod for one in said.allocations.allocations}
    for holder in found.holders:
        assert holder.pod in claims if holder.requested else holder.pids
        assert holder.shared == (sum((one.gpu_uuid, one.mig_uuid) == (holder.gpu_uuid, holder.mig_uuid) for one in found.holders) > 1)
        assert not said.pods or all(one.phase not in {"Succeeded", "Failed"} for one in said.pods.pods[-1:] if one.name == holder.pod)


@for_all(GPUS, any_views())
def test_no_process_has_two_holders(gpus: list[Gpu], said: Views) -> None:
    """On one device a process counts for one holder at most, and only for the pod that its cgroup names."""
    found = attributed(gpus, said)
    for device in {(one.gpu_uuid, one.mig_uuid) for one in found.holders}:
        pids = [pid for one in found.holders if (one.gpu_uuid, one.mig_uuid) == device for pid in one.pids]
        assert len(set(pids)) == len(pids)
    owners = said.processes.owners if said.processes else {}
    assert all(owners[pid].pod_uid == f"uid-{one.pod}" for one in found.holders for pid in one.pids)
