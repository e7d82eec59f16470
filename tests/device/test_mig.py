"""MIG: instances come and go, each is counted once, and nothing leaks over thousands of passes."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from gpuwatch.device import nvml
from gpuwatch.device.readings import Medium
from gpuwatch.device.wire import ReaderOptions
from gpuwatch.snapshot import Gpu
from pipeline import Pipeline, check_text, families, of_gpu

SEVEN = "[1g.5gb, 1g.5gb, 1g.5gb, 1g.5gb, 1g.5gb, 1g.5gb, 1g.5gb]"
RESHAPED = f"""gpus: [{{board: a100-40gb-sxm, loads: [{{kind: matmul}}]}}]
faults:
  - {{kind: mig-reshape, gpu: 0, from: 110, layout: {SEVEN}}}
  - {{kind: mig-reshape, gpu: 0, from: 120, layout: [3g.20gb, 3g.20gb]}}
  - {{kind: mig-reshape, gpu: 0, from: 130, layout: [3g.20gb]}}
  - {{kind: mig-reshape, gpu: 0, from: 140, layout: []}}
  - {{kind: mig-reshape, gpu: 0, from: 150, layout: "off"}}
"""
ONE_WHOLE = (
    "gpus: [{{board: {board}, mig: [{profiles}], loads: [{{kind: matmul, mig: 0}}]}}, {{board: {board}, loads: [{{kind: matmul}}]}}]\n"
)


def medium_of(gpu: Gpu) -> Medium:
    """The medium reading, which must be there."""
    assert gpu.up
    assert gpu.medium is not None
    return gpu.medium


def test_reshaping() -> None:
    """M1: off, seven, two, one, none, off: each pass shows exactly the instances of that moment, and the GPU is up all the while."""
    pipeline = Pipeline(RESHAPED)
    shown: list[tuple[bool | None, list[str | None]]] = []
    for moment in (100.0, 110.0, 120.0, 130.0, 140.0, 150.0):
        pipeline.node.t = moment
        medium = medium_of(pipeline.read(2).gpus[0])
        shown.append((medium.mig_enabled, [instance.profile for instance in medium.mig_instances]))
        check_text(pipeline.text())
        assert len({line for line in pipeline.lines() if line.startswith("gpuwatch_mig_info")}) == len(shown[-1][1])
    assert shown == [(False, []), (True, ["1g.5gb"] * 7), (True, ["3g.20gb"] * 2), (True, ["3g.20gb"]), (True, []), (False, [])]


def test_an_instance_that_goes_between_two_enumerations() -> None:
    """M1: the fast tier asks for the memory of an instance that is gone: no value, the GPU up, gone with the next medium pass."""
    pipeline = Pipeline(RESHAPED)
    pipeline.node.t = 120.0
    pipeline.read(2)
    pipeline.node.t = 130.0
    gpu = pipeline.read_fast(2).gpus[0]
    assert gpu.up
    assert gpu.fast is not None
    assert len(gpu.fast.mig_memory) == 1
    assert len(medium_of(pipeline.read().gpus[0]).mig_instances) == 1


def test_an_instance_destroyed_while_it_is_enumerated() -> None:
    """M1: a slot whose device vanishes between two calls is an empty slot, and no error."""
    pipeline = Pipeline(RESHAPED)
    pipeline.node.t = 110.0
    for call in ("nvmlDeviceGetUUID", "nvmlDeviceGetGpuInstanceId"):
        pipeline.read()
        pipeline.driver.fail(call, nvml.INVALID_ARGUMENT)
        snapshot = pipeline.read()
        pipeline.driver.mend()
        assert medium_of(snapshot.gpus[0]).mig_instances == ()
        assert snapshot.agent.nvml_errors == {}


def test_ampere_under_mig() -> None:
    """M2: an A100 in MIG mode has no utilisation, memory for each instance, and power and temperature once, for the whole."""
    pipeline = Pipeline("gpus: [{board: a100-80gb-sxm, mig: [3g.40gb, 1g.10gb], loads: [{kind: matmul, mig: 0}]}]\n")
    gpu = pipeline.read(3).gpus[0]
    shown = families(pipeline.lines())
    assert gpu.fast is not None
    assert gpu.fast.utilization_ratio is None
    assert gpu.totals.busy_seconds is None
    assert len(gpu.fast.mig_memory) == 2
    assert not {name for name in shown if "utilization" in name or "active_ratio" in name}
    for name in ("gpuwatch_gpu_power_watts", 'gpuwatch_gpu_temperature_celsius{node="node-1",gpu="0"'):
        assert len([line for line in pipeline.lines() if line.startswith(name) and 'sensor="memory"' not in line]) == 1


@pytest.mark.parametrize(("board", "profiles"), [("h100-sxm", "3g.40gb, 1g.10gb"), ("h200-sxm", "3g.71gb, 1g.18gb")])
def test_hopper_under_mig(board: str, profiles: str) -> None:
    """M3: Hopper tells the activity of each GPU instance by GPM: the one that works is busy, the other is not."""
    pipeline = Pipeline(ONE_WHOLE.format(board=board, profiles=profiles))
    medium = medium_of(pipeline.read(3).gpus[0])
    busy, idle = (medium.mig_activity[instance.uuid] for instance in medium.mig_instances)
    assert medium.activity is None
    assert (busy.sm_active_ratio or 0.0) > 0.9
    assert (busy.tensor_active_ratio or 0.0) > 0.9
    assert (busy.dram_active_ratio or 0.0) > 0.1
    assert idle.sm_active_ratio == 0.0
    assert families(pipeline.lines()) >= {f"gpuwatch_mig_{part}_active_ratio" for part in ("sm", "tensor", "dram")}


def test_two_compute_instances_in_one_gpu_instance() -> None:
    """M4: they share memory and activity, which are shown for one of them, so that sums over instances are right."""
    layout = "{profile: 3g.40gb, compute: [1, 2]}, 1g.10gb"
    pipeline = Pipeline(f"gpus: [{{board: h100-sxm, mig: [{layout}], loads: [{{kind: held, mig: 0}}]}}]\n")
    gpu = pipeline.read(3).gpus[0]
    medium = medium_of(gpu)
    assert gpu.fast is not None
    assert [instance.profile for instance in medium.mig_instances] == ["1c.3g.40gb", "2c.3g.40gb", "1g.10gb"]
    first, second, third = (instance.uuid for instance in medium.mig_instances)
    assert set(gpu.fast.mig_memory) == set(medium.mig_activity) == {first, third}
    totals = [line for line in pipeline.lines() if line.startswith("gpuwatch_mig_memory_total_bytes")]
    assert len(totals) == 2
    assert not [line for line in totals if second in line]


@pytest.mark.parametrize("board", ["a100-80gb-sxm", "h100-sxm"])
def test_a_mig_gpu_beside_a_whole_one(board: str) -> None:
    """M5: each shows what it shows alone."""
    both = Pipeline(ONE_WHOLE.format(board=board, profiles="3g.40gb, 1g.10gb"))
    both.read(3)
    whole = Pipeline(f"gpus: [{{board: {board}, loads: [{{kind: matmul}}]}}]\n")
    whole.read(3)
    assert families(of_gpu(both.lines(), 1)) == families(of_gpu(whole.lines(), 0))
    assert not [line for line in of_gpu(both.lines(), 1) if "mig_uuid" in line]
    assert len([line for line in of_gpu(both.lines(), 0) if line.startswith("gpuwatch_mig_info")]) == 2


def test_a_profile_without_its_name() -> None:
    """A driver whose device name lacks the profile still gets one, built from the slices."""
    layout = "{profile: 3g.40gb, compute: [1, 2]}, 1g.10gb"
    pipeline = Pipeline(f"gpus: [{{board: h100-sxm, mig: [{layout}]}}]\n")
    pipeline.driver.answer("nvmlDeviceGetName", "NVIDIA H100")
    medium = medium_of(pipeline.read().gpus[0])
    assert [instance.profile for instance in medium.mig_instances] == ["1c.3g.40gb", "2c.3g.40gb", "1g.10gb"]


def test_thousands_of_passes() -> None:
    """D19: 10,000 fast and 1,000 medium passes over seven instances leave memory and open files as they were."""
    profiles = ", ".join(["1g.10gb"] * 7)
    options = ReaderOptions(pcie_throughput=False, static_seconds=600.0)
    pipeline = Pipeline(f"gpus: [{{board: h100-sxm, mig: [{profiles}]}}]\n", options=options)
    thread = pipeline.threads[0]

    def passes(count: int) -> None:
        for number in range(count):
            thread.read_fast_tier() if number % 10 else thread.read_both_tiers()
            pipeline.readings.clear()
            pipeline.node.t += 1.0

    passes(1_000)
    files = open_files()
    tracemalloc.start()
    try:
        passes(300)
        before = tracemalloc.get_traced_memory()[0]
        passes(300)
        traced_growth = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    resident = resident_bytes()
    passes(8_400)
    assert traced_growth < 50_000
    assert resident_bytes() - resident < 4 << 20
    assert open_files() == files


def open_files() -> int:
    """File descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
