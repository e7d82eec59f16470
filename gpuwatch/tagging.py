"""Puts the holders into a snapshot: attribution when its inputs changed, the ledger at each snapshot."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpuwatch.attribution import Attribution, attribute
from gpuwatch.kube.jobs import job_of
from gpuwatch.kube.objects import Pod, SourceState, Views
from gpuwatch.ledger import Ledger
from gpuwatch.snapshot import Kubernetes, Snapshot


class Tagger:
    """Tags snapshots with what the Kubernetes sources know. Used by the agent's loop only."""

    def __init__(self, *, labels_of: Callable[[Pod | None], tuple[str, ...]], grace_seconds: float, max_gap_seconds: float) -> None:
        self._labels_of = labels_of
        self._ledger = Ledger(grace_seconds=grace_seconds, max_gap_seconds=max_gap_seconds)
        self._inputs: object = None
        self._attribution = Attribution()

    def tag(self, snapshot: Snapshot, views: Views, now: float) -> Snapshot:
        """The snapshot with its holders, what each got, and how well attribution does. ``now``: CLOCK_MONOTONIC."""
        inputs = (
            _facts(views),
            tuple(
                (
                    gpu.identity.uuid,
                    gpu.identity.minor_number,
                    gpu.modes.mig_enabled and gpu.medium is None,
                    gpu.medium.mig_instances if gpu.medium else (),
                    tuple((process.pid, process.gpu_instance, process.compute_instance) for process in (gpu.fast.processes or ()))
                    if gpu.fast
                    else (),
                )
                for gpu in snapshot.gpus
            ),
        )
        if inputs != self._inputs:
            self._inputs = inputs
            self._attribution = attribute(snapshot.gpus, views, job_of=job_of, labels_of=self._labels_of)
        found = self._attribution
        states = states_of(views)
        return msgspec.structs.replace(
            snapshot,
            jobs=self._ledger.update(found.holders, snapshot.gpus, now),
            kubernetes=Kubernetes(
                sources=states,
                age_seconds={name: max(now - state.updated_at, 0.0) for name, state in states.items() if state.updated_at is not None},
                unattributed=found.unattributed,
                unknown_devices=found.unknown_devices,
            ),
        )


def _facts(views: Views) -> Views:
    """The views without what changes at each answer and tells nothing of holders: attribution is done anew only when something did."""

    def settled(state: SourceState) -> SourceState:
        return SourceState(up=state.up, fault="")

    pods, dra, processes = views.pods, views.dra, views.processes
    return Views(
        allocations=msgspec.structs.replace(views.allocations, state=settled(views.allocations.state)),
        pods=pods and msgspec.structs.replace(pods, state=settled(pods.state)),
        dra=dra and msgspec.structs.replace(dra, state=settled(dra.state)),
        processes=processes and msgspec.structs.replace(processes, state=settled(processes.state)),
    )


def states_of(views: Views) -> dict[str, SourceState]:
    """States of the sources that are switched on, by name."""
    named = {"podresources": views.allocations, "pods": views.pods, "dra": views.dra, "processes": views.processes}
    return {name: view.state for name, view in named.items() if view is not None}
