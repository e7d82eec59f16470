"""What is told of a change of verdict, to whom, and what is not."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.device.readings import FaultEvent
from gpuwatch.health.telling import AGAIN_SECONDS, FORGOTTEN_SECONDS, JUST_ENDED_SECONDS, MOST_NOTICES, Notice, Telling
from gpuwatch.kube.objects import SourceState
from gpuwatch.snapshot import Kubernetes, Listening, Modes, Reason, Snapshot, Verdict
from health.verdicts import DEGRADED, FAILED, OK, UNKNOWN, judged, verdict
from snapshots import a100_mig, h100, held


def told(*verdicts: Verdict | None, seconds: float = 1.0) -> list[tuple[int, str]]:
    """(pass, kind) of each notice about one GPU with these verdicts, one a pass."""
    telling = Telling()
    return [(number, notice.kind) for number, one in enumerate(verdicts) for notice in telling.note(judged(one), 1000.0 + number * seconds)]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ((OK, OK), []),
        ((OK, FAILED, FAILED, FAILED), [(1, "GpuFailed")]),
        ((FAILED, FAILED), [(0, "GpuFailed")]),
        ((DEGRADED, FAILED), [(0, "GpuDegraded"), (1, "GpuFailed")]),
        ((FAILED, DEGRADED, OK), [(0, "GpuFailed"), (1, "GpuDegraded"), (2, "GpuRecovered")]),
        ((FAILED, UNKNOWN, FAILED), [(0, "GpuFailed")]),
        ((FAILED, UNKNOWN, OK), [(0, "GpuFailed"), (2, "GpuRecovered")]),
        ((UNKNOWN, OK), []),
        ((OK, UNKNOWN, UNKNOWN, OK), []),
        ((None, None, OK), []),
        ((FAILED, None, FAILED), [(0, "GpuFailed")]),
    ],
)
def test_a_change_is_told_once(verdicts: tuple[Verdict | None, ...], expected: list[tuple[int, str]]) -> None:
    """Each change of state is one notice; unknown is none and lets nothing be forgotten; what is sound at the start is no news."""
    assert told(*verdicts) == expected


def test_live_values_are_no_news() -> None:
    """A detail that changes with every read, and an info that comes and goes, tell nothing."""
    hot = [verdict("degraded", "temperature", detail=f"{number} °C left") for number in range(50)]
    info = msgspec.structs.replace(hot[0], reasons=(*hot[0].reasons, Reason(code="xid_31", severity="info", action="restart_job")))
    assert told(*hot, info, *hot) == [(0, "GpuDegraded")]


def test_a_heavier_action_is_told_at_once_and_another_reason_when_its_time_has_come() -> None:
    """Escalation does not wait; a further reason with the same action does; one reason fewer is no news."""
    first = verdict("failed", "gpu_reset_required")
    more = verdict("failed", "gpu_reset_required", "recovery_reset")
    heavier = verdict("failed", "gpu_hung", "gpu_reset_required")
    assert told(first, heavier, heavier, first) == [(0, "GpuFailed"), (1, "GpuFailed")]
    assert told(first, *[more] * 5, seconds=AGAIN_SECONDS / 4) == [(0, "GpuFailed"), (4, "GpuFailed")]
    assert told(more, first, more, first, seconds=AGAIN_SECONDS) == [(0, "GpuFailed")]


def test_a_reason_that_comes_back_after_an_hour_is_told() -> None:
    """A GPU may be degraded for weeks; a fault that comes again on another day is news."""
    both = verdict("degraded", "row_remap_pending", "nvlink_errors")
    hour = [DEGRADED] * 5
    seconds = FORGOTTEN_SECONDS / 4
    assert told(both, DEGRADED, both, *hour, both, seconds=seconds) == [(0, "GpuDegraded"), (8, "GpuDegraded")]


def test_a_flapping_gpu_is_told_of_at_intervals() -> None:
    """An hour of a state that changes every second: at most one of each kind in ten minutes."""
    found = told(*[OK, FAILED] * 1800)
    for kind in ("GpuFailed", "GpuRecovered"):
        times = [at for at, one in found if one == kind]
        assert 6 <= len(times) <= 7
        assert all(later - earlier >= AGAIN_SECONDS for earlier, later in itertools.pairwise(times))


def test_what_was_held_back_is_told_when_it_stays() -> None:
    """The second failure within ten minutes waits; it is told if it lasts."""
    assert told(FAILED, OK, *[FAILED] * 12, seconds=60.0) == [(0, "GpuFailed"), (1, "GpuRecovered"), (10, "GpuFailed")]


def test_another_board_in_the_slot_starts_clean() -> None:
    """The new board is not called recovered for what its predecessor had, and its own fault is told."""
    telling = Telling()
    old, new = h100(0), h100(0)
    new = msgspec.structs.replace(new, identity=msgspec.structs.replace(new.identity, uuid="GPU-new"))
    assert telling.note(judged(FAILED, gpus=(old,)), 0.0)
    assert telling.note(judged(None, OK, gpus=(old, new)), 10.0) == ()
    (notice,) = telling.note(judged(None, FAILED, gpus=(old, new)), 20.0)
    assert (notice.uuid, notice.before) == ("GPU-new", "ok")


def test_a_gpu_whose_uuid_is_learnt_later_is_the_same() -> None:
    """It was silent from the start on and is told of as failed; when it answers, its recovery is told."""
    telling = Telling()
    gpu = h100(3)
    silent = msgspec.structs.replace(gpu, identity=msgspec.structs.replace(gpu.identity, uuid=""))
    assert [one.kind for one in telling.note(judged(FAILED, gpus=(silent,)), 0.0)] == ["GpuFailed"]
    assert [one.kind for one in telling.note(judged(OK, gpus=(gpu,)), 10.0)] == ["GpuRecovered"]


_VERDICTS = st.sampled_from(
    [OK, UNKNOWN, None, DEGRADED, FAILED, verdict("failed", "gpu_reset_required"), verdict("degraded", "sram_worn")]
)


@given(st.lists(st.tuples(st.sampled_from([1.0, 30.0, 700.0]), st.lists(_VERDICTS, min_size=2, max_size=2)), max_size=80))
def test_any_sequence_is_bounded_and_never_repeats(passes: list[tuple[float, list[Verdict | None]]]) -> None:
    """No GPU is told the same twice in a row within the hour, and in ten minutes of each kind only what is heavier than before."""
    telling, now = Telling(), 0.0
    found: dict[int, list[tuple[float, Notice]]] = {0: [], 1: []}
    for seconds, verdicts in passes:
        now += seconds
        for notice in telling.note(judged(*verdicts), now):
            found[notice.gpu].append((now, notice))
    for notices in found.values():
        for (earlier, one), (later, other) in itertools.pairwise(notices):
            same = (one.state, one.action, {reason.code for reason in one.reasons}) == (
                *(other.state, other.action),
                {reason.code for reason in other.reasons},
            )
            assert not same or later - earlier >= FORGOTTEN_SECONDS
            assert not one.kind == other.kind == "GpuRecovered"
        for at, _ in notices:
            assert sum(at <= other < at + AGAIN_SECONDS for other, _ in notices) <= 1 + 2 + 2  # recovered once, the others once heavier
        assert all(notice.state != "unknown" for _, notice in notices)


def test_boards_without_end_are_no_flood() -> None:
    """A new UUID each second, each of it failed: no more than so many in ten minutes, and no memory without end."""
    telling = Telling()
    count = 0
    for number in range(2000):
        gpu = h100(0)
        gpu = msgspec.structs.replace(gpu, identity=msgspec.structs.replace(gpu.identity, uuid=f"GPU-{number}"))
        count += len(telling.note(judged(FAILED, gpus=(gpu,)), number / 10))
    assert count == MOST_NOTICES
    assert len(telling._boards) <= 65


def with_sources(snapshot: Snapshot, **faults: str) -> Snapshot:
    """With sources of attribution that have these faults."""
    sources = {name: SourceState(up=not fault, fault=fault) for name, fault in faults.items()}
    return msgspec.structs.replace(snapshot, kubernetes=Kubernetes(sources=sources))


def test_a_gpu_that_is_bad_at_the_start_waits_for_its_holders() -> None:
    """While the kubelet or the API server has not answered for the first time, for a minute at most."""
    starting = with_sources(judged(FAILED), podresources="starting", pods="")
    known = with_sources(judged(FAILED, jobs=(held(h100(0)),)), podresources="", pods="")
    telling = Telling()
    assert telling.note(starting, 0.0) == telling.note(starting, 5.0) == ()
    (notice,) = telling.note(known, 6.0)
    assert [holder.pod for holder in notice.holders] == ["resnet-worker-0"]
    telling = Telling()
    assert telling.note(starting, 0.0) == ()
    assert len(telling.note(starting, 61.0)) == 1
    assert len(Telling().note(with_sources(judged(FAILED), podresources="no_socket", pods="forbidden"), 0.0)) == 1


def test_the_holders_are_those_who_hold_this_gpu_or_just_did() -> None:
    """Not those of another GPU, nor who ended long ago; the pod that the fault killed a few seconds before is told."""
    mine, other, dead, late = (held(h100(gpu), pod) for gpu, pod in ((0, "mine"), (1, "other"), (0, "dead"), (0, "late")))
    over = msgspec.structs.replace(late, held=False)
    telling = Telling()
    telling.note(judged(OK, OK, jobs=(late, mine)), 0.0)
    telling.note(judged(OK, OK, jobs=(mine, dead, other, over)), JUST_ENDED_SECONDS - 2)
    (notice,) = telling.note(judged(FAILED, OK, jobs=(mine, other, over)), JUST_ENDED_SECONDS + 2)
    assert [holder.pod for holder in notice.holders] == ["mine", "dead"]


def test_a_recovery_is_for_those_who_know_of_the_failure_and_still_hold_it() -> None:
    """Neither a pod that ended nor one that came later."""
    gone, stays, new = (held(h100(0), pod) for pod in ("gone", "stays", "new"))
    telling = Telling()
    telling.note(judged(FAILED, jobs=(gone, stays)), 0.0)
    (notice,) = telling.note(judged(OK, jobs=(stays, new)), 10.0)
    assert [holder.pod for holder in notice.holders] == ["stays"]
    assert (notice.before, notice.state, notice.action) == ("failed", "ok", "none")


def mig_node(one: Verdict, *events: FaultEvent, up: bool = True) -> Snapshot:
    """An A100 cut in two, each half held by a pod; down: nobody can tell of its instances."""
    gpu = msgspec.structs.replace(a100_mig(0), modes=Modes(mig_enabled=True))
    jobs = tuple(held(gpu, f"half-{slot}", mig_uuid=f"MIG-0-{slot}") for slot in range(2)) if up else ()
    if not up:
        gpu = msgspec.structs.replace(gpu, up=False, fault="gpu_is_lost", fast=None, medium=None)
    return msgspec.structs.replace(judged(one, gpus=(gpu,), jobs=jobs), listening=Listening(events=events, event_count=len(events)))


def xid(code: int, instance: int | None, *, replayed: bool = False) -> FaultEvent:
    """An XID of that GPU, just now."""
    uuid = a100_mig(0).identity.uuid
    return FaultEvent(kind="xid", code=code, uuid=uuid, source="nvml", at=1_760_000_000.0, gpu_instance=instance, replayed=replayed)


CONTAINED = Verdict(state="degraded", action="restart_job", reasons=(Reason(code="xid_94", severity="ticket", action="restart_job"),))


@pytest.mark.parametrize(
    ("snapshot", "holders", "scope"),
    [
        (mig_node(CONTAINED, xid(94, 8)), ["half-1"], "instance"),
        (mig_node(CONTAINED, xid(94, 7), xid(94, 8)), ["half-0", "half-1"], "instance"),
        (mig_node(CONTAINED, xid(94, None)), ["half-0", "half-1"], "all_instances"),
        (mig_node(CONTAINED, xid(94, 5)), ["half-0", "half-1"], "all_instances"),
        (mig_node(CONTAINED, xid(94, 8, replayed=True)), ["half-0", "half-1"], "all_instances"),
        (mig_node(CONTAINED), ["half-0", "half-1"], "all_instances"),
        (mig_node(FAILED, xid(94, 8)), ["half-0", "half-1"], "all_instances"),
    ],
)
def test_mig_holders_are_narrowed_only_by_a_named_instance(snapshot: Snapshot, holders: list[str], scope: str) -> None:
    """A fault of the board is one of all its instances; an XID that names its instance concerns that one alone."""
    (notice,) = Telling().note(snapshot, 0.0)
    assert ([holder.pod for holder in notice.holders], notice.scope) == (holders, scope)


def test_a_lost_gpu_in_mig_mode_still_has_its_holders() -> None:
    """Its instances cannot be seen any more, so who held them last is told, however long the loss took to be sure."""
    telling = Telling()
    telling.note(mig_node(OK), 0.0)
    for second in range(1, 200, 10):
        assert telling.note(mig_node(UNKNOWN, up=False), float(second)) == ()
    (notice,) = telling.note(mig_node(FAILED, up=False), 200.0)
    assert ([holder.pod for holder in notice.holders], notice.scope) == (["half-0", "half-1"], "all_instances")
