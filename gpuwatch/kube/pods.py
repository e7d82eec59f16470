"""The pods of this node, as the API server tells them.

Of a pod only what tells its workload is kept; the rest, half of it ``managedFields``, is skipped as the text is read and never built.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable

import msgspec

from gpuwatch.device.readings import Struct
from gpuwatch.kube.client import ApiServer
from gpuwatch.kube.objects import IDLE_OK, Container, Owner, Pod, Pods, SourceState
from gpuwatch.kube.tf_config import shorten_tf_config
from gpuwatch.kube.watch import FAULTS, Resource, Watcher

__all__ = ["FAULTS", "PodSource", "decode_pod", "node_name"]

_VARIABLES = frozenset(
    {
        "JOB_COMPLETION_INDEX",
        "KATIB_TRIAL_NAME",
        "LOCAL_RANK",
        "LWS_GROUP_SIZE",
        "LWS_WORKER_INDEX",
        "MASTER_ADDR",
        "NB_PREFIX",
        "NODE_RANK",
        "RANK",
        "VC_TASK_INDEX",
        "VK_TASK_INDEX",
        "WORLD_SIZE",
    }
)
_VARIABLE_PREFIXES = ("TF_", "PET_")
_MAX_VARIABLES = 64
_MAX_VALUE = 1024
_ANNOTATIONS = frozenset(
    {
        "airflow_version",
        "batch.kubernetes.io/cronjob-scheduled-timestamp",
        "batch.kubernetes.io/job-completion-index",
        "dag_id",
        IDLE_OK,
        "kubernetes.io/config.hash",
        "kubernetes.io/config.mirror",
        "kubernetes.io/config.source",
        "kueue.x-k8s.io/workload",
        "map_index",
        "run_id",
        "scheduling.k8s.io/group-name",
        "task_id",
        "trainer.kubeflow.org/trainjob-ancestor-step",
        "try_number",
        "workflows.argoproj.io/node-id",
        "workflows.argoproj.io/node-name",
    }
)
_ANNOTATION_PREFIXES = ("gpuwatch.io/", "jobset.sigs.k8s.io/", "leaderworkerset.sigs.k8s.io/", "volcano.sh/")
_NODE_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")


class _Reference(Struct, frozen=True, kw_only=True):
    """That a value comes from elsewhere; from where is of no interest."""


class _Variable(Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    value: str | None = None
    value_from: _Reference | None = None


class _Port(Struct, frozen=True, kw_only=True):
    name: str = ""


class _Container(Struct, frozen=True, kw_only=True):
    name: str
    image: str = ""
    env: list[_Variable] | None = None
    ports: list[_Port] | None = None


class _Spec(Struct, frozen=True, kw_only=True, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    ephemeral_containers: list[_Container] | None = None


class _Terminated(Struct, frozen=True, kw_only=True):
    container_id: str = msgspec.field(default="", name="containerID")


class _ContainerState(Struct, frozen=True, kw_only=True):
    terminated: _Terminated | None = None


class _ContainerStatus(Struct, frozen=True, kw_only=True):
    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    state: _ContainerState | None = None
    last_state: _ContainerState | None = msgspec.field(default=None, name="lastState")


class _PodStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    phase: str = ""
    start_time: str | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    ephemeral_container_statuses: list[_ContainerStatus] | None = None


class _OwnerReference(Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Metadata(Struct, frozen=True, kw_only=True, rename="camel"):
    uid: str
    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_OwnerReference] | None = None


class _Pod(Struct, frozen=True, kw_only=True):
    metadata: _Metadata
    spec: _Spec | None = None
    status: _PodStatus | None = None


_decode = msgspec.json.Decoder(_Pod).decode


def decode_pod(text: bytes | msgspec.Raw) -> Pod:
    """The pod in the JSON of a core/v1 ``Pod``.

    Raises:
        msgspec.DecodeError: It is no such text.
    """
    pod = _decode(text)
    annotations = {
        key: value[:_MAX_VALUE]
        for key, value in (pod.metadata.annotations or {}).items()
        if key in _ANNOTATIONS or key.startswith(_ANNOTATION_PREFIXES)
    }
    status = pod.status or _PodStatus()
    return Pod(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        phase=status.phase,
        labels=pod.metadata.labels or {},
        annotations=annotations,
        owner=_owner(pod.metadata.owner_references),
        containers=_containers(pod.spec or _Spec(), _ids(status)),
        started=status.start_time or "",
        static_hash=_static_hash(annotations),
    )


def _static_hash(annotations: dict[str, str]) -> str:
    """Only a kubelet may set ``config.mirror``; ``config.hash`` alone could be anyone's and would claim another pod's processes."""
    mirror = annotations.get("kubernetes.io/config.mirror", "")
    return mirror if mirror == annotations.get("kubernetes.io/config.hash") else ""


def _owner(references: list[_OwnerReference] | None) -> Owner | None:
    for reference in references or ():
        if reference.controller:
            return Owner(group=reference.api_version.rpartition("/")[0], kind=reference.kind, name=reference.name)
    return None


def _ids(status: _PodStatus) -> dict[str, tuple[str, ...]]:
    """Container name → ids, the present run's first."""
    found: dict[str, tuple[str, ...]] = {}
    for group in (status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses):
        for container in group or ():
            runs = [container.container_id]
            runs += [state.terminated.container_id for state in (container.state, container.last_state) if state and state.terminated]
            ids = (run.rpartition("://")[2] for run in runs)
            found[container.name] = tuple(dict.fromkeys(run for run in ids if _CONTAINER_ID.fullmatch(run)))
    return found


def _containers(spec: _Spec, ids: dict[str, tuple[str, ...]]) -> tuple[Container, ...]:
    groups = (spec.containers, spec.init_containers, spec.ephemeral_containers)
    return tuple(
        Container(
            name=container.name,
            image=container.image[:_MAX_VALUE],
            ids=ids.get(container.name, ()),
            environment=_environment(container.env),
            ports=tuple(port.name for port in container.ports or () if port.name),
        )
        for group in groups
        for container in group or ()
    )


def _environment(variables: list[_Variable] | None) -> dict[str, str]:
    """The plain values among the variables that tell the workload."""
    kept: dict[str, str] = {}
    for variable in variables or ():
        name = variable.name
        if variable.value is None or variable.value_from is not None or len(kept) >= _MAX_VARIABLES:
            continue
        if name in _VARIABLES or name.startswith(_VARIABLE_PREFIXES):
            kept[name] = shorten_tf_config(variable.value) if name == "TF_CONFIG" else variable.value[:_MAX_VALUE]
    return kept


def node_name(name: str) -> str:
    """The name, if it can be a node's.

    Raises:
        ValueError: It cannot; without it the watch would be of every pod of the cluster.
    """
    if not _NODE_NAME.fullmatch(name):
        raise ValueError(f"node name {name!r}: expected the node's name in Kubernetes (a DNS name; set NODE_NAME from spec.nodeName)")
    return name


class PodSource:
    """Follows the pods of one node with one list and one watch; rights: ``list`` and ``watch`` on ``pods``.

    Args:
        api: The server, for this source alone.
        node: The node's name in Kubernetes.
        on_change: Called on this source's thread after each new view.
        clock: CLOCK_MONOTONIC in seconds.
        sleep: Waits so many seconds, or until stopped.
        chance: Spreads pauses.

    Raises:
        ValueError: See :func:`node_name`.
    """

    def __init__(
        self,
        api: ApiServer,
        node: str,
        *,
        on_change: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
        chance: random.Random | None = None,
    ) -> None:
        resource = Resource(
            name="pods", locate=lambda _: "/api/v1/pods", parse=decode_pod, field_selector=f"spec.nodeName={node_name(node)}"
        )
        self.watcher = Watcher(api, resource, publish=self._publish, clock=clock, sleep=sleep, chance=chance)
        self._on_change = on_change
        self._view = Pods(state=SourceState())

    @property
    def view(self) -> Pods:
        """The newest facts; may be read from any thread."""
        return self._view

    @property
    def rejected(self) -> int:
        """Answers, lines and pods that could not be understood, since the start."""
        return self.watcher.rejected

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self.watcher.start()

    def stop(self) -> None:
        """End after the present request; does not wait."""
        self.watcher.stop()

    def _publish(self) -> None:
        self._view = Pods(state=self.watcher.state, pods=tuple(self.watcher.objects.values()))
        if self._on_change is not None:
            self._on_change()
