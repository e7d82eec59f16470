"""Alerts about XIDs, in the real promtool. Time starts at zero there, so an XID at minute 20 has the time 1200."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from gpuwatch.health.xid import policy_of
from rules.promtool import GPU, Moments, alert, both, fire, prove, say

NODE = 'node="n1"'
PEER = 'node="n1", gpu="1", uuid="GPU-1", model="H100"'
WAV = 'namespace="speech", pod="wav-0", container="c", job_kind="TFJob", job_name="wav"'
NEXT = 'namespace="vision", pod="net-0", container="c", job_kind="TFJob", job_name="net"'


def xid(code: int, at: str, gpu: str = GPU) -> dict[str, str]:
    """The time of the last XID of a number, labelled as the policy says."""
    policy = policy_of(code)
    labels = f'{gpu}, xid="{code}", category="{policy.category}", severity="{policy.severity}"'
    return {f"gpuwatch_gpu_xid_last_timestamp_seconds{{{labels}}}": at}


def holds(holder: str, start: int, end: int | None = None, gpu: str = GPU) -> dict[str, str]:
    """A pod that holds the GPU from one minute to another; its counter of seconds stays for five minutes more."""
    until = 180 if end is None else end
    info = f"{'_x' + str(start) + ' ' if start else ''}1x{until - start}{' stale' if end is not None else ''}"
    kept = f" {60 * (until - start)}x5 stale" if end is not None else ""
    seconds = f"{'_x' + str(start) + ' ' if start else ''}0+60x{until - start}{kept}"
    return {f"gpuwatch_job_gpu_info{{{gpu}, {holder}}}": info, f"gpuwatch_job_gpu_allocated_seconds_total{{{gpu}, {holder}}}": seconds}


def about(name: str, severity: str, code: int, gpu: str = GPU) -> dict[str, str]:
    """An alert about an XID."""
    return alert(name, severity, f'{gpu}, xid="{code}"')


def of_job(holder: str) -> dict[str, str]:
    """The alert to the owner of a job."""
    kept = ("namespace", "job_kind", "job_name")
    return alert("GpuXidApplication", "info", ", ".join(part for part in holder.split(", ") if part.split("=")[0] in kept))


def suspected(values: str) -> dict[str, str]:
    """The agent's own reason."""
    return {f'gpuwatch_gpu_health_reason{{{GPU}, reason="suspect_hardware", action="inspect"}}': values}


BUS = about("GpuXidCritical", "critical", 79)
ECC = about("GpuXidCritical", "critical", 48)
ROW = about("GpuXidDrainSoon", "warning", 63)
NEW = about("GpuXidUnknown", "warning", 999)
SUSPECT = alert("GpuXidAcrossJobs", "warning", GPU)
SPEECH, VISION = of_job(WAV), of_job(NEXT)

CASES: list[tuple[str, dict[str, str], dict[str, str], Moments]] = [
    # What it is; the series; the same just below; what fires when.
    (
        "the first XID of a GPU",
        xid(79, "_x20 1200x90"),
        xid(45, "_x20 1200x90") | xid(154, "_x20 1200x90"),
        {"19m": [], "20m": [BUS], "29m": [BUS], "30m": [], "90m": []},
    ),
    ("the same one again", xid(79, "_x20 1200x29 3000x60"), {}, {"29m": [BUS], "49m": [], "50m": [BUS], "59m": [BUS], "60m": []}),
    ("one that was before the agent came", xid(79, "_x60 1200x90"), {}, {"60m": [], "90m": []}),
    ("two at once", xid(79, "_x20 1200x90") | xid(48, "_x20 1200x90"), {}, {"25m": [BUS, ECC]}),
    ("a repair that can wait", xid(63, "_x20 1200x90"), xid(37, "_x20 1200x90"), {"19m": [], "20m": [ROW], "29m": [ROW], "30m": []}),
    ("a number that nobody knows", xid(999, "_x20 1200x90"), {}, {"19m": [], "20m": [NEW], "29m": [NEW], "30m": []}),
    (
        "a storm of clean-ups when a job ends",
        xid(45, "1200+60x90") | xid(43, "1200x90"),
        xid(45, "1200+60x90", PEER),
        {"20m": [], "25m": [], "60m": []},
    ),
    (
        "errors of several jobs on one GPU",
        suspected("0x9 1x30 0x90"),
        {f'gpuwatch_gpu_health_reason{{{GPU}, reason="hardware_thermal", action="inspect"}}': "1x90"},
        {"9m": [], "10m": [SUSPECT], "40m": [SUSPECT], "41m": []},
    ),
]


@pytest.mark.parametrize(("series", "below", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_fires_when_it_should(tmp_path: Path, series: Mapping[str, str], below: Mapping[str, str], expected: Moments) -> None:
    """Not before its time, not below its severity, not without its series, and once though two agents tell of it."""
    prove(tmp_path, series, below, expected)


BLAMED: list[tuple[str, dict[str, str], list[dict[str, str]]]] = [
    # What it is; the series, with XID 31 of GPU 0 at minute 20; who is told two minutes later.
    ("who holds it", holds(WAV, 5), [SPEECH]),
    ("nobody holds it", {}, []),
    ("another GPU of the node is held", holds(WAV, 5, gpu=PEER), []),
    ("who has just begun", holds(WAV, 20), [SPEECH]),
    ("who came after it", holds(WAV, 21), []),
    ("whose pod it ended", holds(WAV, 5, 20), [SPEECH]),
    ("whose pod it ended, and another came", holds(WAV, 5, 20) | holds(NEXT, 21), [SPEECH]),
    ("who went before it, and another came", holds(WAV, 5, 18) | holds(NEXT, 19), [VISION]),
    ("both of a shared GPU", holds(WAV, 5) | holds(NEXT, 6), [SPEECH, VISION]),
    (
        "a job with two GPUs, once",
        holds(WAV, 5) | holds(WAV.replace("wav-0", "wav-1"), 5, gpu=PEER) | xid(31, "_x20 1200x90", PEER),
        [SPEECH],
    ),
]


@pytest.mark.parametrize(("series", "expected"), [case[1:] for case in BLAMED], ids=[case[0] for case in BLAMED])
def test_who_is_told_of_an_error_of_a_program(tmp_path: Path, series: dict[str, str], expected: list[dict[str, str]]) -> None:
    """The job that held the GPU then, not the one that has it now; once, though two agents tell of it."""
    fire(tmp_path, both(xid(31, "_x20 1200x90") | series), {"19m": [], "22m": expected, "30m": []})


@pytest.mark.parametrize(("code", "told"), [(13, True), (43, True), (69, True), (137, True), (45, False), (37, False), (154, False)])
def test_which_xids_are_a_programs(tmp_path: Path, code: int, told: bool) -> None:
    """Those that the policy calls so, until ten minutes after the last."""
    series = xid(code, "_x20 1200x90") | holds(WAV, 5)
    fire(tmp_path, series, {"20m": [SPEECH] if told else [], "29m": [SPEECH] if told else [], "30m": []})


def test_the_echo_of_a_fault_is_not_the_programs(tmp_path: Path) -> None:
    """A program that dies of the board's fault did nothing wrong; its XID on another GPU is its own."""
    fault = xid(48, "_x20 1200x90") | xid(43, "_x20 1200x90") | holds(WAV, 5)
    own = xid(31, "_x20 1200x90", PEER) | holds(NEXT, 5, gpu=PEER)
    fire(tmp_path, fault | own, {"21m": [ECC, VISION]})


def test_an_agent_that_starts_anew_blames_nobody_else(tmp_path: Path) -> None:
    """Its counters begin anew: whoever holds the GPU is told while the old one is known, and nobody wrong after that."""
    old = both(holds(WAV, 5))
    first = {name: f"{values.split('x1')[0]}x18 stale" for name, values in old.items() if "old" in name}
    second = {name: "_x24 0+60x90" if "seconds" in name else "_x24 1x90" for name in old if "new" in name}
    fire(tmp_path, xid(31, "_x20 1200x90") | first | second, {"22m": [SPEECH], "26m": []})


HELD = holds(WAV, 0)
SAID: list[tuple[str, dict[str, str], str]] = [
    ("GpuXidCritical", xid(79, "_x20 1200x90"), "XID 79 5m 0s ago on"),
    ("GpuXidDrainSoon", xid(63, "_x20 1200x90"), "XID 63 5m 0s ago on"),
    ("GpuXidUnknown", xid(999, "_x20 1200x90"), "XID 999 5m 0s ago on"),
    ("GpuXidAcrossJobs", suspected("1x90"), "the board is suspect."),
]


@pytest.mark.parametrize(("name", "series", "words"), SAID, ids=[one[0] for one in SAID])
def test_says_where_whom_and_what_to_do(tmp_path: Path, name: str, series: Mapping[str, str], words: str) -> None:
    """Number, age, node, GPU, model, job, and a first thing to do."""
    (told,) = say(tmp_path, both({**series, **HELD}), "25m", name)
    for one in (words, "GPU 0 (H100) on n1", "Held by TFJob speech/wav (pod wav-0).", "First: "):
        assert one in told["description"]
    assert told["runbook_url"].endswith(f"/{name}.md")


def test_the_owner_is_told_which_gpu(tmp_path: Path) -> None:
    """The job, when, and each XID with its GPU and node, once."""
    (told,) = say(tmp_path, both({**xid(31, "_x20 1200x90"), **HELD}), "25m", "GpuXidApplication")
    assert told["description"].startswith(
        "TFJob speech/wav made an error on a GPU that it held 5m 0s ago. XID 31 on GPU 0 (H100) of n1. First: look in its log"
    )


def test_thresholds_may_be_set(tmp_path: Path) -> None:
    """Another age counts, for all of them."""
    series = xid(79, "_x20 1200x90") | xid(31, "_x20 1200x90", PEER) | holds(WAV, 5, gpu=PEER)
    fire(tmp_path, series, {"34m": [BUS, SPEECH], "35m": []}, thresholds={"xid_age": "900"})
