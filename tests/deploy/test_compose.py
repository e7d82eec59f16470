"""The compose file for one machine and what it mounts. No container engine is at hand: the parts are held to what reads them instead."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.helm import ROOT
from gpuwatch import __version__
from gpuwatch.config import Settings, load

COMPOSE = ROOT / "deploy" / "compose"
MADE_ELSEWHERE = {"dashboards/grafana"}
"""Made by ``gpuwatch generate`` from the alerts and the boards; mounted as they are in the repository."""


def parsed(name: str) -> Any:
    """A file of the folder."""
    return yaml.safe_load((COMPOSE / name).read_text(encoding="utf-8"))


SERVICES: dict[str, dict[str, Any]] = parsed("compose.yaml")["services"]


def mounts(name: str) -> dict[str, tuple[str, str]]:
    """Where in the container → what of the host, and the mode, of a service. A variable stands for its default."""
    found = {}
    for volume in SERVICES[name].get("volumes", ()):
        source, target, *mode = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", volume).split(":")
        found[target] = (source, "".join(mode))
    return found


def files_of(name: str) -> dict[str, Path]:
    """Where in the container → which file or folder of the repository."""
    return {target: (COMPOSE / source).resolve() for target, (source, _) in mounts(name).items() if source.startswith(".")}


def test_four_services() -> None:
    """One machine needs the agent, Prometheus, Alertmanager and Grafana, and each is started again by itself."""
    assert list(SERVICES) == ["gpuwatch", "prometheus", "alertmanager", "grafana"]
    assert {service["restart"] for service in SERVICES.values()} == {"unless-stopped"}


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_gains_rights(name: str) -> None:
    """No container writes into its own file system, has a capability or gains one; its port is this machine's alone."""
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "pid", "network_mode", "user"} & set(service)
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert all(mode == "ro" for source, mode in mounts(name).values() if source.startswith("."))


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name: str) -> None:
    """Each image has its full version; ours has the package's."""
    assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", SERVICES[name]["image"])
    assert SERVICES["gpuwatch"]["image"] == f"gpuwatch:{__version__}"
    assert (COMPOSE / SERVICES["gpuwatch"]["build"] / "Dockerfile").is_file()


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_asked_how_it_is(name: str) -> None:
    """Each has a healthcheck on a port that it serves, and the agent's is the path that asks for no credentials."""
    check = SERVICES[name]["healthcheck"]
    [published] = SERVICES[name]["ports"]
    [(port, path)] = re.findall(r"http://127\.0\.0\.1:(\d+)(/[\w/-]+)", " ".join(check["test"]))
    assert published.endswith(f":{port}")
    assert check["test"][0] == "CMD"
    if name == "gpuwatch":
        assert path == "/healthz"


def test_mounted_files_exist() -> None:
    """What is mounted comes from the repository, and is there; folders that are written to are named volumes."""
    volumes = parsed("compose.yaml")["volumes"]
    for name in SERVICES:
        for path in files_of(name).values():
            assert path.exists() or str(path.relative_to(ROOT)) in MADE_ELSEWHERE
        assert [source for source, _ in mounts(name).values() if not source.startswith(".") and source not in volumes] == []


def test_variables_are_explained() -> None:
    """Every variable of the compose file stands in example.env, with the same default; those that must be set are empty there."""
    text = (COMPOSE / "compose.yaml").read_text(encoding="utf-8")
    example = dict(re.findall(r"^([A-Z_]+)=(.*)$", (COMPOSE / "example.env").read_text(encoding="utf-8"), flags=re.MULTILINE))
    used = {name: default if sign == "-" else "" for name, sign, default in re.findall(r"\$\{([A-Z_]+):([-?])([^}]*)\}", text)}
    assert used == example
    assert "/deploy/compose/.env" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_the_agent_takes_its_settings() -> None:
    """The agent starts with exactly these variables, asks no cluster, and waits for no kernel log."""
    environment = SERVICES["gpuwatch"]["environment"]
    settings = load(Path("/dev/null"), environment=environment | {"NODE_NAME": "workstation"})
    assert (settings.node_name, settings.kubernetes.attribution, settings.read.kernel_log) == ("workstation", "never", "")
    assert SERVICES["gpuwatch"]["ports"] == [f"127.0.0.1:{Settings().server.port}:{Settings().server.port}"]


def test_the_agent_gets_all_gpus() -> None:
    """The agent's container reserves every GPU of the NVIDIA driver."""
    [device] = SERVICES["gpuwatch"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}


def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    """The real promtool accepts the configuration, laid out as mounted, together with the rules; they ask for the job of that name."""
    for target, path in files_of("prometheus").items():
        place = tmp_path / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            shutil.copy(path, place)
    config = tmp_path / "etc" / "prometheus" / "prometheus.yaml"
    assert f"--config.file=/{config.relative_to(tmp_path)}" in SERVICES["prometheus"]["command"]
    done = subprocess.run(["promtool", "check", "config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rules = config.parent / "rules" / "gpuwatch.yaml"
    assert not rules.exists() or 'job="gpuwatch"' in rules.read_text(encoding="utf-8")


def test_addresses_are_those_of_the_services() -> None:
    """Prometheus finds the agent and Alertmanager, and Grafana Prometheus, under their names and ports; labels of the agent stay."""
    config = parsed("prometheus.yaml")
    ports = {name: service["ports"][0].rpartition(":")[2] for name, service in SERVICES.items()}
    scraped = {job["job_name"]: job for job in config["scrape_configs"]}
    assert scraped["gpuwatch"]["static_configs"] == [{"targets": [f"gpuwatch:{ports['gpuwatch']}"]}]
    assert scraped["gpuwatch"]["honor_labels"] is True
    [alertmanager] = config["alerting"]["alertmanagers"]
    assert alertmanager["static_configs"] == [{"targets": [f"alertmanager:{ports['alertmanager']}"]}]
    [source] = parsed("grafana/datasources.yaml")["datasources"]
    assert source["url"] == f"http://prometheus:{ports['prometheus']}"
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]


def test_grafana_finds_its_provisioning() -> None:
    """Both files lie where Grafana looks for such files, and the boards where the provider says."""
    found = files_of("grafana")
    assert found["/etc/grafana/provisioning/datasources/gpuwatch.yaml"] == COMPOSE / "grafana" / "datasources.yaml"
    assert found["/etc/grafana/provisioning/dashboards/gpuwatch.yaml"] == COMPOSE / "grafana" / "dashboards.yaml"
    [provider] = parsed("grafana/dashboards.yaml")["providers"]
    assert found[provider["options"]["path"]] == ROOT / "dashboards" / "grafana"
    assert {parsed(f"grafana/{name}.yaml")["apiVersion"] for name in ("datasources", "dashboards")} == {1}
