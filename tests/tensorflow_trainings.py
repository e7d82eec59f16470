"""Small trainings whose time is known: a producer that takes its time, and a model whose step does."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

WIDTH, BATCH = 16, 8
_KERAS = tuple(int(part) for part in getattr(tf.keras, "__version__", "2.16").split(".")[:2])
SEVERAL_STEPS = pytest.mark.skipif(_KERAS < (3, 7), reason="this Keras does not show where one of several steps ends")


def batches(count: int, seconds: float = 0.0) -> tf.data.Dataset:
    """So many batches of eight, each produced in that time, one after the other."""

    def produce() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for _ in range(count):
            time.sleep(seconds)
            yield np.ones((BATCH, WIDTH), np.float32), np.ones((BATCH, 1), np.float32)

    return tf.data.Dataset.from_generator(produce, output_signature=(tf.TensorSpec((None, WIDTH)), tf.TensorSpec((None, 1))))


def slow_rows(count: int, seconds: float, *, calls: int | None = None) -> tf.data.Dataset:
    """The same, where each batch is made by a map that can run in parallel."""

    def make(_: Any) -> tuple[np.ndarray, np.ndarray]:
        time.sleep(seconds)
        return np.ones((BATCH, WIDTH), np.float32), np.ones((BATCH, 1), np.float32)

    def shaped(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x, y = tf.numpy_function(make, [number], (tf.float32, tf.float32))
        return tf.ensure_shape(x, (BATCH, WIDTH)), tf.ensure_shape(y, (BATCH, 1))

    made = tf.data.Dataset.range(count).map(shaped, num_parallel_calls=calls)
    return made.prefetch(calls) if calls else made


class Sleep(tf.keras.layers.Layer):  # type: ignore[misc]
    """Passes its input on after a while: a step that computes for a known time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Sleep, then give back the input."""

        def sleep(values: np.ndarray) -> np.ndarray:
            time.sleep(self.seconds)
            return values

        return tf.ensure_shape(tf.stop_gradient(tf.numpy_function(sleep, [x], tf.float32)), x.shape)


def model(step_seconds: float = 0.0, *, strategy: Any = None, **how: Any) -> tf.keras.Model:
    """Compiled; a step takes ``step_seconds`` and a little."""
    with strategy.scope() if strategy else contextlib.nullcontext():
        layers = [tf.keras.Input((WIDTH,)), *([Sleep(step_seconds)] if step_seconds else []), tf.keras.layers.Dense(1)]
        made = tf.keras.Sequential(layers)
        made.compile("sgd", "mse", **{"jit_compile": False, **how})
    return made
