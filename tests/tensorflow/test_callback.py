"""``model.fit`` with the callback, by real trainings whose times are known."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from gpuwatch.tensorflow import GpuWatchCallback, Monitor
from gpuwatch.tensorflow.measures import Measures
from tensorflow_trainings import BATCH, SEVERAL_STEPS, batches, model, slow_rows

_PRODUCE = 0.2
_COUNT = 15


def fitted(dataset: Any, made: Any = None, **how: Any) -> tuple[Measures, float]:
    """What was measured, and the seconds that the training took."""
    monitor = Monitor()
    callbacks = [GpuWatchCallback(monitor), *how.pop("callbacks", [])]
    made = made or model()
    began = time.perf_counter()
    made.fit(dataset, verbose=0, callbacks=callbacks, **how)
    return monitor.measures, time.perf_counter() - began


def step_seconds(measures: Measures) -> float:
    """Mean duration of a step, of those that did not compile."""
    return measures.step_seconds / sum(measures.step_counts)


def input_per_step(measures: Measures) -> float:
    """Seconds of waiting for each step."""
    return measures.phase_seconds["input"] / measures.steps


def fastest(made: Any, dataset: Any) -> float:
    """Mean duration of a step, of the best of three trainings: what the machine does beside them is no part of it."""
    return min(step_seconds(fitted(dataset, made)[0]) for _ in range(3))


@pytest.mark.parametrize("steps_per_execution", [1, pytest.param(5, marks=SEVERAL_STEPS)])
@pytest.mark.parametrize("compute", [0.0, 0.05])
def test_a_starved_training_waits_as_long_as_it_is_longer(compute: float, steps_per_execution: int) -> None:
    """The wait agrees within 15 % with the time of a step less that of the same step on cached data, also beside a step that computes."""
    made = model(compute, steps_per_execution=steps_per_execution)
    starved, _ = fitted(batches(_COUNT, _PRODUCE), made)
    longer = step_seconds(starved) - fastest(made, batches(_COUNT).cache())
    assert input_per_step(starved) == pytest.approx(longer, rel=0.15)


class Older(tf.keras.Sequential):  # type: ignore[misc]
    """A model whose executions of several steps are as those of Keras before 3.7, or of Keras 2: nothing tells where a step ends."""

    unrolled = True

    def make_train_function(self, force: bool = False) -> Any:
        """One program of the steps, one after the other or in a loop."""
        if self.train_function is not None and not force:
            return self.train_function

        @tf.function
        def train_function(iterator: Any) -> Any:
            logs = self.train_step(next(iterator))
            for _ in range(1, self.steps_per_execution) if self.unrolled else tf.range(1, self.steps_per_execution):
                logs = self.train_step(next(iterator))
            return logs

        self.train_function = train_function
        return train_function


@SEVERAL_STEPS
@pytest.mark.parametrize("unrolled", [True, False])
def test_several_steps_whose_ends_cannot_be_seen(unrolled: bool) -> None:
    """Their wait is not known, and not told; one step at a time it is."""
    made = Older([tf.keras.layers.Dense(1)])
    made.unrolled = unrolled
    made.compile("sgd", "mse", steps_per_execution=4)
    measures, _ = fitted(batches(12, 0.05), made)
    assert (measures.steps, measures.examples, "input" in measures.phase_seconds) == (12, 12 * BATCH, False)
    assert measures.phase_seconds["compute"] + measures.phase_seconds["compile"] > 12 * 0.05 * 0.8
    made.compile("sgd", "mse")
    measures, _ = fitted(batches(12, 0.05), made)
    assert measures.phase_seconds["input"] > 0.3


def test_a_parallel_producer_shortens_the_wait() -> None:
    """The same work of the producer, four at a time: the wait falls to half or less."""
    alone, _ = fitted(slow_rows(40, 0.06))
    together, _ = fitted(slow_rows(40, 0.06, calls=4))
    assert input_per_step(alone) > 0.05
    assert input_per_step(together) < input_per_step(alone) / 2


def test_a_computing_training_waits_for_nothing() -> None:
    """Data that is there: less than a tenth of the time is waiting, also on a busy machine."""
    measures, _ = fitted(batches(_COUNT).cache(), model(0.03), epochs=2)
    times = measures.phase_seconds
    assert times["input"] < 0.1 * (times["input"] + times["compute"])


@pytest.mark.parametrize(
    "how", [{}, {"run_eagerly": True}, {"jit_compile": True}, pytest.param({"steps_per_execution": 4}, marks=SEVERAL_STEPS)], ids=str
)
def test_steps_and_examples(how: dict[str, Any]) -> None:
    """Each step and example counts once, also where the last execution has fewer steps; all time is in some phase."""
    measures, seconds = fitted(batches(11, 0.01), model(**how))
    assert (measures.steps, measures.examples) == (11, 11 * BATCH)
    assert measures.phase_seconds["input"] > 0
    assert sum(measures.phase_seconds.values()) <= seconds
    assert not measures.training
    assert measures.last_step_timestamp_seconds == pytest.approx(time.time(), abs=60)
    assert (measures.traces > 0) == (not how.get("run_eagerly"))


def test_compiling_is_no_step() -> None:
    """The first step is counted, and its time is that of compiling: none of it is in the duration of steps."""
    measures, _ = fitted(batches(6), model())
    assert measures.first_step_seconds == pytest.approx(measures.phase_seconds["compile"], rel=0.6)
    assert sum(measures.step_counts) < measures.steps == 6


def test_the_same_callback_again() -> None:
    """A second training counts on, of the same model without a new trace, and of another one with it."""
    monitor = Monitor()
    callback, made = GpuWatchCallback(monitor), model()
    for _ in range(2):
        made.fit(batches(5), verbose=0, callbacks=[callback])
    assert (monitor.measures.steps, monitor.measures.traces) == (10, 1)
    model().fit(batches(5), verbose=0, callbacks=[callback])
    assert (monitor.measures.steps, monitor.measures.traces) == (15, 2)


def test_a_model_that_was_trained_before() -> None:
    """A function that was traced without the watch is made anew, or its wait would be missed."""
    made = model()
    made.fit(batches(3), verbose=0)
    measures, _ = fitted(batches(6, 0.03), made)
    assert measures.phase_seconds["input"] > 0.05
    assert measures.steps == 6


def test_validation_and_checkpoints(tmp_path: Path) -> None:
    """Both have their own phase; the batches of a validation are no input, and nothing is counted outside of a training."""
    made = model()
    saver = tf.keras.callbacks.ModelCheckpoint(str(tmp_path / "{epoch}.weights.h5"), save_weights_only=True)
    measures, _ = fitted(batches(4), made, validation_data=batches(4, 0.2), callbacks=[saver])
    assert measures.phase_seconds["validation"] > 0.7
    assert measures.phase_seconds["checkpoint"] > 0
    assert measures.phase_seconds["input"] < 0.6
    assert measures.steps == 4
    before = dict(measures.phase_seconds)
    made.evaluate(batches(2), verbose=0)
    made.save_weights(tmp_path / "last.weights.h5")
    assert measures.phase_seconds == before


def test_slow_callbacks_are_the_host() -> None:
    """What happens between the steps is neither input nor computing."""

    class Slow(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: object = None) -> None:  # noqa: ARG002
            time.sleep(0.03)

    measures, _ = fitted(batches(10).cache(), callbacks=[Slow()])
    assert measures.phase_seconds["host"] > 0.25
    assert measures.phase_seconds["input"] < 0.25


def test_two_replicas() -> None:
    """A batch for two replicas is one batch and one wait, with the examples of both."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    measures, _ = fitted(batches(10, 0.04), model(strategy=strategy))
    assert (measures.steps, measures.examples, measures.replicas) == (10, 10 * BATCH, 2)
    assert 0.2 < measures.phase_seconds["input"] < 0.7
    assert measures.facts["strategy"] == "MirroredStrategy"


def test_nothing_is_left_behind() -> None:
    """After the training the model is as it was, also after one that failed; and its error comes out as it is."""

    class Stop(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:  # noqa: ARG002
            raise KeyError("mine")

    made, monitor = model(), Monitor()
    callback = GpuWatchCallback(monitor)
    with pytest.raises(KeyError, match="mine"):
        made.fit(batches(3), verbose=0, callbacks=[callback, Stop()])
    made.fit(batches(3), verbose=0, callbacks=[callback])
    assert not {"save", "save_weights"} & set(vars(made))
    assert made.train_function.__module__.partition(".")[0] in ("keras", "tf_keras")
    assert not monitor.measures.training


def test_an_error_in_a_step_ends_the_training() -> None:
    """A training that died is not shown as one that runs."""
    monitor = Monitor()

    def produce() -> Any:
        yield from batches(2).as_numpy_iterator()
        raise OSError("no more disk")

    broken = tf.data.Dataset.from_generator(produce, output_signature=batches(1).element_spec)
    with pytest.raises(tf.errors.UnknownError, match="no more disk"):
        model().fit(broken, verbose=0, callbacks=[GpuWatchCallback(monitor)])
    assert not monitor.measures.training
    assert monitor.measures.steps == 2


def test_a_loss_that_is_no_number() -> None:
    """Counted once when it ceases to be a number, with the time."""
    made = model()
    made.compile(tf.keras.optimizers.SGD(1e30), "mse", jit_compile=False)
    measures, _ = fitted(batches(8), made)
    assert measures.nonfinite_losses == 1
    assert measures.nonfinite_loss_timestamp_seconds == pytest.approx(time.time(), abs=60)


def test_curves(tmp_path: Path) -> None:
    """On request the training draws its waiting for TensorBoard, a point for each epoch at least, and without an agent no GPU."""
    model().fit(batches(5, 0.02).cache(), epochs=2, verbose=0, callbacks=[GpuWatchCallback(Monitor(), log_directory=tmp_path)])
    [file] = tmp_path.iterdir()
    events = [tf.compat.v1.Event.FromString(one.numpy()) for one in tf.data.TFRecordDataset(str(file))]
    drawn = [(event.step, value.tag) for event in events for value in event.summary.value]
    assert {step for step, tag in drawn if tag == "gpuwatch/input_share"} >= {5, 10}
    assert {tag for _, tag in drawn} == {"gpuwatch/input_share", "gpuwatch/step_seconds"}


def test_a_validation_that_fails() -> None:
    """Its error comes out as it is, and the next training is measured as if nothing had been."""
    monitor = Monitor()

    def produce() -> Any:
        raise OSError("no more disk")
        yield

    broken = tf.data.Dataset.from_generator(produce, output_signature=batches(1).element_spec)
    callback, made = GpuWatchCallback(monitor), model()
    with pytest.raises(tf.errors.UnknownError, match="no more disk"):
        made.fit(batches(3), validation_data=broken, verbose=0, callbacks=[callback])
    time.sleep(0.3)
    made.fit(batches(3, 0.02), verbose=0, callbacks=[callback])
    assert (monitor.measures.steps, monitor.measures.training) == (6, False)
    assert monitor.measures.phase_seconds["validation"] < 0.3
    assert monitor.measures.phase_seconds["input"] > 0.03


def test_a_callback_that_is_only_made() -> None:
    """Neither a port nor a variable is there before a training begins."""
    assert GpuWatchCallback().monitor is None


def test_a_keras_that_does_it_another_way(caplog: pytest.LogCaptureFixture) -> None:
    """The training goes on with one warning, and nothing is measured."""

    class Odd(tf.keras.Sequential):  # type: ignore[misc]
        def make_train_function(self, force: bool = False) -> Any:
            if force:
                raise TypeError("what is force?")
            return super().make_train_function()

    made = Odd([tf.keras.Input((16,)), tf.keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    with caplog.at_level(logging.WARNING, logger="gpuwatch.tensorflow"):
        measures, _ = fitted(batches(3), made)
    assert [record.message for record in caplog.records] == ["gpuwatch cannot measure this training, which goes on without it"]
    assert (measures.steps, measures.training) == (0, False)
