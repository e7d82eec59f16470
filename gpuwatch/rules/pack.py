"""The whole pack, in the forms in which Prometheus takes it: a plain rule file, a PrometheusRule, and the file of the chart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

from gpuwatch.rules.agent import AGENT
from gpuwatch.rules.alert import Alert, Recording, placed
from gpuwatch.rules.cause import CAUSES
from gpuwatch.rules.fleet import FLEET
from gpuwatch.rules.gpu import WHOLE_GPU
from gpuwatch.rules.heat import HEAT
from gpuwatch.rules.links import LINKS
from gpuwatch.rules.memory import MEMORY
from gpuwatch.rules.recording import SHARED
from gpuwatch.rules.tensorflow import TENSORFLOW
from gpuwatch.rules.thresholds import DEFAULTS
from gpuwatch.rules.waste import WASTE
from gpuwatch.rules.workers import WORKERS
from gpuwatch.rules.xid import XIDS

ALERTS: Final[tuple[Alert, ...]] = (*AGENT, *WHOLE_GPU, *XIDS, *MEMORY, *HEAT, *LINKS, *WASTE, *TENSORFLOW, *FLEET)
RECORDINGS: Final[tuple[Recording, ...]] = (*SHARED, *WORKERS, *CAUSES)
_RECORDING_GROUP: Final = "gpuwatch-recording"
_VARIABLES: Final = {
    "gpu": "?var-node={{ $labels.node }}&var-gpu={{ $labels.gpu }}",
    "node": "?var-node={{ $labels.node }}",
    "job": "?var-namespace={{ $labels.namespace }}&var-job_name={{ $labels.job_name }}",
    "fleet": "",
}
_MADE: Final = "# Made by `gpuwatch generate` from gpuwatch/rules: change that, not this file.\n"


def rule_groups(alerts: Iterable[Alert] = ALERTS, recordings: Iterable[Recording] = RECORDINGS) -> list[dict[str, Any]]:
    """The groups of a rule file, with the thresholds still as ``${name}``."""
    groups: dict[str, list[dict[str, Any]]] = {_RECORDING_GROUP: [{"record": one.name, "expr": one.expression} for one in recordings]}
    for alert in alerts:
        groups.setdefault(alert.group, []).append(_entry(alert))
    return [{"name": name, "rules": rules} for name, rules in groups.items()]


def rule_file(values: Mapping[str, str] | None = None) -> str:
    """A rule file as Prometheus loads it. ``values``: thresholds other than the defaults.

    Raises:
        KeyError: there is no threshold of that name.
    """
    return _MADE + _dumped({"groups": _filled(rule_groups(), _chosen(values))})


def rule_object(values: Mapping[str, str] | None = None) -> str:
    """The same as a ``PrometheusRule`` of the Prometheus operator."""
    groups = _filled(rule_groups(), _chosen(values))
    body = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "gpuwatch", "labels": {"app.kubernetes.io/name": "gpuwatch"}},
        "spec": {"groups": groups},
    }
    return _MADE + _dumped(body)


def chart_file() -> str:
    """What the chart fills in: the groups with their ``${name}``, and the defaults."""
    return _MADE + _dumped({"defaults": DEFAULTS, "groups": rule_groups()})


def _entry(alert: Alert) -> dict[str, Any]:
    entry: dict[str, Any] = {"alert": alert.name, "expr": alert.expression}
    if alert.for_ != "0s":
        entry["for"] = alert.for_
    if alert.keep_firing != "0s":
        entry["keep_firing_for"] = alert.keep_firing
    entry["labels"] = {"severity": alert.severity}
    entry["annotations"] = {
        "summary": alert.summary,
        "description": alert.description,
        "runbook_url": f"${{runbooks}}/{alert.name}.md",
        "dashboard_url": f"${{grafana}}/d/gpuwatch-{alert.board}/{_VARIABLES[alert.subject]}",
    }
    return entry


def _chosen(values: Mapping[str, str] | None) -> dict[str, str]:
    unknown = set(values or {}) - set(DEFAULTS)
    if unknown:
        raise KeyError(f"no threshold {', '.join(sorted(unknown))}; expected one of: {', '.join(sorted(DEFAULTS))}")
    return {**DEFAULTS, **(values or {})}


def _filled(part: Any, values: Mapping[str, str]) -> Any:  # noqa: ANN401 - a tree of plain values
    if isinstance(part, str):
        return placed(part, values)
    if isinstance(part, dict):
        return {key: _filled(value, values) for key, value in part.items()}
    return [_filled(one, values) for one in part] if isinstance(part, list) else part


class _Dumper(yaml.SafeDumper):
    """Long texts on one line, as they are read."""


def _dumped(body: object) -> str:
    return yaml.dump(body, Dumper=_Dumper, sort_keys=False, width=1 << 20, allow_unicode=True)
