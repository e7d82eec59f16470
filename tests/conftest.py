"""What holds for every test: examples are not timed, since a slow machine is no defect of the code. And the option for expected texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("gpuwatch", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gpuwatch")
EXPECTED = Path(__file__).parent / "expected"


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
