"""What the callback costs a training step of about five milliseconds: the same training with and without it, in turn.

Usage: python bench/tensorflow_step.py [PAIRS]
"""

from __future__ import annotations

import os
import sys
import time
from statistics import median
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from table import show

from gpuwatch.tensorflow import GpuWatchCallback, Monitor

_STEPS = 300
_WIDTH, _BATCH = 256, 64


class Nothing(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """A callback that does as little as one can, for a fair comparison: Keras calls both."""

    async_safe = True

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Nothing."""


def model(steps_per_execution: int) -> Any:
    """One whose step takes about five milliseconds on a core or two."""
    layers = [tf.keras.Input((_WIDTH,)), *(tf.keras.layers.Dense(_WIDTH, activation="relu") for _ in range(5)), tf.keras.layers.Dense(1)]
    made = tf.keras.Sequential(layers)
    made.compile("sgd", "mse", jit_compile=False, steps_per_execution=steps_per_execution)
    return made


def spent(made: Any, dataset: Any, callback: Any) -> tuple[float, float]:
    """Wall and processor seconds of a step."""
    wall, busy = time.perf_counter(), time.process_time()
    made.fit(dataset, steps_per_epoch=_STEPS, verbose=0, callbacks=[callback], shuffle=False)
    return (time.perf_counter() - wall) / _STEPS, (time.process_time() - busy) / _STEPS


def compared(steps_per_execution: int, pairs: int) -> tuple[str, ...]:
    """A row: medians, and the median of what a pair differs by."""
    batch = (np.ones((_BATCH, _WIDTH), np.float32), np.ones((_BATCH, 1), np.float32))
    dataset = tf.data.Dataset.from_tensors(batch).cache().repeat()
    plain, watched = model(steps_per_execution), model(steps_per_execution)
    without, with_it = Nothing(), GpuWatchCallback(Monitor())
    spent(plain, dataset, without)
    spent(watched, dataset, with_it)
    runs = [(spent(plain, dataset, without), spent(watched, dataset, with_it)) for _ in range(pairs)]
    step = median(one[0] for one, _ in runs)
    wall, busy = (median(two[part] - one[part] for one, two in runs) for part in (0, 1))
    return (str(steps_per_execution), f"{step * 1e3:.2f}", f"{wall * 1e6:.0f}", f"{busy * 1e6:.0f}", f"{wall / step:.2%}")


def main() -> None:
    """Print the table."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    head = ("steps per execution", "step, ms", "callback, wall us", "callback, processor us", "share of the step")
    show("What the callback costs", head, [compared(steps, pairs) for steps in (1, 10)])


if __name__ == "__main__":
    main()
