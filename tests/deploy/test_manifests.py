"""The plain manifests: what the chart renders, whole and valid."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.helm import MANIFESTS, ROOT, TOOLS, StrictLoader, run
from deploy.kinds import NEWEST, OLDEST, validate

RENDERED = ("gpuwatch.yaml", "pod-monitor.yaml", "tensorflow-pod-monitor.yaml")


def test_they_are_what_the_chart_renders(tmp_path: Path) -> None:
    """What is committed is what ``make manifests`` would write."""
    script = ROOT / "scripts" / "render-manifests"
    done = subprocess.run([script, TOOLS / "helm4", tmp_path], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(RENDERED)
    for name in RENDERED:
        assert (tmp_path / name).read_text() == (MANIFESTS / name).read_text(), f"{name} differs; run: make manifests"


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", ["namespace.yaml", *RENDERED])
def test_they_are_valid(name: str, version: str) -> None:
    """Every object is one of its kind, in the oldest and the newest release of Kubernetes."""
    found = [one for one in yaml.load_all((MANIFESTS / name).read_text(), Loader=StrictLoader) if one]
    assert found
    for one in found:
        validate(one, version)


@pytest.mark.parametrize("kubectl", ["kubectl3", "kubectl4"])
def test_kustomize(kubectl: str) -> None:
    """``kubectl kustomize`` builds all of it, with a namespace that lets the pods in; nothing claims that Helm manages it."""
    done = run(kubectl, "kustomize", MANIFESTS)
    assert done.returncode == 0, done.stderr
    found = [one for one in yaml.safe_load_all(done.stdout) if one]
    assert sorted(one["kind"] for one in found) == [
        "ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "Namespace", "Service", "ServiceAccount",
    ]  # fmt: skip
    [namespace] = [one for one in found if one["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "privileged"}
    assert {one["metadata"].get("namespace") for one in found} == {None, namespace["metadata"]["name"]}
    assert "Helm" not in done.stdout
    assert "helm" not in done.stdout


def test_the_patch_in_the_kustomization_works(tmp_path: Path) -> None:
    """What the comments of the kustomization offer is a kustomization: with all of it on, the pod has the runtime class."""
    text = (MANIFESTS / "kustomization.yaml").read_text().replace("  # - prometheus-rule-object.yaml\n", "")
    lines = [
        line.replace("# ", "", 1) if line.lstrip().startswith(("# -", "# patches", "#   ", "#     ")) else line
        for line in text.splitlines()
    ]
    for name in ("namespace.yaml", *RENDERED):
        (tmp_path / name).write_text((MANIFESTS / name).read_text())
    (tmp_path / "kustomization.yaml").write_text("\n".join(lines) + "\n")
    done = run("kubectl4", "kustomize", tmp_path)
    assert done.returncode == 0, done.stderr
    found = [one for one in yaml.safe_load_all(done.stdout) if one]
    [daemonset] = [one for one in found if one["kind"] == "DaemonSet"]
    assert daemonset["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"
    assert "PodMonitor" in {one["kind"] for one in found}
