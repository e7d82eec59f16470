"""A person lets simulated GPUs fail, by the real daemon: flags, and a file that is edited while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from daemon import Daemon, Seen, start, wait_for

XIDS = "gpuwatch_gpu_xid_errors_total"
REASON = "gpuwatch_gpu_health_reason"


@dataclass(frozen=True)
class Rehearsed:
    """A running demo and the file of its faults."""

    daemon: Daemon
    faults: Path


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsed]:
    """The default node; GPU 3 falls off the bus, GPU 6 does so by the file."""
    folder = tmp_path_factory.mktemp("injection")
    faults = folder / "faults.yaml"
    faults.write_text("- fault=gpu-lost,gpu=6,at=4\n")
    command = [
        "demo",
        "--inject",
        "xid=79,gpu=3",
        "--inject-file",
        str(faults),
        "--set",
        "read.medium_interval=2s",
        "--set",
        "log.format=json",
    ]
    with start(command, folder) as daemon:
        yield Rehearsed(daemon, faults)


def state(seen: Seen, gpu: int) -> str:
    """The verdict on a GPU; empty while there is none."""
    found = [dict(pairs)["state"] for (name, pairs), value in seen.samples.items() if _is_state(name, dict(pairs), gpu) and value == 1]
    return "".join(found)


def _is_state(name: str, labels: dict[str, str], gpu: int) -> bool:
    return name == "gpuwatch_gpu_health_state" and labels["gpu"] == str(gpu)


def test_sound_before_and_failed_after(demo: Rehearsed) -> None:
    """First every GPU is sound; then XID 79 is counted, the GPU is down, the verdict says reboot, and the other GPUs stay sound."""
    sound = demo.daemon.until(lambda one: one.up(3) == 1 and state(one, 3) == "ok", "a sound GPU 3")
    assert sound.value(XIDS, gpu="3", xid="79") is None
    lost = demo.daemon.until(lambda one: state(one, 3) == "failed" and one.up(3) == 0, "the verdict on GPU 3")
    assert lost.value(XIDS, gpu="3", xid="79") == 1
    assert lost.value(REASON, gpu="3", reason="gpu_lost", action="reboot_node") == 1
    assert {gpu: state(lost, gpu) for gpu in (0, 1, 2, 4, 5, 7)} == dict.fromkeys((0, 1, 2, 4, 5, 7), "ok")
    assert lost.value("gpuwatch_build_info", simulated="true") == 1
    assert "SIMULATED" in demo.daemon.get("/").text.upper()


def test_faults_come_and_go_with_the_file(demo: Rehearsed) -> None:
    """What is added to the file happens, what is struck out ends, a mistake changes nothing and is logged once."""
    demo.daemon.until(lambda one: state(one, 6) == "failed", "the fault of the file")
    demo.faults.write_text("- fault=recovery-action,gpu=7,action=2\n- fault=gpu-lost,gpu=6,at=4\n")
    asked = demo.daemon.until(lambda one: one.value(REASON, gpu="7", reason="recovery_reboot") == 1, "the fault that was added")
    assert (state(asked, 7), state(asked, 6)) == ("failed", "failed")
    demo.faults.write_text("- fault=recovery-action,gpu=99\n")
    wait_for(lambda: "has no GPU 99" in demo.daemon.log, "the warning")
    demo.faults.write_text("[]")
    over = demo.daemon.until(lambda one: (state(one, 6), state(one, 7)) == ("ok", "ok"), "sound GPUs", after=asked.at)
    assert (over.up(6), state(over, 3)) == (1, "failed")
    assert demo.daemon.log.count("has no GPU 99") == 1


def test_nothing_stays_behind(tmp_path: Path) -> None:
    """The demo leaves with 0 when asked, with its file of faults."""
    faults = tmp_path / "faults.yaml"
    faults.write_text("")
    with start(["demo", "--scenario", "idle", "--inject-file", str(faults)], tmp_path, watch=False) as daemon:
        held = [text for text in Path(f"/proc/{daemon.reader()}/cmdline").read_bytes().decode().split("\0") if "injected_file" in text]
        assert daemon.signal(15) == 0
    folder = held[0].partition('"injected_file":"')[2].partition('"')[0]
    assert folder.endswith("injected.json")
    assert not Path(folder).parent.exists()
