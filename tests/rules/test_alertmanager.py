"""Who silences whom, and who is told: the example for Alertmanager, by its data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from itertools import product
from typing import Any

import pytest
import yaml

from gpuwatch.duration import parse_duration
from gpuwatch.rules.alert import Alert, placed
from gpuwatch.rules.alertmanager import INHIBITIONS, RECEIVERS, ROUTE, Inhibition, configuration, example
from gpuwatch.rules.cause import CAUSE
from gpuwatch.rules.pack import ALERTS, RECORDINGS
from gpuwatch.rules.recording import EXCUSED
from gpuwatch.rules.thresholds import DEFAULTS
from rules.queries import labels_of

_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"(.*)"')
_XIDS = ("48", "63", "64", "74", "79", "95")
_NODE_DOWN = {"KubeNodeNotReady", "KubeNodeUnreachable", "NodeNotReady"}


def fired() -> list[dict[str, str]]:
    """Every tier of every alert as it fires on the same GPU of the same job, one for each of some XIDs."""
    found = []
    for alert in ALERTS:
        labels = (labels_of(placed(alert.expression, DEFAULTS)) or frozenset()) | ({"node"} if alert.subject == "node" else set())
        one = {**dict.fromkeys(labels, "x"), "alertname": alert.name, "severity": alert.severity}
        found.extend({**one, "xid": xid} for xid in _XIDS) if "xid" in labels else found.append(one)
    return found


FIRED = fired()


def holds(matchers: Iterable[str], labels: Mapping[str, str]) -> bool:
    """As Alertmanager matches: regular expressions are anchored, an absent label is empty."""
    for text in matchers:
        found = _MATCHER.fullmatch(text)
        assert found, text
        value = labels.get(found[1], "")
        same = re.fullmatch(found[3], value) is not None if "~" in found[2] else value == found[3]
        if same == found[2].startswith("!"):
            return False
    return True


def silences(rule: Inhibition, source: Mapping[str, str], target: Mapping[str, str]) -> bool:
    """As Alertmanager inhibits: what is on both sides of a rule is not silenced by its like."""
    if not holds(rule.source, source) or not holds(rule.target, target):
        return False
    if holds(rule.target, source) and holds(rule.source, target):
        return False
    return all(source.get(label, "") == target.get(label, "") for label in rule.equal)


def silenced(source: Mapping[str, str], target: Mapping[str, str]) -> bool:
    """By any rule."""
    return any(silences(rule, source, target) for rule in INHIBITIONS)


def named(name: str, severity: str = "critical", **labels: str) -> dict[str, str]:
    """An alert on GPU 0 of node n1."""
    return {"alertname": name, "severity": severity, "cluster": "c", "node": "n1", "gpu": "0", "uuid": "GPU-0", **labels}


@pytest.mark.parametrize("rule", INHIBITIONS, ids=lambda rule: rule.why)
def test_a_rule_is_about_alerts_that_exist(rule: Inhibition) -> None:
    """Each name in it is one of the pack or of a node that is down, and it has something to silence."""
    for text in (*rule.source, *rule.target):
        if text.startswith("alertname") and not text.endswith('.+"'):
            names = set(_MATCHER.fullmatch(text)[3].split("|"))  # type: ignore[index]
            assert names <= {alert.name for alert in ALERTS} | _NODE_DOWN | {"Gpuwatch.+"}
    down = {"alertname": "KubeNodeNotReady", "cluster": "x", "node": "x"}
    changed = [{**one, "uuid": ""} if one.get("uuid") else one for one in FIRED]
    pairs = [(source, target) for fires in (FIRED, changed) for source in (*fires, down) for target in fires]
    assert any(silences(rule, source, target) for source, target in pairs)


def test_nobody_is_left_without_a_word() -> None:
    """Alerts never silence each other in a circle, so that of those that fire together at least one is told."""
    for fires in (FIRED, [{**one, "uuid": ""} if one.get("uuid") else one for one in FIRED]):
        graph = {number: {at for at, source in enumerate(fires) if silenced(source, target)} for number, target in enumerate(fires)}
        assert list(TopologicalSorter(graph).static_order())


def test_a_page_is_never_silenced_by_less() -> None:
    """What wakes somebody is silenced only by what wakes somebody, or by the node's being down."""
    for target in FIRED:
        for source in FIRED:
            if target["severity"] == "critical" and silenced(source, target):
                assert source["severity"] == "critical" or source["alertname"] == "GpuwatchDown", (source, target)


def test_the_verdict_speaks_last() -> None:
    """Every ticket about a flaw of a GPU fires minutes before the verdict that it silences, also where both begin anew at the same time."""
    verdict = next(alert for alert in ALERTS if alert.name == "GpuDegraded")
    tickets = [
        one for one in ALERTS if one.severity == "warning" and one.subject == "gpu" and one.group not in ("gpuwatch-waste", verdict.group)
    ]
    assert {"GpuRowRemapPending", "GpuPcieWidthDegraded"} <= {one.name for one in tickets}
    for one in tickets:
        assert silenced(named(one.name, "warning"), named(verdict.name, "warning"))
        assert parse_duration(placed(one.for_, DEFAULTS)) + 300 <= parse_duration(verdict.for_), one.name


def test_who_says_more_speaks_first() -> None:
    """A known cause fires before every alert about the same waste can, and goes on for as long as that looks back."""
    seen = [one for one in ALERTS if one.name.startswith("GpuJob")]
    known = [one for one in ALERTS if one.name.startswith("TensorFlow") and one.name != "TensorFlowNonfiniteLoss"]
    assert (len(seen), len(known)) == (5, 6)
    job = {"cluster": "c", "namespace": "a", "job_kind": "TFJob", "job_name": "j"}
    for alert, cause in product(seen, known):
        assert silenced({**job, "alertname": cause.name, "severity": "info"}, {**job, "alertname": alert.name, "severity": "info"})
        assert _least(cause) < _least(alert), alert.name
        assert _seconds(cause.keep_firing) >= max(map(_seconds, _looks_back(alert)))


def _least(alert: Alert) -> float:
    """Seconds from the begin of a job to the earliest time at which the alert can fire: settled, and for as long as it waits."""
    settled = re.findall(r" offset (\w+)", placed(_written_out(alert), DEFAULTS))
    return _seconds(alert.for_) + max(map(_seconds, settled), default=0)


def _written_out(alert: Alert) -> str:
    """With the recording of causes in place."""
    return alert.expression + "".join(one.expression for one in RECORDINGS if one.name == CAUSE and CAUSE in alert.expression)


def _looks_back(alert: Alert) -> list[str]:
    recorded = [one.expression for one in RECORDINGS if one.name in alert.expression and one.name != EXCUSED]
    return re.findall(r"\[(\w+)\]", placed(" ".join([alert.expression, *recorded]), DEFAULTS))


def _seconds(duration: str) -> float:
    return parse_duration(placed(duration, DEFAULTS))


LOST = named("GpuLost")
CASES = [
    ("a lost GPU silences what is said of it", LOST, named("GpuXidCritical", xid="119"), True),
    ("but not the XID that told of it first", LOST, named("GpuXidCritical", xid="79"), False),
    ("which has woken somebody already", named("GpuXidCritical", xid="79"), LOST, True),
    ("nor what the driver asks for, which silences that XID", LOST, named("GpuRecoveryActionRequired"), False),
    ("about this GPU", named("GpuXidCritical", xid="79", gpu="1", uuid="GPU-1"), LOST, False),
    ("as another XID has not", named("GpuXidCritical", xid="119"), LOST, False),
    ("an XID about links has told of them", named("GpuXidCritical", xid="74"), named("GpuNvlinkDown"), True),
    ("and not of a neighbour's", named("GpuXidCritical", xid="74"), named("GpuNvlinkDown", gpu="1", uuid="GPU-1"), False),
    ("also its waste", LOST, named("GpuJobStraggler", "info"), True),
    ("not its neighbour", LOST, named("GpuXidCritical", xid="79", gpu="1", uuid="GPU-1"), False),
    ("not another GPU that has its number now", LOST, named("GpuEccUncorrectable", uuid="GPU-9"), False),
    ("without a UUID its number counts", named("GpuLost", uuid=""), named("GpuHealthUnknown", "warning"), True),
    ("on its node only", named("GpuLost", uuid=""), named("GpuHealthUnknown", "warning", node="n2"), False),
    ("what is said of the number without a UUID", LOST, named("GpuHealthUnknown", "warning", uuid=""), True),
    ("nor the node", named("GpuLost", uuid=""), {**named("GpuPowerBrake"), "gpu": "", "uuid": ""}, False),
    ("the driver's wish goes before an XID", named("GpuRecoveryActionRequired"), named("GpuXidCritical", xid="119"), True),
    ("and before the verdict", named("GpuRecoveryActionRequired"), named("GpuFailed"), True),
    ("a wish that can wait does not", named("GpuRecoveryActionRequired", "warning"), named("GpuFailed"), False),
    ("a fault with a name silences the verdict", named("GpuRowRemapFailed"), named("GpuFailed"), True),
    ("a warning the mild one", named("GpuRowRemapPending", "warning"), named("GpuDegraded", "warning"), True),
    ("but not the grave one", named("GpuRowRemapPending", "warning"), named("GpuFailed"), False),
    ("nor does a job's", named("GpuJobStraggler", "info"), named("GpuDegraded", "warning"), False),
    ("the grave tier the mild one", named("GpuNvlinkErrors"), named("GpuNvlinkErrors", "warning"), True),
    ("of the same GPU", named("GpuNvlinkErrors"), named("GpuNvlinkErrors", "warning", gpu="1", uuid="GPU-1"), False),
    ("a dead GPU the links of its peers", LOST, named("GpuNvlinkDown", gpu="1", uuid="GPU-1"), True),
    ("also by its XID", named("GpuXidCritical", xid="79"), named("GpuNvlinkDown", gpu="1", uuid="GPU-1"), True),
    ("the brake what it does to clocks", {**named("GpuPowerBrake"), "gpu": "", "uuid": ""}, named("GpuClocksStuckLow", "warning"), True),
    ("and to jobs", {**named("GpuPowerBrake"), "gpu": "", "uuid": ""}, named("GpuJobStraggler", "info"), True),
    ("no reading, no news", {**named("GpuwatchCannotRead"), "gpu": "", "uuid": ""}, named("GpuHealthUnknown", "warning"), True),
    ("a node that is down", {"alertname": "KubeNodeNotReady", "cluster": "c", "node": "n1"}, named("GpuwatchDown", "warning"), True),
    ("is not every node", {"alertname": "KubeNodeNotReady", "cluster": "c", "node": "n2"}, named("GpuwatchDown", "warning"), False),
    ("a straggler the differences", named("GpuJobStraggler", "info", namespace="a", job_name="j"),
     {"alertname": "GpuJobImbalance", "severity": "info", "cluster": "c", "namespace": "a", "job_name": "j"}, True),
    ("not a loss that is no number", named("TensorFlowNonfiniteLoss", "warning", namespace="a", job_name="j"),
     named("GpuJobIdle", "info", namespace="a", job_name="j"), False),
    ("of its own job", named("GpuJobStraggler", "info", namespace="a", job_name="j"),
     {"alertname": "GpuJobImbalance", "severity": "info", "cluster": "c", "namespace": "a", "job_name": "k"}, False),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_who_silences_whom(*, source: dict[str, str], target: dict[str, str], expected: bool) -> None:
    """The first silences the second, or does not."""
    assert silenced(source, target) == expected


def receiver(labels: Mapping[str, str], route: Mapping[str, Any] = ROUTE) -> str:
    """As Alertmanager routes: the first route that matches, as deep as it goes."""
    for inner in route.get("routes", []):
        if holds(inner["matchers"], labels):
            return receiver(labels, inner)
    return str(route["receiver"])


@pytest.mark.parametrize("labels", FIRED, ids=lambda one: f"{one['alertname']}-{one['severity']}-{one.get('xid', '')}")
def test_who_is_told(labels: dict[str, str]) -> None:
    """Pages wake somebody, warnings are tickets, and an info goes to whom the namespace belongs; XIDs that nobody knows are no job's."""
    told = receiver(labels)
    if labels["severity"] == "info":
        assert told == ("gpuwatch-job-owner" if "namespace" in labels else "gpuwatch-digest")
        assert receiver({**labels, "namespace": "language"}) == "gpuwatch-team-language"
    else:
        assert told == {"critical": "gpuwatch-page", "warning": "gpuwatch-ticket"}[labels["severity"]]
    assert labels["alertname"] != "GpuXidUnknown" or told == "gpuwatch-ticket"


def test_the_example_says_why() -> None:
    """The file is the data, with the reason above each rule and the purpose above each receiver."""
    text = example()
    assert yaml.safe_load(text) == configuration()
    for why in (*(rule.why for rule in INHIBITIONS), *RECEIVERS.values()):
        assert f"  # {why}\n" in text
