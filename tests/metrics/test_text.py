"""Numbers, label values and headers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.utils import floatToGoString

from gpuwatch.metrics.catalog import Metric
from gpuwatch.metrics.text import header, label_value, number

METRIC = Metric(
    name="gpuwatch_gpu_energy_joules_total",
    type="counter",
    help='A "quoted" \\ text\non two lines.',
    labels=("node",),
    unit="joules",
    group="use",
    source="nowhere",
)


@given(st.one_of(st.floats(allow_nan=False), st.integers(min_value=-(2**80), max_value=2**80), st.booleans()))
def test_a_number_is_written_as_the_library_writes_it(value: float) -> None:
    """Floats of any size, infinities, large integers and booleans read the same as from prometheus_client."""
    assert number(value) == floatToGoString(value)


@pytest.mark.parametrize(
    "value", [0, -0.0, 1, 999_999, 999_999.5, 1_000_000, 1e6, -1e6, 1e15, 123456789012345678, 5e-324, math.inf, -math.inf]
)
def test_numbers_at_the_borders_of_the_short_way(value: float) -> None:
    """Zero, its negative, and the values around which the library changes its notation are written as by the library."""
    assert number(value) == floatToGoString(value)


@pytest.mark.parametrize("value", [math.nan, 10**400, -(10**400)])
def test_what_is_no_number_is_not_written(value: float) -> None:
    """NaN and integers beyond a double make no series."""
    assert number(value) is None


def test_a_label_value_is_escaped_as_the_formats_demand() -> None:
    """Backslash, quote and newline are escaped; everything else stays."""
    assert label_value('a\\b"c\nd\r\té{}#,=') == 'a\\\\b\\"c\\nd\r\té{}#,='


@given(st.text(alphabet=st.characters()))
def test_any_label_value_can_be_sent(value: str) -> None:
    """Half a surrogate pair is replaced, never an error; text without one is kept whole."""
    written = label_value(value)
    written.encode()
    if not any("\ud800" <= character <= "\udfff" for character in value):
        assert written == value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def test_the_header_of_the_text_format() -> None:
    """A counter keeps its suffix; a newline in HELP is escaped and a quote is not."""
    assert header(METRIC, "underscores", openmetrics=False) == (
        '# HELP gpuwatch_gpu_energy_joules_total A "quoted" \\\\ text\\non two lines. Source: nowhere.\n'
        "# TYPE gpuwatch_gpu_energy_joules_total counter\n"
    )


def test_the_header_of_openmetrics() -> None:
    """The family has no suffix, the unit is named, and quotes are escaped too."""
    assert header(METRIC, "underscores", openmetrics=True) == (
        '# HELP gpuwatch_gpu_energy_joules A \\"quoted\\" \\\\ text\\non two lines. Source: nowhere.\n'
        "# TYPE gpuwatch_gpu_energy_joules counter\n"
        "# UNIT gpuwatch_gpu_energy_joules joules\n"
    )
