"""A small model trained by Keras, measured by gpuwatch: the only line that a training needs is the callback.

python keras_fit.py                                # fetches and computes, and waits for nothing
python keras_fit.py --slow-input 50                # a batch takes 50 ms to make: the step waits for its input
python keras_fit.py --slow-input 50 --parallel 8   # the same batches, eight made at once and ahead of time
python keras_fit.py --slow-callback 50             # 50 ms of Python after each step: the host holds up the GPU
"""

from __future__ import annotations

import argparse
import time

import keras
import numpy as np
import tensorflow as tf

from gpuwatch.tensorflow import GpuWatchCallback

FEATURES, CLASSES = 64, 10


class SlowCallback(keras.callbacks.Callback):
    """What a careless callback does: something slow after every batch."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Sleep in place of writing images to a network disk."""
        del batch, logs
        time.sleep(self._seconds)


def make_dataset(arguments: argparse.Namespace) -> tf.data.Dataset:
    """Batches made by Python, each in ``slow_input`` milliseconds: one after the other, or ``parallel`` at once and ahead of the step."""
    numbers = np.random.default_rng(seed=8)

    def make_batch(_: np.int64) -> tuple[np.ndarray, np.ndarray]:
        time.sleep(arguments.slow_input / 1000)
        return numbers.random((arguments.batch, FEATURES), np.float32), numbers.integers(0, CLASSES, arguments.batch)

    def batch_of(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        examples, labels = tf.numpy_function(make_batch, [index], (tf.float32, tf.int64))
        return tf.ensure_shape(examples, (arguments.batch, FEATURES)), tf.ensure_shape(labels, (arguments.batch,))

    indices = tf.data.Dataset.range(arguments.steps * arguments.epochs)
    if arguments.parallel:
        options = tf.data.Options()
        # A call that sleeps holds its thread, and there are only as many as cores unless one asks for more.
        options.threading.private_threadpool_size = arguments.parallel
        return indices.map(batch_of, num_parallel_calls=arguments.parallel).prefetch(tf.data.AUTOTUNE).with_options(options)
    return indices.map(batch_of)


def make_model(width: int) -> keras.Model:
    """Three dense layers."""
    layers = [keras.layers.Dense(width, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.layers.Input((FEATURES,)), *layers, keras.layers.Dense(CLASSES)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def main() -> None:
    """Read the flags and train."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--epochs", type=int, default=3)
    flags.add_argument("--steps", type=int, default=100, help="steps in an epoch")
    flags.add_argument("--batch", type=int, default=64, help="examples in a batch")
    flags.add_argument("--width", type=int, default=512, help="of the hidden layers")
    flags.add_argument("--slow-input", type=float, default=0, metavar="MS", help="what a batch takes to make")
    flags.add_argument("--parallel", type=int, default=0, metavar="N", help="batches that are made at once, ahead of the step")
    flags.add_argument("--slow-callback", type=float, default=0, metavar="MS", help="what a callback takes after each step")
    arguments = flags.parse_args()

    callbacks: list[keras.callbacks.Callback] = [GpuWatchCallback()]
    if arguments.slow_callback:
        callbacks.append(SlowCallback(arguments.slow_callback / 1000))
    make_model(arguments.width).fit(
        make_dataset(arguments), epochs=arguments.epochs, steps_per_epoch=arguments.steps, shuffle=False, verbose=2, callbacks=callbacks
    )


if __name__ == "__main__":
    main()
