"""Windows over counters and over what comes and goes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.health.window import Best, Growth, Growths


def test_growth_is_what_came_within_the_window() -> None:
    """Old growth leaves the window, new growth counts at once."""
    growth = Growth(100.0)
    for t in range(0, 300, 10):
        growth.update(min(t, 150), t)
    assert growth.amount(150.0) is not None
    assert 90 <= (growth.amount(150.0) or 0) <= 105
    assert growth.amount(290.0) == 0.0
    assert growth.rate(290.0) == 0.0


def test_what_was_counted_before_the_start_is_no_growth() -> None:
    """A restart of the agent raises nothing."""
    growth = Growth(100.0)
    assert growth.amount(0.0) is None
    growth.update(1_000_000, 0.0)
    assert growth.amount(0.0) == 0.0


def test_a_counter_that_fell_has_grown_by_its_new_value() -> None:
    """The device was reset in between."""
    growth = Growth(100.0)
    growth.update(50, 0.0)
    growth.update(3, 10.0)
    assert growth.amount(10.0) == 3.0


def test_growth_over_a_pause_counts_for_faults_and_not_for_rates() -> None:
    """An error during a pause is new; seconds of throttling of an hour are not those of five minutes."""
    for lost, expected in ((False, 600.0), (True, 0.0)):
        growth = Growth(300.0, lost_gaps=lost)
        growth.update(0, 0.0)
        growth.update(600, 3600.0)
        assert growth.amount(3600.0) == expected


def test_a_part_that_is_not_reported_once_is_no_reset() -> None:
    """The sum over locations falls and rises again, and nothing has grown."""
    growths = Growths(100.0)
    growths.update("dram", 5, 0.0)
    growths.update("sram", 1, 0.0)
    growths.update("sram", 1, 10.0)
    growths.update("dram", 5, 20.0)
    assert growths.amount(20.0) == 0.0
    growths.add("event", 1.0, 20.0)
    assert growths.amount(20.0) == 1.0


def test_best_is_known_once_the_window_is_full() -> None:
    """What lasts is told from what passes: one good value within the window is the best."""
    best = Best(100.0)
    for t in range(0, 100, 10):
        best.update(0.0, t)
        assert best.value(t) is None
    best.update(0.0, 100.0)
    assert best.value(100.0) == 0.0
    best.update(1.0, 110.0)
    assert best.value(200.0) == 1.0
    for t in range(120, 260, 10):
        best.update(0.0, t)
    assert best.value(250.0) == 0.0


def test_best_begins_anew_after_a_pause() -> None:
    """Nobody knows what was in the pause."""
    best = Best(100.0)
    for t in range(0, 200, 10):
        best.update(0.0, t)
    best.update(0.0, 1000.0)
    assert best.value(1000.0) is None


counts = st.lists(st.tuples(st.floats(0.0, 100.0), st.none() | st.integers(0, 1000)), max_size=40)


@given(counts)
def test_growth_never_falls_below_zero_nor_above_what_was_counted(steps: list[tuple[float, int | None]]) -> None:
    """Whatever the counter does, growth lies between nothing and the sum of all its rises."""
    growth, t, most, last = Growth(60.0), 0.0, 0, None
    for gap, value in steps:
        t += gap
        growth.update(value, t)
        if value is not None:
            most += 0 if last is None else value - last if value >= last else value
            last = value
        assert 0.0 <= (growth.amount(t) or 0.0) <= most


@given(counts)
def test_best_is_one_of_the_values(steps: list[tuple[float, int | None]]) -> None:
    """It invents nothing."""
    best, t, seen = Best(60.0), 0.0, set()
    for gap, value in steps:
        t += gap
        best.update(value, t)
        seen.add(value)
        found = best.value(t)
        assert found is None or found in seen
