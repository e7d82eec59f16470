"""The reference of the settings, held to the code that reads them and to the chart that sets them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from deploy.helm import given, objects, only
from gpuwatch import setting
from gpuwatch.config import Settings, load
from gpuwatch.settings_page import settings_page

KEYS = setting.keys_of(Settings)
PLACES = {row[0]: row[1:] for row in re.findall(r"^\| `([a-z_.]+)` \| `(GPUWATCH_\w+)` \| (.*) \|$", settings_page(), flags=re.MULTILINE)}
OTHER: dict[str, Any] = {
    "log.level": "debug",
    "log.format": "json",
    "kubernetes.attribution": "always",
    "kubernetes.api_server": "always",
    "kubernetes.pod_labels": {"team": "team"},
    "health.xid_overrides": {31: {"severity": "ticket"}},
    "kubernetes.proc_root": "/node/proc",
    "kubernetes.kubelet_root": "/var/lib/k0s/kubelet",
    "server.address": "::",
    "read.kernel_log": "/var/log/kernel",
    "node_name": "node-a",
    "server.web_config_file": "/etc/web.yml",
}
"""An allowed value that is not the default, where the kind of the setting does not give one."""


def other(key: setting.Key) -> Any:
    """A value that is allowed and not the default."""
    section = key.path.rpartition(".")[0]
    default = getattr(getattr(Settings(), section) if section else Settings(), key.attribute)
    match key.kind:
        case "duration":
            return f"{default + 1:.0f}s"
        case "integer":
            return default + 1
        case "switch":
            return not default
    return OTHER[key.path]


def read(settings: Settings, key: setting.Key) -> Any:
    """The value in force."""
    section = key.path.rpartition(".")[0]
    return getattr(getattr(settings, section) if section else settings, key.attribute)


def test_every_setting_has_its_places() -> None:
    """Each setting is listed once with its variable and its value of the chart."""
    assert list(PLACES) == list(KEYS)


@pytest.mark.parametrize("path", KEYS)
def test_the_variable_sets_it(path: str) -> None:
    """The environment variable on the page sets the setting beside it."""
    variable, _ = PLACES[path]
    key, value = KEYS[path], other(KEYS[path])
    text = value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    settings = load(Path("/dev/null"), environment={variable: "team=team" if path == "kubernetes.pod_labels" else text})
    assert read(settings, key) != read(Settings(), key)


def test_the_values_of_the_chart_set_all_at_once(tmp_path: Path) -> None:
    """Every ``config.…`` on the page, given another value than the default, arrives in the settings of an agent of the chart."""
    below_config = {path: re.match(r"`config\.([a-z_.]+)`", place) for path, (_, place) in PLACES.items()}
    assert {path for path, place in below_config.items() if place is None} == {"node_name", "server.web_config_file"}
    values: dict[str, Any] = {"hostPID": True, "kernelLog": {"enabled": True}}
    for path, place in below_config.items():
        if place:
            section, _, name = place[1].partition(".")
            values.setdefault("config", {}).setdefault(section, {})[name] = other(KEYS[path])
    [(_, text)] = only(objects(*given(values, tmp_path)), "ConfigMap")["data"].items()
    (tmp_path / "config.yaml").write_text(text)
    settings = load(tmp_path / "config.yaml", environment={})
    assert [path for path, place in below_config.items() if place and read(settings, KEYS[path]) == read(Settings(), KEYS[path])] == []


@pytest.mark.parametrize(
    ("path", "values", "expected"),
    [
        ("read.kernel_log", {"kernelLog": {"enabled": True}}, "/dev/kmsg"),
        ("read.kernel_log", {}, ""),
        ("kubernetes.processes", {"hostPID": True}, True),
        ("kubernetes.processes", {"hostProc": True}, True),
        ("kubernetes.processes", {}, False),
        ("kubernetes.proc_root", {"hostProc": True}, "/host/proc"),
        ("server.web_config_file", {"web": {"existingSecret": "web"}}, "/etc/gpuwatch-web/web-config.yml"),
        ("server.web_config_file", {"web": {"tls": {"enabled": True, "secretName": "tls"}}}, "/etc/gpuwatch-web/web-config.yml"),
    ],
)
def test_what_the_chart_makes_from_other_values(path: str, values: dict[str, Any], expected: object, tmp_path: Path) -> None:
    """Where ``config`` does not say, the values named on the page decide."""
    _, place = PLACES[path]
    assert all(name in place for name in values)
    [text] = only(objects(*given(values, tmp_path)), "ConfigMap")["data"].values()
    (tmp_path / "config.yaml").write_text(text)
    assert read(load(tmp_path / "config.yaml", environment={}), KEYS[path]) == expected


def test_every_setting_is_explained() -> None:
    """Each row says in a sentence what the setting is for; headings name the sections."""
    rows = re.findall(r"^\| `([a-z_.]+)` \| .*? \| .*? \| (.*) \|$", settings_page(), flags=re.MULTILINE)
    assert [path for path, _ in rows] == list(KEYS)
    assert [path for path, text in rows if not text.endswith(".") or "``" in text] == []
    assert set(re.findall(r"^### (\w+)$", settings_page(), flags=re.MULTILINE)) == {path.partition(".")[0] for path in KEYS if "." in path}
