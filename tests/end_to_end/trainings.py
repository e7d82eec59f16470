"""Trainings with real TensorFlow, each with something of its own that goes wrong: one process each, and each with its endpoint.

``python trainings.py NAME=PORT …`` imports TensorFlow once and forks, before TensorFlow has started anything: its import is most of what
a start costs. There is no GPU. Where a step takes its time, it sleeps, as a process does that waits for its GPU.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from examples.programs import EXAMPLES
from gpuwatch.tensorflow import GpuWatchCallback, process_monitor
from tensorflow_trainings import batches, model

_FOR_EVER = 10**9
_LONG, _SHORT = 0.2, 0.02
"""Seconds. What takes long takes by far the most of a step, on a busy machine too, and leaves the processor to others."""
_BUFFER = 10**6


class _Slow(tf.keras.callbacks.Callback):  # type: ignore[misc] # Keras tells no types
    """Takes its time after every step."""

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:  # noqa: ARG002 (of Keras)
        time.sleep(_LONG)


def _fit(dataset: tf.data.Dataset, step_seconds: float, *callbacks: Any, **how: Any) -> None:
    model(step_seconds).fit(dataset, shuffle=False, verbose=0, callbacks=[GpuWatchCallback(), *callbacks], **how)


def wait_for_input() -> None:
    """Each batch is made when the step asks for it."""
    _fit(batches(_FOR_EVER, _LONG), _SHORT)


def compute_beside_the_input() -> None:
    """The same batches, in half the time of a step and made meanwhile."""
    _fit(batches(_FOR_EVER, _LONG / 2).prefetch(2), _LONG)


def linger_in_a_callback() -> None:
    """Between the steps."""
    _fit(batches(_FOR_EVER).prefetch(2), _SHORT, _Slow())


def compute() -> None:
    """The batches are always there."""
    _fit(batches(_FOR_EVER).prefetch(2), _LONG)


def fill_a_buffer() -> None:
    """Shuffling begins when the buffer is full, and this one takes a day."""
    _fit(batches(_FOR_EVER, _LONG).shuffle(_BUFFER), _SHORT)


def trace_every_step() -> None:
    """A number of Python as an argument is another function for each value. The sleep is what a large model takes to be traced."""
    weights = tf.Variable(tf.ones([16, 1]))

    @tf.function
    def step(number: int, batch: Any) -> tf.Tensor:
        time.sleep(_LONG)
        return tf.reduce_sum(tf.matmul(batch, weights)) / (number + 1)

    monitor = process_monitor()
    monitor.watch(step)
    with monitor.training():
        for number, (x, _) in enumerate(batches(_FOR_EVER).prefetch(2)):
            with monitor.step():
                step(number, x)


def end_and_stay() -> None:
    """As a notebook does after its training."""
    _fit(batches(3), _SHORT)
    while True:
        time.sleep(_LONG)


def diverge() -> None:
    """When it is told to, by a file: from then on the batches hold infinite numbers."""
    spoiled_from_now = Path("spoiled")

    def spoil(x: np.ndarray) -> np.ndarray:
        return x * np.float32(np.inf) if spoiled_from_now.exists() else x

    def spoiled(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.ensure_shape(tf.numpy_function(spoil, [x], tf.float32), x.shape), y

    _fit(batches(_FOR_EVER).map(spoiled).prefetch(2), _LONG)


def train_on_two_workers() -> None:
    """The program of the examples, whose second worker has a slow input."""
    sys.argv = ["multi_worker.py", f"--steps={_FOR_EVER}", "--slow-worker=1", f"--slow-input={4000 * _LONG:g}"]
    runpy.run_path(str(EXAMPLES / sys.argv[0]), run_name="__main__")


TRAININGS: dict[str, tuple[Callable[[], None], int]] = {
    "input": (wait_for_input, 1),
    "fed": (compute_beside_the_input, 1),
    "host": (linger_in_a_callback, 1),
    "small": (compute, 1),
    "buffer": (fill_a_buffer, 1),
    "retrace": (trace_every_step, 1),
    "over": (end_and_stay, 1),
    "nan": (diverge, 1),
    "team": (train_on_two_workers, 2),
}
"""What each does, and in how many processes."""


def _environments(ports: list[str]) -> list[dict[str, str]]:
    """Of the workers of one training."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in ports]
    cluster = {"worker": [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]}
    for one in sockets:
        one.close()
    found = [{"GPUWATCH_TENSORFLOW_PORT": port} for port in ports]
    if len(ports) > 1:
        for index, environment in enumerate(found):
            environment["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
    return found


def _fork(train: Callable[[], None], environment: dict[str, str]) -> int:
    if pid := os.fork():
        return pid
    try:
        _end_with_parent()
        os.environ.update(environment)
        train()
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        # Not by the way of the parent, whose other children are none of this one's.
        os._exit(1)


def _end_with_parent() -> None:
    """Whatever ends it, as ``PR_SET_PDEATHSIG`` has it."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def main() -> None:
    """Start them all; when one ends, all do, since none should."""
    _end_with_parent()
    children: list[int] = []
    for argument in sys.argv[1:]:
        name, _, ports = argument.partition("=")
        train, workers = TRAININGS[name]
        environments = _environments(ports.split(","))
        assert len(environments) == workers, argument
        children.extend(_fork(train, one) for one in environments)
    ended, status = os.wait()
    sys.exit(f"process {children.index(ended)} of {sys.argv[1:]} has ended: {status}")


if __name__ == "__main__":
    main()
