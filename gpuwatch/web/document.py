"""The snapshot as JSON, for scripts and for people with ``jq``.

Shape: the fields of :class:`gpuwatch.snapshot.Snapshot`, all of them, in their order and with their units in their names. ``null`` is
"not reported"; a key that is missing from a mapping is not reported either; zero is zero. Tuples become lists. Mappings with numbers as
keys (links, fans) have them as text. Two counters with two keys become lists of objects: ``agent.nvml_errors``
(``{"call": …, "error": …, "count": …}``) and ``listening.sxid_errors`` (``{"sxid": …, "severity": …, "count": …}``).

``jobs`` has one object for each container and device: ``holder`` names the device (``gpu_uuid``, ``mig_uuid``), the container and its
``job`` (``kind``, ``name``, ``replica_type``, …); beside it stand the counters and what the holder gets now. ``held`` is false for a
while after the end, with the last counters. ``holder.labels`` are the values of the chosen pod labels in the order of the setting.
``kubernetes`` is ``null`` when attribution is off; else it has the state and age of each source, every device without a holder with its
reason, and the device ids that NVML does not know. Ages are seconds; ``updated_at`` is on the machine's monotonic clock.
"""

from __future__ import annotations

import msgspec

from gpuwatch.snapshot import Agent, Listening, Snapshot


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """UTF-8 JSON of the snapshot, fields with their default values included (the wire form between the processes leaves them out)."""
    return msgspec.json.encode(_plain(snapshot))


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        plain = {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        if isinstance(value, Agent):
            plain["nvml_errors"] = _counts(value.nvml_errors, "call", "error")
        elif isinstance(value, Listening):
            plain["sxid_errors"] = _counts(value.sxid_errors, "sxid", "severity")
        return plain
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def _counts(counts: dict[tuple[str, str], int], first: str, second: str) -> list[dict[str, object]]:
    return [{first: one, second: other, "count": count} for (one, other), count in counts.items()]
