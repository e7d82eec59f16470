"""What a scripted API server was told: events, accepted as strictly as Kubernetes does or more so, and the status of nodes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec


class _About(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    kind: str
    name: str
    uid: str
    namespace: str = ""
    api_version: str = ""


class _EventMetadata(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
    namespace: str


class _EventSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    component: str
    host: str


class _Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The fields of core/v1 ``Event`` that are in use, without those of the newer form."""

    api_version: Literal["v1"]
    kind: Literal["Event"]
    metadata: _EventMetadata
    involved_object: _About
    reason: Annotated[str, msgspec.Meta(pattern="^[A-Z][A-Za-z]+$", max_length=128)]
    message: str
    type: Literal["Normal", "Warning"]
    source: _EventSource
    reporting_component: str
    reporting_instance: Annotated[str, msgspec.Meta(max_length=128)]
    first_timestamp: Annotated[datetime, msgspec.Meta(tz=True)]
    last_timestamp: Annotated[datetime, msgspec.Meta(tz=True)]
    count: int


@dataclass(slots=True)
class Told:
    """Events by (namespace, name), and nodes by name. Each method answers with a status, and an object or the reason of a refusal."""

    events: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def create_event(self, path: str, query: dict[str, str], body: bytes, content_type: str) -> tuple[int, dict[str, Any] | str]:
        """``POST /api/v1/namespaces/<namespace>/events``. Source: the API server's validation of events of the older form."""
        kind, namespace, resource = path.removeprefix("/api/v1/").split("/")
        if (kind, resource, content_type) != ("namespaces", "events", "application/json"):
            return 404, "the server could not find the requested resource"
        try:
            event = msgspec.json.decode(body, type=_Event)
        except msgspec.ValidationError as error:
            return 422, str(error)
        if not namespace == event.metadata.namespace == (event.involved_object.namespace or "default"):
            return 422, "involvedObject.namespace does not match event.namespace"
        if len(event.message.encode()) > 1024:
            return 422, "message can have at most 1024 bytes"
        name = (namespace, event.metadata.name)
        if name in self.events:
            return 409, f'events "{event.metadata.name}" already exists'
        item: dict[str, Any] = json.loads(body)
        if query.get("dryRun") != "All":
            self.events[name] = item
        return 201, item

    def merge_node(self, path: str, _query: dict[str, str], body: bytes, content_type: str) -> tuple[int, dict[str, Any] | str]:
        """``PATCH /api/v1/nodes/<name>/status`` by a strategic merge, which knows conditions by their type."""
        node = self.nodes.get(path.removeprefix("/api/v1/nodes/").removesuffix("/status"))
        if node is None or not path.endswith("/status"):
            return 404, "nodes not found"
        if content_type != "application/strategic-merge-patch+json":
            return 415, "the body of the request was in an unknown format"
        conditions = {one["type"]: one for one in node["status"]["conditions"]}
        for one in json.loads(body).get("status", {}).get("conditions", ()):
            conditions[one["type"]] = conditions.get(one["type"], {}) | one
        node["status"]["conditions"] = list(conditions.values())
        return 200, node

    def about(self, kind: str, name: str) -> list[str]:
        """Reasons of the events about an object, in the order in which they came."""
        return [
            one["reason"] for one in self.events.values() if (one["involvedObject"]["kind"], one["involvedObject"]["name"]) == (kind, name)
        ]
