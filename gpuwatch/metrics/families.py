"""From a snapshot to rows: which device has which metrics now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwatch.metrics.gpu import fast_rows, identity_rows, limit_rows, medium_rows, total_rows
from gpuwatch.metrics.health import health_rows
from gpuwatch.metrics.job import job_devices
from gpuwatch.metrics.links import link_limit_rows, link_rows, traffic_rows
from gpuwatch.metrics.mig import mig_instances, mig_labels
from gpuwatch.metrics.verdict import verdict_rows
from gpuwatch.metrics.xid import xid_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuwatch.metrics.row import Rows
    from gpuwatch.snapshot import Gpu, Snapshot


def device_rows(snapshot: Snapshot) -> Iterator[tuple[tuple[str, ...], Rows]]:
    """Each GPU, MIG instance and holder: the values of its labels (``GPU_LABELS``, ``MIG_LABELS``, ``JOB_LABELS``) and its rows."""
    reasons = {(one.gpu_uuid, one.mig_uuid): one.reason for one in snapshot.kubernetes.unattributed} if snapshot.kubernetes else {}
    for gpu in snapshot.gpus:
        identity = gpu.identity
        labels = (snapshot.node, str(identity.index), identity.uuid, identity.model)
        yield labels, gpu_rows(snapshot, gpu, reasons.get((identity.uuid, "")))
        if gpu.up:
            for instance, rows in mig_instances(gpu, reasons):
                yield (*labels, *mig_labels(instance)), rows
    yield from job_devices(snapshot)


def gpu_rows(snapshot: Snapshot, gpu: Gpu, unattributed: str | None) -> Rows:
    """Rows of one physical GPU. One that does not answer keeps its identity and its counters, and shows no other value."""
    yield from identity_rows(snapshot, gpu)
    if unattributed is not None:
        yield "gpuwatch_gpu_unattributed", {unattributed: 1}
    yield from total_rows(gpu.totals)
    yield from xid_rows(gpu.xids)
    if gpu.verdict is not None:
        yield from verdict_rows(gpu.verdict)
    if not gpu.up:
        return
    yield from limit_rows(gpu.identity)
    yield from link_limit_rows(gpu.identity)
    fast, medium = gpu.fast, gpu.medium
    if fast is not None:
        yield from fast_rows(fast)
    if medium is not None:
        yield from medium_rows(medium)
        yield from health_rows(medium.health)
        yield from link_rows(medium.links)
    yield from traffic_rows(medium.activity if medium else None, medium.links if medium else None)
