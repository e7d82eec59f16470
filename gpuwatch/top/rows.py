"""From an agent's JSON to the rows of the table.

The agent may be of any version, and what it sends may be anything: what is missing or has another form than expected is "not reported".
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Final

import msgspec

Jobs = dict[tuple[str, str], list["Job"]]

_MOST_CHARACTERS: Final = 256
_MOST_ROWS: Final = 2048
_LARGEST: Final = 2.0**53
"""Above it JSON's numbers are not exact."""
STATES: Final = ("failed", "down", "unknown", "degraded", "up", "ok")
"""The worst first. ``up`` and ``down`` are those of a GPU that is not judged."""


class Struct(msgspec.Struct, frozen=True, kw_only=True):
    """What all parts of the output are: plain data in base units; ``None``: not reported."""


class Job(Struct, frozen=True, kw_only=True):
    """Who holds a device."""

    kind: str
    name: str
    replica: str
    """``worker 0``; empty where there is none."""
    namespace: str
    pod: str

    @property
    def title(self) -> str:
        """Short enough for a narrow column."""
        return f"{self.name} {self.replica}".strip() or self.pod


class Row(Struct, frozen=True, kw_only=True):
    """A GPU, or a MIG instance (then ``power`` and heat are its GPU's alone, and not here)."""

    node: str
    gpu: str
    """NVML's index; of an instance ``index.number``."""
    uuid: str
    model: str
    """As the driver tells it; of an instance its profile."""
    state: str
    action: str = ""
    fault: str = ""
    utilization_ratio: float | None = None
    """Of an instance the share of time in which its multiprocessors had work."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    temperature_limit_celsius: float | None = None
    """Where the board slows down."""
    jobs: tuple[Job, ...] = ()
    instances: int = 0
    instances_held: int = 0


class NodeView(Struct, frozen=True, kw_only=True):
    """One agent's node at one moment, or why there is none."""

    source: str
    """Its address, or the scenario."""
    problem: str = ""
    """Why it did not answer; empty: it did."""
    node: str = ""
    driver_version: str = ""
    simulated: bool = False
    up: bool = False
    detail: str = ""
    """Why no GPU is read."""
    timestamp_seconds: float | None = None
    rows: tuple[Row, ...] = ()

    @property
    def summary(self) -> str:
        """``8 GPUs: 1 failed, 7 ok``."""
        states = Counter(row.state for row in self.rows if "." not in row.gpu)
        count = sum(states.values())
        counts = ", ".join(f"{states[state]} {state}" for state in sorted(states, key=rank))
        return f"{count} GPU{'s' * (count != 1)}" + (f": {counts}" if counts else "")


def rank(state: str) -> int:
    """Place of a state among all, the worst first; one that is not known is better looked at."""
    return STATES.index(state) if state in STATES else STATES.index("unknown")


def view_of(source: str, body: bytes) -> NodeView:
    """What an agent's JSON says."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return NodeView(source=source, problem="what it sends is no JSON: is this a gpuwatch agent?")
    if not isinstance(document, dict) or not isinstance(document.get("gpus"), list):
        return NodeView(source=source, problem="what it sends tells of no GPUs: is this a gpuwatch agent?")
    node, jobs = _text(document, "node"), _jobs(document)
    rows = [row for gpu in document["gpus"][:_MOST_ROWS] for row in _rows(node, gpu, jobs)]
    return NodeView(
        source=source,
        node=node,
        driver_version=_text(document, "driver_version"),
        simulated=document.get("simulated") is True,
        up=document.get("up") is True,
        detail=_text(document, "detail") or _text(document, "fault"),
        timestamp_seconds=_number(document, "timestamp_seconds"),
        rows=tuple(rows[:_MOST_ROWS]),
    )


def _rows(node: str, gpu: object, jobs: Jobs) -> list[Row]:
    """The GPU, then its MIG instances."""
    index, uuid = _number(gpu, "identity", "index"), _text(gpu, "identity", "uuid")
    name = "?" if index is None else f"{index:.0f}"[:5]
    instances = [one for one in _list(gpu, "medium", "mig_instances") if isinstance(one, dict)]
    parts = [_instance(node, f"{name}.{number}", gpu, one, jobs) for number, one in enumerate(instances)]
    temperature, margin = _number(gpu, "fast", "temperature_celsius", "gpu"), _number(gpu, "medium", "temperature_margin_celsius")
    limit = _number(gpu, "identity", "temperature_limit_celsius", "slowdown")
    whole = Row(
        node=node,
        gpu=name,
        uuid=uuid,
        model=_text(gpu, "identity", "model"),
        state=_state(gpu),
        action=_text(gpu, "verdict", "action"),
        fault=_text(gpu, "fault"),
        utilization_ratio=_number(gpu, "fast", "utilization_ratio"),
        memory_used_bytes=_count(gpu, "fast", "memory", "used_bytes"),
        memory_total_bytes=_count(gpu, "fast", "memory", "total_bytes"),
        power_watts=_number(gpu, "fast", "power_watts"),
        power_limit_watts=_number(gpu, "medium", "power_limit_watts", "enforced"),
        temperature_celsius=temperature,
        temperature_limit_celsius=temperature + margin if temperature is not None and margin is not None else limit,
        jobs=tuple(jobs.get((uuid, ""), ())),
        instances=len(parts),
        instances_held=sum(bool(part.jobs) for part in parts),
    )
    return [whole, *parts]


def _instance(node: str, name: str, gpu: object, instance: dict[str, Any], jobs: Jobs) -> Row:
    uuid = _text(instance, "uuid")
    total = _count(gpu, "fast", "mig_memory", uuid, "total_bytes")
    return Row(
        node=node,
        gpu=name,
        uuid=uuid,
        model=_text(instance, "profile"),
        state=_state(gpu),
        action=_text(gpu, "verdict", "action"),
        fault=_text(gpu, "fault"),
        utilization_ratio=_number(gpu, "medium", "mig_activity", uuid, "sm_active_ratio"),
        memory_used_bytes=_count(gpu, "fast", "mig_memory", uuid, "used_bytes"),
        memory_total_bytes=_count(instance, "memory_total_bytes") if total is None else total,
        jobs=tuple(jobs.get((_text(gpu, "identity", "uuid"), uuid), ())),
    )


def _state(gpu: object) -> str:
    return _text(gpu, "verdict", "state") or ("up" if _at(gpu, "up") is True else "down")


def _jobs(document: dict[str, Any]) -> Jobs:
    """By GPU and MIG instance, those that hold it now."""
    found: Jobs = {}
    for use in _list(document, "jobs"):
        if _at(use, "held") is False:
            continue
        job = Job(
            kind=_text(use, "holder", "job", "kind"),
            name=_text(use, "holder", "job", "name"),
            replica=f"{_text(use, 'holder', 'job', 'replica_type')} {_text(use, 'holder', 'job', 'replica_index')}".strip(),
            namespace=_text(use, "holder", "namespace"),
            pod=_text(use, "holder", "pod"),
        )
        found.setdefault((_text(use, "holder", "gpu_uuid"), _text(use, "holder", "mig_uuid")), []).append(job)
    return found


def _at(value: object, *path: str) -> object:
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _text(value: object, *path: str) -> str:
    found = _at(value, *path)
    return found[:_MOST_CHARACTERS] if isinstance(found, str) else ""


def _list(value: object, *path: str) -> list[object]:
    found = _at(value, *path)
    return found[:_MOST_ROWS] if isinstance(found, list) else []


def _number(value: object, *path: str) -> float | None:
    found = _at(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        number = float(found)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _count(value: object, *path: str) -> int | None:
    number = _number(value, *path)
    return None if number is None else int(min(max(number, -_LARGEST), _LARGEST))
