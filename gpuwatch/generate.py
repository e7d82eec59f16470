"""Files that are made from the code and committed, so that neither can drift from the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwatch.chart.values_schema import values_schema
from gpuwatch.dashboards.pack import board_files
from gpuwatch.health.reference import health_page
from gpuwatch.metrics.catalog import GPU_LABELS, METRICS, MIG_LABELS, NODE_LABELS, UNITS, Metric
from gpuwatch.rules import alertmanager, pack
from gpuwatch.rules.reference import alerts_page
from gpuwatch.rules.runbook import TABLES, with_xid_table
from gpuwatch.settings_page import settings_page
from gpuwatch.tensorflow.series import SERIES, TARGET_LABELS, Series

if TYPE_CHECKING:
    from pathlib import Path

_INTRODUCTION = """\
# Metrics

<!-- Made by `gpuwatch generate` from gpuwatch/metrics/catalog.py and gpuwatch/tensorflow/series.py: change those, not this page. -->

What every series has in common:

- **Absent is not zero.** A series is there only while its value is known. What a board does not support, what could not be read
  and what is too old is absent; a value is 0 only where the device said 0, and never NaN.
- **Base units.** The name ends in the unit; ratios go from 0 to 1. Counters end in `_total` and never fall while the agent runs,
  also when the driver restarts; `gpuwatch_gpu_ecc_errors_total`, `gpuwatch_gpu_pcie_replays_total` and the NVLink counters are the
  device's own and start again with it, which `rate()` and `increase()` handle.
- **States are 1 or 0**, facts are the labels of an `_info` metric whose value is 1. A label is empty where its fact is not known.
- **A GPU that does not answer** has `gpuwatch_gpu_up` 0 and a reason in `gpuwatch_gpu_fault`. It keeps its identity and the counters
  that the agent keeps, and has no other series.
- **Labels of the device come first:** {gpu}; a MIG instance adds {mig}. They stay the same
  while the device exists. Join on `uuid`; the number in `gpu` may change at the next start of the node.
  Metrics of gpuwatch itself have {node}.
"""
_TENSORFLOW = """
## TensorFlow jobs

Not from the agent: a training process that uses `gpuwatch.tensorflow` ([tensorflow.md](tensorflow.md)) exports these itself. It names
itself nowhere: {target} come from whoever scrapes it, as the chart's PodMonitor for jobs does; a text file
carries namespace and pod itself. Join with `gpuwatch_job_gpu_info` on namespace and pod. Counters count since the process began to train.

"""
_HEAD = "| metric | type | unit | labels | what it says | source |\n|---|---|---|---|---|---|\n"


def generate(root: Path, *, check: bool) -> list[str]:
    """Write the generated files below ``root``, or with ``check`` only compare them.

    Returns:
        Paths, relative to ``root``, of the files that differed from what the code says.

    Raises:
        OSError: a file or its directory cannot be read or written.
        SdkMissingError: the Grafana SDK, which draws the boards, is not installed.
        ValueError: a runbook has no place for its table of XIDs.
    """
    differing = []
    for path, content in (_files() | _runbooks(root)).items():
        target = root / path
        if target.is_file() and target.read_text(encoding="utf-8") == content:
            continue
        differing.append(path)
        if not check:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")
    return differing


def _files() -> dict[str, str]:
    return {
        "docs/metrics.md": metrics_page(),
        "docs/configuration.md": settings_page(),
        "docs/health.md": health_page(),
        "docs/alerts/README.md": alerts_page(),
        "deploy/manifests/prometheus-rules.yaml": pack.rule_file(),
        "deploy/manifests/prometheus-rule-object.yaml": pack.rule_object(),
        "deploy/manifests/alertmanager-example.yaml": alertmanager.example(),
        "deploy/helm/gpuwatch/files/rules.yaml": pack.chart_file(),
        "deploy/helm/gpuwatch/values.schema.json": values_schema(),
        **board_files(),
    }


def _runbooks(root: Path) -> dict[str, str]:
    """People write them; the tables in them are ours. One that is not there is not begun: a test asks for it."""
    paths = {f"docs/alerts/{alert}.md": severity for alert, severity in TABLES.items()}
    return {
        path: with_xid_table((root / path).read_text(encoding="utf-8"), severity)
        for path, severity in paths.items()
        if (root / path).is_file()
    }


def metrics_page() -> str:
    """The reference of all metrics, in Markdown."""
    groups: dict[str, list[Metric]] = {}
    for metric in METRICS:
        groups.setdefault(metric.group, []).append(metric)
    introduction = _INTRODUCTION.format(gpu=_codes(GPU_LABELS), mig=_codes(MIG_LABELS[len(GPU_LABELS) :]), node=_codes(NODE_LABELS))
    agent = "".join(f"\n## {_title(group)}\n\n{_HEAD}{''.join(map(_line, metrics))}" for group, metrics in groups.items())
    return f"{introduction}{agent}{_TENSORFLOW.format(target=_codes(TARGET_LABELS))}{_HEAD}{''.join(map(_line_of_job, SERIES))}"


def _title(group: str) -> str:
    return "MIG" if group == "mig" else group.capitalize()


def _line(metric: Metric) -> str:
    device = next(labels for labels in (MIG_LABELS, GPU_LABELS, NODE_LABELS) if metric.labels[: len(labels)] == labels)
    own = _codes(metric.labels[len(device) :]) or "-"
    return _cells(f"`{metric.name}`", metric.type, metric.unit.replace("_", " ") or "-", own, metric.help, metric.source)


def _line_of_job(series: Series) -> str:
    family = series.name.removesuffix("_total")
    unit = next((unit for unit in UNITS if family.endswith(f"_{unit}")), "-")
    return _cells(f"`{series.name}`", series.type, unit, _codes(series.labels) or "-", series.help, series.source)


def _cells(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _codes(labels: tuple[str, ...]) -> str:
    return ", ".join(f"`{label}`" for label in labels)
