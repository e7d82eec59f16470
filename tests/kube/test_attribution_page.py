"""The page on attribution says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from gpuwatch.attribution import REASONS
from gpuwatch.kube import framework, podresources, pods, processes, slices
from gpuwatch.kube.job_kinds import JOB_KINDS, JobKind
from gpuwatch.metrics.catalog import METRICS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "attribution.md").read_text(encoding="utf-8")


def row(entry: JobKind) -> str:
    """The line of a kind in the page's table."""
    marks = ", ".join(f"`{key}={value}`" if value else f"`{key}`" for key, value in entry.marks)
    owners = ", ".join(f"`{kind}` ({group or 'core'})" for group, kind in entry.owners)
    replica = "; ".join(", ".join(f"`{key}`" for key in keys) for keys in (entry.replica_type, entry.replica_index) if keys)
    names = ", ".join(f"`{key}`" for key in entry.name)
    cells = (", ".join(f"`{kind}`" for kind in (entry.kind, *entry.becomes)), marks, owners, names, replica)
    return f"| {' | '.join(cell or '-' for cell in cells)} |"


def test_the_table_of_kinds_is_the_codes_table() -> None:
    """Every kind is on the page with its labels, owners and sources, in the order in which they are asked."""
    _, _, rest = PAGE.partition("## Kinds of jobs")
    lines = [line for line in rest.partition("\n## ")[0].split("\n") if line.startswith("| `")]
    assert lines == [row(entry) for entry in JOB_KINDS]


def test_every_reason_is_explained() -> None:
    """The page has a line for each reason why a device has no holder, and for no other."""
    _, _, rest = PAGE.partition("## A GPU without a holder")
    assert {line.split("`")[1] for line in rest.partition("\n## ")[0].split("\n") if line.startswith("| `")} == REASONS


def test_every_framework_and_reason_is_named() -> None:
    """Frameworks that can be told, and what told them, are on the page."""
    names = {*(known.name for known in framework.FRAMEWORKS), *framework.REASONS - {""}}
    assert {name for name in names if f"`{name}`" not in PAGE} == set()


def test_faults_and_metrics_on_the_page_exist() -> None:
    """No fault of a source and no metric is named that gpuwatch never shows."""
    sources = (("podresources", podresources.FAULTS), ("pods", pods.FAULTS), ("dra", slices.FAULTS), ("processes", processes.FAULTS))
    known = {f"{source}/{fault}" for source, faults in sources for fault in faults}
    named = re.findall(r"^\| `(podresources|pods|dra|processes)` \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert named
    assert {"/".join(pair) for pair in named} <= known
    assert set(re.findall(r"gpuwatch_\w+\b(?!\*)", PAGE)) <= {metric.name for metric in METRICS}
