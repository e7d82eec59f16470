"""From the settings to the parts: when a cluster is told, and when it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gpuwatch import wiring
from gpuwatch.config import ConfigError, Settings, load
from gpuwatch.device.wire import Simulation
from gpuwatch.kube.notices import Notices
from gpuwatch.wiring import herald_of


def settings(**wishes: str) -> Settings:
    """With these under ``kubernetes``."""
    return load(
        Path("/dev/null"), environment={}, flags={"node_name": "node-a"} | {f"kubernetes.{key}": value for key, value in wishes.items()}
    )


EVENTS = {"events": "true"}
ALWAYS = {"attribution": "always", "api_server": "always"}


@pytest.mark.parametrize(
    ("wishes", "simulation", "once", "lines"),
    [
        ({}, None, False, 0),
        (ALWAYS, None, False, 0),
        (EVENTS, None, False, 1),
        (EVENTS | {"attribution": "always"}, None, False, 1),
        (EVENTS | ALWAYS, Simulation(scenario="idle"), False, 1),
        (EVENTS | ALWAYS, None, True, 0),
    ],
    ids=["not wished", "not wished in a cluster", "no cluster", "no token", "simulated", "once"],
)
def test_no_cluster_is_told(
    wishes: dict[str, str], simulation: Simulation | None, once: bool, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is not wished, or there is none, or nothing is real; one line says so where it was wished."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with capture_logs() as logs:
        herald = herald_of(settings(**wishes), simulation, once=once)
    assert herald._cluster is None
    assert len(logs) == lines


@pytest.mark.parametrize(
    ("wishes", "names"),
    [
        ({"events": "true"}, {"events"}),
        ({"node_condition": "true"}, {"node_condition"}),
        ({"events": "true", "node_condition": "true"}, {"events", "node_condition"}),
    ],
    ids=["events", "condition", "both"],
)
def test_a_cluster_is_told_what_is_wished(wishes: dict[str, str], names: set[str]) -> None:
    """No more and no less."""
    cluster = herald_of(settings(**ALWAYS, **wishes), None)._cluster
    assert isinstance(cluster, Notices)
    assert set(cluster.states) == names


def test_in_a_cluster_it_is_told_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``auto``, a container of a cluster that has a token."""
    token = tmp_path / "token"
    token.write_text("secret")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr(wiring, "SERVICE_ACCOUNT_TOKEN", token)
    assert herald_of(settings(**EVENTS), None)._cluster is not None


def test_a_node_that_cannot_be_in_a_cluster_is_refused() -> None:
    """Before anything is sent to a path made of it."""
    with pytest.raises(ConfigError, match="node_name"):
        herald_of(
            load(
                Path("/dev/null"),
                environment={},
                flags={"node_name": "No Node", **{f"kubernetes.{k}": v for k, v in (EVENTS | ALWAYS).items()}},
            ),
            None,
        )
