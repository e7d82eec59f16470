"""What holds for every test: examples are not timed, since a slow machine is no defect of the code. And the option for expected texts.

Also what holds when the files of tests run side by side: their order, who goes first on a busy machine, and tables from every process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("gpuwatch", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gpuwatch")
EXPECTED = Path(__file__).parent / "expected"


FAST_CLOCK = "end_to_end/test_alerts.py"
"""Its clock runs sixty times as fast as ours, so it must not wait for a processor."""
FIRST = (FAST_CLOCK, "end_to_end/", "rules/", "dashboards/")
"""What takes long, longest first, so that no process has it left when the others are done."""
_GIVES_WAY = 5
"""Enough beside a clock that needs one processor of two, and not so much that a busy machine forgets the tests."""
_yields = False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than processors: many tests wait for a daemon most of their time."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, see :data:`FIRST`; else as they were."""

    def place(item: pytest.Item) -> int:
        path = item.path.relative_to(Path(__file__).parent).as_posix()
        return next((number for number, start in enumerate(FIRST) if path.startswith(start)), len(FIRST))

    items.sort(key=place)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Beside others, a process gives way for the rest of its life with its first test that does not stand under the fast clock."""
    global _yields  # noqa: PLW0603 - a process has one priority
    if hasattr(item.config, "workerinput") and not _yields and not item.path.as_posix().endswith(FAST_CLOCK):
        _yields = True
        os.nice(_GIVES_WAY)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--rewrite-expected``."""
    parser.addoption("--rewrite-expected", action="store_true", help="Write the texts in tests/expected anew; their diff is the review.")


TABLES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def show_table(pytestconfig: pytest.Config) -> Callable[[str, list[tuple[str, ...]]], None]:
    """Print a table (title, rows of equal length; the first is the head) when all tests are done, whether they passed or not."""

    def show(title: str, rows: list[tuple[str, ...]]) -> None:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
        pytestconfig.stash.setdefault(TABLES, []).append("\n".join([title, *lines]))

    return show


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process beside others hands its tables over."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tables"] = session.config.stash.get(TABLES, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes them."""
    node.config.stash.setdefault(TABLES, []).extend(getattr(node, "workeroutput", {}).get("tables", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The tables of :func:`show_table`."""
    for table in config.stash.get(TABLES, []):
        terminalreporter.section(table.partition("\n")[0])
        terminalreporter.write_line(table.partition("\n")[2])


@pytest.fixture
def compare_expected(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the file of that name in tests/expected, or write the file when asked to."""

    def compare(name: str, text: str) -> None:
        path = EXPECTED / name
        if request.config.getoption("--rewrite-expected"):
            path.write_text(text)
        assert path.exists(), f"{path} is missing; write it with: python -m pytest --rewrite-expected"
        assert text == path.read_text(), f"{path} differs; if that is meant: python -m pytest --rewrite-expected"

    return compare
