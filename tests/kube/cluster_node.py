"""One node of a real-looking cluster for the real sources: a gRPC kubelet, an HTTP API server, and a /proc of files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest

from gpuwatch.config import KubernetesSettings
from gpuwatch.kube import podresources_v1_pb2 as v1
from gpuwatch.kube.podresources import socket_of
from kube.apiserver import ScriptedServer, reached
from kube.kubelet import Kubelet
from kube.proctree import ProcTree


def uid_of(number: int) -> str:
    """UID of a pod."""
    return f"{number:08x}-aaaa-4bbb-8ccc-0123456789ab"


def tfjob_pod(number: int, replica: str, index: int, job: str = "mnist") -> dict[str, Any]:
    """A replica of a TFJob, as the API server tells it."""
    labels = {
        "training.kubeflow.org/job-name": job,
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/replica-type": replica,
        "training.kubeflow.org/replica-index": str(index),
    }
    run = f"{number:064x}"
    return {
        "metadata": {
            "uid": uid_of(number),
            "name": f"{job}-{replica}-{index}",
            "namespace": "team",
            "labels": labels,
            "ownerReferences": [{"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": job, "controller": True}],
        },
        "spec": {"nodeName": "node-a", "containers": [{"name": "tensorflow", "image": "image:1"}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "tensorflow", "containerID": f"containerd://{run}"}],
        },
    }


def cgroup_of(number: int) -> str:
    """Cgroup of a process in that pod's container."""
    return f"0::/kubepods/burstable/pod{uid_of(number)}/{number:064x}\n"


@dataclass
class ClusterNode:
    """What the outside says; a test changes it while the sources look on."""

    root: Path
    api: ScriptedServer
    proc: ProcTree
    given: dict[str, list[str]] = field(default_factory=dict)
    """Pod → device ids."""
    hung: threading.Event = field(default_factory=threading.Event)
    """While set the kubelet does not answer."""

    @property
    def settings(self) -> KubernetesSettings:
        """Everything switched on, looked at often."""
        return KubernetesSettings(kubelet_root=str(self.root), proc_root=str(self.proc.root), allocations_interval_seconds=1.0)

    def kubelet(self) -> Kubelet:
        """Its kubelet; a context manager."""
        return Kubelet(socket_of(self.root), v1=self._listed)

    def _listed(self, context: grpc.ServicerContext) -> bytes:
        while self.hung.is_set() and context.is_active():
            threading.Event().wait(0.05)
        pods = [
            v1.PodResources(
                name=pod,
                namespace="team",
                containers=[
                    v1.ContainerResources(
                        name="tensorflow", devices=[v1.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=[one]) for one in ids]
                    )
                ],
            )
            for pod, ids in self.given.items()
        ]
        return v1.ListPodResourcesResponse(pod_resources=pods).SerializeToString()


@contextmanager
def cluster_node(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterNode]:
    """A node whose API server answers; its kubelet is not started yet."""
    # The name of a socket has at most 107 characters, and a test's own folder may already take most of them.
    with ScriptedServer() as api, reached(api, folder), TemporaryDirectory() as short:
        api.held = True
        monkeypatch.setenv("KUBECONFIG", str(folder / "kubeconfig"))
        yield ClusterNode(Path(short) / "kubelet", api, ProcTree(folder / "proc"))
