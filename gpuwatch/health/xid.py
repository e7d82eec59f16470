"""What each XID means and asks for: the table ``xid.csv``, changed by the operator where he knows better. Pure but for reading the table.

Codes 1 to 172 follow NVIDIA's catalogue; 173 to 176 are known by name from the open kernel driver. Severities and actions are ours:
NVIDIA's buckets say what a user does, not who must be woken.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final, get_args

from gpuwatch.device.readings import Struct
from gpuwatch.snapshot import Action, Severity
from gpuwatch.yamlfile import YamlFileError, parse_mapping

MAX_CODE: Final = 176
_HIGHEST_CODE: Final = 100_000
"""Of a code that an operator may name; unknown numbers are allowed, nonsense is not."""
_SHOWN = 60

RECOVERY_ACTIONS: Final = ("none", "gpu reset required", "node reboot required", "drain p2p", "drain and reset", "recover imex")
"""NVML field 230 by value, in the words of XID 154. NVML: ``nvmlDeviceGpuRecoveryAction_t``."""
_BRACKETS = re.compile(r"\(([^()]*)\)")


class XidPolicy(Struct, frozen=True, kw_only=True):
    """What one XID means. ``severity``: ``page`` (drain now), ``ticket`` (when convenient), ``info`` (the owner of the job)."""

    code: int
    name: str
    category: str
    """A bounded word: ``memory_ecc``, ``pcie_bus``, ``nvlink``, ``firmware_gsp``, ``user_app``, …, ``unknown``."""
    severity: Severity
    action: Action
    note: str = ""


class OverrideError(ValueError):
    """An override is refused; the message is one line."""


def policy_of(code: int, overrides: Mapping[int, XidPolicy] | None = None) -> XidPolicy:
    """The policy of a code: the operator's, else the table's. A code nobody knows is a ticket for the platform team: keep the logs."""
    if overrides and code in overrides:
        return overrides[code]
    known = xid_table().get(code)
    if known is not None:
        return known
    return XidPolicy(code=code, name="Unknown XID", category="unknown", severity="ticket", action="watch", note="newer than gpuwatch")


@cache
def xid_table() -> dict[int, XidPolicy]:
    """The table that ships with gpuwatch, by code. Source: ``xid.csv`` beside this module."""
    text = resources.files(__package__).joinpath("xid.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {int(row["xid"]): _checked(int(row["xid"]), row, where=f"xid.csv: {row['xid']}") for row in rows}


def parse_overrides(value: object) -> dict[int, XidPolicy]:
    """Rows that the operator changed: ``{31: {severity: ticket, action: inspect}}``, as a mapping or as YAML text of one.

    Raises:
        OverrideError: a code, a key or a value that makes no sense.
    """
    if isinstance(value, str):
        try:
            value = parse_mapping(value)
        except YamlFileError as error:
            raise OverrideError(str(error)) from None
    if not isinstance(value, dict):
        raise OverrideError(f"{_shown(value)} is not allowed; expected a mapping of XID numbers, such as {{31: {{severity: ticket}}}}")
    return {_code(code): _changed(_code(code), changes) for code, changes in value.items()}


def _code(code: object) -> int:
    if isinstance(code, str) and re.fullmatch("[0-9]{1,6}", code):
        code = int(code)
    if isinstance(code, bool) or not isinstance(code, int) or not 1 <= code <= _HIGHEST_CODE:
        raise OverrideError(f"{_shown(code)} is no XID; expected a whole number from 1 to {_HIGHEST_CODE}")
    return code


def _changed(code: int, changes: object) -> XidPolicy:
    if not isinstance(changes, dict) or not changes:
        raise OverrideError(f"{code}: {_shown(changes)} is not allowed; expected severity, action or both")
    for key in changes:
        if key not in {"severity", "action"}:
            raise OverrideError(f"{code}: unknown key {_shown(key)}; expected severity or action")
    table = policy_of(code)
    row = {"name": table.name, "category": table.category, "severity": table.severity, "action": table.action, "note": table.note}
    return _checked(code, row | changes, where=str(code))


def _checked(code: int, row: Mapping[str, object], *, where: str) -> XidPolicy:
    for key, allowed in (("severity", get_args(Severity)), ("action", get_args(Action))):
        if row[key] not in allowed:
            raise OverrideError(f"{where}: {key} {_shown(row[key])} is not allowed; expected one of {', '.join(allowed)}")
    return XidPolicy(code=code, **{key: row[key] for key in ("name", "category", "severity", "action", "note")})  # type: ignore[arg-type]


def recovery_of_text(text: str) -> int | None:
    """What the driver asks for in the text of an XID 154, as NVML field 230 would say it; ``None`` when no bracket says it."""
    for said in reversed(_BRACKETS.findall(text)):
        words = " ".join(said.lower().split())
        for value, known in enumerate(RECOVERY_ACTIONS):
            if words == known or (value and words.startswith(known)):
                return value
    return None


def said_fatal(text: str) -> bool | None:
    """Whether the text of an NVLink XID (144 to 150) calls it fatal; ``None`` when it says neither."""
    lowered = text.lower()
    if re.search(r"\bnon-?\s?fatal\b", lowered):
        return False
    return True if re.search(r"\bfatal\b", lowered) else None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
