"""The pack as a whole: its queries against the catalogue, its texts, its runbooks, and the files that are made of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import get_args

import promql_parser
import pytest
import yaml

from gpuwatch.health.xid import policy_of, xid_table
from gpuwatch.rules.alert import Alert, Severity, placed, places
from gpuwatch.rules.pack import ALERTS, RECORDINGS, chart_file, rule_file, rule_object
from gpuwatch.rules.reference import alerts_page
from gpuwatch.rules.thresholds import DEFAULTS, THRESHOLDS
from rules.queries import QueryError, labels_of, queries_in, selectors_of

RUNBOOKS = Path(__file__).parents[2] / "docs" / "alerts"
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation", "False positives and tuning"]
_BLOCK = re.compile(r"^```promql\n(.*?)^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^## (.+)\n", re.MULTILINE)
_LABEL = re.compile(r"\$labels\.(\w+)")
_QUERIED = re.compile(r"\.Labels\.(\w+)")
NAMES = sorted({alert.name for alert in ALERTS})
SUBJECTS = {
    "gpu": {"cluster", "node", "gpu", "uuid", "model"},
    "node": {"cluster", "node"},
    "job": {"cluster", "namespace", "job_kind", "job_name"},
    "fleet": {"cluster"},
}
UNPLACED = {"GpuwatchDown"}
"""Has a node only where the targets do, and says the instance elsewhere."""


def tier(alert: Alert) -> str:
    """Name and severity, for the names of tests."""
    return f"{alert.name}-{alert.severity}"


def expression(alert: Alert) -> str:
    """With the default thresholds."""
    return placed(alert.expression, DEFAULTS)


@pytest.mark.parametrize("alert", ALERTS, ids=tier)
def test_an_alert_reads_what_exists(alert: Alert) -> None:
    """Its expression and every query in its description name real metrics and labels, and it has the labels of its subject."""
    labels = labels_of(expression(alert))
    assert labels is not None
    if alert.name not in UNPLACED:
        assert labels >= SUBJECTS[alert.subject]
        assert labels >= set(_LABEL.findall(alert.description))
    asked = [labels_of(query) for query in queries_in(alert.description)]
    assert len(asked) == alert.description.count("range query")
    for label in _QUERIED.findall(alert.description):
        assert any(known is None or label in known for known in asked), label


@pytest.mark.parametrize("record", [one.name for one in RECORDINGS])
def test_a_recording_reads_what_exists(record: str) -> None:
    """Its expression names real metrics and labels, and its name says at which level it is."""
    labels = labels_of(record)
    level = record.partition(":")[0]
    assert labels is not None
    assert re.fullmatch(r"[a-z_]+:gpuwatch_[a-z_]+:[a-z0-9_]+", record)
    assert any(level == "_".join(order) for order in _orders(level, labels)), f"{level} is not made of {sorted(labels)}"


def _orders(level: str, labels: frozenset[str]) -> list[list[str]]:
    """The ways in which the level is a row of labels."""
    if not level:
        return [[]]
    found = []
    for label in labels:
        if level == label or level.startswith(f"{label}_"):
            found.extend([label, *rest] for rest in _orders(level[len(label) + 1 :], labels))
    return found


def runbook(name: str) -> str:
    """The text of a runbook."""
    return (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")


def test_each_alert_has_its_runbook() -> None:
    """And each runbook has its alert."""
    assert sorted(path.stem for path in RUNBOOKS.glob("*.md") if path.name != "README.md") == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_runbook_is_whole(name: str) -> None:
    """It has every section in order, none of them empty, and its queries name real metrics and labels."""
    text = runbook(name)
    title, *rest = _HEADING.split(text)
    assert title.startswith(f"# {name}\n")
    assert title.removeprefix(f"# {name}\n").strip()
    assert rest[::2] == SECTIONS
    assert all(section.strip() for section in rest[1::2])
    queries = _BLOCK.findall(text)
    assert queries or "```sh" in rest[5]
    for query in queries:
        labels_of(query)
    for threshold in places(text):
        assert threshold in DEFAULTS, threshold


@pytest.mark.parametrize("name", NAMES)
def test_a_runbook_knows_its_thresholds(name: str) -> None:
    """What may be set of an alert is named in its section on tuning."""
    tuning = runbook(name).partition("## False positives and tuning")[2]
    own = {place for alert in ALERTS if alert.name == name for text in (alert.expression, alert.for_) for place in places(text)}
    assert own <= places(tuning)


@pytest.mark.parametrize("alert", ALERTS, ids=tier)
def test_an_alert_speaks_to_a_person(alert: Alert) -> None:
    """The summary is one sentence without values, by which notifications are grouped; the description says where and what to do first."""
    assert alert.severity in get_args(Severity)
    assert re.fullmatch(r"[A-Z][^{}$]*\.", alert.summary) or alert.summary.startswith("gpuwatch ")
    assert "{{" not in alert.summary
    assert "First: " in alert.description
    if alert.subject != "fleet":
        assert {"node", "instance", "job_name", "namespace"} & set(_LABEL.findall(alert.description))
    if alert.subject == "gpu":
        assert {"gpu", "model", "node"} <= set(_LABEL.findall(alert.description))


def test_no_alert_outlasts_what_silences_it() -> None:
    """Else the verdict would speak up at each repair, when the alert that names the fault has ended already."""
    for alert in ALERTS:
        assert alert.keep_firing == "0s" or alert.name not in {"GpuFailed", "GpuDegraded"}


def test_tiers_of_an_alert_differ_in_severity() -> None:
    """Else Prometheus and Alertmanager could not tell them apart."""
    tiers = [(alert.name, alert.severity) for alert in ALERTS]
    assert len(set(tiers)) == len(tiers)


def test_every_threshold_is_used() -> None:
    """And every place has a threshold, so that nothing can be set in vain or is left open."""
    addresses = {"runbooks", "grafana"}
    texts = [text for alert in ALERTS for text in (alert.expression, alert.for_, alert.keep_firing, alert.description)]
    used = set().union(*(places(text) for text in [*texts, *(one.expression for one in RECORDINGS)]))
    assert used == set(DEFAULTS) - addresses
    assert len(DEFAULTS) == len(THRESHOLDS)
    for one in THRESHOLDS:
        assert one.why.endswith(".")
        assert one.change.endswith(".")
        if one.unit == "duration":
            assert promql_parser.parse_duration(one.value)


def test_no_xid_has_two_instructions() -> None:
    """Each number reaches one alert at most, whatever its row in the table says; those of a page reach the critical one."""
    alerts = [(alert.name, _last_xid(alert)) for alert in ALERTS if alert.name.startswith("GpuXid") and "xid_last" in alert.expression]
    for code in [*xid_table(), 9999]:
        policy = policy_of(code)
        labels = {"xid": str(code), "category": policy.category, "severity": policy.severity}
        found = [name for name, matchers in alerts if all(_matches(one, labels) for one in matchers)]
        assert len(found) <= 1, (code, found)
        assert (found == ["GpuXidCritical"]) == (policy.severity == "page"), code
    assert len(alerts) == 4


def _last_xid(alert: Alert) -> list[promql_parser.Matcher]:
    selectors = [one for one in selectors_of(expression(alert)) if one.name == "gpuwatch_gpu_xid_last_timestamp_seconds"]
    return [matcher for selector in selectors for matcher in selector.matchers.matchers]


def _matches(matcher: promql_parser.Matcher, labels: dict[str, str]) -> bool:
    value = labels.get(matcher.name, "")
    same = value == matcher.value or re.fullmatch(matcher.value, value) is not None
    return same == (matcher.op in (promql_parser.MatchOp.Equal, promql_parser.MatchOp.Re))


def test_the_three_files_say_the_same(tmp_path: Path) -> None:
    """Rule file, PrometheusRule and the chart's file with its own defaults hold the same groups, and promtool takes them."""
    groups = yaml.safe_load(rule_file())["groups"]
    assert yaml.safe_load(rule_object())["spec"]["groups"] == groups
    chart = yaml.safe_load(chart_file())
    assert yaml.safe_load(placed(yaml.safe_dump(chart["groups"], width=1 << 20), chart["defaults"])) == groups
    (tmp_path / "rules.yaml").write_text(rule_file())
    done = subprocess.run(["promtool", "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS) + len(RECORDINGS)} rules found" in done.stdout


def test_thresholds_can_be_set() -> None:
    """A value given takes the place of the default; a name that does not exist is refused."""
    assert "< 0.123 " in rule_file({"idle_ratio": "0.123"})
    with pytest.raises(KeyError, match="no threshold idle_rato"):
        rule_file({"idle_rato": "0.1"})


def test_the_page_names_everything() -> None:
    """Each tier with its runbook, each threshold and each recording rule has a line in the overview."""
    page = alerts_page()
    for alert in ALERTS:
        assert f"| [{alert.name}]({alert.name}.md) | `{alert.severity}` |" in page
    for name in [*DEFAULTS, *(one.name for one in RECORDINGS)]:
        assert page.count(f"\n| `{name}` |") == 1, name


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ("gpuwatch_gpu_temperatur_celsius", "no metric"),
        ('gpuwatch_gpu_up{job_name="x"}', "no label job_name"),
        ("sum by (reason) (gpuwatch_gpu_up)", "no label reason"),
        ("gpuwatch_gpu_up * on (pod) gpuwatch_job_gpu_info", "no label pod"),
        ("gpuwatch_job_gpu_info * on (uuid) group_left (driver) max by (uuid) (gpuwatch_gpu_info)", "no label driver"),
        ("sum by (uuid) (sum by (node) (gpuwatch_gpu_up))", "no label uuid"),
        ("rate(gpuwatch_gpu_up)", "matrix"),
        ("node_uuid:gpuwatch_gpu:no_such", "no metric"),
        ("gpuwatch_tensorflow_step_duration_seconds", "no metric"),
        ('gpuwatch_tensorflow_steps_total{phase="input"}', "no label phase"),
        ("sum by (le, phase) (gpuwatch_tensorflow_step_duration_seconds_bucket)", "no label phase"),
    ],
)
def test_a_wrong_query_is_found(query: str, complaint: str) -> None:
    """The check itself: it sees names and labels that do not exist, also behind aggregations and joins."""
    with pytest.raises(QueryError, match=complaint):
        labels_of(query)
