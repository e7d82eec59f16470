"""Loops of one's own, watched."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.tensorflow import Monitor, process_monitor
from gpuwatch.tensorflow.measures import PHASES
from tensorflow_trainings import BATCH, batches

_SECONDS = 0.05
_COUNT = 12


@tf.function
def next_within(iterator: Any) -> Any:
    """A step that takes its own batch."""
    x, _ = next(iterator)
    return tf.reduce_sum(x)


@tf.function
def epoch_within(iterator: Any) -> Any:
    """A whole epoch in one function."""
    total = 0.0
    for x, _ in iterator:
        total += tf.reduce_sum(x)
    return total


def over_a_dataset(monitor: Monitor, dataset: Any) -> None:
    """As most loops are written."""
    for x, _ in dataset:
        with monitor.step():
            tf.reduce_sum(x)


def over_an_iterator(monitor: Monitor, dataset: Any) -> None:
    """The batch is taken in the step."""
    iterator = iter(dataset)
    for _ in range(_COUNT):
        with monitor.step():
            next(iterator)


def within_a_function(monitor: Monitor, dataset: Any) -> None:
    """The batch is taken in a compiled function."""
    iterator = iter(dataset)
    for _ in range(_COUNT):
        with monitor.step():
            next_within(iterator)


def an_epoch_within(monitor: Monitor, dataset: Any) -> None:
    """One call for all."""
    with monitor.step(_COUNT):
        epoch_within(iter(dataset))


def distributed(monitor: Monitor, dataset: Any) -> None:
    """Two replicas."""
    for _ in tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).experimental_distribute_dataset(dataset):
        with monitor.step():
            pass


LOOPS = [over_a_dataset, over_an_iterator, within_a_function, an_epoch_within, distributed]


@pytest.mark.parametrize("loop", LOOPS)
def test_the_wait_of_a_loop(loop: Callable[[Monitor, Any], None]) -> None:
    """However a loop takes its batches, the time that it stands still for them is found, and steps and examples are counted."""
    monitor = Monitor()
    began = time.perf_counter()
    with monitor.training():
        loop(monitor, batches(_COUNT, _SECONDS))
    seconds, times = time.perf_counter() - began, monitor.measures.phase_seconds
    assert (monitor.measures.steps, monitor.measures.examples) == (_COUNT, _COUNT * BATCH)
    # A distributed dataset prepares a batch or two before the first is asked for.
    assert (0.6 if loop is distributed else 0.8) * _COUNT * _SECONDS < times["input"] <= seconds
    assert sum(times.values()) == pytest.approx(seconds, abs=0.2)


def test_a_dataset_within_a_function_cannot_be_known() -> None:
    """AutoGraph turns such a loop into a part of the dataset: the wait is not claimed to be anything."""
    monitor = Monitor()

    @tf.function
    def epoch(dataset: Any) -> Any:
        total = 0.0
        for x, _ in dataset:
            total += tf.reduce_sum(x)
        return total

    with monitor.training(), monitor.step(3):
        epoch(batches(3, _SECONDS))
    assert "input" not in monitor.measures.phase_seconds
    assert monitor.measures.steps == 3


def test_a_training_that_nobody_ended() -> None:
    """An error may leave it without a word: what passes until the next one is in no phase."""
    clock = [0.0]
    monitor = Monitor(now=lambda: clock[0])
    monitor.begin()
    clock[0] = 5000.0
    monitor.begin()
    clock[0] = 5001.0
    monitor.end()
    assert sum(monitor.measures.phase_seconds.values()) == 1


def test_validation_and_checkpoint() -> None:
    """Their time is their own, and a validation's batches are no input."""
    monitor = Monitor()
    with monitor.training():
        with monitor.validation():
            for _ in batches(4, _SECONDS):
                pass
        with monitor.checkpoint():
            time.sleep(0.05)
    times = monitor.measures.phase_seconds
    assert times["validation"] > 3 * _SECONDS
    assert times["checkpoint"] >= 0.05
    assert times["input"] == 0


def test_traces_of_a_watched_function() -> None:
    """A function that takes no batch itself is watched by name: a step in which it is traced is no step of usual length."""
    monitor = Monitor()

    @tf.function
    def work(x: Any) -> Any:
        return tf.reduce_sum(x)

    monitor.watch(work)
    with monitor.training():
        for size in (4, 4, 5, 5):
            with monitor.step():
                work(tf.ones([size], tf.float32) if size == 4 else tf.ones([size, 1]))
    assert monitor.measures.traces == 2
    assert sum(monitor.measures.step_counts) == 2


def test_outside_of_a_training_nothing_counts() -> None:
    """Steps, batches and validations before and after it are none of its business; a second training counts on."""
    monitor = Monitor()
    with monitor.step():
        pass
    for _ in batches(2):
        pass
    with monitor.validation(), monitor.checkpoint():
        pass
    assert monitor.measures.steps == 0
    assert set(monitor.measures.phase_seconds.values()) == {0.0}
    for expected in (1, 2):
        with monitor.training(), monitor.step():
            assert monitor.measures.training
        assert monitor.measures.steps == expected
        assert not monitor.measures.training


def test_an_error_in_the_loop_comes_out_as_it_is() -> None:
    """And the training has ended."""
    monitor = Monitor()
    with pytest.raises(KeyError), monitor.training(), monitor.step():
        raise KeyError
    assert not monitor.measures.training
    assert monitor.measures.steps == 0


def test_who_is_told() -> None:
    """Whoever serves the measures hears of each begin and end, once."""
    told: list[str] = []
    monitor = Monitor(begun=lambda: told.append("begun"), ended=lambda: told.append("ended"))
    with monitor.training():
        assert told == ["begun"]
    monitor.end()
    assert told == ["begun", "ended"]


def test_losses() -> None:
    """Each time that the loss ceases to be a number counts once; the next training begins anew."""
    monitor = Monitor(unix_time=lambda: 5.0)
    nan, infinite = float("nan"), float("inf")
    for value in (1.0, nan, nan, 1.0, -infinite, infinite):
        monitor.loss(value)
    assert (monitor.measures.nonfinite_losses, monitor.measures.nonfinite_loss_timestamp_seconds) == (2, 5.0)


ACTS = st.lists(st.tuples(st.sampled_from(["step", "validation", "checkpoint", "nothing", "again"]), st.floats(0, 3)), max_size=12)


@settings(max_examples=40)
@given(ACTS)
def test_counters_never_fall_and_time_is_whole(acts: list[tuple[str, float]]) -> None:
    """Whatever a training does: no counter falls, and the phases add up to the time of the trainings."""
    clock = [0.0]
    monitor = Monitor(now=lambda: clock[0])
    seen = dict.fromkeys(PHASES, 0.0)
    monitor.begin()
    for act, seconds in acts:
        if act == "again":
            monitor.end()
            monitor.begin()
        elif act == "nothing":
            clock[0] += seconds
        else:
            with getattr(monitor, act)():
                clock[0] += seconds
        now = dict(monitor.measures.phase_seconds)
        assert all(now.get(phase, 0.0) >= seen.get(phase, 0.0) for phase in PHASES)
        seen = now
    monitor.end()
    assert sum(monitor.measures.phase_seconds.values()) == pytest.approx(clock[0])


def test_one_monitor_for_a_process() -> None:
    """Callbacks that are made without another share it."""
    assert process_monitor() is process_monitor()
