"""GPU curves beside the training's own ones: scalars for TensorBoard, which need not be installed where the training runs.

``tf.summary.scalar`` needs it, and since 2.21 TensorFlow no longer brings it along; the events here are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import tensorflow as tf

from gpuwatch.tensorflow.measures import LOOP_PHASES, Measures
from gpuwatch.tensorflow.node_agent import GpuUse

LOG: Final = logging.getLogger("gpuwatch.tensorflow")
_PREFIX: Final = "gpuwatch/"
_DATA_CLASS_SCALAR: Final = 1
"""Of TensorFlow's summary.proto, which has no public name in Python."""


class Scalars:
    """Writes event files below a log directory. Used by the training's thread only; nothing here fails.

    ``gpuwatch/gpu_utilization_ratio/<gpu>``, ``gpuwatch/gpu_power_watts/<gpu>`` and ``gpuwatch/gpu_memory_used_bytes/<gpu>`` are what the
    agent saw last; ``gpuwatch/input_share`` (of the loop's time) and ``gpuwatch/step_seconds`` (mean) tell of the time since the write
    before.
    """

    def __init__(self, log_directory: str | Path, *, since: Measures | None = None) -> None:
        """Nothing is opened before the first write. ``since``: what was counted before the training whose curves these are."""
        self._log_directory = str(log_directory)
        self._writer: Any = None
        self._failed = False
        self._before = _Marks(since or Measures())

    def write(self, step: int, measures: Measures, gpus: Iterable[GpuUse] = ()) -> None:
        """One point of each curve at ``step``. What is not known has none."""
        if self._failed:
            return
        try:
            now = _Marks(measures)
            points = [*_points(self._before, now), *_gpu_points(gpus)]
            self._before = now
            if points:
                self._put(step, points)
        except Exception as error:  # noqa: BLE001 (whatever it is, the training goes on)
            self._fail(error)

    def flush(self) -> None:
        """At the end of an epoch or a training: what was written can be seen."""
        self._do("flush")

    def close(self) -> None:
        """At the end. The next write opens a new file."""
        self._do("close")
        self._writer = None

    def _put(self, step: int, points: list[tuple[str, float]]) -> None:
        # A callback may run within a strategy's scope or a model's graph; curves are written at once all the same.
        with tf.init_scope():
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(self._log_directory, filename_suffix=".gpuwatch")
            with self._writer.as_default(step=step), tf.summary.record_if(True):
                for name, value in points:
                    tf.summary.write(_PREFIX + name, tf.constant(value, tf.float32), metadata=_metadata())

    def _do(self, act: str) -> None:
        if self._writer is not None and not self._failed:
            try:
                with tf.init_scope():
                    getattr(self._writer, act)()
            except Exception as error:  # noqa: BLE001 (the same)
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        """TensorFlow repeats an error of the file system at each write: nothing more is tried, and nothing more said."""
        self._failed = True
        reason = str(error).partition("\n")[0] or type(error).__name__
        LOG.warning("no GPU curves for TensorBoard: %s cannot be written (%s)", self._log_directory, reason)


def _metadata() -> Any:  # noqa: ANN401 (TensorFlow tells no types)
    """What makes TensorBoard show a value in its pane of scalars."""
    metadata = tf.compat.v1.SummaryMetadata(data_class=_DATA_CLASS_SCALAR)
    metadata.plugin_data.plugin_name = "scalars"
    return metadata


class _Marks:
    """Where the counters stood."""

    __slots__ = ("input_seconds", "loop_seconds", "step_seconds", "steps")

    def __init__(self, measures: Measures) -> None:
        self.loop_seconds = sum(measures.phase_seconds.get(phase, 0.0) for phase in LOOP_PHASES)
        self.input_seconds = measures.phase_seconds.get("input")
        self.steps, self.step_seconds = sum(measures.step_counts), measures.step_seconds


def _points(before: _Marks, now: _Marks) -> Iterator[tuple[str, float]]:
    if (loop := now.loop_seconds - before.loop_seconds) > 0 and now.input_seconds is not None:
        yield "input_share", (now.input_seconds - (before.input_seconds or 0.0)) / loop
    if (steps := now.steps - before.steps) > 0:
        yield "step_seconds", (now.step_seconds - before.step_seconds) / steps


def _gpu_points(gpus: Iterable[GpuUse]) -> Iterator[tuple[str, float]]:
    for one in gpus:
        values = {
            "gpu_utilization_ratio": one.utilization_ratio,
            "gpu_power_watts": one.power_watts,
            "gpu_memory_used_bytes": one.memory_used_bytes,
        }
        yield from ((f"{name}/{one.gpu}", float(value)) for name, value in values.items() if value is not None)
