"""What every answer of the API server has in common, whatever the resource: keys, lists, events, refusals."""

from __future__ import annotations

import msgspec

from gpuwatch.device.readings import Struct
from gpuwatch.kube.client import ApiError, one_line

JUNK_ERRORS = (msgspec.DecodeError, RecursionError)
"""What decoding raises for bytes that are not what they should be."""


class Key(Struct, frozen=True, kw_only=True, rename="camel"):
    """What every object has. Source: meta/v1 ``ObjectMeta``."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Object(Struct, frozen=True, kw_only=True):
    metadata: Key = Key()


class List(Struct, frozen=True, kw_only=True):
    """A list whose objects are not yet decoded. Source: meta/v1 ``List``."""

    metadata: Key
    items: list[msgspec.Raw] | None = None


class Event(Struct, frozen=True, kw_only=True):
    """A line of a watch. Source: meta/v1 ``WatchEvent``."""

    type: str
    object: msgspec.Raw


class _Status(Struct, frozen=True, kw_only=True):
    code: int = 0
    reason: str = ""
    message: str = ""


_decode_object = msgspec.json.Decoder(_Object).decode
_decode_status = msgspec.json.Decoder(_Status).decode
list_of = msgspec.json.Decoder(List).decode
event_of = msgspec.json.Decoder(Event).decode


def key_of(item: msgspec.Raw) -> Key:
    """The object's metadata."""
    return _decode_object(item).metadata


def name_of(item: msgspec.Raw) -> str:
    """``namespace/name`` for a message; never raises."""
    try:
        key = key_of(item)
    except JUNK_ERRORS:
        return "an object without metadata"
    return one_line(f"{key.namespace}/{key.name}")


def error_of(item: msgspec.Raw) -> ApiError:
    """The refusal in an ERROR event, which holds the status that a request would have been answered with."""
    status = _decode_status(item)
    return ApiError(status.code or 500, one_line(status.message or status.reason))


def is_newer(version: str, known: str) -> bool:
    """Resource versions are numbers that grow; what is none is taken as it comes."""
    if not (version.isascii() and version.isdigit() and known.isascii() and known.isdigit()):
        return bool(version)
    return (len(version.lstrip("0")), version.lstrip("0")) > (len(known.lstrip("0")), known.lstrip("0"))
