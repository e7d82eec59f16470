"""The callback for ``model.fit``: every second of a training, and every step, without a change to the model."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from typing import Any, Final

import tensorflow as tf

from gpuwatch.tensorflow.calls import Call, calls_of
from gpuwatch.tensorflow.curves import Curves
from gpuwatch.tensorflow.facts import model_facts, replicas_in_sync, steps_per_execution
from gpuwatch.tensorflow.input_wait import install
from gpuwatch.tensorflow.monitor import Monitor, process_monitor
from gpuwatch.tensorflow.node_agent import agent_of
from gpuwatch.tensorflow.settings import read_settings

_LOG: Final = logging.getLogger("gpuwatch.tensorflow")
_SAVERS: Final = ("save", "save_weights")
"""What callbacks that make checkpoints call."""
_ENDS_OF_DATA: Final = (StopIteration, tf.errors.OutOfRangeError)


class GpuWatchCallback(tf.keras.callbacks.Callback):  # type: ignore[misc] # Keras tells no types
    """Measures a training by Keras and serves what it finds, as the environment says.

    The train function is called through a stop watch, and made anew once, so that the fetch of the batch within it is measured. Nothing
    else of the model changes, and what is put in place is taken away at the end of the training.

    Args:
        monitor: Another than that of the process.
        log_directory: Draw curves there for TensorBoard: waiting, and what the node's agent (``GPUWATCH_AGENT_URL``) says of the GPUs.
    """

    async_safe = True
    """Keras need not wait for the GPU on account of this callback."""

    def __init__(self, monitor: Monitor | None = None, *, log_directory: str | Path | None = None) -> None:
        super().__init__()
        self.monitor = monitor
        """Made when a training begins, if none was given: a callback that is only made touches nothing."""
        self._log_directory = log_directory
        self._curves: Curves | None = None
        self._watched: Any = None
        """The model in which something was replaced: Keras gives a callback its next model before the training begins."""
        self._watches = False
        """This training is measured, and by this callback."""
        self._replaced: dict[str, tuple[Any, Any]] = {}
        """What was in the model under a name, and what was put there."""
        self._waits = False
        """Keras waits for the GPU after every step, because of other callbacks: then so may the stop watch."""
        self._thread = 0
        self._has_gpus = False
        self._steps = 1
        """In an execution of the train function."""
        self._described = False
        self._validation = contextlib.ExitStack()

    def __getstate__(self) -> dict[str, Any]:
        """A copy watches nothing yet."""
        idle: dict[str, Any] = {"_replaced": {}, "_watched": None, "_watches": False, "_validation": contextlib.ExitStack()}
        return vars(self) | {"_curves": None} | idle

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:  # noqa: ARG002 (of Keras)
        """Start the watch."""
        try:
            if self._watches and any(one is self._watched for _, one in _fits()[1:]):
                return  # of another model, with this callback too: it is a part of the outer one
            self._give_back()
            self._watches = False
            self._watch()
        except Exception:  # noqa: BLE001
            # Whatever this Keras does in another way: the training is worth more than its measures.
            _LOG.warning("gpuwatch cannot measure this training, which goes on without it", exc_info=True)
            self._end()

    def _watch(self) -> None:
        self._thread, self._waits, self._described = get_ident(), False, False
        monitor = self.monitor = self.monitor or process_monitor()
        if (other := _watcher_of(self.model)) is not None:
            if other.params is self.params:
                _LOG.warning("gpuwatch measures with the first of the callbacks of this training; another has no effect")
                return
            other._give_back()  # noqa: SLF001 (an error left it there)
        fits = _fits()
        if monitor.measures.training and len(fits) > 1:
            return  # which it is a part of
        call = next((call for call, _ in fits), None)
        if not monitor.begin(call=call, steps_are_batches=True, **model_facts(self.model)):
            return
        self._watches = True
        monitor.measures.replicas = replicas_in_sync(self.model)
        self._has_gpus = bool(monitor.measures.gpus)
        if self._log_directory is not None:
            self._curves = Curves(self._log_directory, monitor.measures, agent_of(read_settings()))
        if (backend := _backend()) != "tensorflow":
            raise RuntimeError(f"Keras runs on {backend}, expected tensorflow")
        self._watched = self.model
        self._watch_train_function(monitor)
        for name in _SAVERS:
            self._replace(name, functools.partial(_save, monitor, getattr(self.model, name)))

    def _watch_train_function(self, monitor: Monitor) -> None:
        self._steps = steps_per_execution(self.model)
        if not _is_watched(self.model.train_function, monitor):
            monitor.meter.overlapping(self._steps)
            if _is_made_by(self.model, self.model.train_function):
                self.model.make_train_function(force=True)
        original = self.model.train_function
        _mark(original, monitor)
        self._replace("train_function", functools.partial(self._run, monitor, original))

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:  # noqa: ARG002 (of Keras)
        """Look whether the train function was made anew, as after layers were frozen: a step that is not seen would be told as host."""
        if not self._watches or not self.monitor or self.model is not self._watched:
            return
        if self.model.train_function not in (None, self._replaced["train_function"][1]):
            try:
                self._watch_train_function(self.monitor)
            except Exception:  # noqa: BLE001 (the same)
                _LOG.warning("gpuwatch cannot measure this training any more, which goes on without it", exc_info=True)
                self._end()

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:  # noqa: ARG002 (of Keras)
        """Look at the loss."""
        # Of the few lines that run in every step: see Monitor.execute.
        self._waits = self._has_gpus and get_ident() == self._thread
        if self._watches and self.monitor and logs:
            self.monitor.loss(logs.get("loss", 0.0))

    def on_test_begin(self, logs: dict[str, float] | None = None) -> None:  # noqa: ARG002 (of Keras)
        """A validation within a training."""
        if self._watches and self.monitor:
            self._validation.enter_context(self.monitor.validation())

    def on_test_end(self, logs: dict[str, float] | None = None) -> None:  # noqa: ARG002 (of Keras)
        """Its end."""
        self._validation.close()

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:  # noqa: ARG002 (of Keras)
        """Stop the watch and leave the model as it was."""
        if self._watches and any(one is not self._watched for _, one in _fits()[:1]):
            return  # of a model within the training that is measured
        self._end()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:  # noqa: ARG002 (of Keras)
        """A point of each curve."""
        if self._watches and self.monitor:
            self.monitor.publish()
        if self._curves:
            self._curves.draw()

    def _end(self) -> None:
        self._give_back()
        self._validation.close()
        if self._watches and self.monitor:
            self.monitor.end()
        self._watches = False
        if self._curves:
            self._curves.end()
            self._curves = None

    def _run(self, monitor: Monitor, original: Callable[[Any], Any], iterator: Any) -> Any:  # noqa: ANN401
        """The train function, watched."""
        if not self._described:
            self._described = True
            # train_on_batch in another callback gives a generator, of which nothing can be said.
            with contextlib.suppress(TypeError):
                install(type(iterator))
                monitor.describe(iterator)
        if not self._watches:
            return original(iterator)
        function = functools.partial(_and_wait, original) if self._waits else original
        try:
            logs = monitor.execute(function, iterator, steps=self._steps)
        except _ENDS_OF_DATA:
            raise
        except BaseException:
            self._end()
            raise
        if self._curves:
            self._curves.look()
        return logs

    def _replace(self, name: str, by: Callable[..., Any]) -> None:
        self._replaced[name] = vars(self._watched).get(name), by
        setattr(self._watched, name, by)

    def _give_back(self) -> None:
        for name, (original, by) in self._replaced.items():
            if vars(self._watched).get(name) is not by:
                continue  # compile() took it away, or somebody else has put in another since: it is theirs
            if original is None:
                delattr(self._watched, name)
            else:
                setattr(self._watched, name, original)
        self._replaced.clear()


def _save(monitor: Monitor, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """What makes a checkpoint, watched."""
    with monitor.checkpoint():
        return original(*args, **kwargs)


def _watcher_of(model: Any) -> GpuWatchCallback | None:  # noqa: ANN401
    """The callback that calls the model's train function."""
    watcher = getattr(getattr(vars(model).get("train_function"), "func", None), "__self__", None)
    return watcher if isinstance(watcher, GpuWatchCallback) else None


def _fits() -> list[tuple[Call, Any]]:
    """Those of this thread, the innermost first, one of each model: a callback of one may train another."""
    fits: list[tuple[Call, Any]] = []
    for call, model in calls_of("fit"):
        if isinstance(model, tf.keras.Model) and all(model is not other for _, other in fits):
            fits.append((call, model))
    return fits


def _backend() -> str:
    backend = getattr(tf.keras.backend, "backend", None)
    return str(backend()) if backend else "tensorflow"


def _is_watched(function: object, monitor: Monitor) -> bool:
    """It was traced with this monitor, and no other, in it."""
    return getattr(function, "gpuwatch_monitor", None) is monitor


def _mark(function: Any, monitor: Monitor) -> None:  # noqa: ANN401
    with contextlib.suppress(AttributeError):
        function.gpuwatch_monitor = monitor


def _is_made_by(model: Any, function: Any) -> bool:  # noqa: ANN401
    """The model makes such a function itself. One that somebody has put there, as a profiler does, would be lost if it were made anew."""
    made_in = getattr(function, "__module__", None) or ""
    return made_in.partition(".")[0] in ("keras", "tf_keras") or made_in == type(model).make_train_function.__module__


def _and_wait(function: Callable[[Any], Any], iterator: Any) -> Any:  # noqa: ANN401
    """Until the GPU has done the step, as Keras is about to do anyway."""
    logs = function(iterator)
    for value in tf.nest.flatten(logs)[:1]:
        if tf.is_tensor(value):
            value.numpy()
    return logs
