"""What the callback costs a training step of about five milliseconds: the same training with and without it, in turn.

Usage: python bench/tensorflow_step.py [PAIRS]
"""

from __future__ import annotations

import os
import sys
import time
from itertools import pairwise
from statistics import median
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from table import show

from gpuwatch.tensorflow import GpuWatchCallback, Monitor

_STEPS = 300
_WIDTH, _BATCH = 256, 64


class Begins(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """When each execution began."""

    async_safe = True

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:  # noqa: ARG002
        """Now."""
        self.times.append(time.perf_counter())


def model(steps_per_execution: int) -> Any:
    """One whose step takes about five milliseconds on a core or two."""
    layers = [tf.keras.Input((_WIDTH,)), *(tf.keras.layers.Dense(_WIDTH, activation="relu") for _ in range(5)), tf.keras.layers.Dense(1)]
    made = tf.keras.Sequential(layers)
    made.compile("sgd", "mse", jit_compile=False, steps_per_execution=steps_per_execution)
    return made


def step_seconds(made: Any, dataset: Any, callbacks: list[Any], steps_per_execution: int) -> float:
    """From the begin of one to the begin of the next, in the middle of many: what the machine does beside them is no part of it."""
    begins = Begins()
    made.fit(dataset, steps_per_epoch=_STEPS, verbose=0, callbacks=[begins, *callbacks], shuffle=False)
    return median(after - before for before, after in pairwise(begins.times)) / steps_per_execution


def compared(steps_per_execution: int, pairs: int) -> tuple[str, ...]:
    """A row: the medians of both, and what they differ by."""
    batch = (np.ones((_BATCH, _WIDTH), np.float32), np.ones((_BATCH, 1), np.float32))
    dataset = tf.data.Dataset.from_tensors(batch).cache().repeat()
    plain, watched = model(steps_per_execution), model(steps_per_execution)
    ways = [(plain, []), (watched, [GpuWatchCallback(Monitor())])]
    runs = [[step_seconds(made, dataset, callbacks, steps_per_execution) for made, callbacks in ways] for _ in range(pairs + 1)]
    without, with_it = (median(one[way] for one in runs[1:]) for way in (0, 1))
    more = with_it - without
    return (str(steps_per_execution), f"{without * 1e3:.2f}", f"{with_it * 1e3:.2f}", f"{more * 1e6:.0f}", f"{more / without:.1%}")


def main() -> None:
    """Print the table."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    head = ("steps per execution", "step, ms", "with the callback, ms", "more, us", "share of the step")
    show("What the callback costs", head, [compared(steps, pairs) for steps in (1, 10)])


if __name__ == "__main__":
    main()
