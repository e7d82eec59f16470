"""Executions of several steps, in which Keras fetches the next batch *while* a step computes.

Then only what the fetch takes longer than the step is waiting. The end of each fetch and the end of each step are written down, apart
from each other: TensorFlow puts operations on the same variable in the order of the program, and a variable of both would make the
fetch wait for the step. They are compared when the next execution begins.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from gpuwatch.tensorflow.variables import host_variable


class Times:
    """Up to ``size`` Unix times of one execution, in their order."""

    def __init__(self, size: int) -> None:
        self._position = host_variable(tf.zeros([], tf.int64))
        self.values = host_variable(tf.zeros([size], tf.float64))
        """0 where nothing was written down."""
        self.traced = False
        """Something writes here."""

    def write(self) -> None:
        """Now, as an operation."""
        self.traced = True
        # Never beyond the end, which would fail the step: what comes too often is only told wrong.
        place = tf.reshape(tf.minimum(self._position, self.values.shape[0] - 1), [1, 1])
        self.values.scatter_nd_update(place, tf.reshape(tf.timestamp(), [1]))
        self._position.assign_add(1)

    def clear(self) -> None:
        """Before the next execution, as an operation."""
        self._position.assign(0)
        self.values.assign(tf.zeros_like(self.values))


class Overlap:
    """Of one train function that makes ``steps`` steps in each execution."""

    def __init__(self, steps: int) -> None:
        self.fetched = Times(steps)
        self.computed = Times(steps)
        self.traced = False
        """An execution was."""

    @property
    def is_known(self) -> bool:
        """Keras before 3.7 does not show where its steps end: what an execution of several waits for cannot be told."""
        return self.computed.traced or not self.traced

    def late_seconds(self) -> Any:  # noqa: ANN401
        """By how much fetches ended after the steps beside them, in the last execution: a tensor."""
        both = tf.logical_and(self.fetched.values > 0, self.computed.values > 0)
        return tf.reduce_sum(tf.where(both, tf.maximum(self.fetched.values - self.computed.values, 0), tf.zeros_like(self.fetched.values)))

    def clear(self) -> None:
        """An execution begins."""
        self.fetched.clear()
        self.computed.clear()


def hook_results(hook: Callable[[Any], None]) -> None:
    """Have ``hook`` called with what each step of an execution gives, while it is traced: Keras puts it into an optional. Once only."""
    original = tf.experimental.Optional.from_value
    if getattr(original, "gpuwatch_hooked", False):
        return

    @functools.wraps(original)
    def from_value(value: Any) -> Any:  # noqa: ANN401
        hook(value)
        return original(value)

    from_value.gpuwatch_hooked = True  # type: ignore[attr-defined]
    tf.experimental.Optional.from_value = staticmethod(from_value)
