"""What the documents tell people to type and to write, held to the programs that will read it.

There is no cluster. What this proves of a ``helm`` or ``kubectl`` line: the real program, in both versions, takes its verb, flags and
arguments, and gets as far as its first request, to an API server that is not there; charts and kustomizations in it are rendered. It does
not prove what a cluster would answer.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.helm import CHART, HELMS, ROOT, TOOLS, StrictLoader
from deploy.kinds import NEWEST, OLDEST, shape, validate
from gpuwatch.rules.pack import RECORDINGS

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", flags=re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([\w/-]+\.yaml)\n")
NOBODY = """
apiVersion: v1
kind: Config
current-context: closed
contexts: [{name: closed, context: {cluster: closed, user: nobody}}]
clusters: [{name: closed, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {}}]
"""
"""A cluster behind a port on which nothing listens."""
_TEXT, _SWITCH, _OPEN = {"type": "string"}, {"type": "boolean"}, {"type": "object"}
_TEXTS = {"type": "array", "items": _TEXT}
_STRATEGY = shape({"type": {"const": "RunAsAny"}})
OTHERS: dict[str, Any] = {
    "Application": shape(
        {
            "project": _TEXT,
            "source": shape({"repoURL": _TEXT, "path": _TEXT, "targetRevision": _TEXT, "helm": shape({"valuesObject": _OPEN})}),
            "destination": shape({"server": _TEXT, "namespace": _TEXT}),
            "syncPolicy": shape(
                {
                    "automated": shape({"prune": _SWITCH, "selfHeal": _SWITCH}),
                    "syncOptions": _TEXTS,
                    "managedNamespaceMetadata": shape({"labels": _OPEN}),
                }
            ),
        }
    ),
    "GitRepository": shape({"interval": _TEXT, "url": _TEXT, "ref": shape({"commit": _TEXT})}),
    "HelmRelease": shape(
        {
            "interval": _TEXT,
            "chart": shape(
                {
                    "spec": shape(
                        {"chart": _TEXT, "reconcileStrategy": {"const": "Revision"}, "sourceRef": shape({"kind": _TEXT, "name": _TEXT})}
                    )
                }
            ),
            "install": shape({"disableWait": _SWITCH}),
            "upgrade": shape({"disableWait": _SWITCH}),
            "values": _OPEN,
        }
    ),
    "SecurityContextConstraints": shape(
        dict.fromkeys(
            (
                "allowHostDirVolumePlugin",
                "allowHostIPC",
                "allowHostNetwork",
                "allowHostPID",
                "allowHostPorts",
                "allowPrivilegeEscalation",
                "allowPrivilegedContainer",
                "readOnlyRootFilesystem",
            ),
            _SWITCH,
        )
        | dict.fromkeys(("requiredDropCapabilities", "allowedCapabilities", "seccompProfiles", "volumes", "users"), _TEXTS)
        | dict.fromkeys(("runAsUser", "seLinuxContext", "fsGroup", "supplementalGroups"), _STRATEGY)
    ),
}
"""The fields that are used of kinds whose types are not at hand, as their projects document them."""


def blocks(language: str) -> list[tuple[str, str]]:
    """Page and content of every block of that language, without its indentation."""
    return [
        (path.name, re.sub(rf"^{indent}", "", content, flags=re.MULTILINE))
        for path in PAGES
        for indent, name, content in FENCE.findall(path.read_text(encoding="utf-8"))
        if name == language
    ]


def commands() -> list[tuple[str, str]]:
    """Page and line of every ``helm`` and ``kubectl`` command, each once a page: what a shell is given, and what ``$`` shows."""
    found = {}
    for page, content in blocks("sh"):
        for line in content.replace("\\\n", " ").splitlines():
            found[page, line.strip()] = None
    for page, content in blocks("text"):
        for line in content.splitlines():
            if line.startswith("$ "):
                found[page, line[2:].strip()] = None
    for path in PAGES:
        # In a sentence or a table; a bare "kubectl get" names the program and is no command.
        for span in re.findall(r"`((?:helm|kubectl) [^`]*)`", path.read_text(encoding="utf-8")):
            if len(span.split()) > 2 and "…" not in span:
                found[path.name, span] = None
    return [(page, line) for page, line in found if line.startswith(("helm ", "kubectl "))]


def words_of(line: str) -> list[str]:
    """The words of a command, up to a pipe, with something in place of what a reader puts in (``NODE``)."""
    words = shlex.split(re.sub(r"\b[A-Z]{3,}\b", lambda name: name[0].lower(), line), comments=True)
    return words[: words.index("|")] if "|" in words else words


def named_files() -> dict[str, str]:
    """Every YAML block that says its name in its first line."""
    found: dict[str, str] = {}
    for page, content in blocks("yaml"):
        if name := NAMED.match(content):
            assert name[1] not in found, f"{page}: {name[1]} is shown twice"
            found[name[1]] = content
    return found


FILES = named_files()
VALUES = {name: content for name, content in FILES.items() if name.endswith("values.yaml")}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as a reader has it: the source tree's ``deploy`` and ``dashboards``, and the files of the pages beside it."""
    place = tmp_path_factory.mktemp("reader")
    for name in ("deploy", "dashboards"):
        shutil.copytree(ROOT / name, place / name)
    for name, content in FILES.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(content, encoding="utf-8")
    (place / "nobody.kubeconfig").write_text(NOBODY, encoding="utf-8")
    return place


def call(place: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program with a home of its own and a cluster that is not there."""
    environment = {"HOME": str(place), "KUBECONFIG": str(place / "nobody.kubeconfig"), "PATH": ""}
    return subprocess.run([TOOLS / program, *arguments], capture_output=True, text=True, check=False, cwd=place, env=environment)


def assert_understood(done: subprocess.CompletedProcess[str], line: str) -> None:
    """The command succeeded, or nothing was wrong but that the cluster did not answer."""
    if done.returncode:
        assert "connect: connection refused" in done.stderr or "was refused - did you specify the right host" in done.stderr, (
            f"{line}\n{done.stderr}"
        )


@pytest.mark.parametrize("major", ["3", "4"])
@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_are_understood(page: str, line: str, major: str, place: Path) -> None:
    """Each line is one that the program takes, and what it renders or lints without a cluster is right."""
    words = words_of(line)
    assert not {"&&", ";", ">", "<"} & set(words), f"{page}: one command a line"
    done = call(place, f"{words[0]}{major}", *words[1:])
    if words[:2] in (["helm", "template"], ["helm", "lint"], ["helm", "show"], ["kubectl", "kustomize"]):
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    else:
        assert_understood(done, line)


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize(("page", "line"), [(page, line) for page, line in commands() if re.match(r"helm (install|upgrade) ", line)])
def test_what_is_installed_renders(page: str, line: str, helm: str, place: Path) -> None:
    """The chart takes the values of each ``helm install`` and ``helm upgrade`` on the pages, and makes valid objects."""
    words = words_of(line)
    words[1] = "template"
    done = call(place, helm, *[word for word in words[1:] if word not in ("--install", "--create-namespace")])
    assert done.returncode == 0, f"{page}: {line}\n{done.stderr}"
    for one in filter(None, yaml.load_all(done.stdout, Loader=StrictLoader)):
        validate(one, NEWEST)


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("name", VALUES)
def test_values_render(name: str, helm: str, place: Path) -> None:
    """Every file of values on the pages is taken by the chart's schema, also where the Prometheus operator is, and gives valid objects."""
    known = ("--api-versions", "monitoring.coreos.com/v1")
    done = call(place, helm, "template", "gpuwatch", "deploy/helm/gpuwatch", "--namespace", "gpuwatch", "--values", name, *known)
    assert done.returncode == 0, done.stderr
    for version in (OLDEST, NEWEST):
        for one in filter(None, yaml.load_all(done.stdout, Loader=StrictLoader)):
            validate(one, version)


@pytest.mark.parametrize("name", sorted(set(FILES) - set(VALUES) - {"prometheus.yaml", "overlay/kustomization.yaml"}))
def test_objects_are_valid(name: str, place: Path) -> None:
    """Every object on the pages has only fields that its kind has; values inside it are taken by the chart."""
    for one in yaml.load_all(FILES[name], Loader=StrictLoader):
        if one["kind"] not in OTHERS:
            validate(one, NEWEST)
            continue
        own = {"spec"} if "spec" in one else set(one) - {"apiVersion", "kind", "metadata"}
        jsonschema.validate(one["spec"] if "spec" in one else {key: one[key] for key in own}, OTHERS[one["kind"]])
        specification = one.get("spec", {})
        path = specification.get("source", {}).get("path") or specification.get("chart", {}).get("spec", {}).get("chart")
        values = specification.get("values") or specification.get("source", {}).get("helm", {}).get("valuesObject")
        if values:
            assert ROOT / path == CHART
            (place / "inner.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
            done = call(place, "helm4", "template", "gpuwatch", path, "--values", "inner.yaml")
            assert done.returncode == 0, done.stderr
            assert "kind: PodMonitor" in done.stdout


@pytest.mark.parametrize("kubectl", ["kubectl3", "kubectl4"])
def test_the_overlay_changes_what_it_says(kubectl: str, place: Path) -> None:
    """The kustomization of the page puts image and runtime class into the plain manifests."""
    done = call(place, kubectl, "kustomize", "overlay")
    assert done.returncode == 0, done.stderr
    [pod] = [one["spec"]["template"]["spec"] for one in yaml.safe_load_all(done.stdout) if one["kind"] == "DaemonSet"]
    assert pod["runtimeClassName"] == "nvidia"
    assert pod["containers"][0]["image"] == "registry.example.com/gpuwatch/gpuwatch:0.1.0"


def test_remote_write_takes_results_only(place: Path) -> None:
    """The real promtool accepts the configuration; it lets the recordings through that a fleet needs, and nothing of a single GPU."""
    done = subprocess.run(["promtool", "check", "config", place / "prometheus.yaml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    keep, drop = yaml.safe_load(FILES["prometheus.yaml"])["remote_write"][0]["write_relabel_configs"]
    sent = {one.name for one in RECORDINGS if re.fullmatch(keep["regex"], one.name) and not re.fullmatch(drop["regex"], one.name)}
    assert sent == {one.name for one in RECORDINGS if one.forward}
    assert not re.fullmatch(keep["regex"], "gpuwatch_gpu_up")
    assert re.fullmatch(keep["regex"], "ALERTS")


def test_the_figures_of_the_scaling_page_are_computed() -> None:
    """Each figure about series, samples, memory and disk follows from the budget and the assumptions that the page names."""
    text = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    rows = [
        [float(cell.replace(",", "").split()[0]) for cell in row.split("|")[1:-1]]
        for row in re.findall(r"^\| [\d,]+ \|.*$", text, re.MULTILINE)
    ]
    fleets, servers = [row for row in rows if len(row) == 7], [row for row in rows if len(row) == 3]
    assert (len(fleets), len(servers)) == (3, 3)
    for nodes, series, *samples, mig, mig_samples in fleets:
        assert (series, mig) == (nodes * 1_000, nodes * 2_500)
        assert samples == [round(series / seconds) for seconds in (15, 30, 60)]
        assert mig_samples == round(mig / 15)
    for series, gibibytes, gigabytes in servers:
        assert gibibytes == pytest.approx(series * 8 / 2**20, rel=0.05)
        assert gigabytes == pytest.approx(series / 15 * 86_400 * 1.5 / 1e9, rel=0.05)
    assert "| 1 in 225 s | 44 a second |" in text
    assert round(2 * 10_000 / 450) == 44


def test_every_right_of_the_chart_is_explained(place: Path) -> None:
    """The security page names each resource with its verbs, and every switch of the values that weakens the container."""
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    settings = ",".join(f"config.kubernetes.{name}=true" for name in ("resource_claims", "events", "node_condition"))
    done = call(place, "helm4", "template", "gpuwatch", "deploy/helm/gpuwatch", "--set", settings)
    [role] = [one for one in yaml.safe_load_all(done.stdout) if one["kind"] == "ClusterRole"]
    for rule in role["rules"]:
        for resource in rule["resources"]:
            assert f"| {', '.join(f'`{verb}`' for verb in rule['verbs'])} on `{resource}`" in text
    for switch in ("hostPID", "hostProc", "kernelLog.enabled", "privileged", "hostNetwork"):
        assert f"| `{switch}` |" in text


def test_every_yaml_block_is_yaml() -> None:
    """A reader can copy any of them."""
    for page, content in blocks("yaml"):
        assert list(yaml.load_all(content, Loader=StrictLoader)), page


def test_every_command_on_values_names_a_file_of_the_pages() -> None:
    """``--values`` and ``--filename`` never point at something that a reader has not."""
    for page, line in commands():
        for name in re.findall(r"--(?:values|filename) (\S+)", line):
            assert name in FILES or (ROOT / name).exists(), f"{page}: {line}"


def test_links_lead_somewhere() -> None:
    """Every relative link of the pages names a file of the repository, and every anchor a heading in it."""
    for path in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
            if "://" in target:
                continue
            name, _, anchor = target.partition("#")
            there = (path.parent / name).resolve() if name else path
            assert there.exists(), f"{path.name}: {target}"
            if anchor and there.suffix == ".md":
                headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), flags=re.MULTILINE)
                assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, (
                    f"{path.name}: {target}"
                )
