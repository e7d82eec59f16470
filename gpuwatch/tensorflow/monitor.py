"""Watches the training loops of a process: what each second went into, how long a step takes, what TensorFlow was told to use.

All of it is called by the thread that trains. It never raises into the training, and costs it a few microseconds a step; what costs more,
as reading counters back from TensorFlow, is done once a second.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from gpuwatch.tensorflow.facts import dataset_facts, gpu_memory, process_facts, visible_gpus
from gpuwatch.tensorflow.input_wait import Fetched, FetchMeter, install, iterator_classes
from gpuwatch.tensorflow.measures import Measures, Phase
from gpuwatch.tensorflow.outputs import Outputs
from gpuwatch.tensorflow.phases import PhaseClock
from gpuwatch.tensorflow.settings import read_settings

_PUBLISH_SECONDS: Final = 1.0
_MEMORY_SECONDS: Final = 15.0
_STEPPING: Final[tuple[Phase, ...]] = ("compute", "compile")
"""The phases in which a compiled function may have waited for its input."""


class Monitor:
    """Measures a process. Make one with :func:`process_monitor`, so that a process has one set of counters.

    Args:
        measures: Where it writes.
        now: Seconds that never go back.
        unix_time: For the time stamps that are exported.
        begun: Called when a training begins, so that its measures are served from then on.
        ended: Called when a training has ended.
    """

    def __init__(
        self,
        measures: Measures | None = None,
        *,
        now: Callable[[], float] = time.perf_counter,
        unix_time: Callable[[], float] = time.time,
        begun: Callable[[], None] = lambda: None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self.measures = measures or Measures()
        self.meter = FetchMeter(self._waiting)
        self._clock = PhaseClock(now)
        self._now, self._unix_time, self._begun, self._ended = now, unix_time, begun, ended
        self._watched: dict[Any, int] = {}
        self._fetched = Fetched()
        self._published = self._looked_at_memory = -math.inf
        self._waited = 0.0
        """Seconds that Python waited for input since the last step ended."""
        self._steps = 0
        """Since the measures were brought up to date."""
        self._steps_ever = 0
        self._finite = True
        self._steps_are_batches = False
        install(*iterator_classes())

    @contextlib.contextmanager
    def training(self, strategy: Any = None) -> Iterator[None]:  # noqa: ANN401
        """Around a loop of one's own, from before its first step to after its last one.

        Batches that this thread takes from a dataset within it are the input, unless a validation takes them.

        Args:
            strategy: The ``tf.distribute.Strategy`` of the loop, if any.
        """
        self.measures.replicas = getattr(strategy, "num_replicas_in_sync", None)
        self.begin(strategy=type(strategy).__name__ if strategy else "none")
        try:
            with self.meter.measuring():
                yield
        finally:
            self.end()

    def begin(self, *, steps_are_batches: bool = False, **facts: object) -> None:
        """A training begins.

        Args:
            steps_are_batches: Each step takes one batch, so that batches tell how many steps an execution really made.
            facts: Labels that only the caller knows.
        """
        if self.measures.training:
            # The one before was left by an error that nobody told of: what came after it is no training.
            self._clock.abandon()
        self._steps_are_batches = steps_are_batches
        self.measures.facts = self.measures.facts | process_facts() | {name: _text(value) for name, value in facts.items()}
        self.measures.gpus = visible_gpus()
        self.measures.training = True
        self._finite, self._waited = True, 0.0
        self._clock.enter("host")
        self._begun()

    def end(self) -> None:
        """The training has ended, well or not. Again is nothing."""
        if self.measures.training:
            self._clock.enter(None)
            self.measures.training = False
            self.publish()
            self._ended()

    @contextlib.contextmanager
    def step(self, steps: int = 1) -> Iterator[None]:
        """Around one step, or around one execution of several. Nothing outside of a training."""
        if not self.measures.training:
            yield
            return
        self._clock.enter("compute")
        before, began = self._clock.seconds["compute"], self._now()
        waited, self._waited = self._waited, 0.0
        try:
            yield
        finally:
            self._clock.enter("host")
        self._stepped(waited + self._now() - began, computed=self._clock.seconds["compute"] - before, steps=steps)
        self._waited = 0.0

    def _stepped(self, seconds: float, *, computed: float, steps: int) -> None:
        """Args: the time of the execution with its input, and what of it was counted as computing."""
        first = self.measures.first_step_seconds is None
        self._steps += steps
        self.measures.last_step_timestamp_seconds = self._unix_time()
        traced = self._traced()
        self.measures.traces += traced
        if traced or first:
            self._clock.move(computed, source="compute", target="compile")
        else:
            self.measures.count_step(seconds / steps, steps=steps)
        if first or self._now() - self._published >= _PUBLISH_SECONDS:
            self.publish()
        if first:
            times = self.measures.phase_seconds
            self.measures.first_step_seconds = sum(times.values()) - times.get("input", 0.0)

    @contextlib.contextmanager
    def validation(self) -> Iterator[None]:
        """Around a validation within a training. Its batches are no input of the training."""
        with self._clock.within("validation"), self.meter.resting():
            yield

    @contextlib.contextmanager
    def checkpoint(self) -> Iterator[None]:
        """Around what saves the model within a training."""
        with self._clock.within("checkpoint"):
            yield

    def loss(self, value: float) -> None:
        """A loss was seen. Counts when it ceases to be a finite number."""
        finite = math.isfinite(value)
        if self._finite and not finite:
            self.measures.nonfinite_losses += 1
            self.measures.nonfinite_loss_timestamp_seconds = self._unix_time()
        self._finite = finite

    def watch(self, function: Any) -> None:  # noqa: ANN401
        """Count the traces of a ``tf.function`` that takes no batch from an iterator itself (others are seen without it)."""
        self._watched[function] = function.experimental_get_tracing_count()

    def describe(self, dataset: object) -> None:
        """Read from a dataset, or an iterator of one, what the input pipeline is made of."""
        if found := dataset_facts(dataset):
            self.measures.dataset = found

    def publish(self) -> None:
        """Bring the measures up to date."""
        measures, fetched = self.measures, self.meter.read()
        self._clock.settle()
        waited = fetched.graph_seconds - self._fetched.graph_seconds
        # Only from what nobody has been told yet: a counter never falls.
        for source in _STEPPING:
            given = min(waited, self._clock.seconds[source] - measures.phase_seconds[source])
            self._clock.move(given, source=source, target="input")
            waited -= given
        measures.phase_seconds = dict(self._clock.seconds)
        self._steps_ever += self._steps
        if self._steps_ever and not fetched.batches:
            # No fetch was seen, though there were steps: their wait is not known, and is in the time of their computing.
            del measures.phase_seconds["input"]
        batches = fetched.batches - self._fetched.batches
        measures.steps += batches if batches and self._steps_are_batches else self._steps
        measures.examples += fetched.examples - self._fetched.examples
        self._fetched, self._steps, self._published = fetched, 0, self._now()
        if self._now() - self._looked_at_memory >= _MEMORY_SECONDS:
            self._looked_at_memory = self._now()
            measures.memory_in_use_bytes, measures.memory_peak_bytes = gpu_memory(measures.gpus or 0)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        began = self._now()
        try:
            with self._clock.within("input"):
                yield
        finally:
            if self._clock.running != "compute":
                self._waited += self._now() - began

    def _traced(self) -> bool:
        """A function was traced in the step that ended."""
        traced, self.meter.traced = self.meter.traced, False
        for function, before in self._watched.items():
            if (count := function.experimental_get_tracing_count()) != before:
                self._watched[function], traced = count, True
        return traced


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@functools.cache
def process_monitor() -> Monitor:
    """The monitor of this process, served as the environment says. Made when it is first asked for."""
    measures = Measures()
    outputs = Outputs(measures, read_settings())
    return Monitor(measures, begun=outputs.start, ended=outputs.flush)
