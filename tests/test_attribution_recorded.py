"""What a real node answered, through the real decoders, to the holders it had: kubelet, API server, kernel and NVML in one picture."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cluster import UP, attributed, gpu, mig_gpu, process
from gpuwatch.attribution import Attribution
from gpuwatch.kube.allocations import decode_v1
from gpuwatch.kube.objects import Allocations, DraDevices, Pods, ProcessOwners, Views
from gpuwatch.kube.pods import decode_pod
from gpuwatch.kube.processes import ProcessSource
from gpuwatch.kube.slices import devices_of
from gpuwatch.snapshot import Gpu
from kube.kubelet import LISTED
from kube.proctree import ProcTree

RECORDINGS = Path(__file__).parent / "recordings" / "kubernetes"
SHARED = "GPU-000000aa-aaaa-4bbb-8ccc-0000000000aa"
PLAIN = tuple(f"GPU-0000000{n}-aaaa-4bbb-8ccc-00000000000{n}" for n in (1, 2, 3, 5, 6, 7))
MIG_A, MIG_B = "MIG-0000000a-1111-5222-8333-000000000002", "MIG-0000000a-1111-5222-8333-000000000001"
BY_SLICE = ("GPU-33333333-3333-3333-3333-333333333333", "GPU-44444444-4444-4444-4444-444444444444")
MIG_BY_SLICE = "MIG-55555555-5555-5555-5555-555555555555"
FREE = "GPU-0000000f-aaaa-4bbb-8ccc-00000000000f"


def pid_of(pod_name: str) -> int:
    """The recorded PID of the pod's container, not of its sandbox."""
    entries = json.loads((RECORDINGS / "proc-cgroups.json").read_text())
    pods = {item["metadata"]["name"]: item for item in json.loads((RECORDINGS / "pods-list.json").read_text())["items"]}
    runs = [status["containerID"].rpartition("/")[2] for status in pods[pod_name]["status"]["containerStatuses"]]
    return next(int(one["pid"]) for one in entries if one["pod"].endswith(f"/{pod_name}") and any(run in one["cgroup"] for run in runs))


def inventory() -> list[Gpu]:
    """GPUs with the ids that the recordings name, and a free one; with the recorded processes on some."""
    pids = {PLAIN[0]: ["resnet50-chief-0"], SHARED: ["serve-0", "serve-1"], FREE: ["notebook-ana-0"]}
    whole = (*PLAIN, SHARED, *BY_SLICE, FREE)
    gpus = [gpu(at, *(process(pid_of(name)) for name in pids.get(uuid, [])), uuid=uuid) for at, uuid in enumerate(whole)]
    cut = mig_gpu(20, (1, 0, "1g.5gb"), (2, 0, "1g.5gb"), uuids=(MIG_B, MIG_A))
    return [*gpus, cut, mig_gpu(21, (1, 0, "1g.18gb"), uuids=(MIG_BY_SLICE,))]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Attribution:
    """The holders of the recorded node."""
    tree = ProcTree(tmp_path_factory.mktemp("proc"))
    for entry in json.loads((RECORDINGS / "proc-cgroups.json").read_text()):
        tree.add(entry["pid"], cgroup=entry["cgroup"], name=entry["comm"])
    gpus = inventory()
    pids = {one.pid for shown in gpus if shown.fast for one in shown.fast.processes or ()}
    owners = ProcessSource(tree.root, boot_offset=lambda: 0.0, ticks_per_second=100).look_up(pids, now=1e6)
    assert set(owners.owners) == pids
    pods = tuple(decode_pod(json.dumps(item).encode()) for item in json.loads((RECORDINGS / "pods-list.json").read_text())["items"])
    (item,) = json.loads((RECORDINGS / "resourceslices-v1.json").read_text())["items"]
    said = Views(
        allocations=Allocations(state=UP, allocations=decode_v1(LISTED).allocations),
        pods=Pods(state=UP, pods=pods),
        dra=DraDevices(state=UP, devices=devices_of(json.dumps(item).encode()) or ()),
        processes=ProcessOwners(state=UP, owners=owners.owners),
    )
    return attributed(gpus, said)


def test_every_recorded_allocation_has_its_holder(found: Attribution) -> None:
    """Whole GPUs, a sidecar's, time slices, MIG, a claim and an extended resource served by DRA: each under pod, container and job."""
    holders = {(one.mig_uuid or one.gpu_uuid, one.pod): (one.container, one.job.kind, one.job.name, one.shared) for one in found.holders}
    assert holders == {
        (PLAIN[0], "resnet50-chief-0"): ("tensorflow", "TFJob", "resnet50", False),
        (PLAIN[1], "sidecar"): ("gpu-sidecar", "Pod", "sidecar", False),
        (PLAIN[2], "finetune-0-m62sr"): ("train", "Job", "finetune", False),
        (PLAIN[3], "legacy-worker-0"): ("tensorflow", "TFJob", "legacy", False),
        (PLAIN[4], "resnet50-worker-0"): ("tensorflow", "TFJob", "resnet50", False),
        (PLAIN[5], "legacy-worker-0"): ("tensorflow", "TFJob", "legacy", False),
        (SHARED, "serve-0"): ("kserve-container", "InferenceService", "bert", True),
        (SHARED, "serve-1"): ("kserve-container", "InferenceService", "bert", True),
        (SHARED, "serve-2"): ("kserve-container", "InferenceService", "bert", True),
        (BY_SLICE[0], "d2"): ("c", "Pod", "d2", False),
        (BY_SLICE[1], "d1"): ("c", "Pod", "d1", False),
        (MIG_A, "mig-a"): ("main", "Pod", "mig-a", False),
        (MIG_B, "mig-b"): ("main", "Pod", "mig-b", False),
        (MIG_BY_SLICE, "d1"): ("c", "Pod", "d1", False),
        (FREE, "notebook-ana-0"): ("notebook-ana", "Notebook", "notebook-ana", False),
    }
    assert (found.unattributed, found.unknown_devices) == ((), ())


def test_recorded_processes_find_their_pods(found: Attribution) -> None:
    """By the real cgroups: of time slices each has its own, and the notebook that was given nothing is a holder that did not ask."""
    by_pod = {one.pod: one for one in found.holders}
    assert by_pod["serve-0"].pids == (pid_of("serve-0"),)
    assert by_pod["serve-1"].pids == (pid_of("serve-1"),)
    assert by_pod["serve-2"].pids == ()
    assert [one.pod for one in found.holders if not one.requested] == ["notebook-ana-0"]


def test_parameter_servers_and_evaluators_hold_nothing(found: Attribution) -> None:
    """Of the recorded TFJob only chief and worker hold GPUs."""
    roles = {one.job.replica_type for one in found.holders if one.job.name == "resnet50"}
    assert roles == {"chief", "worker"}
    assert not [one.pod for one in found.holders if re.search("-(ps|evaluator)-", one.pod)]
