"""The page ``docs/alerts/README.md``, made from the alerts, the thresholds and the recording rules."""

from __future__ import annotations

from typing import Final

from gpuwatch.rules.alert import Alert, Threshold, placed
from gpuwatch.rules.cause import CAUSES
from gpuwatch.rules.pack import ALERTS, RECORDINGS
from gpuwatch.rules.recording import SHARED
from gpuwatch.rules.thresholds import DEFAULTS, THRESHOLDS
from gpuwatch.rules.workers import WORKERS

_INTRODUCTION: Final = """\
# Alerts

<!-- Made by `gpuwatch generate` from gpuwatch/rules/: change that, not this page. -->

Each alert has one runbook here. Its severity says who acts:

| severity | for whom | when |
|---|---|---|
| `critical` | whoever is on call | now: something is broken, or what runs there is wrong or dead |
| `warning` | the platform team | in working hours: it works and will not for ever |
| `info` | the owner of the job | when convenient: GPUs are held and not used, or a program failed |

There is none about high utilisation or a power limit that is reached (both are wanted), about full memory (TensorFlow maps nearly all
of it when it starts), or about a fixed temperature (a T4 runs at 75 °C for years). What a board reports of itself is the measure.

## Install

The same rules in three forms, for Prometheus 2.42 and newer:

- `deploy/manifests/prometheus-rules.yaml`: a rule file, for `rule_files` of a Prometheus of your own;
- `deploy/manifests/prometheus-rule-object.yaml`: a `PrometheusRule` for the Prometheus operator. Give it the labels that your
  Prometheus selects rules by;
- `deploy/helm/gpuwatch/files/rules.yaml`: what the chart fills in. There each threshold is a value.

Scrape with `honor_labels: true` and at least once a minute. The label `cluster` is used where you have it (as an external label it is
added after the rules; then each cluster evaluates its own).
Without kube-state-metrics {kube} stay silent, without Kueue {kueue}.

## Alertmanager

`deploy/manifests/alertmanager-example.yaml` holds the inhibition rules (a lost GPU silences what else is said of it, an XID that woke
somebody silences the state that it announced, an alert that names a fault silences the verdict, what a TensorFlow job says of its cause
silences what is seen of its GPUs, and so on, each with its reason) and
routes: `critical` to a pager, `warning` to a tracker, `info` with a namespace to that namespace's team.
Take the inhibition rules over as they are.
"""
_ABOUT_THRESHOLDS: Final = """\
## Thresholds

Each can be set in the chart (`prometheusRule.thresholds.NAME`); whoever uses a plain rule file changes it there. The runbooks name them as
`${NAME}`. Those that the verdict of a GPU knows too ([health](../health.md)) are changed for the alert alone.

| threshold | value | unit | used by | why | when to change it |
|---|---|---|---|---|---|
"""
_ABOUT_RECORDINGS: Final = """\
## Recording rules

What alerts and boards share. A fleet of many clusters sends on (federation, remote write) those marked in the last column, in place of
the raw series.

| rule | what it says | sent on |
|---|---|---|
"""
_TITLES: Final = {
    "agent": "gpuwatch itself",
    "gpu": "The GPU as a whole",
    "xid": "XIDs",
    "memory": "Memory",
    "heat": "Heat, power and clocks",
    "links": "NVLink and PCIe",
    "waste": "Jobs and waste",
    "tensorflow": "TensorFlow jobs",
    "fleet": "The fleet",
}
"""Of the groups, without their prefix."""


def alerts_page() -> str:
    """The whole page, in Markdown."""
    return f"{_introduction()}\n{_alerts()}\n{_thresholds()}\n{_recordings()}"


def _introduction() -> str:
    return _INTRODUCTION.format(kube=_users("kube_"), kueue=_users("kueue_"))


def _users(prefix: str) -> str:
    return " and ".join(f"`{name}`" for name in dict.fromkeys(one.name for one in ALERTS if prefix in one.expression))


def _alerts() -> str:
    groups: dict[str, list[Alert]] = {}
    for alert in ALERTS:
        groups.setdefault(alert.group, []).append(alert)
    return "\n".join(
        f"## {_title(group)}\n\n| alert | severity | for | what it says |\n|---|---|---|---|\n{_rows(found)}"
        for group, found in groups.items()
    )


def _title(group: str) -> str:
    short = group.removeprefix("gpuwatch-")
    return _TITLES.get(short, short.capitalize())


def _rows(alerts: list[Alert]) -> str:
    return "".join(f"| [{one.name}]({one.name}.md) | `{one.severity}` | {_lasting(one)} | {one.summary} |\n" for one in alerts)


def _lasting(alert: Alert) -> str:
    return "-" if alert.for_ == "0s" else placed(alert.for_, DEFAULTS)


def _thresholds() -> str:
    return f"{_ABOUT_THRESHOLDS}{''.join(map(_threshold, THRESHOLDS))}"


def _threshold(one: Threshold) -> str:
    place = f"${{{one.name}}}"
    users = dict.fromkeys(alert.name for alert in ALERTS if place in alert.expression or place in alert.for_ or _records(place, alert))
    causes = [f"`{record.name}`" for record in CAUSES if place in record.expression]
    used = ", ".join([*(f"[{name}]({name}.md)" for name in users), *causes]) or "every alert"
    value = f"`{one.value}`" if one.value else "-"
    return f"| `{one.name}` | {value} | {one.unit} | {used} | {one.why} | {one.change} |\n"


def _records(place: str, alert: Alert) -> bool:
    """Whether the alert reads a recording rule that has the threshold. Those of causes have many, of which an alert needs a few."""
    return any(one.name in alert.expression and place in one.expression for one in (*SHARED, *WORKERS))


def _recordings() -> str:
    return _ABOUT_RECORDINGS + "".join(f"| `{one.name}` | {one.says} | {'yes' if one.forward else '-'} |\n" for one in RECORDINGS)
