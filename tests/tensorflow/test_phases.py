"""The stop watch of phases, over any story."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx  # noqa: PT013 (reads as a word)

from gpuwatch.tensorflow.measures import PHASES
from gpuwatch.tensorflow.phases import PhaseClock


class Time:
    """A clock that stands until it is told."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        """The seconds of now."""
        return self.seconds


STEPS = st.lists(st.tuples(st.sampled_from((*PHASES, None)), st.floats(0, 1000)), max_size=40)


@given(STEPS)
def test_every_second_is_in_one_phase(steps: list[tuple[str | None, float]]) -> None:
    """However phases follow each other, their times add up to the time in which the clock ran."""
    time = Time()
    clock = PhaseClock(time)
    expected = dict.fromkeys(PHASES, 0.0)
    for phase, seconds in steps:
        clock.enter(phase)
        time.seconds += seconds
        if phase:
            expected[phase] += seconds
    clock.settle()
    assert clock.seconds == approx(expected, abs=1e-6)


def test_a_phase_within_another() -> None:
    """The inner one has its own time, and the outer one goes on, also after an error."""
    time = Time()
    clock = PhaseClock(time)
    clock.enter("compute")
    try:
        with clock.within("checkpoint"):
            time.seconds += 3
            raise OSError  # noqa: TRY301
    except OSError:
        time.seconds += 2
    clock.enter(None)
    assert (clock.seconds["checkpoint"], clock.seconds["compute"]) == (3, 2)


def test_a_clock_that_stands_counts_nothing() -> None:
    """A validation outside a training is nobody's."""
    time = Time()
    clock = PhaseClock(time)
    with clock.within("validation"):
        time.seconds += 5
    assert set(clock.seconds.values()) == {0.0}
