"""Says what changed about a GPU: a log line always, and to the cluster what the settings wish.

The decision is in ``health/telling.py`` and ``health/standing.py``, the sending in ``kube/notices.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

import msgspec
import structlog

from gpuwatch.health.standing import Standing
from gpuwatch.health.telling import Notice, Telling
from gpuwatch.health.wording import node_message, pod_message
from gpuwatch.kube.events import Announcement, PodTold
from gpuwatch.kube.node_condition import Condition
from gpuwatch.kube.objects import SourceState, Views
from gpuwatch.snapshot import Snapshot

_LOG_AGAIN_SECONDS: Final = 60.0
"""A verdict that flaps fills no log."""
_WORDS: Final = {"GpuFailed": "GPU has failed", "GpuDegraded": "GPU is degraded", "GpuRecovered": "GPU is sound again"}

_log = structlog.get_logger("gpuwatch.health")


class Cluster(Protocol):
    """Who tells the cluster; :class:`gpuwatch.kube.notices.Notices` is one."""

    @property
    def states(self) -> dict[str, SourceState]:
        """How well each way to tell does."""

    @property
    def counts(self) -> dict[str, int]:
        """Events by what became of them."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End, without waiting."""

    def tell(self, announcements: Iterable[Announcement]) -> None:
        """Post these; never blocks."""

    def show(self, condition: Condition) -> None:
        """Let the node have this condition; never blocks."""


class Herald:
    """Takes each snapshot once. Used by the agent's loop only. ``cluster``: ``None`` where nothing is told to one."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self._cluster = cluster
        self._logged = Telling(again_seconds=_LOG_AGAIN_SECONDS)
        self._told = Telling()
        self._standing = Standing()

    def start(self) -> None:
        """Begin to tell the cluster."""
        if self._cluster is not None:
            self._cluster.start()

    def stop(self) -> None:
        """End, without waiting."""
        if self._cluster is not None:
            self._cluster.stop()

    def tell(self, snapshot: Snapshot, views: Views | None, now: float) -> Snapshot:
        """Say what is new; the snapshot with how well that goes. ``views``: those that the holders are from. ``now``: CLOCK_MONOTONIC."""
        for notice in self._logged.note(snapshot, now):
            _write(notice)
        if self._cluster is None:
            return snapshot
        uids = {(pod.namespace, pod.name): pod.uid for pod in views.pods.pods} if views is not None and views.pods is not None else {}
        self._cluster.tell([_announcement(notice, uids) for notice in self._told.note(snapshot, now)])
        condition = self._standing.note(snapshot, now)
        if condition is not None:
            self._cluster.show(condition)
        kubernetes = snapshot.kubernetes
        if kubernetes is None:
            return snapshot
        kubernetes = msgspec.structs.replace(
            kubernetes, sources={**kubernetes.sources, **self._cluster.states}, notices=self._cluster.counts
        )
        return msgspec.structs.replace(snapshot, kubernetes=kubernetes)


def _write(notice: Notice) -> None:
    """One line: ``warning`` for what got worse, ``info`` for the return."""
    write = _log.info if notice.kind == "GpuRecovered" else _log.warning
    jobs = {f"{holder.job.kind}/{holder.namespace}/{holder.job.name}" for holder in notice.holders}
    write(
        _WORDS[notice.kind],
        gpu=notice.gpu,
        uuid=notice.uuid,
        model=notice.model,
        state=notice.state,
        before=notice.before or "",
        action=notice.action,
        reasons={reason.code: reason.detail for reason in notice.reasons},
        jobs=sorted(jobs),
        pods=sorted({f"{holder.namespace}/{holder.pod}" for holder in notice.holders}),
    )


def _announcement(notice: Notice, uids: dict[tuple[str, str], str]) -> Announcement:
    """With the pods among the holders that the API server has told of: without its UID an event would be nobody's."""
    names = dict.fromkeys((holder.namespace, holder.pod) for holder in notice.holders)
    return Announcement(
        reason=notice.kind,
        type="Normal" if notice.kind == "GpuRecovered" else "Warning",
        gpu_uuid=notice.uuid,
        action=notice.action,
        node_message=node_message(notice),
        pod_message=pod_message(notice),
        pods=tuple(PodTold(namespace=name[0], name=name[1], uid=uids[name]) for name in names if name in uids),
        at=notice.at,
    )
