"""The snapshot as JSON, for scripts and for people with ``jq``.

Shape: the fields of :class:`gpuwatch.snapshot.Snapshot`, all of them, in their order and with their units in their names. ``null`` is
"not reported"; a key that is missing from a mapping is not reported either; zero is zero. Tuples become lists. Mappings with numbers as
keys (links, fans) have them as text. ``agent.nvml_errors``, which counts by call and error, becomes a list of objects
``{"call": …, "error": …, "count": …}``.
"""

from __future__ import annotations

import msgspec

from gpuwatch.snapshot import Agent, Snapshot


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """UTF-8 JSON of the snapshot, fields with their default values included (the wire form between the processes leaves them out)."""
    return msgspec.json.encode(_plain(snapshot))


def _plain(value: object) -> object:
    if isinstance(value, Agent):
        plain = {name: _plain(getattr(value, name)) for name in value.__struct_fields__ if name != "nvml_errors"}
        errors = [{"call": call, "error": error, "count": count} for (call, error), count in value.nvml_errors.items()]
        return {**plain, "nvml_errors": errors}
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value
