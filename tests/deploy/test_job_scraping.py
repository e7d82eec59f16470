"""Training jobs are found and scraped once a pod: the chart's PodMonitor and the plain configuration, by a real Prometheus.

What the Prometheus operator makes of a PodMonitor that names no port is written here as its source has it: every port of every container is
a target, with its own labels first, then the relabelings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Gauge

from daemon import wait_for
from deploy.helm import MANIFESTS, Object, kind, objects, of_ci
from deploy.test_scraping import scraping, series
from gpuwatch.tensorflow.endpoint import Endpoint
from gpuwatch.tensorflow.exposition import registry_of
from gpuwatch.tensorflow.measures import Measures
from prometheus import Prometheus

_SNAKE = re.compile(r"(?<=[a-z])(?=[A-Z])")
CONTAINERS = {"tensorflow": ("2222", "8888"), "istio-proxy": ("15090",), "download": ()}
"""Of the pod: their declared ports."""


def monitor_of(found: list[Object]) -> Object:
    """The PodMonitor for jobs."""
    [monitor] = [one for one in kind(found, "PodMonitor") if one["metadata"]["name"].endswith("-tensorflow")]
    return monitor


def targets(address: str, *, port: str | None, pod: str) -> Iterator[dict[str, Any]]:
    """A pod as Kubernetes discovery tells it: each declared port of each container, and each container without one."""
    for container, ports in CONTAINERS.items():
        for declared in ports or ("",):
            labels = {
                "__meta_kubernetes_namespace": "vision",
                "__meta_kubernetes_pod_name": pod,
                "__meta_kubernetes_pod_ip": address,
                "__meta_kubernetes_pod_phase": "Running",
                "__meta_kubernetes_pod_container_name": container,
            }
            if port is not None:
                labels["__meta_kubernetes_pod_annotation_gpuwatch_io_tensorflow_port"] = port
            where = f"[{address}]" if ":" in address else address
            yield {"targets": [f"{where}:{declared}" if declared else where], "labels": labels}


def by_the_operator() -> dict[str, Any]:
    """The operator's scrape configuration, without discovery."""
    [endpoint] = monitor_of(objects("--set", "tensorflowMonitor.enabled=true"))["spec"]["podMetricsEndpoints"]
    own = [
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": ["__meta_kubernetes_pod_container_name"], "target_label": "container"},
        {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
        {"target_label": "job", "replacement": "monitoring/gpuwatch-tensorflow"},
    ]
    snaked = {
        name: [{_SNAKE.sub("_", key).lower(): value for key, value in one.items()} for one in endpoint[name]]
        for name in ("relabelings", "metricRelabelings")
    }
    return {
        "job_name": "podMonitor/monitoring/gpuwatch-tensorflow/0",
        "metrics_path": endpoint["path"],
        "scheme": endpoint["scheme"],
        "follow_redirects": endpoint["followRedirects"],
        "relabel_configs": [*own, *snaked["relabelings"]],
        "metric_relabel_configs": snaked["metricRelabelings"],
    }


def plain() -> dict[str, Any]:
    """That of the manifests, without discovery: not every build of Prometheus has it."""
    [_, scrape] = yaml.safe_load((MANIFESTS / "prometheus-scrape.yaml").read_text())["scrape_configs"]
    del scrape["kubernetes_sd_configs"]
    assert isinstance(scrape, dict)
    return scrape


@pytest.mark.parametrize("scrape", [by_the_operator, plain])
def test_each_pod_is_one_target_with_its_own_name(scrape: Any, tmp_path: Path) -> None:
    """However many ports its containers declare: one scrape, at the port of the annotation or the usual one, in IPv4 and in IPv6.

    The series have namespace and pod of the target; series of other names, with which a user could pose as an agent, do not come in.
    """
    registry = registry_of(Measures(steps=7))
    Gauge("gpuwatch_gpu_up", "Posing as an agent.", registry=registry)
    endpoint = Endpoint(registry, address="127.0.0.1", port=0)
    assert endpoint.open()
    configuration = scrape() | {"scrape_interval": "1s", "scrape_timeout": "1s"}
    pods = {"mnist-worker-0": ("127.0.0.1", str(endpoint.port)), "mnist-worker-1": ("127.0.0.2", None), "mnist-worker-2": ("::1", None)}
    configuration["static_configs"] = [one for pod, (ip, port) in pods.items() for one in targets(ip, port=port, pod=pod)]
    try:
        with scraping(configuration, tmp_path) as server:
            wait_for(lambda: series(server, "gpuwatch_tensorflow_steps_total"), "a scrape of the job")
            wait_for(lambda: len(series(server, "up")) == len(pods), "a scrape of each pod")
            _check(server, endpoint)
    finally:
        endpoint.close()


def _check(server: Prometheus, endpoint: Endpoint) -> None:
    active = server.ask("targets")["activeTargets"]
    assert sorted(one["scrapeUrl"] for one in active) == [
        f"http://127.0.0.1:{endpoint.port}/metrics",
        "http://127.0.0.2:9839/metrics",
        "http://[::1]:9839/metrics",
    ]
    [steps] = series(server, "gpuwatch_tensorflow_steps_total")
    instance = f"127.0.0.1:{endpoint.port}"
    assert steps == {
        "__name__": "gpuwatch_tensorflow_steps_total",
        "namespace": "vision",
        "pod": "mnist-worker-0",
        "job": "gpuwatch-tensorflow",
        "instance": instance,
    }
    names = {one["__name__"] for one in series(server, f'{{instance="{instance}"}}')}
    assert {name for name in names if not name.startswith("gpuwatch_tensorflow_")} == {
        name for name in names if name.startswith(("up", "scrape_"))
    }


def test_it_is_off_unless_asked() -> None:
    """Nothing reads from pods of users by default, also where the operator is."""
    assert len(kind(objects("--api-versions", "monitoring.coreos.com/v1"), "PodMonitor")) == 1
    assert len(kind(objects("--set", "tensorflowMonitor.enabled=true"), "PodMonitor")) == 1


def test_every_value_arrives() -> None:
    """Label, port, namespaces, limits and relabelings of one's own; the labels by which the operator selects."""
    values = ",".join(
        f"tensorflowMonitor.{one}"
        for one in (
            *("enabled=true", "podLabel=team.example/train", "podLabelValue=yes", "port=9999", "namespaces={vision,language}"),
            *("interval=30s", "scrapeTimeout=5s", "sampleLimit=0", "labels.release=prometheus", "annotations.a=b"),
            *("relabelings[0].targetLabel=zone", "relabelings[0].replacement=z", "metricRelabelings[0].action=labeldrop"),
        )
    )
    monitor = monitor_of(objects("--set", values))
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["metadata"]["annotations"] == {"a": "b"}
    assert monitor["spec"]["selector"] == {"matchLabels": {"team.example/train": "yes"}}
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["vision", "language"]}
    assert "sampleLimit" not in monitor["spec"]
    assert (endpoint["interval"], endpoint["scrapeTimeout"]) == ("30s", "5s")
    assert {"targetLabel": "__tmp_port", "replacement": "9999"} in endpoint["relabelings"]
    assert endpoint["relabelings"][-1] == {"targetLabel": "zone", "replacement": "z"}
    assert endpoint["metricRelabelings"][-1] == {"action": "labeldrop"}


def test_labels_of_the_target_win() -> None:
    """A job cannot name itself another pod, and the agent's monitor does not take its pods."""
    found = of_ci("prometheus-operator")
    [endpoint] = monitor_of(found)["spec"]["podMetricsEndpoints"]
    assert "honorLabels" not in endpoint
    [agents] = [one for one in kind(found, "PodMonitor") if one is not monitor_of(found)]
    assert agents["spec"]["selector"] != monitor_of(found)["spec"]["selector"]
    assert "honor_labels" not in plain()


def test_a_service_that_leads_to_the_agent_of_the_node() -> None:
    """On request, a training reaches the agent on its own node; a ServiceMonitor does not scrape the agents a second time through it."""
    assert len(kind(objects(), "Service")) == 1
    on = "service.nodeLocal=true,monitor.enabled=true,monitor.kind=ServiceMonitor"
    found = objects("--set", on)
    local, agents = sorted(kind(found, "Service"), key=lambda one: len(one["metadata"]["name"]), reverse=True)
    assert local["metadata"]["name"] == "gpuwatch-local"
    assert local["spec"]["internalTrafficPolicy"] == "Local"
    assert "clusterIP" not in local["spec"]
    assert local["spec"]["selector"] == agents["spec"]["selector"]
    assert local["spec"]["ports"] == agents["spec"]["ports"]
    [monitor] = kind(found, "ServiceMonitor")
    assert not monitor["spec"]["selector"]["matchLabels"].items() <= local["metadata"]["labels"].items()
