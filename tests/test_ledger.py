"""What each holder got: counters that never fall, never more than the GPU gave, never of what cannot be told apart."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster import gpu, gpu_uuid, mig_gpu, mig_uuid, process
from gpuwatch.device.readings import Links
from gpuwatch.kube.objects import JobRef
from gpuwatch.ledger import Ledger
from gpuwatch.snapshot import Gpu, Holder, JobUse, Totals

UUID = gpu_uuid(0)
GRACE, MAX_GAP = 300.0, 6.0


def ledger() -> Ledger:
    """An empty one."""
    return Ledger(grace_seconds=GRACE, max_gap_seconds=MAX_GAP)


def holder(
    pod: str = "a", number: int = 0, *, job: str = "train", mig: str = "", shared: bool = False, pids: tuple[int, ...] = ()
) -> Holder:
    """A container that holds a device."""
    return Holder(
        gpu_uuid=gpu_uuid(number),
        mig_uuid=mig,
        namespace="team",
        pod=pod,
        container="main",
        job=JobRef(kind="TFJob", name=job),
        shared=shared,
        pids=pids,
    )


def at(busy: float | None, joules: float | None, *, number: int = 0, received: int | None = None) -> Gpu:
    """A GPU whose counters stand there."""
    shown = gpu(number, totals=Totals(busy_seconds=busy, energy_joules=joules))
    assert shown.medium is not None
    links = Links(nvlink_bytes={} if received is None else {"rx": received})
    return msgspec.structs.replace(shown, medium=msgspec.structs.replace(shown.medium, links=links))


def counters(use: JobUse) -> tuple[float, float | None, float | None]:
    """Allocated, busy, joules."""
    return use.allocated_seconds, use.busy_seconds, use.energy_joules


def test_an_exclusive_holder_gets_what_the_gpu_counts() -> None:
    """From the moment of holding on: seconds, busy seconds, joules and NVLink bytes grow as the GPU's own counters do."""
    book = ledger()
    book.update([], [at(100.0, 5000.0, received=10)], 0.0)
    (use,) = book.update([holder()], [at(100.5, 5300.0, received=25)], 1.0)
    assert (*counters(use), use.nvlink_bytes) == (1.0, 0.5, 300.0, {"rx": 15})
    (use,) = book.update([holder()], [at(101.5, 5900.0, received=30)], 2.0)
    assert (*counters(use), use.nvlink_bytes) == (2.0, 1.5, 900.0, {"rx": 20})
    assert (use.power_watts, use.utilization_ratio, use.memory_used_bytes) == (300.0, 0.5, 1000)
    assert (use.sm_active_ratio, use.tensor_active_ratio) == (0.4, 0.3)


def test_k3_an_idle_holder_is_allocated_and_not_busy() -> None:
    """Seconds grow, busy seconds are 0, not absent."""
    book = ledger()
    for now in range(5):
        (use,) = book.update([holder()], [at(7.0, 10.0 * now)], float(now))
    assert counters(use) == (4.0, 0.0, 40.0)


def test_k15_o6_counters_stay_for_the_grace() -> None:
    """After the end the counters stand still and no gauge is left; when the grace is over they are gone."""
    book = ledger()
    book.update([holder()], [at(0.0, 0.0)], 0.0)
    book.update([holder()], [at(1.0, 50.0)], 1.0)
    (ended,) = book.update([], [at(2.0, 100.0)], 2.0)
    assert (ended.held, *counters(ended)) == (False, 1.0, 1.0, 50.0)
    gauges = (ended.utilization_ratio, ended.memory_used_bytes, ended.power_watts, ended.sm_active_ratio, ended.tensor_active_ratio)
    assert gauges == (None,) * 5
    assert book.update([], [at(2.0, 100.0)], 1.0 + GRACE) == (ended,)
    assert book.update([], [at(2.0, 100.0)], 1.1 + GRACE) == ()


def test_a_holder_that_ends_at_the_moment_of_a_look_is_in_its_grace() -> None:
    """Two looks at one moment, with and without the holder, lose nothing of it."""
    book = ledger()
    book.update([holder()], [at(0.0, 0.0)], 5.0)
    (ended,) = book.update([], [at(0.0, 0.0)], 5.0)
    assert not ended.held


def test_a_recreated_pod_goes_on_with_its_account() -> None:
    """The pod of the same name that comes back in the grace continues the counters: they are one series. What ran meanwhile is not its."""
    book = ledger()
    book.update([holder()], [at(0.0, 0.0)], 0.0)
    book.update([holder()], [at(1.0, 10.0)], 1.0)
    book.update([], [at(2.0, 30.0)], 2.0)
    (use,) = book.update([holder()], [at(3.0, 31.0)], 3.0)
    assert (use.held, *counters(use)) == (True, 2.0, 2.0, 11.0)


def test_k9_new_labels_keep_the_account_and_show_once() -> None:
    """When the job of a pod becomes known, its counters go on under the new labels, and the old ones are gone in the same snapshot."""
    book = ledger()
    book.update([holder(job="")], [at(0.0, 0.0)], 0.0)
    book.update([holder(job="")], [at(1.0, 10.0)], 1.0)
    (use,) = book.update([holder(job="mnist")], [at(2.0, 20.0)], 2.0)
    assert (use.holder.job.name, *counters(use)) == ("mnist", 2.0, 2.0, 20.0)
    (ended,) = book.update([], [at(2.0, 20.0)], 3.0)
    assert ended.holder.job.name == "mnist"


def test_shared_devices_are_split_by_process_or_not_at_all() -> None:
    """Utilisation, memory and busy seconds of the own processes; power, energy, activity and traffic of nobody; time whole to each."""
    shown = gpu(0, process(1, used_bytes=100), process(2, used_bytes=30), process(3, used_bytes=4), process(9))
    assert shown.medium is not None
    shown = msgspec.structs.replace(
        shown, medium=msgspec.structs.replace(shown.medium, process_utilization_ratio={1: 0.5, 2: 0.25, 3: 0.9, 4: 0.3})
    )
    holders = [holder("a", shared=True, pids=(1, 2)), holder("b", shared=True, pids=(3, 4)), holder("c", shared=True, pids=(9,))]
    book = ledger()
    book.update(holders, [shown], 0.0)
    a, b, c = book.update(holders, [shown], 2.0)
    assert (a.utilization_ratio, a.memory_used_bytes, *counters(a)) == (0.75, 130, 2.0, 1.5, None)
    assert (b.utilization_ratio, b.memory_used_bytes, *counters(b)) == (1.0, 4, 2.0, 2.0, None)
    assert (c.utilization_ratio, c.memory_used_bytes, *counters(c)) == (None, None, 2.0, None, None)
    assert all(
        (one.power_watts, one.sm_active_ratio, one.tensor_active_ratio, one.nvlink_bytes) == (None, None, None, {}) for one in (a, b, c)
    )


def test_a_process_listed_twice_uses_its_memory_once() -> None:
    """A process with a compute and a graphics context counts once, whichever of the two tells its memory."""
    twice = msgspec.structs.replace(process(1), kind="graphics", used_bytes=None), process(1, used_bytes=100)
    for processes in (twice, twice[::-1], (twice[1], twice[1])):
        (use, _) = ledger().update([holder("a", shared=True, pids=(1,)), holder("b", shared=True)], [gpu(0, *processes)], 0.0)
        assert use.memory_used_bytes == 100


def test_memory_that_is_told_in_part_is_not_told() -> None:
    """Where one of a holder's processes hides its memory, the sum over the others would be too small: it is absent."""
    shown = gpu(0, process(1, used_bytes=100), process(2))
    (use, _) = ledger().update([holder("a", shared=True, pids=(1, 2)), holder("b", shared=True)], [shown], 0.0)
    assert use.memory_used_bytes is None


def test_traffic_goes_on_over_reads_that_fail() -> None:
    """What NVLink carried while the medium read was missing is booked when it comes back."""
    book = ledger()
    book.update([holder()], [at(0.0, 0.0, received=10)], 0.0)
    book.update([holder()], [msgspec.structs.replace(at(0.0, 0.0), medium=None)], 1.0)
    (use,) = book.update([holder()], [at(0.0, 0.0, received=25)], 2.0)
    assert use.nvlink_bytes == {"rx": 15}


def test_a_mig_instance_has_its_own_values() -> None:
    """Memory and activity of the instance, busy seconds by its activity; no power, no energy."""
    book, one = ledger(), holder(mig=mig_uuid(0, 1), number=0)
    shown = mig_gpu(0, (1, 0, "1g.18gb"), (2, 0, "1g.18gb"))
    book.update([one], [shown], 0.0)
    (use,) = book.update([one], [shown], 4.0)
    assert (use.utilization_ratio, use.memory_used_bytes, use.sm_active_ratio) == (0.25, 77, 0.2)
    assert (*counters(use), use.power_watts, use.nvlink_bytes) == (4.0, 1.0, None, None, {})


def test_a_gpu_that_is_down_and_comes_back() -> None:
    """Held on without values; the time counts as allocated; what its counters gained meanwhile is the holder's who has it then."""
    book = ledger()
    book.update([holder()], [at(5.0, 100.0)], 0.0)
    lost = msgspec.structs.replace(at(5.0, 100.0), up=False, fault="gpu_is_lost", fast=None, medium=None)
    (use,) = book.update([holder()], [lost], 1.0)
    assert (use.held, *counters(use), use.utilization_ratio, use.power_watts) == (True, 1.0, 0.0, 0.0, None, None)
    (use,) = book.update([holder()], [], 2.0)
    assert (use.held, *counters(use)) == (True, 1.0, 0.0, 0.0)
    (use,) = book.update([holder()], [at(5.5, 400.0)], 3.0)
    assert counters(use) == (2.0, 0.5, 300.0)


def test_a_pause_is_nobodys_time() -> None:
    """Of a machine that stood still nothing is booked as allocated, and never more as busy than as allocated."""
    book = ledger()
    book.update([holder()], [at(0.0, 0.0)], 0.0)
    book.update([holder()], [at(1.0, 1.0)], 1.0)
    (use,) = book.update([holder()], [at(31.0, 900.0)], 1.0 + MAX_GAP + 0.5)
    assert counters(use) == (1.0, 1.0, 900.0)
    (use,) = book.update([holder()], [at(31.0, 900.0)], 5.0)
    assert use.allocated_seconds == 1.0


def test_busy_time_from_before_is_not_the_holders() -> None:
    """A read that began before the holder came brings its whole busy time at once; only what fits into the holding counts."""
    book = ledger()
    book.update([], [at(10.0, 0.0)], 0.9)
    (use,) = book.update([holder()], [at(11.0, 0.0)], 1.0)
    assert use.busy_seconds == pytest.approx(0.1)


def test_a_device_counter_that_was_reset_costs_nothing() -> None:
    """NVLink counters that fall are skipped once and go on; what a board does not report is absent."""
    book = ledger()
    for now, received in enumerate((100, 150, 7, 9)):
        (use,) = book.update([holder()], [at(None, None, received=received)], float(now))
    assert use.nvlink_bytes == {"rx": 52}
    assert (use.busy_seconds, use.energy_joules) == (None, None)


@dataclass(frozen=True)
class Step:
    """What happens on one GPU until the next look."""

    holding: str
    share: float
    joules: float | None
    up: bool


STEPS = st.builds(
    Step,
    holding=st.sampled_from(["", "a", "a", "a-renamed", "b", "both"]),
    share=st.floats(0, 1),
    joules=st.none() | st.floats(0, 1e4),
    up=st.sampled_from([True, True, True, False]),
)


def holders_of(step: Step, number: int) -> list[Holder]:
    """Those who hold a GPU in that step."""
    if step.holding == "both":
        return [holder(pod, number, shared=True, pids=(1,)) for pod in ("a", "b")]
    pod, _, renamed = step.holding.partition("-")
    return [holder(pod, number, job=renamed)] if pod else []


@settings(max_examples=60)
@given(st.lists(st.tuples(st.floats(0, 8), STEPS, STEPS), min_size=1, max_size=25))
def test_counters_are_true_whatever_happens(history: list[tuple[float, Step, Step]]) -> None:
    """Two GPUs, holders that come, go, share and change labels, pauses, outages.

    Counters never fall; no pair of GPU, pod and container shows twice; busy is never more than allocated, so that the rest is idle time;
    the joules of all holders are what the GPU counted while held by one alone; without a pause that is true of busy seconds too.
    """
    book = Ledger(grace_seconds=1e9, max_gap_seconds=MAX_GAP)
    now, busy, joules = 0.0, [0.0, 0.0], [0.0, 0.0]
    owed_joules, owed_busy = [0.0, 0.0], [0.0, 0.0]
    paused = False
    before: dict[tuple[str, str], JobUse] = {}
    book.update([], [at(0.0, 0.0), at(0.0, 0.0, number=1)], now)
    for seconds, *steps in history:
        now += seconds
        paused = paused or seconds > MAX_GAP
        gpus, holders = [], []
        for number, step in enumerate(steps):
            alone = step.holding not in ("", "both")
            busy[number] += step.share * seconds
            joules[number] += step.joules or 0.0
            owed_busy[number] += step.share * seconds if alone else 0.0
            owed_joules[number] += (step.joules or 0.0) if alone else 0.0
            shown = at(busy[number], joules[number], number=number)
            gpus.append(shown if step.up else msgspec.structs.replace(shown, up=False, fast=None, medium=None))
            holders += holders_of(step, number)
        uses = book.update(holders, gpus, now)
        after = {(use.holder.gpu_uuid, use.holder.pod): use for use in uses}
        assert len(after) == len(uses)
        for key, old in before.items():
            assert after[key].allocated_seconds >= old.allocated_seconds
            assert (after[key].busy_seconds or 0.0) >= (old.busy_seconds or 0.0)
            assert (after[key].energy_joules or 0.0) >= (old.energy_joules or 0.0)
        for use in uses:
            assert (use.busy_seconds or 0.0) <= use.allocated_seconds
            assert use.held == any(one == use.holder for one in holders)
            assert use.power_watts is None or (use.held and not use.holder.shared)
        for number in (0, 1):
            mine = [use for use in uses if use.holder.gpu_uuid == gpu_uuid(number)]
            assert sum(use.energy_joules or 0.0 for use in mine) == pytest.approx(owed_joules[number])
            if not paused:
                assert sum(use.busy_seconds or 0.0 for use in mine) == pytest.approx(owed_busy[number])
        before = after
