"""The chart as the two helms render it: valid objects, in any cluster that it allows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from deploy.helm import CHART, CI, HELMS, NAMESPACE, container_of, given, kind, objects, of_ci, only, pod_of, refusal, run, template
from deploy.kinds import NEWEST, OLDEST, validate
from gpuwatch import __version__

EVERYTHING = (
    "--set",
    "monitor.enabled=true,tensorflowMonitor.enabled=true,service.nodeLocal=true,prometheusRule.enabled=true,networkPolicy.enabled=true,networkPolicy.egress.enabled=true",
)
WANTED = {"prometheus-operator", "gke", "time-slicing", "mig-mixed", "dra", "no-api", "tls-client-certificates"}


def test_there_is_a_values_file_for_each_kind_of_cluster() -> None:
    """The seven kinds of clusters that the chart is made for each have a values file, and there are no others."""
    assert set(CI) == WANTED


@pytest.mark.parametrize("helm", HELMS)
def test_lint(helm: str) -> None:
    """``helm lint --strict`` is content with the defaults and with every values file."""
    for values in ((), *(("--values", str(path)) for path in CI.values())):
        done = run(helm, "lint", "--strict", CHART, *values)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("name", ["", *CI])
def test_both_helms_render_the_same(name: str) -> None:
    """Helm 3 and helm 4 make the same objects, and the same each time."""
    values = ("--values", str(CI[name])) if name else EVERYTHING
    assert objects(*values, helm="helm3") == objects(*values, helm="helm4")
    again = run("helm4", "template", "gpuwatch", CHART, "--namespace", NAMESPACE, *values)
    assert again.stdout == template(*values)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", ["", *CI])
def test_objects_are_valid(name: str, version: str) -> None:
    """Every object has only fields that its type has, in the oldest and in the newest release of Kubernetes."""
    found = of_ci(name) if name else objects(*EVERYTHING)
    assert len(found) > 4
    for one in found:
        validate(one, version)


def test_the_validation_is_strict() -> None:
    """A misspelt field would be found: the check is no formality."""
    found = objects(*EVERYTHING)
    pod_of(found)["containers"][0]["readinesProbe"] = {}
    only(found, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["honourLabels"] = True
    for name in ("DaemonSet", "PodMonitor"):
        with pytest.raises(Exception, match="Additional properties are not allowed"):
            validate(only(found, name), NEWEST)


def test_versions() -> None:
    """Chart and image have the package's version, and the oldest Kubernetes is the one whose types are checked."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    assert chart["kubeVersion"] == f">={OLDEST}.0-0"
    assert container_of(objects())["image"] == f"ghcr.io/gpuwatch/gpuwatch:{__version__}"
    assert "chart requires kubeVersion" in refusal("--kube-version", "1.24.9")


def test_every_object_is_labelled_and_has_its_place() -> None:
    """All objects carry the recommended labels; what lives in a namespace names it, also another one than the release's."""
    for one in objects(*EVERYTHING, "--set", "namespaceOverride=gpus,commonLabels.team=ml"):
        labels = one["metadata"]["labels"]
        assert labels.items() >= {"app.kubernetes.io/instance": "gpuwatch", "app.kubernetes.io/part-of": "gpuwatch", "team": "ml"}.items()
        assert labels["helm.sh/chart"] == f"gpuwatch-{__version__}"
        assert one["metadata"].get("namespace") == (None if one["kind"].startswith("ClusterRole") else "gpus")


def test_selectors_never_change() -> None:
    """A DaemonSet's selector cannot be changed later: it holds name and instance only, and no label of a version."""
    assert only(objects(), "DaemonSet")["spec"]["selector"] == {
        "matchLabels": {"app.kubernetes.io/name": "gpuwatch", "app.kubernetes.io/instance": "gpuwatch"}
    }


def test_a_second_release_beside_the_first() -> None:
    """Two releases in two namespaces share no name in the cluster."""
    roles = [kind(objects("--namespace", namespace), "ClusterRole")[0]["metadata"]["name"] for namespace in ("one", "two")]
    assert roles == ["one-gpuwatch", "two-gpuwatch"]


def test_nodes_are_chosen_by_any_of_the_labels() -> None:
    """A GPU node has one of the labels, of whatever tool or cloud: each stands in a term of its own; every taint is tolerated."""
    pod = pod_of(objects())
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    keys = {expression["key"] for term in terms for expression in term["matchExpressions"]}
    assert all(set(term) == {"matchExpressions"} and len(term["matchExpressions"]) == 1 for term in terms)
    assert keys >= {
        "feature.node.kubernetes.io/pci-10de.present",
        "nvidia.com/gpu.present",
        "cloud.google.com/gke-accelerator",
        "k8s.amazonaws.com/accelerator",
        "kubernetes.azure.com/accelerator",
    }
    assert pod["tolerations"] == [{"operator": "Exists"}]


def test_own_affinity_replaces_the_labels(tmp_path: Path) -> None:
    """A nodeAffinity of one's own stands alone; another kind of affinity stands beside the labels; no labels means every node."""
    own = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    assert pod_of(objects(*given({"affinity": own}, tmp_path)))["affinity"] == own
    anti = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    (tmp_path / "anti").mkdir()
    assert set(pod_of(objects(*given({"affinity": anti}, tmp_path / "anti")))["affinity"]) == {"nodeAffinity", "podAntiAffinity"}
    assert "affinity" not in pod_of(objects("--set-json", "gpuNodes.anyOf=[]"))


def test_the_driver_comes_from_the_runtime_or_from_a_directory() -> None:
    """The NVIDIA runtime is asked for all GPUs and for NVML only, and the scheduler never; on GKE the node's directory is used."""
    plain = container_of(objects())
    environment = {one["name"]: one.get("value") for one in plain["env"]}
    assert (environment["NVIDIA_VISIBLE_DEVICES"], environment["NVIDIA_DRIVER_CAPABILITIES"]) == ("all", "utility")
    assert "runtimeClassName" not in pod_of(objects())
    assert pod_of(of_ci("mig-mixed"))["runtimeClassName"] == "nvidia"
    gke = container_of(of_ci("gke"))
    environment = {one["name"]: one.get("value") for one in gke["env"]}
    assert environment["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"
    assert "NVIDIA_VISIBLE_DEVICES" not in environment
    assert {"name": "driver", "hostPath": {"path": "/home/kubernetes/bin/nvidia"}} in pod_of(of_ci("gke"))["volumes"]
    assert not [text for name in CI for text in container_of(of_ci(name))["resources"]["limits"] if "nvidia" in text]


@pytest.mark.parametrize("name", CI)
def test_probes_need_no_credentials(name: str) -> None:
    """Each probe asks a path that is served without credentials, at the agent's port, in the scheme that is spoken there."""
    container = container_of(of_ci(name))
    probes = {kind: container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    scheme = "HTTPS" if name.startswith("tls") else "HTTP"
    assert {kind: probe["path"] for kind, probe in probes.items()} == {
        "startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz",
    }  # fmt: skip
    assert {(probe["port"], probe["scheme"]) for probe in probes.values()} == {("metrics", scheme)}
    assert container["ports"] == [{"name": "metrics", "containerPort": 9838, "protocol": "TCP"}]


def test_the_port_is_the_settings_port() -> None:
    """One setting moves the listener, the container's port, the Service and the test."""
    found = objects("--set", "config.server.port=9000")
    assert container_of(found)["ports"][0]["containerPort"] == 9000
    assert only(found, "Service")["spec"]["ports"][0]["port"] == 9000
    [test] = kind(found, "Pod")
    assert {"name": "PORT", "value": "9000"} in test["spec"]["containers"][0]["env"]


def test_a_change_of_settings_makes_new_pods() -> None:
    """The pod's annotation follows the configuration, since the agent reads it only at its start."""

    def checksum(*values: str) -> str:
        return str(only(objects(*values), "DaemonSet")["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum() == checksum("--set", "podLabels.team=ml") != checksum("--set", "config.log.level=debug")


def test_images_by_digest_registry_and_secret() -> None:
    """A digest wins over the tag, the parent chart's registry over ours, and pull secrets of both are named once."""
    values = "image.tag=v1,image.digest=sha256:" + 64 * "a" + ",global.imageRegistry=mirror.example.com"
    secrets = ("--set-json", 'imagePullSecrets=["one"]', "--set-json", 'global.imagePullSecrets=[{"name":"one"},"two"]')
    found = objects("--set", values, *secrets)
    assert container_of(found)["image"] == "mirror.example.com/gpuwatch/gpuwatch@sha256:" + 64 * "a"
    for pod in (pod_of(found), kind(found, "Pod")[0]["spec"]):
        assert pod["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]


def test_dashboards_with_none_and_with_some(tmp_path: Path) -> None:
    """Each board in ``files/dashboards`` becomes a ConfigMap that the sidecar finds; without boards there is none."""
    boards = sorted((CHART / "files").glob("dashboards/*.json"))
    assert len([one for one in kind(objects(), "ConfigMap") if "-board-" in one["metadata"]["name"]]) == len(boards)
    copy = tmp_path / "chart"
    shutil.copytree(CHART, copy)
    (copy / "files" / "dashboards").mkdir(exist_ok=True)
    text = '{"title": "Fleet {{ $labels.gpu }}",\n "uid": "gpuwatch-fleet"}\n'
    (copy / "files" / "dashboards" / "gpu_fleet.json").write_text(text)
    done = run("helm4", "template", "gpuwatch", copy, "--namespace", NAMESPACE, "--set", "dashboards.namespace=grafana")
    [board] = [one for one in yaml.safe_load_all(done.stdout) if one and one["metadata"]["name"] == "gpuwatch-board-gpu-fleet"]
    validate(board, NEWEST)
    assert board["data"] == {"gpu_fleet.json": text}
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert board["metadata"]["annotations"] == {"grafana_folder": "GPUs"}
    assert board["metadata"]["namespace"] == "grafana"


def test_dashboards_of_a_long_name_are_told_apart(tmp_path: Path) -> None:
    """The longest name that a release may have leaves each board a name of its own."""
    copy = tmp_path / "chart"
    shutil.copytree(CHART, copy)
    (copy / "files" / "dashboards").mkdir(exist_ok=True)
    for board in ("gpuwatch-agent", "gpuwatch-job"):
        (copy / "files" / "dashboards" / f"{board}.json").write_text("{}\n")
    done = run("helm4", "template", "gpuwatch", copy, "--set", "fullnameOverride=" + 50 * "a")
    names = [one["metadata"]["name"] for one in yaml.safe_load_all(done.stdout) if one and one["kind"] == "ConfigMap"]
    assert len(set(names)) == len(names)
    assert {50 * "a" + "-board-gpuwatch-agent", 50 * "a" + "-board-gpuwatch-job"} <= set(names)


def test_the_operator_kinds_come_by_themselves_where_they_are_known() -> None:
    """``auto``: monitor and rules are made in a cluster that knows their kinds, and nothing fails in one that does not."""
    assert not [one for one in objects() if one["apiVersion"].startswith("monitoring")]
    known = objects("--api-versions", "monitoring.coreos.com/v1")
    assert [one["kind"] for one in known if one["apiVersion"].startswith("monitoring")] == ["PodMonitor", "PrometheusRule"]
    off = objects("--api-versions", "monitoring.coreos.com/v1", "--set", "monitor.enabled=false,prometheusRule.enabled=false")
    assert off == objects()


def test_network_policy_lets_scrapers_and_the_test_in() -> None:
    """Only the metrics port is open, to the peers named and to the test's pod; outwards only the API server, or nothing."""
    found = of_ci("prometheus-operator")
    policy = only(found, "NetworkPolicy")["spec"]
    [rule] = policy["ingress"]
    [test] = kind(found, "Pod")
    assert rule["ports"] == [{"port": "metrics", "protocol": "TCP"}]
    assert rule["from"][0]["podSelector"]["matchLabels"].items() <= test["metadata"]["labels"].items()
    assert rule["from"][1] == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    assert policy["egress"] == [{"ports": [{"port": 443, "protocol": "TCP"}, {"port": 6443, "protocol": "TCP"}]}]
    silent = objects("--set", "networkPolicy.enabled=true,networkPolicy.egress.enabled=true,config.kubernetes.api_server=never")
    assert only(silent, "NetworkPolicy")["spec"]["egress"] == []


def test_the_test_pod_is_no_agent() -> None:
    """Neither the Service nor a monitor nor the DaemonSet takes the pod of ``helm test`` for an agent."""
    found = objects("--set", "monitor.enabled=true")
    [test] = kind(found, "Pod")
    for selector in (
        only(found, "Service")["spec"]["selector"],
        only(found, "DaemonSet")["spec"]["selector"]["matchLabels"],
        only(found, "PodMonitor")["spec"]["selector"]["matchLabels"],
    ):
        assert not selector.items() <= test["metadata"]["labels"].items()
        assert selector.items() <= only(found, "DaemonSet")["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("helm", HELMS)
def test_package(helm: str, tmp_path: Path) -> None:
    """The packed chart renders as the directory does, and is far below the megabyte that a release may have."""
    done = run(helm, "package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    package = tmp_path / f"gpuwatch-{__version__}.tgz"
    assert package.stat().st_size < 300_000
    assert run(helm, "template", "gpuwatch", package, "--namespace", NAMESPACE).stdout == template(helm=helm)
