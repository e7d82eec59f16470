"""Alerts about the memory of a GPU, in the real promtool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rules.promtool import GPU, Moments, alert, both, fire, prove, say

HELD = {f'gpuwatch_job_gpu_info{{{GPU}, namespace="speech", pod="wav-0", container="c", job_kind="TFJob", job_name="wav"}}': "1x180"}
MOVED = GPU.replace('gpu="0"', 'gpu="3"')
LOST_DATA = alert("GpuEccUncorrectable", "critical", GPU)
LOST_BEFORE = alert("GpuEccUncorrectable", "warning", GPU)
STORM = alert("GpuEccCorrectedStorm", "warning", GPU)
SRAM = alert("GpuSramErrors", "warning", GPU)
NO_ROW = alert("GpuRowRemapFailed", "critical", GPU)
PENDING = alert("GpuRowRemapPending", "warning", GPU)
FEW_ROWS = alert("GpuRowRemapSparesLow", "warning", GPU)
PAGES_FULL = alert("GpuRetiredPages", "critical", GPU)
PAGES = alert("GpuRetiredPages", "warning", GPU)


def errors(
    values: str, location: str = "dram", *, severity: str = "uncorrected", scope: str = "volatile", gpu: str = GPU
) -> dict[str, str]:
    """A counter of ECC errors."""
    return {f'gpuwatch_gpu_ecc_errors_total{{{gpu}, severity="{severity}", scope="{scope}", location="{location}"}}': values}


def flag(name: str, values: str, labels: str = "") -> dict[str, str]:
    """Another fact about the memory."""
    return {f"gpuwatch_gpu_{name}{{{GPU}{labels}}}": values}


def pages(single: int, double: int) -> dict[str, str]:
    """Retired pages by cause."""
    return flag("retired_pages", f"{single}x90", ', cause="single_bit"') | flag("retired_pages", f"{double}x90", ', cause="double_bit"')


CASES: list[tuple[str, dict[str, str], dict[str, str], Moments]] = [
    # What it is; the series; the same just below; what fires when.
    (
        "the first uncorrected error",
        errors("0x29 1x90"),
        errors("0x90") | errors("7x90", scope="aggregate"),
        {"29m": [], "30m": [LOST_DATA], "39m": [LOST_DATA], "40m": [LOST_BEFORE], "90m": [LOST_BEFORE]},
    ),
    (
        "another one a day later",
        errors("2x59 3x90"),
        errors("0x90", severity="corrected"),
        {"9m": [LOST_DATA], "10m": [LOST_BEFORE], "59m": [LOST_BEFORE], "60m": [LOST_BEFORE, LOST_DATA], "70m": [LOST_BEFORE]},
    ),
    ("the first one of a new series", errors("_x30 1x90"), {}, {"29m": [], "30m": [LOST_DATA], "40m": [LOST_BEFORE]}),
    (
        "an error in each location",
        errors("0x29 1x90") | errors("0x29 1x90", "sram"),
        errors("0x90", "sram"),
        {"30m": [LOST_DATA], "40m": [LOST_BEFORE]},
    ),
    (
        "an error soon after a reset",
        errors("3x29 0x1 1x90"),
        errors("0x90"),
        {"30m": [], "31m": [], "32m": [LOST_DATA], "41m": [LOST_DATA], "42m": [LOST_BEFORE], "60m": [LOST_BEFORE]},
    ),
    (
        "old errors, and the agent was away for half an hour",
        errors("2x29 _x30 2x90"),
        errors("0x29 _x30 0x90"),
        {"29m": [LOST_BEFORE], "60m": [], "65m": [], "70m": [LOST_BEFORE]},
    ),
    (
        "an error while the agent was away for half an hour",
        errors("0x29 _x30 1x90"),
        {},
        {"29m": [], "60m": [LOST_DATA], "70m": [LOST_BEFORE]},
    ),
    (
        "a reset",
        errors("1x29 0x90"),
        {},
        {"29m": [LOST_BEFORE], "30m": [], "90m": []},
    ),
    (
        "a storm of corrected errors",
        errors("0+6060x90", severity="corrected"),
        errors("0+6000x90", severity="corrected"),
        {"8m": [], "10m": [STORM], "60m": [STORM]},
    ),
    (
        "a storm over two locations",
        errors("0+3060x90", severity="corrected") | errors("0+3060x90", "sram", severity="corrected"),
        errors("0+9999x90", severity="corrected", scope="aggregate"),
        {"10m": [STORM]},
    ),
    (
        "worn SRAM",
        errors("4x29 5x90", "sram", scope="aggregate"),
        errors("4x90", "sram", scope="aggregate") | errors("99x90", "dram", scope="aggregate"),
        {"29m": [], "30m": [SRAM], "90m": [SRAM]},
    ),
    ("a row that cannot be replaced", flag("row_remap_failed", "0x4 1x90"), flag("row_remap_failed", "0x90"), {"4m": [], "5m": [NO_ROW]}),
    (
        "a row that waits",
        flag("row_remap_pending", "0x4 1x30 0x90"),
        flag("row_remap_pending", "0x4 1x13 0x90"),
        {"19m": [], "20m": [PENDING], "35m": [PENDING], "36m": []},
    ),
    (
        "a bank without spares",
        flag("row_remap_banks", "1x90", ', availability="none"'),
        flag("row_remap_banks", "0x90", ', availability="none"') | flag("row_remap_banks", "9x90", ', availability="low"'),
        {"0m": [FEW_ROWS], "60m": [FEW_ROWS]},
    ),
    (
        "most rows replaced, and a bank without spares",
        flag("remapped_rows", "400x90", ', severity="uncorrected"') | flag("row_remap_banks", "1x90", ', availability="none"'),
        flag("remapped_rows", "399x90", ', severity="uncorrected"') | flag("remapped_rows", "500x90", ', severity="corrected"'),
        {"0m": [FEW_ROWS]},
    ),
    ("nearly all pages retired", pages(30, 30), pages(30, 29), {"14m": [], "15m": [PAGES], "90m": [PAGES]}),
    ("all pages retired", pages(60, 3), pages(58, 1), {"0m": [PAGES_FULL], "15m": [PAGES_FULL, PAGES]}),
    (
        "a page that waits",
        flag("retired_pages_pending", "1x90") | pages(0, 1),
        flag("retired_pages_pending", "0x90") | pages(0, 1),
        {"14m": [], "15m": [PAGES]},
    ),
]


@pytest.mark.parametrize(("series", "below", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_fires_when_it_should(tmp_path: Path, series: Mapping[str, str], below: Mapping[str, str], expected: Moments) -> None:
    """Not before its time, not below its value, not without its series, and once though two agents tell of it."""
    prove(tmp_path, series, below, expected)


def test_a_new_agent_does_not_page_again(tmp_path: Path) -> None:
    """The counter is the device's own: a new agent that shows old errors tells nothing new, under another number of the GPU too."""
    old, new = both(errors(""))
    moved = next(iter(errors("", gpu=MOVED))).replace("{", '{instance="new", ')
    again = [LOST_BEFORE]
    fire(tmp_path, {old: "2x30 stale", new: "_x29 2x90"}, {"29m": again, "30m": again, "31m": again, "45m": again})
    (renamed,) = ([alert("GpuEccUncorrectable", "warning", MOVED)],)
    fire(tmp_path, {old: "2x30", moved: "_x29 2x90"}, {"29m": again, "32m": again, "36m": [], "45m": renamed})


def test_the_page_lasts_through_a_restart_of_the_agent(tmp_path: Path) -> None:
    """An error that the old agent saw some minutes ago is still news, also right after a reset."""
    old, new = both(errors(""))
    lasts = {"30m": [LOST_DATA], "37m": [LOST_DATA], "39m": [LOST_DATA], "45m": [LOST_BEFORE]}
    fire(tmp_path, {old: "0x29 1x5 stale", new: "_x35 1x90"}, lasts)
    fire(tmp_path, {old: "3x27 0x1 1x5 stale", new: "_x35 1x90"}, lasts)


SAID: list[tuple[str, dict[str, str], str]] = [
    ("GpuEccUncorrectable", errors("0x29 1x90"), "has 1 uncorrected ECC errors, the last of them just now."),
    ("GpuEccCorrectedStorm", errors("0+7200x90", severity="corrected"), "corrects 120 errors a second."),
    ("GpuSramErrors", errors("6x90", "sram", scope="aggregate"), "has had 6 uncorrected SRAM errors."),
    ("GpuRowRemapFailed", flag("row_remap_failed", "1x90"), "No spare row is left"),
    ("GpuRowRemapPending", flag("row_remap_pending", "1x90"), "avoids the row until it is reset."),
    ("GpuRowRemapSparesLow", flag("row_remap_banks", "1x90", ', availability="none"'), "has a bank without a spare row"),
    ("GpuRetiredPages", pages(0, 64), "has 64 retired pages of 64."),
]


@pytest.mark.parametrize(("name", "series", "words"), SAID, ids=[one[0] for one in SAID])
def test_says_where_whom_and_what_to_do(tmp_path: Path, name: str, series: Mapping[str, str], words: str) -> None:
    """Node, GPU, model, job, the value, and a first thing to do."""
    found = say(tmp_path, both({**series, **HELD}), "35m", name)
    assert any(words in told["description"] for told in found)
    for told in found:
        for one in ("GPU 0 (H100) on n1", "Held by TFJob speech/wav (pod wav-0).", "First: "):
            assert one in told["description"]
        assert told["runbook_url"].endswith(f"/{name}.md")


def test_thresholds_may_be_set(tmp_path: Path) -> None:
    """Another number, another rate and another window count."""
    series = errors("0x9 1x9 2x90") | errors("0+660x90", severity="corrected") | pages(0, 50)
    changed = {"ecc_uncorrected": "2", "ecc_uncorrected_window": "5m", "ecc_corrected_storm": "10", "retired_pages_many": "50"}
    steady = [STORM, PAGES]
    moments = {"19m": steady, "20m": [*steady, LOST_DATA], "24m": [*steady, LOST_DATA], "25m": [*steady, LOST_BEFORE]}
    fire(tmp_path, series, moments, thresholds=changed)
