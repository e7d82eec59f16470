"""A training loop of one's own, measured by gpuwatch: a context around the loop, and one around each step, validation and checkpoint.

python custom_loop.py                    # fetches and computes
python custom_loop.py --slow-host 50     # 50 ms of Python between two steps: the host holds up the GPU
python custom_loop.py --shapes 20        # batches of twenty lengths: the step is traced twenty times
python custom_loop.py --break-at 30      # the loss is NaN from the thirtieth step on
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from gpuwatch.tensorflow import process_monitor

FEATURES = 32


def batches(arguments: argparse.Namespace) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Sequences and their sums; with ``shapes`` of as many lengths, as text that nobody padded."""
    numbers = np.random.default_rng(seed=8)
    for index in range(arguments.steps):
        length = 16 + index % arguments.shapes
        examples = numbers.random((arguments.batch, length, FEATURES), np.float32)
        if index >= arguments.break_at > 0:
            examples[0] = np.inf
        yield examples, examples.sum((1, 2), keepdims=True)[..., 0] / (length * FEATURES)


def main() -> None:
    """Read the flags and train."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--steps", type=int, default=200)
    flags.add_argument("--batch", type=int, default=32, help="examples in a batch")
    flags.add_argument("--checkpoint-every", type=int, default=100, metavar="STEPS")
    flags.add_argument("--slow-host", type=float, default=0, metavar="MS", help="Python between two steps")
    flags.add_argument("--shapes", type=int, default=1, help="lengths of sequences")
    flags.add_argument("--break-at", type=int, default=0, metavar="STEP", help="from where on the loss is NaN")
    arguments = flags.parse_args()

    shapes = (tf.TensorSpec((None, None, FEATURES), tf.float32), tf.TensorSpec((None, 1), tf.float32))
    dataset = tf.data.Dataset.from_generator(lambda: batches(arguments), output_signature=shapes).prefetch(tf.data.AUTOTUNE)
    model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.05)

    @tf.function
    def train_step(examples: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(examples, training=True) - labels))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True))
        return loss

    monitor = process_monitor()
    monitor.watch(train_step)
    monitor.describe(dataset)
    model.build((None, None, FEATURES))
    optimizer.build(model.trainable_variables)
    saver = tf.train.Checkpoint(model=model)
    with tempfile.TemporaryDirectory() as folder, monitor.training():
        for index, (examples, labels) in enumerate(dataset, start=1):
            with monitor.step():
                loss = train_step(examples, labels)
            time.sleep(arguments.slow_host / 1000)
            if index % arguments.checkpoint_every == 0 or index == arguments.steps:
                monitor.loss(float(loss))
                print(f"step {index}: loss {float(loss):.4f}")
                with monitor.validation():
                    train_error = tf.reduce_mean(tf.abs(model(examples) - labels))
                with monitor.checkpoint():
                    saver.write(f"{folder}/{index}")
                print(f"step {index}: mean error {float(train_error):.4f}")


if __name__ == "__main__":
    main()
