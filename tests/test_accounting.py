"""Counters of the agent: they never fall, whatever the device does, and never count time that nobody saw."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.accounting import ContinuedCounter, GpuAccount
from gpuwatch.device.readings import THROTTLE_REASONS, Fast, GpuReading, Medium

MAX_GAP = 6.0
REASONS = st.lists(st.sampled_from(sorted(THROTTLE_REASONS.values())), unique=True).map(tuple)
FASTS = st.builds(Fast, utilization_ratio=st.one_of(st.none(), st.floats(0.0, 1.0)), throttle_reasons=st.one_of(st.none(), REASONS))
SECONDS = st.floats(0.0, 1e9)
MEDIUMS = st.builds(
    Medium,
    energy_joules=st.one_of(st.none(), SECONDS),
    throttled_seconds=st.dictionaries(st.sampled_from(("power", "thermal", "software_thermal", "hardware_power_brake")), SECONDS),
)
STEPS = st.lists(
    st.tuples(
        st.floats(-1.0, 30.0), st.one_of(st.none(), FASTS), st.one_of(st.none(), MEDIUMS), st.sampled_from(("", "", "", "gpu_is_lost"))
    ),
    max_size=30,
)


@given(st.lists(st.one_of(st.none(), st.floats(0.0, 1e12)), max_size=50))
def test_a_continued_counter_never_falls(values: list[float | None]) -> None:
    """It starts at the device's value, counts on over resets, and a value that was not reported changes nothing."""
    counter = ContinuedCounter()
    totals = []
    for value in values:
        counter.update(value)
        totals.append(counter.total)
    told = [value for value in values if value is not None]
    known = [total for total in totals if total is not None]
    assert len(known) == len(list(itertools.dropwhile(lambda value: value is None, values)))
    assert all(later >= earlier for earlier, later in itertools.pairwise(known))
    if told:
        assert known[0] == told[0]
        assert counter.total is not None
        assert counter.total >= max(told) * (1 - 1e-9)


def test_a_reset_counts_from_zero() -> None:
    """A device counter that fell was reset: what it shows now was counted since."""
    counter = ContinuedCounter()
    for value in (100.0, 150.0, None, 20.0, 30.0):
        counter.update(value)
    assert counter.total == 180.0


@given(STEPS)
def test_no_total_ever_falls(steps: list[tuple[float, Fast | None, Medium | None, str]]) -> None:
    """Busy seconds, joules and throttled seconds only grow and never vanish, over gaps, faults, resets and clocks that jump."""
    account, now, before = GpuAccount(MAX_GAP), 100.0, None
    for pause, fast, medium, fault in steps:
        now += pause
        account.update(GpuReading(index=0, at=now, fast=None if fault else fast, medium=None if fault else medium, fault=fault))
        totals = account.totals()
        if before is not None:
            for name in ("busy_seconds", "energy_joules"):
                earlier, later = getattr(before, name), getattr(totals, name)
                assert earlier is None or (later is not None and later >= earlier)
            assert all(totals.throttled_seconds[reason] >= seconds for reason, seconds in before.throttled_seconds.items())
        before = totals


@given(st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(0.0, 1.0)), min_size=1, max_size=30))
def test_busy_time_is_no_more_than_time(steps: list[tuple[float, float]]) -> None:
    """Busy seconds are at most the time that was watched; gaps longer than the limit are not."""
    account, now, watched = GpuAccount(MAX_GAP), 0.0, 0.0
    for number, (pause, ratio) in enumerate(steps):
        now += pause
        account.update(GpuReading(index=0, at=now, fast=Fast(utilization_ratio=ratio)))
        watched += pause if number and pause <= MAX_GAP else 0.0
    busy = account.totals().busy_seconds
    assert busy is not None
    assert 0.0 <= busy <= watched * (1 + 1e-6) + 1e-6


def read_every_second(account: GpuAccount, fast: Fast, *, count: int, start: float = 0.0) -> None:
    """``count`` equal fast readings, a second apart."""
    for number in range(count):
        account.update(GpuReading(index=0, at=start + number, fast=fast))


def test_busy_seconds_integrate_the_utilisation() -> None:
    """Eleven readings at 50 %, a second apart, are five busy seconds."""
    account = GpuAccount(MAX_GAP)
    read_every_second(account, Fast(utilization_ratio=0.5), count=11)
    assert account.totals().busy_seconds == 5.0


def test_a_fault_ends_the_watched_time() -> None:
    """The time in which a GPU was lost is not busy, even when it was short."""
    account = GpuAccount(MAX_GAP)
    read_every_second(account, Fast(utilization_ratio=1.0), count=3)
    account.update(GpuReading(index=0, at=3.0, fault="gpu_is_lost"))
    read_every_second(account, Fast(utilization_ratio=1.0), count=3, start=4.0)
    assert account.totals().busy_seconds == 4.0


def test_unknown_is_not_zero() -> None:
    """A board that never told its utilisation or energy has no counter for it."""
    account = GpuAccount(MAX_GAP)
    read_every_second(account, Fast(), count=3)
    account.update(GpuReading(index=0, at=4.0, medium=Medium()))
    assert (account.totals().busy_seconds, account.totals().energy_joules) == (None, None)


def test_the_drivers_own_counter_wins() -> None:
    """A reason that the driver counts is not sampled as well; one that it does not count is."""
    account = GpuAccount(MAX_GAP)
    account.update(GpuReading(index=0, at=0.0, medium=Medium(throttled_seconds={"power": 100.0})))
    fast = Fast(throttle_reasons=("software_power_cap", "hardware_slowdown"))
    read_every_second(account, fast, count=4)
    totals = account.totals().throttled_seconds
    assert (totals["power"], totals["hardware_slowdown"], totals["sync_boost"]) == (100.0, 3.0, 0.0)


def test_a_counter_that_answers_late_takes_over_what_was_sampled() -> None:
    """The driver's counter failed in the first medium read: the sampled seconds are not lost when it answers with less."""
    account = GpuAccount(MAX_GAP)
    braked = Fast(throttle_reasons=("hardware_power_brake",))
    account.update(GpuReading(index=0, at=100.0, medium=Medium()))
    account.update(GpuReading(index=0, at=100.0, fast=braked))
    account.update(GpuReading(index=0, at=103.0, fast=braked))
    account.update(GpuReading(index=0, at=103.0, medium=Medium(throttled_seconds={"hardware_power_brake": 0.0, "power": 0.0})))
    assert account.totals().throttled_seconds["hardware_power_brake"] == 3.0
    account.update(GpuReading(index=0, at=104.0, medium=Medium(throttled_seconds={"hardware_power_brake": 2.0, "power": 0.0})))
    assert account.totals().throttled_seconds["hardware_power_brake"] == 5.0
