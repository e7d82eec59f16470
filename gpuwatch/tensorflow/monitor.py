"""Watches the training loops of a process: what each second went into, how long a step takes, what TensorFlow was told to use.

All of it is called by the thread that trains. It never raises into the training, and costs a step of Keras some forty microseconds; what
costs more, as reading counters back from TensorFlow, is done once a second.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from math import inf, isfinite
from threading import get_ident
from typing import Any, Final, TypeVar

import tensorflow as tf

from gpuwatch.tensorflow.calls import Call
from gpuwatch.tensorflow.facts import dataset_facts, gpu_memory, process_facts, visible_gpus
from gpuwatch.tensorflow.input_wait import Fetched, FetchMeter, install, iterator_classes
from gpuwatch.tensorflow.measures import Measures, Phase
from gpuwatch.tensorflow.outputs import Outputs
from gpuwatch.tensorflow.phases import PhaseClock
from gpuwatch.tensorflow.settings import read_settings

_LOG: Final = logging.getLogger("gpuwatch.tensorflow")
_PUBLISH_SECONDS: Final = 1.0
_MEMORY_SECONDS: Final = 15.0
_STEPPING: Final[tuple[Phase, ...]] = ("compute", "compile")
"""The phases in which a compiled function may have waited for its input."""
_Method = TypeVar("_Method", bound=Callable[..., Any])
_Result = TypeVar("_Result")


def _harmless(method: _Method) -> _Method:
    """What goes wrong in measuring is told once, and never reaches the training."""

    @functools.wraps(method)
    def tried(self: Monitor, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001
            self.fail(error)
            return None

    return tried  # type: ignore[return-value] # as its wrapped one, but for the None of a failure


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
        self._due = self._looked_at_memory = -inf
        self._waited = 0.0
        """Seconds that Python waited for input since the last step ended."""
        self._executions: list[tuple[float, int]] = []
        """Seconds and steps of each since the measures were brought up to date, but for those in which a function was traced."""
        self._compiling_steps = 0
        """Of those."""
        self._steps_ever = 0
        self._finite = True
        self._steps_are_batches = False
        self._thread = 0
        """That trains, and writes the measures."""
        self._around = False
        """A loop of one's own runs: it knows its begin and its end, and a ``fit`` in it is a part of it."""
        self._failed = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Monitor:
        """A process is measured once, however often a callback is copied."""
        return self

    def __reduce__(self) -> tuple[Callable[[], Monitor], tuple[()]]:
        """In another process it is the monitor of that one."""
        return process_monitor, ()

    @property
    def _counts(self) -> bool:
        """This is the thread that trains. What is done in others, as saving in the background, takes none of its time.

        Nor is the tracing of a function a step.
        """
        return get_ident() == self._thread and tf.executing_eagerly() and self.measures.runs

    @contextlib.contextmanager
    def training(self, strategy: Any = None) -> Iterator[None]:  # noqa: ANN401
        """Around a loop of one's own, from before its first step to after its last one.

        Batches that this thread takes from a dataset within it are the input, unless a validation takes them.

        Args:
            strategy: The ``tf.distribute.Strategy`` of the loop, if any.
        """
        if self._around or not self.begin(strategy=type(strategy).__name__ if strategy else "none"):
            yield
            return
        self.measures.replicas = getattr(strategy, "num_replicas_in_sync", None)
        self._around = True
        try:
            with self.meter.measuring():
                yield
        finally:
            self._around = False
            self.end()

    @_harmless
    def begin(self, *, call: Call | None = None, steps_are_batches: bool = False, **facts: object) -> bool:
        """A training begins. ``False``: it is not measured, since another thread trains.

        Args:
            call: That the loop is in, where its end may come without a word.
            steps_are_batches: Each step takes one batch, so that batches tell how many steps an execution really made.
            facts: Labels that only the caller knows.
        """
        if self.measures.runs and self._thread != get_ident() and _lives(self._thread):
            _LOG.warning("gpuwatch measures one training at a time in a process: this one goes on without it")
            return False
        install(*iterator_classes())
        if self.measures.training and not self._around:
            # The one before was left by an error that nobody told of: what came after it is no training.
            self._clock.abandon()
            self.publish()
        self._thread, self._steps_are_batches = get_ident(), steps_are_batches
        self.measures.facts = self.measures.facts | process_facts() | {name: _text(value) for name, value in facts.items()}
        self.measures.gpus = visible_gpus()
        self._finite, self._waited = True, 0.0
        # What functions that were traced here did meanwhile, when nobody measured, is no part of it.
        self._fetched = self.meter.read()
        self.measures.training, self.measures.call = True, None if self._around else call
        self._clock.enter("host")
        self._begun()
        return True

    @_harmless
    def end(self) -> None:
        """The training has ended, well or not. Again is nothing."""
        if self._around:
            self.publish()
        elif self.measures.training and get_ident() == self._thread:
            self._clock.enter(None)
            self.measures.training, self.measures.call = False, None
            self.publish()
            self._ended()

    @contextlib.contextmanager
    def step(self, steps: int = 1) -> Iterator[None]:
        """Around one step, or around one execution of several. Nothing outside of a training."""
        if not self._counts:
            yield
            return
        clock, began = self._clock, self._now()
        clock.enter_at(began, "compute")
        computed = clock.seconds["compute"]
        waited, self._waited = self._waited, 0.0
        try:
            yield
        finally:
            ended = self._now()
            clock.enter_at(ended, "host")
        self._waited = 0.0
        self._executions.append((waited + ended - began, steps))
        self._stepped(ended, computed=clock.seconds["compute"] - computed)

    def execute(self, function: Callable[[Any], _Result], argument: Any, *, steps: int) -> _Result:  # noqa: ANN401
        """Call a function that makes steps, and fetches their batches itself.

        It runs once a step of a few milliseconds, after which little of Python is left in the caches of the processor: each line here
        costs about a microsecond. Therefore it does only what cannot wait until the measures are brought up to date.
        """
        if not self.measures.training or get_ident() != self._thread:
            return function(argument)
        clock, began = self._clock, self._now()
        if began >= self._due and not self.measures.runs:
            return function(argument)
        clock.enter_at(began, "compute")
        computed = clock.seconds["compute"]
        fetches = self.meter.open()
        try:
            result = function(argument)
        finally:
            self.meter.close(fetches)
            ended = self._now()
            clock.enter_at(ended, "host")
        self._executions.append((ended - began, steps))
        if ended >= self._due or self.meter.traced or self._watched:
            self._stepped(ended, computed=clock.seconds["compute"] - computed)
        return result

    @_harmless
    def _stepped(self, ended: float, *, computed: float) -> None:
        """Look at the last execution, of whose time so much was counted as computing."""
        first = self.measures.first_step_seconds is None
        traced = self._traced()
        self.measures.traces += traced
        self.measures.last_step_timestamp_seconds = self._unix_time()
        if traced or first:
            self._clock.move(computed, source="compute", target="compile")
            self._compiling_steps += self._executions.pop()[1]
        if first or ended >= self._due:
            self.publish()
        if first:
            times = self.measures.phase_seconds
            self.measures.first_step_seconds = sum(times.values()) - times.get("input", 0.0)

    @contextlib.contextmanager
    def validation(self) -> Iterator[None]:
        """Around a validation within a training. Its batches are no input of the training."""
        with self._clock.within("validation") if self._counts else contextlib.nullcontext(), self.meter.resting():
            yield

    @contextlib.contextmanager
    def checkpoint(self) -> Iterator[None]:
        """Around what saves the model within a training."""
        with self._clock.within("checkpoint") if self._counts else contextlib.nullcontext():
            yield

    def loss(self, value: float) -> None:
        """A loss was seen. Counts when it ceases to be a finite number. In a function that is being traced it is none yet."""
        if type(value) is float and isfinite(value) is self._finite:
            return  # no news, as after nearly every step
        self._look_at_loss(value)

    @_harmless
    def _look_at_loss(self, value: float) -> None:
        if tf.inside_function():
            return
        finite = isfinite(value)
        if self._finite and not finite:
            self.measures.nonfinite_losses += 1
            self.measures.nonfinite_loss_timestamp_seconds = self._unix_time()
        self._finite = finite

    @_harmless
    def watch(self, function: Any) -> None:  # noqa: ANN401
        """Count the traces of a ``tf.function`` that takes no batch from an iterator itself (others are seen without it)."""
        self._watched[function] = function.experimental_get_tracing_count()

    @_harmless
    def describe(self, dataset: object) -> None:
        """Read from a dataset, or an iterator of one, what the input pipeline is made of."""
        if found := dataset_facts(dataset):
            self.measures.dataset = found

    @_harmless
    def publish(self) -> None:
        """Bring the measures up to date."""
        measures = self.measures
        if measures.training and not measures.runs:
            # It was left. What was done since is no part of it, and from what was fetched since nothing before can be told.
            self._clock.abandon()
            measures.steps += self._count_steps()
            return
        fetched = self.meter.read()
        self._clock.settle()
        waited = fetched.graph_seconds - self._fetched.graph_seconds if fetched.is_known else 0.0
        # Only from what nobody has been told yet: a counter never falls.
        for source in _STEPPING:
            given = min(waited, self._clock.seconds[source] - measures.phase_seconds[source])
            self._clock.move(given, source=source, target="input")
            waited -= given
        measures.phase_seconds = dict(self._clock.seconds)
        steps = self._count_steps()
        self._steps_ever += steps
        if self._steps_ever and not (fetched.batches and fetched.is_known):
            # There were steps, and how long they waited is not known, as where no fetch was seen. It is in the time of their computing.
            measures.phase_seconds.pop("input", None)
        batches = fetched.batches - self._fetched.batches
        measures.steps += batches if batches and self._steps_are_batches else steps
        measures.examples += fetched.examples - self._fetched.examples
        self._fetched, self._due = fetched, self._now() + _PUBLISH_SECONDS
        if self._now() - self._looked_at_memory >= _MEMORY_SECONDS:
            self._looked_at_memory = self._now()
            measures.memory_in_use_bytes, measures.memory_peak_bytes = gpu_memory(measures.gpus or 0)

    def _count_steps(self) -> int:
        """Those since the measures were brought up to date."""
        executions, self._executions = self._executions, []
        compiling, self._compiling_steps = self._compiling_steps, 0
        for seconds, steps in executions:
            self.measures.count_step(seconds / max(steps, 1), steps=steps)
        return compiling + sum(steps for _, steps in executions)

    def fail(self, error: Exception) -> None:
        """Say once that something cannot be measured."""
        if not self._failed:
            self._failed = True
            _LOG.warning("gpuwatch cannot measure all of this training, which goes on: %s", error, exc_info=error)

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


def _lives(thread: int) -> bool:
    return any(one.ident == thread for one in threading.enumerate())


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@functools.cache
def process_monitor() -> Monitor:
    """The monitor of this process, served as the environment says. Made when it is first asked for."""
    measures = Measures()
    outputs = Outputs(measures, read_settings())
    return Monitor(measures, begun=outputs.start, ended=outputs.flush)
