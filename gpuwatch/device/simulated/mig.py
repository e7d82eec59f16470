"""MIG: from the layout a scenario names to GPU instances, compute instances, ids and UUIDs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from gpuwatch.device.simulated.board import MEBIBYTE, Board, MigProfile
from gpuwatch.device.simulated.noise import stable_uuid

MAX_INSTANCES = 7
MAX_MEMORY_SLICES = 8
NO_INSTANCE = 0xFFFFFFFF
"""Instance id of a process or a GPU without MIG."""

_FIRST_GPU_INSTANCE_ID = {8: 0, 4: 1, 2: 3, 1: 7}
"""By memory slices of the profile: the ids real A100 and H100 give out (1g: 7 and up, 3g: 1 and 2, …)."""


class MigSlice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU instance cut into compute instances, e.g. profile ``3g.40gb`` with ``compute: [1, 2]``."""

    profile: str
    compute: tuple[int, ...]


MigLayout = tuple[str | MigSlice, ...]


@dataclass(frozen=True, slots=True)
class MigInstance:
    """One MIG device: a compute instance in a GPU instance."""

    index: int
    uuid: str
    profile: MigProfile
    name: str
    """As after ``MIG`` in the device's name: ``3g.40gb`` or ``1c.3g.40gb``."""
    gpu_instance: int
    compute_instance: int
    compute_slices: int
    multiprocessors: int

    @property
    def memory_bytes(self) -> int:
        """Memory of the GPU instance, which its compute instances share."""
        return self.profile.memory_mib * MEBIBYTE


def instances_of(layout: MigLayout, board: Board, *, seed: str) -> tuple[MigInstance, ...]:
    """MIG devices of a layout, in the order of their indices. ``seed`` makes the UUIDs; a reshaped GPU needs another one.

    Raises:
        ValueError: the board has no such profile, or the layout does not fit on it.
    """
    instances: list[MigInstance] = []
    taken: dict[int, int] = {}
    for entry in layout:
        name, compute = (entry, None) if isinstance(entry, str) else (entry.profile, entry.compute)
        profile = board.mig_profile(name)
        if profile is None:
            known = ", ".join(known.name for known in board.mig_profiles) or "none: this board has no MIG"
            raise ValueError(f"MIG profile {name!r} does not exist on {board.name}; expected one of {known}")
        number = taken.get(profile.memory_slices, 0)
        taken[profile.memory_slices] = number + 1
        gpu_instance = _FIRST_GPU_INSTANCE_ID[profile.memory_slices] + number
        for compute_instance, slices in enumerate(compute or (profile.slices,)):
            whole = slices == profile.slices
            instances.append(
                MigInstance(
                    index=len(instances),
                    uuid=f"MIG-{stable_uuid(f'{seed}/{gpu_instance}/{compute_instance}')}",
                    profile=profile,
                    name=profile.name if whole else f"{slices}c.{profile.name}",
                    gpu_instance=gpu_instance,
                    compute_instance=compute_instance,
                    compute_slices=slices,
                    multiprocessors=profile.multiprocessors * slices // profile.slices,
                )
            )
    _check_fit(layout, instances, board)
    return tuple(instances)


def keep_uuids(fresh: tuple[MigInstance, ...], before: tuple[MigInstance, ...]) -> tuple[MigInstance, ...]:
    """The fresh devices; one that a reshape left alone keeps the UUID it had ``before``."""
    known = {(instance.gpu_instance, instance.compute_instance, instance.name): instance.uuid for instance in before}
    return tuple(
        replace(instance, uuid=known.get((instance.gpu_instance, instance.compute_instance, instance.name), instance.uuid))
        for instance in fresh
    )


def _check_fit(layout: MigLayout, instances: list[MigInstance], board: Board) -> None:
    gpu_instances = {instance.gpu_instance: instance.profile for instance in instances}.values()
    memory = sum(profile.memory_slices for profile in gpu_instances)
    if memory > MAX_MEMORY_SLICES or len(instances) > MAX_INSTANCES:
        raise ValueError(
            f"MIG layout {[entry if isinstance(entry, str) else entry.profile for entry in layout]} takes {memory} memory slices and "
            f"{len(instances)} devices of {board.name}; expected at most {MAX_MEMORY_SLICES} and {MAX_INSTANCES}"
        )
    for gpu_instance, profile in {instance.gpu_instance: instance.profile for instance in instances}.items():
        compute = sum(instance.compute_slices for instance in instances if instance.gpu_instance == gpu_instance)
        count = sum(other is profile for other in gpu_instances)
        if compute > profile.slices or count > profile.max_instances:
            raise ValueError(
                f"MIG profile {profile.name}: {compute} compute slices and {count} instances asked for; "
                f"expected at most {profile.slices} and {profile.max_instances}"
            )
