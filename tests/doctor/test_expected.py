"""The whole report of ``gpuwatch check``, as a person reads it: of healthy and broken nodes.

``python -m pytest --rewrite-expected`` writes the texts anew; their diff is what a reviewer reads.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from daemon import ROOT, write_scenario
from gpuwatch import __version__
from gpuwatch.doctor.host import Host
from gpuwatch.doctor.report import report_of
from gpuwatch.snapshot import Snapshot

_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, \d+ (s|min) ago")
_REMAP_PENDING = """
gpus:
  - {board: a100-80gb-sxm, loads: [{kind: training}]}
  - {board: a100-80gb-sxm, loads: [{kind: training}]}
faults:
  - {kind: remapped-rows, gpu: 1, from: 10, uncorrected: 1, pending: true}
pods:
  - {name: bert-worker-0, namespace: nlp, devices: ["0"], tfjob: {name: bert, type: worker, index: 0, cluster: {worker: 2}}}
  - {name: bert-worker-1, namespace: nlp, devices: ["1"], tfjob: {name: bert, type: worker, index: 1, cluster: {worker: 2}}}
"""
_PROGRAM_ERROR = """
gpus: [{board: h100-sxm, count: 2, loads: [{kind: training}]}]
faults:
  - {kind: xid, code: 31, gpu: 1, from: 60, source: kernel_log}
"""


def check(scenario: str, at_seconds: float) -> tuple[int, str]:
    """Exit code and output at that moment of the scenario, without what no two runs have in common."""
    command = [sys.executable, "-m", "gpuwatch", "check", "--scenario", scenario, "--at", str(at_seconds), "--node-name", "node-1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return done.returncode, masked(done.stdout)


def masked(text: str) -> str:
    """The time keeps its columns."""
    return _TIME.sub(lambda found: f"{'TIME':<{len(found[0])}}", text).replace(__version__, "VERSION")


@pytest.mark.parametrize(
    ("scenario", "at_seconds", "code"),
    [("idle", 100, 0), ("mixed-fleet", 100, 0), ("gpu-lost", 120, 1), ("ecc-storm", 120, 4), ("no-gpu", 10, 1)],
)
def test_shipped_scenario(scenario: str, at_seconds: float, code: int, compare_expected: Callable[[str, str], None]) -> None:
    """Each node is described as it was when a person last read it, with its exit code."""
    found, text = check(scenario, at_seconds)
    assert found == code
    compare_expected(f"check/{scenario}.txt", text)


@pytest.mark.parametrize(("name", "scenario", "code"), [("row-remap-pending", _REMAP_PENDING, 0), ("program-error", _PROGRAM_ERROR, 0)])
def test_scenario_of_its_own(name: str, scenario: str, code: int, tmp_path: Path, compare_expected: Callable[[str, str], None]) -> None:
    """A flaw that can wait, and an error that is a program's own, are told without an alarm: exit code 0."""
    found, text = check(str(write_scenario(tmp_path, scenario)), 100)
    assert found == code
    compare_expected(f"check/{name}.txt", text)


def test_driver_is_missing(compare_expected: Callable[[str, str], None]) -> None:
    """A machine without a driver is told what is missing; there is no GPU whose health could be spoken of."""
    snapshot = Snapshot(
        node="node-1", timestamp_seconds=1.0, version="VERSION", fault="library_not_found", detail="libnvidia-ml.so.1 is not found"
    )
    report = report_of(snapshot, Host(library_error="libnvidia-ml.so.1: cannot open shared object file"))
    assert not report.healthy
    compare_expected("check/driver-missing.txt", "\n".join(report.lines) + "\n")
