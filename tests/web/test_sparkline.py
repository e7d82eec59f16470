"""Curves as pictures: gaps, limits, and the same in words."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.curves import LENGTH, Curve
from gpuwatch.web.sparkline import sparkline


def drawn(*newest: float | None, limit: float | None = None) -> ET.Element:
    """The picture of a curve that ends with these values."""
    curve: Curve = (*(None,) * (LENGTH - len(newest)), *newest)
    return ET.fromstring(sparkline("Power", curve, limit=limit, show=lambda value: f"{value:.0f} W"))  # noqa: S314 - our own


def line(picture: ET.Element) -> str:
    """The path of the curve itself."""
    return picture.findall("path")[-1].get("d", "")


def test_a_gap_breaks_the_line() -> None:
    """Known values are joined, what was not reported is left open, a lone value is a dot."""
    assert line(drawn(0.0, 50.0, None, None, 100.0, None, 0.0, 0.0, limit=100.0)) == "M53 230L54 120M57 10h0M59 230L60 230"


def test_a_level_stretch_is_told_by_its_ends() -> None:
    """What does not change costs no room."""
    assert line(drawn(*[50.0] * 30, 100.0, limit=100.0)) == "M30 120L59 120L60 10"


def test_words_tell_what_the_picture_shows() -> None:
    """Title and description give the extent, the present value and the limit."""
    picture = drawn(100.0, 523.4, 300.0, limit=700.0)
    assert picture.get("role") == "img"
    assert picture.findtext("title") == "Power in the last 5 minutes: 100 W to 523 W, now 300 W"
    assert picture.findtext("desc") == "The dashed line is its limit, 700 W. Where the line is broken, nothing was reported."
    assert drawn(5.0, 5.0, None).findtext("title") == "Power in the last 5 minutes: always 5 W, not reported now"
    assert drawn(5.0).findtext("desc") == "The upper edge is the highest value. Where the line is broken, nothing was reported."


def test_the_limit_is_where_it_is() -> None:
    """It is the upper edge, until a value goes beyond it."""
    assert drawn(50.0, limit=100.0).findall("path")[0].get("d") == "M0 10h60"
    assert drawn(50.0, 200.0, limit=100.0).findall("path")[0].get("d") == "M0 120h60"
    assert len(drawn(50.0).findall("path")) == 1


@given(
    st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=LENGTH), st.none() | st.floats()
)
def test_any_values_stay_within_the_picture(values: list[float | None], limit: float | None) -> None:
    """Whatever the values, the picture is well-formed and every point lies in it."""
    if all(value is None for value in values):
        values = [*values[:-1], 0.0]
    picture = drawn(*values, limit=limit)
    for path in picture.findall("path"):
        points = re.findall(r"[ML](\S+) ([^MLh]+)", path.get("d", ""))
        assert points
        assert all(0 <= int(place) <= 60 and 0 <= float(height) <= 240 for place, height in points)
