"""``model.fit`` beside other callbacks, strategies, errors and copies: it is as it would be without the watch, and counts once."""

from __future__ import annotations

import copy
import functools
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from gpuwatch.tensorflow import GpuWatchCallback, Monitor, process_monitor
from gpuwatch.tensorflow.exposition import samples_of
from gpuwatch.tensorflow.measures import Measures
from tensorflow_trainings import BATCH, SEVERAL_STEPS, batches, model


def fitted(dataset: Any, made: Any = None, *, callbacks: list[Any], **how: Any) -> Measures:
    """What was measured by a callback that comes before others."""
    monitor = Monitor()
    (made or model()).fit(dataset, verbose=0, callbacks=[GpuWatchCallback(monitor), *callbacks], **how)
    return monitor.measures


class Train(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Does something with the model at a moment of the training."""

    def __init__(self, when: str, act: Callable[[Any], object]) -> None:
        super().__init__()
        setattr(self, when, lambda *_, **__: act(self.model))


def left(made: Any) -> set[str]:
    """What is still in a model that is not its own."""
    own = vars(made)
    return ({"save", "save_weights"} & set(own)) | ({"train_function"} if isinstance(own["train_function"], functools.partial) else set())


def test_a_model_that_is_compiled_anew_at_the_end() -> None:
    """Its next training is by what it was compiled with then: the train function of before does not come back."""
    made = model()
    freeze = Train("on_train_end", lambda one: one.compile(tf.keras.optimizers.SGD(0.0), "mse"))
    made.fit(batches(3), verbose=0, callbacks=[freeze, GpuWatchCallback(Monitor())])
    before = made.get_weights()[0].copy()
    made.fit(batches(3), verbose=0)
    assert (made.get_weights()[0] == before).all()


def test_two_callbacks_in_one_training() -> None:
    """Each step counts once, and nothing stays in the model."""
    made, monitor = model(), Monitor()
    made.fit(batches(4), validation_data=batches(2), verbose=0, callbacks=[GpuWatchCallback(monitor), GpuWatchCallback(monitor)])
    assert (monitor.measures.steps, sum(monitor.measures.step_counts), left(made)) == (4, 3, set())


def test_an_error_and_then_another_model() -> None:
    """The first model is given back what is its own, and the second trains."""
    first, second, monitor = model(), model(), Monitor()
    callback = GpuWatchCallback(monitor)

    def fail(_: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        first.fit(batches(3), verbose=0, callbacks=[callback, Train("on_train_batch_end", fail)])
    second.fit(batches(3), verbose=0, callbacks=[callback])
    assert (left(first), left(second), monitor.measures.training) == (set(), set(), False)


def interrupted(made: Any, monitor: Monitor) -> GpuWatchCallback:
    """Ctrl-C between two steps, after the first of them."""
    callback = GpuWatchCallback(monitor)

    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.fit(batches(3), verbose=0, callbacks=[callback, Train("on_train_batch_end", interrupt)])
    return callback


def test_ctrl_c_between_two_steps(tmp_path: Path) -> None:
    """Nobody tells a callback; the training is over all the same, and what the notebook does next is no part of it."""
    made, clock = model(), [0.0]
    monitor = Monitor(now=lambda: clock[0])
    interrupted(made, monitor)
    assert samples_of(monitor.measures)["gpuwatch_tensorflow_training"] == [("", {}, 0.0)]
    clock[0] += 3600
    made.save(tmp_path / "model.keras")
    made.train_on_batch(*next(iter(batches(1))))
    with monitor.validation(), monitor.checkpoint(), monitor.step():
        clock[0] += 60
    monitor.publish()
    clock[0] += 60
    made.fit(batches(3), verbose=0)
    made.fit(batches(3), verbose=0, callbacks=[GpuWatchCallback(monitor)])
    assert (monitor.measures.steps, left(made), sum(monitor.measures.phase_seconds.values())) == (1 + 3, set(), 0.0)


def test_ctrl_c_and_then_a_training_in_another_thread() -> None:
    """The thread that was interrupted lives, as that of a notebook, and hinders nobody."""
    made, monitor = model(), Monitor()
    interrupted(made, monitor)
    thread = threading.Thread(target=lambda: model().fit(batches(3), verbose=0, callbacks=[GpuWatchCallback(monitor)]))
    thread.start()
    thread.join()
    assert (monitor.measures.steps, monitor.measures.training) == (4, False)


def test_a_fit_in_a_loop_of_ones_own() -> None:
    """The loop goes on after it."""
    monitor, told = Monitor(), []
    with monitor.training():
        model().fit(batches(3), verbose=0, callbacks=[GpuWatchCallback(monitor)])
        told.append(monitor.measures.runs)
        with monitor.step():
            pass
    assert (told, monitor.measures.runs, monitor.measures.steps) == ([True], False, 4)


@pytest.mark.parametrize("shared", [True, False])
def test_a_training_within_a_training(shared: bool) -> None:
    """It is a part of the outer one, which goes on as measured; neither model keeps anything."""
    outer, inner, monitor, told = model(), model(), Monitor(), []
    callback = GpuWatchCallback(monitor)

    def probe(_: Any) -> None:
        inner.fit(batches(2), verbose=0, callbacks=[callback if shared else GpuWatchCallback(monitor)])
        told.append(monitor.measures.training)

    outer.fit(batches(3), epochs=2, verbose=0, callbacks=[callback, Train("on_epoch_end", probe)])
    assert (told, monitor.measures.training, monitor.measures.steps) == ([True, True], False, 6)
    assert (left(outer), left(inner)) == (set(), set())


def test_one_batch_before_the_first_step() -> None:
    """Another callback may train on a batch of its own: Keras then gives the train function a generator."""
    batch = next(iter(batches(1)))
    measures = fitted(batches(3), callbacks=[Train("on_train_begin", lambda one: one.train_on_batch(*batch))])
    assert measures.steps >= 3


def test_trainings_that_nobody_measures() -> None:
    """What the same model does between two measured trainings is no part of either."""
    made, monitor = model(), Monitor()
    fitted_once = GpuWatchCallback(monitor)
    made.fit(batches(3), verbose=0, callbacks=[fitted_once])
    made.fit(batches(5, 0.02), verbose=0)
    made.fit(batches(3).cache(), verbose=0, callbacks=[fitted_once])
    assert (monitor.measures.steps, monitor.measures.examples) == (6, 6 * BATCH)


def test_a_train_function_of_somebody_else() -> None:
    """What another tool has put there is called for each step, and stays its own."""
    made, calls = model(), []

    def wrap(one: Any) -> None:
        theirs = one.train_function
        one.train_function = lambda iterator: (calls.append(1), theirs(iterator))[1]

    monitor = Monitor()
    made.fit(batches(3), verbose=0, callbacks=[Train("on_train_begin", wrap), GpuWatchCallback(monitor)])
    assert len(calls) >= monitor.measures.steps == 3


def test_a_train_function_that_is_made_anew() -> None:
    """As after layers were frozen: the steps of the epochs after it are seen too."""
    made = model()
    measures = fitted(batches(3), made, epochs=3, callbacks=[Train("on_epoch_end", lambda one: one.make_train_function(force=True))])
    assert (measures.steps, left(made)) == (9, set())


def test_copies() -> None:
    """A callback can be copied and pickled after a training, as tuners do, whatever its monitor has open; the copy measures too."""
    made, monitor = model(), Monitor(begun=threading.Lock().locked)
    callback = GpuWatchCallback(monitor)
    made.fit(batches(2), verbose=0, callbacks=[callback])
    copied = copy.deepcopy(callback)
    made.fit(batches(2), verbose=0, callbacks=[copied])
    assert (copied.monitor is monitor, monitor.measures.steps) == (True, 4)
    callback.set_model(None)
    assert pickle.loads(pickle.dumps(callback)).monitor is process_monitor()  # noqa: S301


def test_weights_saved_in_another_thread(tmp_path: Path) -> None:
    """That takes no time of the training, and is in no phase of it."""

    def save(one: Any) -> None:
        thread = threading.Thread(target=one.save_weights, args=(tmp_path / "of.weights.h5",))
        thread.start()
        thread.join()

    measures = fitted(batches(3), callbacks=[Train("on_epoch_end", save)])
    assert list(tmp_path.iterdir())
    assert measures.phase_seconds["checkpoint"] == 0


@SEVERAL_STEPS
def test_a_strategy_with_several_steps_in_an_execution() -> None:
    """It trains on, each step and example counts once, also where the last execution is shorter, and the wait is found.

    One device: with two, TensorFlow 2.21 fails at such a program on a CPU by itself.
    """
    monitor = Monitor()
    made = model(strategy=tf.distribute.MirroredStrategy(["CPU:0"]), steps_per_execution=3)
    made.fit(batches(10, 0.05), epochs=2, verbose=0, callbacks=[GpuWatchCallback(monitor)])
    assert (monitor.measures.steps, monitor.measures.examples) == (20, 20 * BATCH)
    assert monitor.measures.phase_seconds["input"] > 0.5
