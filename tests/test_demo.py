"""``gpuwatch demo`` with injected faults, up to the point where it serves; ``tests/end_to_end/test_injection.py`` goes on from there."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from test_cli import gpuwatch, refusal


@pytest.mark.parametrize(
    "spec", ["xid=79,gpu=9", "xid=1000,gpu=0", "fault=nvlink-down,gpu=3", "xid=79,gpu=3,at=-5", "xid=79,gpu=3,when=now", "a\nb"]
)
def test_wrong_fault(spec: str) -> None:
    """A fault that cannot be injected is exit code 2 and one line with the spec."""
    line = refusal(gpuwatch("demo", "--inject", spec))
    assert line.startswith(f"gpuwatch: --inject {spec!r}: ")
    assert "expected" in line


def test_wrong_file(tmp_path: Path) -> None:
    """So is a file of faults that cannot be used."""
    faults = tmp_path / "faults.yaml"
    assert "cannot be read" in refusal(gpuwatch("demo", "--inject-file", str(faults)))
    faults.write_text("- xid=79,gpu=3\n- xid=79,gpu=9\n")
    line = refusal(gpuwatch("demo", "--inject-file", str(faults)))
    assert line.startswith(f"gpuwatch: --inject-file {faults}: entry 2: 'xid=79,gpu=9': ")


def test_help_shows_how() -> None:
    """The help has examples that work."""
    text = gpuwatch("demo", "--help").stdout
    assert "gpuwatch demo --inject xid=79,gpu=3\n" in text
    assert "--inject fault=power-brake,gpu=0,at=30,for=600\n" in text
    assert "[default: 127.0.0.1]" in text
    assert "[default: 0.0.0.0]" in gpuwatch("run", "--help").stdout


def test_once_and_check_take_faults() -> None:
    """Other commands take faults for a simulated node, and for no other."""
    done = gpuwatch("once", "--scenario", "idle", "--at", "60", "--inject", "xid=79,gpu=1", "--node-name", "n1")
    assert done.returncode == 0
    assert [line.rpartition(" ")[2] for line in done.stdout.splitlines() if line.startswith("gpuwatch_gpu_up")] == [
        "1.0",
        "0.0",
        "1.0",
        "1.0",
    ]
    assert 'reason="gpu_lost"' in done.stdout
    for command in ("once", "check"):
        assert "--inject needs --scenario" in gpuwatch(command, "--inject", "xid=79,gpu=1").stderr
    assert "No such option" in gpuwatch("run", "--inject", "xid=79,gpu=1").stderr


def test_taken_port() -> None:
    """Nobody is told to open an address that another program answers at."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = gpuwatch("demo", "--port", str(taken.getsockname()[1]))
    assert (done.returncode, done.stdout) == (3, "")
