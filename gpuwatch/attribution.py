"""Who holds which GPU: devices, allocations, pods and processes make holders. Pure.

Precedence: the kubelet's allocations say who was given a device; the pods say which of two claims is alive and what the workload is; the
processes say who uses a device without having been given it. A device without a holder gets the reason, so that "why has this GPU no
pod?" is answered by a metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from gpuwatch.device.readings import Process, Struct
from gpuwatch.kube.device_ids import DeviceId, parse_device_id
from gpuwatch.kube.objects import Allocation, DraDevice, JobRef, Pod, Pods, ProcessOwner, ProcessOwners, Views
from gpuwatch.snapshot import Gpu, Holder, Unattributed

REASONS: Final = frozenset({"not_allocated", "unknown_device", "pod_unknown", "pod_ended", "source_down", "process_outside_pod"})
_ENDED: Final = frozenset({"Succeeded", "Failed"})

Device = tuple[str, str]
"""(GPU UUID, MIG UUID or empty)."""


class Attribution(Struct, frozen=True, kw_only=True):
    """The result for one node."""

    holders: tuple[Holder, ...] = ()
    unattributed: tuple[Unattributed, ...] = ()
    unknown_devices: tuple[str, ...] = ()


class _Claim(NamedTuple):
    """A container's claim on a device. ``exclusive``: the device was meant for one holder alone."""

    namespace: str
    pod: str
    container: str
    exclusive: bool


def attribute(
    gpus: Iterable[Gpu], views: Views, *, job_of: Callable[[Pod], JobRef], labels_of: Callable[[Pod | None], tuple[str, ...]]
) -> Attribution:
    """Holders of every device, and the reason of every device without one."""
    inventory = _Inventory(gpus)
    pods = _PodIndex(views.pods)
    claims, unknown = _claims(inventory, views)
    holders: list[Holder] = []
    unattributed: list[Unattributed] = []
    for device in inventory.devices:
        found, ended = _believed(claims.get(device, {}), pods)
        waiting = [claim for claim in found if pods.awaited(claim.namespace, claim.pod)]
        known = [claim for claim in found if claim not in waiting]
        users = _users(inventory.processes(device), views.processes, pods)
        held = _holders(device, inventory.profile(device), known, users, pods, job_of=job_of, labels_of=labels_of)
        holders += held
        if not held:
            hints = _hints(inventory.processes(device), views.processes, pods)
            hints |= {hint for hint, given in (("pod_unknown", waiting), ("pod_ended", ended), ("unknown_device", unknown)) if given}
            reason = _reason(views, hints)
            unattributed.append(Unattributed(gpu_uuid=device[0], mig_uuid=device[1], reason=reason))
    return Attribution(holders=tuple(holders), unattributed=tuple(unattributed), unknown_devices=tuple(sorted(unknown)))


class _Inventory:
    """What NVML shows: the devices that can be held (whole GPUs, or the MIG instances of a GPU in MIG mode)."""

    def __init__(self, gpus: Iterable[Gpu]) -> None:
        self._by_minor: dict[int, str] = {}
        self._instances: dict[str, dict[str, tuple[int, int]]] = {}
        self._profiles: dict[str, dict[str, str]] = {}
        self._processes: dict[str, tuple[Process, ...]] = {}
        self._parents: dict[str, str] = {}
        self._unread: set[str] = set()
        for gpu in gpus:
            uuid = gpu.identity.uuid
            if not uuid:
                continue
            if gpu.modes.mig_enabled and gpu.medium is None:
                self._unread.add(uuid)
            if gpu.identity.minor_number is not None:
                self._by_minor[gpu.identity.minor_number] = uuid
            instances = gpu.medium.mig_instances if gpu.medium else ()
            self._instances[uuid] = {one.uuid: (one.gpu_instance, one.compute_instance) for one in instances}
            self._profiles[uuid] = {one.uuid: one.profile or "" for one in instances}
            self._parents |= dict.fromkeys(self._instances[uuid], uuid)
            self._processes[uuid] = (gpu.fast.processes or ()) if gpu.fast else ()

    @property
    def devices(self) -> list[Device]:
        """Every device that can be held, in the order of the GPUs."""
        return [(uuid, mig) for uuid, instances in self._instances.items() if uuid not in self._unread for mig in (instances or ("",))]

    def hides(self, device: DeviceId) -> bool:
        """Whether the id may be that of an instance of a GPU in MIG mode that cannot be read now, so that it is no news."""
        return device.kind == "mig" and bool(self._unread)

    def resolve(self, device: DeviceId) -> list[Device]:
        """The devices that an id names; none when NVML does not know it."""
        if device.kind == "all":
            return self.devices
        uuid = device.gpu_uuid or self._by_minor.get(-1 if device.minor_number is None else device.minor_number, "")
        if parent := self._parents.get(device.mig_uuid, ""):
            return [(parent, device.mig_uuid)]
        if device.mig_uuid and device.gpu_instance is None:
            return []
        instances = self._instances.get(uuid)
        if instances is None:
            return []
        if device.gpu_instance is None:
            return [(uuid, "")] if not instances and uuid not in self._unread else []
        wanted = [
            mig
            for mig, (gpu_instance, compute_instance) in instances.items()
            if gpu_instance == device.gpu_instance and device.compute_instance in (None, compute_instance)
        ]
        return [(uuid, mig) for mig in wanted]

    def resolve_dra(self, device: DraDevice) -> list[Device]:
        """By UUID; a MIG device made on demand by its parent and profile, if that is the only one of its kind."""
        if device.uuid:
            return self.resolve(parse_device_id(device.uuid))
        profiles = self._profiles.get(device.parent_uuid, {})
        same = [mig for mig, profile in profiles.items() if profile == device.profile]
        return [(device.parent_uuid, same[0])] if len(same) == 1 else []

    def profile(self, device: Device) -> str:
        """MIG profile of the device; empty for a whole GPU."""
        return self._profiles[device[0]].get(device[1], "")

    def processes(self, device: Device) -> list[Process]:
        """Processes on this device; under MIG those of its instance."""
        uuid, mig = device
        found = self._processes.get(uuid, ())
        if not mig:
            return list(found)
        gpu_instance, compute_instance = self._instances[uuid][mig]
        return [one for one in found if one.gpu_instance == gpu_instance and one.compute_instance in (None, compute_instance)]


class _PodIndex:
    """Pods by name and by every UID under which they are known."""

    def __init__(self, pods: Pods | None) -> None:
        self._watched = pods is not None and (pods.state.up or pods.state.fault == "starting")
        known = pods.pods if pods is not None else ()
        self._by_name = {(pod.namespace, pod.name): pod for pod in known}
        self._by_uid = {uid: pod for pod in known for uid in (pod.uid, pod.static_hash) if uid}
        self._by_container = {one: pod for pod in known for container in pod.containers for one in container.ids}

    def named(self, namespace: str, name: str) -> Pod | None:
        """The pod that has this name now."""
        return self._by_name.get((namespace, name))

    def of_process(self, owner: ProcessOwner) -> Pod | None:
        """The pod with this UID, or the static pod with this hash; without a UID (a private cgroup namespace) the pod of the container."""
        return self._by_uid.get(owner.pod_uid) if owner.pod_uid else self._by_container.get(owner.container_id)

    def awaited(self, namespace: str, name: str) -> bool:
        """The watch is live and will tell of this pod in a moment: better no series than one that is renamed at once."""
        return self._watched and (namespace, name) not in self._by_name


def _claims(inventory: _Inventory, views: Views) -> tuple[dict[Device, dict[tuple[str, str, str], _Claim]], set[str]]:
    """By device, the claims on it by container (the replicas of one GPU in one container count once); ids that NVML does not know."""
    slices = {(one.driver, one.pool, one.device): one for one in (views.dra.devices if views.dra else ())}
    admin = views.dra.admin_claims if views.dra else frozenset()
    claims: dict[Device, dict[tuple[str, str, str], _Claim]] = {}
    unknown: set[str] = set()
    for allocation in views.allocations.allocations:
        if (allocation.claim_namespace, allocation.claim) in admin:
            continue
        devices, exclusive, name = _resolved(allocation, inventory, slices)
        if not devices and name:
            unknown.add(name)
        key = (allocation.namespace, allocation.pod, allocation.container)
        for device in devices:
            claims.setdefault(device, {})[key] = _Claim(*key, exclusive=exclusive)
    return claims, unknown


def _resolved(
    allocation: Allocation, inventory: _Inventory, slices: Mapping[tuple[str, str, str], DraDevice]
) -> tuple[list[Device], bool, str]:
    """(devices, whether for one holder alone, name to complain of when there is none; empty for what is no GPU)."""
    if allocation.driver:
        device = slices.get((allocation.driver, allocation.pool, allocation.device))
        if device is None or device.kind == "vfio":
            return (
                [],
                False,
                f"{allocation.driver}/{allocation.device}" if allocation.driver.endswith("nvidia.com") and device is None else "",
            )
        return inventory.resolve_dra(device), False, f"{allocation.driver}/{allocation.device}"
    parsed = parse_device_id(allocation.device_id)
    if parsed.kind == "unknown":
        return [], False, allocation.device_id if allocation.resource.startswith("nvidia.com/") else ""
    return inventory.resolve(parsed), parsed.replica is None, "" if inventory.hides(parsed) else allocation.device_id


def _believed(claims: Mapping[tuple[str, str, str], _Claim], pods: _PodIndex) -> tuple[list[_Claim], bool]:
    """Claims of pods that are alive; of several pods on an exclusive device only the one that runs and started last."""
    alive, ended = [], False
    for claim in claims.values():
        pod = pods.named(claim.namespace, claim.pod)
        if pod is not None and pod.phase in _ENDED:
            ended = True
        else:
            alive.append(claim)
    owners = {(claim.namespace, claim.pod) for claim in alive if claim.exclusive}
    if len(owners) > 1:
        known = {owner: pod for owner in owners if (pod := pods.named(*owner)) is not None}
        if known:
            last = max(known, key=lambda owner: (known[owner].phase == "Running", known[owner].started, owner))
            alive = [claim for claim in alive if not claim.exclusive or (claim.namespace, claim.pod) == last]
    return alive, ended


class _User(NamedTuple):
    pid: int
    pod: Pod
    container: str


def _users(processes: Iterable[Process], owners: ProcessOwners | None, pods: _PodIndex) -> list[_User]:
    """Processes whose pod and container are known."""
    users = []
    for process in processes:
        owner = owners.owners.get(process.pid) if owners is not None else None
        pod = pods.of_process(owner) if owner is not None else None
        if owner is None or pod is None or pod.phase in _ENDED:
            continue
        container = next((one.name for one in pod.containers if owner.container_id and owner.container_id in one.ids), "")
        users.append(_User(process.pid, pod, container))
    return users


def _holders(
    device: Device,
    profile: str,
    claims: list[_Claim],
    users: list[_User],
    pods: _PodIndex,
    *,
    job_of: Callable[[Pod], JobRef],
    labels_of: Callable[[Pod | None], tuple[str, ...]],
) -> list[Holder]:
    """One holder per container: those that were given the device, then those that only use it."""
    pids: dict[tuple[str, str, str], list[int]] = {(claim.namespace, claim.pod, claim.container): [] for claim in claims}
    given = set(pids)
    for user in users:
        key = (user.pod.namespace, user.pod.name, user.container)
        if key not in given:
            # The kubelet gave the device to another container of this pod (a shared process namespace, a sandbox): it is that pod's use.
            key = next((one for one in given if one[:2] == key[:2]), key)
        pids.setdefault(key, []).append(user.pid)
    holders = []
    for key, held in pids.items():
        pod = pods.named(key[0], key[1])
        holders.append(
            Holder(
                gpu_uuid=device[0],
                mig_uuid=device[1],
                profile=profile,
                namespace=key[0],
                pod=key[1],
                container=key[2],
                job=job_of(pod) if pod is not None else JobRef(kind="Pod", name=key[1]),
                labels=labels_of(pod),
                shared=len(pids) > 1,
                requested=key in given,
                idle_ok=pod is not None and pod.idle_ok,
                pids=tuple(sorted(set(held))),
            )
        )
    return holders


def _hints(processes: Iterable[Process], owners: ProcessOwners | None, pods: _PodIndex) -> set[str]:
    """What the processes on a device without a holder tell; nothing of a process that has not been looked up."""
    if owners is None or not owners.state.up:
        return set()
    hints = set()
    for process in processes:
        owner = owners.owners.get(process.pid)
        if owner is None:
            continue
        if pods.of_process(owner) is not None:
            hints.add("pod_ended")
        else:
            hints.add("pod_unknown" if owner.pod_uid else "process_outside_pod")
    return hints


def _reason(views: Views, hints: set[str]) -> str:
    """The strongest hint. One of the ids that NVML does not know may mean this very device."""
    for hint in ("pod_unknown", "process_outside_pod", "pod_ended"):
        if hint in hints:
            return hint
    if not views.allocations.state.up:
        return "source_down"
    return "unknown_device" if "unknown_device" in hints else "not_allocated"
