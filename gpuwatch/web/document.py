"""The snapshot as JSON, for scripts and for people with ``jq``.

Shape: the fields of :class:`gpuwatch.snapshot.Snapshot`, all of them, in their order and with their units in their names. ``null`` is
"not reported"; a key that is missing from a mapping is not reported either; zero is zero. Tuples become lists. Mappings with numbers as
keys (links, fans) have them as text. ``agent.nvml_errors``, which counts by call and error, becomes a list of objects
``{"call": …, "error": …, "count": …}``.

``jobs`` has one object for each container and device: ``holder`` names the device (``gpu_uuid``, ``mig_uuid``), the container and its
``job`` (``kind``, ``name``, ``replica_type``, …); beside it stand the counters and what the holder gets now. ``held`` is false for a
while after the end, with the last counters. ``holder.labels`` are the values of the chosen pod labels in the order of the setting.
``kubernetes`` is ``null`` when attribution is off; else it has the state and age of each source, every device without a holder with its
reason, and the device ids that NVML does not know. Ages are seconds; ``updated_at`` is on the machine's monotonic clock.
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
