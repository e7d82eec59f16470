"""A simulated cluster: the pods of a scenario as the kubelet, the API server and /proc would tell them. For the demo and for tests.

The GPUs are those of the simulated driver, with the same UUIDs, and everything above is the real code.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable

from gpuwatch.device.simulated import Scenario, load_scenario
from gpuwatch.device.simulated.gpu import SimulatedGpu, build_gpus
from gpuwatch.device.simulated.pod import DEVICE, ReplicaOf, ScenarioPod
from gpuwatch.kube.objects import (
    Allocation,
    Allocations,
    Container,
    Owner,
    Pod,
    Pods,
    ProcessOwner,
    ProcessOwners,
    SourceState,
    Views,
)


def simulated_sources(name_or_path: str, clock: Callable[[], float]) -> SimulatedSources | None:
    """The cluster of a scenario; ``None`` where it names no pods: a machine outside every cluster."""
    scenario = load_scenario(name_or_path)
    return SimulatedSources(scenario, clock) if scenario.pods else None


class SimulatedSources:
    """The views of a scenario at the time of ``clock`` (seconds since the scenario began)."""

    def __init__(self, scenario: Scenario, clock: Callable[[], float], *, now: Callable[[], float] = time.monotonic) -> None:
        self._scenario = scenario
        self._gpus = build_gpus(self._scenario)
        self._clock = clock
        self._now = now

    def start(self) -> None:
        """Nothing to begin: a view is a function of the time."""

    def stop(self) -> None:
        """Nothing to end."""

    def offer_pids(self, pids: frozenset[int]) -> None:
        """The scenario knows its processes."""

    def view(self) -> Views:
        """What every source says now. Each source has just answered."""
        t = self._clock()
        pods = tuple(pod for pod in self._scenario.pods if pod.covers(t))
        state = SourceState(up=True, fault="", updated_at=self._now())
        allocations = tuple(one for pod in pods for one in self._allocations(pod, t))
        owners = {one.pid: one for pod in pods for one in self._owners(pod, t)}
        return Views(
            allocations=Allocations(state=state, allocations=allocations),
            pods=Pods(state=state, pods=tuple(_pod(pod) for pod in pods)),
            processes=ProcessOwners(state=state, owners=self._strangers(t) | owners),
        )

    def _strangers(self, t: float) -> dict[int, ProcessOwner]:
        """Every process on a GPU as one outside every pod; those of pods are put in their place."""
        return {holder.pid: ProcessOwner(pid=holder.pid) for gpu in self._gpus for holder in gpu.holders_at(t)}

    def _allocations(self, pod: ScenarioPod, t: float) -> Iterable[Allocation]:
        for text in pod.devices:
            device_id = self._device_id(text, t)
            if device_id:
                yield Allocation(
                    namespace=pod.namespace, pod=pod.name, container=_container(pod), device_id=device_id, resource="nvidia.com/gpu"
                )

    def _device_id(self, text: str, t: float) -> str:
        """The device plugin's string; empty for a MIG device that does not exist now."""
        match = DEVICE.fullmatch(text)
        assert match is not None  # noqa: S101 (the scenario was checked)
        gpu = self._gpus[int(match["gpu"])]
        instances = gpu.instances_at(t)
        uuid = gpu.uuid
        if match["mig"] is not None:
            place = int(match["mig"])
            uuid = instances[place].uuid if instances is not None and place < len(instances) else ""
        return f"{uuid}::{match['replica']}" if uuid and match["replica"] is not None else uuid

    def _owners(self, pod: ScenarioPod, t: float) -> Iterable[ProcessOwner]:
        uid, container = _uid(pod), _container_id(pod)
        pids = pod.pids
        if pids is None:
            pids = tuple(pid for text in pod.devices if "::" not in text for pid in _pids_on(self._gpus, text, t))
        return [ProcessOwner(pid=pid, pod_uid=uid, container_id=container) for pid in pids]


def _pids_on(gpus: tuple[SimulatedGpu, ...], text: str, t: float) -> list[int]:
    match = DEVICE.fullmatch(text)
    assert match is not None  # noqa: S101 (the scenario was checked)
    mig = None if match["mig"] is None else int(match["mig"])
    return [holder.pid for holder in gpus[int(match["gpu"])].holders_at(t) if holder.mig == mig]


def _pod(pod: ScenarioPod) -> Pod:
    replica = pod.tfjob
    labels, environment, image = dict(pod.labels), dict(pod.environment), pod.image
    owner = None if pod.owner is None else Owner(group=pod.owner.group, kind=pod.owner.kind, name=pod.owner.name)
    if replica is not None:
        labels = _tfjob_labels(replica) | labels
        environment = {"TF_CONFIG": _tf_config(replica)} | environment
        owner = owner or Owner(group="kubeflow.org", kind="TFJob", name=replica.name)
        image = image or "tensorflow/tensorflow:2.21.0-gpu"
    container = Container(name=_container(pod), image=image, ids=(_container_id(pod),), environment=environment)
    return Pod(
        uid=_uid(pod),
        namespace=pod.namespace,
        name=pod.name,
        phase=pod.phase,
        labels=labels,
        annotations=pod.annotations,
        owner=owner,
        containers=(container,),
        started=f"2026-01-01T{int(pod.from_) // 3600:02d}:{int(pod.from_) // 60 % 60:02d}:{int(pod.from_) % 60:02d}Z",
    )


def _tfjob_labels(replica: ReplicaOf) -> dict[str, str]:
    """As the training operator from 1.6 on."""
    labels = {
        "training.kubeflow.org/job-name": replica.name,
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/replica-type": replica.type,
        "training.kubeflow.org/replica-index": str(replica.index),
    }
    if replica.type == "chief":
        labels["training.kubeflow.org/job-role"] = "master"
    return labels


def _tf_config(replica: ReplicaOf) -> str:
    sizes = replica.cluster or {replica.type: replica.index + 1}
    cluster = {kind: [f"{replica.name}-{kind}-{number}:2222" for number in range(count)] for kind, count in sizes.items()}
    return json.dumps({"cluster": cluster, "task": {"type": replica.type, "index": replica.index}, "environment": "cloud"})


def _container(pod: ScenarioPod) -> str:
    return "tensorflow" if pod.tfjob is not None else pod.container


def _uid(pod: ScenarioPod) -> str:
    """A UID that differs when a pod is made again under its name."""
    digits = hashlib.sha256(f"{pod.namespace}/{pod.name}/{pod.from_}".encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"


def _container_id(pod: ScenarioPod) -> str:
    return hashlib.sha256(f"container of {_uid(pod)}".encode()).hexdigest()
