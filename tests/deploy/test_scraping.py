"""The chart's monitors reach the chart's agent: the real daemon under the rendered web configuration, scraped by a real Prometheus.

What the Prometheus operator makes of a monitor is written here as it documents it: its own target labels first, then the relabelings.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from certificates import Authority
from daemon import Daemon, start, wait_for, write_scenario
from deploy.helm import MANIFESTS, Object, kind, objects, of_ci, only, refusal
from prometheus import Prometheus, prometheus

NODE = """
gpus: [{board: h100-sxm, count: 2, loads: [{kind: training}]}]
pods:
  - {name: mnist-worker-0, namespace: vision, container: tensorflow, devices: ["0"]}
"""
HOST = "gpuwatch.monitoring.svc"
"""The name that the monitor expects in the agent's certificate."""
_SNAKE = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True)
class Secrets:
    """The Secrets that the values file names, as directories of files."""

    folder: Path

    def make(self) -> None:
        """Certificates of one authority, and the password of Prometheus."""
        authority = Authority(self.folder / "authority")
        for secret, name in (("gpuwatch-server", HOST), ("prometheus-client", "prometheus")):
            pair, target = authority.issue(name), self.folder / secret
            target.mkdir()
            shutil.copy(pair.cert, target / "tls.crt")
            shutil.copy(pair.key, target / "tls.key")
            shutil.copy(authority.cert, target / "ca.crt")
        (self.folder / "gpuwatch-scrape").mkdir()
        (self.folder / "gpuwatch-scrape" / "username").write_text("prometheus")
        (self.folder / "gpuwatch-scrape" / "password").write_text("example")

    def file(self, reference: dict[str, str]) -> Path:
        """The file of a key of a Secret."""
        return self.folder / reference["name"] / reference["key"]


def endpoint_of(monitor: Object) -> Object:
    """The one endpoint of either kind of monitor."""
    [endpoint] = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
    assert isinstance(endpoint, dict)
    return endpoint


def scrape_of(found: list[Object], address: str, secrets: Secrets) -> dict[str, Any]:
    """The scrape configuration that the operator makes of the monitor, with the agent's pod as its one target."""
    monitor = next(one for one in found if one["kind"] in ("PodMonitor", "ServiceMonitor"))
    endpoint, daemonset = endpoint_of(monitor), only(found, "DaemonSet")
    pod_labels = daemonset["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pod_labels.items()
    assert endpoint["port"] in {port["name"] for port in daemonset["spec"]["template"]["spec"]["containers"][0]["ports"]}
    target = {
        "__meta_kubernetes_pod_node_name": "gpu-node-1",
        "namespace": monitor["spec"]["namespaceSelector"]["matchNames"][0],
        "pod": "gpuwatch-x7k2p",
        "container": "gpuwatch",
        "service": "gpuwatch",
        "endpoint": endpoint["port"],
        "job": pod_labels[monitor["spec"]["jobLabel"]],
    }
    scrape = {
        "job_name": "serviceMonitor/monitoring/gpuwatch/0",
        "scrape_interval": "1s",
        "scrape_timeout": "1s",
        "metrics_path": endpoint["path"],
        "scheme": endpoint["scheme"],
        "honor_labels": endpoint["honorLabels"],
        "static_configs": [{"targets": [address], "labels": target}],
        "relabel_configs": [{_SNAKE.sub("_", key).lower(): value for key, value in one.items()} for one in endpoint["relabelings"]],
    }
    if "basicAuth" in endpoint:
        user, password = (secrets.file(endpoint["basicAuth"][key]) for key in ("username", "password"))
        scrape["basic_auth"] = {"username": user.read_text(), "password_file": str(password)}
    if tls := endpoint.get("tlsConfig"):
        scrape["tls_config"] = {
            "ca_file": str(secrets.file(tls["ca"]["secret"])),
            "server_name": tls["serverName"],
            "cert_file": str(secrets.file(tls["cert"]["secret"])),
            "key_file": str(secrets.file(tls["keySecret"])),
        }
    return scrape


@contextlib.contextmanager
def agent(found: list[Object], folder: Path, secrets: Secrets) -> Iterator[Daemon]:
    """The real daemon over simulated GPUs, with the web configuration as the chart mounts it."""
    settings = ["--set", "node_name=gpu-node-1"]
    for secret in kind(found, "Secret"):
        text = secret["stringData"]["web-config.yml"].replace("/etc/gpuwatch-tls", str(secrets.folder / "gpuwatch-server"))
        (folder / "web-config.yml").write_text(text)
        settings += ["--set", f"server.web_config_file={folder / 'web-config.yml'}"]
    command = ["demo", "--scenario", str(write_scenario(folder, NODE)), *settings]
    with start(command, folder, watch=False) as daemon:
        yield daemon


def scraping(scrape: dict[str, Any], folder: Path) -> AbstractContextManager[Prometheus]:
    """A real Prometheus with this scrape configuration."""
    return prometheus(folder, yaml.safe_dump({"scrape_configs": [scrape]}))


def series(server: Prometheus, expression: str) -> list[dict[str, str]]:
    """The labels of each series of an instant query."""
    data = server.ask("query", query=expression)
    return [one["metric"] for one in data["result"]] if data else []


@pytest.mark.parametrize(
    ("name", "monitor"),
    [("prometheus-operator", "PodMonitor"), ("tls-client-certificates", "PodMonitor"), ("tls-client-certificates", "ServiceMonitor")],
)
def test_the_monitor_can_scrape_and_honours_the_labels_of_the_job(name: str, monitor: str, tmp_path: Path) -> None:
    """Plain, and with TLS, client certificates and a password: the target is up, and namespace, pod and container are the job's.

    Of the agent's own pod nothing stands on the series but the node, so that nothing is renamed to ``exported_…``.
    """
    secrets = Secrets(tmp_path / "secrets")
    secrets.make()
    found = of_ci(name, "--set", f"monitor.kind={monitor}")
    with agent(found, tmp_path, secrets) as daemon:
        scrape = scrape_of(found, daemon.url.removeprefix("http://"), secrets)
        with scraping(scrape, tmp_path) as server:
            wait_for(lambda: series(server, "up == 1") and series(server, "gpuwatch_job_gpu_info"), "a scrape of the job")
            [up] = series(server, "up")
            assert up == {"__name__": "up", "job": "gpuwatch", "instance": "gpu-node-1", "node": "gpu-node-1"}
            [job] = series(server, "gpuwatch_job_gpu_info")
            assert (job["namespace"], job["pod"], job["container"]) == ("vision", "mnist-worker-0", "tensorflow")
            hardware = series(server, "gpuwatch_gpu_up")
            assert [set(one) for one in hardware] == 2 * [{"__name__", "job", "instance", "node", "gpu", "uuid", "model"}]
            assert not [label for label in server.ask("labels") if label.startswith("exported_")]


def test_without_its_credentials_nobody_scrapes(tmp_path: Path) -> None:
    """The same server turns away whoever has no certificate or no password, and still answers the probes and the test."""
    secrets = Secrets(tmp_path / "secrets")
    secrets.make()
    found = of_ci("tls-client-certificates")
    with agent(found, tmp_path, secrets) as daemon:
        port = int(daemon.url.rpartition(":")[2])
        assert status_of(port, "/metrics", secrets, certificate=False) in (401, 403)
        assert status_of(port, "/metrics", secrets, certificate=True) == 401
        for path in ("/healthz", "/readyz"):
            wait_for(lambda path=path: status_of(port, path, secrets, certificate=False) == 200, path)  # type: ignore[misc]
        done = run_test_pod(found, SERVICE="localhost", PORT=str(port))
        assert (done.returncode, done.stdout) == (0, "127.0.0.1 ready\n"), done.stderr


def status_of(port: int, path: str, secrets: Secrets, *, certificate: bool) -> int:
    """The status of an answer, with or without the certificate of Prometheus; never with a password."""
    context = ssl.create_default_context(cafile=str(secrets.folder / "gpuwatch-server" / "ca.crt"))
    context.check_hostname = False  # the address is no name of the Service
    if certificate:
        context.load_cert_chain(secrets.folder / "prometheus-client" / "tls.crt", secrets.folder / "prometheus-client" / "tls.key")
    client = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=30)
    with contextlib.closing(client):
        client.request("GET", path)
        return client.getresponse().status


def run_test_pod(found: list[Object], **environment: str) -> subprocess.CompletedProcess[str]:
    """The command of ``helm test``, here, with its environment but for what is changed."""
    [pod] = kind(found, "Pod")
    [container] = pod["spec"]["containers"]
    assert container["command"][0] == "python"
    variables = {one["name"]: one["value"] for one in container["env"]} | environment
    return subprocess.run([sys.executable, *container["command"][1:]], env=variables, capture_output=True, text=True, check=False)


def test_helm_test_says_which_agent_is_not_ready(tmp_path: Path) -> None:
    """``helm test`` fails with the address and the reason of an agent that is not ready, and names what to look at where there is none."""
    found = objects()
    with start(["demo", "--scenario", "no-gpu"], tmp_path, watch=False) as daemon:
        done = run_test_pod(found, SERVICE="localhost", PORT=daemon.url.rpartition(":")[2])
    assert done.returncode == 1
    assert done.stdout.startswith("127.0.0.1 not ready: ")
    assert done.stderr == "1 of 1 agents are not ready\n"
    done = run_test_pod(found, SERVICE="gpuwatch.invalid")
    assert done.returncode == 1
    assert "gpuNodes.anyOf" in done.stderr


@pytest.mark.parametrize("monitor", ["PodMonitor", "ServiceMonitor"])
def test_a_monitor_without_credentials_is_refused(monitor: str) -> None:
    """A server that asks for a password or a certificate is not installed with a monitor that has none."""
    on = f"monitor.enabled=true,monitor.kind={monitor}"
    user = "web.basicAuth.users.prometheus=$2b$10$" + 53 * "a"
    assert "monitor.basicAuth.secretName" in refusal("--set", f"{on},{user}")
    tls = "web.tls.enabled=true,web.tls.secretName=x,web.tls.clientAuthType=RequireAndVerifyClientCert"
    assert "monitor.tls.clientSecretName" in refusal("--set", f"{on},{tls}")
    assert "tlsConfig" in endpoint_of(only(objects("--set", f"{on},web.tls.enabled=true,web.tls.secretName=x"), monitor))


def test_a_service_monitor_has_its_service() -> None:
    """A ServiceMonitor brings the Service that it needs, also where none is wished for; the Service shows agents that are not ready too."""
    found = objects("--set", "service.enabled=false,monitor.enabled=true,monitor.kind=ServiceMonitor")
    service = only(found, "Service")
    assert only(found, "ServiceMonitor")["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["clusterIP"] == "None"
    assert not kind(objects("--set", "service.enabled=false"), "Service")
    assert not kind(objects("--set", "service.enabled=false"), "Pod")


def test_limits_and_own_relabelings(tmp_path: Path) -> None:
    """Interval, limits and relabelings of one's own are passed on, the latter behind the chart's."""
    own = {"sourceLabels": ["node"], "targetLabel": "zone"}
    values = {"monitor": {"enabled": True, "interval": "30s", "sampleLimit": 5000, "labelLimit": 30, "relabelings": [own]}}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    monitor = only(objects("--values", str(file)), "PodMonitor")
    assert (monitor["spec"]["sampleLimit"], monitor["spec"]["labelLimit"]) == (5000, 30)
    assert (endpoint_of(monitor)["interval"], endpoint_of(monitor)["relabelings"][-1]) == ("30s", own)


def test_scraping_without_the_operator(tmp_path: Path) -> None:
    """The plain scrape configuration finds the pods of the manifests, and ends with the same labels as the PodMonitor."""
    text = (MANIFESTS / "prometheus-scrape.yaml").read_text()
    [scrape, _] = yaml.safe_load(text)["scrape_configs"]
    [discovery] = scrape.pop("kubernetes_sd_configs")  # not every build of Prometheus has it
    daemonset = next(one for one in yaml.safe_load_all((MANIFESTS / "gpuwatch.yaml").read_text()) if one["kind"] == "DaemonSet")
    labels = daemonset["spec"]["template"]["metadata"]["labels"]
    assert discovery["namespaces"]["names"] == [daemonset["metadata"]["namespace"]]
    [selector] = discovery["selectors"]
    assert dict(pair.split("=") for pair in selector["label"].split(",")).items() <= labels.items()
    secrets = Secrets(tmp_path)
    meta = {
        "__meta_kubernetes_pod_container_port_name": "metrics",
        "__meta_kubernetes_pod_phase": "Running",
        "__meta_kubernetes_pod_node_name": "gpu-node-1",
        "__meta_kubernetes_namespace": "gpuwatch",
        "__meta_kubernetes_pod_name": "gpuwatch-x7k2p",
    }
    with agent(objects(), tmp_path, secrets) as daemon:
        scrape["static_configs"] = [{"targets": [daemon.url.removeprefix("http://")], "labels": meta}]
        scrape |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
        with scraping(scrape, tmp_path) as server:
            wait_for(lambda: series(server, "gpuwatch_job_gpu_info"), "a scrape of the job")
            assert series(server, "up") == [{"__name__": "up", "job": "gpuwatch", "instance": "gpu-node-1", "node": "gpu-node-1"}]
            assert series(server, "gpuwatch_job_gpu_info")[0]["namespace"] == "vision"
