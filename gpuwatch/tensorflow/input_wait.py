"""How long a training waits for its next batch.

Keras, and many a loop, fetches the batch *inside* the compiled function, where no clock of Python sees it. Therefore the fetch itself is
measured: while somebody measures, the methods by which iterators of tf.data and tf.distribute give a batch take the time before and
after. In a function that is being traced these are two operations around the fetch; in Python they are two looks at the clock. A step
that does not fetch is not touched, and threads that nobody measures fetch as ever.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import Any, Final, NamedTuple

import tensorflow as tf

from gpuwatch.tensorflow.overlap import Overlap, hook_results
from gpuwatch.tensorflow.variables import host_variable, operations

_METHODS: Final = ("get_next", "get_next_as_optional", "__next__")
_PART_METHODS: Final = ("get_next_as_list", "get_next_as_optional_list")
"""Of the part of a distributed iterator that fetches for the devices of one worker."""
_METER: Final[ContextVar[FetchMeter | None]] = ContextVar("gpuwatch_fetch_meter", default=None)
"""Who measures in this thread."""
_INSTALLED: Final[set[type]] = set()
"""Classes whose methods were replaced; that stays so, and does nothing while nobody measures."""


class Fetched(NamedTuple):
    """Totals since the meter was made."""

    graph_seconds: float = 0.0
    """In which compiled functions stood still. What Python waits for it is told as it happens."""
    batches: int = 0
    examples: int = 0
    is_known: bool = True
    """How long they took. Otherwise the seconds say nothing."""


class FetchMeter:
    """Adds up fetches. One thread fetches and reads; it may do so in traced functions, which keep their meter for ever.

    Args:
        in_python: Makes a context around each fetch that Python waits for.
    """

    def __init__(self, in_python: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext) -> None:
        self.traced = False
        """A function with a fetch in it was traced since somebody looked."""
        self._in_python = in_python
        self._busy = False
        self._of_parts = False
        """A distributed iterator fetches from its parts, and puts what they give into an optional, as Keras does with a step."""
        self._batches, self._examples = 0, 0
        self._overlap: Overlap | None = None
        self._before = 0.0
        """What executions waited that nobody will look at again."""
        self._in_execution = False
        self._totals: Any = None
        """Of traced functions: seconds, batches, examples. Made when needed: TensorFlow takes no more settings after its first tensor."""

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Fetches of this thread count."""
        before = _METER.get()
        _METER.set(self)
        self._in_execution = False
        try:
            yield
        finally:
            # Not by the token: a loop within a generator may end in another thread than it began in.
            _METER.set(before)

    def open(self) -> Token[FetchMeter | None]:
        """As ``measuring``, for who calls ``close`` in the same function: contexts of Python cost a step too much."""
        self._in_execution = False
        return _METER.set(self)

    @staticmethod
    def close(token: Token[FetchMeter | None]) -> None:
        """The end of it."""
        _METER.reset(token)

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """They do not, for a while: a validation has its own."""
        before = _METER.get()
        _METER.set(None)
        try:
            yield
        finally:
            _METER.set(before)

    def overlapping(self, steps: int) -> None:
        """Expect, in what is traced from now on, executions of so many steps that fetch and compute at the same time."""
        if self._overlap is not None:
            self._before += float(self._overlap.late_seconds())
        self._overlap = Overlap(steps) if steps > 1 else None

    def read(self) -> Fetched:
        """The totals. Costs a tenth of a millisecond; steps that have returned are in it."""
        with tf.init_scope():
            seconds, batches, examples = (0.0, 0.0, 0.0) if self._totals is None else self._totals.numpy()
            seconds += self._before + (float(self._overlap.late_seconds()) if self._overlap else 0.0)
        known = self._overlap is None or self._overlap.is_known
        return Fetched(float(seconds), round(float(batches)) + self._batches, round(float(examples)) + self._examples, known)

    def fetch(self, original: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Fetch and count. An iterator of iterators counts once."""
        if self._busy:
            return original()
        self._busy = True
        try:
            return self._fetch_in_python(original) if tf.executing_eagerly() else self._fetch_in_graph(original)
        finally:
            self._busy = False

    def fetch_parts(self, original: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Fetch from an iterator of several parts, which count."""
        outer, self._of_parts = self._of_parts, True
        try:
            return original()
        finally:
            self._of_parts = outer

    def _fetch_in_python(self, original: Callable[[], Any]) -> Any:  # noqa: ANN401
        with self._in_python():
            batch = original()
        size = 0 if (found := _batch_size(batch)) is None else int(found)
        self._batches += size >= 0
        self._examples += max(size, 0)
        return batch

    def _fetch_in_graph(self, original: Callable[[], Any]) -> Any:  # noqa: ANN401
        self.traced = True
        beside_a_step = self._overlap is not None and self._in_execution
        owed = self._owed()
        before = tf.timestamp()
        with tf.control_dependencies([before]):
            batch = original()
        with tf.control_dependencies(operations(batch)):
            if beside_a_step and self._overlap:
                self._overlap.fetched.write()
                waited = tf.zeros([], tf.float64)
            else:
                waited = owed + tf.timestamp() - before
        size = tf.cast(0 if (found := _batch_size(batch)) is None else found, tf.float64)
        # A size below zero: the optional was empty, and the data is at its end.
        counted = tf.stack([waited, tf.where(size < 0, tf.zeros_like(size), tf.ones_like(size)), tf.maximum(size, 0)])
        if self._totals is None:
            self._totals = host_variable([0.0, 0.0, 0.0], tf.float64)
        self._totals.assign_add(counted)
        return batch

    def _owed(self) -> Any:  # noqa: ANN401
        """What the execution before this one waited beside its steps, when another begins."""
        if self._overlap is None or self._in_execution:
            return tf.zeros([], tf.float64)
        self._in_execution = self._overlap.traced = True
        owed = self._overlap.late_seconds()
        with tf.control_dependencies([owed]):
            self._overlap.clear()
        return owed

    def step_computed(self, result: Any) -> None:  # noqa: ANN401
        """A step of an execution is being traced: its end is written down."""
        if self._overlap is not None and self._in_execution and not self._of_parts:
            with tf.control_dependencies(operations(result)):
                self._overlap.computed.write()


def install(*classes: type, methods: tuple[str, ...] = _METHODS) -> None:
    """Make iterators of these classes measurable. Again is nothing.

    Raises:
        TypeError: one is built into Python, as generators are.
    """
    hook_results(_step_computed)
    for one in classes:
        if one not in _INSTALLED:
            for name, method in [(name, getattr(one, name)) for name in methods if hasattr(one, name)]:
                setattr(one, name, _measurable(method))
            _INSTALLED.add(one)


def iterator_classes() -> tuple[type, ...]:
    """Those that a loop meets: of a dataset, and of a distributed one, whose public name is that of an interface."""
    found = [type(iter(tf.data.Dataset.range(1)))]
    waiting: list[type] = [tf.distribute.DistributedIterator]
    while waiting:
        found.append(one := waiting.pop())
        waiting.extend(one.__subclasses__())
    return tuple(found)


def _measurable(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def fetch(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        meter = _METER.get()
        if meter is None:
            return method(self, *args, **kwargs)
        if parts := getattr(self, "_iterators", None):
            # Its own fetch also agrees with the other workers whether anybody has a batch left: their waiting is not this one's.
            install(type(parts[0]), methods=_PART_METHODS)
            return meter.fetch_parts(lambda: method(self, *args, **kwargs))
        return meter.fetch(lambda: method(self, *args, **kwargs))

    # AutoGraph would rewrite it, as it does with whatever is not TensorFlow's own.
    untouched: Callable[..., Any] = tf.autograph.experimental.do_not_convert(fetch)
    return untouched


def _step_computed(result: Any) -> None:  # noqa: ANN401
    if (meter := _METER.get()) is not None and not tf.executing_eagerly():
        meter.step_computed(result)


def _batch_size(batch: Any) -> Any:  # noqa: ANN401
    """Examples in a batch of this process; -1 for an empty optional; ``None`` where it cannot be told."""
    if isinstance(batch, list):
        return _size_of_all([_batch_size(one) for one in batch])
    if isinstance(batch, tf.experimental.Optional):
        return tf.cond(batch.has_value(), lambda: _as_size(_batch_size(batch.get_value())), lambda: tf.constant(-1, tf.int64))
    try:
        first = tf.nest.flatten(batch)[0]
        if isinstance(first, tf.RaggedTensor):
            return first.nrows()
        if isinstance(first, tf.SparseTensor):
            return first.dense_shape[0]
        if first.shape.rank is None:
            # It may turn out to be a single number, which has no first dimension.
            return tf.concat([tf.shape(first, tf.int64), [0]], axis=0)[0]
        return first.shape[0] if first.shape[0] is not None else tf.shape(first, tf.int64)[0]
    except (AttributeError, IndexError, TypeError, ValueError):
        return None


def _size_of_all(sizes: list[Any]) -> Any:  # noqa: ANN401
    """Of the batches of several replicas: some may be empty at the end of the data."""
    if not sizes or any(size is None for size in sizes):
        return None
    each = tf.stack([_as_size(size) for size in sizes])
    return tf.where(tf.reduce_all(each < 0), tf.constant(-1, tf.int64), tf.reduce_sum(tf.maximum(each, 0)))


def _as_size(size: Any) -> Any:  # noqa: ANN401
    return tf.cast(0 if size is None else size, tf.int64)
