"""What the node condition says: all verdicts of a node as one. Pure, but for the times that it remembers.

Only ``failed`` makes the node unhealthy. A degraded GPU still computes right, and who drains nodes by this condition would lose the work on
seven sound GPUs for a flaw that can wait; it stays ``True`` and has its own reason. ``unknown`` must last, since a start of the agent or
the driver says nothing about a board.
"""

from __future__ import annotations

from typing import Final

from gpuwatch.health.verdict import STATES
from gpuwatch.kube.events import shortened
from gpuwatch.kube.node_condition import Condition, Status
from gpuwatch.snapshot import Gpu, Snapshot, State

UNKNOWN_SECONDS: Final = 120.0
"""So long must GPUs be unreadable before the condition is Unknown."""
_WORDS: Final[dict[State, tuple[Status, str]]] = {
    "ok": ("True", "AllGpusOk"),
    "degraded": ("True", "GpuDegraded"),
    "unknown": ("Unknown", "GpuUnreadable"),
    "failed": ("False", "GpuFailed"),
}


class Standing:
    """The node's condition over time."""

    def __init__(self) -> None:
        self._unknown_since: float | None = None
        self._condition: Condition | None = None

    def note(self, snapshot: Snapshot, now: float) -> Condition | None:
        """The condition now; ``None`` while there is none to tell yet. ``now``: CLOCK_MONOTONIC, seconds."""
        states = {gpu.verdict.state for gpu in snapshot.gpus if gpu.verdict is not None} or {"unknown"}
        if "unknown" not in states:
            self._unknown_since = None
        elif self._unknown_since is None:
            self._unknown_since = now
        if self._unknown_since is not None and now - self._unknown_since < UNKNOWN_SECONDS:
            states -= {"unknown"}
            if not states or (self._condition is None and "failed" not in states):
                return self._condition
        state = max(states, key=STATES.index)
        status, reason = _WORDS[state]
        before = self._condition
        since = before.since if before is not None and before.status == status else snapshot.timestamp_seconds
        self._condition = Condition(status=status, reason=reason, message=_message(snapshot, state), since=since)
        return self._condition


def _message(snapshot: Snapshot, state: State) -> str:
    """The GPUs that are the reason. Only what changes with the verdict, so that the condition does not with every read."""
    count = sum(gpu.verdict is not None for gpu in snapshot.gpus)
    if state == "ok":
        return "the GPU is sound" if count == 1 else f"all {count} GPUs are sound"
    found = [gpu for gpu in snapshot.gpus if gpu.verdict is not None and gpu.verdict.state == state]
    if not found:
        return "no GPU can be read"
    return shortened(f"{len(found)} of {count} GPUs {state}: {'; '.join(map(_gpu, found))}")


def _gpu(gpu: Gpu) -> str:
    reasons = ", ".join(reason.code for reason in gpu.verdict.reasons if reason.severity != "info") if gpu.verdict is not None else ""
    action = gpu.verdict.action if gpu.verdict is not None else "none"
    return f"GPU {gpu.identity.index} {gpu.identity.uuid}: {reasons or 'not read'} ({action})"
