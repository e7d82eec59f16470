"""Scenario files: those that ship load and run, and wrong ones are refused with the file and the key."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.device.simulated.scenario import ScenarioError, load_scenario, parse_scenario, scenario_names
from nodes import Node

SHIPPED = {
    "cgroup-lost",
    "crash",
    "data-starved",
    "driver-late",
    "driver-upgrade",
    "ecc-storm",
    "garbage-values",
    "gpu-lost",
    "hang",
    "idle",
    "mig-full",
    "mig-reshape",
    "mixed-fleet",
    "no-gpu",
    "power-brake",
    "shared-gpu",
    "single-h200",
    "straggler",
    "tfjob",
    "thermal-throttle",
    "training",
}
HEAD = "name: wrong\ndescription: A test.\n"
WRONG = [
    ("gpus: [{board: h100-sxm, cont: 2}]", r"x\.yaml: .*`cont`.*\$\.gpus\[0\]"),
    ("gpus: [{board: h900}]", r"x\.yaml: gpus\[0\]\.board: board 'h900'.*expected one of"),
    ("gpus: [{board: t4, count: 0}]", r"gpus\[0\]\.count is 0; expected 1 or more"),
    ("gpus: [{board: t4, mig: []}]", r"gpus\[0\]\.mig: t4 has no MIG"),
    ("gpus: [{board: h100-sxm, mig: [3g.20gb]}]", r"gpus\[0\]\.mig: MIG profile '3g\.20gb' does not exist.*3g\.40gb"),
    ("gpus: [{board: h100-sxm, mig: [4g.40gb, 4g.40gb]}]", r"4g\.40gb.*expected at most"),
    ("gpus: [{board: h100-sxm, mig: [3g.40gb, 3g.40gb, 1g.10gb]}]", r"9 memory slices.*expected at most 8"),
    ("gpus: [{board: h100-sxm, mig: [{profile: 3g.40gb, compute: [2, 2]}]}]", r"4 compute slices.*expected at most 3"),
    ("gpus: [{board: t4, loads: [{kind: matmull}]}]", r"x\.yaml: .*'matmull'.*\$\.gpus\[0\]\.loads\[0\]\.kind"),
    ("gpus: [{board: t4, loads: [{kind: matmul, from: 9, until: 3}]}]", r"loads\[0\]: from is 9\.0 and until is 3\.0"),
    ("gpus: [{board: t4, holders: [{pid: 1, memory_share: 80}]}]", r"holders\[0\]\.memory_share is 80\.0; expected 0 to 1"),
    ("gpus: [{board: t4}]\nfaults: [{kind: gpu-lost, gpu: 1}]", r"faults\[0\]\.gpu is 1; expected 0 to 0"),
    ("gpus: [{board: t4}]\nfaults: [{kind: gpu-losst}]", r"x\.yaml: .*gpu-losst"),
    ("gpus: [{board: t4}]\nfaults: [{kind: hang, second: 3}]", r"`second`.*\$\.faults\[0\]"),
    ("gpus: [{board: t4}]\nfaults: [{kind: mig-reshape, gpu: 0, layout: [1g.5gb]}]", r"faults\[0\]\.layout: MIG profile '1g\.5gb'.*no MIG"),
    ("gpus: {", r"x\.yaml: "),
]


def test_what_ships() -> None:
    """Every promised scenario is there, named as its file, with one sentence that says what happens."""
    names = scenario_names()
    assert set(names) == SHIPPED
    for name, sentence in names.items():
        assert load_scenario(name).name == name
        assert sentence.endswith(".")
        assert sentence.count(". ") == 0


@pytest.mark.parametrize("name", sorted(SHIPPED - {"crash", "driver-late", "driver-upgrade", "cgroup-lost", "no-gpu"}))
@pytest.mark.parametrize("t", [0.0, 45.0, 130.0, 1e4])
def test_every_gpu_of_every_scenario_answers(name: str, t: float) -> None:
    """At any time a GPU that is not lost has its name, memory and power."""
    node = Node(name)
    node.t = t
    for gpu in range(node.driver.nvmlDeviceGetCount()):
        if (name, gpu, t) == ("gpu-lost", 2, 130.0):
            continue
        assert node.ask("Name", gpu=gpu)
        assert node.ask("MemoryInfo", gpu=gpu).total > 0


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_wrong_files_are_refused(text: str, message: str) -> None:
    """A mistake is one error that names the file, the key, the value and what was expected."""
    with pytest.raises(ScenarioError, match=message):
        parse_scenario((HEAD + text).encode(), file="x.yaml")


def test_missing_file_names_the_choices() -> None:
    """A scenario that does not exist is answered with those that do."""
    with pytest.raises(ScenarioError, match=r"'trainig' cannot be read.*training"):
        load_scenario("trainig")


def test_own_file(tmp_path: Path) -> None:
    """A path to a file of one's own works as a name does."""
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + "gpus: [{board: t4}]")
    assert load_scenario(path) == load_scenario(str(path))
    assert load_scenario(path).gpu_count == 1


@given(text=st.binary(max_size=200))
def test_no_bytes_break_the_parser(text: bytes) -> None:
    """Any bytes are a scenario or a ScenarioError, never another exception."""
    with contextlib.suppress(ScenarioError):
        parse_scenario(text)


def test_holders_move_on_through_a_group() -> None:
    """Each GPU of a group has its own process, and unknown memory stays unknown."""
    node = Node("gpus: [{board: t4, count: 2, holders: [{pid: 70, memory_share: 0.5, memory_known: false, from: 5}]}]")
    assert node.ask("ComputeRunningProcesses_v3") == []
    node.t = 5.0
    processes = [node.ask("ComputeRunningProcesses_v3", gpu=gpu)[0] for gpu in (0, 1)]
    assert [(process.pid, process.usedGpuMemory, process.gpuInstanceId) for process in processes] == [
        (70, None, 2**32 - 1),
        (71, None, 2**32 - 1),
    ]
    assert not hasattr(node.ask("ComputeRunningProcesses_v1")[0], "gpuInstanceId")
    assert node.ask("GraphicsRunningProcesses_v3") == []


def test_equal_seeds_are_equal_nodes() -> None:
    """The seed decides UUIDs and noise: equal seeds are equal, other seeds are not."""
    one, same, other = (Node(f"seed: {seed}\ngpus: [{{board: t4, count: 2}}]") for seed in (1, 1, 2))
    assert one.ask("UUID") == same.ask("UUID") != other.ask("UUID")
    assert one.ask("UUID", gpu=0) != one.ask("UUID", gpu=1)
