"""The metrics that a training process exports, as plain data: no TensorFlow and no other package is needed to read them.

The process names itself nowhere: ``namespace``, ``pod`` and ``container`` are given by whoever scrapes it (a PodMonitor does). A text file
carries ``namespace`` and ``pod`` itself, since nobody else can know them.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple


class Series(NamedTuple):
    """One metric family."""

    name: str
    """With the prefix and, for a counter, ``_total``."""
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    source: str


TARGET_LABELS: Final = ("namespace", "pod", "container")
FACTS: Final = (
    *("tensorflow", "keras", "strategy", "precision_policy", "jit_compile", "tf32", "memory_growth", "run_eagerly"),
    *("steps_per_execution", "task_type", "task_index"),
)
"""Yes and no are ``true`` and ``false``. ``task_*``: from TF_CONFIG."""
DATASET_FACTS: Final = ("source", "map", "interleave", "prefetch", "cache", "shuffle")
"""``source``: generator, files, memory, service or other. ``map``, ``interleave``: parallel, sequential or none. Others: true or false."""
_PREFIX: Final = "gpuwatch_tensorflow_"

# fmt: off
SERIES: Final = (
    Series(_PREFIX + "info", "gauge", FACTS, "1, with the facts of the process. A label is empty where it cannot be known.", "TensorFlow"),
    Series(_PREFIX + "dataset_info", "gauge", DATASET_FACTS,
           "1, with what the input pipeline is made of. Absent where the dataset cannot be read.", "tf.data"),
    Series(_PREFIX + "training", "gauge", (), "1 while a training loop runs, else 0.", "gpuwatch.tensorflow"),
    Series(_PREFIX + "replicas", "gauge", (), "Replicas in sync, over all processes of the job.", "tf.distribute.Strategy"),
    Series(_PREFIX + "gpus", "gauge", (), "GPUs that TensorFlow may use in this process.", "tf.config"),
    Series(_PREFIX + "steps_total", "counter", (), "Training steps, also those of one execution of many.", "gpuwatch.tensorflow"),
    Series(_PREFIX + "examples_total", "counter", (), "Examples of those steps in this process.", "gpuwatch.tensorflow"),
    Series(_PREFIX + "step_duration_seconds", "histogram", (),
           "Duration of a step with its wait for input; without steps that compiled.", "gpuwatch.tensorflow"),
    Series(_PREFIX + "phase_seconds_total", "counter", ("phase",),
           "Seconds within training loops, each in one phase: input, compute, compile, validation, checkpoint or host.",
           "gpuwatch.tensorflow"),
    Series(_PREFIX + "first_step_seconds", "gauge", (),
           "Time to the end of the first step without its wait for input: tracing and compiling.", "gpuwatch.tensorflow"),
    Series(_PREFIX + "last_step_timestamp_seconds", "gauge", (),
           "Unix time at which the last step ended, up to a second before.", "gpuwatch.tensorflow"),
    Series(_PREFIX + "traces_total", "counter", (), "Steps in which a function was traced; more than a few mean changing shapes.",
           "tf.function"),
    Series(_PREFIX + "nonfinite_losses_total", "counter", (), "Times at which the loss became NaN or infinite.", "gpuwatch.tensorflow"),
    Series(_PREFIX + "nonfinite_loss_timestamp_seconds", "gauge", (), "Unix time of the last of them.", "gpuwatch.tensorflow"),
    Series(_PREFIX + "memory_in_use_bytes", "gauge", ("device",),
           "Memory that TensorFlow has given out; it reserves nearly all of the GPU, which says nothing.",
           "tf.config.experimental.get_memory_info"),
    Series(_PREFIX + "memory_peak_bytes", "gauge", ("device",), "The most of it since the process began.",
           "tf.config.experimental.get_memory_info"),
)
# fmt: on
