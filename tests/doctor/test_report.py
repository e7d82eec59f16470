"""The report of ``gpuwatch check``: what can be read, and what cannot and why."""

from __future__ import annotations

import msgspec

from gpuwatch.device.readings import Fast, Identity, Medium, Memory
from gpuwatch.doctor.host import DeviceFile, Host, probe_host
from gpuwatch.doctor.report import report_of
from gpuwatch.kube.objects import SourceState
from gpuwatch.snapshot import Gpu, Snapshot, Unattributed
from snapshots import a100_mig, attributed, h100, held

SOUND_HOST = Host(library_path="/usr/lib/libnvidia-ml.so.1", device_files=(DeviceFile(path="/dev/nvidiactl", usable=True),))
T4 = Gpu(
    identity=Identity(index=0, uuid="GPU-1", model="Tesla T4"),
    up=True,
    fast=Fast(utilization_ratio=0.0, memory=Memory(total_bytes=1, used_bytes=0), processes=(), throttle_reasons=()),
    medium=Medium(),
    unsupported={"nvmlDeviceGetRemappedRows": "NOT_SUPPORTED", "nvmlGpmSampleGet": "FUNCTION_NOT_FOUND", "field 82": "STRANGE"},
)


def node(*gpus: Gpu, up: bool = True, fault: str = "") -> Snapshot:
    """A snapshot with these GPUs."""
    return Snapshot(node="n1", timestamp_seconds=1.0, version="1", up=up, fault=fault, driver_version="570.1", gpus=gpus)


def test_sound_node() -> None:
    """A node whose GPUs are all read is healthy; idle values (zero, no process) count as reported."""
    report = report_of(node(T4), SOUND_HOST)
    text = "\n".join(report.lines)
    assert report.healthy
    assert "BAD" not in text
    assert "reports   utilisation, memory, throttle reasons, processes" in text
    assert report.lines[-1] == "Result: 1 of 1 GPUs can be read"


def test_absence_is_explained() -> None:
    """What a GPU does not report comes with its reason in words; an unknown error by its name."""
    text = "\n".join(report_of(node(T4), SOUND_HOST).lines)
    assert "row remapping: this board or driver does not offer it" in text
    assert "SM and tensor activity (GPM): the driver is too old for it" in text
    assert "memory temperature: the driver says STRANGE" in text


def test_mig_explains_missing_utilisation() -> None:
    """With MIG on, a refusal is not blamed on the board alone."""
    gpu = Gpu(
        identity=Identity(index=0),
        up=True,
        medium=Medium(mig_enabled=True),
        unsupported={"nvmlDeviceGetUtilizationRates": "NOT_SUPPORTED"},
    )
    assert "utilisation: not offered while MIG is on" in "\n".join(report_of(node(gpu), SOUND_HOST).lines)


def test_lost_gpu() -> None:
    """One lost GPU makes the node unhealthy, with advice, and leaves the other's lines alone."""
    report = report_of(node(T4, Gpu(identity=Identity(index=1, uuid="GPU-2"), up=False, fault="gpu_is_lost")), SOUND_HOST)
    text = "\n".join(report.lines)
    assert not report.healthy
    assert "cannot be read: gpu_is_lost" in text
    assert "Xid 79" in text
    assert report.lines[-1] == "Result: 1 of 2 GPUs can be read"


def test_no_driver() -> None:
    """Without a driver the report names the missing library, the missing device files and what to do."""
    host = Host(library_error="libnvidia-ml.so.1: cannot open shared object file")
    report = report_of(node(up=False, fault="library_not_found"), host)
    text = "\n".join(report.lines)
    assert not report.healthy
    assert "cannot open shared object file" in text
    assert "no /dev/nvidia* here" in text
    assert "NVIDIA_DRIVER_CAPABILITIES=utility" in text
    assert report.lines[-1] == "Result: no GPU can be read"


def test_device_file_without_access() -> None:
    """A device file that this user may not open is named with its owner and mode."""
    host = Host(library_path="x", device_files=(DeviceFile(path="/dev/nvidia0", usable=False, owner="root:video", mode="660"),))
    assert "/dev/nvidia0 (root:video 660): no read and write access" in "\n".join(report_of(node(T4), host).lines)


def test_simulated_node_says_so() -> None:
    """A simulated node's report never speaks of this machine."""
    text = "\n".join(report_of(node(T4), None).lines)
    assert "SIMULATED" in text
    assert "library" not in text


def attribution_of(snapshot: Snapshot) -> list[str]:
    """The lines of that part."""
    lines = report_of(snapshot, SOUND_HOST).lines
    begin = lines.index("Attribution") + 1
    return list(lines[begin : lines.index("", begin)])


def test_outside_a_cluster_one_line_says_how_to_switch_attribution_on() -> None:
    """A machine in no cluster misses nothing; the setting is named for whoever wants it."""
    (line,) = attribution_of(node(T4))
    assert "no pod of a cluster" in line
    assert "kubernetes.attribution=always" in line


def test_every_device_has_its_holder_or_the_reason() -> None:
    """Whole GPUs and MIG instances are listed with job, pod and marks, or why nobody holds them."""
    parent = a100_mig()
    free = Unattributed(gpu_uuid=parent.identity.uuid, mig_uuid="MIG-1-1", reason="not_allocated")
    uses = (held(h100(), shared=True), held(h100(), "b", shared=True, requested=False), held(parent, mig_uuid="MIG-1-0"))
    assert attribution_of(attributed(*uses, unattributed=(free,)))[2:] == [
        "      GPU 0     TFJob resnet, worker 0 (vision/resnet-worker-0, shared); TFJob resnet, worker 0 (vision/b, shared, not requested)",
        "      GPU 1     MIG-1-0: TFJob resnet, worker 0 (vision/resnet-worker-0)",
        "      GPU 1     MIG-1-1: free: given to nobody",
    ]


def test_source_that_is_down_says_why_and_what_to_do() -> None:
    """The fault, the source's own words and the cure stand together; GPUs that are read stay a healthy node."""
    snapshot = attributed(
        podresources=SourceState(fault="permission", detail="kubelet.sock cannot be opened"),
        pods=SourceState(fault="forbidden", detail="403 pods is forbidden"),
        processes=SourceState(fault="no_host_pid", detail="the node's processes cannot be seen"),
    )
    text = "\n".join(attribution_of(snapshot))
    assert "BAD kubelet   permission: kubelet.sock cannot be opened" in text
    assert "runAsUser: 0" in text
    assert "BAD pods      forbidden: 403 pods is forbidden" in text
    assert 'list and watch on "pods"' in text
    assert "hostPID: true" in text
    assert report_of(snapshot, SOUND_HOST).healthy


def test_unknown_device_ids_are_named() -> None:
    """An id that NVML does not know is shown as the kubelet writes it."""
    snapshot = attributed()
    assert snapshot.kubernetes is not None
    kubernetes = msgspec.structs.replace(snapshot.kubernetes, unknown_devices=("GPU-gone",))
    assert "'GPU-gone', which NVML does not know" in attribution_of(msgspec.structs.replace(snapshot, kubernetes=kubernetes))[-1]


def test_probe_looks_at_this_machine() -> None:
    """Probing works with or without a driver, and finds a library or says why not."""
    host = probe_host()
    assert bool(host.library_path) != bool(host.library_error)
