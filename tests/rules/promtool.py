"""Rules under test in the real promtool: series in its own notation, and which alerts fire when.

Every case runs the whole pack, so that a case also shows that no other alert fires. Labels are written as in a selector.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gpuwatch.rules.cause import CAUSES
from gpuwatch.rules.pack import rule_file

GPU = 'node="n1", gpu="0", uuid="GPU-0", model="H100"'
_PAIR = re.compile(r'(\w+)="([^"]*)"')
_INTERVAL = "1m"


def labels_of(text: str) -> dict[str, str]:
    """``a="1", b="2"`` as a mapping."""
    return dict(_PAIR.findall(text))


def alert(name: str, severity: str, labels: str = "") -> dict[str, str]:
    """An alert that fires: its name, its severity and the labels of its subject."""
    return {"alertname": name, "severity": severity, **labels_of(labels)}


Moments = Mapping[str, Sequence[dict[str, str]]]
"""Time since the start, such as ``10m`` → the alerts that fire then."""


def fire(
    folder: Path,
    series: Mapping[str, str],
    moments: Moments,
    *,
    thresholds: Mapping[str, str] | None = None,
    every: str = _INTERVAL,
    only: str = "",
) -> None:
    """Fails unless at each of the ``moments`` exactly those alerts fire.

    Args:
        folder: Where the files of the test go.
        series: Selector → values, one a minute, in promtool's notation (``0+60x30``, ``_x5``, ``stale``).
        moments: Made with :func:`alert`; an empty list: nothing fires.
        thresholds: Other values than the defaults.
        every: Time between two values and between two evaluations, where a case takes days.
        only: Ask for alerts whose name begins so, where a case is not about the others.
    """
    names = sorted(name for name in _names(thresholds) if name.startswith(only))
    cases = []
    for at, expected in moments.items():
        for name in names:
            wanted = [{key: value for key, value in one.items() if key != "alertname"} for one in expected if one["alertname"] == name]
            cases.append({"eval_time": at, "alertname": name, "exp_alerts": [{"exp_labels": one} for one in wanted]})
    _run(folder, series, {"alert_rule_test": cases}, thresholds, annotations=False, every=every)


def say(folder: Path, series: Mapping[str, str], at: str, name: str, *, every: str = _INTERVAL) -> list[dict[str, str]]:
    """The annotations of the alerts of that name at that time, as Prometheus fills them in. ``every``: see :func:`fire`."""
    return say_each(folder, series, at, [name], every=every)[name]


def say_each(
    folder: Path, series: Mapping[str, str], at: str, names: Sequence[str], *, every: str = _INTERVAL
) -> dict[str, list[dict[str, str]]]:
    """The same for several names at once."""
    nothing = [{"exp_labels": {"no": "such"}}]
    cases = [{"eval_time": at, "alertname": name, "exp_alerts": nothing} for name in names]
    output = _run(folder, series, {"alert_rule_test": cases}, None, annotations=True, every=every)
    said: dict[str, list[dict[str, str]]] = {name: [] for name in names}
    for part in output.split("alertname: ")[1:]:
        found = re.findall(r"Annotations:(\{.*\}),?$", part, re.MULTILINE)
        said[part.partition(",")[0]] += [dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', one)) for one in found if "summary" in one]
    return said


def record(folder: Path, series: Mapping[str, str], at: str, wanted: Mapping[str, float]) -> None:
    """Fails unless the recorded series are then exactly these: selector → value, ``name`` alone where there is none."""
    samples: dict[str, list[dict[str, Any]]] = {}
    for name, value in wanted.items():
        samples.setdefault(name.partition("{")[0], []).extend([{"labels": name, "value": value}] if "{" in name else [])
    cases = [{"expr": name, "eval_time": at, "exp_samples": found} for name, found in samples.items()]
    _run(folder, series, {"promql_expr_test": cases}, None, annotations=False)


def moved(series: Mapping[str, str], node: str) -> dict[str, str]:
    """The same series on another node, so that one run holds many cases."""
    return {name.replace('node="n1"', f'node="{node}"'): values for name, values in series.items()}


def prove(folder: Path, series: Mapping[str, str], below: Mapping[str, str], expected: Moments) -> None:
    """Fails unless the alerts fire at those moments on node n1, as often where two agents tell of it, and never ``below``.

    The three are nodes of one run. A fourth has GPUs and says nothing else of them.
    """
    silent = {f"gpuwatch_gpu_info{{{GPU}}}": "1x180", 'gpuwatch_up{node="n1"}': "1x180"}
    everything = {**series, **moved(both(series), "n2"), **moved(below, "n3"), **moved(silent, "n4")}
    fire(folder, everything, {at: [one | {"node": node} for one in alerts for node in ("n1", "n2")] for at, alerts in expected.items()})


@cache
def _loaded(thresholds: frozenset[tuple[str, str]]) -> Any:
    return yaml.safe_load(rule_file(dict(thresholds)))


def _pack(thresholds: Mapping[str, str] | None) -> Any:
    """The rule file as Prometheus reads it; read once, since that costs as much as a run."""
    return deepcopy(_loaded(frozenset((thresholds or {}).items())))


def _names(thresholds: Mapping[str, str] | None) -> set[str]:
    return {rule["alert"] for group in _pack(thresholds)["groups"] for rule in group["rules"] if "alert" in rule}


def _needed(series: Mapping[str, str], case: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bool]:
    """Which rules a case is about, since each costs time: none but recordings where it asks for no alert.

    No alert about TensorFlow can fire where no training process says anything, and causes are for these alerts alone.
    """
    if "alert_rule_test" not in case:
        return lambda rule: "record" in rule
    if any(name.startswith("gpuwatch_tensorflow_") for name in series):
        return lambda _: True
    causes = {one.name for one in CAUSES}
    return lambda rule: rule.get("record") not in causes and not rule.get("alert", "").startswith("TensorFlow")


def _run(
    folder: Path,
    series: Mapping[str, str],
    case: dict[str, Any],
    thresholds: Mapping[str, str] | None,
    *,
    annotations: bool,
    every: str = _INTERVAL,
) -> str:
    rules = _pack(thresholds)
    needed = _needed(series, case)
    for group in rules["groups"]:
        group["rules"] = [rule for rule in group["rules"] if needed(rule)]
    rules["groups"] = [group for group in rules["groups"] if group["rules"]]
    if not annotations:
        # What is said is tested apart: a better word must not break a test of when it is said.
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule.pop("annotations", None)
    else:
        # The words of an alert need no other alert.
        asked = {one["alertname"] for one in case["alert_rule_test"]}
        for group in rules["groups"]:
            group["rules"] = [rule for rule in group["rules"] if rule.get("alert") in {None, *asked}]
        rules["groups"] = [group for group in rules["groups"] if group["rules"]]
    (folder / "rules.yaml").write_text(json.dumps(rules))
    test = {"interval": every, "input_series": [{"series": name, "values": values} for name, values in series.items()], **case}
    plan = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": every,
        # Else the order is another in each run, and what is recorded may come a minute late.
        "group_eval_order": [group["name"] for group in rules["groups"]],
        "tests": [test],
    }
    (folder / "test.yaml").write_text(json.dumps(plan))
    done = subprocess.run(["promtool", "test", "rules", "test.yaml"], cwd=folder, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    if not annotations:
        assert done.returncode == 0, output
    return output


def both(series: Mapping[str, str]) -> dict[str, str]:
    """The same series from two agents: what Prometheus sees for minutes after a restart, where ``instance`` changes."""
    return {
        **{name.replace("{", '{instance="old", '): values for name, values in series.items()},
        **{name.replace("{", '{instance="new", '): values for name, values in series.items()},
    }
