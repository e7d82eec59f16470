"""The pack for a clock that runs ``factor`` times as fast: hours of a node pass in minutes, and every rule means what it meant.

Durations and thresholds in seconds become shorter; what ``rate()`` says is per fast second, so it is divided.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import promql_parser
import yaml

from gpuwatch.rules.pack import rule_file
from gpuwatch.rules.thresholds import THRESHOLDS

_SPAN = re.compile(r"\[(?P<range>\w+)(?P<colon>:)?(?P<step>\w*)\]|\boffset (?P<offset>\w+)")


def fast_rules(factor: float, values: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The whole pack as Prometheus loads it."""
    seconds = {one.name: f"{float(one.value) / factor:g}" for one in THRESHOLDS if one.unit == "seconds"}
    rules = yaml.safe_load(rule_file({**seconds, **(values or {})}))
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["expr"] = fast_expression(rule["expr"], factor)
            for key in {"for", "keep_firing_for"} & set(rule):
                rule[key] = fast_duration(rule[key], factor)
    return dict(rules)


def fast_configuration(configuration: dict[str, Any], factor: float) -> dict[str, Any]:
    """An Alertmanager's configuration with shorter times of its routes."""

    def faster(route: dict[str, Any]) -> dict[str, Any]:
        times = {key: fast_duration(value, factor) for key, value in route.items() if key.endswith(("_wait", "_interval"))}
        return {**route, **times, "routes": [faster(one) for one in route.get("routes", [])]}

    return {**configuration, "route": faster(configuration["route"])}


def fast_expression(expression: str, factor: float) -> str:
    """With each range, step and offset shorter, and each ``rate()`` divided."""
    return _divided(_SPAN.sub(lambda found: _shorter(found, factor), expression), factor)


def fast_duration(duration: str, factor: float) -> str:
    """In whole milliseconds."""
    milliseconds = promql_parser.parse_duration(duration).total_seconds() * 1000 / factor
    assert milliseconds == int(milliseconds) > 0, f"{duration} / {factor} is no time that Prometheus can write"
    return f"{int(milliseconds)}ms"


def _shorter(found: re.Match[str], factor: float) -> str:
    if found["offset"]:
        return f"offset {fast_duration(found['offset'], factor)}"
    step = fast_duration(found["step"], factor) if found["step"] else ""
    return f"[{fast_duration(found['range'], factor)}{found['colon'] or ''}{step}]"


def _divided(expression: str, factor: float) -> str:
    done, rest = "", expression
    while (found := re.search(r"\brate\(", rest)) is not None:
        end = _closing(rest, found.end())
        done += f"{rest[: found.start()]}({rest[found.start() : end]} / {factor:g})"
        rest = rest[end:]
    return done + rest


def _closing(text: str, start: int) -> int:
    """Behind the bracket that closes the one before ``start``. No bracket stands in a string of a range."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return place + 1
    raise AssertionError(f"a bracket stays open: {text}")
