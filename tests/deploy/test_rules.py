"""The chart's PrometheusRule: the shipped rules, with thresholds, severities and alerts as the values ask."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.helm import CHART, HELMS, Object, given, objects, of_ci, only, refusal
from gpuwatch.rules.pack import rule_file

ON = ("--set", "prometheusRule.enabled=true")
PACK = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
PRICE = "gpuwatch:gpu_price_dollars_per_hour:info"
_PLACE = re.compile(r"\$\{(\w+)\}")


def filled(part: Any, values: dict[str, str]) -> Any:
    """The rules of the file with these thresholds."""
    if isinstance(part, str):
        return _PLACE.sub(lambda found: values[found[1]], part)
    if isinstance(part, dict):
        return {key: filled(value, values) for key, value in part.items()}
    return [filled(one, values) for one in part] if isinstance(part, list) else part


def groups_of(found: list[Object]) -> list[Object]:
    """The groups of the one PrometheusRule."""
    groups: list[Object] = only(found, "PrometheusRule")["spec"]["groups"]
    return groups


def alerts(groups: list[Object], name: str = "") -> list[Object]:
    """The alerts, or those of a name: one may have several tiers."""
    return [rule for group in groups for rule in group["rules"] if rule.get("alert") and name in ("", rule["alert"])]


def check(groups: list[Object], folder: Path) -> None:
    """Fails unless promtool takes the rules."""
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": groups}, allow_unicode=True), encoding="utf-8")
    done = subprocess.run(["promtool", "check", "rules", "--lint-fatal", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("helm", HELMS)
def test_by_default_the_rules_are_the_shipped_ones(helm: str, tmp_path: Path) -> None:
    """Not a letter differs from the generated rules with their default thresholds, and promtool takes them."""
    groups = groups_of(objects(*ON, helm=helm))
    assert groups == filled(PACK["groups"], PACK["defaults"])
    check(groups, tmp_path)


@pytest.mark.parametrize("helm", HELMS)
def test_values_of_a_cluster(helm: str, tmp_path: Path) -> None:
    """Thresholds, alerts left out, other severities and labels for routing change what they name and nothing else."""
    groups = groups_of(objects("--values", str(CHART / "ci" / "prometheus-operator-values.yaml"), helm=helm))
    check(groups, tmp_path)
    changes = {"idle_window": "1h", "idle_ratio": "0.05", "grafana": "https://grafana.example.com"}
    expected = filled(PACK["groups"], PACK["defaults"] | changes)
    for group in expected:
        group["rules"] = [rule for rule in group["rules"] if rule.get("alert") != "GpuJobImbalance"]
    for alert in alerts(expected):
        alert["labels"]["team"] = "gpu-platform"
    for alert in alerts(expected, "GpuNodeWithoutAgent"):
        alert["labels"]["severity"] = "info"
    assert groups == expected
    assert expected != filled(PACK["groups"], PACK["defaults"])


def test_every_alert_can_be_left_out(tmp_path: Path) -> None:
    """With all alerts off, the recordings remain and no empty group is left."""
    names = sorted({alert["alert"] for alert in alerts(PACK["groups"])})
    groups = groups_of(objects(*given({"prometheusRule": {"enabled": True, "disabled": names}}, tmp_path)))
    assert [group["name"] for group in groups] == ["gpuwatch-recording"]
    check(groups, tmp_path)


def test_tiers_of_one_severity_stay_two_alerts(tmp_path: Path) -> None:
    """An alert with two tiers, given one severity, leaves two alerts that Alertmanager tells apart; one without is as it was."""
    severity = {"GpuHardwareThermalSlowdown": "warning", "GpuNodeWithoutAgent": "info"}
    groups = groups_of(objects(*given({"prometheusRule": {"enabled": True, "severity": severity}}, tmp_path)))
    check(groups, tmp_path)
    labels = [rule["labels"] for rule in alerts(groups, "GpuHardwareThermalSlowdown")]
    assert labels == [{"severity": "warning", "tier": tier} for tier in ("critical", "warning")]
    assert [rule["labels"] for rule in alerts(groups, "GpuNodeWithoutAgent")] == [{"severity": "info"}]


def test_every_threshold_can_be_changed(tmp_path: Path) -> None:
    """Each threshold takes another value of its kind, as a number or as text; promtool takes the rules."""
    changed: dict[str, object] = {}
    for name, value in PACK["defaults"].items():
        is_window = re.fullmatch(r"([0-9]+[a-z]+)+", value)
        is_number = re.fullmatch(r"[0-9.]+", value)
        changed[name] = "7m" if is_window else 3 if is_number else "https://example.com/x" if name != "job" else "gpus"
    groups = groups_of(objects(*given({"prometheusRule": {"enabled": True, "thresholds": changed}}, tmp_path)))
    assert groups == filled(PACK["groups"], {name: str(value) for name, value in changed.items()})
    check(groups, tmp_path)


@pytest.mark.parametrize("helm", HELMS)
def test_the_chart_has_the_generated_rules(helm: str) -> None:
    """Without values of one's own they are those of deploy/manifests/prometheus-rules.yaml, rule for rule."""
    assert groups_of(objects(*ON, helm=helm)) == yaml.safe_load(rule_file())["groups"]


def test_prices_become_series(tmp_path: Path) -> None:
    """The cost panels read the operator's own prices, one series a model; without prices there is no such group."""
    prices = {"NVIDIA H200": 3.5, "Tesla T4": 0.25}
    groups = groups_of(objects(*given({"prometheusRule": {"enabled": True, "pricesPerHour": prices}}, tmp_path)))
    check(groups, tmp_path)
    assert [(rule["record"], rule["labels"]["model"], rule["expr"]) for rule in groups[-1]["rules"]] == [
        (PRICE, "NVIDIA H200", "vector(3.5)"),
        (PRICE, "Tesla T4", "vector(0.25)"),
    ]
    assert PRICE not in str(groups_of(objects(*ON)))


def test_large_and_small_numbers_stay_numbers(tmp_path: Path) -> None:
    """A number that is written without quotes arrives as a number that Prometheus reads."""
    changed = {"memory_held_bytes": 17179869184, "idle_ratio": 0.00001}
    groups = groups_of(objects(*given({"prometheusRule": {"enabled": True, "thresholds": changed}}, tmp_path)))
    check(groups, tmp_path)
    texts = " ".join(rule["expr"] for group in groups for rule in group["rules"])
    assert {17179869184.0, 0.00001} <= {float(number) for number in re.findall(r"\d[\d.]*(?:e[+-]?\d+)?", texts)}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("thresholds.idle_windw=1h", 'prometheusRule.thresholds: there is no "idle_windw"; expected one of:'),
        ("thresholds.idle_window=often", "prometheusRule.thresholds.idle_window: .* expected a duration such as 10m"),
        ("thresholds.idle_window=3", "expected a duration"),
        ("thresholds.idle_window=0m", "expected a duration such as 10m or 1h30m, above 0"),
        ("thresholds.idle_window=1m1h", "expected a duration"),
        ("thresholds.idle_window=", "expected a duration"),
        ("thresholds.idle_ratio=1h", "expected a number"),
        ("thresholds.grafana=a b", "expected text without spaces and quotes"),
        ("disabled[0]=GpuJobIdel", 'there is no alert "GpuJobIdel"; expected one of:.* GpuJobIdle'),
        ("severity.GpuJobIdel=info", 'there is no alert "GpuJobIdel"'),
    ],
)
def test_unknown_names_are_refused(values: str, message: str) -> None:
    """A threshold or an alert that does not exist, or a value of another kind, is refused with what there is."""
    assert re.search(message, refusal(*ON, "--set", f"prometheusRule.{values}"))


def test_rules_and_scrape_agree_on_the_job() -> None:
    """Under whatever name the chart is installed, the rules ask for the job that the monitor makes."""
    found = objects(*ON, "--set", "monitor.enabled=true,nameOverride=gpus")
    monitor = only(found, "PodMonitor")
    pod_labels = only(found, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    job = pod_labels[monitor["spec"]["jobLabel"]]
    assert job == "gpus"
    [down] = alerts(groups_of(found), "GpuwatchDown")
    assert f'up{{job="{job}"' in down["expr"]


def test_the_label_of_the_operator() -> None:
    """Monitor and rules carry the labels by which the Prometheus of kube-prometheus-stack selects."""
    for kind in ("PodMonitor", "PrometheusRule"):
        assert only(of_ci("prometheus-operator"), kind)["metadata"]["labels"]["release"] == "kube-prometheus-stack"
