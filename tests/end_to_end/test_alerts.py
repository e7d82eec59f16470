"""From the driver to the person who is told: simulated nodes, the real pipeline, a real Prometheus, a real Alertmanager.

The clock runs sixty times as fast, so that two hours of every node pass in two minutes, all at once.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path

import promql_parser
import pytest
import yaml

from daemon import ROOT
from end_to_end.fast_clock import fast_configuration, fast_expression, fast_rules
from end_to_end.film import STEP_SECONDS, Frame, Node
from end_to_end.scenes import SCENES, SECONDS, Scene
from end_to_end.stage import FACTOR, Stage, Target, staged, until
from gpuwatch.rules.alertmanager import configuration
from gpuwatch.rules.pack import ALERTS, RECORDINGS, rule_file
from gpuwatch.rules.thresholds import THRESHOLDS

_PATIENCE_SECONDS = 300.0
_LAST_SECONDS = 15.0
"""For what is on its way when the films end."""
_PLAYS = 3

IDENTITY = ("alertname", "severity", "cluster", "node", "uuid", "xid", "source", "namespace", "job_kind", "job_name", "pod")
"""Labels by which a person tells alerts apart."""


def filmed(number: int, scene: Scene) -> tuple[Frame | None, ...]:
    """The film of a scene, whose GPUs no other scene has."""
    text = f"seed: {9000 + number}\n{scene.text}"
    away, back = scene.silent or (SECONDS, SECONDS)
    frames: list[Frame | None] = [*Node(text, broken=scene.broken, deaf=scene.deaf, begin=scene.begin).film(away)]
    frames += [None] * int((back - away) / STEP_SECONDS)
    return (*frames, *Node(text, begin=back).film(SECONDS - back))


@dataclass(frozen=True, slots=True)
class Play:
    """How it went."""

    stage: Stage
    failed_rules: dict[str, str]
    late: int
    plays: int


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory, show_table: Callable[[str, list[tuple[str, ...]]], None]) -> Play:
    """Every scene at once, played to its end."""
    # Films are made before the clock runs: no need to be quick.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=os.nice, initargs=(5,)) as pool:
        films = list(pool.map(filmed, range(len(SCENES)), SCENES))
    targets = {scene.name: Target(frames=film, extra=scene.extra, agents=scene.agents) for scene, film in zip(SCENES, films, strict=True)}
    for number in range(_PLAYS):
        with staged(targets, tmp_path_factory.mktemp("stage")) as stage:
            assert until(lambda stage=stage: stage.now >= SECONDS, patience=_PATIENCE_SECONDS)
            until(lambda stage=stage: all(stage.of(scene.name) >= set(scene.alerts) for scene in SCENES), patience=_LAST_SECONDS)
            played = Play(stage, stage.failed_rules(), stage.late, number + 1)
        # What comes later is about films that stand still. A machine that had no time for the clock has shown nothing: once more.
        if not played.late or all(stage.of(scene.name) == set(scene.alerts) for scene in SCENES):
            break
    rows = [("scene", "alerts expected", "arrived")]
    for scene in SCENES:
        wanted, came = set(scene.alerts), played.stage.of(scene.name)
        rows.extend(_rows(f"{scene.kind}: {scene.name}", sorted(wanted | came), wanted, came))
    show_table(f"alerts of two hours, expected and arrived (alert, severity, receiver, job); play {played.plays}, {played.late} late", rows)
    return played


def _rows(title: str, alerts: list[str], wanted: set[str], came: set[str]) -> list[tuple[str, ...]]:
    cells = [(one if one in wanted else "none", "yes" if one in came & wanted else one if one in came else "NO") for one in alerts]
    return [(title if not number else "", *cell) for number, cell in enumerate(cells or [("none", "none")])]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: f"{scene.kind}: {scene.name}")
def test_who_is_told(scene: Scene, play: Play) -> None:
    """Exactly the expected alerts come, each to its receiver and with the job that it hits; nothing else does in two hours."""
    assert play.stage.of(scene.name) == set(scene.alerts)


def test_every_rule_was_evaluated(play: Play) -> None:
    """No evaluation of any rule failed on what nodes serve: no two series where a join wants one."""
    assert play.failed_rules == {}


def test_what_is_said(play: Play) -> None:
    """Every notification has all its places filled in, says what to do first, and links to a runbook that exists."""
    annotations = [alert["annotations"] for payload in play.stage.payloads for alert in payload["alerts"]]
    assert annotations
    for told in annotations:
        text = " ".join(told.values())
        assert "First: " in told["description"]
        for flaw in ("<no value>", "<error", "{{", "${", "%!", "  "):
            assert flaw not in text, told


def test_nothing_is_told_twice(play: Play) -> None:
    """A notification holds no alert a second time under other labels, also where two agents tell of one GPU."""
    for payload in play.stage.payloads:
        told = [tuple(alert["labels"].get(label, "") for label in IDENTITY) for alert in payload["alerts"]]
        assert len(set(told)) == len(told), told


def test_what_is_told_together(play: Play) -> None:
    """Pages and tickets come by node, the power brake by cluster (the rack), and what concerns a job by job."""
    keys = {(one["receiver"], one["commonLabels"].get("alertname"), tuple(sorted(one["groupLabels"]))) for one in play.stage.payloads}
    for receiver, alert, labels in keys:
        if alert == "GpuPowerBrake":
            assert labels == ("alertname", "cluster")
        elif receiver in ("gpuwatch-job-owner", "gpuwatch-team-language"):
            assert labels == ("cluster", "job_name", "namespace")
        else:
            assert set(labels) <= {"alertname", "cluster", "node"}


def test_the_example_is_a_configuration(tmp_path: Path) -> None:
    """What is shipped passes Alertmanager's own check; it is what the scenes were played with, but for addresses and times."""
    shipped = ROOT / "deploy" / "manifests" / "alertmanager-example.yaml"
    done = subprocess.run(["amtool", "check-config", str(shipped)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert yaml.safe_load(shipped.read_text()) == configuration()
    assert fast_configuration(configuration(), FACTOR)["inhibit_rules"] == configuration()["inhibit_rules"]


def spans(expression: str) -> list[timedelta]:
    """Every range, step and offset of an expression, in its order."""
    found: list[timedelta] = []

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.MatrixSelector):
            found.extend(filter(None, (node.range, node.vector_selector.offset)))
        elif isinstance(node, promql_parser.SubqueryExpr):
            found.extend(filter(None, (node.range, node.step, node.offset)))
        elif isinstance(node, promql_parser.VectorSelector) and node.offset:
            found.append(node.offset)

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found


def test_the_fast_clock_leaves_no_duration_out() -> None:
    """Every range, step, offset, ``for`` and ``keep_firing_for`` of the pack is a sixtieth, and nothing else of a rule differs."""
    for slow, fast in zip(yaml.safe_load(rule_file())["groups"], fast_rules(FACTOR)["groups"], strict=True):
        for before, after in zip(slow["rules"], fast["rules"], strict=True):
            assert spans(after["expr"]) == [span / FACTOR for span in spans(before["expr"])], before["expr"]
            for key in ("for", "keep_firing_for"):
                assert _seconds(after, key) == _seconds(before, key) / FACTOR
            assert before.get("labels") == after.get("labels")


def _seconds(rule: dict[str, str], key: str) -> float:
    return promql_parser.parse_duration(rule[key]).total_seconds() if key in rule else 0.0


def test_the_fast_clock_knows_every_second() -> None:
    """A rule that looks at the time does so with a threshold in seconds, which is scaled; only ``rate()`` counts by the second."""
    seconds = {f"${{{one.name}}}" for one in THRESHOLDS if one.unit == "seconds"}
    for expression in (one.expression for one in (*ALERTS, *RECORDINGS)):
        assert "time()" not in expression or any(place in expression for place in seconds), expression
        assert not any(f"{name}(" in expression for name in ("irate", "deriv", "predict_linear")), expression


def test_the_fast_clock() -> None:
    """Rates are divided with their brackets, also within each other; everything else stays as it is written."""
    assert fast_expression('max(rate(a{b="c"}[5m] offset 1h)) > 3', 60) == 'max((rate(a{b="c"}[5000ms] offset 60000ms) / 60)) > 3'
    assert fast_expression("rate(a[1m:30s]) / rate(b[1m])", 60) == "(rate(a[1000ms:500ms]) / 60) / (rate(b[1000ms]) / 60)"
    assert fast_expression("max_over_time(node:a:rate5m[6h:])", 60) == "max_over_time(node:a:rate5m[360000ms:])"
