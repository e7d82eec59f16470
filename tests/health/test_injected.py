"""Every fault that docs/demo.md promises reaches the verdict it promises, and ends when it says so."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from gpuwatch.device.simulated import InjectionError, inject
from gpuwatch.device.simulated.board import load_board
from gpuwatch.device.simulated.fault import Fault
from gpuwatch.device.simulated.injectable import KINDS
from gpuwatch.device.simulated.scenario import Scenario, parse_scenario
from health.watched import Watched

PAGE = (Path(__file__).parents[2] / "docs" / "demo.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| `fault=")]
BOARDS = ("a100-80gb-sxm", "h100-sxm", "t4")


def code(cell: str) -> list[str]:
    """What stands in backquotes."""
    return re.findall("`([^`]*)`", cell)


def nodes() -> list[tuple[str, Scenario]]:
    """Two busy GPUs of each board, as text and as scenario."""
    texts = [f"gpus: [{{board: {board}, count: 2, loads: [{{kind: training}}]}}]\n" for board in BOARDS]
    return [(text, parse_scenario(f"name: two\ndescription: Two.\n{text}".encode())) for text in texts]


def watched(spec: str) -> Watched:
    """The first node that can have the fault, having it."""
    for text, scenario in nodes():
        try:
            faults = inject(scenario, (spec,))
        except InjectionError:
            continue
        return Watched(f"{text}faults: {msgspec.json.encode(faults).decode()}")
    raise AssertionError(f"no board for {spec}")


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_documented_fault(row: list[str]) -> None:
    """The GPU gets the verdict with all these reasons, its neighbour stays sound, and after ``for`` it is over where the page says so."""
    [spec], [state], reasons = code(row[0]), code(row[2]), set(code(row[3]))
    ends = not row[4].startswith("never") and spec != "fault=crash"
    node = watched(f"{spec},for=1200" if spec != "fault=crash" else spec)
    node.run_to(1200)
    verdicts = [verdict for _, gpu, verdict in node.seen if gpu == 0]
    assert any(verdict.state == state and reasons <= {reason.code for reason in verdict.reasons} for verdict in verdicts)
    if "gpu=" in spec:
        assert node.verdict(1).state == "ok"
    if ends:
        assert node.run_to(1200 + 1200).verdict(0).state == "ok"


@pytest.mark.parametrize(
    ("xid", "board", "state", "reasons"),
    [
        (79, "a100-80gb-sxm", "failed", {"xid_79", "gpu_lost"}),
        (48, "a100-80gb-sxm", "failed", {"xid_48", "ecc_uncorrected", "row_remap_pending"}),
        (48, "t4", "failed", {"xid_48", "ecc_uncorrected", "retired_pages_pending"}),
        (48, "rtx4090", "failed", {"xid_48"}),
        (94, "h100-sxm", "failed", {"xid_94", "ecc_uncorrected", "row_remap_pending"}),
        (95, "h100-sxm", "failed", {"xid_95", "ecc_uncorrected", "row_remap_pending"}),
        (63, "a100-80gb-sxm", "degraded", {"row_remap_pending"}),
        (63, "v100-sxm2", "degraded", {"retired_pages_pending"}),
        (64, "a100-80gb-sxm", "failed", {"xid_64", "row_remap_failed"}),
        (74, "h100-sxm", "failed", {"xid_74", "nvlink_down"}),
        (74, "l40s", "failed", {"xid_74"}),
        (119, "h100-sxm", "failed", {"xid_119", "gpu_hung"}),
        (154, "a100-80gb-sxm", "failed", {"recovery_reset"}),
        (31, "a100-80gb-sxm", "ok", {"xid_31"}),
        (999, "a100-80gb-sxm", "degraded", {"xid_unknown"}),
    ],
)
def test_xid_with_what_it_brings(xid: int, board: str, state: str, reasons: set[str]) -> None:
    """An XID has on each board the consequences that the board can have."""
    text = f"gpus: [{{board: {board}, loads: [{{kind: matmul}}]}}]\n"
    scenario = parse_scenario(f"name: one\ndescription: One.\n{text}".encode())
    faults = inject(scenario, (f"xid={xid},gpu=0",))
    verdict = Watched(f"{text}faults: {msgspec.json.encode(faults).decode()}").run_to(180).verdict()
    assert (verdict.state, {reason.code for reason in verdict.reasons} >= reasons) == (state, True)


def test_the_page_names_every_kind_with_its_keys() -> None:
    """No kind of fault, no key and no default is missing on the page, and none is told that is not there."""
    told: dict[str, dict[str, str]] = {}
    for row in ROWS:
        kind = code(row[0])[0].partition(",")[0].removeprefix("fault=")
        told.setdefault(kind, dict(pair.split("=") for pair in code(row[1])))
    assert told == {name: {key: written(getattr(fault, key)) for key in KINDS[name].keys} for name, fault in plain_faults().items()}


def plain_faults() -> dict[str, Fault]:
    """A fault of each kind whose own keys were left out."""
    found: dict[str, Fault] = {}
    for name, kind in KINDS.items():
        fits = (scenario for _, scenario in nodes() if kind.needs in (None, *load_board(scenario.gpus[0].board).support))
        [found[name]] = inject(next(fits), (f"fault={name}" + (",gpu=0" if kind.of_gpu else ""),))
    return found


def written(value: object) -> str:
    """As a person writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
