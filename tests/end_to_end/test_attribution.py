"""Jobs in the scrapes of the whole agent: with real sources against a kubelet, an API server and a /proc; in the demo; in Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from daemon import Daemon, Seen, demo, wait_for, write_scenario
from gpuwatch.agent import Agent
from gpuwatch.config import load
from gpuwatch.device.simulated.gpu import build_gpus
from gpuwatch.device.simulated.scenario import load_scenario
from gpuwatch.device.wire import Simulation
from gpuwatch.kube.sources import KubeSources
from gpuwatch.metrics.exposition import Exposition
from kube.apiserver import PODS, ScriptedServer, chunks
from kube.cluster_node import ClusterNode, cgroup_of, cluster_node, tfjob_pod
from prometheus import Prometheus, prometheus
from serving import Running, serving

INFO, ALLOCATED = "gpuwatch_job_gpu_info", "gpuwatch_job_gpu_allocated_seconds_total"
THREE = """
gpus:
  - {board: h100-sxm, count: 2, loads: [{kind: training}], holders: [{pid: 4242, memory_share: 0.5}]}
  - {board: h100-sxm}
"""


@dataclass
class Scraped:
    """An agent with real sources, behind a real server."""

    node: ClusterNode
    server: Running
    uuids: tuple[str, ...]

    def look(self) -> Seen:
        """One scrape."""
        return Seen(time.monotonic(), self.server.get("/metrics").text, (0, ""), (0, ""))

    def until(self, question: Callable[[Seen], object], what: str) -> Seen:
        """The first scrape of which something is true."""
        found: list[Seen] = []

        def asked() -> bool:
            found.append(self.look())
            return bool(question(found[-1]))

        wait_for(asked, what)
        return found[-1]


@contextlib.contextmanager
def living(agent: Agent) -> Iterator[None]:
    """The agent's loop in a thread, as in the daemon but beside the test."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(agent.run())
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.wait({task})), name="agent under test")
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


@pytest.fixture
def scraped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scraped]:
    """A worker was given GPU 0; a ps, which was given nothing, computes on GPU 1; GPU 2 is free. The kubelet is not started yet."""
    scenario = write_scenario(tmp_path, THREE)
    uuids = tuple(gpu.uuid for gpu in build_gpus(load_scenario(scenario)))
    with cluster_node(tmp_path, monkeypatch) as node:
        node.given["mnist-worker-0"] = [uuids[0]]
        node.api.cluster.put(tfjob_pod(1, "worker", 0))
        node.api.cluster.put(tfjob_pod(2, "ps", 0))
        node.proc.add(4242, cgroup=cgroup_of(1))
        node.proc.add(4243, cgroup=cgroup_of(2))
        agent = Agent(load(Path("/dev/null"), environment={}, flags={"node_name": "node-a"}), Simulation(scenario=str(scenario)))
        agent._sources = KubeSources(node.settings, "node-a", ask_api_server=True)
        with living(agent), serving(agent=agent, renderer=Exposition(None)) as server:  # type: ignore[arg-type]
            yield Scraped(node, server, uuids)


def job_of(seen: Seen, gpu: str, **labels: str) -> float | None:
    """The info of a GPU's holder."""
    return seen.value(INFO, gpu=gpu, **labels)


def source(seen: Seen, name: str, what: str = "up") -> float | None:
    """State or age of a source."""
    return seen.value(f"gpuwatch_attribution_{what}", source=name)


def end_for_good(api: ScriptedServer) -> None:
    """Close the port, and each connection that is still open at its next request."""
    for kind in ("watch", "list", "discovery"):
        api.script(kind, *[chunks([], cut=True)] * 8)
    api.release()
    api.shutdown()
    api.server_close()


def test_k5_the_kubelet_is_absent_comes_hangs_and_comes_back(scraped: Scraped) -> None:
    """Devices are shown from the start; jobs come with the kubelet, stay while it hangs, which is said, and it recovers by itself."""
    absent = scraped.until(lambda seen: seen.up(2) and source(seen, "pods") and job_of(seen, "0"), "devices without a kubelet")
    assert (source(absent, "podresources"), job_of(absent, "0")) == (0.0, 1.0)
    assert absent.value(INFO, gpu="0", requested="false") == 1.0  # its process alone tells of it
    assert absent.value("gpuwatch_gpu_unattributed", gpu="2", reason="source_down") == 1.0
    with scraped.node.kubelet():
        scraped.until(lambda seen: job_of(seen, "0", pod="mnist-worker-0", requested="true", replica_type="worker"), "the worker's GPU")
        shown = scraped.until(lambda seen: seen.value("gpuwatch_gpu_unattributed", gpu="2", reason="not_allocated"), "the free GPU")
        assert job_of(shown, "1", pod="mnist-ps-0", replica_type="ps", requested="false", job_name="mnist") == 1.0
        scraped.node.hung.set()
        hanging = scraped.until(lambda seen: source(seen, "podresources") == 0.0, "the silence of the kubelet")
        assert hanging.value("gpuwatch_attribution_fault", source="podresources", reason="timeout") == 1.0
        assert job_of(hanging, "0", requested="true") == 1.0
        assert hanging.up(0) == hanging.up(1) == hanging.up(2) == 1.0
        scraped.node.hung.clear()
        scraped.until(lambda seen: source(seen, "podresources"), "the kubelet's answer")


def test_k6_without_the_api_server_everything_goes_on(scraped: Scraped) -> None:
    """Its facts stay and grow older, which is said; counters of jobs go on; a pod that comes meanwhile is shown by its name."""
    with scraped.node.kubelet():
        before = scraped.until(lambda seen: job_of(seen, "0", job_kind="TFJob", requested="true"), "the worker")
        end_for_good(scraped.node.api)
        gone = scraped.until(lambda seen: source(seen, "pods") == 0.0, "the loss of the API server")
        scraped.node.given["late"] = [scraped.uuids[2]]
        later = scraped.until(lambda seen: job_of(seen, "2", pod="late"), "the late pod")
        assert job_of(later, "0", job_kind="TFJob", job_name="mnist") == 1.0
        assert job_of(later, "2", job_kind="Pod", job_name="late") == 1.0
        assert (source(later, "pods", "age_seconds") or 0.0) > (source(gone, "pods", "age_seconds") or 0.0)
        assert (later.value(ALLOCATED, gpu="0") or 0.0) > (before.value(ALLOCATED, gpu="0") or 0.0)
        assert later.up(0) == 1.0


def test_k10_scrapes_ask_nobody(scraped: Scraped) -> None:
    """Fifty scrapes cost no request; one list and one watch of pods serve, also when a pod comes, which is never without its job's name."""
    with scraped.node.kubelet():
        scraped.until(lambda seen: job_of(seen, "0", requested="true") and source(seen, "dra"), "the worker")
        wait_for(lambda: scraped.node.api.count("watch") == 2, "the watches of pods and slices")
        asked = len(scraped.node.api.requests)
        for _ in range(50):
            scraped.look()
        assert len(scraped.node.api.requests) == asked
        scraped.node.given["mnist-worker-1"] = [scraped.uuids[2]]
        waiting = scraped.until(lambda seen: seen.value("gpuwatch_gpu_unattributed", gpu="2", reason="pod_unknown"), "an awaited pod")
        assert job_of(waiting, "2") is None
        scraped.node.api.change(lambda cluster: cluster.put(tfjob_pod(3, "worker", 1)))
        named = scraped.until(lambda seen: job_of(seen, "2"), "the new worker")
        assert job_of(named, "2", job_kind="TFJob", replica_index="1") == 1.0
        assert (scraped.node.api.count("list", PODS), scraped.node.api.count("watch", PODS)) == (1, 1)


ENDING = """
gpus: [{board: h100-sxm, count: 2, loads: [{kind: training}]}]
pods:
  - {name: first, namespace: team, devices: ["0"], until: 9, labels: {team: "vi\\"s\\\\ion"}}
  - {name: second, namespace: team, devices: ["1"], from: 6}
"""


def test_k9_k15_o6_jobs_come_and_go(tmp_path: Path) -> None:
    """A pod's end takes its gauges at once and its counters after the grace; no scrape shows a GPU as held and free."""
    with demo(tmp_path, ENDING, "kubernetes.grace=5s", "kubernetes.pod_labels=team=team") as daemon:
        first = daemon.until(lambda seen: seen.value(INFO, pod="first") == 1.0, "the first pod")
        assert first.value(INFO, pod="first", team='vi"s\\ion') == 1.0
        daemon.until(lambda seen: seen.value(INFO, pod="second") == 1.0, "the second pod")
        ended = daemon.until(lambda seen: seen.at > first.at and seen.value(INFO, pod="first") is None, "the end of the first pod")
        assert ended.value(ALLOCATED, pod="first") is not None
        assert not [name for name, labels in ended.samples if ("pod", "first") in labels and not name.endswith("_total")]
        daemon.until(lambda seen: seen.at > ended.at and seen.value(ALLOCATED, pod="first") is None, "the end of its grace")
    _never_both(daemon)
    allocated = [value for seen in daemon.seen if (value := seen.value(ALLOCATED, pod="first")) is not None]
    assert allocated == sorted(allocated)


def _never_both(daemon: Daemon) -> None:
    """Each GPU that is read has a holder or a reason, in every scrape; hardware series name no pod."""
    for seen in daemon.seen:
        for gpu in ("0", "1"):
            held = sum(name == INFO and ("gpu", gpu) in labels for name, labels in seen.samples)
            free = sum(name == "gpuwatch_gpu_unattributed" and ("gpu", gpu) in labels for name, labels in seen.samples)
            assert held + free == (seen.value("gpuwatch_gpu_up", gpu=gpu) is not None)
        assert not [name for name in seen.device_series if any(other == name and "pod" in dict(labels) for other, labels in seen.samples)]


CLUSTER = "cluster: {chief: 1, ps: 2, worker: 4, evaluator: 1}"
REPLICAS = {"node-1": ("chief-0", "worker-0", "worker-1", "ps-0"), "node-2": ("worker-2", "worker-3", "ps-1", "evaluator-0")}
CONFIGURATION = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: gpuwatch
    honor_labels: true
    static_configs: [{{targets: [{targets}]}}]
"""


def body_of(node: str) -> str:
    """A node's part of the TFJob, with a GPU for the chief and for each worker, and one to spare."""
    lines, gpus = [], 0
    for replica in REPLICAS[node]:
        kind, _, index = replica.partition("-")
        devices = ""
        if kind in ("chief", "worker"):
            devices, gpus = f'devices: ["{gpus}"], ', gpus + 1
        lines.append(
            f"  - {{name: gpt-{replica}, namespace: language, {devices}tfjob: {{name: gpt, type: {kind}, index: {index}, {CLUSTER}}}}}"
        )
    pods = "\n".join(lines)
    return (
        f"seed: {node[-1]}\ngpus: [{{board: h100-sxm, count: {gpus}, loads: [{{kind: training}}]}}, {{board: h100-sxm}}]\npods:\n{pods}\n"
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A TFJob over two simulated nodes, scraped by a Prometheus."""
    with contextlib.ExitStack() as stack:
        daemons = []
        for node in REPLICAS:
            folder = tmp_path_factory.mktemp(node)
            daemons.append(stack.enter_context(demo(folder, body_of(node), f"node_name={node}", watch=False)))
        for daemon in daemons:
            wait_for(lambda daemon=daemon: daemon.look().ready, "a ready node")  # type: ignore[misc]
        targets = ", ".join(f'"{daemon.url.removeprefix("http://")}"' for daemon in daemons)
        asked = stack.enter_context(prometheus(tmp_path_factory.mktemp("prometheus"), CONFIGURATION.format(targets=targets)))
        wait_for(lambda: len(results(asked, INFO)) == 5 and len(results(asked, "gpuwatch_gpu_utilization_ratio")) == 7, "all series")
        yield asked


def results(server: Prometheus, expression: str) -> list[tuple[dict[str, str], float]]:
    """Labels and value of each series of an instant query."""
    data = server.ask("query", query=expression)
    return [(one["metric"], float(one["value"][1])) for one in data["result"]] if data else []


def test_a_tfjob_over_two_nodes_is_tagged(server: Prometheus) -> None:
    """The chief's and every worker's GPU carries the job's labels, on whichever node; ps and evaluator hold none; two GPUs are free."""
    infos = [labels for labels, _ in results(server, INFO)]
    assert sorted((one["node"], one["replica_type"], one["replica_index"]) for one in infos) == [
        ("node-1", "chief", "0"),
        ("node-1", "worker", "0"),
        ("node-1", "worker", "1"),
        ("node-2", "worker", "2"),
        ("node-2", "worker", "3"),
    ]
    same = {(one["job_kind"], one["job_name"], one["namespace"], one["framework"]) for one in infos}
    assert same == {("TFJob", "gpt", "language", "tensorflow")}
    assert len({one["uuid"] for one in infos}) == 5
    assert not [one for one in infos if any(label.startswith("exported_") for label in one)]
    free = results(server, 'gpuwatch_gpu_unattributed{reason="not_allocated"}')
    assert sorted((one["node"], one["gpu"]) for one, _ in free) == [("node-1", "3"), ("node-2", "2")]


def test_hardware_joins_its_job(server: Prometheus) -> None:
    """The documented join gives each held GPU's utilisation under its job's labels; sums over the job span the nodes."""
    joined = results(server, f"{INFO} * on (node, uuid) group_left () gpuwatch_gpu_utilization_ratio")
    assert sorted(labels["pod"] for labels, _ in joined) == sorted(
        f"gpt-{replica}" for replicas in REPLICAS.values() for replica in replicas if replica[0] in "cw"
    )
    assert all(0.5 < value <= 1.0 for _, value in joined)
    ((labels, gpus),) = results(server, f"sum by (job_kind, job_name) ({INFO})")
    assert (labels, gpus) == ({"job_kind": "TFJob", "job_name": "gpt"}, 5.0)
    assert not [one for one, _ in results(server, "gpuwatch_gpu_utilization_ratio") if "pod" in one or "job_name" in one]
