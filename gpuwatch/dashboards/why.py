"""The part of the Job board that says why: the cause, and what the processes of the job tell of themselves."""

from __future__ import annotations

from typing import Final

from gpuwatch.dashboards.board import Column, Mark, Panel, Query, Row, Step
from gpuwatch.dashboards.query import ANY_IS_ORANGE, CHOSEN_JOB, CLUSTER, INTERVAL, RANGE
from gpuwatch.rules.cause import CAUSE, CAUSE_NAMES, JOB_PHASE, LOOP, PHASE, POD
from gpuwatch.rules.thresholds import DEFAULTS
from gpuwatch.tensorflow.series import DATASET_FACTS, FACTS

_INFO: Final = f"gpuwatch_job_gpu_info{{{CHOSEN_JOB}}}"
_SPACE: Final = f'{CLUSTER}, namespace="$namespace"'
_ON_GPU: Final = f'{_SPACE}, device=~"GPU.*"'
_GROWN: Final = f"increase({{}}[{RANGE}])"
_SILENT: Final = "its processes tell nothing: see docs/tensorflow.md"
_WAITS: Final = float(DEFAULTS["input_bound_ratio"])
_WORDS: Final = {
    "throttled": "held down by heat or supply",
    "not_started": "traces and compiles",
    "memory_held_idle": "holds memory, does nothing",
    "imbalanced": "one worker is not like the others",
    "input_bound": "waits for its input",
    "host_bound": "spends its time between the steps",
    "communication_bound": "mostly exchanges data",
    "small_work": "too little work in a step",
    "unknown": "wasteful, reason not known",
}
_NONE: Final = "none"
_CAUSES: Final = (
    Mark(value="0", text=_NONE, colour="green"),
    *(Mark(value=str(number), text=_WORDS[name], colour="orange") for number, name in enumerate(CAUSE_NAMES, start=1)),
)
_CAUSE: Final = " or ".join(
    [
        *(f'max({CAUSE}{{{CHOSEN_JOB}, cause="{name}"}}) * {number}' for number, name in enumerate(CAUSE_NAMES, start=1)),
        f"max({_INFO}) * 0",
    ],
)
"""As a number, so that it can be a word; it has one at a time."""


def _said(metric: str, *, over: str = "{}", where: str = _SPACE) -> str:
    """A series of the processes of the job. ``over``: a function of it."""
    vector = over.format(f"gpuwatch_tensorflow_{metric}{{{where}}}")
    return f"{vector} and on ({POD}) {_INFO}"


def _input_share(by: str) -> str:
    phases = f"{PHASE}{{{CHOSEN_JOB}"
    return f'sum{by} ({phases}, phase="input"}}) / sum{by} ({phases}, {LOOP}}})'


def _step_seconds(by: str) -> str:
    parts = (_said(f"step_duration_seconds_{part}", over=f"rate({{}}[{INTERVAL}])") for part in ("sum", "count"))
    return " / ".join(f"sum{by} ({part})" for part in parts)


def _facts(metric: str, names: tuple[str, ...]) -> Query:
    return Query(expression=f"max by (pod, {', '.join(names)}) ({_said(metric)})")


def _columns(names: tuple[str, ...]) -> tuple[Column, ...]:
    return (Column(title="Pod", label="pod"), *(Column(title=_title(name), label=name) for name in names))


def _title(name: str) -> str:
    return {"tensorflow": "TensorFlow", "jit_compile": "XLA", "tf32": "TF32"}.get(name, name.replace("_", " ").capitalize())


# Panels are read as blocks: the formatter would put each word on a line of its own.
# fmt: off
WHY: Final = Row(
    title="Why?",
    panels=(
        Panel(
            kind="stat", title="Cause", width=8, height=4, marks=_CAUSES, empty="holds no GPU now, or the rules are not loaded",
            description="Why the job wastes its GPUs, from what its processes and its GPUs say of the last ten minutes. One at a time: the "
            "first that fits. None: it uses them well, it is younger than that, it may idle, or its use is not known. "
            "docs/tensorflow.md says what to change for each.",
            queries=(Query(expression=_CAUSE),),
        ),
        Panel(
            kind="stat", title="Waits for input", width=4, height=4, unit="percentunit", decimals=0, maximum=1, empty=_SILENT,
            steps=(Step(value=None, colour="text"), Step(value=_WAITS, colour="orange")),
            description="Share of the time in and between the steps in which the host stood and waited for a batch, over all workers. "
            "The GPU may still be at work meanwhile: look at its use before you judge.",
            queries=(Query(expression=_input_share("")),),
        ),
        Panel(
            kind="stat", title="Step", width=4, height=4, unit="s", empty=_SILENT,
            description="Mean duration of a step with its wait for input, without steps that compiled.",
            queries=(Query(expression=_step_seconds("")),),
        ),
        Panel(
            kind="stat", title="Traces", width=4, height=4, decimals=0, empty=_SILENT,
            description="Steps in which a function was traced anew, within the time range, over all workers. A few at the start are "
            "normal; more mean that the shapes of the batches change.",
            queries=(Query(expression=f"sum({_said('traces_total', over=_GROWN)})"),),
        ),
        Panel(
            kind="stat", title="Losses not finite", width=4, height=4, decimals=0, steps=ANY_IS_ORANGE, empty=_SILENT,
            description="Times at which the loss became NaN or infinite since the processes began. Nearly always the program is the "
            "reason; on a GPU that loses data, or has no ECC, it may be the hardware.",
            queries=(Query(expression=f"sum({_said('nonfinite_losses_total')})"),),
        ),
        Panel(
            kind="timeline", title="Cause over time", width=24, height=3, marks=_CAUSES, maximum=float(len(CAUSE_NAMES)),
            empty="holds no GPU, or the rules are not loaded",
            description="The cause at each time. It is known ten minutes after the job came, or after its reason began.",
            queries=(Query(expression=_CAUSE, legend="cause"),),
        ),
        Panel(
            kind="graph", title="Where the time goes", width=12, height=9, unit="percentunit", maximum=1, stacked=True, empty=_SILENT,
            description="Share of each phase in the training loops, the mean of all workers. input: waits for a batch; compute: the rest "
            "of the step, also what it waits for in a collective operation; compile: steps that traced; host: between the steps. "
            "They are seconds of the host: its GPU works beside it.",
            queries=(Query(expression=f"{JOB_PHASE}{{{CHOSEN_JOB}}}", legend="{{phase}}"),),
        ),
        Panel(
            kind="graph", title="Input share of each worker", width=12, height=9, unit="percentunit", maximum=1, empty=_SILENT,
            steps=(Step(value=None, colour="text"), Step(value=_WAITS, colour="orange")),
            description="Share of its time for which each worker waits for its input. All high: the pipeline is slow for all. One high: it "
            "is late, and the others wait for it within their compute phase.",
            queries=(Query(expression=_input_share(" by (pod)"), legend="{{pod}}"),),
        ),
        Panel(
            kind="graph", title="Where the time of each worker goes", width=12, height=9, stacked=True, empty=_SILENT,
            description="The same phases by worker, one above the other: each worker is 1 high. Choose a worker in the legend to see it "
            "alone. Equal workers make equal bands.",
            queries=(Query(expression=f"sum by (pod, phase) ({PHASE}{{{CHOSEN_JOB}}})", legend="{{pod}}: {{phase}}"),),
        ),
        Panel(
            kind="graph", title="Duration of a step", width=12, height=9, unit="s", empty=_SILENT,
            description="Mean duration of a step of each worker with its wait for input. In synchronous training all are the same, whoever "
            "is late: it says how fast, never who.",
            queries=(Query(expression=_step_seconds(" by (pod)"), legend="{{pod}}"),),
        ),
        Panel(
            kind="graph", title="Memory that TensorFlow uses", width=24, height=8, unit="bytes", empty=_SILENT,
            description="What TensorFlow has given out, the most of it so far, and what the job holds of its GPUs. Between the last two is "
            "room for a larger batch; without memory growth TensorFlow takes nearly all at its start.",
            queries=(
                Query(expression=f"sum by (pod) ({_said('memory_in_use_bytes', where=_ON_GPU)})", legend="{{pod}} in use"),
                Query(expression=f"sum by (pod) ({_said('memory_peak_bytes', where=_ON_GPU)})", legend="{{pod}} peak"),
                Query(
                    expression=f"sum by (pod) (max by (node, uuid, mig_uuid, pod) (gpuwatch_job_gpu_memory_used_bytes{{{CHOSEN_JOB}}}))",
                    legend="{{pod}} holds",
                ),
            ),
        ),
        Panel(
            kind="table", title="How it is set up", width=24, height=6, empty=_SILENT,
            description="Facts of each process. Empty: not known. Run eagerly is for debugging; TF32 and bfloat16 need Ampere or newer; "
            "without a strategy the first GPU of a pod works alone.",
            queries=(_facts("info", FACTS),), columns=_columns(FACTS),
        ),
        Panel(
            kind="table", title="What its input is made of", width=24, height=6, empty="no dataset could be read",
            description="Options of the tf.data pipeline that matter for its speed, as far as they can be read. "
            "Without prefetch, reading and computing take turns; sequential map and interleave use one core.",
            queries=(_facts("dataset_info", DATASET_FACTS),), columns=_columns(DATASET_FACTS),
        ),
    ),
)
# fmt: on
