"""MIG: instances, what the parent refuses, activity per instance, reshaping under a reader."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.device import nvml
from gpuwatch.device.nvml import NVMLError
from nodes import Node

H100 = """
gpus:
  - board: h100-sxm
    mig: [3g.40gb, 2g.20gb, 1g.10gb, 1g.10gb]
    loads: [{kind: matmul, mig: 0}, {kind: held, mig: 1}]
"""


def devices(node: Node, gpu: int = 0) -> list[Any]:
    """Handles of the MIG devices of a GPU, found as a reader finds them."""
    found = []
    for slot in range(node.ask("MaxMigDeviceCount", gpu=gpu)):
        try:
            found.append(node.ask("MigDeviceHandleByIndex", slot, gpu=gpu))
        except NVMLError as error:
            assert error.value == nvml.NOT_FOUND
    return found


def test_devices_as_captured() -> None:
    """The layout of a real capture has its sizes and names, and ids from the ranges that real boards give out."""
    node = Node(H100)
    driver, found = node.driver, devices(node)
    assert [driver.nvmlDeviceGetGpuInstanceId(device) for device in found] == [1, 3, 7, 8]
    assert [driver.nvmlDeviceGetAttributes_v2(device).multiprocessorCount for device in found] == [60, 32, 16, 16]
    assert [driver.nvmlDeviceGetMemoryInfo(device, version=nvml.MEMORY_V2).total >> 20 for device in found] == [40448, 20096, 9984, 9984]
    assert driver.nvmlDeviceGetName(found[0]) == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    assert driver.nvmlDeviceGetHandleByUUID(driver.nvmlDeviceGetUUID(found[2])) == found[2]
    assert driver.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(found[2]) == node.handle()


@pytest.mark.parametrize("board", ["h100-sxm", "a100-80gb-sxm", "h200-sxm"])
def test_parent_refuses_what_mig_takes_away(board: str) -> None:
    """With MIG on the GPU refuses utilisation, engines, NVLink and remapped rows, and keeps heat, power, clocks and ECC (case M2)."""
    node = Node(f"gpus: [{{board: {board}, mig: []}}]")
    for call, arguments in (
        ("UtilizationRates", ()),
        ("EncoderUtilization", ()),
        ("JpgUtilization", ()),
        ("RemappedRows", ()),
        ("NvLinkState", (0,)),
    ):
        assert node.code(call, *arguments) == nvml.NOT_SUPPORTED, call
    for call, arguments in (("Temperature", (0,)), ("PowerUsage", ()), ("ClockInfo", (1,)), ("TotalEccErrors", (0, 0)), ("MemoryInfo", ())):
        assert node.code(call, *arguments) == 0, call
    assert node.field(138, nvml.ALL_LINKS).nvmlReturn == nvml.NOT_SUPPORTED
    assert node.ask("MigMode") == [1, 1]


def test_activity_per_instance() -> None:
    """On Hopper a GPU instance has its own activity, the GPU as a whole none (case M3)."""
    node = Node(H100)
    with pytest.raises(NVMLError) as error:
        node.driver.nvmlGpmSampleGet(node.handle(), node.driver.nvmlGpmSampleAlloc())
    assert error.value.value == nvml.NOT_SUPPORTED
    tensor = {}
    for gpu_instance in (1, 3):
        first, second = node.driver.nvmlGpmSampleAlloc(), node.driver.nvmlGpmSampleAlloc()
        node.driver.nvmlGpmMigSampleGet(node.handle(), gpu_instance, first)
        node.t += 1.0
        node.driver.nvmlGpmMigSampleGet(node.handle(), gpu_instance, second)
        tensor[gpu_instance] = node.driver.gpm_metrics(first, second, (5, 60))
    assert tensor == {1: {5: pytest.approx(92.7)}, 3: {5: 0.0}}


def test_no_activity_per_instance_before_hopper() -> None:
    """An A100 instance has no activity samples."""
    node = Node("gpus: [{board: a100-80gb-sxm, mig: [3g.40gb]}]")
    with pytest.raises(NVMLError) as error:
        node.driver.nvmlGpmMigSampleGet(node.handle(), 1, node.driver.nvmlGpmSampleAlloc())
    assert error.value.value == nvml.NOT_SUPPORTED


def test_two_compute_instances_share_their_memory() -> None:
    """Both devices of one GPU instance show the same memory; their names carry the compute slices (case M4)."""
    node = Node("gpus: [{board: a100-40gb-sxm, mig: [{profile: 3g.20gb, compute: [1, 2]}], loads: [{kind: held, mig: 1}]}]")
    small, large = devices(node)
    assert node.driver.nvmlDeviceGetName(small).endswith("MIG 1c.3g.20gb")
    assert node.driver.nvmlDeviceGetName(large).endswith("MIG 2c.3g.20gb")
    assert node.driver.nvmlDeviceGetMemoryInfo(small) == node.driver.nvmlDeviceGetMemoryInfo(large)
    assert (node.driver.nvmlDeviceGetGpuInstanceId(small), node.driver.nvmlDeviceGetComputeInstanceId(large)) == (1, 1)
    assert node.driver.nvmlDeviceGetComputeRunningProcesses_v3(small) == []


def test_processes_carry_their_instance() -> None:
    """The parent lists all processes with their instance ids; a device lists its own."""
    node = Node(H100)
    listed = node.ask("ComputeRunningProcesses_v3")
    assert [(process.gpuInstanceId, process.computeInstanceId) for process in listed] == [(1, 0), (3, 0)]
    assert node.driver.nvmlDeviceGetComputeRunningProcesses_v3(devices(node)[1]) == [listed[1]]


def test_devices_refuse_what_belongs_to_the_gpu() -> None:
    """A MIG device has no power, heat or utilisation of its own, and counts uncorrected SRAM errors only."""
    node = Node(H100)
    device = devices(node)[0]
    for call in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates"):
        with pytest.raises(NVMLError) as error:
            getattr(node.driver, call)(device)
        assert error.value.value == nvml.NOT_SUPPORTED
    assert node.driver.nvmlDeviceGetMemoryErrorCounter(device, 1, 0, 7) == 0


def test_reshape_under_a_reader() -> None:
    """Whole, seven small, two large, one destroyed while held, whole again: each era has its own devices (case M1)."""
    node, sizes = Node("mig-reshape"), []
    for t in (0.0, 60.0, 120.0, 180.0, 240.0):
        node.t = t
        sizes.append(len(devices(node)))
    assert sizes == [0, 7, 3, 1, 0]


def test_stale_device_handles_fail() -> None:
    """A handle of a device that is gone is refused; a device the reshape left alone keeps its UUID."""
    node = Node("mig-reshape", t=130.0)
    survivor, gone, _ = devices(node)
    uuid = node.driver.nvmlDeviceGetUUID(survivor)
    node.t = 185.0
    assert node.driver.nvmlDeviceGetUUID(survivor) == uuid
    with pytest.raises(NVMLError) as error:
        node.driver.nvmlDeviceGetMemoryInfo(gone)
    assert error.value.value == nvml.INVALID_ARGUMENT
    with pytest.raises(NVMLError) as error:
        node.driver.nvmlDeviceGetHandleByUUID("MIG-00000000-0000-4000-8000-000000000000")
    assert error.value.value == nvml.NOT_FOUND


def test_full_node() -> None:
    """Eight GPUs of seven instances have 56 different UUIDs."""
    node = Node("mig-full")
    uuids = {node.driver.nvmlDeviceGetUUID(device) for gpu in range(8) for device in devices(node, gpu)}
    assert len(uuids) == 56


def test_whole_gpu_beside_a_mig_gpu() -> None:
    """A GPU without MIG on the same node answers as ever (case M5)."""
    node = Node("mixed-fleet", t=10.0)
    assert node.code("UtilizationRates", gpu=0) == nvml.NOT_SUPPORTED
    assert node.code("UtilizationRates", gpu=1) == 0
