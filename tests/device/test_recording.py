"""Recordings: what is replayed is what was read, and nothing in it identifies the machine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.device import nvml
from gpuwatch.device.gpu_thread import GpuThread
from gpuwatch.device.nvml import NVMLError
from gpuwatch.device.readings import GpuReading
from gpuwatch.device.recording import FORMAT, RecordingDriver, anonymise, compact, record
from gpuwatch.device.replay import RecordingError, ReplayDriver, load_recording
from gpuwatch.device.simulated.board import board_names
from gpuwatch.device.wire import ReaderOptions
from nodes import Node

NODES = {
    **{name: f"gpus: [{{board: {name}, loads: [{{kind: training}}]}}, {{board: {name}}}]\n" for name in board_names()},
    "mig": "gpus: [{board: h100-sxm, mig: [3g.40gb, {profile: 3g.40gb, compute: [1, 2]}], loads: [{kind: matmul, mig: 0}]}]\n",
    "old": "driver: 450.80.02\ngpus: [{board: t4, loads: [{kind: tiny}]}]\n",
    "lost": "gpus: [{board: l40s, count: 2}]\nfaults: [{kind: gpu-lost, gpu: 1, from: 102, until: 104}]\n",
    "garbage-values": "garbage-values",
    "mixed-fleet": "mixed-fleet",
}
UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def read(driver: Any, node: Node, passes: int = 6) -> list[GpuReading]:
    """Readings of every GPU of the node, from 100 s on, a second apart."""
    options = ReaderOptions(pcie_throughput=False, nvlink_errors_per_link=True)
    readings: list[GpuReading] = []
    node.t = 100.0
    threads = [
        GpuThread(driver, index, options=options, emit=readings.append, clock=lambda: node.t)
        for index in range(driver.nvmlDeviceGetCount())
    ]
    for _ in range(passes):
        for thread in threads:
            thread.read_both_tiers()
        node.t += 1.0
    return readings


def recorded(node: Node, passes: int = 6) -> tuple[list[GpuReading], dict[str, Any]]:
    """The readings and their recording as it is written, but with its names."""
    recorder = RecordingDriver(node.driver)
    recorder.nvmlInit()
    readings = read(recorder, node, passes)
    return readings, {"format": FORMAT, "answers": compact(recorder.answers)}


@pytest.mark.parametrize("text", NODES.values(), ids=NODES.keys())
def test_what_is_replayed_is_what_was_read(text: str) -> None:
    """The same reader over the recording, gone through its file format, makes the same readings, faults and refusals included."""
    node = Node(text)
    readings, recording = recorded(node)
    answers = json.loads(json.dumps(recording))["answers"]
    assert read(ReplayDriver(answers), node) == readings
    assert [one for one in readings if one.fast]


@pytest.mark.parametrize("text", NODES.values(), ids=NODES.keys())
def test_nothing_identifies_the_machine(text: str) -> None:
    """No UUID, serial number or process id of the machine is left, and the values of the readings are the same."""
    node = Node(text)
    readings, recording = recorded(node)
    clean = anonymise(recording)
    written = json.dumps(clean)
    for name in names_of(readings):
        assert name not in written
    assert all("-00000000-0000-4000-8000-" in uuid for uuid in UUID.findall(written))
    replayed = read(ReplayDriver(clean["answers"]), node)
    assert [(one.index, one.fault, one.errors, one.rejected, one.unsupported) for one in replayed] == [
        (one.index, one.fault, one.errors, one.rejected, one.unsupported) for one in readings
    ]
    assert [values_of(one) for one in replayed] == [values_of(one) for one in readings]


def names_of(readings: list[GpuReading]) -> set[str]:
    """UUIDs, serial numbers and process ids in the readings."""
    names = {one.uuid for one in readings} | {one.identity.serial or "" for one in readings if one.identity}
    names |= {instance.uuid for one in readings if one.medium for instance in one.medium.mig_instances}
    names |= {f'"pid": {process.pid}}}' for one in readings if one.fast for process in one.fast.processes or ()}
    names |= {f'"pid": {process.pid},' for one in readings if one.fast for process in one.fast.processes or ()}
    return names - {""}


def values_of(one: GpuReading) -> tuple[Any, ...]:
    """What a reading measures, without names."""
    fast, medium = one.fast, one.medium
    return (
        fast and (fast.utilization_ratio, fast.memory, fast.power_watts, fast.clock_hertz, sorted(map(str, fast.mig_memory.values()))),
        medium and (medium.energy_joules, medium.health, medium.links, medium.activity, len(medium.mig_instances)),
    )


def test_a_serial_that_was_not_told_at_once() -> None:
    """A serial number that came after a failed call is replaced like any other."""
    serial = "1323520011223"
    clean = anonymise({"answers": {"gpu0|nvmlDeviceGetSerial|": [{"error": nvml.UNKNOWN}, serial]}})
    assert serial not in json.dumps(clean)


def test_equal_names_stay_equal() -> None:
    """One UUID or process is the same made-up one wherever it stands, and different ones stay different."""
    readings, recording = recorded(Node("gpus: [{board: t4, count: 3, loads: [{kind: tiny}]}]\n"))
    replayed = read(ReplayDriver(anonymise(recording)["answers"]), Node("gpus: [{board: t4, count: 3}]\n"))
    assert len({one.uuid for one in replayed}) == len({one.uuid for one in readings}) == 3
    assert len({one.identity.serial for one in replayed if one.identity}) == 3
    assert len({process.pid for one in replayed if one.fast for process in one.fast.processes or ()}) == 3


def test_the_command_writes_a_file_that_replays(tmp_path: Path) -> None:
    """What ``gpuwatch record`` writes is read back by ``load_recording``, anonymised."""
    node = Node("gpus: [{board: t4}]\n", t=100.0)
    output = tmp_path / "recording.json"
    record(output, 0.0, driver=node.driver)
    answers = load_recording(output)
    assert node.driver.nvmlDeviceGetUUID(node.handle()) not in output.read_text()
    driver = ReplayDriver(answers)
    assert driver.nvmlDeviceGetName(driver.nvmlDeviceGetHandleByIndex(0)) == "Tesla T4"
    assert driver.nvmlSystemGetDriverVersion() == "530.30.02"


def test_a_call_that_was_never_made_is_not_supported() -> None:
    """A recording answers what it holds; the rest is refused as an old driver would."""
    driver = ReplayDriver({})
    with pytest.raises(NVMLError) as refused:
        driver.nvmlDeviceGetName(0)
    assert refused.value.value == nvml.NOT_SUPPORTED
    with pytest.raises(AttributeError):
        driver.something_else  # noqa: B018 (that it is asked for is the point)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": 2, "answers": {}}',
        '{"format": 1}',
        '{"format": 1, "answers": {"a": []}}',
        '{"format": 1, "answers": {"a": 1}}',
    ],
)
def test_what_is_no_recording(tmp_path: Path, text: str) -> None:
    """A file that is no recording is refused with one line that names it."""
    path = tmp_path / "no.json"
    path.write_text(text)
    with pytest.raises(RecordingError, match=r"recording .*no\.json: ") as refused:
        load_recording(path)
    assert "\n" not in str(refused.value)


def test_a_missing_recording(tmp_path: Path) -> None:
    """So is one that is not there."""
    with pytest.raises(RecordingError, match=r"gone\.json"):
        load_recording(tmp_path / "gone.json")


@given(st.dictionaries(st.text(max_size=5), st.lists(st.integers(0, 2), min_size=1, max_size=8)))
def test_compact_loses_nothing(answers: dict[str, list[int]]) -> None:
    """Played in order, with the last answer staying, the compact form tells what the long one told."""
    short = compact(answers)
    for key, told in answers.items():
        assert [short[key][min(turn, len(short[key]) - 1)] for turn in range(len(told))] == told
