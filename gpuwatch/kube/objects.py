"""What the Kubernetes sources know: plain frozen data, as few fields as attribution needs.

An *allocation* is a kubelet fact (this container was given this device); a *pod* is an API server fact; a *process owner* is a kernel
fact; a *job* is what a person calls it. Sources publish them as whole frozen views; nobody changes one afterwards.
"""

from __future__ import annotations

from typing import Final

from gpuwatch.device.readings import Struct

IDLE_OK: Final = "gpuwatch.io/idle-ok"
"""Annotation or label with which the owner of a pod says, by the value ``true``, that it may hold GPUs without using them."""


class SourceState(Struct, frozen=True, kw_only=True):
    """How well one source does. ``fault`` is a bounded token (``no_socket``, ``permission``, ``timeout``, …), empty when up."""

    up: bool = False
    fault: str = "starting"
    detail: str = ""
    """The same in a person's words: one line."""
    updated_at: float | None = None
    """CLOCK_MONOTONIC of the last good answer; ``None`` before the first."""


class Allocation(Struct, frozen=True, kw_only=True):
    """One device of one container, as the kubelet tells it. Source: PodResources ``List``."""

    namespace: str
    pod: str
    container: str
    device_id: str = ""
    """The device plugin's own string (``GPU-…``, ``MIG-…``, ``GPU-…::3``, ``nvidia0/gi1``, …); empty for a DRA device."""
    resource: str = ""
    """Resource name, such as ``nvidia.com/gpu``; empty for a DRA device."""
    claim_namespace: str = ""
    claim: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    """DRA: with ``driver`` and ``pool`` the key into :class:`DraDevice`."""


class Allocations(Struct, frozen=True, kw_only=True):
    """Everything the kubelet has given out on this node."""

    state: SourceState = SourceState()
    allocations: tuple[Allocation, ...] = ()
    rejected: int = 0
    """Entries of the newest reply that were left out because they make no sense."""


class DraDevice(Struct, frozen=True, kw_only=True):
    """A device of a ResourceSlice. ``uuid`` is absent for MIG devices that are made on demand; then parent and profile are known."""

    driver: str
    pool: str
    device: str
    kind: str = "gpu"
    """``gpu``, ``mig`` or ``vfio``: attribute ``type``."""
    uuid: str = ""
    parent_uuid: str = ""
    profile: str = ""


class DraDevices(Struct, frozen=True, kw_only=True):
    """The node's DRA devices, and the claims whose access is administrative (their holders do not use the device)."""

    state: SourceState = SourceState()
    devices: tuple[DraDevice, ...] = ()
    admin_claims: frozenset[tuple[str, str]] = frozenset()
    """(namespace, claim name) of claims with ``adminAccess``."""


class Owner(Struct, frozen=True, kw_only=True):
    """The controlling owner of a pod. ``group`` without version: ``kubeflow.org``, ``batch``, ``apps``; empty for core."""

    group: str
    kind: str
    name: str


class Container(Struct, frozen=True, kw_only=True):
    """A container of a pod (also init and ephemeral ones)."""

    name: str
    image: str = ""
    ids: tuple[str, ...] = ()
    """64 hex digits, of this run and the one before."""
    environment: dict[str, str] = {}
    """Only the variables that tell the workload (see ``pods.py``), as far as they stand in the spec in plain text."""
    ports: tuple[str, ...] = ()
    """Names of its ports."""


class Pod(Struct, frozen=True, kw_only=True):
    """A pod of this node."""

    uid: str
    namespace: str
    name: str
    phase: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    """Only those that tell the workload (see ``pods.py``)."""
    owner: Owner | None = None
    containers: tuple[Container, ...] = ()
    started: str = ""
    """``status.startTime`` as written (RFC 3339, so it sorts)."""
    static_hash: str = ""
    """``kubernetes.io/config.hash``: the UID that the cgroup of a static pod bears."""

    @property
    def idle_ok(self) -> bool:
        """Its owner says that it may hold GPUs without using them. Any other value than ``true`` says nothing."""
        return "true" in (self.annotations.get(IDLE_OK), self.labels.get(IDLE_OK))


class Pods(Struct, frozen=True, kw_only=True):
    """The pods of this node."""

    state: SourceState = SourceState()
    pods: tuple[Pod, ...] = ()


class ProcessOwner(Struct, frozen=True, kw_only=True):
    """Whose process it is. ``pod_uid`` may be a static pod's hash; empty for a process outside every pod."""

    pid: int
    pod_uid: str = ""
    container_id: str = ""


class ProcessOwners(Struct, frozen=True, kw_only=True):
    """Owners of the processes that hold GPUs; processes that ended before they could be looked up are left out."""

    state: SourceState = SourceState()
    owners: dict[int, ProcessOwner] = {}
    rejected: int = 0
    """Processes of this pass that were left out because the kernel's files about them make no sense."""


class Views(Struct, frozen=True, kw_only=True):
    """The newest views of all sources; ``None`` where a source is switched off."""

    allocations: Allocations = Allocations()
    pods: Pods | None = None
    dra: DraDevices | None = None
    processes: ProcessOwners | None = None


class JobRef(Struct, frozen=True, kw_only=True):
    """The workload a pod belongs to. ``kind`` is never empty: a bare pod is kind ``Pod``."""

    kind: str
    name: str
    replica_type: str = ""
    replica_index: str = ""
    framework: str = ""
    """``tensorflow``, ``pytorch``, …; empty: unknown."""
    framework_reason: str = ""
    """What told the framework: ``owner``, ``label``, ``environment``, ``image``, ``container``, ``port``."""
    queue: str = ""
