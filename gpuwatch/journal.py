"""Log lines about the node: one event per change of state, however often the state is read."""

from __future__ import annotations

import structlog

from gpuwatch.snapshot import Gpu, Snapshot

_MAX_TOLD, _MAX_NAMED = 1000, 20
"""Device ids remembered in all, and named in one line: a broken device plugin may invent new ones for ever."""
_log = structlog.get_logger("gpuwatch")


class Journal:
    """Compares each snapshot with the one before and logs what changed."""

    def __init__(self) -> None:
        self._before: Snapshot | None = None
        self._told_unsupported: set[tuple[str, frozenset[tuple[str, str]]]] = set()
        self._told_unknown: set[str] = set()

    def note(self, snapshot: Snapshot) -> None:
        """Take the newest snapshot."""
        before, self._before = self._before, snapshot
        if before is None or (before.up, before.fault) != (snapshot.up, snapshot.fault):
            self._note_node(snapshot)
        known = {gpu.identity.uuid or gpu.identity.index: gpu for gpu in before.gpus} if before is not None else {}
        for gpu in snapshot.gpus:
            self._note_gpu(gpu, known.get(gpu.identity.uuid or gpu.identity.index))

        self._note_unknown(snapshot)

    def _note_unknown(self, snapshot: Snapshot) -> None:
        """Name each device id that NVML does not know once, when it is clear what NVML knows."""
        if snapshot.kubernetes is None or not snapshot.ready:
            return
        fresh = [device for device in snapshot.kubernetes.unknown_devices if device not in self._told_unknown]
        if fresh and len(self._told_unknown) < _MAX_TOLD:
            self._told_unknown.update(fresh)
            _log.warning("the kubelet has given out devices that NVML does not know", devices=fresh[:_MAX_NAMED], count=len(fresh))

    def _note_node(self, snapshot: Snapshot) -> None:
        if snapshot.up:
            _log.info("GPUs are read", gpus=len(snapshot.gpus), driver=snapshot.driver_version, simulated=snapshot.simulated)
        elif snapshot.fault == "starting":
            _log.info("starting", detail=snapshot.detail)
        else:
            _log.warning("no GPU can be read", reason=snapshot.fault, detail=snapshot.detail)

    def _note_gpu(self, gpu: Gpu, before: Gpu | None) -> None:
        identity = gpu.identity
        if gpu.fault not in ("", "starting") and (before is None or before.fault != gpu.fault):
            _log.warning("GPU is down", gpu=identity.index, uuid=identity.uuid, model=identity.model, reason=gpu.fault)
        elif gpu.up and before is not None and not before.up and before.fault != "starting":
            _log.info("GPU is back", gpu=identity.index, uuid=identity.uuid, model=identity.model)
        told = (identity.model, frozenset(gpu.unsupported.items()))
        # Once the medium tier was read the list is whole: one line per model, not one per GPU and call.
        if gpu.unsupported and gpu.medium is not None and told not in self._told_unsupported:
            self._told_unsupported.add(told)
            _log.info("not supported by this board or driver", model=identity.model, calls=sorted(gpu.unsupported))
        if gpu.medium is not None and before is not None and before.medium is not None:
            now, then = gpu.medium.mig_instances, before.medium.mig_instances
            if {one.uuid for one in now} != {one.uuid for one in then}:
                _log.info("MIG instances changed", gpu=identity.index, uuid=identity.uuid, instances=[one.profile for one in now])
