"""The whole exposition of a node with each board, byte by byte: one GPU idle, one at work and, where the board can, one in MIG mode.

``python -m pytest --rewrite-expected`` writes the texts anew; their diff is what a reviewer reads.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from daemon import ROOT, write_scenario
from gpuwatch.device.simulated.board import load_board

BOARDS = sorted(entry.name.removesuffix(".yaml") for entry in resources.files("gpuwatch.device.simulated").joinpath("boards").iterdir())
EXPECTED = Path(__file__).parent / "expected"
_CHANGING = (
    (re.compile(r'(?<=version=")[^"]*(?=",python)'), "VERSION"),
    (re.compile(r'(?<=python=")[^"]*'), "PYTHON"),
    (re.compile(r"(?<=^gpuwatch_last_read_timestamp_seconds)(\{.*\}) .*$", re.MULTILINE), r"\1 TIME"),
    (re.compile(r"(?<=^gpuwatch_read_duration_seconds)(\{.*\}) .*$", re.MULTILINE), r"\1 DURATION"),
)


def masked(exposition: str) -> str:
    """The exposition without what no two runs have in common."""
    for pattern, replacement in _CHANGING:
        exposition = pattern.sub(replacement, exposition)
    return exposition


def scenario_of(board: str) -> str:
    """A node with a GPU at rest, one in training, and one whose two smallest MIG instances are at work and idle."""
    gpus = [f"  - {{board: {board}}}", f"  - {{board: {board}, loads: [{{kind: training}}]}}"]
    profiles = load_board(board).mig_profiles
    if profiles:
        smallest = min(profiles, key=lambda profile: (profile.slices, profile.memory_slices)).name
        gpus.append(f"  - {{board: {board}, mig: [{smallest}, {smallest}], loads: [{{kind: matmul, mig: 0}}]}}")
    return "gpus:\n" + "\n".join(gpus) + "\n"


def read_once(scenario: str, at_seconds: float) -> str:
    """What ``gpuwatch once`` prints at that moment of the scenario."""
    command = [sys.executable, "-m", "gpuwatch", "once", "--scenario", scenario, "--at", str(at_seconds), "--node-name", "node-1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("board", BOARDS)
def test_board(board: str, tmp_path: Path, compare_expected: Callable[[str, str], None]) -> None:
    """A node of this board is shown exactly as it was when a person last looked at the difference."""
    compare_expected(f"{board}.txt", masked(read_once(str(write_scenario(tmp_path, scenario_of(board))), 100)))


def test_expected_texts_have_their_test() -> None:
    """No expected text is left behind when its board or its recording goes."""
    recordings = {f"recording-{path.stem}" for path in (Path(__file__).parent / "recordings").glob("*.json")}
    assert {path.stem for path in EXPECTED.glob("*.txt")} <= recordings | set(BOARDS)
