"""Whether a GPU can be trusted, why not, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from gpuwatch.health.verdict import state_of
from gpuwatch.snapshot import State

if TYPE_CHECKING:
    from gpuwatch.metrics.row import Rows
    from gpuwatch.snapshot import Verdict

_STATES = get_args(State)


def verdict_rows(verdict: Verdict) -> Rows:
    """The state as a state set. Reasons that leave the state as it is (a program's own errors) are counted as XIDs and not shown here."""
    yield "gpuwatch_gpu_health_state", {state: state == verdict.state for state in _STATES}
    counted = (reason for reason in verdict.reasons if state_of(reason) != "ok")
    reasons: dict[tuple[str, str], float] = {(reason.code, reason.action): 1 for reason in counted}
    yield "gpuwatch_gpu_health_reason", reasons
