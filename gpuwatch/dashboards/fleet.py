"""Fleet: what do we have, is it healthy, is it working?"""

from __future__ import annotations

from typing import Final

from gpuwatch.dashboards.board import Board, Column, Link, Mark, Panel, Query, Row, Step, Variable
from gpuwatch.dashboards.query import (
    ANY_IS_ORANGE,
    ANY_IS_RED,
    CLUSTER,
    CLUSTERS,
    GPU_COLUMN,
    IDLE,
    INTERVAL,
    JOB_COLUMN,
    KIND_COLUMN,
    MODEL_COLUMN,
    NAMESPACE_COLUMN,
    NODE_OF_GPU,
    RANGE,
    SEVERITY_COLUMN,
    USE_STEPS,
    firing,
    ranked,
    some,
    with_holder,
)
from gpuwatch.rules.recording import HELD_DOWN
from gpuwatch.rules.words import DEVICE

_MODELS: Final = f'{CLUSTER}, model=~"$model"'
_USE: Final = f"(node_uuid:gpuwatch_gpu_busy_seconds:rate5m{{{_MODELS}}} unless on ({DEVICE}) gpuwatch_gpu_up{{{_MODELS}}} == 0)"
"""Without GPUs that cannot be read: theirs is not known, and not zero."""
_HOLDERS: Final = f"count by ({DEVICE}) (gpuwatch_job_gpu_info{{{_MODELS}}})"
_HELD_IDLE: Final = f"count({_USE} < {IDLE:g} and on ({DEVICE}) {_HOLDERS})"
_BY_JOB: Final = "namespace, job_kind, job_name"
_HOURS: Final = f"increase(gpuwatch_job_gpu_allocated_seconds_total{{{_MODELS}}}[{RANGE}])"
_BUSY_HOURS: Final = f"increase(gpuwatch_job_gpu_busy_seconds_total{{{_MODELS}}}[{RANGE}])"
_KNOWN: Final = f"sum by ({_BY_JOB}) ({_HOURS} and {_BUSY_HOURS})"
_WASTED: Final = f"topk(10, ({_KNOWN} - sum by ({_BY_JOB}) ({_BUSY_HOURS})) / 3600)"
_NOT_OK: Final = f'gpuwatch_gpu_health_state{{{_MODELS}, state!="ok"}} == 1'
_EACH_REASON: Final = (
    f"max by ({DEVICE}, gpu, model, reason, action) (gpuwatch_gpu_health_reason{{{_MODELS}}}) "
    f"* on ({DEVICE}) group_left (state) max by ({DEVICE}, state) ({_NOT_OK})"
)
_REASONS: Final = with_holder(_EACH_REASON, "state, node, gpu, model, reason, action")


def _alerts(matcher: str) -> str:
    return firing(f'{CLUSTER}, alertname=~"(Gpu|TensorFlow).+", {matcher}')


# Panels are read as blocks: the formatter would put each word on a line of its own.
# fmt: off
_NOW: Final = Row(
    title="Now",
    panels=(
        Panel(
            kind="stat", title="GPUs", width=3, height=4, empty="no agent reports a GPU",
            description="Physical GPUs that agents report, from gpuwatch_gpu_info. A GPU in MIG mode counts once. "
            "A node whose agent is away is missing here: the Agent board tells which.",
            queries=(Query(expression=f"sum(cluster_model:gpuwatch_gpu:count{{{_MODELS}}})"),),
        ),
        Panel(
            kind="stat", title="Held", width=3, height=4, empty="no agent answers",
            description="GPUs that at least one pod holds, whole or in part, from gpuwatch_job_gpu_info. Held does not mean used.",
            queries=(Query(expression=some(f"count({_HOLDERS})")),),
        ),
        Panel(
            kind="stat", title="Held and idle", width=3, height=4, empty="no agent answers",
            steps=(Step(value=None, colour="text"), Step(value=1, colour="orange")),
            description=f"GPUs that a pod holds and that were used less than {IDLE:.0%} of the last five minutes. "
            "A job that loads data or saves a checkpoint is in it for a while: the alert GpuJobIdle waits half an hour. "
            "GPUs in MIG mode report no use and are never in it.",
            queries=(Query(expression=some(_HELD_IDLE)),),
        ),
        Panel(
            kind="stat", title="Free", width=3, height=4, empty="no agent answers",
            description="GPUs and MIG instances that are sound and given to nobody, on nodes that take pods. "
            "Free is not schedulable: taints, quota and the size of a job may still keep it from being used.",
            queries=(Query(expression=some(f"sum(cluster_model:gpuwatch_gpu_free:count{{{_MODELS}}})")),),
        ),
        Panel(
            kind="stat", title="Mean use", width=3, height=4, unit="percentunit", decimals=0, maximum=1,
            empty="no GPU reports its use",
            description="Mean share of the last five minutes in which a kernel ran, over all GPUs that report it, held or not. "
            "It says that something ran, not that much was done. GPUs in MIG mode report none.",
            queries=(Query(expression=f"avg({_USE})"),),
        ),
        Panel(
            kind="stat", title="Failed or unreadable", width=3, height=4, steps=ANY_IS_RED, empty="no agent answers",
            description="GPUs whose verdict is failed (drain now) or unknown (cannot be read). The table below says why.",
            queries=(Query(
                expression=some(f'sum(cluster_model_state:gpuwatch_gpu_health:count{{{_MODELS}, state=~"failed|unknown"}})')
            ),),
        ),
        Panel(
            kind="stat", title="Degraded", width=3, height=4, steps=ANY_IS_ORANGE, empty="no agent answers",
            description="GPUs that work with a flaw: plan a repair at the end of the job. No reason to stop one.",
            queries=(Query(expression=some(f'sum(cluster_model_state:gpuwatch_gpu_health:count{{{_MODELS}, state="degraded"}})')),),
        ),
        Panel(
            kind="stat", title="Power", width=3, height=4, unit="watt", decimals=1, empty="no GPU reports its power",
            description="Power draw of all GPUs that report it, without the hosts around them.",
            queries=(Query(expression=f"sum(cluster_model:gpuwatch_gpu_power_watts:sum{{{_MODELS}}})"),),
        ),
    ),
)

_NEEDED: Final = Row(
    title="What needs somebody",
    panels=(
        Panel(
            kind="table", title="Alerts that fire", width=10, height=12, empty="no alert fires, or the rules are not loaded",
            sort="Severity",
            description="Every alert of gpuwatch that fires now, from Prometheus's own series ALERTS: faults of GPUs, jobs that waste "
            "them, "
            "agents in trouble. Click a job or a GPU to see more. Alertmanager may silence some of them; here they stay. "
            "Where the table is empty, look at the Agent board before you rejoice.",
            queries=(ranked(_alerts, "alertname, node, gpu, namespace, job_name"),),
            columns=(
                SEVERITY_COLUMN, Column(title="Alert", label="alertname"), NODE_OF_GPU, GPU_COLUMN, NAMESPACE_COLUMN, JOB_COLUMN,
            ),
            exempt="alerts about jobs and nodes have no model",
        ),
        Panel(
            kind="table", title="GPUs that need somebody", width=14, height=12,
            empty="no verdict other than ok, from the agents that answer",
            sort="-State",
            description="Each reason for which a GPU's verdict is not ok, with what to do and one of the jobs that it hits. "
            "Reasons and actions are those of docs/health.md. A GPU without a job in its row is held by nobody now.",
            queries=(Query(expression=_REASONS),),
            columns=(
                Column(
                    title="State", label="state", width=90,
                    marks=(
                        Mark(value="failed", text="failed", colour="red"), Mark(value="unknown", text="unknown", colour="red"),
                        Mark(value="degraded", text="degraded", colour="orange"),
                    ),
                ),
                NODE_OF_GPU, GPU_COLUMN, MODEL_COLUMN, Column(title="Reason", label="reason"), Column(title="Action", label="action"),
                NAMESPACE_COLUMN, JOB_COLUMN,
            ),
        ),
    ),
)
_USED: Final = Row(
    title="Are they working?",
    panels=(
        Panel(
            kind="graph", title="What GPUs do", width=12, height=9, stacked=True, empty="no agent answers",
            description="All GPUs, each in one of four states: used, held and idle (below the threshold of GpuJobIdle), held with its use "
            "not known (MIG mode reports none, a lost GPU neither), not held. The height is the number of GPUs that agents report.",
            queries=(
                Query(expression=some(f"count({_USE} >= {IDLE:g} and on ({DEVICE}) {_HOLDERS})"), legend="held and used", colour="blue"),
                Query(expression=some(_HELD_IDLE), legend="held and idle", colour="orange"),
                Query(expression=some(f"count({_HOLDERS} unless on ({DEVICE}) {_USE})"), legend="held, use not known", colour="purple"),
                Query(
                    expression=some(f"count(count by ({DEVICE}) (gpuwatch_gpu_info{{{_MODELS}}}) unless on ({DEVICE}) {_HOLDERS})"),
                    legend="not held", colour="text",
                ),
            ),
        ),
        Panel(
            kind="graph", title="Use by model", width=12, height=9, unit="percentunit", maximum=1, empty="no GPU reports its use",
            description="Mean use of the GPUs of each model, held or not. A model that is little used may be the wrong one to buy more of; "
            "look first whether its GPUs are held.",
            queries=(Query(expression=f"avg by (model) ({_USE})", legend="{{model}}"),),
        ),
        Panel(
            kind="grid", title="Use of each node", width=12, height=9, unit="percentunit", maximum=1, empty="no GPU reports its use",
            description="Mean use of the GPUs of each node, darker for more. A pale row is a node whose GPUs wait. "
            "Nodes whose GPUs are all in MIG mode are not in it.",
            queries=(Query(expression=f"avg by (node) ({_USE})", legend="{{node}}"),),
            links=(Link(title="What is wrong with this machine?", board="node", carries=(("node", "node"),)),),
        ),
        Panel(
            kind="graph", title="Power by model", width=12, height=9, unit="watt", stacked=True, empty="no GPU reports its power",
            description="Power draw of the GPUs of each model. Near the limit is normal in training; the limit itself is no fault.",
            queries=(Query(expression=f"sum by (model) (cluster_model:gpuwatch_gpu_power_watts:sum{{{_MODELS}}})", legend="{{model}}"),),
        ),
    ),
)
_WASTERS: Final = Row(
    title="Who wastes?",
    panels=(
        Panel(
            kind="table", title="Most idle GPU-hours", width=24, height=8, empty="no job held a GPU whose use is known",
            sort="-Idle GPU-hours",
            description="The ten jobs with the most time held and not used, within the time range of the board. "
            "increase() extrapolates at its ends: good for a ranking, not for a bill. "
            "Devices whose use is not known (MIG before Hopper, shares of a GPU whose processes are not told) are left out.",
            queries=(
                Query(expression=_WASTED, column="Idle GPU-hours"),
                Query(expression=f"{_KNOWN} / 3600 and on ({_BY_JOB}) {_WASTED}", column="Held GPU-hours"),
                Query(expression=f"sum by ({_BY_JOB}) ({_BUSY_HOURS}) / {_KNOWN} and on ({_BY_JOB}) {_WASTED}", column="Used"),
            ),
            columns=(
                NAMESPACE_COLUMN, KIND_COLUMN, JOB_COLUMN, Column(title="Idle GPU-hours", unit="short", decimals=1),
                Column(title="Held GPU-hours", unit="short", decimals=1),
                Column(title="Used", unit="percentunit", decimals=0, steps=USE_STEPS),
            ),
        ),
    ),
)
_DETAIL: Final = Row(
    title="Faults and drivers",
    panels=(
        Panel(
            kind="graph", title="GPUs held down", width=12, height=8, empty="no GPU counts the time that it is held down",
            description="GPUs' worth of time in which clocks were held down by heat, by the board's own protection or by its power supply. "
            "The power limit is left out: it is reached in every good training.",
            queries=(Query(
                expression=f'sum by (reason) (rate(gpuwatch_gpu_throttled_seconds_total{{{_MODELS}, reason=~"{HELD_DOWN}"}}[{INTERVAL}]))',
                legend="{{reason}}",
            ),),
        ),
        Panel(
            kind="bars", title="GPUs with an XID, by number", width=6, height=8, empty="no XID in this range from the agents that listen",
            steps=(Step(value=None, colour="blue"),), minimum=0,
            description="GPUs whose driver reported an XID within the time range, by number and meaning. Some are the program's own error "
            "(13, 31, 43), some the board's: the severity is that of docs/health.md.",
            queries=(Query(
                expression="count by (xid, category, severity) "
                f"(gpuwatch_gpu_xid_last_timestamp_seconds{{{_MODELS}}} > time() - $__range_s)",
                legend="XID {{xid}} ({{category}}, {{severity}})",
            ),),
        ),
        Panel(
            kind="bars", title="GPUs by driver", width=6, height=8, empty="no agent reports a driver",
            steps=(Step(value=None, colour="blue"),), minimum=0,
            description="How many GPUs run on each driver version. More than one for long means that an upgrade stopped half-way.",
            queries=(Query(
                expression=f'count by (driver) (max by (cluster, node, gpu, driver) (gpuwatch_gpu_info{{{_MODELS}, driver!=""}}))',
                legend="{{driver}}",
            ),),
        ),
    ),
)

FLEET_BOARD: Final = Board(
    name="fleet", title="gpuwatch / Fleet", question="What GPUs do we have, are they healthy, are they working?",
    variables=(
        CLUSTERS,
        Variable(name="model", title="Model", label="model", selector=f"gpuwatch_gpu_info{{{CLUSTER}}}"),
    ),
    rows=(_NOW, _NEEDED, _USED, _WASTERS, _DETAIL),
)
# fmt: on
