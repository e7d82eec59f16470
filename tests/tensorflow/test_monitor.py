"""Loops of one's own, watched."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.tensorflow import GpuWatchCallback, Monitor, process_monitor
from gpuwatch.tensorflow.measures import PHASES
from tensorflow_trainings import BATCH, batches, model

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


def test_elements_of_a_shape_that_nobody_knows() -> None:
    """Single numbers have no first dimension to count examples by; the compiled step goes on without."""
    monitor = Monitor()
    dataset = tf.data.Dataset.from_generator(lambda: map(float, range(4)), output_types=tf.float32)

    @tf.function
    def step(iterator: Any) -> Any:
        return next(iterator) * 2

    with monitor.training():
        iterator = iter(dataset)
        for _ in range(4):
            with monitor.step():
                step(iterator)
    assert (monitor.measures.steps, monitor.measures.examples) == (4, 0)


def test_a_step_within_a_function() -> None:
    """It is traced once and runs often: it is no step, and the function does what it does without."""
    clock = iter(range(0, 10_000, 100))
    monitor = Monitor(now=lambda: float(next(clock)))

    @tf.function
    def loop(dataset: Any) -> Any:
        total = tf.constant(0, tf.int64)
        for one in dataset:
            with monitor.step():
                total += one
                monitor.loss(total)
        return total

    with monitor.training():
        assert int(loop(tf.data.Dataset.range(5))) == 10
    assert monitor.measures.steps == 0


def test_what_another_thread_does() -> None:
    """Saving and evaluating beside the training take none of its time; a second training there is not measured, and goes on."""
    monitor = Monitor()

    def beside() -> None:
        with monitor.checkpoint(), monitor.validation():
            time.sleep(0.05)
        with monitor.training(), monitor.step():
            pass

    with monitor.training():
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        with monitor.step():
            pass
        assert monitor.measures.training
    times = monitor.measures.phase_seconds
    assert (times["checkpoint"], times["validation"], monitor.measures.steps) == (0, 0, 1)


def test_a_fit_within_a_loop() -> None:
    """It counts, and its end is not that of the loop."""
    monitor = Monitor()
    made = model()
    with monitor.training():
        for _ in range(2):
            made.fit(batches(3), verbose=0, callbacks=[GpuWatchCallback(monitor)])
            assert monitor.measures.training
    assert (monitor.measures.steps, monitor.measures.training) == (6, False)


def test_a_loop_that_ends_in_another_thread() -> None:
    """A loop in a generator ends where it is closed: no error comes out of the watch."""
    monitor, ended = Monitor(), threading.Event()

    def loop() -> Iterator[int]:
        with monitor.training():
            yield 1

    def finish() -> None:
        list(running)
        ended.set()

    running = loop()
    next(running)
    thread = threading.Thread(target=finish)
    thread.start()
    thread.join()
    assert ended.is_set()


def test_a_function_that_cannot_be_watched(caplog: pytest.LogCaptureFixture) -> None:
    """One warning, and no error: only functions of TensorFlow are traced."""
    monitor = Monitor()
    for _ in range(2):
        monitor.watch(len)
    assert len(caplog.records) == 1


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
