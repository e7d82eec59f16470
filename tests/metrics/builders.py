"""Snapshots as a real node gives them: full H100 boards, with and without MIG, a small board, a lost one."""

from __future__ import annotations

import msgspec

from gpuwatch.device.readings import (
    THROTTLE_REASONS,
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
    Modes,
    Reason,
    Snapshot,
    Totals,
    Unattributed,
    Verdict,
    XidCount,
)

GIB = 1024**3


def h100_identity(index: int) -> Identity:
    """Identity of an H100 SXM, different for each index."""
    return Identity(
        index=index,
        uuid=f"GPU-{index:08d}-1111-2222-3333-444444444444",
        model="NVIDIA H100 80GB HBM3",
        serial=f"165402300{index:04d}",
        minor_number=index,
        pci_bus_id=f"00000000:{index + 16:02X}:00.0",
        vbios="96.00.74.00.01",
        board_part_number="692-2G520-0200-000",
        architecture="hopper",
        compute_capability="9.0",
        clock_max_hertz={"graphics": 1.98e9, "sm": 1.98e9, "memory": 2.619e9, "video": 1.545e9},
        temperature_limit_celsius={"shutdown": 92.0, "slowdown": 89.0, "gpu_max": 87.0},
        temperature_limit_offset_celsius={"shutdown": -8.0, "slowdown": -2.0, "memory_max": 0.0, "gpu_max": 0.0},
        pcie_generation_max=5,
        pcie_width_max=16,
        nvlink_count=18,
        nvlink_speed_bytes_per_second=26.562e9,
    )


def h100_activity() -> Activity:
    """GPM under a training load."""
    return Activity(
        graphics_ratio=0.914,
        sm_active_ratio=0.872,
        sm_occupancy_ratio=0.131,
        tensor_active_ratio=0.853,
        dram_active_ratio=0.152,
        pipe_active_ratio={
            "fp64": 0.0,
            "fp32": 0.02,
            "fp16": 0.0,
            "integer": 0.11,
            "tensor_half": 0.853,
            "tensor_integer": 0.0,
        },
        pcie_bytes_per_second={"rx": 123456789.0, "tx": 98765.4},
        nvlink_bytes_per_second={"rx": 7.93e9, "tx": 7.91e9},
    )


def h100_fast() -> Fast:
    """One fast pass under a training load."""
    return Fast(
        utilization_ratio=0.93,
        memory_activity_ratio=0.41,
        engine_utilization_ratio={"encoder": 0.0, "decoder": 0.0, "jpeg": 0.0, "ofa": 0.0},
        memory=Memory(total_bytes=80 * GIB, used_bytes=61 * GIB + 1, free_bytes=18 * GIB, reserved_bytes=615 * 1024**2),
        temperature_celsius={"gpu": 55.0, "memory": 61.0},
        power_watts=690.125,
        power_instant_watts=697.0,
        clock_hertz={"graphics": 1.506e9, "sm": 1.506e9, "memory": 2.619e9, "video": 1.2e9},
        performance_state=0,
        throttle_reasons=("software_power_cap",),
        processes=(Process(pid=4242, kind="compute", used_bytes=60 * GIB), Process(pid=4242, kind="graphics")),
    )


def h100_medium() -> Medium:
    """One medium pass of a sound board."""
    return Medium(
        energy_joules=123456.789,
        temperature_margin_celsius=31.0,
        power_limit_watts={"enforced": 700.0, "default": 700.0, "min": 200.0, "max": 700.0},
        throttled_seconds={"software_power_cap": 5.25},
        activity=h100_activity(),
        bar1_used_bytes=2 * 1024**2,
        persistence_mode=True,
        compute_mode="default",
        mig_enabled=False,
        mig_pending=False,
        health=Health(
            ecc_enabled=True,
            ecc_errors=tuple(
                EccCount(severity=severity, scope=scope, location=location, count=0)
                for severity in ("corrected", "uncorrected")
                for scope in ("volatile", "aggregate")
                for location in ("total", "dram", "sram")
            ),
            remapped_rows={"corrected": 0, "uncorrected": 0},
            row_remap_pending=False,
            row_remap_failed=False,
            row_remap_banks={"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0},
            recovery_action=0,
        ),
        links=Links(
            pcie_generation=5,
            pcie_width=16,
            pcie_replays=0,
            nvlink_up=dict.fromkeys(range(18), True),
            nvlink_bytes={"rx": 7 * 10**15, "tx": 7 * 10**15 + 1},
            nvlink_errors={"replay": 0, "recovery": 0, "crc": 1},
            nvlink_link_errors={17: {"crc": 1}},
            fabric_healthy=True,
        ),
    )


def h100(index: int) -> Gpu:
    """A whole H100 with every value that the board reports."""
    return Gpu(
        identity=h100_identity(index),
        up=True,
        fast=h100_fast(),
        medium=h100_medium(),
        modes=Modes(ecc_enabled=True, mig_enabled=False, mig_pending=False, compute_mode="default", persistence_mode=True),
        totals=Totals(
            busy_seconds=1234.5,
            energy_joules=98765432.1,
            throttled_seconds={reason: 0.5 for reason in THROTTLE_REASONS.values() if reason != "idle"} | {"board_limit": 0.0},
        ),
    )


def h100_mig(index: int) -> Gpu:
    """An H100 cut in seven, each slice at work; the parent refuses what it refuses with MIG on."""
    whole = h100(index)
    assert whole.fast is not None
    assert whole.medium is not None
    instances = tuple(
        MigInstance(
            uuid=f"MIG-{index:02d}{slot:02d}0000-1111-2222-3333-444444444444",
            gpu_instance=7 + slot,
            compute_instance=0,
            profile="1g.10gb",
            sm_count=16,
            memory_total_bytes=10 * GIB,
        )
        for slot in range(7)
    )
    fast = msgspec.structs.replace(
        whole.fast,
        utilization_ratio=None,
        memory_activity_ratio=None,
        engine_utilization_ratio={},
        mig_memory={instance.uuid: Memory(total_bytes=10 * GIB, used_bytes=3 * GIB) for instance in instances},
    )
    medium = msgspec.structs.replace(
        whole.medium,
        mig_enabled=True,
        mig_pending=True,
        mig_instances=instances,
        activity=None,
        mig_activity={instance.uuid: h100_activity() for instance in instances},
    )
    return msgspec.structs.replace(whole, fast=fast, medium=medium)


def t4(index: int) -> Gpu:
    """A board that refuses much: no GPM, NVLink, MIG, HBM sensor or fan; retired pages instead of row remapping."""
    return Gpu(
        identity=Identity(index=index, uuid=f"GPU-t4-{index}", model="Tesla T4", architecture="turing", compute_capability="7.5"),
        up=True,
        fast=Fast(utilization_ratio=0.0, temperature_celsius={"gpu": 38.0}, power_watts=9.8, throttle_reasons=()),
        medium=Medium(
            fan_speed_ratio={0: 0.3},
            health=Health(ecc_enabled=True, retired_pages={"single_bit": 1, "double_bit": 0}, retired_pages_pending=False),
            links=Links(pcie_generation=1, pcie_width=8, pcie_bytes_per_second={"rx": 1e6, "tx": 0.0}),
        ),
        totals=Totals(busy_seconds=0.0),
    )


def lost(gpu: Gpu, fault: str = "gpu_is_lost") -> Gpu:
    """The same GPU after it stopped answering, with the XID that told of it."""
    fell_off = XidCount(xid="79", category="pcie_bus", severity="page", count=1, last_seen_seconds=1764471200.5)
    return msgspec.structs.replace(gpu, up=False, fault=fault, xids=(fell_off,))


def snapshot(*gpus: Gpu, node: str = "node-1") -> Snapshot:
    """A node that holds these GPUs and has run into each kind of trouble once."""
    return Snapshot(
        node=node,
        timestamp_seconds=1764471234.125,
        version="0.1.0",
        simulated=True,
        up=True,
        ready=True,
        driver_version="580.159.04",
        nvml_version="13.580.159.04",
        cuda_version="13.0",
        gpus=gpus,
        agent=Agent(
            read_duration_seconds={"fast": 0.00012, "medium": 0.0213, "static": 0.4},
            last_read_timestamp_seconds={"fast": 1764471234.125, "medium": 1764471230.5, "static": 1764470000.0},
            nvml_errors={("nvmlDeviceGetPowerUsage", "UNKNOWN"): 3, ("nvmlDeviceGetEccMode", "GPU_IS_LOST"): 1_000_000},
            nvml_rejected_values={"utilization_ratio": 2},
            reader_restarts={"crash": 1},
        ),
        listening=Listening(sources=(SourceHealth(source="kernel_log", up=True), SourceHealth(source="nvml", up=True))),
    )


def down(node: str = "node-1") -> Snapshot:
    """A node whose driver is not there yet."""
    return Snapshot(node=node, timestamp_seconds=1764471234.125, version="0.1.0", fault="driver_not_loaded")


def mixed() -> Snapshot:
    """Every kind of device at once: each metric of the catalogue but those of a node that is down."""
    listening = Listening(
        sources=(SourceHealth(source="kernel_log", up=False, fault="permission"), SourceHealth(source="nvml", up=True)),
        log_lines={"xid": 800_000, "sxid": 2},
        sxid_errors={("20034", "fatal"): 1},
    )
    return judged(attributed(msgspec.structs.replace(snapshot(h100(0), h100_mig(1), t4(2), lost(h100(3))), listening=listening)))


def judged(shown: Snapshot) -> Snapshot:
    """Every GPU has a verdict: those that answer are sound, though one has a job to be started again, and the others have failed."""
    own_fault = Reason(code="xid_31", severity="info", action="restart_job")
    sound = Verdict(state="ok", action="restart_job", reasons=(own_fault,))
    gone = (
        Reason(code="gpu_lost", severity="page", action="reboot_node"),
        Reason(code="row_remap_pending", severity="ticket", action="reset_gpu"),
    )
    failed = Verdict(state="failed", action="reboot_node", reasons=gone)
    gpus = (msgspec.structs.replace(gpu, verdict=sound if gpu.up else failed) for gpu in shown.gpus)
    return msgspec.structs.replace(shown, gpus=tuple(gpus))


def attributed(shown: Snapshot) -> Snapshot:
    """The first GPU and a MIG instance of the second are held, the other devices are not; one source is down."""
    mig = shown.gpus[1].medium.mig_instances[0] if shown.gpus[1].medium else None
    assert mig is not None
    tfjob = JobRef(kind="TFJob", name="mnist", replica_type="worker", replica_index="0", framework="tensorflow", framework_reason="owner")
    whole = Holder(
        gpu_uuid=shown.gpus[0].identity.uuid, namespace="research", pod="mnist-worker-0", container="tensorflow", job=tfjob, idle_ok=True
    )
    part = Holder(
        gpu_uuid=shown.gpus[1].identity.uuid,
        mig_uuid=mig.uuid,
        namespace="dev",
        pod="nb-0",
        container="nb",
        job=JobRef(kind="Pod", name="nb-0"),
    )
    return msgspec.structs.replace(
        shown,
        jobs=(
            JobUse(
                holder=whole,
                allocated_seconds=60.5,
                busy_seconds=12.25,
                energy_joules=9000.0,
                nvlink_bytes={"rx": 5, "tx": 7},
                utilization_ratio=0.2,
                memory_used_bytes=GIB,
                power_watts=300.0,
                sm_active_ratio=0.1,
                tensor_active_ratio=0.05,
            ),
            JobUse(holder=part, held=False, allocated_seconds=1.0),
        ),
        kubernetes=Kubernetes(
            sources={"podresources": SourceState(up=True, fault=""), "pods": SourceState(up=False, fault="forbidden")},
            age_seconds={"podresources": 3.0, "pods": 600.0},
            unattributed=(
                Unattributed(gpu_uuid=shown.gpus[2].identity.uuid, reason="not_allocated"),
                Unattributed(gpu_uuid=shown.gpus[1].identity.uuid, mig_uuid=mig.uuid, reason="pod_ended"),
            ),
            unknown_devices=("GPU-x",),
            notices={"posted": 2, "already_told": 1},
        ),
    )
