"""Who is told when a GPU fails: the whole agent over a simulated driver, with the real sources and a real API server to tell."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from daemon import demo, wait_for, write_scenario
from end_to_end.test_attribution import living
from gpuwatch.agent import Agent
from gpuwatch.config import load
from gpuwatch.device.simulated.gpu import build_gpus
from gpuwatch.device.simulated.scenario import load_scenario
from gpuwatch.device.wire import Simulation
from gpuwatch.herald import Herald
from gpuwatch.kube.client import api_server
from gpuwatch.kube.events import SAME_SECONDS
from gpuwatch.kube.notices import Notices
from gpuwatch.kube.sources import KubeSources
from gpuwatch.snapshot import Snapshot
from kube.apiserver import ScriptedServer, hang
from kube.cluster_node import ClusterNode, cluster_node, tfjob_pod

THREE = "gpus: [{board: h100-sxm, count: 3, loads: [{kind: training}]}]\n"
NO_ROW = "faults: [{kind: remapped-rows, gpu: 1, uncorrected: 1, failed: true}]\n"


@dataclass
class Reporting:
    """An agent that tells a cluster, with a file of faults."""

    agent: Agent
    api: ScriptedServer
    faults: Path
    began_at: float

    def inject(self, *faults: dict[str, Any]) -> None:
        """Let these happen from two seconds hence."""
        at = time.monotonic() - self.began_at + 2.0
        fresh = self.faults.with_suffix(".new")
        fresh.write_text(json.dumps([{"from": at} | fault for fault in faults]))
        fresh.replace(self.faults)

    @property
    def snapshot(self) -> Snapshot:
        """The newest."""
        return self.agent.snapshot()

    def states(self) -> list[str]:
        """Of the GPUs."""
        return [gpu.verdict.state if gpu.verdict else "" for gpu in self.snapshot.gpus]

    def about(self, kind: str, name: str) -> list[str]:
        """Reasons of the events about an object."""
        return self.api.cluster.told.about(kind, name)

    def condition(self) -> str:
        """The status of the node's GPUs; empty while the node says nothing."""
        conditions = self.api.cluster.told.nodes["node-a"]["status"]["conditions"]
        return next((str(one["status"]) for one in conditions if one["type"] == "GpuHealthy"), "")

    def counts(self) -> dict[str, int]:
        """Events by what became of them."""
        kubernetes = self.snapshot.kubernetes
        return kubernetes.notices if kubernetes is not None else {}

    def until_known(self) -> None:
        """Until every GPU is judged and both holders are known."""
        wait_for(lambda: len(self.states()) == 3 and all(state not in ("", "unknown") for state in self.states()), "three judged GPUs")
        wait_for(lambda: sum(use.held and use.holder.requested for use in self.snapshot.jobs) == 2, "the two workers")


@contextmanager
def reporting(node: ClusterNode, folder: Path, body: str = THREE) -> Iterator[Reporting]:
    """Two workers hold GPUs 0 and 1, a ps holds none, GPU 2 is free."""
    scenario, faults = write_scenario(folder, body), folder / "faults.json"
    faults.write_text("[]")
    uuids = [gpu.uuid for gpu in build_gpus(load_scenario(scenario))]
    node.given |= {"mnist-worker-0": [uuids[0]], "mnist-worker-1": [uuids[1]]}
    for number, (replica, index) in enumerate([("worker", 0), ("worker", 1), ("ps", 0)]):
        node.api.cluster.put(tfjob_pod(number, replica, index))
    node.api.cluster.told.nodes.setdefault("node-a", {"metadata": {"name": "node-a"}, "status": {"conditions": []}})
    began_at = time.monotonic()
    flags = {"node_name": "node-a", "read.medium_interval": "2s"}
    agent = Agent(load(Path("/dev/null"), environment={}, flags=flags), Simulation(scenario=str(scenario), injected_file=str(faults)))
    agent._sources = KubeSources(node.settings, "node-a", ask_api_server=True)
    agent._herald = Herald(Notices(api_server("node-a"), "node-a", events=True, condition=True))
    with living(agent):
        yield Reporting(agent, node.api, faults, began_at)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterNode]:
    """With a kubelet."""
    with cluster_node(tmp_path, monkeypatch) as one, one.kubelet():
        yield one


def test_a_lost_gpu_is_told_to_its_holder_and_the_node(node: ClusterNode, tmp_path: Path) -> None:
    """Exactly the pod that held it reads of it, and the node; both read of its return; no other pod ever does."""
    with reporting(node, tmp_path) as one:
        one.until_known()
        wait_for(lambda: one.condition() == "True", "a healthy node")
        assert one.api.cluster.told.events == {}
        one.inject({"kind": "gpu-lost", "gpu": 0})
        wait_for(lambda: one.about("Pod", "mnist-worker-0"), "the event about the pod")
        wait_for(lambda: one.condition() == "False", "an unhealthy node")
        wait_for(lambda: {reason.code for reason in one.snapshot.gpus[0].verdict.reasons} >= {"gpu_lost", "xid_79"}, "both reasons")  # type: ignore[union-attr]
        assert one.about("Pod", "mnist-worker-0") == one.about("Node", "node-a") == ["GpuFailed"]
        one.inject({"kind": "gpu-lost", "gpu": 0, "from": 0.0, "until": time.monotonic() - one.began_at + 2.0})
        wait_for(lambda: one.about("Pod", "mnist-worker-0")[1:], "its return")
        wait_for(lambda: one.condition() == "True", "a healthy node again")
        for kind, name in (("Pod", "mnist-worker-0"), ("Node", "node-a")):
            assert one.about(kind, name) == ["GpuFailed", "GpuRecovered"]
        about = Counter(event["involvedObject"]["name"] for event in one.api.cluster.told.events.values())
        assert about == {"mnist-worker-0": 2, "node-a": 2}
        event = next(event for event in one.api.cluster.told.events.values() if event["involvedObject"]["kind"] == "Pod")
        uuid = one.snapshot.gpus[0].identity.uuid
        assert uuid in event["message"]
        assert "off the bus" in event["message"]


def test_a_quiet_node_tells_nothing(node: ClusterNode, tmp_path: Path) -> None:
    """Sound GPUs under load cost no event; the node is healthy."""
    with reporting(node, tmp_path) as one:
        one.until_known()
        wait_for(lambda: one.condition() == "True" and one.snapshot.kubernetes.sources["events"].up, "the right and the condition")  # type: ignore[union-attr]
        read = one.snapshot.agent.last_read_timestamp_seconds["medium"]
        wait_for(lambda: one.snapshot.agent.last_read_timestamp_seconds["medium"] > read + 5.0, "a few reads more")
        assert (one.api.cluster.told.events, one.counts()) == ({}, {})


def test_a_restarted_agent_tells_nothing_twice(node: ClusterNode, tmp_path: Path) -> None:
    """A GPU that was bad before the start is told of once its holder is known; the next agent's events are known to the server."""
    for life in range(2):
        with reporting(node, tmp_path, THREE + NO_ROW) as one:
            one.until_known()
            wait_for(lambda: sum(one.counts().values()) == 2, f"what became of two events of life {life}")
            assert one.states() == ["ok", "failed", "ok"]
    told = node.api.cluster.told.events.values()
    stretch = {"mnist-worker-1": set(), "node-a": set()}  # type: ignore[var-annotated]
    for event in told:
        assert event["reason"] == "GpuFailed"
        at = time.mktime(time.strptime(event["firstTimestamp"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
        times = stretch[event["involvedObject"]["name"]]
        assert at // SAME_SECONDS not in times
        times.add(at // SAME_SECONDS)
    assert all(stretch.values())


def test_an_api_server_that_hangs_costs_no_reading(node: ClusterNode, tmp_path: Path) -> None:
    """While every answer to what it is told hangs, GPUs are read and judged on, and the agent ends when it is asked to."""
    node.api.script("post", hang, hang, hang)
    node.api.script("patch", hang, hang, hang)
    with reporting(node, tmp_path) as one:
        one.until_known()
        wait_for(lambda: one.api.count("post"), "a request that hangs")
        one.inject({"kind": "gpu-lost", "gpu": 0})
        wait_for(lambda: one.states() == ["failed", "ok", "ok"], "the verdict")
        read = one.snapshot.agent.last_read_timestamp_seconds["fast"]
        wait_for(lambda: one.snapshot.agent.last_read_timestamp_seconds["fast"] > read, "another read")
    assert one.api.cluster.told.events == {}


def test_the_demo_logs_a_change_once_and_tells_no_cluster(tmp_path: Path) -> None:
    """Simulated GPUs are never told to a cluster, whatever the settings; the log has one line with who is hit."""
    body = (
        THREE + NO_ROW + "pods: [{name: gpt-worker-0, namespace: language, devices: ['1'], tfjob: {name: gpt, type: worker, index: 0}}]\n"
    )
    with demo(tmp_path, body, "kubernetes.events=true", "kubernetes.node_condition=true") as daemon:
        shown = daemon.until(lambda seen: seen.value("gpuwatch_gpu_health_state", gpu="1", state="failed") == 1.0, "the failure")
        daemon.until(lambda seen: seen.ready, "three more scrapes", after=shown.at + 3.0)
        lines = [line for line in daemon.events if line["event"] in ("GPU has failed", "GPU is degraded", "GPU is sound again")]
        (line,) = lines
        assert (line["level"], line["gpu"], line["state"], line["action"]) == ("warning", 1, "failed", "inspect")
        assert (line["jobs"], line["pods"]) == (["TFJob/language/gpt"], ["language/gpt-worker-0"])
        assert "row_remap_failed" in line["reasons"]
        assert [one for one in daemon.events if "no cluster is told of simulated GPUs" in one["event"]]
        assert not [name for name in daemon.look().samples if name[0] == "gpuwatch_kubernetes_events_total"]
