"""One simulated GPU: its board, who it is, what runs on it and what is wrong with it, at any time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from gpuwatch.device.simulated.board import MEBIBYTE, Board, load_board
from gpuwatch.device.simulated.fault import AnyFault, Fault, MigReshape
from gpuwatch.device.simulated.load import Level, blend, level_of
from gpuwatch.device.simulated.mig import MigInstance, instances_of, keep_uuids
from gpuwatch.device.simulated.noise import stable_key, stable_uuid
from gpuwatch.device.simulated.scenario import GpuGroup, Holder, Load, Scenario
from gpuwatch.device.simulated.timeline import Phase, Step, Timeline

_FaultKind = TypeVar("_FaultKind", bound=Fault)
_FIRST_PID = 4000
_MIG_IDLE_BYTES_PER_SLICE = 9 * MEBIBYTE
"""What an empty MIG instance already shows as used, for each memory slice (captures: 9 to 26 MiB)."""


@dataclass(frozen=True, slots=True)
class MigEra:
    """MIG as it is from ``start`` on; ``instances`` is ``None`` while MIG mode is off."""

    start: float
    instances: tuple[MigInstance, ...] | None


class SimulatedGpu:
    """A GPU of the node. Immutable, so every thread may read it."""

    def __init__(self, index: int, place: int, group: GpuGroup, scenario: Scenario) -> None:
        self.index = index
        self.board: Board = load_board(group.board)
        self.key = stable_key(f"{scenario.seed}/{index}")
        self.uuid = f"GPU-{stable_uuid(f'{scenario.seed}/{index}/{group.board}')}"
        self.serial = str(1_650_000_000_000 + self.key % 1_000_000_000)
        self.pci_bus_id = f"00000000:{0x10 + 8 * index:02X}:00.0"
        self.faults: tuple[AnyFault, ...] = tuple(fault for fault in scenario.faults if fault.hits(index))
        self._loads = group.loads
        self._holders = _holders(group, index=index, place=place)
        self._eras = self._mig_eras(group, scenario.seed)
        self.timeline = Timeline(self._steps(), self.faults, board=self.board, key=self.key)

    def active(self, kind: type[_FaultKind], t: float) -> tuple[_FaultKind, ...]:
        """Faults of one kind that hold at ``t``."""
        return tuple(fault for fault in self.faults if isinstance(fault, kind) and fault.covers(t))

    def begun(self, kind: type[_FaultKind], t: float) -> tuple[tuple[_FaultKind, float], ...]:
        """Faults of one kind that began by ``t``, each with the seconds it has lasted: for what adds up and stays."""
        found = (fault for fault in self.faults if isinstance(fault, kind) and fault.from_ <= t)
        return tuple((fault, min(t, fault.end) - fault.from_) for fault in found)

    def instances_at(self, t: float) -> tuple[MigInstance, ...] | None:
        """MIG devices at ``t``; ``None`` while MIG mode is off."""
        return next(era.instances for era in reversed(self._eras) if era.start <= t)

    def holders_at(self, t: float) -> tuple[Holder, ...]:
        """Processes at ``t`` (on a MIG device only while that device exists)."""
        instances = self.instances_at(t)
        held = (holder for holder in self._holders if holder.covers(t))
        if instances is None:
            return tuple(holder for holder in held if holder.mig is None)
        return tuple(holder for holder in held if holder.mig is not None and holder.mig < len(instances))

    def used_by(self, holder: Holder, t: float) -> int:
        """Bytes the process holds."""
        instances = self.instances_at(t)
        memory = self.board.memory
        if instances is None or holder.mig is None:
            capacity = int((memory.total_mib - memory.reserved_mib) * MEBIBYTE)
        else:
            capacity = instances[holder.mig].memory_bytes
        return min(capacity, int(capacity * holder.memory_share) + memory.context_mib * MEBIBYTE)

    def used_bytes(self, t: float, gpu_instance: int | None = None) -> int:
        """Memory in use without what the driver reserves, on the GPU or in one MIG GPU instance."""
        instances = self.instances_at(t)
        memory = self.board.memory
        if instances is None:
            capacity = int((memory.total_mib - memory.reserved_mib) * MEBIBYTE)
            return min(capacity, sum(self.used_by(holder, t) for holder in self.holders_at(t)))
        gpu_instances = {instance.gpu_instance: instance for instance in instances}
        chosen = gpu_instances if gpu_instance is None else {gpu_instance: gpu_instances[gpu_instance]}
        used = 0
        for number, instance in chosen.items():
            here = (holder for holder in self.holders_at(t) if holder.mig is not None and instances[holder.mig].gpu_instance == number)
            idle = _MIG_IDLE_BYTES_PER_SLICE * instance.profile.memory_slices
            used += min(instance.memory_bytes, idle + sum(self.used_by(holder, t) for holder in here))
        return used

    def phase_at(self, t: float) -> Phase:
        """Load at ``t``."""
        return self.timeline.phase_at(t)

    def _mig_eras(self, group: GpuGroup, seed: int) -> tuple[MigEra, ...]:
        reshapes = sorted((fault for fault in self.faults if isinstance(fault, MigReshape)), key=lambda fault: fault.from_)
        layouts = [(0.0, group.mig), *((fault.from_, None if fault.layout == "off" else fault.layout) for fault in reshapes)]
        eras: list[MigEra] = []
        for number, (start, layout) in enumerate(layouts):
            if layout is None:
                eras.append(MigEra(start, None))
                continue
            fresh = instances_of(layout, self.board, seed=f"{seed}/{self.index}/{number}")
            eras.append(MigEra(start, keep_uuids(fresh, (eras[-1].instances or ()) if eras else ())))
        return tuple(eras)

    def _steps(self) -> list[Step]:
        edges = {0.0, *(era.start for era in self._eras)}
        edges |= {edge for load in self._loads for edge in (load.from_, load.end) if edge < float("inf")}
        return [self._step(edge) for edge in sorted(edges)]

    def _step(self, t: float) -> Step:
        instances = self.instances_at(t)
        if instances is None:
            return Step(t, self._level(t, device=None), {})
        idle = level_of("idle", self.board)
        devices = [(instance, self._level(t, device=instance.index)) for instance in instances]
        whole = blend([(instance.compute_slices / 7, level) for instance, level in devices], idle)
        return Step(t, whole, _by_gpu_instance(devices, idle))

    def _level(self, t: float, *, device: int | None) -> Level:
        """Level of the GPU, or of one MIG device as if it were a whole board."""
        loads = [load for load in self._loads if load.covers(t) and (load.mig is None or load.mig == device)]
        return level_of(loads[-1].kind if loads else "idle", self.board)


def build_gpus(scenario: Scenario) -> tuple[SimulatedGpu, ...]:
    """The GPUs of the scenario's node, in the order of their indices."""
    places = [(group, place) for group in scenario.gpus for place in range(group.count)]
    return tuple(SimulatedGpu(index, place, group, scenario) for index, (group, place) in enumerate(places))


def _by_gpu_instance(devices: list[tuple[MigInstance, Level]], idle: Level) -> Mapping[int, Level]:
    parts: dict[int, list[tuple[float, Level]]] = {}
    for instance, level in devices:
        parts.setdefault(instance.gpu_instance, []).append((instance.compute_slices / instance.profile.slices, level))
    return {gpu_instance: blend(levels, idle) for gpu_instance, levels in parts.items()}


def _holders(group: GpuGroup, *, index: int, place: int) -> tuple[Holder, ...]:
    """The group's processes on its GPU number ``place``."""
    if group.holders is not None:
        return tuple(_moved(holder, holder.pid + place) for holder in group.holders)
    working = [(number, load) for number, load in enumerate(group.loads) if load.kind != "idle"]
    return tuple(_holder_of(load, pid=_FIRST_PID + 10 * index + number, group=group) for number, load in working)


def _holder_of(load: Load, *, pid: int, group: GpuGroup) -> Holder:
    share = level_of(load.kind, load_board(group.board)).memory_share
    # Work on a MIG GPU as a whole is shown as one process, in its first instance.
    device = 0 if load.mig is None and group.mig else load.mig
    return Holder(pid=pid, memory_share=share, mig=device, from_=load.from_, until=load.until)


def _moved(holder: Holder, pid: int) -> Holder:
    return Holder(
        pid=pid,
        memory_share=holder.memory_share,
        kind=holder.kind,
        mig=holder.mig,
        memory_known=holder.memory_known,
        busy=holder.busy,
        from_=holder.from_,
        until=holder.until,
    )
