"""MIG: the instances of a GPU, enumerated anew at every medium read, and what each one uses."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, NamedTuple

from gpuwatch.device import nvml
from gpuwatch.device.calls import Calls
from gpuwatch.device.gpm import Gpm
from gpuwatch.device.readings import Activity, Memory, MigInstance
from gpuwatch.device.use import read_memory

_PROFILE = re.compile(r"MIG (\S+)")
_MEBIBYTE = 1 << 20
_NO_INSTANCE = (nvml.NOT_FOUND, nvml.INVALID_ARGUMENT)
"""Answers of an empty slot, and of one that went away between two calls."""


class _Held(NamedTuple):
    """An instance of the last enumeration. ``first``: it stands for its GPU instance, whose memory and activity count once."""

    handle: Any
    instance: MigInstance
    first: bool


class MigInstances:
    """The MIG instances of one GPU. Used by the GPU's thread only."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._held: list[_Held] = []
        self._gpm: dict[int, Gpm] = {}

    def enumerate(self) -> Generator[None, None, dict[str, Any]]:
        """Fields of :class:`~gpuwatch.device.readings.Medium` about MIG. Gone instances are gone, new ones there."""
        mode = self._calls.ask("nvmlDeviceGetMigMode")
        enabled = None if mode is None else bool(mode[0])
        yield
        held: list[_Held] = []
        if enabled:
            for slot in range(self._calls.ask("nvmlDeviceGetMaxMigDeviceCount") or 0):
                self._add(held, slot)
                yield
        self._replace(held)
        return {
            "mig_enabled": enabled,
            "mig_pending": None if mode is None else bool(mode[1]),
            "mig_instances": tuple(entry.instance for entry in held),
        }

    def read_memory(self) -> dict[str, Memory]:
        """Memory by instance UUID; of two compute instances in one GPU instance only the first carries it."""
        read = {entry.instance.uuid: read_memory(self._calls, on=entry.handle) for entry in self._held if entry.first}
        return {uuid: memory for uuid, memory in read.items() if memory is not None}

    def read_activity(self) -> Generator[None, None, dict[str, Activity]]:
        """GPM activity by instance UUID, likewise."""
        activities = {}
        for entry in self._held:
            if entry.first and (activity := self._gpm[entry.instance.gpu_instance].read()) is not None:
                activities[entry.instance.uuid] = activity
            yield
        return activities

    def close(self) -> None:
        """Forget all instances and free their samples."""
        self._replace([])

    def _add(self, held: list[_Held], slot: int) -> None:
        handle = self._calls.ask("nvmlDeviceGetMigDeviceHandleByIndex", slot, nothing=_NO_INSTANCE)
        if handle is None:
            return
        uuid = self._calls.ask("nvmlDeviceGetUUID", on=handle, nothing=_NO_INSTANCE)
        gpu_instance = self._calls.ask("nvmlDeviceGetGpuInstanceId", on=handle, nothing=_NO_INSTANCE)
        compute_instance = self._calls.ask("nvmlDeviceGetComputeInstanceId", on=handle, nothing=_NO_INSTANCE)
        if uuid is None or gpu_instance is None:
            return
        attributes = self._calls.ask("nvmlDeviceGetAttributes_v2", on=handle, nothing=_NO_INSTANCE)
        name = self._calls.ask("nvmlDeviceGetName", on=handle, nothing=_NO_INSTANCE)
        instance = MigInstance(
            uuid=uuid,
            gpu_instance=gpu_instance,
            compute_instance=compute_instance or 0,
            profile=_profile(name, attributes),
            sm_count=None if attributes is None else attributes.multiprocessorCount,
            memory_total_bytes=None if attributes is None else attributes.memorySizeMB * _MEBIBYTE,
        )
        first = all(entry.instance.gpu_instance != gpu_instance for entry in held)
        held.append(_Held(handle, instance, first))

    def _replace(self, held: list[_Held]) -> None:
        wanted = {entry.instance.gpu_instance for entry in held}
        known = {entry.instance.uuid for entry in self._held}
        fresh = {entry.instance.gpu_instance for entry in held if entry.instance.uuid not in known}
        for gpu_instance in [one for one in self._gpm if one not in wanted or one in fresh]:
            self._gpm.pop(gpu_instance).close()
        for gpu_instance in wanted - set(self._gpm):
            self._gpm[gpu_instance] = Gpm(self._calls, gpu_instance)
        self._held = held


def _profile(name: str | None, attributes: Any) -> str | None:
    """``1g.10gb`` out of the device name; built from the slices where the name lacks it."""
    if name and (found := _PROFILE.search(name)):
        return found.group(1)
    if attributes is None:
        return None
    gigabytes = round(attributes.memorySizeMB / 1024)
    whole = f"{attributes.gpuInstanceSliceCount}g.{gigabytes}gb"
    partial = attributes.computeInstanceSliceCount != attributes.gpuInstanceSliceCount
    return f"{attributes.computeInstanceSliceCount}c.{whole}" if partial else whole
