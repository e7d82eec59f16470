"""What is known of a training process. One thread, that of the training, writes; any thread may read at any time."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final, Literal

from gpuwatch.tensorflow.calls import Call

Phase = Literal["input", "compute", "compile", "validation", "checkpoint", "host"]
PHASES: Final[tuple[Phase, ...]] = ("input", "compute", "compile", "validation", "checkpoint", "host")
"""Every second within a training loop is in exactly one of them.

``input``: the step stands still until the next batch is there. ``compute``: the rest of the step. ``compile``: steps in which a function
was traced, with what XLA compiles. ``validation`` and ``checkpoint``: as they say. ``host``: between the steps: callbacks, logging, Python.
"""
LOOP_PHASES: Final[tuple[Phase, ...]] = ("input", "compute", "host")
"""Those of which a loop at work consists; a validation or a checkpoint between them is no part of its pace."""
STEP_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds in seconds."""


@dataclass(slots=True)
class Measures:
    """Counters since the process began to train, and its facts. They never fall."""

    training: bool = False
    """A training loop has begun, and nobody told of its end."""
    call: Call | None = None
    """That this loop is in, if it is of Keras."""
    steps: int = 0
    examples: int = 0
    """Of this process; 0 with no steps, or where the size of a batch cannot be read."""
    phase_seconds: dict[Phase, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    """Without ``input`` where steps are made and no fetch is seen: then their wait is not known, and is in ``compute``."""
    step_counts: list[int] = field(default_factory=lambda: [0] * (len(STEP_BUCKETS) + 1))
    """Steps by duration: one for each bucket, not summed up, and one beyond. Without those that compiled."""
    step_seconds: float = 0.0
    """Their sum."""
    first_step_seconds: float | None = None
    """From the begin of the training to the end of its first step, without the wait for input: tracing and compiling."""
    last_step_timestamp_seconds: float | None = None
    """Unix time, at most a second before it."""
    traces: int = 0
    """Calls of a watched function in which it was traced."""
    nonfinite_losses: int = 0
    """Times at which the loss became NaN or infinite."""
    nonfinite_loss_timestamp_seconds: float | None = None
    """Unix time of the last of them."""
    memory_in_use_bytes: dict[str, int] = field(default_factory=dict)
    """By TensorFlow's name of the device, as ``GPU:0``: what its allocator has given out; what it reserved is seen by the agent only."""
    memory_peak_bytes: dict[str, int] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    """Labels of ``gpuwatch_tensorflow_info``; those that cannot be read are empty."""
    dataset: dict[str, str] = field(default_factory=dict)
    """Labels of ``gpuwatch_tensorflow_dataset_info``; empty while no dataset could be read."""
    replicas: int | None = None
    """In sync, over all processes."""
    gpus: int | None = None
    """Visible to this process."""

    @property
    def runs(self) -> bool:
        """The training loop runs now. It was not left by an error."""
        return self.training and (self.call is None or self.call.runs())

    def count_step(self, seconds: float, *, steps: int = 1) -> None:
        """Steps of one execution, ``seconds`` each."""
        self.step_counts[bisect_left(STEP_BUCKETS, seconds)] += steps
        self.step_seconds += seconds * steps
