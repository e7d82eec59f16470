"""Variables of ours in the program of somebody else."""

from __future__ import annotations

import threading
from typing import Any

import tensorflow as tf


def host_variable(value: Any, dtype: Any = None) -> Any:  # noqa: ANN401
    """A plain variable on the host. A strategy, whose scope belongs to the thread, would mirror it: so it is made in another one."""
    made: list[Any] = []

    def make() -> None:
        with tf.device("CPU:0"):
            made.append(tf.Variable(value, trainable=False, name="gpuwatch", dtype=dtype))

    thread = threading.Thread(target=make, name="gpuwatch-variable")
    thread.start()
    thread.join()
    return made[0]


def operations(structure: Any) -> list[Any]:  # noqa: ANN401
    """The tensors of a batch or a result, of whatever it is made, to wait for."""
    return [part for part in tf.nest.flatten(structure, expand_composites=True) if tf.is_tensor(part)]
