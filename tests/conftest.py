"""What holds for every test: examples are not timed, since a slow machine is no defect of the code. And the option for expected texts.

Also what holds when the files of tests run side by side: their order, who goes first on a busy machine, and tables from every process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("gpuwatch", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gpuwatch")
EXPECTED = Path(__file__).parent / "expected"


AGAINST_THE_CLOCK = "end_to_end/"
"""Real daemons whose GPUs fail at set times, in one file under a clock that runs sixty times as fast as ours."""
ALONE = (
    *("end_to_end/test_tensorflow.py", "tensorflow/test_callback.py", "tensorflow/test_monitor.py"),
    "examples/test_tensorflow_examples.py",
)
"""Trainings whose parts are told by how long they take: nothing else may take the processor meanwhile."""
FIRST = (
    *("end_to_end/test_tensorflow.py", "end_to_end/test_alerts.py", AGAINST_THE_CLOCK, "test_dockerfile.py"),
    *("rules/", "examples/", "tensorflow/", "dashboards/", "deploy/", "health/"),
)
"""What takes long, longest first, so that no process has it left when the others are done."""
_GIVES_WAY = 5
"""Enough beside what needs one processor of two, and not so much that the tests are forgotten on a busy machine."""
_yields = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, see :data:`FIRST`; else as they were."""

    def place(item: pytest.Item) -> int:
        return next((number for number, start in enumerate(FIRST) if _path(item).startswith(start)), len(FIRST))

    items.sort(key=place)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Beside others, a process gives way to them once it is done with what runs against the clock, for the rest of its life."""
    global _yields  # noqa: PLW0603 - a process has one priority
    if hasattr(item.config, "workerinput") and not _yields and not _path(item).startswith(AGAINST_THE_CLOCK):
        _yields = True
        os.nice(_GIVES_WAY)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Beside others, each test waits for its turn; those of :data:`ALONE` have the machine for themselves."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    # Each process has a directory of its own below the one of the run.
    with _turn(item.config._tmp_path_factory.getbasetemp().parent, alone=_path(item) in ALONE):  # type: ignore[attr-defined]
        return (yield)


@contextlib.contextmanager
def _turn(place: Path, *, alone: bool) -> Iterator[None]:
    """Held for one test. Who waits to be alone holds the gate, so that nobody else begins."""
    with (place / "gate").open("w") as at_gate, (place / "turn").open("w") as in_turn:
        fcntl.flock(at_gate, fcntl.LOCK_EX)
        fcntl.flock(in_turn, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(at_gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(in_turn, fcntl.LOCK_UN)


def _path(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).as_posix()


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
