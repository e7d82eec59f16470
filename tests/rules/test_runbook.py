"""The table of XIDs in a runbook."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.generate import generate
from gpuwatch.health.xid import xid_table
from gpuwatch.rules.runbook import BEGIN, END, TABLES, with_xid_table
from gpuwatch.snapshot import Severity

TEXT = f"# One\n\nBefore.\n{BEGIN}\nold\n{END}\nAfter.\n"


def listed(text: str) -> set[int]:
    """The numbers in the table and in the line below it."""
    rows = {int(line.split("|")[1]) for line in text.splitlines() if line.startswith("| ") and line[2].isdigit()}
    below = text.partition("keep the logs: ")[2].partition(".")[0]
    return rows | {int(one) for one in below.replace("\n", " ").split(", ") if one}


@pytest.mark.parametrize("severity", TABLES.values())
def test_holds_every_xid_of_its_severity(severity: Severity) -> None:
    """All of them and no other, so that no two runbooks give opposite advice."""
    assert listed(with_xid_table(TEXT, severity)) == {code for code, policy in xid_table().items() if policy.severity == severity}


def test_every_severity_has_its_runbook() -> None:
    """Three runbooks hold the whole table."""
    assert set().union(*(listed(with_xid_table(TEXT, severity)) for severity in TABLES.values())) == set(xid_table())


def test_keeps_what_people_wrote() -> None:
    """Only what lies between the marks changes, and once."""
    made = with_xid_table(TEXT, "page")
    assert made.startswith(f"# One\n\nBefore.\n{BEGIN}\n")
    assert made.endswith(f"{END}\nAfter.\n")
    assert "old\n" not in made
    assert "| 79 | GPU has fallen off the bus | PCIe link gone; reseat or replace the board when it comes again. |" in made
    assert with_xid_table(made, "page") == made


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{END}{END}", f"{BEGIN}{BEGIN}{END}"])
def test_refuses_a_text_without_a_place_for_it(text: str) -> None:
    """A mark that was lost must not cost the text behind it."""
    with pytest.raises(ValueError, match="no place for the table"):
        with_xid_table(text, "page")


def test_a_table_that_drifted_is_told_and_written(tmp_path: Path) -> None:
    """``generate`` renews it in the runbook that is there, and ``generate --check`` names the file until then."""
    generate(tmp_path, check=False)
    runbook = tmp_path / "docs" / "alerts" / "GpuXidCritical.md"
    runbook.write_text(TEXT)
    assert generate(tmp_path, check=True) == ["docs/alerts/GpuXidCritical.md"]
    assert generate(tmp_path, check=False) == ["docs/alerts/GpuXidCritical.md"]
    assert generate(tmp_path, check=True) == []
    assert runbook.read_text() == with_xid_table(TEXT, "page")
