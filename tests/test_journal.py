"""Log lines: one for each change of state, however often the state is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from structlog.testing import capture_logs

from gpuwatch.device import nvml
from gpuwatch.journal import Journal
from gpuwatch.snapshot import Snapshot
from pipeline import Pipeline
from snapshots import attributed, h100, node, starting

NODE = "gpus: [{board: h100-sxm, count: 4}]\n"
LOSSES = ("nvmlDeviceGetTemperature", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetHandleByUUID")


def lines_of(act: Callable[[Journal], None]) -> list[dict[str, Any]]:
    """What is logged meanwhile."""
    with capture_logs() as logs:
        act(Journal())
    return list(logs)


def test_unknown_devices_are_named_once() -> None:
    """An id that NVML does not know is one line, not one a second; a new one is named, and nothing while no GPU has been read yet."""
    snapshot = attributed()
    assert snapshot.kubernetes is not None
    kubernetes = snapshot.kubernetes

    def having(*devices: str, ready: bool = True) -> Snapshot:
        return msgspec.structs.replace(snapshot, ready=ready, kubernetes=msgspec.structs.replace(kubernetes, unknown_devices=devices))

    def watch(journal: Journal) -> None:
        journal.note(having("GPU-1", "GPU-2", "GPU-3", ready=False))
        for devices in (("GPU-1",), ("GPU-1",), (), ("GPU-1", "GPU-2")):
            journal.note(having(*devices))
        for number in range(3000):
            journal.note(having(f"MIG-{number}"))

    named = [line["devices"] for line in lines_of(watch) if "NVML does not know" in line["event"]]
    assert named[:2] == [["GPU-1"], ["GPU-2"]]
    assert len(named) == 1000


def test_a_thousand_equal_errors() -> None:
    """D20: an error in each of 1,000 passes is a counter of 1,000 and no log line of its own."""
    pipeline = Pipeline("gpus: [{board: t4}]\n")
    pipeline.read(2)
    pipeline.driver.fail("nvmlDeviceGetPerformanceState", nvml.UNKNOWN)
    snapshots: list[Snapshot] = []

    def watch(journal: Journal) -> None:
        for number in range(1_000):
            snapshots.append(pipeline.read_fast() if number % 10 else pipeline.read())
            journal.note(snapshots[-1])

    logs = lines_of(watch)
    assert snapshots[-1].agent.nvml_errors == {("nvmlDeviceGetPerformanceState", "UNKNOWN"): 1_000}
    assert len(logs) <= 3


def test_a_lost_gpu_is_told_once_each_way() -> None:
    """A GPU that is lost for 100 passes is one line, and its return is one."""
    pipeline = Pipeline(NODE)
    pipeline.read(2)

    def watch(journal: Journal) -> None:
        journal.note(pipeline.read())
        for call in LOSSES:
            pipeline.driver.fail(call, nvml.GPU_IS_LOST, gpu=2)
        pipeline.driver.fail("nvmlDeviceGetHandleByUUID", nvml.GPU_IS_LOST)
        for _ in range(100):
            journal.note(pipeline.read_fast())
        pipeline.driver.mend()
        for _ in range(100):
            journal.note(pipeline.read_fast())

    events = [(line["event"], line.get("gpu"), line.get("reason")) for line in lines_of(watch)]
    assert [event for event in events if event[1] is not None] == [("GPU is down", 2, "gpu_is_lost"), ("GPU is back", 2, None)]


def test_refusals_are_told_once_a_model() -> None:
    """Four equal GPUs over two days, asked anew every hour, are one line about what they do not support."""
    pipeline = Pipeline(NODE)

    def watch(journal: Journal) -> None:
        for _ in range(48):
            journal.note(pipeline.read_fast())
            journal.note(pipeline.read())
            pipeline.node.t += 3_600.0

    events = [line["event"] for line in lines_of(watch)]
    assert events.count("not supported by this board or driver") == 1


def test_mig_changes_are_told() -> None:
    """Instances that come or go are one line with what there is now."""
    text = "gpus: [{board: h100-sxm, mig: [3g.40gb]}]\nfaults: [{kind: mig-reshape, gpu: 0, from: 110, layout: [1g.10gb]}]\n"
    pipeline = Pipeline(text)

    def watch(journal: Journal) -> None:
        for _ in range(20):
            journal.note(pipeline.read())

    changes = [line["instances"] for line in lines_of(watch) if line["event"] == "MIG instances changed"]
    assert changes == [["1g.10gb"]]


def test_the_node_is_told_by_its_state() -> None:
    """Starting, read and unreadable are a line each, at the level that they deserve."""
    down = Snapshot(node="n", timestamp_seconds=0.0, version="0", fault="driver_not_loaded", detail="no driver")

    def watch(journal: Journal) -> None:
        for snapshot in (starting(), starting(), node(h100()), node(h100()), down, down):
            journal.note(snapshot)

    told = [(line["log_level"], line["event"]) for line in lines_of(watch)]
    assert told == [("info", "starting"), ("info", "GPUs are read"), ("warning", "no GPU can be read")]


def test_a_gpu_that_starts_is_no_news() -> None:
    """A GPU that is not read yet is not down, and its first reading is no return."""
    first, second = node(h100(up=False, fault="starting")), node(h100())

    def watch(journal: Journal) -> None:
        journal.note(first)
        journal.note(second)

    assert not [line for line in lines_of(watch) if line["event"].startswith("GPU is")]
