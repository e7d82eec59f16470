"""All real sources together: over a real gRPC socket, real HTTP and real files, in threads of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from daemon import wait_for
from gpuwatch.kube.objects import Allocation, Views
from gpuwatch.kube.sources import KubeSources
from kube.apiserver import PODS
from kube.cluster_node import cgroup_of, cluster_node, tfjob_pod, uid_of

GPU = "GPU-00000001-aaaa-4bbb-8ccc-000000000001"


def until(sources: KubeSources, question: Callable[[Views], object], what: str) -> Views:
    """The first view of which something is true."""
    found: list[Views] = []

    def asked() -> bool:
        found.append(sources.view())
        return bool(question(found[-1]))

    wait_for(asked, what)
    return found[-1]


def test_every_source_tells_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocations, pods, DRA and processes come by themselves, changes are followed, and a look costs no question (K10)."""
    with cluster_node(tmp_path, monkeypatch) as node, node.kubelet() as kubelet:
        node.given["mnist-worker-0"] = [GPU]
        node.api.cluster.put(tfjob_pod(1, "worker", 0))
        node.proc.add(4242, cgroup=cgroup_of(1))
        patient = msgspec.structs.replace(node.settings, allocations_interval_seconds=300.0)  # only a change of a pod makes it ask again
        sources = KubeSources(patient, "node-a", ask_api_server=True)
        before = sources.view()
        assert [one.state.fault for one in (before.allocations, before.pods, before.dra, before.processes) if one] == ["starting"] * 4
        sources.start()
        try:
            sources.offer_pids(frozenset({4242}))
            views = until(sources, lambda one: one.allocations.allocations and one.pods and one.pods.pods, "allocations and pods")
            assert views.allocations.allocations == (
                Allocation(namespace="team", pod="mnist-worker-0", container="tensorflow", device_id=GPU, resource="nvidia.com/gpu"),
            )
            views = until(sources, lambda one: one.processes and one.processes.owners and one.dra and one.dra.state.up, "processes and DRA")
            assert views.processes is not None
            assert views.processes.owners[4242].pod_uid == uid_of(1)
            node.given["mnist-worker-1"] = [GPU.replace("1", "2")]
            node.api.change(lambda cluster: cluster.put(tfjob_pod(2, "worker", 1)))
            until(sources, lambda one: one.pods and len(one.pods.pods) == 2 and len(one.allocations.allocations) == 2, "the new pod")
            wait_for(lambda: node.api.count("watch") == 2, "the watches of pods and slices")
            asked = len(node.api.requests)
            for _ in range(1000):
                sources.view()
            assert (node.api.count("list", PODS), node.api.count("watch", PODS)) == (1, 1)
            assert len(node.api.requests) == asked
            assert len(kubelet.calls) < 1000
        finally:
            sources.stop()
            node.api.release()


def test_the_kubelet_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the API server and without processes only the kubelet is asked, and nobody else has a view."""
    with cluster_node(tmp_path, monkeypatch) as node, node.kubelet():
        wishes = msgspec.structs.replace(node.settings, processes=False)
        sources = KubeSources(wishes, "node-a", ask_api_server=False)
        sources.start()
        sources.offer_pids(frozenset({1}))
        try:
            views = until(sources, lambda one: one.allocations.state.up, "the kubelet's answer")
            assert (views.pods, views.dra, views.processes) == (None, None, None)
            assert node.api.requests == []
        finally:
            sources.stop()


def test_stopping_waits_for_nobody_and_ends_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet that hangs and a watch that is held hold up neither ``stop`` nor the end of the threads."""
    with cluster_node(tmp_path, monkeypatch) as node, node.kubelet():
        node.hung.set()
        there = set(threading.enumerate())
        sources = KubeSources(node.settings, "node-a", ask_api_server=True)
        sources.start()
        wait_for(lambda: node.api.count("watch", PODS), "a watch")
        mine = {"podresources", "kube-processes"}
        assert mine <= {thread.name for thread in set(threading.enumerate()) - there}
        sources.stop()
        wait_for(lambda: not mine & {thread.name for thread in set(threading.enumerate()) - there}, "the end of the threads")
        node.api.release()
        node.hung.clear()


def test_processes_are_looked_up_as_of_their_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K13: a process that began after the driver's list bears the PID of one that ended, and belongs to nobody."""
    with cluster_node(tmp_path, monkeypatch) as node:
        sources = KubeSources(node.settings, "node-a", ask_api_server=False)
        later = int((time.clock_gettime(time.CLOCK_BOOTTIME) + 3600) * 100)
        node.proc.add(10, cgroup=cgroup_of(1))
        node.proc.add(11, cgroup=cgroup_of(2), start=later)
        sources.offer_pids(frozenset({10, 11, 12}))
        sources.start()
        try:
            views = until(sources, lambda one: one.processes and one.processes.owners, "the first look-up")
            assert views.processes is not None
            assert set(views.processes.owners) == {10}
        finally:
            sources.stop()
