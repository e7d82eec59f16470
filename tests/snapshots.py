"""Example snapshots that tests of several parts share: a sound node, one in trouble, one that wants to break out of its text."""

from __future__ import annotations

import msgspec

from gpuwatch.device.readings import (
    Activity,
    EccCount,
    Fast,
    Health,
    Identity,
    Links,
    Medium,
    Memory,
    MigInstance,
    Process,
    SourceHealth,
)
from gpuwatch.kube.objects import JobRef, SourceState
from gpuwatch.snapshot import (
    Agent,
    Gpu,
    Holder,
    JobUse,
    Kubernetes,
    Listening,
    Reason,
    Snapshot,
    Totals,
    Unattributed,
    Verdict,
    XidCount,
)

GIB = 1 << 30
HOSTILE = "<script>document.title='owned'</script>\"'&\\\n</style>"


def h100(index: int = 0, *, up: bool = True, fault: str = "") -> Gpu:
    """An H100 that reports everything; down: identity and totals only."""
    identity = Identity(
        index=index,
        uuid=f"GPU-00000000-0000-0000-0000-{index:012d}",
        model="NVIDIA H100 80GB HBM3",
        serial="1650000000000",
        pci_bus_id=f"00000000:{index + 0x1B:02X}:00.0",
        compute_capability="9.0",
        temperature_limit_celsius={"slowdown": 89.0, "shutdown": 92.0},
        pcie_generation_max=5,
        pcie_width_max=16,
    )
    totals = Totals(busy_seconds=1234.5, energy_joules=9.75e6, throttled_seconds={"software_power_cap": 12.0})
    if not up:
        return Gpu(identity=identity, up=False, fault=fault, totals=totals)
    fast = Fast(
        utilization_ratio=0.87,
        memory_activity_ratio=0.4,
        memory=Memory(total_bytes=80 * GIB, used_bytes=62 * GIB, free_bytes=17 * GIB, reserved_bytes=GIB),
        temperature_celsius={"gpu": 61.0, "memory": 70.0},
        power_watts=523.4,
        clock_hertz={"sm": 1.98e9, "memory": 2.619e9},
        performance_state=0,
        throttle_reasons=("software_power_cap",),
        processes=(Process(pid=4242, kind="compute", used_bytes=61 * GIB),),
    )
    medium = Medium(
        energy_joules=9.75e6,
        temperature_margin_celsius=26.0,
        activity=Activity(sm_active_ratio=0.8, tensor_active_ratio=0.5, dram_active_ratio=0.3),
        power_limit_watts={"enforced": 700.0, "max": 700.0},
        health=Health(ecc_enabled=True, ecc_errors=(EccCount(severity="corrected", scope="aggregate", location="dram", count=3),)),
        links=Links(pcie_generation=5, pcie_width=16, pcie_replays=0, nvlink_up={link: link != 17 for link in range(18)}),
    )
    return Gpu(identity=identity, up=True, fast=fast, medium=medium, totals=totals)


def a100_mig(index: int = 1) -> Gpu:
    """An A100 in MIG mode: no utilisation of the whole, memory by instance."""
    instances = tuple(
        MigInstance(uuid=f"MIG-{index}-{slot}", gpu_instance=slot + 7, compute_instance=0, profile="1g.10gb", memory_total_bytes=10 * GIB)
        for slot in range(2)
    )
    return Gpu(
        identity=Identity(
            index=index,
            uuid=f"GPU-00000000-0000-0000-0000-{index:012d}",
            model="NVIDIA A100-SXM4-80GB",
            pcie_generation_max=4,
            pcie_width_max=16,
            temperature_limit_celsius={"slowdown": 92.0},
        ),
        up=True,
        fast=Fast(
            memory=Memory(total_bytes=80 * GIB, used_bytes=0),
            temperature_celsius={"gpu": 34.0},
            power_watts=0.0,
            throttle_reasons=("idle",),
            processes=(),
            mig_memory={instances[0].uuid: Memory(total_bytes=10 * GIB, used_bytes=3 * GIB)},
        ),
        medium=Medium(mig_enabled=True, mig_instances=instances, links=Links(pcie_generation=1, pcie_width=16)),
    )


def judged(gpu: Gpu, verdict: Verdict) -> Gpu:
    """The GPU with that verdict."""
    return msgspec.structs.replace(gpu, verdict=verdict)


def node(*gpus: Gpu, simulated: bool = False) -> Snapshot:
    """A node that is read well; without arguments with one H100 and one A100 in MIG mode."""
    return Snapshot(
        node="gpu-node-1",
        timestamp_seconds=1_760_000_000.0,
        version="0.1.0",
        simulated=simulated,
        up=True,
        ready=True,
        driver_version="580.95.05",
        nvml_version="13.580.95.05",
        cuda_version="13.0",
        gpus=gpus or (h100(), a100_mig()),
        agent=Agent(
            read_duration_seconds={"fast": 0.004},
            last_read_timestamp_seconds={"fast": 1_760_000_000.0},
            nvml_errors={("nvmlDeviceGetTemperature", "UNKNOWN"): 2},
        ),
    )


def held(
    gpu: Gpu, pod: str = "resnet-worker-0", *, mig_uuid: str = "", kind: str = "TFJob", shared: bool = False, requested: bool = True
) -> JobUse:
    """A worker that holds the GPU or its MIG instance."""
    job = JobRef(kind=kind, name="resnet", replica_type="worker", replica_index="0", framework="tensorflow", framework_reason="owner")
    holder = Holder(
        gpu_uuid=gpu.identity.uuid,
        mig_uuid=mig_uuid,
        namespace="vision",
        pod=pod,
        container="tensorflow",
        job=job,
        labels=("vision",),
        shared=shared,
        requested=requested,
        pids=(4242,),
    )
    return JobUse(holder=holder, allocated_seconds=60.0, busy_seconds=50.0, utilization_ratio=0.87, nvlink_bytes={"tx": 5})


def attributed(*jobs: JobUse, unattributed: tuple[Unattributed, ...] = (), **sources: SourceState) -> Snapshot:
    """An H100 and an A100 in MIG mode in a cluster; without sources the kubelet and the API server answer."""
    kubernetes = Kubernetes(
        sources=sources or {"podresources": SourceState(up=True, fault="", updated_at=100.0), "pods": SourceState(up=True, fault="")},
        age_seconds={"podresources": 4.0, "pods": 0.0},
        unattributed=unattributed,
    )
    return msgspec.structs.replace(node(), jobs=jobs, kubernetes=kubernetes)


def starting() -> Snapshot:
    """A node before its first read."""
    return Snapshot(
        node="gpu-node-1", timestamp_seconds=1_760_000_000.0, version="0.1.0", fault="starting", detail="no read is complete yet"
    )


def hostile() -> Snapshot:
    """A node where every text tries to leave its place in a page or a label."""
    reason = Reason(code=HOSTILE, severity="page", action="inspect", detail=HOSTILE)
    gpu = Gpu(
        identity=Identity(index=0, uuid=HOSTILE, model=HOSTILE),
        up=False,
        fault=HOSTILE,
        xids=(XidCount(xid=HOSTILE, category=HOSTILE, severity=HOSTILE, count=1, last_seen_seconds=0.0),),
        verdict=Verdict(state="failed", action="inspect", reasons=(reason,)),
        fast=Fast(throttle_reasons=(HOSTILE,), mig_memory={HOSTILE: Memory()}),
        medium=Medium(mig_instances=(MigInstance(uuid=HOSTILE, gpu_instance=1, compute_instance=0, profile=HOSTILE),)),
    )
    job = JobRef(kind=HOSTILE, name=HOSTILE, replica_type=HOSTILE, replica_index=HOSTILE)
    uses = tuple(
        JobUse(holder=Holder(gpu_uuid=HOSTILE, mig_uuid=mig, namespace=HOSTILE, pod=HOSTILE, container=HOSTILE, job=job))
        for mig in ("", HOSTILE)
    )
    kubernetes = Kubernetes(
        sources={HOSTILE: SourceState(fault=HOSTILE, detail=HOSTILE)},
        unattributed=(Unattributed(gpu_uuid=HOSTILE, mig_uuid="other", reason=HOSTILE),),
        unknown_devices=(HOSTILE,),
    )
    return Snapshot(
        node=HOSTILE,
        timestamp_seconds=0.0,
        version=HOSTILE,
        fault=HOSTILE,
        detail=HOSTILE,
        driver_version=HOSTILE,
        cuda_version=HOSTILE,
        gpus=(gpu,),
        jobs=uses,
        kubernetes=kubernetes,
        listening=Listening(sources=(SourceHealth(source="nvml", up=False, fault=HOSTILE),)),
        agent=Agent(nvml_errors={(HOSTILE, HOSTILE): 1}),
    )
