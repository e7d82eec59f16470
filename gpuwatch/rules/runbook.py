"""The table of XIDs in a runbook, made from the policy, between two marks in a text that people write."""

from __future__ import annotations

import textwrap
from typing import Final

from gpuwatch.health.xid import XidPolicy, xid_table
from gpuwatch.snapshot import Action, Severity

BEGIN: Final = "<!-- xid table -->"
END: Final = "<!-- end of the xid table -->"
TABLES: Final[dict[str, Severity]] = {"GpuXidCritical": "page", "GpuXidDrainSoon": "ticket", "GpuXidApplication": "info"}
"""Alert → the severity of the XIDs that it is about."""
_ACTIONS: Final[dict[Action, str]] = {
    "none": "Nothing.",
    "watch": "Keep the logs; open a case if it comes again.",
    "restart_job": "Start the job again.",
    "drain": "Drain the GPU.",
    "reset_gpu": "Drain, then reset the GPU.",
    "reboot_node": "Drain, then reboot the node.",
    "inspect": "Drain, then look at the hardware.",
}
_WIDTH: Final = 140
_OF_OLD: Final = frozenset({"not in use", "old meaning"})


def with_xid_table(text: str, severity: Severity) -> str:
    """The text with the XIDs of that severity between its marks.

    Raises:
        ValueError: the marks are not there once each, in their order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after or END in before:
        raise ValueError(f"the text has no place for the table of XIDs; expected one {BEGIN} and after it one {END}")
    return f"{before}{BEGIN}\n\n{_table(severity)}\n{END}{after}"


def _table(severity: Severity) -> str:
    policies = [one for one in xid_table().values() if one.severity == severity]
    rows = "".join(map(_row, (one for one in policies if one.note not in _OF_OLD)))
    old = ", ".join(str(one.code) for one in policies if one.note in _OF_OLD)
    rest = "\n" + textwrap.fill(f"Not in use on today's boards; if one comes, keep the logs: {old}.", _WIDTH) + "\n" if old else ""
    return f"| XID | name | what it means | what to do |\n|---|---|---|---|\n{rows}{rest}"


def _row(policy: XidPolicy) -> str:
    meaning = policy.note or policy.name
    return f"| {policy.code} | {policy.name} | {meaning[0].upper()}{meaning[1:]}. | {_ACTIONS[policy.action]} |\n"
