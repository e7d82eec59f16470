"""Agent: can I trust the other five boards?"""

from __future__ import annotations

from typing import Final

from gpuwatch.dashboards.board import Annotation, Board, Column, Mark, Panel, Query, Row, Step
from gpuwatch.dashboards.query import (
    ANY_IS_ORANGE,
    ANY_IS_RED,
    CLUSTER,
    CLUSTERS,
    INTERVAL,
    NODE_COLUMN,
    NODES,
    some,
)
from gpuwatch.rules.thresholds import DEFAULTS

_NODES: Final = f'{CLUSTER}, node=~"$node"'
_TARGET: Final = f'job="{DEFAULTS["job"]}", {_NODES}'
_NODE: Final = "cluster, node"
_LEGEND: Final = "{{node}}"
_READ_AGE: Final = float(DEFAULTS["read_age"])
_FAST: Final = 'tier="fast"'


def _agent(metric: str, matchers: str = "") -> str:
    return f"gpuwatch_{metric}{{{', '.join(filter(None, (_NODES, matchers)))}}}"


def _each(vector: str, *labels: str, operation: str = "max") -> str:
    return f"{operation} by ({', '.join(('node', *labels))}) ({vector})"


def _of(part: str, metric: str, labels: str = "reason") -> str:
    """Faults of a part, by its reason."""
    return f'label_replace(max by (node, {labels}) ({_agent(metric)}), "part", "{part}", "", "")'


_AGE: Final = f"time() - max by ({_NODE}) ({_agent('last_read_timestamp_seconds', _FAST)})"
_ERRORS: Final = _each(f"rate({_agent('nvml_errors_total')}[{INTERVAL}])", "call", "error")
_GPU_NODES: Final = f'max by ({_NODE}) (kube_node_status_allocatable{{{_NODES}, resource=~"nvidia_com_(gpu(_.+)?|mig_.+)"}}) > 0'
_WITHOUT: Final = f"{_GPU_NODES} unless on ({_NODE}) {_agent('build_info')}"
_FAULTS: Final = " or ".join(
    (
        f'label_replace(max by (node) ({_WITHOUT}), "part", "no agent", "", "")',
        _of("all GPUs", "fault"),
        _of("a GPU", "gpu_fault", "gpu, reason"),
        _of("jobs", "attribution_fault", "source, reason"),
        _of("XIDs", "xid_source_fault", "source, reason"),
    )
)


# Panels are read as blocks: the formatter would put each word on a line of its own.
# fmt: off
_ANSWER: Final = Row(
    title="Can they be trusted?",
    panels=(
        Panel(
            kind="stat", title="Agents", width=3, height=4, empty="no agent is scraped",
            description="Nodes whose agent was scraped last time. It should be the number of your GPU nodes.",
            queries=(Query(expression=f"count(count by ({_NODE}) ({_agent('build_info')}))"),),
        ),
        Panel(
            kind="stat", title="Nodes without agent", width=3, height=4, steps=ANY_IS_ORANGE, empty="kube-state-metrics is not scraped",
            description="Nodes that offer GPUs to pods and run no agent that is scraped. Their GPUs are on no board. Needs "
            "kube-state-metrics.",
            queries=(Query(expression=f"count({_WITHOUT}) or count({_GPU_NODES}) * 0"),),
        ),
        Panel(
            kind="stat", title="Scrapes that fail", width=3, height=4, steps=ANY_IS_ORANGE, empty="no target of the job gpuwatch",
            description="Agents that Prometheus knows and cannot reach. What the other boards show of their nodes ends there.",
            queries=(Query(expression=f"count(up{{{_TARGET}}} == 0) or count(up{{{_TARGET}}}) * 0"),),
        ),
        Panel(
            kind="stat", title="Cannot read any GPU", width=3, height=4, steps=ANY_IS_RED, empty="no agent is scraped",
            description="Agents that run and read no GPU at all: the driver is missing, broken or being replaced.",
            queries=(Query(expression=some(f"count(max by ({_NODE}) ({_agent('up')}) == 0)")),),
        ),
        Panel(
            kind="stat", title="Oldest reading", width=3, height=4, unit="s", decimals=0, empty="no agent has read a GPU", minimum=None,
            steps=(Step(value=None, colour="green"), Step(value=_READ_AGE, colour="orange")),
            description="Age of the oldest newest reading among the agents that read, by the clock of Prometheus. A node whose clock is "
            "behind looks old too.",
            queries=(Query(expression=f"max({_AGE} and on ({_NODE}) {_agent('up')} == 1)"),),
        ),
        Panel(
            kind="stat", title="Sources of jobs down", width=3, height=4, steps=ANY_IS_ORANGE, empty="attribution is off everywhere",
            description="Sources of attribution (kubelet, API server, processes) that do not answer, over all nodes. Jobs of those nodes "
            "grow "
            "old or are missing.",
            queries=(Query(expression=f"sum(1 - max by ({_NODE}, source) ({_agent('attribution_up')}))"),),
        ),
        Panel(
            kind="stat", title="Nodes deaf to XIDs", width=3, height=4, steps=ANY_IS_ORANGE, empty="no agent is scraped",
            description="Nodes where no source of XIDs listens: there no XID does not mean that there was none.",
            queries=(Query(expression=some(f"count(max by ({_NODE}) ({_agent('xid_source_up')}) == 0)")),),
        ),
        Panel(
            kind="stat", title="Unknown devices", width=3, height=4, steps=ANY_IS_ORANGE, empty="attribution is off everywhere",
            description="Devices that the kubelet has given out and NVML does not know: after a change of MIG or of the device plugin.",
            queries=(Query(expression=f"sum(max by ({_NODE}) ({_agent('unknown_devices')}))"),),
        ),
    ),
)
_NODES_ROW: Final = Row(
    title="Each agent",
    panels=(
        Panel(
            kind="table", title="Node by node", width=14, height=9, empty="no agent is scraped", sort="Reads",
            description="One row for each node. Reads: whether at least one GPU was read in time. Unheld are GPUs and MIG instances "
            "without a "
            "holder, which is no fault.",
            queries=(
                Query(expression=_each(_agent("up"), "cluster"), column="Reads"),
                Query(expression=_each(_AGE, "cluster"), column="Age"),
                Query(expression=_each(_agent("read_duration_seconds", _FAST), "cluster"), column="Read"),
                Query(expression=_each(_agent("series"), "cluster"), column="Series"),
                Query(expression=_each(f"scrape_duration_seconds{{{_TARGET}}}", "cluster"), column="Scrape"),
                Query(expression=_each(_agent("unattributed_gpus"), "cluster"), column="Unheld"),
                Query(expression=_each(f"process_resident_memory_bytes{{{_TARGET}}}", "cluster"), column="Memory"),
            ),
            columns=(
                NODE_COLUMN, Column(title="Cluster", label="cluster"),
                Column(title="Reads", marks=(Mark(value="0", text="no", colour="red"), Mark(value="1", text="yes", colour="green")),
                width=70),
                Column(title="Age", unit="s", decimals=0, width=80), Column(title="Read", unit="s", decimals=2, width=80),
                Column(title="Series", unit="short", decimals=0, width=80), Column(title="Scrape", unit="s", decimals=1, width=80),
                Column(title="Unheld", unit="short", decimals=0, width=80), Column(title="Memory", unit="bytes", decimals=0, width=90),
            ),
        ),
        Panel(
            kind="table", title="What does not work, and why", width=10, height=9, empty="no agent that answers complains", sort="Node",
            description="Every fault that agents tell of themselves, with its reason. not_supported and not_found may be how the board is. "
            "What to do about each stands in the output of gpuwatch check on the node.",
            queries=(Query(expression=_FAULTS),),
            columns=(
                NODE_COLUMN, Column(title="Part", label="part", width=80), Column(title="GPU", label="gpu", width=50),
                Column(title="Source", label="source"), Column(title="Reason", label="reason"),
            ),
        ),
        Panel(
            kind="table", title="Versions", width=10, height=6, empty="no agent is scraped", sort="Version",
            description="Nodes by version. simulated is true where no real GPU is read: everything of such a node is made up.",
            queries=(Query(
                expression=f"count by (version, python, simulated) (max by ({_NODE}, version, python, simulated) ({_agent('build_info')}))",
                column="Nodes",
            ),),
            columns=(
                Column(title="Version", label="version"), Column(title="Python", label="python"), Column(title="Simulated",
                label="simulated"),
                Column(title="Nodes", unit="short", decimals=0, width=80),
            ),
        ),
        Panel(
            kind="timeline", title="Agents that read their GPUs", width=14, height=6, empty="no agent is scraped", maximum=1,
            marks=(Mark(value="0", text="cannot read", colour="red"), Mark(value="1", text="reads", colour="green")),
            description="When each agent could read. A gap is time without an answer.",
            queries=(Query(expression=_each(_agent("up")), legend=_LEGEND),),
        ),
    ),
)


def _graph(title: str, unit: str, empty: str, description: str, *queries: Query, width: int = 12) -> Panel:
    return Panel(kind="graph", title=title, width=width, height=8, unit=unit, empty=empty, description=description, queries=queries)


_READING: Final = Row(
    title="Reading",
    panels=(
        _graph(
            "Slowest reads", "s", "no agent is scraped",
            "Longest of the last passes over the GPUs, of the ten slowest nodes, by tier. The fast tier is read every second: near one "
            "second "
            "it is too slow.",
            Query(expression=f"topk(10, {_each(_agent('read_duration_seconds'), 'tier')})", legend="{{node}} {{tier}}"),
        ),
        _graph(
            "Failed NVML calls", "cps", "no call has failed since the agents started",
            "Calls to the driver that fail each second, by call and error. A call that the board does not support is not counted.",
            Query(
                expression=f"topk(10, {_ERRORS})",
                legend="{{node}} {{call}}: {{error}}",
            ),
        ),
        _graph(
            "Rejected values", "cps", "no value was rejected since the agents started",
            "Values outside their physical range, which are dropped instead of shown. A steady rate is a driver's defect worth a report.",
            Query(expression=_each(f"rate({_agent('nvml_rejected_values_total')}[{INTERVAL}])", "field"), legend="{{node}} {{field}}"),
        ),
        _graph(
            "Reader restarts", "short", "no reader was restarted since the agents started",
            "Restarts of the process that reads the driver, since the agent started, by reason. One after an upgrade of the driver is "
            "meant.",
            Query(expression=_each(_agent("reader_restarts_total"), "reason"), legend="{{node}} {{reason}}"),
        ),
    ),
)
_KNOWING: Final = Row(
    title="Knowing",
    panels=(
        _graph(
            "Age of what is known of jobs", "s", "attribution is off everywhere",
            "Age of the facts that each source told last, of the ten oldest. While a source is down they are used on, and grow older.",
            Query(expression=f"topk(10, {_each(_agent('attribution_age_seconds'), 'source')})", legend="{{node}} {{source}}"), width=8,
        ),
        _graph(
            "Devices without a holder", "short", "attribution is off everywhere",
            "GPUs and MIG instances that no pod holds, by node. All of a node at once: look whether its source answers.",
            Query(expression=f"topk(10, {_each(_agent('unattributed_gpus'))})", legend=_LEGEND), width=8,
        ),
        _graph(
            "Lines of the kernel log about GPUs", "cps", "no line was read since the agents started",
            "Lines about GPUs and NVSwitches each second, by kind. overwritten are lines that were lost unread.",
            Query(expression=_each(f"rate({_agent('xid_log_lines_total')}[{INTERVAL}])", "kind"), legend="{{node}} {{kind}}"), width=8,
        ),
        _graph(
            "Errors of NVSwitches", "short", "no NVSwitch reported an error since the agents started",
            "Errors that NVSwitches of the node reported, by SXid number, since the agent started.",
            Query(expression=_each(_agent("nvswitch_errors_total"), "sxid", "severity"), legend="{{node}} SXid {{sxid}} ({{severity}})"),
        ),
        _graph(
            "Events for pods and nodes", "cps", "kubernetes.events is off, or nothing was told yet",
            "Events about GPUs that the agents sent to Kubernetes each second, by what became of them.",
            Query(expression=_each(f"rate({_agent('kubernetes_events_total')}[{INTERVAL}])", "result"), legend="{{node}} {{result}}"),
        ),
    ),
)
_COST: Final = Row(
    title="What it costs",
    panels=(
        _graph(
            "Processor time", "percentunit", "no agent is scraped",
            "Share of one core that the agent uses, of the ten greatest, without its reader process.",
            Query(expression=f"topk(10, {_each(f'rate(process_cpu_seconds_total{{{_TARGET}}}[{INTERVAL}])')})", legend=_LEGEND),
        ),
        _graph(
            "Memory of the agent", "bytes", "no agent is scraped",
            "Memory of the agent's own process, of the ten greatest, without its reader process.",
            Query(expression=f"topk(10, {_each(f'process_resident_memory_bytes{{{_TARGET}}}')})", legend=_LEGEND),
        ),
        _graph(
            "Samples of a scrape", "short", "no target of the job gpuwatch",
            "Samples that Prometheus takes from each node, of the ten greatest. MIG and many holders make more.",
            Query(expression=f"topk(10, {_each(f'scrape_samples_scraped{{{_TARGET}}}')})", legend=_LEGEND),
        ),
        _graph(
            "Duration of a scrape", "s", "no target of the job gpuwatch",
            "Time that a scrape takes, of the ten slowest. A scrape never touches the driver.",
            Query(expression=f"topk(10, {_each(f'scrape_duration_seconds{{{_TARGET}}}')})", legend=_LEGEND),
        ),
    ),
)

AGENT_BOARD: Final = Board(
    name="agent", title="gpuwatch / Agent", question="Can I trust the other five boards?",
    variables=(CLUSTERS, NODES),
    rows=(_ANSWER, _NODES_ROW, _READING, _KNOWING, _COST),
    annotations=(
        Annotation(
            name="Agent restarted", text="the agent on {{node}} started", colour="blue", at_value=True,
            expression=f"1000 * max by (node) (process_start_time_seconds{{{_TARGET}}})",
        ),
    ),
)
# fmt: on
