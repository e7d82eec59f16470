"""Job: is my training using its GPUs evenly, and if not which worker?"""

from __future__ import annotations

from typing import Final

from gpuwatch.dashboards.board import Annotation, Board, Column, Mark, Panel, Query, Row, Step, Variable
from gpuwatch.dashboards.query import (
    ANY_IS_ORANGE,
    CHOSEN_JOB,
    CLUSTER,
    CLUSTERS,
    GPU_COLUMN,
    INTERVAL,
    NODE_OF_GPU,
    NOT_REPORTED,
    RANGE,
    SETTLED,
    SEVERITY_COLUMN,
    USE_STEPS,
    devices,
    firing,
    ranked,
    some,
    told,
)
from gpuwatch.dashboards.why import WHY
from gpuwatch.rules.recording import HELD_DOWN
from gpuwatch.rules.thresholds import DEFAULTS
from gpuwatch.rules.words import DEVICE

_INFO: Final = f"gpuwatch_job_gpu_info{{{CHOSEN_JOB}}}"
_HELD: Final = f"increase(gpuwatch_job_gpu_allocated_seconds_total{{{CHOSEN_JOB}}}[{RANGE}])"
_BUSY: Final = f"increase(gpuwatch_job_gpu_busy_seconds_total{{{CHOSEN_JOB}}}[{RANGE}])"
_WORKER: Final = "replica_type, replica_index, pod, node, gpu, mig_uuid"
_HOLDING: Final = f"{DEVICE}, {_WORKER.replace('node, ', '')}"
_HOLDERS: Final = f"max by ({_HOLDING}) ({_INFO})"
_STRAGGLER_USE: Final = float(DEFAULTS["straggler_busy_ratio"])
_STRAGGLER_CLOCK: Final = float(DEFAULTS["straggler_clock_ratio"])
_FRAGMENT: Final = "{{replica_type}} {{replica_index}} ({{node}} / GPU {{gpu}})"
_UNEVEN: Final = float(DEFAULTS["imbalance_ratio"])


def _own(metric: str, *, window: str = "") -> str:
    """A job's own metric, by worker."""
    vector = f"gpuwatch_job_gpu_{metric}{{{CHOSEN_JOB}}}"
    return f"max by ({_WORKER}) ({f'avg_over_time({vector}[{window}])' if window else vector})"


def _joined(vector: str) -> str:
    """A vector of the hardware, by the workers that hold the GPU."""
    return f"max by ({_WORKER}) ({_HOLDERS} * on ({DEVICE}) group_left () {devices(vector)})"


def _hardware(metric: str, matchers: str = "") -> str:
    return f"gpuwatch_gpu_{metric}{{{', '.join(filter(None, (CLUSTER, matchers)))}}}"


_SM: Final = 'clock="sm"'
_CLOCK: Final = _joined(f"{devices(_hardware('clock_hertz', _SM))} / on ({DEVICE}) {devices(_hardware('clock_max_hertz', _SM))}")
_SLOWED: Final = _joined(f'sum by ({DEVICE}) (rate(gpuwatch_gpu_throttled_seconds_total{{{CLUSTER}, reason=~"{HELD_DOWN}"}}[{INTERVAL}]))')
_POWER: Final = _own("power_watts", window=SETTLED)
_NVLINK: Final = f"sum by ({_WORKER}) (rate(gpuwatch_job_gpu_nvlink_bytes_total{{{CHOSEN_JOB}}}[{INTERVAL}]))"
_PCIE: Final = _joined(f"sum by ({DEVICE}) (max by ({DEVICE}, direction) ({_hardware('pcie_throughput_bytes_per_second')}))")
_NAMED: Final = f'{CLUSTER}, namespace="$namespace", job_name="$job_name"'
_ON_GPU: Final = f'{CLUSTER}, uuid!=""'
_XIDS: Final = f"{_hardware('xid_last_timestamp_seconds')} and on ({DEVICE}) {_INFO}"


def _alerts(matcher: str = 'severity!=""') -> str:
    """About the job, and about GPUs that it holds."""
    return f"{firing(f'{_NAMED}, {matcher}')} or {firing(f'{_ON_GPU}, {matcher}')} and on ({DEVICE}) {_INFO}"


# Panels are read as blocks: the formatter would put each word on a line of its own.
# fmt: off
_ANSWER: Final = Row(
    title="The answer",
    panels=(
        Panel(
            kind="stat", title="GPUs held", width=3, height=4, empty="holds none now",
            description="GPUs and MIG instances that the job's pods hold now. Pods that wait for a GPU are not in it.",
            queries=(Query(expression=f"count(count by ({DEVICE}, mig_uuid) ({_INFO}))"),),
        ),
        Panel(
            kind="stat", title="Used", width=3, height=4, unit="percentunit", decimals=0, maximum=1, steps=USE_STEPS,
            empty="its use is not known",
            description="Busy time per time held, over the time range and all GPUs whose use is known. "
            "Workers that wait in a collective operation read as busy: 100 % does not mean that all is well.",
            queries=(Query(expression=f"sum({_BUSY}) / sum({_HELD} and {_BUSY})"),),
        ),
        Panel(
            kind="stat", title="Spread of use", width=3, height=4, unit="percentunit", decimals=0, maximum=1,
            empty="fewer than one use is known",
            steps=(Step(value=None, colour="green"), Step(value=_UNEVEN, colour="orange")),
            description="Use of the busiest GPU less that of the least busy one, over the last quarter of an hour, chief and workers "
            "together. "
            "Parameter servers and evaluators differ by design; for synchronous workers a large spread means that one is late for its "
            "input.",
            queries=(Query(
                expression=f"max({_own('utilization_ratio', window=SETTLED)}) - min({_own('utilization_ratio', window=SETTLED)})",
            ),),
        ),
        Panel(
            kind="stat", title="GPU-hours", width=3, height=4, decimals=1, empty="held none in this range",
            description="Time for which devices were held within the time range, busy or not. A MIG instance counts like a GPU.",
            queries=(Query(expression=f"sum({_HELD}) / 3600"),),
        ),
        Panel(
            kind="stat", title="Idle GPU-hours", width=3, height=4, decimals=1, empty="its use is not known",
            description="Time held less time busy, of the devices whose use is known.",
            queries=(Query(expression=f"(sum({_HELD} and {_BUSY}) - sum({_BUSY})) / 3600"),),
        ),
        Panel(
            kind="stat", title="Energy", width=3, height=4, unit="kwatth", decimals=1, empty="not told for shared GPUs and MIG",
            description="Energy of its GPUs while the job held them, within the time range. Hosts and cooling are not in it. "
            "Absent for MIG instances and shared GPUs, since it cannot be split.",
            queries=(Query(expression=f"sum(increase(gpuwatch_job_gpu_energy_joules_total{{{CHOSEN_JOB}}}[{RANGE}])) / 3.6e6"),),
        ),
        Panel(
            kind="stat", title="Alerts", width=3, height=4, steps=ANY_IS_ORANGE, empty="no agent answers",
            description="Alerts that fire about the job or about a GPU that it holds. The next row lists them.",
            queries=(Query(expression=some(f"count({_alerts()})")),),
        ),
        Panel(
            kind="stat", title="XIDs", width=3, height=4, steps=ANY_IS_ORANGE, empty="no agent answers",
            description="Numbers of XIDs that the driver reported in this range on GPUs that the job holds now, also those from before it "
            "came.",
            queries=(Query(expression=some(f"count(({_XIDS}) > time() - $__range_s)")),),
        ),
    ),
)
_WORKERS: Final = Row(
    title="Which worker?",
    panels=(
        Panel(
            kind="table", title="Workers", width=24, height=10, empty="holds no GPU now", sort="Use",
            description="One row for each GPU that the job holds; means of the last quarter of an hour where they say so. "
            "A worker late for its input: low use while its tensor activity equals the others', who read 100 % because they wait for it. "
            "A worker that is slow itself: its clock is below the others', or it is held down. "
            "Power against the median is a hint only: it falls on all of them when one is late. n/a is not zero: the board reports none.",
            queries=(
                Query(expression=told(_own("utilization_ratio", window=SETTLED), _INFO, _WORKER), column="Use"),
                Query(expression=told(_own("tensor_active_ratio", window=SETTLED), _INFO, _WORKER), column="Tensor"),
                Query(expression=told(_own("sm_active_ratio", window=SETTLED), _INFO, _WORKER), column="SM"),
                Query(expression=told(_CLOCK, _INFO, _WORKER), column="Clock"),
                Query(expression=told(_SLOWED, _INFO, _WORKER), column="Slowed"),
                Query(expression=told(f"{_POWER} / on () group_left () quantile(0.5, {_POWER})", _INFO, _WORKER), column="Power"),
                Query(expression=told(_joined(_hardware("temperature_celsius", 'sensor="gpu"')), _INFO, _WORKER), column="Heat"),
                Query(expression=told(_NVLINK, _INFO, _WORKER), column="NVLink"),
                Query(expression=told(_PCIE, _INFO, _WORKER), column="PCIe"),
                Query(expression=told(_own("memory_used_bytes"), _INFO, _WORKER), column="Memory"),
                Query(expression=f"1000 * max by ({_WORKER}) ({_HOLDERS} * on ({DEVICE}) group_left () "
                      f"{devices(_hardware('xid_last_timestamp_seconds'))})", column="XID"),
            ),
            columns=(
                Column(title="Role", label="replica_type", width=90), Column(title="No.", label="replica_index", width=50),
                Column(title="Pod", label="pod"), NODE_OF_GPU, GPU_COLUMN,
                Column(
                    title="Use", unit="percentunit", decimals=0, width=70, marks=(NOT_REPORTED,),
                    steps=(Step(value=None, colour="orange"), Step(value=_STRAGGLER_USE, colour="text")),
                ),
                Column(title="Tensor", unit="percentunit", decimals=0, width=75, marks=(NOT_REPORTED,)),
                Column(title="SM", unit="percentunit", decimals=0, width=70, marks=(NOT_REPORTED,)),
                Column(
                    title="Clock", unit="percentunit", decimals=0, width=75, marks=(NOT_REPORTED,),
                ),
                Column(
                    title="Slowed", unit="percentunit", decimals=0, width=80, marks=(NOT_REPORTED,),
                    steps=(Step(value=None, colour="text"), Step(value=float(DEFAULTS["hardware_thermal"]), colour="orange")),
                ),
                Column(title="Power", unit="percentunit", decimals=0, width=75, marks=(NOT_REPORTED,)),
                Column(title="Heat", unit="celsius", decimals=0, width=75, marks=(NOT_REPORTED,)),
                Column(title="NVLink", unit="Bps", decimals=1, width=95, marks=(NOT_REPORTED,)),
                Column(title="PCIe", unit="Bps", decimals=1, width=95, marks=(NOT_REPORTED,)),
                Column(title="Memory", unit="bytes", decimals=0, width=85, marks=(NOT_REPORTED,)),
                Column(title="XID", unit="dateTimeFromNow", width=110, marks=(Mark(value="null", text="none"),)),
            ),
        ),
        Panel(
            kind="table", title="Alerts about the job and its GPUs", width=24, height=5, empty="none fires, or the rules are not loaded",
            sort="Severity",
            description="What fires about the job, a worker of it, or a GPU that it holds. A fault of the GPU is no fault of the job.",
            queries=(ranked(_alerts, "alertname, node, gpu, pod"),),
            columns=(SEVERITY_COLUMN, Column(title="Alert", label="alertname"), NODE_OF_GPU, GPU_COLUMN, Column(title="Pod", label="pod")),
        ),
    ),
)
_TIME: Final = Row(
    title="Over time",
    panels=(
        Panel(
            kind="graph", title="Use of each worker", width=12, height=9, unit="percentunit", maximum=1, empty="its use is not known",
            description="Share of time in which a kernel ran. In synchronous training the one line below the others is late for its input; "
            "those at 100 % may only wait.",
            queries=(Query(expression=_own("utilization_ratio"), legend=_FRAGMENT),),
        ),
        Panel(
            kind="graph", title="Tensor cores of each worker", width=12, height=9, unit="percentunit", maximum=1,
            empty="not reported by these GPUs (before Hopper, or shared)",
            description="Share of time in which tensor cores worked: work itself, not waiting. Equal lines with unequal use point to the "
            "input. "
            "Only Hopper and newer report it.",
            queries=(Query(expression=_own("tensor_active_ratio"), legend=_FRAGMENT),),
        ),
        Panel(
            kind="graph", title="Power of each worker", width=12, height=9, unit="watt", empty="not told for shared GPUs and MIG",
            description="Power draw of the GPU of each worker, with the median of all. Workers that wait draw as much as the one they "
            "wait for: "
            "no sign of who is slow.",
            queries=(
                Query(expression=_own("power_watts"), legend=_FRAGMENT),
                Query(expression=f"quantile(0.5, {_own('power_watts')})", legend="median", colour="text"),
            ),
        ),
        Panel(
            kind="graph", title="Clock of each worker", width=12, height=9, unit="percentunit", maximum=1, empty="no GPU reports its clock",
            description="Clock of the multiprocessors as a share of the board's highest. Below 1 at the power limit is normal; "
            f"one worker below {_STRAGGLER_CLOCK:.0%} of the others of its model holds them up.",
            queries=(Query(expression=_CLOCK, legend=_FRAGMENT),),
        ),
        Panel(
            kind="timeline", title="Held down by heat or supply", width=12, height=8, empty="no GPU tells its reasons",
            marks=(Mark(value="0", text="no", colour="green"), Mark(value="1", text="held down", colour="orange")), maximum=1,
            description="Workers whose GPU is held down by heat, by its own protection or by its power supply. "
            "The power limit is left out: it is normal under load.",
            queries=(Query(
                expression=_joined(f'gpuwatch_gpu_throttle_active{{{CLUSTER}, reason=~"{HELD_DOWN}"}}'), legend=_FRAGMENT,
            ),),
        ),
        Panel(
            kind="graph", title="NVLink of each worker", width=12, height=8, unit="Bps", empty="no NVLink on these GPUs",
            description="Data over NVLink, both directions, while the job held the GPU. Collectives within a node go here.",
            queries=(Query(expression=_NVLINK, legend=_FRAGMENT),),
        ),
        Panel(
            kind="graph", title="PCIe of each worker", width=12, height=8, unit="Bps", empty="not read on these GPUs",
            description="Data over PCIe, both directions, of the whole GPU: input and whatever has no NVLink. On GPUs before Hopper it is "
            "a sample of 20 ms and off by default.",
            queries=(Query(expression=_PCIE, legend=_FRAGMENT),),
        ),
        Panel(
            kind="graph", title="Memory of each worker", width=12, height=8, unit="bytes", empty="not told for shared GPUs",
            description="Memory in use by the worker. TensorFlow maps nearly all of it when it starts: full memory is no need for more, "
            "unless memory growth is switched on.",
            queries=(Query(expression=_own("memory_used_bytes"), legend=_FRAGMENT),),
        ),
    ),
)

JOB_BOARD: Final = Board(
    name="job", title="gpuwatch / Job", question="Is my training using its GPUs evenly, and if not which worker?",
    variables=(
        CLUSTERS,
        Variable(
            name="namespace", title="Namespace", label="namespace", selector=f"gpuwatch_job_gpu_info{{{CLUSTER}}}", several=False,
        ),
        Variable(
            name="job_kind", title="Kind", label="job_kind",
            selector=f'gpuwatch_job_gpu_info{{{CLUSTER}, namespace="$namespace"}}',
        ),
        Variable(
            name="job_name", title="Job", label="job_name", several=False,
            selector=f'gpuwatch_job_gpu_info{{{CLUSTER}, namespace="$namespace", job_kind=~"$job_kind"}}',
        ),
    ),
    rows=(_ANSWER, WHY, _WORKERS, _TIME),
    annotations=(
        Annotation(
            name="XID", expression=f"1000 * max by (node, gpu, xid) ({_XIDS})", text="XID {{xid}} on {{node}} / GPU {{gpu}}", colour="red",
            at_value=True,
        ),
        Annotation(
            name="Pod began", expression=f"count by (pod) ({_INFO} unless {_INFO} offset 2m)", text="{{pod}} began to hold a GPU",
            colour="blue",
        ),
    ),
)
# fmt: on
