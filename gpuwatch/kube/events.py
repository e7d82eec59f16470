"""What is told to a cluster about a GPU, and its form: core/v1 ``Event``. Pure.

Source: the API's ``Event`` v1 and its validation: an event without ``eventTime`` (the older form, which every version takes) lies in the
namespace of what it is about; about a node, it lies in ``default`` and has the node's name for its UID, as the kubelet's own do.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from gpuwatch.device.readings import Struct

COMPONENT: Final = "gpuwatch"
NODE_NAMESPACE: Final = "default"
MAX_MESSAGE: Final = 1024
SAME_SECONDS: Final = 600.0
"""Within such a stretch of the clock the same news has the same name, so that a second one is refused as known."""


class PodTold(Struct, frozen=True, kw_only=True):
    """A pod that is told."""

    namespace: str
    name: str
    uid: str


class Announcement(Struct, frozen=True, kw_only=True):
    """News of one GPU for its node, and for the pods that it concerns."""

    reason: str
    """A word in capitals and small letters, such as ``GpuFailed``."""
    type: Literal["Normal", "Warning"]
    gpu_uuid: str
    action: str
    node_message: str
    pod_message: str
    pods: tuple[PodTold, ...] = ()
    at: float
    """Unix time."""


class Posting(Struct, frozen=True, kw_only=True):
    """One event to create."""

    namespace: str
    name: str
    body: dict[str, object]
    at: float
    """Unix time of what it tells."""
    is_probe: bool = False
    """It only asks whether the right is there: the server checks it and keeps nothing."""

    @property
    def path(self) -> str:
        """Where it is created."""
        return f"/api/v1/namespaces/{self.namespace}/events"


def postings_of(announcement: Announcement, node: str) -> tuple[Posting, ...]:
    """The event about the node, then one about each pod."""
    return (
        _posting(announcement, {"kind": "Node", "name": node, "uid": node}, announcement.node_message, node=node),
        *(
            _posting(
                announcement,
                {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
                announcement.pod_message,
                node=node,
            )
            for pod in announcement.pods
        ),
    )


def probe_of(namespace: str, node: str, at: float) -> Posting:
    """An event that is never kept."""
    about = {"kind": "Node", "name": node, "uid": node}
    if namespace != NODE_NAMESPACE:
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": COMPONENT, "uid": COMPONENT}
    question = "May gpuwatch post events?"
    announcement = Announcement(
        reason="GpuwatchAsks", type="Normal", gpu_uuid="", action="", node_message=question, pod_message=question, at=at
    )
    return msgspec.structs.replace(_posting(announcement, about, question, node=node), is_probe=True)


def time_of(at: float) -> str:
    """Unix time as the API writes times."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shortened(message: str) -> str:
    """At most :data:`MAX_MESSAGE` bytes of UTF-8."""
    data = message.encode()
    return message if len(data) <= MAX_MESSAGE else f"{data[: MAX_MESSAGE - 3].decode(errors='ignore')}..."


def _posting(announcement: Announcement, about: dict[str, str], message: str, *, node: str) -> Posting:
    namespace = about.get("namespace", NODE_NAMESPACE)
    name = _name(announcement, about["uid"])
    at = time_of(announcement.at)
    body: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": about,
        "reason": announcement.reason,
        "message": shortened(message),
        "type": announcement.type,
        "source": {"component": COMPONENT, "host": node},
        "reportingComponent": COMPONENT,
        "reportingInstance": node,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
    return Posting(namespace=namespace, name=name, body=body, at=announcement.at)


def _name(announcement: Announcement, uid: str) -> str:
    """The same for the same news, so that it is refused as known when a restarted agent tells it once more.

    Without the reasons: they may have come one by one before, and all at once now. Nothing but a heavier action is told again so soon.
    """
    stretch = int(announcement.at // SAME_SECONDS)
    parts = (uid, announcement.gpu_uuid, announcement.reason, announcement.action, str(stretch))
    return f"{COMPONENT}.{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:20]}"
