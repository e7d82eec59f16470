"""Who holds which GPU, for every way in which devices, pods and processes are told."""

from __future__ import annotations

import msgspec
import pytest

from cluster import (
    GONE,
    attributed,
    claimed,
    dra_device,
    given,
    gpu,
    gpu_uuid,
    mig_gpu,
    mig_uuid,
    only,
    owner,
    pod,
    pods_on,
    process,
    reasons,
    views,
)
from gpuwatch.attribution import REASONS, Attribution
from gpuwatch.device.readings import Process
from gpuwatch.kube.objects import IDLE_OK, Pod, ProcessOwner, SourceState, Views
from gpuwatch.snapshot import Gpu

GPU_0, GPU_1 = gpu_uuid(0), gpu_uuid(1)
SEVEN = tuple((7 + slot, 0, "1g.18gb") for slot in range(7))


def test_k1_an_ended_pod_gives_way_to_the_running_one() -> None:
    """Of an ended and a running pod on one GPU only the running one holds it, and alone."""
    said = views(given("old", GPU_0), given("new", GPU_0), pods=(pod("old", phase="Succeeded"), pod("new")))
    holder = only(attributed([gpu()], said))
    assert (holder.pod, holder.shared, holder.requested) == ("new", False, True)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pod("a", started="2026-01-01T00:00:00Z"), pod("b", started="2026-01-01T00:05:00Z")),
        (pod("a", phase="Pending", started="2026-01-01T00:09:00Z"), pod("b", started="2026-01-01T00:05:00Z")),
        (pod("a", started="2026-01-01T00:00:00Z"), pod("b", phase="Running", started="2026-01-01T00:00:00Z")),
    ],
)
def test_k1_of_two_living_pods_one_is_believed(first: Pod, second: Pod) -> None:
    """An exclusive GPU listed under two living pods is that of the one that runs and started last, in whatever order they are listed."""
    for order in ((first, second), (second, first)):
        said = views(*(given(one.name, GPU_0) for one in order), pods=order)
        assert pods_on(attributed([gpu()], said)) == ["b"]


def test_k1_an_ended_pod_alone_holds_nothing() -> None:
    """The GPU of a pod that is over is free, and says so."""
    for phase in ("Succeeded", "Failed"):
        found = attributed([gpu()], views(given("old", GPU_0), pods=(pod("old", phase=phase),)))
        assert (found.holders, reasons(found)) == ((), ["pod_ended"])


def test_recreated_pod_of_the_same_name_is_the_new_one() -> None:
    """The kubelet tells names only, so the pod that has the name now counts, and a process of the old UID is not its."""
    said = views(given("w-0", GPU_0), pods=(pod("w-0", uid="uid-new", labels={"team": "b"}),), owners=(owner(5, "w-0"),))
    holder = only(attributed([gpu(0, process(5))], said))
    assert (holder.labels, holder.pids) == (("b",), ())


def test_k2_time_slices_are_a_holder_each() -> None:
    """Four pods on four replicas of one GPU are four holders, all shared, each with its own processes."""
    names = [f"p{number}" for number in range(4)]
    said = views(
        *(given(name, f"{GPU_0}::{number}", resource="nvidia.com/gpu.shared") for number, name in enumerate(names)),
        pods=tuple(pod(name) for name in names),
        owners=tuple(owner(10 + number, name) for number, name in enumerate(names)),
    )
    found = attributed([gpu(0, *(process(10 + number) for number in range(4)))], said)
    assert {one.pod: one.pids for one in found.holders} == {name: (10 + number,) for number, name in enumerate(names)}
    assert all(one.shared and one.requested for one in found.holders)


def test_two_replicas_in_one_container_count_once() -> None:
    """A container with two shares of a GPU holds it once, and alone when nobody else does."""
    said = views(given("p", f"{GPU_0}::0"), given("p", f"{GPU_0}::5"), pods=(pod("p"),))
    assert only(attributed([gpu()], said)).shared is False


def test_a_renamed_resource_is_matched_by_its_ids() -> None:
    """The shape of the id decides, not the name of the resource."""
    said = views(given("p", f"{GPU_0}::0", resource="example.com/slice"), pods=(pod("p"),))
    assert pods_on(attributed([gpu()], said)) == ["p"]


def test_k3_a_holder_without_a_process_is_there() -> None:
    """An allocated GPU on which nothing runs has its holder, with the job."""
    labels = {"training.kubeflow.org/operator-name": "tfjob-controller", "training.kubeflow.org/job-name": "mnist"}
    said = views(given("mnist-worker-0", GPU_0), pods=(pod("mnist-worker-0", labels=labels),), owners=())
    holder = only(attributed([gpu()], said))
    assert (holder.job.kind, holder.job.name, holder.pids) == ("TFJob", "mnist", ())


def test_k4_use_without_a_request_is_told() -> None:
    """A process of a pod that asked for no GPU is a holder that requested nothing; the one who was given the GPU shares it then."""
    said = views(given("owner", GPU_0), pods=(pod("owner"), pod("guest")), owners=(owner(1, "owner"), owner(2, "guest")))
    found = attributed([gpu(0, process(1), process(2)), gpu(1, process(2))], said)
    on_first = {one.pod: (one.requested, one.shared, one.pids) for one in found.holders if one.gpu_uuid == GPU_0}
    assert on_first == {"owner": (True, True, (1,)), "guest": (False, True, (2,))}
    on_second = [(one.pod, one.container, one.requested, one.shared) for one in found.holders if one.gpu_uuid == GPU_1]
    assert on_second == [("guest", "main", False, False)]


def test_a_pod_may_say_that_it_may_idle() -> None:
    """By annotation or label, also where it only uses a GPU; a pod that says nothing, or of which nothing is known, may not."""
    idle = pod("idle", annotations={IDLE_OK: "true"})
    said = views(
        *(given("idle", GPU_0), given("busy", GPU_1), given("unseen", gpu_uuid(2))),
        pods=(idle, pod("busy"), pod("guest", labels={IDLE_OK: "true"})),
        owners=(owner(9, "guest"),),
        api=GONE,
    )
    found = attributed([gpu(), gpu(1), gpu(2), gpu(3, process(9))], said)
    assert {one.pod: one.idle_ok for one in found.holders} == {"idle": True, "busy": False, "unseen": False, "guest": True}
    without = attributed([gpu()], views(given("idle", GPU_0)))
    assert only(without).idle_ok is False


def test_a_process_in_another_container_is_the_holders() -> None:
    """Where the GPU was given to one container and another of that pod computes on it, the pod has one holder."""
    said = views(given("p", GPU_0, container="a"), pods=(pod("p", "a", "b"),), owners=(owner(3, "p", "b"), owner(4, "p", "nowhere")))
    holder = only(attributed([gpu(0, process(3), process(4))], said))
    assert (holder.container, holder.pids, holder.shared) == ("a", (3, 4), False)


def test_two_containers_of_a_pod_share_a_gpu() -> None:
    """Two containers that were both given shares are two holders, and each process goes to its own."""
    said = views(
        given("p", f"{GPU_0}::0", container="a"),
        given("p", f"{GPU_0}::1", container="b"),
        pods=(pod("p", "a", "b"),),
        owners=(owner(3, "p", "b"), owner(4, "p", "a")),
    )
    assert {one.container: one.pids for one in attributed([gpu(0, process(3), process(4))], said).holders} == {"a": (4,), "b": (3,)}


def test_processes_are_found_by_static_hash_and_by_container() -> None:
    """A static pod is known by its hash; without a pod UID (a private cgroup namespace) the container id tells."""
    known = (pod("static", static_hash="f" * 32), pod("own", "agent"))
    owners = (ProcessOwner(pid=1, pod_uid="f" * 32), ProcessOwner(pid=2, container_id="id-own-agent"))
    found = attributed([gpu(0, process(1), process(2))], views(pods=known, owners=owners))
    assert [(one.pod, one.container) for one in found.holders] == [("static", ""), ("own", "agent")]


def test_k9_a_pod_that_the_watch_has_not_told_of_waits() -> None:
    """While the watch is live or starting, a pod it has not told of holds nothing yet: no series that is renamed at once."""
    for api in (SourceState(up=True, fault=""), SourceState()):
        found = attributed([gpu()], views(given("new", GPU_0), pods=(), api=api))
        assert (found.holders, reasons(found)) == ((), ["pod_unknown"])


def test_k5_k6_facts_are_kept_while_a_source_is_down() -> None:
    """With the API server gone known pods keep their jobs and new ones are shown by name; with the kubelet gone holders stay."""
    known = (pod("old", labels={"team": "a"}),)
    found = attributed([gpu(0), gpu(1)], views(given("old", GPU_0), given("new", GPU_1), pods=known, api=GONE))
    assert [(one.pod, one.labels, one.job.kind) for one in found.holders] == [("old", ("a",), "Pod"), ("new", ("",), "Pod")]
    assert pods_on(attributed([gpu(0)], views(given("old", GPU_0), pods=known, kubelet=GONE))) == ["old"]


def test_kubelet_alone_tells_pod_and_container() -> None:
    """With PodResources only, each holder is of kind Pod under its own name."""
    holder = only(attributed([gpu()], views(given("p", GPU_0, container="c"))))
    assert (holder.namespace, holder.pod, holder.container, holder.job.kind, holder.job.name) == ("team", "p", "c", "Pod", "p")


def test_k11_a_sidecar_holds() -> None:
    """The container that the kubelet names is the holder's, also an init container that stays."""
    said = views(
        given("p", GPU_0, container="gpu-sidecar"), pods=(pod("p", "main", "gpu-sidecar"),), owners=(owner(9, "p", "gpu-sidecar"),)
    )
    holder = only(attributed([gpu(0, process(9))], said))
    assert (holder.container, holder.pids) == ("gpu-sidecar", (9,))


def test_k12_dra_devices_are_found() -> None:
    """By UUID; a MIG device without one by parent and profile, when there is one of that profile; several pods may share a claim."""
    gpus = [gpu(0), mig_gpu(1, (1, 0, "3g.71gb"), (2, 0, "1g.18gb"), (3, 0, "1g.18gb"))]
    devices = (
        dra_device("gpu-0", uuid=GPU_0),
        dra_device("static", kind="mig", uuid=mig_uuid(1, 1), parent_uuid=GPU_1, profile="1g.18gb"),
        dra_device("dynamic", kind="mig", parent_uuid=GPU_1, profile="3g.71gb"),
    )
    said = views(
        claimed("a", "gpu-0"),
        claimed("b", "gpu-0"),
        claimed("c", "static"),
        claimed("d", "dynamic"),
        pods=tuple(pod(name) for name in "abcd"),
        devices=devices,
    )
    found = attributed(gpus, said)
    assert pods_on(found, GPU_0) == ["a", "b"]
    assert pods_on(found, mig_uuid(1, 1)) == ["c"]
    assert pods_on(found, mig_uuid(1, 0)) == ["d"]
    assert (found.unknown_devices, reasons(found)) == ((), ["not_allocated"])


def test_k12_dra_that_cannot_be_resolved_is_named_not_guessed() -> None:
    """Two instances of the wanted profile, or a claim without a slice: nobody holds, and the device is named once."""
    gpus = [mig_gpu(1, (2, 0, "1g.18gb"), (3, 0, "1g.18gb"))]
    said = views(
        claimed("a", "dynamic"),
        claimed("b", "no-slice"),
        pods=(pod("a"), pod("b")),
        devices=(dra_device("dynamic", kind="mig", parent_uuid=GPU_1, profile="1g.18gb"),),
    )
    found = attributed(gpus, said)
    assert found.holders == ()
    assert reasons(found) == ["unknown_device", "unknown_device"]
    assert found.unknown_devices == ("gpu.nvidia.com/dynamic", "gpu.nvidia.com/no-slice")


def test_administrative_claims_and_virtual_machines_hold_nothing() -> None:
    """A monitoring claim leaves the GPU free; a VFIO device and another driver's device are no GPUs of ours and no complaint."""
    said = views(
        claimed("monitor", "gpu-0", claim="admin"),
        claimed("vm", "gpu-vfio-1"),
        claimed("net", "nic-0", driver="net.example.com"),
        claimed("domain", "channel-0", driver="compute-domain.example.com"),
        pods=tuple(pod(name) for name in ("monitor", "vm", "net", "domain")),
        devices=(dra_device("gpu-0", uuid=GPU_0), dra_device("gpu-vfio-1", kind="vfio", uuid=GPU_0)),
        admin=frozenset({("team", "admin")}),
    )
    found = attributed([gpu()], said)
    assert (found.holders, reasons(found), found.unknown_devices) == ((), ["not_allocated"], ())


@pytest.mark.parametrize(
    ("device_id", "held"),
    [
        ("nvidia7", [gpu_uuid(0)]),
        ("nvidia7/vgpu3", [gpu_uuid(0)]),
        ("nvidia1/gi2", [mig_uuid(1, 1)]),
        ("nvidia1/gi2/vgpu1", [mig_uuid(1, 1)]),
        ("nvidia1/gi1", [mig_uuid(1, 0), mig_uuid(1, 2)]),
        (f"{GPU_0}-3", [gpu_uuid(0)]),
        (f"MIG-{GPU_1}/1/1", [mig_uuid(1, 2)]),
        (f"{mig_uuid(1, 2)}::4", [mig_uuid(1, 2)]),
        ("all", [gpu_uuid(0), mig_uuid(1, 0), mig_uuid(1, 1), mig_uuid(1, 2)]),
        ("nvidia0", []),
        ("nvidia1", []),
        (GPU_1, []),
        (f"MIG-{GPU_1}/9/0", []),
        (f"MIG-{GPU_0}/1/0", []),
        (mig_uuid(5, 5), []),
        ("strange", []),
    ],
)
def test_every_form_of_id_names_its_devices(device_id: str, held: list[str]) -> None:
    """GKE counts by minor number and names GPU instances; HAMi appends a number; old MIG ids say both; the unknown is named."""
    gpus = [gpu(0, minor=7), mig_gpu(1, (1, 0, "1c.2g.35gb"), (2, 0, "1g.18gb"), (1, 1, "1c.2g.35gb"))]
    found = attributed(gpus, views(given("p", device_id), pods=(pod("p"),)))
    assert sorted(one.mig_uuid or one.gpu_uuid for one in found.holders) == sorted(held)
    assert found.unknown_devices == (() if held else (device_id,))
    assert len(found.unattributed) == 4 - len(held)


def test_old_drivers_name_instances_by_their_gpu() -> None:
    """Before R470 NVML itself writes the long form, and it is found as it stands."""
    old = f"MIG-{GPU_1}/1/0"
    found = attributed([mig_gpu(1, (1, 0, "1g.5gb"), uuids=(old,))], views(given("p", old), pods=(pod("p"),)))
    assert only(found).mig_uuid == old


def test_two_compute_instances_are_two_devices() -> None:
    """Processes of two compute instances in one GPU instance go to the holder of each; one without a compute instance to neither alone."""
    on_mig = (
        Process(pid=1, kind="compute", gpu_instance=1, compute_instance=0),
        Process(pid=2, kind="compute", gpu_instance=1, compute_instance=1),
    )
    elsewhere = Process(pid=3, kind="compute", gpu_instance=2, compute_instance=0)
    gpus = [mig_gpu(1, (1, 0, "1c.2g.35gb"), (1, 1, "1c.2g.35gb"), processes=(*on_mig, elsewhere))]
    said = views(
        given("a", mig_uuid(1, 0)),
        given("b", mig_uuid(1, 1)),
        pods=(pod("a"), pod("b"), pod("c")),
        owners=(owner(1, "a"), owner(2, "b"), owner(3, "c")),
    )
    found = attributed(gpus, said)
    assert {one.pod: (one.pids, one.profile, one.shared) for one in found.holders} == {
        "a": ((1,), "1c.2g.35gb", False),
        "b": ((2,), "1c.2g.35gb", False),
    }


def test_m6_56_instances_half_unknown() -> None:
    """Of 56 MIG ids the 28 that exist are held, the others are named once each, without a question to NVML."""
    gpus = [mig_gpu(number, *SEVEN) for number in range(4)]
    ids = [mig_uuid(number, slot) for number in range(8) for slot in range(7)]
    said = views(*(given(f"p{at}", one) for at, one in enumerate(ids)), *(given("again", one) for one in ids[28:]), pods=None)
    found = attributed(gpus, said)
    assert len(found.holders) == 28
    assert found.unknown_devices == tuple(sorted(ids[28:]))
    assert found.unattributed == ()


def test_an_unread_mig_gpu_makes_no_complaint() -> None:
    """While a GPU in MIG mode cannot be read its instances are no unknown devices and have no reason."""
    lost = msgspec.structs.replace(mig_gpu(1, *SEVEN), up=False, fault="gpu_is_lost", fast=None, medium=None)
    said = views(given("p", mig_uuid(1, 3)), given("q", f"MIG-{GPU_1}/1/0"), given("r", GPU_1), pods=(pod("p"), pod("q"), pod("r")))
    found = attributed([gpu(0), lost], said)
    assert (found.holders, found.unknown_devices) == ((), (GPU_1,))
    assert [one.gpu_uuid for one in found.unattributed] == [GPU_0]


def test_a_gpu_without_uuid_is_no_device() -> None:
    """A GPU that has not told its UUID cannot be held and has no reason."""
    unread = Gpu(identity=msgspec.structs.replace(gpu(0).identity, uuid=""), up=False, fault="starting")
    assert attributed([unread], views(given("p", "nvidia0"))) == Attribution(unknown_devices=("nvidia0",))


REASONED: dict[str, tuple[Gpu, Views]] = {
    "not_allocated": (gpu(), views(pods=(), owners=())),
    "unknown_device": (gpu(), views(given("p", GPU_1), pods=(pod("p"),))),
    "pod_unknown": (gpu(), views(given("p", GPU_0), pods=())),
    "pod_ended": (gpu(), views(given("p", GPU_0), pods=(pod("p", phase="Failed"),))),
    "source_down": (gpu(), views(kubelet=GONE)),
    "process_outside_pod": (gpu(0, process(1)), views(pods=(), owners=(owner(1),))),
}


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_reason_is_reached(reason: str) -> None:
    """Each reason of the metric has a case in which it is given."""
    shown, said = REASONED[reason]
    found = attributed([shown], said)
    assert (found.holders, reasons(found)) == ((), [reason])


def test_processes_tell_the_right_reason() -> None:
    """K13, K14: a process of a pod that is not known yet, or is over, is not outside pods; one that is unseen tells nothing."""
    shown = [gpu(0, process(1))]
    assert reasons(attributed(shown, views(pods=(), owners=(owner(1, "new"),)))) == ["pod_unknown"]
    assert reasons(attributed(shown, views(owners=(owner(1, "new"),)))) == ["pod_unknown"]
    assert reasons(attributed(shown, views(pods=(pod("old", phase="Failed"),), owners=(owner(1, "old"),)))) == ["pod_ended"]
    assert reasons(attributed(shown, views(pods=(), owners=()))) == ["not_allocated"]
    assert reasons(attributed(shown, views(pods=(), owners=(owner(1),), kernel=SourceState(fault="no_host_pid")))) == ["not_allocated"]


def test_k14_without_host_pids_allocations_still_count() -> None:
    """With no process known each holder is there, without processes."""
    said = views(given("p", GPU_0), pods=(pod("p"),), owners=(), kernel=SourceState(fault="no_host_pid"))
    assert only(attributed([gpu(0, process(1))], said)).pids == ()


def test_a_broken_id_harms_nobody_else() -> None:
    """Junk ids, empty ids and ids beyond all length stand beside a good one that is held; another vendor's are no complaint."""
    junk = ["", "GPU-", "::", "nvidia", "x" * 10_000, "GPU-0::0::0"]
    said = views(
        *(given("j", one) for one in junk), given("net", "mlx5_0", resource="rdma/hca"), given("p", GPU_0), pods=(pod("p"), pod("j"))
    )
    found = attributed([gpu()], said)
    assert pods_on(found) == ["p"]
    assert set(found.unknown_devices) == set(junk) - {""}
