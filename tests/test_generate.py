"""Generated files and the code they are made from."""

from __future__ import annotations

from pathlib import Path

from gpuwatch.generate import generate, metrics_page
from gpuwatch.metrics.catalog import METRICS
from gpuwatch.tensorflow.series import SERIES

ROOT = Path(__file__).parent.parent


def test_committed_files_are_in_step_with_the_code() -> None:
    """What is committed is what the code would write; else run ``gpuwatch generate``."""
    assert generate(ROOT, check=True) == []


def test_generating_writes_what_differs_once(tmp_path: Path) -> None:
    """A missing or changed file is written and named; the next run has nothing to do."""
    assert {"docs/metrics.md", "docs/configuration.md", "docs/alerts/README.md"} < set(generate(tmp_path, check=False))
    assert generate(tmp_path, check=False) == []
    (tmp_path / "docs" / "metrics.md").write_text("old")
    assert generate(tmp_path, check=True) == ["docs/metrics.md"]
    assert (tmp_path / "docs" / "metrics.md").read_text() == "old"
    assert generate(tmp_path, check=False) == ["docs/metrics.md"]


def test_the_page_has_a_line_for_each_metric() -> None:
    """Every metric of the agent and of a training process is there once, in a table with six columns."""
    lines = [line for line in metrics_page().split("\n") if line.startswith("| `gpuwatch_")]
    assert [line.split("`")[1] for line in lines] == [one.name for one in (*METRICS, *SERIES)]
    assert {line.replace("\\|", "").count("|") for line in lines} == {7}
