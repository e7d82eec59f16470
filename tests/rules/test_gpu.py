"""Alerts about a GPU as a whole, in the real promtool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rules.promtool import GPU, Moments, alert, both, fire, moved, prove, say

NODE = 'node="n1"'
UP = {f"gpuwatch_up{{{NODE}}}": "1x480"}
GPU_UP = f"gpuwatch_gpu_up{{{GPU}}}"
HELD = {f'gpuwatch_job_gpu_info{{{GPU}, namespace="speech", pod="wav-0", container="c", job_kind="TFJob", job_name="wav"}}': "1x180"}
LOST = alert("GpuLost", "critical", GPU)
MISSING = alert("GpuMissing", "critical", NODE)
RESET = alert("GpuRecoveryActionRequired", "critical", GPU)
LATER = alert("GpuRecoveryActionRequired", "warning", GPU)
FAILED = alert("GpuFailed", "critical", GPU)
DEGRADED = alert("GpuDegraded", "warning", GPU)
UNKNOWN = alert("GpuHealthUnknown", "warning", GPU)


def asks(values: str) -> dict[str, str]:
    """What the driver asks for."""
    return {f"gpuwatch_gpu_recovery_action{{{GPU}}}": values}


def state(name: str, values: str) -> dict[str, str]:
    """The verdict, as a state set."""
    states = ("ok", "degraded", "failed", "unknown")
    return {f'gpuwatch_gpu_health_state{{{GPU}, state="{one}"}}': values if one == name else "0x480" for one in states}


def board(number: int, uuid: str, values: str) -> dict[str, str]:
    """A GPU that exists."""
    return {f'gpuwatch_gpu_info{{{NODE}, gpu="{number}", uuid="{uuid}", model="H100", driver="550"}}': values}


def boards(numbers: range, values: str = "1x480") -> dict[str, str]:
    """Several GPUs that exist."""
    return {name: one for number in numbers for name, one in board(number, f"GPU-{number}", values).items()}


CASES: list[tuple[str, dict[str, str], dict[str, str], Moments]] = [
    # What it is; the series; the same just below; what fires when.
    (
        "a lost GPU, after the time for which a storm of errors may block its calls",
        UP | {GPU_UP: "1x9 0x90"},
        UP | {GPU_UP: "1x9 0x1 1x2 0x1 1x90"},
        {"11m": [], "12m": [LOST], "60m": [LOST]},
    ),
    ("a lost GPU of a node that cannot be read", {GPU_UP: "0x90"}, UP | {GPU_UP: "1x90"}, {"5m": [], "60m": []}),
    (
        "a lost GPU that is taken out with its node",
        {GPU_UP: "0x30 stale"} | {f"gpuwatch_up{{{NODE}}}": "1x30 stale"},
        {},
        {"30m": [LOST], "31m": []},
    ),
    ("a reset is asked for", asks("0x4 1x4 0x90"), asks("0x90"), {"4m": [], "5m": [RESET], "9m": [RESET], "10m": []}),
    ("a reboot is asked for", asks("2x90"), UP, {"0m": [RESET]}),
    ("drain and reset is asked for", asks("4x90"), UP, {"0m": [RESET]}),
    ("no peer-to-peer any more", asks("3x90"), UP, {"0m": [LATER]}),
    ("something about the fabric, or newer", asks("5x9 7x90"), UP, {"0m": [LATER], "20m": [LATER]}),
    ("failed", state("failed", "0x4 1x9 0x90"), state("failed", "0x90"), {"5m": [], "6m": [FAILED], "14m": [FAILED], "15m": []}),
    (
        "degraded",
        state("degraded", "0x4 1x24 0x90"),
        state("degraded", "0x4 1x18 0x90"),
        {"24m": [], "25m": [DEGRADED], "29m": [DEGRADED], "30m": []},
    ),
    ("unknown", UP | state("unknown", "0x4 1x90"), UP | state("unknown", "0x4 1x13 0x90"), {"19m": [], "20m": [UNKNOWN]}),
    ("unknown, as the whole node is", state("unknown", "1x90"), UP | state("ok", "1x90"), {"20m": [], "60m": []}),
    (
        "a GPU is missing after a reboot",
        UP | boards(range(7)) | board(7, "GPU-7", "1x30 stale"),
        UP | boards(range(7)) | board(7, "GPU-7", "1x30 _x3 1x480"),
        {"30m": [], "35m": [], "36m": [MISSING], "380m": [MISSING], "400m": []},
    ),
    (
        "a GPU is missing and the others have moved up",
        UP
        | board(0, "GPU-0", "1x480")
        | board(1, "GPU-1", "1x30 stale")
        | board(2, "GPU-2", "1x30 stale")
        | board(1, "GPU-2", "_x31 1x480"),
        UP
        | board(0, "GPU-0", "1x30 stale")
        | board(1, "GPU-1", "1x30 stale")
        | board(0, "GPU-1", "_x31 1x480")
        | board(1, "GPU-0", "_x31 1x480"),
        {"35m": [], "36m": [MISSING]},
    ),
    (
        "a GPU that its agent keeps though others have its number, which is lost and not missing too",
        UP | board(0, "GPU-0", "1x480") | board(1, "GPU-1", "1x30 stale") | board(0, "GPU-1", "_x31 1x480"),
        UP | board(0, "GPU-0", "1x30 stale") | board(0, "GPU-9", "_x31 1x480"),
        {"36m": [], "60m": []},
    ),
    (
        "a node that is taken out of the cluster",
        dict.fromkeys(UP | boards(range(8)), "1x30 stale"),
        boards(range(8)),
        {"31m": [], "60m": []},
    ),
    ("a node whose driver is gone", dict.fromkeys(UP, "0x480") | boards(range(8), "1x30 stale"), UP, {"8m": []}),
]


@pytest.mark.parametrize(("series", "below", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_fires_when_it_should(tmp_path: Path, series: Mapping[str, str], below: Mapping[str, str], expected: Moments) -> None:
    """Not before its time, not below its value, not without its series, and once though two agents tell of it."""
    prove(tmp_path, series, below, expected)


def test_a_new_agent_does_not_double_the_count(tmp_path: Path) -> None:
    """Two agents for some minutes see the same GPUs: when the old one is forgotten none is missing. A board unnamed by one counts once."""
    old, new = {}, {}
    for name in boards(range(8)):
        first, second = both({name: ""})
        old[first], new[second] = "1x30", "_x28 1x480"
    unnamed = {name.replace("GPU-7", ""): values for name, values in new.items() if "GPU-7" in name}
    renamed = {name: values for name, values in new.items() if "GPU-7" not in name} | unnamed
    series = UP | old | new | moved(UP | old | renamed, "n2")
    fire(tmp_path, series, {at: [] for at in ("29m", "33m", "40m", "60m")})


def test_an_old_agent_that_says_lost(tmp_path: Path) -> None:
    """The new agent reads the GPU: then it is not lost, whatever the old one said last."""
    old, new = both({GPU_UP: ""})
    fire(tmp_path, UP | {old: "0x60", new: "1x60"}, {"5m": [], "60m": []})


SAID: list[tuple[str, dict[str, str], str]] = [
    (
        "GpuLost",
        UP | {GPU_UP: "0x90", f'gpuwatch_gpu_fault{{{GPU}, reason="gpu_is_lost"}}': "1x90"},
        "does not answer (gpu_is_lost), while others",
    ),
    ("GpuRecoveryActionRequired", asks("1x90"), "The driver asks for a reset of GPU 0"),
    ("GpuRecoveryActionRequired", asks("2x90"), "The driver asks for a reboot of the node of GPU 0"),
    ("GpuRecoveryActionRequired", asks("3x90"), "The driver asks for action 3 (3 drain P2P"),
    (
        "GpuFailed",
        state("failed", "1x90") | {f'gpuwatch_gpu_health_reason{{{GPU}, reason="xid_79", action="reboot_node"}}': "1x90"},
        "cannot be relied on. xid_79: reboot_node. Held by",
    ),
    (
        "GpuDegraded",
        state("degraded", "1x90") | {f'gpuwatch_gpu_health_reason{{{GPU}, reason="row_remap_pending", action="reset_gpu"}}': "1x90"},
        "something is wrong with it. row_remap_pending: reset_gpu. Held by",
    ),
    ("GpuHealthUnknown", UP | state("unknown", "1x90"), "answers not enough to be judged."),
]


@pytest.mark.parametrize(("name", "series", "words"), SAID, ids=[f"{one[0]} {number}" for number, one in enumerate(SAID)])
def test_says_where_whom_and_what_to_do(tmp_path: Path, name: str, series: Mapping[str, str], words: str) -> None:
    """Node, GPU, model, job, the agent's reason once, though two agents tell it, and a first thing to do."""
    (told,) = say(tmp_path, both({**series, **HELD}), "60m", name)
    for one in (words, "GPU 0 (H100) on n1", "Held by TFJob speech/wav (pod wav-0).", "First: "):
        assert one in told["description"]
    assert told["runbook_url"].endswith(f"/{name}.md")


def test_a_missing_gpu_is_said(tmp_path: Path) -> None:
    """How many are left, and a first thing to do; which one is missing nobody can say any more."""
    (told,) = say(tmp_path, UP | boards(range(7)) | board(7, "GPU-7", "1x30 stale"), "40m", "GpuMissing")
    assert told["description"].startswith("n1 shows 7 GPUs, fewer than within the last 6h. First: ")


def test_thresholds_may_be_set(tmp_path: Path) -> None:
    """Another time for a hung GPU, and for one that is gone."""
    series = UP | {GPU_UP: "0x90"} | boards(range(7)) | board(7, "GPU-7", "1x30 stale")
    moments = {"3m": [], "4m": [LOST], "36m": [LOST, MISSING], "60m": [LOST, MISSING], "120m": []}
    fire(tmp_path, series, moments, thresholds={"gpu_hung_window": "4m", "missing_window": "1h"})
