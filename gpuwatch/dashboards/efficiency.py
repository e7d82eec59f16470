"""Efficiency & Cost: who pays, who wastes?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpuwatch.dashboards.board import Board, Column, Mark, Panel, Query, Row, Step, Variable
from gpuwatch.dashboards.query import (
    CLUSTER,
    CLUSTERS,
    IDLE,
    JOB_COLUMN,
    KIND_COLUMN,
    NAMESPACE_COLUMN,
    PRICE,
    RANGE,
    UNDERUSED,
    USE_STEPS,
    some,
)
from gpuwatch.rules.recording import RATIO_LONG, RATIO_SHORT
from gpuwatch.rules.words import DEVICE, JOB

_TEAM: Final = f'{CLUSTER}, namespace=~"$namespace"'
_WHOLE: Final = 'mig_uuid=""'
_CUT: Final = 'mig_uuid!=""'


def _grown(counter: str, matchers: str = "") -> str:
    """Growth of a job's counter within the time range."""
    return f"increase(gpuwatch_job_gpu_{counter}{{{', '.join(filter(None, (_TEAM, matchers)))}}}[{RANGE}])"


def _held(matchers: str = "") -> str:
    return _grown("allocated_seconds_total", matchers)


def _idle(matchers: str = "") -> str:
    """Time held less time busy, of the devices whose use is known."""
    busy = _grown("busy_seconds_total", matchers)
    return f"({_held(matchers)} and {busy}) - {busy}"


_HELD: Final = _held()
_BUSY: Final = _grown("busy_seconds_total")
_ENERGY: Final = _grown("energy_joules_total")
_HELD_RATE: Final = f"namespace_job_name:gpuwatch_job_gpu_allocated_seconds:rate5m{{{_TEAM}}}"
_BUSY_RATE: Final = f"namespace_job_name:gpuwatch_job_gpu_busy_seconds:rate5m{{{_TEAM}}}"
_SHORT: Final = f"{RATIO_SHORT}{{{_TEAM}}}"
_LONG: Final = f"{RATIO_LONG}{{{_TEAM}}}"
_IDLE_JOBS: Final = f"{_SHORT} < {IDLE:g}"
_BY_JOB: Final = "namespace, job_kind, job_name"
_IDLE_HOURS: Final = f"topk(20, (sum by ({_BY_JOB}) ({_HELD} and {_BUSY}) - sum by ({_BY_JOB}) ({_BUSY})) / 3600)"
_PRICED: Final = f"on (model) group_left () max by (model) ({PRICE})"
_SLICES: Final = (
    f"max by ({DEVICE}, mig_uuid) (last_over_time(gpuwatch_mig_memory_total_bytes{{{CLUSTER}}}[{RANGE}])) "
    f"/ on ({DEVICE}) group_left () max by ({DEVICE}) (last_over_time(gpuwatch_gpu_memory_total_bytes{{{CLUSTER}}}[{RANGE}]))"
)
"""Share of a GPU's memory that a MIG instance has: so much of its price."""
_NO_PRICE: Final = "no price set"


def _cost(seconds: Callable[[str], str], by: str = "") -> str:
    """Price of a time, for each device; a MIG instance costs its share of the GPU."""
    times = f"({seconds(_WHOLE)}) or ({seconds(_CUT)}) * on ({DEVICE}, mig_uuid) group_left () ({_SLICES})"
    total = f"sum by ({by})" if by else "sum"
    return f"{total} (({times}) / 3600 * {_PRICED})"


_IDLE_SECONDS: Final = _idle()

# Panels are read as blocks: the formatter would put each word on a line of its own.
# fmt: off
_TOTALS: Final = Row(
    title="In this time range",
    panels=(
        Panel(
            kind="stat", title="GPU-hours held", width=3, height=4, decimals=0, empty="nobody held a GPU",
            description="Time for which pods held devices. A MIG instance counts like a GPU, a shared GPU once for each pod that holds it.",
            queries=(Query(expression=f"sum({_HELD}) / 3600"),),
        ),
        Panel(
            kind="stat", title="Idle GPU-hours", width=3, height=4, decimals=0, empty="no use is known",
            description="Held less busy, of the devices whose use is known: see what idle means below.",
            queries=(Query(expression=f"sum({_IDLE_SECONDS}) / 3600"),),
        ),
        Panel(
            kind="stat", title="Used", width=3, height=4, unit="percentunit", decimals=0, maximum=1, steps=USE_STEPS,
            empty="no use is known",
            description="Busy time per time held, of the devices whose use is known.",
            queries=(Query(expression=f"sum({_BUSY}) / sum({_HELD} and {_BUSY})"),),
        ),
        Panel(
            kind="stat", title="Use not known", width=3, height=4, decimals=0, empty="nobody held a GPU",
            description="GPU-hours of devices whose use nobody reports: MIG instances before Hopper, shares of a GPU without process "
            "accounting. They are in no statement about waste.",
            queries=(Query(expression=some(f"sum({_HELD} unless {_BUSY}) / 3600")),),
        ),
        Panel(
            kind="stat", title="Energy", width=3, height=4, unit="kwatth", decimals=0, empty="no holder's energy is known",
            description="Energy of GPUs while pods held them. Hosts, cooling, MIG instances and shared GPUs are not in it.",
            queries=(Query(expression=f"sum({_ENERGY}) / 3.6e6"),),
        ),
        Panel(
            kind="stat", title="Cost", width=3, height=4, unit="currencyUSD", decimals=0, empty=_NO_PRICE,
            description="Hours held times the price of the model that you set in the chart. A MIG instance costs the share of its GPU's "
            "memory "
            "that it has; a shared GPU costs each of its holders the whole. Models without a price are left out. Not a bill: increase() "
            "extrapolates.",
            queries=(Query(expression=_cost(_held)),),
        ),
        Panel(
            kind="stat", title="Cost of idle hours", width=3, height=4, unit="currencyUSD", decimals=0, empty=_NO_PRICE,
            description="The same for hours held and not busy, of devices whose use is known.",
            queries=(Query(expression=_cost(_idle)),),
        ),
        Panel(
            kind="stat", title="Idle jobs now", width=3, height=4, empty="no agent answers",
            steps=(Step(value=None, colour="text"), Step(value=1, colour="orange")),
            description=f"Jobs that used less than {IDLE:.0%} of their GPUs over the window of the alert GpuJobIdle. "
            "Those that said that they may idle are in it too.",
            queries=(Query(expression=some(f"count({_IDLE_JOBS})")),),
        ),
    ),
)
_TEAMS: Final = Row(
    title="Who pays?",
    panels=(
        Panel(
            kind="table", title="Namespaces", width=16, height=9, empty="nobody held a GPU", sort="-GPU-hours",
            description="What each namespace held, used and cost within the time range. Used and idle are of devices whose use is known. "
            "Cost stays empty until prices are set in the chart.",
            queries=(
                Query(expression=f"sum by (namespace) ({_HELD}) / 3600", column="GPU-hours"),
                Query(expression=f"sum by (namespace) ({_IDLE_SECONDS}) / 3600", column="Idle"),
                Query(expression=f"sum by (namespace) ({_BUSY}) / sum by (namespace) ({_HELD} and {_BUSY})", column="Used"),
                Query(expression=f"sum by (namespace) ({_ENERGY}) / 3.6e6", column="Energy"),
                Query(expression=_cost(_held, "namespace"), column="Cost"),
                Query(expression=_cost(_idle, "namespace"), column="Cost of idle"),
            ),
            columns=(
                NAMESPACE_COLUMN, Column(title="GPU-hours", unit="short", decimals=1), Column(title="Idle", unit="short", decimals=1),
                Column(title="Used", unit="percentunit", decimals=0, steps=USE_STEPS), Column(title="Energy", unit="kwatth", decimals=1),
                Column(title="Cost", unit="currencyUSD", decimals=2), Column(title="Cost of idle", unit="currencyUSD", decimals=2),
            ),
        ),
        Panel(
            kind="text", title="What idle means", width=8, height=9,
            description="How the numbers of this board are made and what they cannot say.",
            content="**Held**: a pod was given the device. **Busy**: some kernel ran, by NVML's utilisation. "
            "**Idle**: held and not busy.\n\n"
            "- Busy is not efficient: tiny kernels read busy while nearly all multiprocessors rest.\n"
            "- Idle is not always waste: a notebook on a break, a service between requests, a job that loads data.\n"
            "- MIG instances before Hopper report no use. They are counted as held and in nothing else.\n"
            "- Energy and cost are of the GPUs alone.\n\n"
            "Prices are yours: `gpuwatch:gpu_price_dollars_per_hour:info`, one for each model, from the chart's values.",
        ),
    ),
)
_WASTE: Final = Row(
    title="Who wastes?",
    panels=(
        Panel(
            kind="table", title="Idle jobs and their GPUs", width=12, height=9, empty="no job is idle, of those whose use is known",
            sort="-GPUs",
            description="Jobs below the threshold of GpuJobIdle over its window, with the GPUs that they hold. Ask the owner before you "
            "end one; a pod may say that it may idle by the annotation gpuwatch.io/idle-ok.",
            queries=(
                Query(expression=f"sum by ({_BY_JOB}) ({_HELD_RATE} and on ({JOB}) {_IDLE_JOBS})", column="GPUs"),
                Query(expression=f"max by ({_BY_JOB}) ({_IDLE_JOBS})", column="Used"),
                Query(expression=f"max by ({_BY_JOB}) (gpuwatch_job_gpu_idle_ok{{{_TEAM}}} and on ({JOB}) {_IDLE_JOBS})",
                column="May idle"),
            ),
            columns=(
                NAMESPACE_COLUMN, KIND_COLUMN, JOB_COLUMN, Column(title="GPUs", unit="short", decimals=0, width=70),
                Column(title="Used", unit="percentunit", decimals=1, width=80), Column(title="May idle", width=90, marks=(Mark(value="1",
                text="yes"),)),
            ),
        ),
        Panel(
            kind="table", title="Most idle GPU-hours", width=12, height=9, empty="no use is known", sort="-Idle GPU-hours",
            description="The twenty jobs with the most time held and not used within the time range, also those that have ended.",
            queries=(Query(expression=_IDLE_HOURS, column="Idle GPU-hours"),),
            columns=(NAMESPACE_COLUMN, KIND_COLUMN, JOB_COLUMN, Column(title="Idle GPU-hours", unit="short", decimals=1, width=130)),
        ),
        Panel(
            kind="bars", title="Jobs by use", width=12, height=8, empty="no agent answers", steps=(Step(value=None, colour="blue"),),
            description="Jobs that run now, by the share of their GPUs that they used over the window of GpuJobUnderutilized. "
            "Many jobs in the middle are normal for inference; training should stand at the bottom.",
            queries=(
                Query(expression=some(f"count({_LONG} < {IDLE:g})"), legend=f"idle (below {IDLE:.0%})"),
                Query(expression=some(f"count(({_LONG} >= {IDLE:g}) < {UNDERUSED:g})"), legend=f"{IDLE:.0%} to {UNDERUSED:.0%}"),
                Query(expression=some(f"count(({_LONG} >= {UNDERUSED:g}) < 0.8)"), legend=f"{UNDERUSED:.0%} to 80%"),
                Query(expression=some(f"count({_LONG} >= 0.8)"), legend="80% and more"),
            ),
        ),
        Panel(
            kind="graph", title="Used of held, by namespace", width=12, height=8, unit="percentunit", maximum=1, empty="no use is known",
            description="GPUs' worth of work per GPU held, of the jobs whose use is known. Compare a namespace with itself over weeks "
            "rather than with another: inference and training differ by nature.",
            queries=(Query(
                expression=f"sum by (namespace) ({_BUSY_RATE}) / sum by (namespace) ({_HELD_RATE} and on ({JOB}) {_BUSY_RATE})",
                legend="{{namespace}}",
            ),),
        ),
    ),
)
_TREND: Final = Row(
    title="Over time",
    panels=(
        Panel(
            kind="graph", title="GPUs held, by namespace", width=12, height=9, stacked=True, empty="nobody held a GPU",
            description="Devices held, by namespace: five-minute means, so that short jobs show too.",
            queries=(Query(expression=f"sum by (namespace) ({_HELD_RATE})", legend="{{namespace}}"),),
        ),
        Panel(
            kind="graph", title="Power, by namespace", width=12, height=9, unit="watt", stacked=True, empty="no holder's power is known",
            description="Power that the jobs of a namespace draw, from the energy counters. MIG instances and shared GPUs are not in it.",
            queries=(Query(
                expression=f"sum by (namespace) (namespace_job_name:gpuwatch_job_gpu_energy_joules:rate5m{{{_TEAM}}})",
                legend="{{namespace}}",
            ),),
        ),
    ),
)

EFFICIENCY_BOARD: Final = Board(
    name="efficiency", title="gpuwatch / Efficiency & Cost", question="Who pays for GPUs, and who wastes them?", span="7d",
    variables=(
        CLUSTERS,
        Variable(name="namespace", title="Namespace", label="namespace", selector=f"gpuwatch_job_gpu_info{{{CLUSTER}}}"),
    ),
    rows=(_TOTALS, _TEAMS, _WASTE, _TREND),
)
# fmt: on
