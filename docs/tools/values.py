"""Values as words, by Grafana's names of units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))
_BINARY = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_AGO = ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_SUFFIXES = {"watt": "W", "celsius": "°C", "Bps": "B/s", "s": "s", "cps": "/s", "kwatth": "kWh", "short": ""}


def worded(value: float, unit: str, decimals: int | None, *, now: float) -> str:
    """``now`` is the Unix time of the picture, for times that are told as ago."""
    if unit == "percentunit":
        return f"{value * 100:.{decimals if decimals is not None else 1}f}%"
    if unit == "dateTimeFromNow":
        return _ago(now - value / 1000)
    if unit == "currencyUSD":
        return f"${value:,.{decimals if decimals is not None else 2}f}"
    if unit == "bytes":
        size, name = next((one for one in _BINARY if abs(value) >= one[0]), _BINARY[-1])
        return f"{_plain(value / size, decimals)} {name}"
    if unit == "s" and value >= 60:  # noqa: PLR2004
        return f"{value / 60:.0f} min"
    if unit in ("celsius", "kwatth"):
        return f"{_plain(value, decimals)} {_SUFFIXES[unit]}"
    size, prefix = next((one for one in _PREFIXES if abs(value) >= one[0]), (1.0, ""))
    if unit in ("short", "cps") and size < 1:
        size, prefix = 1.0, ""
    return f"{_plain(value / size, decimals)} {prefix}{_SUFFIXES[unit]}".rstrip()


def _plain(value: float, decimals: int | None) -> str:
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"  # noqa: PLR2004


def _ago(seconds: float) -> str:
    size, name = next((one for one in _AGO if seconds >= one[0]), _AGO[-1])
    return f"{round(seconds / size)} {name} ago"


def marked(value: float | str | None, mappings: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Word and colour of a value that is shown as a word."""
    for mapping in mappings:
        key = "null" if value is None else value if isinstance(value, str) else f"{value:g}"
        if key in mapping["options"]:
            found = mapping["options"][key]
            return found["text"], found.get("color", "text")
    return None


def stepped(value: float, steps: Sequence[Mapping[str, Any]]) -> str:
    """Colour of a value by its thresholds."""
    return str([step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]) if steps else "text"
