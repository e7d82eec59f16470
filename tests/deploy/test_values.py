"""The chart's values: typos and contradictions are refused, and the agent starts from exactly the configuration that is rendered."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.helm import CHART, CI, HELMS, container_of, given, objects, of_ci, only, refusal, run
from gpuwatch.chart.config_schema import FROM_ELSEWHERE
from gpuwatch.config import ConfigError, Settings, load
from gpuwatch.setting import keys_of
from gpuwatch.wiring import label_map

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
KEYS = keys_of(Settings)
OTHER = {
    "choice": "warning",
    "duration": "60s",
    "integer": 4242,
    "labels": {"team.example.com/name": "team"},
    "mapping": {31: {"severity": "ticket"}},
    "switch": True,
    "text": "/else/where",
}
"""By kind of setting a value that is allowed nearly everywhere."""
EXCEPTIONS = {
    "log.format": "json",
    "kubernetes.attribution": "always",
    "kubernetes.api_server": "always",
    "read.static_interval": "2h",
    "server.probes_without_credentials": False,
}


def rendered(found: list[dict[str, Any]], folder: Path) -> Settings:
    """The settings with which the agent starts from the ConfigMap, as it is mounted, and the container's own environment."""
    [(name, text)] = only(found, "ConfigMap")["data"].items()
    [mount] = [mount for mount in container_of(found)["volumeMounts"] if mount["name"] == "config"]
    assert f"{mount['mountPath']}/{name}" == "/etc/gpuwatch/config.yaml"
    file = folder / name
    file.write_text(text, encoding="utf-8")
    environment = {one["name"]: one.get("value", "gpu-node-1") for one in container_of(found)["env"]}
    return load(file, environment=environment)


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("name", CI)
def test_the_agent_starts_from_the_rendered_configuration(name: str, helm: str, tmp_path: Path) -> None:
    """What the chart writes is taken by the agent, on the node where the pod is."""
    settings = rendered(objects("--values", str(CI[name]), helm=helm), tmp_path)
    assert settings.node_name == "gpu-node-1"
    assert label_map(settings).names == (("team",) if name == "prometheus-operator" else ())
    assert settings.read.kernel_log == ("/dev/kmsg" if name == "gke" else "")
    assert settings.kubernetes.processes is (name == "time-slicing")
    assert settings.server.web_config_file == ("/etc/gpuwatch-web/web-config.yml" if name.startswith("tls") else "")


def test_by_default_only_what_the_rights_ask_for_differs(tmp_path: Path) -> None:
    """Without values the agent has its own defaults, but waits for no source that it has no right to."""
    found = objects()
    assert yaml.safe_load(only(found, "ConfigMap")["data"]["config.yaml"]) == {
        "kubernetes": {"processes": False},
        "read": {"kernel_log": ""},
    }
    assert rendered(found, tmp_path).server == Settings().server


def test_every_setting_arrives(tmp_path: Path) -> None:
    """Each key of the configuration file can be set by the values, and arrives with the value and type that was given."""
    config: dict[str, Any] = {}
    for path, key in KEYS.items():
        if path not in FROM_ELSEWHERE:
            section, _, name = path.rpartition(".")
            config.setdefault(section, {})[name] = EXCEPTIONS.get(path, OTHER[key.kind])
    found = objects(*given({"config": config, "hostPID": True, "kernelLog": {"enabled": True}}, tmp_path))
    settings = rendered(found, tmp_path)
    assert yaml.safe_load(only(found, "ConfigMap")["data"]["config.yaml"]) == json.loads(json.dumps(config))
    for path, key in KEYS.items():
        if path not in FROM_ELSEWHERE and key.kind != "mapping":
            section, _, _ = path.rpartition(".")
            value = EXCEPTIONS.get(path, OTHER[key.kind])
            seconds = {"60s": 60.0, "2h": 7200.0}
            assert getattr(getattr(settings, section), key.attribute) == (seconds[str(value)] if key.kind == "duration" else value), path


def test_false_is_a_value(tmp_path: Path) -> None:
    """What is given wins over what follows from other values, also when it is false or empty."""
    values = ("--set", "hostPID=true,kernelLog.enabled=true,config.kubernetes.processes=false,config.read.kernel_log=")
    settings = rendered(objects(*values), tmp_path)
    assert (settings.kubernetes.processes, settings.read.kernel_log) == (False, "")


def test_host_proc(tmp_path: Path) -> None:
    """With the node's /proc mounted the agent looks there, without hostPID."""
    found = objects("--set", "hostProc=true")
    settings = rendered(found, tmp_path)
    [mount] = [mount for mount in container_of(found)["volumeMounts"] if mount["name"] == "proc"]
    assert (settings.kubernetes.processes, settings.kubernetes.proc_root) == (True, mount["mountPath"])


TYPOS = {
    "tolerations_": "[]",
    "config.serverr": "{}",
    "config.server.prot": "1",
    "config.server.port": "70000",
    "config.server.max_connections": "many",
    "config.server.web_config_file": "/x",
    "config.node_name": "n1",
    "config.read.fast_interval": "3",
    "config.read.medium_interval": "10 s",
    "config.kubernetes.api_server": "sometimes",
    "config.kubernetes.events": "yes",
    "config.log.level": "loud",
    "nameOverride": "Gpu_Watch",
    "fullnameOverride": "a.b",
    "namespaceOverride": "Gpus",
    "podAnnotations.checksum/config": "x",
    "prometheusRule.alertLabels.severity": "page",
    "prometheusRule.alertLabels.cost-centre": "x",
    "image.repo": "x",
    "image.digest": "sha1:12",
    "image.pullPolicy": "always",
    "driver.hostpath": "/x",
    "driver.hostPath": "x",
    "hostPID": "maybe",
    "hostPid": "true",
    "kernelLog": "true",
    "web.tls.enable": "true",
    "web.tls.clientAuthType": "Require",
    "web.basicAuth.users.prometheus": "plain-password",
    "gpuNodes.anyOf[0].operator": "Equals",
    "monitor.enabled": "sometimes",
    "monitor.kind": "podMonitor",
    "monitor.interval": "15",
    "monitor.honorLabels": "false",
    "monitor.sampleLimit": "-1",
    "tensorflowMonitor.enabled": "auto",
    "tensorflowMonitor.podLabel": "",
    "tensorflowMonitor.namespaces[0]": "Vision",
    "prometheusRule.treshold": "{}",
    "prometheusRule.severity.GpuFailed": "page",
    "commonLabels.app\\.kubernetes\\.io/name": "x",
    "dashboards.enable": "true",
    "networkPolicy.egress.ports[0]": "https",
    "probes.liveness.path": "/metrics",
    "resources.limit": "{}",
    "serviceAccount.automount": "true",
    "updateStrategy.maxUnavailable": "1",
}


@pytest.mark.parametrize("key", TYPOS)
def test_typos_are_refused(key: str) -> None:
    """A key that does not exist, or a value that is not allowed, is refused and named."""
    message = refusal("--set", f"{key}={TYPOS[key]}")
    assert "values don't meet the specifications of the schema" in message
    last = key.rsplit(".", maxsplit=1)[-1].split("[", maxsplit=1)[0] if "\\" not in key else "app.kubernetes.io/name"
    assert last in message, message


def test_both_helms_refuse() -> None:
    """Helm 3 checks the values as helm 4 does."""
    for key in ("config.server.prot", "image.repo", "tolerations_"):
        assert "values don't meet the specifications of the schema" in refusal("--set", f"{key}=1", helm="helm3")


CONTRADICTIONS = {
    "hostPID=true,hostProc=true": "hostPID and hostProc buy the same",
    "config.kubernetes.processes=true": "it needs hostPID or hostProc",
    "config.read.kernel_log=/dev/kmsg": "it needs kernelLog.enabled",
    "securityContext.privileged=true": "set privileged",
    "privileged=true,securityContext.allowPrivilegeEscalation=false": "Kubernetes refuses the two together",
    "web.tls.enabled=true": "web.tls.secretName",
    "web.tls.clientAuthType=RequireAndVerifyClientCert": "web.tls.enabled is false",
    "web.existingSecret=x,web.tls.secretName=y": "holds the whole web configuration",
    "web.tls.enabled=true,web.tls.secretName=x,config.server.probes_without_credentials=false": "the kubelet has no credentials",
}


@pytest.mark.parametrize("values", CONTRADICTIONS)
def test_contradictions_are_refused(values: str) -> None:
    """Values that make no sense together are refused with one sentence that says what to do."""
    assert CONTRADICTIONS[values] in refusal("--set", values)


def test_what_only_the_agent_can_judge_is_refused_by_the_agent(tmp_path: Path) -> None:
    """A duration out of its range passes the schema, and stops the agent at its start with the key and the range."""
    with pytest.raises(ConfigError, match=r"read\.fast_interval: '2h' is not allowed; expected a duration .* from 200ms to 1m"):
        rendered(objects("--set", "config.read.fast_interval=2h"), tmp_path)


def test_the_schema_is_one() -> None:
    """The schema is valid by its own draft, and the defaults and all values files are valid by it."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    for path in (CHART / "values.yaml", *CI.values()):
        jsonschema.validate(_over(VALUES, yaml.safe_load(path.read_text())), SCHEMA)


def _over(defaults: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """As helm lays values over the defaults."""
    both = {key: _over(defaults[key], own[key]) for key in own.keys() & defaults.keys() if isinstance(defaults[key], dict)}
    return defaults | own | both


def test_defaults_and_schema_have_the_same_keys() -> None:
    """Every key of the schema stands in values.yaml, where it is explained, and no other does; ``config`` mirrors the settings."""

    def paths(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
        for name, inner in schema.get("properties", {}).items():
            if prefix + name not in ("config", "global") and not {"affinity", "resources", "probes", "updateStrategy"} & {name}:
                yield from paths(inner, f"{prefix}{name}.") if inner.get("properties") else [prefix + name]

    def leaves(value: object, prefix: str) -> Iterator[str]:
        if isinstance(value, dict) and value:
            for name, inner in value.items():
                yield from leaves(inner, f"{prefix}.{name}")
        else:
            yield prefix[1:]

    explained = set(leaves({name: value for name, value in VALUES.items() if name not in ("config", "global")}, ""))
    known = set(paths(SCHEMA))
    assert not {path for path in known if not any(one == path or one.startswith(f"{path}.") for one in explained)}
    assert set(VALUES) == set(SCHEMA["properties"])
    config = SCHEMA["properties"]["config"]
    assert set(paths(config)) == {path for path in KEYS if path not in FROM_ELSEWHERE}
    assert config["additionalProperties"] is False


def test_every_mapping_of_the_schema_says_what_it_holds() -> None:
    """No mapping takes any key by oversight: it forbids others, types them, or is one of those handed on to Kubernetes as they are."""

    def open_ones(schema: dict[str, Any], path: str) -> Iterator[str]:
        if schema.get("type") == "object" and "additionalProperties" not in schema:
            yield path
        for name, inner in schema.get("properties", {}).items():
            yield from open_ones(inner, f"{path}.{name}")

    assert set(open_ones(SCHEMA, "")) == {
        ".global",
        ".affinity.nodeAffinity",
        ".affinity.podAffinity",
        ".affinity.podAntiAffinity",
        ".updateStrategy.rollingUpdate",
        ".resources.requests",
        ".resources.limits",
        ".podSecurityContext",
        ".securityContext",
        ".config.health.xid_overrides",
    }


def test_the_web_secret_follows_the_values(tmp_path: Path) -> None:
    """The web configuration stands in a Secret of the chart, or in one's own, which is then mounted instead."""
    found = of_ci("tls-client-certificates")
    assert only(found, "Secret")["metadata"]["name"] == "gpuwatch-web"
    own = objects("--set", "web.existingSecret=mine,web.tls.enabled=true")
    assert not [one for one in own if one["kind"] == "Secret"]
    [volume] = [one for one in only(own, "DaemonSet")["spec"]["template"]["spec"]["volumes"] if one["name"] == "web"]
    assert volume["secret"]["secretName"] == "mine"
    assert container_of(own)["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert rendered(own, tmp_path).server.web_config_file == "/etc/gpuwatch-web/web-config.yml"


def _paths(values: dict[str, Any], *above: str) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        yield *above, key
        if isinstance(value, dict):
            yield from _paths(value, *above, key)


def test_a_key_with_nothing_behind_it(tmp_path: Path) -> None:
    """As where somebody comments out what was below it: it is taken for empty, or refused with its name; no template stumbles over it."""
    switched_on = {name: {"enabled": True} for name in ("monitor", "tensorflowMonitor", "prometheusRule", "dashboards", "networkPolicy")}
    paths = list(_paths(VALUES))

    def complaint(path: tuple[str, ...]) -> str:
        values: dict[str, Any] = copy.deepcopy(switched_on)
        section = values
        for key in path[:-1]:
            section = section.setdefault(key, {})
        section[path[-1]] = None
        file = tmp_path / f"{paths.index(path)}.yaml"
        file.write_text(yaml.safe_dump(values))
        return run("helm4", "template", "gpuwatch", CHART, "--values", file).stderr

    with ThreadPoolExecutor() as pool:
        found = dict(zip(paths, pool.map(complaint, paths), strict=True))
    assert {path: text for path, text in found.items() if text and f"missing property '{path[-1]}'" not in text} == {}
    assert found["affinity",] == found["prometheusRule", "disabled"] == ""
