"""Pieces that many queries share: selectors, joins of hardware with jobs, and the words that panels share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpuwatch.dashboards.board import UNKNOWN, Column, Link, Mark, Query, Step, Variable
from gpuwatch.rules.thresholds import DEFAULTS
from gpuwatch.rules.words import DEVICE

CLUSTER: Final = 'cluster=~"$cluster"'
CHOSEN_JOB: Final = f'{CLUSTER}, namespace="$namespace", job_kind=~"$job_kind", job_name="$job_name"'
"""On the Job board."""
INTERVAL: Final = "$__rate_interval"
RANGE: Final = "$__range"
SETTLED: Final = "15m"
"""The mean over it is what GpuJobStraggler compares: one value of a table, not a graph."""
PRICE: Final = "gpuwatch:gpu_price_dollars_per_hour:info"
"""Recorded by the chart from the prices in its values, by model. gpuwatch knows no price."""
IDLE: Final = float(DEFAULTS["idle_ratio"])
UNDERUSED: Final = float(DEFAULTS["underutilized_ratio"])

CLUSTERS: Final = Variable(name="cluster", title="Cluster", label="cluster", selector="gpuwatch_build_info")
NODES: Final = Variable(name="node", title="Node", label="node", selector=f"gpuwatch_build_info{{{CLUSTER}}}")

GPUS: Final = Variable(name="gpu", title="GPU", label="gpu", selector=f'gpuwatch_gpu_info{{{CLUSTER}, node=~"$node"}}')

TO_NODE: Final = Link(title="What is wrong with this machine?", board="node", carries=(("node", "Node"), ("gpu", "GPU")))
TO_WHOLE_NODE: Final = Link(title="What is wrong with this machine?", board="node", carries=(("node", "Node"),))
TO_JOB: Final = Link(title="Does this job use its GPUs?", board="job", carries=(("namespace", "Namespace"), ("job_name", "Job")))

NOT_REPORTED: Final = Mark(value=f"{UNKNOWN:g}", text="n/a")
ANY_IS_RED: Final = (Step(value=None, colour="green"), Step(value=1, colour="red"))
ANY_IS_ORANGE: Final = (Step(value=None, colour="green"), Step(value=1, colour="orange"))
USE_STEPS: Final = (Step(value=None, colour="orange"), Step(value=UNDERUSED, colour="text"))
"""Of a job's use: below the threshold of GpuJobUnderutilized it is worth a look."""

NODE_COLUMN: Final = Column(title="Node", label="node", links=(TO_WHOLE_NODE,))
NODE_OF_GPU: Final = Column(title="Node", label="node", links=(TO_NODE,))
GPU_COLUMN: Final = Column(title="GPU", label="gpu", width=60, links=(TO_NODE,))
MODEL_COLUMN: Final = Column(title="Model", label="model")
NAMESPACE_COLUMN: Final = Column(title="Namespace", label="namespace")
KIND_COLUMN: Final = Column(title="Kind", label="job_kind", width=130)
JOB_COLUMN: Final = Column(title="Job", label="job_name", links=(TO_JOB,))
SEVERITIES: Final = ("critical", "warning", "info")
SEVERITY_COLUMN: Final = Column(
    title="Severity",
    width=90,
    marks=(
        Mark(value="1", text="critical", colour="red"),
        Mark(value="2", text="warning", colour="orange"),
        Mark(value="3", text="info"),
    ),
)
"""A number, so that the table has the worst first; of two tiers of one alert the worse."""


def some(vector: str) -> str:
    """A count that is 0 and not absent when nothing was found."""
    return f"{vector} or vector(0)"


def devices(vector: str) -> str:
    """One series for each GPU, whatever else its series differ in: two agents may serve one GPU for minutes."""
    return f"max by ({DEVICE}) ({vector})"


def told(vector: str, anchor: str, labels: str) -> str:
    """The vector by these labels, and :data:`UNKNOWN` for those of the anchor that it does not have."""
    return f"max by ({labels}) ({vector}) or max by ({labels}) ({anchor}) * 0 - {-UNKNOWN:g}"


def with_holder(vector: str, labels: str, *, device: str = DEVICE) -> str:
    """The vector by these labels and those of the job that holds each device; without them where none does, with one where several do."""
    holder = f"topk by ({device}) (1, max by ({device}, namespace, job_kind, job_name) (gpuwatch_job_gpu_info{{{CLUSTER}}}))"
    held = f"({vector}) * on ({device}) group_left (namespace, job_kind, job_name) {holder}"
    return f"max by ({labels}, namespace, job_kind, job_name) ({held}) or max by ({labels}) (({vector}) unless on ({device}) {holder})"


def firing(matchers: str) -> str:
    """Alerts that fire."""
    return f'ALERTS{{alertstate="firing", {matchers}}}'


def ranked(alerts: Callable[[str], str], labels: str) -> Query:
    """Alerts by these labels, for a table with :data:`SEVERITY_COLUMN`. ``alerts`` takes one more matcher."""
    tiers = (f"max by ({labels}) ({alerts(_severity(name))}) * {rank}" for rank, name in enumerate(SEVERITIES, start=1))
    return Query(expression=" or ".join(tiers), column=SEVERITY_COLUMN.title)


def _severity(name: str) -> str:
    return f'severity="{name}"'
