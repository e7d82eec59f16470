"""Small judged nodes for tests of who is told what: sound H100s of which a test changes the verdicts."""

from __future__ import annotations

import msgspec

from gpuwatch.health.policy import POLICY
from gpuwatch.snapshot import Gpu, JobUse, Reason, Snapshot, State, Verdict
from snapshots import h100, node

OK = Verdict(state="ok")
UNKNOWN = Verdict(state="unknown", action="inspect", reasons=(Reason(code="unreadable", severity="ticket", action="inspect"),))


def verdict(state: State, *codes: str, detail: str = "") -> Verdict:
    """With these rules as reasons, of that state whatever they would bring."""
    reasons = tuple(
        Reason(code=code, severity=POLICY[code].severity, action=POLICY[code].action, detail=detail or POLICY[code].says) for code in codes
    )
    return Verdict(state=state, action=reasons[0].action if reasons else "none", reasons=reasons)


FAILED = verdict("failed", "gpu_lost")
DEGRADED = verdict("degraded", "row_remap_pending")


def judged(*verdicts: Verdict | None, jobs: tuple[JobUse, ...] = (), gpus: tuple[Gpu, ...] = (), at: float | None = None) -> Snapshot:
    """A node with a GPU for each verdict."""
    gpus = gpus or tuple(h100(index) for index in range(len(verdicts)))
    shown = node(*(msgspec.structs.replace(gpu, verdict=one) for gpu, one in zip(gpus, verdicts, strict=True)))
    return msgspec.structs.replace(shown, jobs=jobs, timestamp_seconds=shown.timestamp_seconds if at is None else at)
