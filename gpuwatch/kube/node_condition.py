"""The condition ``GpuHealthy`` of a node, as the API server takes and tells it. Pure.

Source: core/v1 ``NodeCondition``; conditions of a node are a list that a strategic merge keys by ``type``, so a patch touches no other.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from gpuwatch.device.readings import Struct
from gpuwatch.kube.events import time_of

TYPE: Final = "GpuHealthy"
Status = Literal["True", "False", "Unknown"]


class Condition(Struct, frozen=True, kw_only=True):
    """What to say of all GPUs of the node."""

    status: Status
    reason: str
    message: str
    since: float
    """Unix time at which the status became this one."""


class Known(Struct, frozen=True, kw_only=True):
    """What the node says already. ``since`` as the API writes it; empty where the node says nothing."""

    status: str = ""
    since: str = ""


class _Condition(Struct, frozen=True, kw_only=True, rename="camel"):
    type: str
    status: str = ""
    last_transition_time: str | None = None


class _Status(Struct, frozen=True, kw_only=True):
    conditions: list[_Condition] | None = None


class _Node(Struct, frozen=True, kw_only=True):
    status: _Status | None = None


_decode = msgspec.json.Decoder(_Node).decode


def path_of(node: str) -> str:
    """Where the status of the node is patched."""
    return f"/api/v1/nodes/{node}/status"


def known_in(body: bytes) -> Known:
    """The condition in the JSON of a node.

    Raises:
        msgspec.DecodeError: It is no such text.
    """
    status = _decode(body).status or _Status()
    for one in status.conditions or ():
        if one.type == TYPE:
            return Known(status=one.status, since=one.last_transition_time or "")
    return Known()


def patch_of(condition: Condition, known: Known, now: float) -> dict[str, object]:
    """The strategic merge patch. The time of the last change stays as it is while the status does. ``now``: Unix time."""
    since = known.since if known.status == condition.status and known.since else time_of(condition.since)
    return {
        "status": {
            "conditions": [
                {
                    "type": TYPE,
                    "status": condition.status,
                    "reason": condition.reason,
                    "message": condition.message,
                    "lastHeartbeatTime": time_of(now),
                    "lastTransitionTime": since,
                }
            ]
        }
    }
