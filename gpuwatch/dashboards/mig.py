"""MIG & Sharing: how are GPUs cut, who shares them, which slices are free?"""

from __future__ import annotations

from typing import Final

from gpuwatch.dashboards.board import Board, Column, Panel, Query, Row, Step
from gpuwatch.dashboards.query import (
    CLUSTER,
    CLUSTERS,
    GPU_COLUMN,
    GPUS,
    JOB_COLUMN,
    KIND_COLUMN,
    MODEL_COLUMN,
    NAMESPACE_COLUMN,
    NODE_OF_GPU,
    NODES,
    NOT_REPORTED,
    some,
    told,
    with_holder,
)
from gpuwatch.rules.words import DEVICE

_GPUS: Final = f'{CLUSTER}, node=~"$node", gpu=~"$gpu"'
_INSTANCES: Final = f"gpuwatch_mig_info{{{_GPUS}}}"
_INSTANCE: Final = f"{DEVICE}, gpu, model, mig_uuid, profile, gpu_instance, compute_instance"
_SHOWN: Final = "node, gpu, model, profile, gpu_instance, compute_instance, mig_uuid"
_HOLDERS: Final = f"gpuwatch_job_gpu_info{{{_GPUS}}}"
_SHARED: Final = f'gpuwatch_job_gpu_info{{{_GPUS}, shared="true"}}'
_ON_SLICE: Final = f'count by ({DEVICE}, mig_uuid) (gpuwatch_job_gpu_info{{{_GPUS}, mig_uuid!=""}})'
_MEMORY: Final = (
    f"max by ({_INSTANCE}) (gpuwatch_mig_memory_used_bytes{{{_GPUS}}}) "
    f"/ on ({_INSTANCE}) max by ({_INSTANCE}) (gpuwatch_mig_memory_total_bytes{{{_GPUS}}})"
)
_BY_SLICE: Final = f"{DEVICE}, mig_uuid"
_EACH: Final = f"max by ({_INSTANCE}) ({_INSTANCES})"
_WHO: Final = with_holder(_EACH, _SHOWN, device=_BY_SLICE)
_WHO_MEMORY: Final = with_holder(told(_MEMORY, _INSTANCES, _INSTANCE), _SHOWN, device=_BY_SLICE)
_WHO_WORK: Final = with_holder(told(f"gpuwatch_mig_sm_active_ratio{{{_GPUS}}}", _INSTANCES, _INSTANCE), _SHOWN, device=_BY_SLICE)
_HOLDER: Final = "node, gpu, model, namespace, job_kind, job_name, pod"
_LEGEND: Final = "{{node}} / GPU {{gpu}} / {{gpu_instance}}.{{compute_instance}} {{profile}}"


def _per_holder(metric: str) -> str:
    """A job's metric on devices that it shares."""
    series = f"gpuwatch_job_gpu_{metric}{{{_GPUS}}}"
    return f"max by ({_HOLDER}) ({series} and on ({DEVICE}, mig_uuid, namespace, pod, container) {_SHARED})"


_ALL_SLICES: Final = f"count by ({DEVICE}, model, mig_uuid, profile) ({_INSTANCES})"


def _by_profile(slices: str) -> str:
    return f"count by (model, profile) ({slices})"


# Panels are read as blocks: the formatter would put each word on a line of its own.
# fmt: off
_ANSWER: Final = Row(
    title="Now",
    panels=(
        Panel(
            kind="stat", title="GPUs in MIG mode", width=4, height=4, empty="no agent answers",
            description="Physical GPUs with MIG mode on. A change of the mode waits for a reset: until then the old one counts.",
            queries=(Query(
                expression=some(f'count(count by ({DEVICE}) (gpuwatch_gpu_info{{{_GPUS}, mig_mode="enabled"}}))')
            ),),
        ),
        Panel(
            kind="stat", title="Instances", width=4, height=4, empty="no agent answers",
            description="MIG instances that exist, held or free. Several compute instances of one GPU instance count each.",
            queries=(Query(expression=some(f"count(count by ({DEVICE}, mig_uuid) ({_INSTANCES}))")),),
        ),
        Panel(
            kind="stat", title="Instances held", width=4, height=4, empty="no agent answers",
            description="MIG instances that at least one pod holds. Held does not mean used.",
            queries=(Query(expression=some(f"count({_ON_SLICE})")),),
        ),
        Panel(
            kind="stat", title="Instances free", width=4, height=4, empty="no agent answers",
            description="MIG instances that no pod holds. Whether a pod can get one depends on the profile that it asks for.",
            queries=(Query(
                expression=some(f"count(count by ({DEVICE}, mig_uuid) ({_INSTANCES}) unless on ({DEVICE}, mig_uuid) {_ON_SLICE})")
            ),),
        ),
        Panel(
            kind="stat", title="MIG without instances", width=4, height=4, empty="no agent answers",
            steps=(Step(value=None, colour="green"), Step(value=1, colour="orange")),
            description="GPUs in MIG mode that are not cut: nobody can use them.",
            queries=(Query(expression=some(
                f'count(count by ({DEVICE}) (gpuwatch_gpu_info{{{_GPUS}, mig_mode="enabled"}}) unless on ({DEVICE}) {_INSTANCES})'
            )),),
        ),
        Panel(
            kind="stat", title="Devices shared", width=4, height=4, empty="no agent answers",
            description="GPUs and instances that several pods hold, by time-slicing, by MPS, or since one of them took what it was not "
            "given.",
            queries=(Query(expression=some(f"count(count by ({DEVICE}, mig_uuid) ({_SHARED}))")),),
        ),
    ),
)
_SLICES: Final = Row(
    title="Slices",
    panels=(
        Panel(
            kind="table", title="Instances and their holders", width=24, height=10, empty="no MIG instance on these nodes", sort="Node",
            description="One row for each MIG instance. Without a job it is free. Memory is the share of the instance's own; "
            "two compute instances of one GPU instance show it once. Multiprocessors at work are reported from Hopper on: n/a is not zero. "
            "Power and heat belong to the whole GPU: click it.",
            queries=(
                Query(expression=_WHO),
                Query(expression=_WHO_MEMORY, column="Memory"),
                Query(expression=_WHO_WORK, column="At work"),
            ),
            columns=(
                NODE_OF_GPU, GPU_COLUMN, MODEL_COLUMN, Column(title="GI", label="gpu_instance", width=50),
                Column(title="CI", label="compute_instance", width=50), Column(title="Profile", label="profile", width=100),
                NAMESPACE_COLUMN, KIND_COLUMN, JOB_COLUMN,
                Column(title="Memory", unit="percentunit", decimals=0, width=90, marks=(NOT_REPORTED,)),
                Column(title="At work", unit="percentunit", decimals=0, width=90, marks=(NOT_REPORTED,)),
                Column(title="UUID", label="mig_uuid"),
            ),
        ),
        Panel(
            kind="table", title="Free and held, by profile", width=8, height=8, empty="no MIG instance on these nodes", sort="Model",
            description="How many instances of each profile exist and how many of them are free.",
            queries=(
                Query(expression=_by_profile(_ALL_SLICES), column="All"),
                Query(
                    expression=f"{_by_profile(_ALL_SLICES + f' unless on ({_BY_SLICE}) {_ON_SLICE}')} or {_by_profile(_ALL_SLICES)} * 0",
                    column="Free",
                ),
            ),
            columns=(
                MODEL_COLUMN, Column(title="Profile", label="profile", width=100), Column(title="All", unit="short", decimals=0, width=60),
                Column(title="Free", unit="short", decimals=0, width=60),
            ),
        ),
        Panel(
            kind="graph", title="Memory of each instance", width=16, height=8, unit="percentunit", maximum=1,
            empty="no MIG instance on these nodes",
            description="Memory in use as a share of the instance's own. TensorFlow maps nearly all of it when it starts.",
            queries=(Query(expression=f"max by ({_SHOWN}) ({_MEMORY})", legend=_LEGEND),),
        ),
        Panel(
            kind="graph", title="Multiprocessors at work, by instance", width=16, height=8, unit="percentunit", maximum=1,
            empty="not reported by these GPUs (before Hopper), or no instance",
            description="Share of the instance's multiprocessors that had work. Before Hopper nobody reports the use of an instance: "
            "an absent line says nothing about its job.",
            queries=(Query(expression=f"max by ({_SHOWN}) (gpuwatch_mig_sm_active_ratio{{{_GPUS}}})", legend=_LEGEND),),
        ),
        Panel(
            kind="graph", title="Power of the whole GPU", width=8, height=8, unit="watt", empty="no GPU in MIG mode on these nodes",
            description="Power of GPUs in MIG mode, each once. It cannot be split among its instances.",
            queries=(Query(
                expression=f"max by (node, gpu) (gpuwatch_gpu_power_watts{{{_GPUS}}} and on ({DEVICE}) {_INSTANCES})",
                legend="{{node}} / GPU {{gpu}}",
            ),),
        ),
    ),
)
_SHARING: Final = Row(
    title="Shared devices",
    panels=(
        Panel(
            kind="table", title="Who shares what", width=14, height=9, empty="no device is shared on these nodes", sort="Node",
            description="One row for each pod on a device that several hold. Use and memory are those of its own processes, where the "
            "driver "
            "tells them; n/a is not zero.",
            queries=(
                Query(expression=told(_per_holder("utilization_ratio"), _SHARED, _HOLDER), column="Use"),
                Query(expression=told(_per_holder("memory_used_bytes"), _SHARED, _HOLDER), column="Memory"),
            ),
            columns=(
                NODE_OF_GPU, GPU_COLUMN, NAMESPACE_COLUMN, KIND_COLUMN, JOB_COLUMN, Column(title="Pod", label="pod"),
                Column(title="Use", unit="percentunit", decimals=0, width=70, marks=(NOT_REPORTED,)),
                Column(title="Memory", unit="bytes", decimals=1, width=90, marks=(NOT_REPORTED,)),
            ),
        ),
        Panel(
            kind="graph", title="Use of shared GPUs, by holder", width=10, height=9, unit="percentunit", maximum=1,
            empty="no device is shared, or the driver does not tell the use of processes",
            description="Use by each holder's own processes. They need not add up to the use of the GPU: kernels may run side by side.",
            queries=(Query(
                expression=f"max by (node, gpu, namespace, pod) (gpuwatch_job_gpu_utilization_ratio{{{_GPUS}}} "
                f"and on ({DEVICE}, mig_uuid, namespace, pod, container) {_SHARED})",
                legend="{{node}} / GPU {{gpu}}: {{namespace}}/{{pod}}",
            ),),
        ),
    ),
)

MIG_BOARD: Final = Board(
    name="mig", title="gpuwatch / MIG & Sharing", question="How are GPUs cut, who shares them, which slices are free?",
    variables=(CLUSTERS, NODES, GPUS),
    rows=(_ANSWER, _SLICES, _SHARING),
)
# fmt: on
