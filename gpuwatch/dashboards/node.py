"""Node & GPU: what is wrong with this machine?"""

from __future__ import annotations

from typing import Final

from gpuwatch.dashboards.board import Annotation, Board, Column, Link, Mark, Panel, Query, Row, Step, Variable
from gpuwatch.dashboards.query import (
    ANY_IS_ORANGE,
    ANY_IS_RED,
    CLUSTER,
    CLUSTERS,
    GPUS,
    INTERVAL,
    JOB_COLUMN,
    MODEL_COLUMN,
    NAMESPACE_COLUMN,
    NODES,
    NOT_REPORTED,
    SEVERITY_COLUMN,
    TO_JOB,
    firing,
    ranked,
    some,
    told,
)
from gpuwatch.rules.recording import HELD_DOWN, NVLINKS_UP
from gpuwatch.rules.thresholds import DEFAULTS
from gpuwatch.rules.words import DEVICE

_GPUS: Final = f'{CLUSTER}, node=~"$node", gpu=~"$gpu"'
_INFO: Final = f"gpuwatch_gpu_info{{{_GPUS}}}"
_EACH: Final = "gpu, model"
_LEGEND: Final = "GPU {{gpu}}"
_STATES: Final = (
    Mark(value="0", text="ok", colour="green"), Mark(value="1", text="degraded", colour="orange"),
    Mark(value="2", text="unknown", colour="red"), Mark(value="3", text="failed", colour="red"),
)  # fmt: skip
_ENFORCED: Final = 'limit="enforced"'
_SLOWDOWN: Final = 'limit="slowdown"'
_DIE: Final = 'sensor="gpu"'
_SM: Final = 'clock="sm"'
_UNCORRECTED: Final = 'severity="uncorrected", scope="volatile"'
_NUMBER: Final = Column(title="GPU", label="gpu", width=50)
_FACTS: Final = ("model", "uuid", "serial", "board_part_number", "driver", "vbios", "pci_bus_id", "ecc", "mig_mode")
_THERMAL: Final = float(DEFAULTS["hardware_thermal"])


def _gpu(metric: str, matchers: str = "") -> str:
    return f"gpuwatch_gpu_{metric}{{{', '.join(filter(None, (_GPUS, matchers)))}}}"


def _each(vector: str, *labels: str, operation: str = "max") -> str:
    return f"{operation} by ({', '.join(('gpu', *labels))}) ({vector})"


def _rate(metric: str, matchers: str = "") -> str:
    return f"rate({_gpu(metric, matchers)}[{INTERVAL}])"


def _cell(vector: str, column: str) -> Query:
    """A column of the table of GPUs."""
    return Query(expression=told(vector, _INFO, _EACH), column=column)


def _devices(metric: str, matchers: str = "") -> str:
    """One series for each GPU."""
    return f"max by ({DEVICE}, {_EACH}) ({_gpu(metric, matchers)})"


def _share(title: str) -> Column:
    return Column(title=title, unit="percentunit", decimals=0, width=80, marks=(NOT_REPORTED,))


_ON_NODE: Final = f'{CLUSTER}, node=~"$node"'
_FAULTY: Final = f'reason=~"{HELD_DOWN}"'
_VOLATILE: Final = 'scope="volatile"'
_STATE: Final = " or ".join(
    _gpu("health_state", f'state="{state}"') + f" * {code}" for code, state in enumerate(("degraded", "unknown", "failed"), start=1)
)
_MARGIN: Final = (
    f"{_gpu('temperature_margin_celsius')} or on ({DEVICE}) "
    f"{_devices('temperature_limit_celsius', _SLOWDOWN)} - on ({DEVICE}, {_EACH}) {_devices('temperature_celsius', _DIE)}"
)
_OF_SERIES: Final = Link(title=TO_JOB.title, board="job", carries=(("namespace", "namespace"), ("job_name", "job_name")))
_LINKS_LOST: Final = f'max_over_time({NVLINKS_UP}{{{CLUSTER}, node=~"$node"}}[$__range]) - {NVLINKS_UP}{{{CLUSTER}, node=~"$node"}}'


def _alerts(matcher: str) -> str:
    return firing(f"{_ON_NODE}, {matcher}")


# Panels are read as blocks: the formatter would put each word on a line of its own.
# fmt: off
_BANNER: Final = Row(
    title="In a word",
    panels=(
        Panel(
            kind="stat", title="Worst verdict", width=4, height=4, marks=_STATES, empty="no verdict: the agent is away or reads nothing",
            description="The worst verdict among the GPUs chosen: ok, degraded (works with a flaw), unknown (cannot be read) or failed "
            "(drain now).",
            queries=(Query(expression=f"max({_STATE})"),),
        ),
        Panel(
            kind="stat", title="Alerts", width=3, height=4, steps=ANY_IS_ORANGE, empty="Prometheus does not answer",
            description="Alerts that fire about this node and its GPUs. They are listed below.",
            queries=(Query(expression=some(f"count({firing(_ON_NODE)})")),),
        ),
        Panel(
            kind="stat", title="Last XID", width=4, height=4, unit="dateTimeFromNow", empty="none was heard", minimum=None,
            description="When the driver last reported an XID about one of these GPUs. None was heard is good news only while a source of "
            "XIDs "
            "listens: the Agent board tells.",
            queries=(Query(expression=f"1000 * max({_gpu('xid_last_timestamp_seconds')})"),),
        ),
        Panel(
            kind="stat", title="Uncorrected ECC", width=3, height=4, steps=ANY_IS_RED, empty="not reported by these GPUs",
            description="Uncorrected memory errors since the driver was loaded, over all locations. Consumer boards report none.",
            queries=(Query(expression=f"sum(max by (gpu, location) ({_gpu('ecc_errors_total', _UNCORRECTED)}))"),),
        ),
        Panel(
            kind="stat", title="Wait for a repair", width=3, height=4, steps=ANY_IS_ORANGE, empty="not reported by these GPUs",
            description="GPUs with a row or page of memory that is replaced at the next reset.",
            queries=(Query(
                expression=f"count(max by (gpu) ({_gpu('row_remap_pending')} or {_gpu('retired_pages_pending')}) == 1) "
                f"or sum(max by (gpu) ({_gpu('row_remap_pending')} or {_gpu('retired_pages_pending')})) * 0",
            ),),
        ),
        Panel(
            kind="stat", title="Held down", width=3, height=4, steps=ANY_IS_ORANGE, empty="no GPU tells its reasons",
            description="GPUs whose clocks are held down now by heat, by the board's own protection or by its power supply. "
            "The power limit is left out.",
            queries=(Query(expression=f"sum(max by (gpu) ({_gpu('throttle_active', _FAULTY)}))"),),
        ),
        Panel(
            kind="stat", title="NVLinks lost", width=4, height=4, steps=ANY_IS_RED, empty="no NVLink on this node",
            description="NVLinks that were up within the time range and are not now, of the whole node. A link that never was up is not "
            "in it.",
            queries=(Query(expression=f"sum({_LINKS_LOST})"),), exempt="the recording rule knows GPUs by UUID, not by number",
        ),
    ),
)
_GPU_TABLES: Final = Row(
    title="GPUs",
    panels=(
        Panel(
            kind="table", title="GPUs now", width=24, height=8, empty="no GPU reported: the agent is away or reads nothing", sort="GPU",
            description="One row for each GPU. Power is the share of the limit in force; at 100 % is normal under load. "
            "Margin is what is left to the board's own limit, in degrees. Slowed is the share of time held down by heat or supply. "
            "n/a is not zero: the board does not report it, or it could not be read.",
            queries=(
                Query(expression=f"max by ({_EACH}) ({_STATE})", column="Verdict"),
                _cell(_gpu("utilization_ratio"), "Use"),
                _cell(f"{_devices('memory_used_bytes')} / on ({DEVICE}, {_EACH}) {_devices('memory_total_bytes')}", "Memory"),
                _cell(f"{_devices('power_watts')} / on ({DEVICE}, {_EACH}) {_devices('power_limit_watts', _ENFORCED)}", "Power"),
                _cell(_gpu("temperature_celsius", 'sensor="gpu"'), "Heat"),
                Query(expression=f"max by ({_EACH}) ({_MARGIN})", column="Margin"),
                _cell(f"{_devices('clock_hertz', _SM)} / on ({DEVICE}, {_EACH}) {_devices('clock_max_hertz', _SM)}", "Clock"),
                _cell(f"sum by ({_EACH}) ({_rate('throttled_seconds_total', _FAULTY)})", "Slowed"),
                _cell(f"sum by ({_EACH}) (max by ({_EACH}, location) ({_gpu('ecc_errors_total', _UNCORRECTED)}))", "ECC"),
                _cell(_gpu("pcie_link_width"), "Lanes"),
                _cell(f"sum by ({_EACH}) (max by ({_EACH}, link) ({_gpu('nvlink_up')}))", "NVLinks"),
                Query(expression=f"1000 * max by ({_EACH}) ({_gpu('xid_last_timestamp_seconds')})", column="XID"),
            ),
            columns=(
                _NUMBER, MODEL_COLUMN, Column(title="Verdict", marks=_STATES, width=90),
                _share("Use"), _share("Memory"), _share("Power"),
                Column(title="Heat", unit="celsius", decimals=0, width=75, marks=(NOT_REPORTED,)),
                Column(title="Margin", unit="celsius", decimals=0, width=80, marks=(Mark(value="null", text="n/a"),)), _share("Clock"),
                Column(
                    title="Slowed", unit="percentunit", decimals=0, width=80, marks=(NOT_REPORTED,),
                    steps=(Step(value=None, colour="text"), Step(value=_THERMAL, colour="orange")),
                ),
                Column(
                    title="ECC", unit="short", decimals=0, width=70, marks=(NOT_REPORTED,),
                    steps=(Step(value=None, colour="text"), Step(value=1, colour="red")),
                ),
                Column(title="Lanes", unit="short", decimals=0, width=70, marks=(NOT_REPORTED,)),
                Column(title="NVLinks", unit="short", decimals=0, width=80, marks=(NOT_REPORTED,)),
                Column(title="XID", unit="dateTimeFromNow", width=120, marks=(Mark(value="null", text="none"),)),
            ),
        ),
        Panel(
            kind="table", title="Why the verdict is not ok", width=12, height=7, empty="no reason is given", sort="GPU",
            description="Each reason with what to do, as docs/health.md explains it. The worst reason makes the verdict.",
            queries=(Query(expression=_each(_gpu("health_reason"), "model", "reason", "action")),),
            columns=(_NUMBER, MODEL_COLUMN, Column(title="Reason", label="reason"), Column(title="Action", label="action")),
        ),
        Panel(
            kind="table", title="Alerts about this node", width=12, height=7, empty="none fires, or the rules are not loaded",
            sort="Severity",
            description="Alerts that fire about the node and all of its GPUs.",
            queries=(ranked(_alerts, "alertname, gpu, namespace, job_name"),),
            columns=(
                SEVERITY_COLUMN, Column(title="Alert", label="alertname"), _NUMBER, NAMESPACE_COLUMN,
                JOB_COLUMN,
            ),
            exempt="an alert about the node has no GPU",
        ),
        Panel(
            kind="timeline", title="Verdict of each GPU", width=12, height=7, marks=_STATES, maximum=3,
            empty="no verdict in this range",
            description="How the verdict changed. A gap is time in which no agent answered, not health.",
            queries=(Query(expression=_each(_STATE), legend=_LEGEND),),
        ),
        Panel(
            kind="timeline", title="Who held which GPU", width=12, height=7, empty="nobody held one in this range", maximum=1,
            marks=(Mark(value="1", text="held", colour="blue"),),
            description="One row for each job that held a GPU, with the time in which it did. Two rows of one GPU at a time: it is "
            "shared, or "
            "cut by MIG.",
            queries=(Query(
                expression=f"max by (gpu, namespace, job_name) (gpuwatch_job_gpu_info{{{_GPUS}}})",
                legend="GPU {{gpu}}: {{namespace}}/{{job_name}}",
            ),),
            links=(_OF_SERIES,),
        ),
    ),
)


def _graph(
    title: str, unit: str, empty: str, description: str, *queries: Query, maximum: float | None = None, steps: tuple[Step, ...] = (),
    minimum: float | None = 0.0,
) -> Panel:
    return Panel(
        kind="graph", title=title, width=12, height=8, unit=unit, empty=empty, description=description, queries=queries, maximum=maximum,
        steps=steps, minimum=minimum,
    )


_USE: Final = Row(
    title="Use and memory",
    panels=(
        _graph(
            "Use", "percentunit", "not reported: MIG mode is on, or the GPU cannot be read",
            "Share of time in which any kernel ran, however small. 100 % is no proof of much work: see the next graph.",
            Query(expression=_each(_gpu("utilization_ratio")), legend=_LEGEND), maximum=1,
        ),
        _graph(
            "Work: multiprocessors and tensor cores", "percentunit", "not reported by these GPUs (before Hopper)",
            "Share of multiprocessors that had work, share of time in which tensor cores worked, share of the memory's bandwidth. "
            "Only Hopper and newer report it.",
            Query(expression=_each(_gpu("sm_active_ratio")), legend="GPU {{gpu}} multiprocessors"),
            Query(expression=_each(_gpu("tensor_active_ratio")), legend="GPU {{gpu}} tensor cores"),
            Query(expression=_each(_gpu("dram_active_ratio")), legend="GPU {{gpu}} bandwidth"), maximum=1,
        ),
        _graph(
            "Memory in use", "bytes", "not reported: the GPU cannot be read",
            "Memory held by processes. TensorFlow maps nearly all of it when it starts: full is no need for more.",
            Query(expression=_each(_gpu("memory_used_bytes")), legend=_LEGEND),
        ),
        _graph(
            "Memory activity and engines", "percentunit", "not reported: MIG mode is on, or the GPU cannot be read",
            "Share of time in which memory was read or written, and in which a media engine was busy.",
            Query(expression=_each(_gpu("memory_activity_ratio")), legend="GPU {{gpu}} memory"),
            Query(expression=f"{_each(_gpu('engine_utilization_ratio'), 'engine')} > 0", legend="GPU {{gpu}} {{engine}}"), maximum=1,
        ),
    ),
)
_HEAT: Final = Row(
    title="Power, heat and clocks",
    panels=(
        _graph(
            "Power and its limit", "watt", "not reported: the GPU cannot be read",
            "Power draw and the limit in force. At the limit is normal in training; a limit below that of the others is not.",
            Query(expression=_each(_gpu("power_watts")), legend=_LEGEND),
            Query(expression=_each(_gpu("power_limit_watts", _ENFORCED)), legend="GPU {{gpu}} limit"),
        ),
        _graph(
            "Heat and the board's own limits", "celsius", "not reported: the GPU cannot be read",
            "Temperature of the die and, with HBM, of the memory, with the temperature at which the board slows down. Judge by the "
            "distance "
            "to that, not by the number: a T4 lives at 75 °C.",
            Query(expression=_each(_gpu("temperature_celsius"), "sensor"), legend="GPU {{gpu}} {{sensor}}"),
            Query(expression=_each(_gpu("temperature_limit_celsius", 'limit="slowdown"')), legend="GPU {{gpu}} slows down"),
        ),
        _graph(
            "Clock of the highest", "percentunit", "not reported: the GPU cannot be read",
            "Clock of the multiprocessors as a share of the board's highest. Idle boards lower it; at the power limit it swings below 1.",
            Query(
                expression=_each(f"{_devices('clock_hertz', _SM)} / on ({DEVICE}, {_EACH}) {_devices('clock_max_hertz', _SM)}"),
                legend=_LEGEND,
            ), maximum=1,
        ),
        _graph(
            "Held down, by reason", "percentunit", "none was held down, or no GPU counts the time",
            "Share of time in which clocks were held down, by reason. power and software_power_cap are normal under load; the dashed line "
            "is "
            "where GpuHardwareThermalSlowdown begins for the thermal ones.",
            Query(
                expression=f"{_each(_rate('throttled_seconds_total'), 'reason')} > 0", legend="GPU {{gpu}} {{reason}}",
            ), maximum=1, steps=(Step(value=None, colour="text"), Step(value=_THERMAL, colour="orange")),
        ),
    ),
)
_FAULTS: Final = Row(
    title="Memory errors and XIDs",
    panels=(
        _graph(
            "ECC errors since the driver was loaded", "short", "not reported by these GPUs",
            "Errors of the memory, over all locations. Corrected ones are harmless one by one; a steep line is a storm. Uncorrected ones "
            "lost data.",
            Query(
                expression=f'sum by (gpu, severity) (max by (gpu, severity, location) ({_gpu("ecc_errors_total", _VOLATILE)}))',
                legend="GPU {{gpu}} {{severity}}",
            ),
        ),
        _graph(
            "Memory replaced", "short", "none was replaced, or not reported by these GPUs",
            "Rows replaced by spare ones (from Ampere on) or pages taken out of use (before). It only grows; new ones come with XIDs 63 "
            "or 64.",
            Query(expression=f"{_each(_gpu('remapped_rows'), 'severity')} > 0", legend="GPU {{gpu}} rows, {{severity}}"),
            Query(expression=f"{_each(_gpu('retired_pages'), 'cause')} > 0", legend="GPU {{gpu}} pages, {{cause}}"),
        ),
        Panel(
            kind="table", title="XIDs", width=24, height=6, empty="no XID was heard since the agent started", sort="-Last",
            description="Every XID since the agent started, by number, with when it came last and how often. Its meaning and what to do "
            "stand "
            "in docs/health.md. The mark of an XID in the graphs is at its own time.",
            queries=(
                Query(
                    expression=f"1000 * {_each(_gpu('xid_last_timestamp_seconds'), 'model', 'xid', 'category', 'severity')}", column="Last",
                ),
                Query(expression=_each(_gpu("xid_errors_total"), "model", "xid", "category", "severity"), column="Times"),
            ),
            columns=(
                _NUMBER, MODEL_COLUMN, Column(title="XID", label="xid", width=70),
                Column(title="Category", label="category"), Column(title="Severity", label="severity"),
                Column(title="Last", unit="dateTimeFromNow"), Column(title="Times", unit="short", decimals=0),
            ),
        ),
    ),
)
_LINKS: Final = Row(
    title="Links",
    panels=(
        _graph(
            "PCIe traffic", "Bps", "not read on these GPUs",
            "Data over PCIe. On GPUs before Hopper it is a sample of 20 ms and off by default.",
            Query(expression=_each(_gpu("pcie_throughput_bytes_per_second"), "direction"), legend="GPU {{gpu}} {{direction}}"),
        ),
        _graph(
            "PCIe lanes and replays", "short", "not reported: the GPU cannot be read",
            "Lanes now, and packets sent again each minute. Fewer lanes than before: the seat or the riser. A few replays are normal.",
            Query(expression=_each(_gpu("pcie_link_width")), legend="GPU {{gpu}} lanes"),
            Query(expression=f"{_each(_rate('pcie_replays_total'))} * 60 > 0", legend="GPU {{gpu}} replays a minute"),
        ),
        _graph(
            "NVLink traffic", "Bps", "no NVLink on these GPUs",
            "Data over all NVLinks of a GPU. Flat at zero in a job over several GPUs: it does not use them.",
            Query(expression=_each(_rate("nvlink_bytes_total"), "direction"), legend="GPU {{gpu}} {{direction}}"),
        ),
        _graph(
            "NVLinks up and their errors", "short", "no NVLink on these GPUs",
            "Links that are up, and errors each minute by kind. Links that were never connected are down and no fault.",
            Query(expression=f"sum by (gpu) (max by (gpu, link) ({_gpu('nvlink_up')}))", legend="GPU {{gpu}} up"),
            Query(expression=f"{_each(_rate('nvlink_errors_total'), 'kind')} * 60 > 0", legend="GPU {{gpu}} {{kind}} a minute"),
        ),
    ),
)
_IDENTITY: Final = Row(
    title="What is in it", collapsed=True,
    panels=(
        Panel(
            kind="table", title="Inventory", width=24, height=7, empty="no GPU reported: the agent is away or reads nothing", sort="GPU",
            description="What a vendor asks for. A field is empty where the board does not report it.",
            queries=(Query(expression=_each(_INFO, *_FACTS)),),
            columns=(
                _NUMBER, MODEL_COLUMN, Column(title="UUID", label="uuid"),
                Column(title="Serial", label="serial"), Column(title="Part", label="board_part_number"),
                Column(title="Driver", label="driver"), Column(title="VBIOS", label="vbios"), Column(title="PCI", label="pci_bus_id"),
                Column(title="ECC", label="ecc", width=90), Column(title="MIG", label="mig_mode", width=90),
            ),
        ),
    ),
)

NODE_BOARD: Final = Board(
    name="node", title="gpuwatch / Node & GPU", question="What is wrong with this machine?",
    variables=(
        CLUSTERS,
        Variable(name="node", title="Node", label="node", selector=NODES.selector, several=False),
        GPUS,
    ),
    rows=(_BANNER, _GPU_TABLES, _USE, _HEAT, _FAULTS, _LINKS, _IDENTITY),
    annotations=(
        Annotation(
            name="XID", expression=f"1000 * {_each(_gpu('xid_last_timestamp_seconds'), 'xid', 'category')}",
            text="XID {{xid}} ({{category}}) on GPU {{gpu}}", colour="red", at_value=True,
        ),
        Annotation(
            name="Agent restarted", text="the agent on {{node}} started", colour="blue", at_value=True,
            expression=f'1000 * max by (node) (process_start_time_seconds{{job="{DEFAULTS["job"]}", {CLUSTER}, node=~"$node"}})',
        ),
    ),
)
# fmt: on
