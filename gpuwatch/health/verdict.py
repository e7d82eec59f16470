"""One verdict and one action for a GPU, from its evidence. Pure: the same evidence always brings the same verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

from gpuwatch.health.evidence import Evidence
from gpuwatch.health.policy import POLICY
from gpuwatch.health.signs import signs
from gpuwatch.health.xid import XidPolicy
from gpuwatch.health.xid_signs import xid_signs
from gpuwatch.snapshot import Action, Reason, State, Verdict

STATES: Final[tuple[State, ...]] = ("ok", "degraded", "unknown", "failed")
"""From the best to the worst. What cannot be seen is worse than what is known to work with a flaw."""
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
"""From the lightest to the heaviest."""
_STATE_OF: Final[dict[str, State]] = {"page": "failed", "ticket": "degraded", "info": "ok"}
_SEVERITIES: Final = ("info", "ticket", "page")


def judge(evidence: Evidence, overrides: Mapping[int, XidPolicy] | None = None) -> Verdict:
    """The worst state that any reason brings, and the heaviest action of the gravest reasons.

    ``overrides``: rows of the XID table that the operator changed.
    """
    found = sorted((*xid_signs(evidence, overrides or {}), *signs(evidence)), key=_gravity)
    # Several unknown XIDs share a token: the gravest speaks for them.
    reasons = tuple(sorted({reason.code: reason for reason in found}.values(), key=_gravity, reverse=True))
    gravest = [reason.action for reason in reasons if reason.severity == reasons[0].severity]
    return Verdict(
        state=max((state_of(reason) for reason in reasons), key=STATES.index, default="ok"),
        action=max(gravest, key=ACTIONS.index, default="none"),
        reasons=reasons,
    )


def state_of(reason: Reason) -> State:
    """The state that this reason alone brings."""
    rule = POLICY.get(reason.code)
    return _STATE_OF[reason.severity] if rule is None or rule.state is None else rule.state


def _gravity(reason: Reason) -> tuple[int, int, int, str]:
    return (
        _SEVERITIES.index(reason.severity),
        STATES.index(state_of(reason)),
        ACTIONS.index(reason.action),
        reason.code,
    )
