"""The node condition: what all verdicts of a node come to."""

from __future__ import annotations

import pytest

from gpuwatch.health.standing import UNKNOWN_SECONDS, Standing
from gpuwatch.kube.node_condition import Condition
from gpuwatch.snapshot import Verdict
from health.verdicts import DEGRADED, FAILED, OK, UNKNOWN, judged, verdict


def condition(*verdicts: Verdict | None) -> Condition:
    """Of a node that has been so for long."""
    standing = Standing()
    standing.note(judged(*verdicts), 0.0)
    found = standing.note(judged(*verdicts), UNKNOWN_SECONDS)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("verdicts", "status", "reason", "message"),
    [
        ((OK, OK), "True", "AllGpusOk", "all 2 GPUs are sound"),
        ((OK, DEGRADED), "True", "GpuDegraded", "1 of 2 GPUs degraded: GPU 1 "),
        ((DEGRADED, FAILED), "False", "GpuFailed", "1 of 2 GPUs failed: GPU 1 "),
        ((UNKNOWN, FAILED), "False", "GpuFailed", "1 of 2 GPUs failed"),
        ((UNKNOWN, DEGRADED), "Unknown", "GpuUnreadable", "1 of 2 GPUs unknown: GPU 0 "),
        ((None,), "Unknown", "GpuUnreadable", "no GPU can be read"),
        ((None, OK), "True", "AllGpusOk", "the GPU is sound"),
    ],
)
def test_the_worst_gpu_decides(verdicts: tuple[Verdict | None, ...], status: str, reason: str, message: str) -> None:
    """Only a failed GPU makes the node unhealthy; a flaw is said and leaves it healthy; what cannot be seen is unknown."""
    found = condition(*verdicts)
    assert (found.status, found.reason) == (status, reason)
    assert found.message.startswith(message)


def test_unknown_must_last() -> None:
    """A start of the agent tells nothing before all is read, except a failure; an upgrade of the driver leaves what was said."""
    standing = Standing()
    assert standing.note(judged(UNKNOWN, OK), 0.0) is None
    before = standing.note(judged(OK, OK), 1.0)
    assert before is not None
    assert standing.note(judged(UNKNOWN, UNKNOWN), 2.0) == before
    assert standing.note(judged(OK, OK), 100.0) == before
    assert standing.note(judged(UNKNOWN, OK), 101.0) == before
    lasting = standing.note(judged(UNKNOWN, OK), 101.0 + UNKNOWN_SECONDS)
    assert lasting is not None
    assert lasting.status == "Unknown"
    failed = Standing().note(judged(UNKNOWN, FAILED), 0.0)
    assert failed is not None
    assert failed.status == "False"


def test_live_values_change_nothing_and_the_time_is_that_of_the_status() -> None:
    """The condition is the same text with each read; its time moves only when the status does."""
    standing = Standing()
    states = [verdict("degraded", "temperature", detail=f"{number} °C left") for number in range(3)]
    found = [standing.note(judged(one, at=float(number)), float(number)) for number, one in enumerate([OK, *states, FAILED, FAILED, OK])]
    assert [one.since if one else None for one in found] == [0.0, 0.0, 0.0, 0.0, 4.0, 4.0, 6.0]
    assert len(set(found[1:4])) == 1


def test_a_big_bad_node_fits() -> None:
    """Sixteen GPUs with long reasons stay within the bounds of a message."""
    codes = ("gpu_reset_required", "recovery_reset", "ecc_uncorrected", "row_remap_pending", "nvlink_down")
    assert len(condition(*[verdict("failed", *codes)] * 16).message.encode()) <= 1024
