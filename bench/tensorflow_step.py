"""What the callback costs a training step of about five milliseconds.

Two tables. The first is what it adds in Python to each step of a real ``fit``, looked at from within: the time around the watched train
function less the time of the train function itself, and the time of the call at the end of the batch. Between two of them runs a whole
step, so that the caches of the processor are as cold as in any training. The looks at the clock are in it. The second is what the
operations around the fetch add to the compiled function, by calling it with and without them, in turns by chance, so that what the machine
does beside them meets both alike; also in a step so small that they show.

Usage: python bench/tensorflow_step.py [STEPS]
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from table import quantile, show

from gpuwatch.tensorflow import GpuWatchCallback, Monitor

_CALLS = 15
_BATCH = 64
_WIDTH = 256
"""With it a step takes about five milliseconds on a core or two."""
_SMALL_WIDTH = 8
_WARMING = 5


class Timed(GpuWatchCallback):
    """A callback that is watched itself. Seconds of each step: of the train function, of the watch around it, at the end of the batch."""

    def __init__(self) -> None:
        super().__init__(Monitor())
        self.steps: list[float] = []
        self.around: list[float] = []
        self.at_the_end: list[float] = []

    def _run(self, monitor: Monitor, original: Callable[[Any], Any], iterator: Any) -> Any:
        def function(iterator: Any) -> Any:
            began = time.perf_counter()
            logs = original(iterator)
            self.steps.append(time.perf_counter() - began)
            return logs

        began = time.perf_counter()
        logs = super()._run(monitor, function, iterator)
        self.around.append(time.perf_counter() - began - self.steps[-1])
        return logs

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """As the other, with a look at the clock before and after."""
        began = time.perf_counter()
        super().on_train_batch_end(batch, logs)
        self.at_the_end.append(time.perf_counter() - began)


def model(width: int = _WIDTH) -> Any:
    """Some layers of this width."""
    layers = [tf.keras.Input((width,)), *(tf.keras.layers.Dense(width) for _ in range(5)), tf.keras.layers.Dense(1)]
    made = tf.keras.Sequential(layers)
    made.compile(tf.keras.optimizers.SGD(1e-6), "mse", jit_compile=False)
    return made


def data(width: int = _WIDTH) -> Any:
    """For it, without any waiting."""
    batch = (np.ones((_BATCH, width), np.float32), np.ones((_BATCH, 1), np.float32))
    return tf.data.Dataset.from_tensors(batch).cache().repeat()


def in_python(steps: int) -> None:
    """The first table."""
    callback = Timed()
    model().fit(data(), steps_per_epoch=steps + _WARMING, verbose=0, callbacks=[callback])
    step, around, end = (found[_WARMING:] for found in (callback.steps, callback.around, callback.at_the_end))
    both = [one + other for one, other in zip(around, end, strict=True)]
    rows = []
    for name, found in {"around the step": around, "at the end of the batch": end, "both": both}.items():
        share = sum(found) / sum(step)
        quantiles = (f"{quantile(found, of) * 1e6:.0f}" for of in (0.1, 0.5, 0.9, 0.99))
        rows.append((name, *quantiles, f"{sum(found) / len(found) * 1e6:.0f}", f"{share:.2%}"))
    head = ("where", "p10, us", "p50, us", "p90, us", "p99, us", "mean, us", "of the time of all steps")
    show(f"What the callback adds in Python to a step of {quantile(step, 0.5) * 1e3:.1f} ms, {steps} steps of a fit", head, rows)


def train_functions(width: int) -> dict[str, Callable[[], Any]]:
    """One step each way, of the same model, without any Python of the callback around it."""
    trained, iterator = model(width), iter(data(width))
    trained.make_train_function()
    plain = trained.train_function
    plain(iterator)
    callback = GpuWatchCallback(Monitor())
    callback.set_model(trained)
    callback.on_train_begin()
    watched, timed = trained.train_function, trained.train_function.args[1]
    watched(iterator)  # it is traced under the watch
    callback.on_train_end()
    return {"as it is": lambda: plain(iterator), "with the clock around its fetch": lambda: timed(iterator)}


def in_the_graph(steps: int, width: int) -> None:
    """The second table."""
    functions = train_functions(width)
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(steps // _CALLS):
        for name, step in random.sample(list(functions.items()), len(functions)):
            step()
            for _ in range(_CALLS):
                began = time.perf_counter()
                step()
                times[name].append(time.perf_counter() - began)
    plain = times["as it is"]
    rows = []
    for name, found in times.items():
        more = quantile(found, 0.5) - quantile(plain, 0.5)
        rows.append((name, *(f"{quantile(found, share) * 1e3:.2f}" for share in (0.1, 0.5, 0.9)), f"{more * 1e6:+.0f}"))
    head = ("train function", "p10, ms", "p50, ms", "p90, ms", "more, us")
    show(f"What the clock around the fetch adds in the compiled function, layers of width {width}", head, rows)


def main() -> None:
    """Print both."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    in_python(steps)
    for width in (_WIDTH, _SMALL_WIDTH):
        in_the_graph(steps, width)


if __name__ == "__main__":
    main()
