"""What the callback costs a training step of about five milliseconds.

The train function of Keras is called as ``fit`` calls it: as it is, with the clock around its fetch (``traced``), and through the whole
stop watch (``watched``), in turns by chance, so that what the machine does beside them meets all alike.

Usage: python bench/tensorflow_step.py [TURNS]
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
_WIDTH, _BATCH = 256, 64


def model() -> Any:
    """One whose step takes about five milliseconds on a core or two."""
    layers = [tf.keras.Input((_WIDTH,)), *(tf.keras.layers.Dense(_WIDTH) for _ in range(5)), tf.keras.layers.Dense(1)]
    made = tf.keras.Sequential(layers)
    made.compile("sgd", "mse", jit_compile=False)
    made.make_train_function()
    return made


def ways() -> dict[str, Callable[[], Any]]:
    """One step each way."""
    batch = (np.ones((_BATCH, _WIDTH), np.float32), np.ones((_BATCH, 1), np.float32))
    dataset = tf.data.Dataset.from_tensors(batch).cache().repeat()
    plain, watched = model(), model()
    one, other = iter(dataset), iter(dataset)
    callback = GpuWatchCallback(Monitor())
    callback.set_model(watched)
    callback.on_train_begin()
    through, traced = watched.train_function, watched.train_function.args[1]
    through(other)  # it is traced under the watch
    return {
        "plain": lambda: plain.train_function(one),
        "traced": lambda: traced(other),
        "watched": lambda: through(other),
    }


def main() -> None:
    """Print the table."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    steps, times = ways(), {}
    for _ in range(turns):
        for name, step in random.sample(list(steps.items()), len(steps)):
            step()
            for _ in range(_CALLS):
                began = time.perf_counter()
                step()
                times.setdefault(name, []).append(time.perf_counter() - began)
    plain = quantile(times["plain"], 0.5)
    rows = []
    for name, found in times.items():
        middle = quantile(found, 0.5)
        rows.append((name, *(f"{quantile(found, share) * 1e3:.2f}" for share in (0.1, 0.5, 0.9)), f"{middle / plain - 1:+.1%}"))
    show("What the callback costs a step", ("way", "p10, ms", "p50, ms", "p90, ms", "beside plain"), sorted(rows))


if __name__ == "__main__":
    main()
