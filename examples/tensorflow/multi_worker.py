"""Data-parallel training on several workers, each measured by gpuwatch.

TF_CONFIG tells a worker who it is: a TFJob sets it (tfjob.yaml), and so does local_workers.py on one machine. Keras 3 cannot fit() under
MultiWorkerMirroredStrategy, so this is a loop of its own.
"""

from __future__ import annotations

import argparse
import time

import keras
import numpy as np
import tensorflow as tf

from gpuwatch.tensorflow import process_monitor

FEATURES = 32


def make_dataset(arguments: argparse.Namespace, *, slow: bool) -> tf.data.Dataset:
    """Endless batches, each of ``slow_input`` milliseconds where this worker is the slow one."""
    numbers = np.random.default_rng(seed=8)

    def make_batch(_: np.int64) -> np.ndarray:
        time.sleep(arguments.slow_input / 1000 if slow else 0)
        return numbers.random((arguments.batch, FEATURES), np.float32)

    def batch_of(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        examples = tf.ensure_shape(tf.numpy_function(make_batch, [index], tf.float32), (arguments.batch, FEATURES))
        return examples, tf.reduce_mean(examples, 1, keepdims=True)

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf.data.Dataset.range(2).repeat().map(batch_of).prefetch(1).with_options(options)


def main() -> None:
    """Read the flags and train."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--steps", type=int, default=200)
    flags.add_argument("--batch", type=int, default=64, help="examples in a batch, of all workers together")
    flags.add_argument("--slow-worker", type=int, default=-1, metavar="INDEX", help="whose input is slow")
    flags.add_argument("--slow-input", type=float, default=0, metavar="MS", help="what a batch takes there")
    arguments = flags.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    index = strategy.cluster_resolver.task_id or 0
    dataset = make_dataset(arguments, slow=index == arguments.slow_worker)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.05)
        optimizer.build(model.trainable_variables)

    @tf.function
    def train_step(batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        def train_replica(examples: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(examples, training=True) - labels)) / strategy.num_replicas_in_sync
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True))
            return loss

        return strategy.reduce("sum", strategy.run(train_replica, args=batch), axis=None)

    monitor = process_monitor()
    monitor.watch(train_step)
    monitor.describe(dataset)
    batches = iter(strategy.experimental_distribute_dataset(dataset))
    with monitor.training(strategy=strategy):
        for step in range(arguments.steps):
            batch = next(batches)
            with monitor.step():
                loss = train_step(batch)
            if step % 50 == 0:
                monitor.loss(float(loss))
    print(f"worker {index}: {strategy.num_replicas_in_sync} replicas, loss {float(loss):.4f} after {arguments.steps} steps")


if __name__ == "__main__":
    main()
