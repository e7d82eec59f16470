"""Reasons that lie in the XIDs of a GPU: the table, and what one XID says about another. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gpuwatch.health.evidence import Evidence, XidSeen
from gpuwatch.health.policy import XID_DETAIL, XID_INFO_HOLD, XID_PAGE_HOLD, XID_TICKET_HOLD
from gpuwatch.health.signs import RECOVERY_CHANGED, echo_of, recovery_wanted
from gpuwatch.health.xid import MAX_CODE, XidPolicy, policy_of, recovery_of_text, said_fatal
from gpuwatch.snapshot import Action, Reason, Severity

CLEANUP, NVLINK_ERROR = 45, 74
GRAVE_FOR_PEERS: Final = frozenset({48, 62, 79, 119})
"""XIDs of a GPU whose echo an NVLink error of its peers may be."""
_DETAILS_OF: Final = {171: 48, 172: 48}
_REMAP_RECORDED: Final = 63
_LOST_DATA: Final = frozenset({48, 94, 95, 171, 172})
_ENDED_BY: Final = {163: 162}
_NVLINK_5: Final = frozenset(range(144, 151))
_HOLD: Final = {"page": XID_PAGE_HOLD.seconds, "ticket": XID_TICKET_HOLD.seconds, "info": XID_INFO_HOLD.seconds}
_ACTIONS: Final[dict[int, Action]] = {1: "reset_gpu", 2: "reboot_node", 3: "drain", 4: "reset_gpu"}
"""What field 230 asks for, as actions."""


def xid_signs(evidence: Evidence, overrides: Mapping[int, XidPolicy]) -> Iterator[Reason]:
    """A reason for each XID that still counts and is no part of another."""
    seen = {one.code: one for one in evidence.xids}
    wanted = _ACTIONS.get(recovery_wanted(evidence))
    for code in sorted(seen):
        if code and not _is_covered(seen[code], seen, evidence) and not _is_mended(seen[code], evidence, overrides):
            found = _judged(seen[code], evidence, overrides)
            if evidence.at - seen[code].last_at <= _HOLD[found.severity]:
                # The driver's own wish goes before the table; it never makes an XID lighter.
                yield (
                    found
                    if wanted is None or found.severity == "info"
                    else Reason(code=found.code, severity=found.severity, action=wanted, detail=found.detail)
                )


def _is_covered(one: XidSeen, seen: Mapping[int, XidSeen], evidence: Evidence) -> bool:
    """Something else already tells what this XID tells."""
    code = one.code
    if code == CLEANUP:
        return any(other.code != CLEANUP and _is_beside(one, other) for other in seen.values())
    if code in _DETAILS_OF:
        whole = seen.get(_DETAILS_OF[code])
        return whole is not None and _is_beside(one, whole)
    if code == _REMAP_RECORDED:
        return evidence.row_remap_pending is not None or evidence.retired_pages_pending is not None
    if code == RECOVERY_CHANGED:
        return recovery_of_text(one.text) is not None or evidence.recovery_action is not None
    end = seen.get(_ENDED_BY.get(code, 0))
    return end is not None and end.last_at >= one.last_at


def _is_mended(one: XidSeen, evidence: Evidence, overrides: Mapping[int, XidPolicy]) -> bool:
    """The driver shows that a grave XID from before the agent started is over: agents are stopped for a reset, and miss it."""
    if not one.replayed or not evidence.read or evidence.ecc_uncorrected or policy_of(one.code, overrides).severity != "page":
        return False
    # Volatile counters begin anew with a reset, and such an XID raises them.
    return (one.code in _LOST_DATA and evidence.ecc_uncorrected == 0) or evidence.recovery_action == 0


def _is_beside(one: XidSeen, other: XidSeen) -> bool:
    return abs(one.last_at - other.last_at) <= XID_DETAIL.seconds


def _judged(one: XidSeen, evidence: Evidence, overrides: Mapping[int, XidPolicy]) -> Reason:
    policy = policy_of(one.code, overrides)
    severity: Severity = policy.severity
    action: Action = policy.action
    extra = ""
    if one.code not in overrides:
        fatal = said_fatal(one.text) if one.code in _NVLINK_5 else None
        if fatal is not None:
            severity, action = ("page", "reset_gpu") if fatal else ("ticket", "watch")
        peer = echo_of(evidence, one.last_at) if one.code == NVLINK_ERROR else None
        if peer is not None:
            severity, action, extra = "info", "watch", f"; perhaps only the echo of GPU {peer.gpu} (XID {peer.code})"
    if one.job and one.job in evidence.guilty_jobs:
        extra += f"; {one.job} died of it on several GPUs: its own fault"
    times = f", {one.count} times" if one.count > 1 else ""
    known = 0 < one.code <= MAX_CODE
    return Reason(
        code=f"xid_{one.code}" if known else "xid_unknown",
        severity=severity,
        action=action,
        detail=f"XID {one.code}, {policy.name}{times}{extra}",
    )
