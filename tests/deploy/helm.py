"""The chart under the real helm, and what comes out of it. ``make tools`` installs the programs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "gpuwatch"
MANIFESTS = ROOT / "deploy" / "manifests"
TOOLS = Path(sys.prefix) / "tools"
HELMS = ("helm3", "helm4")
CI = {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*-values.yaml"))}
NAMESPACE = "monitoring"

Object = dict[str, Any]


def run(program: str, *arguments: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of the installed programs."""
    path = TOOLS / program
    assert path.exists(), f"{path} is missing; run: make tools"
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=False, cwd=ROOT, input=stdin)


@cache
def template(*arguments: str, helm: str = "helm4") -> str:
    """What ``helm template`` writes for a release ``gpuwatch`` in the namespace ``monitoring``."""
    done = run(helm, "template", "gpuwatch", CHART, "--namespace", NAMESPACE, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(*arguments: str, helm: str = "helm4") -> str:
    """What ``helm template`` says when it refuses these values."""
    done = run(helm, "template", "gpuwatch", CHART, "--namespace", NAMESPACE, *arguments)
    assert done.returncode != 0, "these values are taken"
    return done.stderr


def objects(*arguments: str, helm: str = "helm4") -> list[Object]:
    """The objects of ``helm template``, as a strict reader sees them."""
    return [one for one in yaml.load_all(template(*arguments, helm=helm), Loader=StrictLoader) if one]


def of_ci(name: str, *more: str) -> list[Object]:
    """The objects of one of the chart's values files."""
    return objects("--values", str(CI[name]), *more)


def given(values: Mapping[str, object], folder: Path) -> tuple[str, str]:
    """Arguments that give these values."""
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(dict(values)), encoding="utf-8")
    return "--values", str(path)


def kind(found: Iterable[Object], name: str) -> list[Object]:
    """The objects of a kind."""
    return [one for one in found if one["kind"] == name]


def only(found: Iterable[Object], name: str) -> Object:
    """The one object of a kind that is no test, no board and not about TensorFlow."""
    others = [
        one for one in kind(found, name) if "-board-" not in one["metadata"]["name"] and not one["metadata"]["name"].endswith("-tensorflow")
    ]
    [one] = [one for one in others if "helm.sh/hook" not in one["metadata"].get("annotations", {})]
    return one


def pod_of(found: Iterable[Object]) -> Object:
    """The pod's specification in the DaemonSet."""
    specification: Object = only(found, "DaemonSet")["spec"]["template"]["spec"]
    return specification


def container_of(found: Iterable[Object]) -> Object:
    """The agent's container."""
    [container] = pod_of(found)["containers"]
    assert isinstance(container, dict)
    return container


class StrictLoader(yaml.CSafeLoader):
    """YAML in which a key that stands twice is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping, unless it has a key twice."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice: {keys}"
        return super().construct_mapping(node, deep)
