"""MIG instances."""

from __future__ import annotations

import msgspec

from gpuwatch.device.readings import Fast, Identity, Medium, Memory, MigInstance
from gpuwatch.snapshot import Gpu
from metrics.builders import GIB, h100, h100_mig, lost, snapshot
from metrics.scrape import names, samples, values

SHARED = (
    MigInstance(uuid="MIG-b", gpu_instance=2, compute_instance=1, profile="1c.3g.40gb", memory_total_bytes=40 * GIB),
    MigInstance(uuid="MIG-a", gpu_instance=2, compute_instance=0, profile="1c.3g.40gb", memory_total_bytes=40 * GIB),
    MigInstance(uuid="MIG-c", gpu_instance=3, compute_instance=0, memory_total_bytes=20 * GIB),
)


def cut(instances: tuple[MigInstance, ...], memories: dict[str, Memory]) -> Gpu:
    """A GPU cut into these instances."""
    return Gpu(
        identity=Identity(index=0), up=True, fast=Fast(mig_memory=memories), medium=Medium(mig_enabled=True, mig_instances=instances)
    )


def test_an_instance_is_named_by_its_own_labels_after_those_of_its_gpu() -> None:
    """Seven slices, seven facts, each with the profile and both ids."""
    info = [sample.labels for sample in samples(snapshot(h100(0), h100_mig(1))) if sample.name == "gpuwatch_mig_info"]
    assert len(info) == 7
    assert info[0] == {
        "node": "node-1",
        "gpu": "1",
        "uuid": "GPU-00000001-1111-2222-3333-444444444444",
        "model": "NVIDIA H100 80GB HBM3",
        "mig_uuid": "MIG-01000000-1111-2222-3333-444444444444",
        "profile": "1g.10gb",
        "gpu_instance": "7",
        "compute_instance": "0",
    }


def test_the_parent_shows_heat_and_power_once() -> None:
    """Power and temperature belong to the board; the parent's utilisation is absent (M2)."""
    shown = snapshot(h100_mig(0))
    assert len(values(shown, "gpuwatch_gpu_power_watts", "gpu", "uuid")) == 1
    assert "gpuwatch_gpu_utilization_ratio" not in names(shown)
    assert values(shown, "gpuwatch_mig_sm_active_ratio", "gpu_instance") == {(str(slot),): 0.872 for slot in range(7, 14)}


def test_memory_of_a_gpu_instance_is_counted_once() -> None:
    """Of two compute instances the one that was read shows the memory, so that a sum is right (M4)."""
    use = {"MIG-b": Memory(total_bytes=39 * GIB, used_bytes=5), "MIG-c": Memory(used_bytes=0)}
    shown = snapshot(cut(SHARED, use))
    assert values(shown, "gpuwatch_mig_memory_total_bytes", "mig_uuid") == {("MIG-b",): 39.0 * GIB, ("MIG-c",): 20.0 * GIB}
    assert values(shown, "gpuwatch_mig_memory_used_bytes", "mig_uuid") == {("MIG-b",): 5.0, ("MIG-c",): 0.0}
    assert len(values(shown, "gpuwatch_mig_info", "mig_uuid")) == 3


def test_without_a_reading_the_lowest_compute_instance_stands_for_the_rest() -> None:
    """The size of an instance is known from its enumeration; what is used is absent."""
    shown = snapshot(cut(SHARED, {}))
    assert values(shown, "gpuwatch_mig_memory_total_bytes", "mig_uuid") == {("MIG-a",): 40.0 * GIB, ("MIG-c",): 20.0 * GIB}
    assert "gpuwatch_mig_memory_used_bytes" not in names(shown)


def test_gone_instances_are_gone() -> None:
    """After a reshape, with a stale tier or on a lost board no instance is shown (M1)."""
    gpu = h100_mig(0)
    reshaped = cut(SHARED[2:], {})
    assert values(snapshot(reshaped), "gpuwatch_mig_info", "mig_uuid") == {("MIG-c",): 1.0}
    for shown in (lost(gpu), msgspec.structs.replace(gpu, medium=None)):
        assert not {name for name in names(snapshot(shown)) if name.startswith("gpuwatch_mig_")}


def test_a_whole_gpu_beside_a_cut_one_is_right_too() -> None:
    """Each kind shows its own metrics (M5)."""
    shown = snapshot(h100(0), h100_mig(1))
    assert values(shown, "gpuwatch_gpu_utilization_ratio", "gpu") == {("0",): 0.93}
    assert {gpu for (gpu,) in values(shown, "gpuwatch_mig_info", "gpu")} == {"1"}
