"""The forms of a rule. Thresholds and addresses stand in expressions and texts as ``${name}``, so that the chart can set each of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from gpuwatch.device.readings import Struct

Severity = Literal["critical", "warning", "info"]
"""``critical``: wake somebody; ``warning``: a ticket; ``info``: for the owner of the job."""
Board = Literal["fleet", "job", "efficiency", "node", "mig", "agent"]
_PLACE: Final = re.compile(r"\$\{(\w+)\}")


class Threshold(Struct, frozen=True, kw_only=True):
    """A value that an operator may change: a number, or a duration as Prometheus writes it."""

    name: str
    value: str
    unit: str
    why: str
    change: str
    """When another value is better."""


class Alert(Struct, frozen=True, kw_only=True):
    """An alerting rule. Two of the same name are tiers of one condition; their severities differ."""

    name: str
    group: str
    severity: Severity
    expression: str
    """Every series of it has the labels that ``subject`` names and, at most, others that tell alerts of one subject apart."""
    for_: str = "0s"
    """How long the condition must hold. 0 where the expression looks back by itself."""
    keep_firing: str = "0s"
    """How long it goes on after the condition is gone, against flapping."""
    subject: Literal["gpu", "node", "job", "fleet"]
    summary: str
    """One short sentence without values: notifications are grouped by it."""
    description: str
    """Where, which value, whom it hits, and the first thing to do."""
    board: Board


class Recording(Struct, frozen=True, kw_only=True):
    """A recording rule, named ``level:metric:operations``."""

    name: str
    expression: str
    says: str
    forward: bool
    """Whether a fleet should send it on (federation, remote write) in place of the raw series."""


def placed(text: str, values: Mapping[str, str]) -> str:
    """The text with its ``${name}`` filled in.

    Raises:
        KeyError: there is no such value.
    """
    return _PLACE.sub(lambda found: values[found[1]], text)


def places(text: str) -> set[str]:
    """The names that stand in the text."""
    return set(_PLACE.findall(text))
