"""What the verdicts and XIDs of a node come to, in a person's words: for the page and for ``gpuwatch check``. Pure text, not escaped."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Final

from gpuwatch.device.readings import SourceHealth
from gpuwatch.health.verdict import STATES
from gpuwatch.health.xid import policy_of
from gpuwatch.snapshot import Gpu, State, XidCount

NOT_JUDGED: Final = "not judged"
"""Of a GPU without a verdict: it was not looked at yet, or another board took its place."""

_SOURCES: Final = {"kernel_log": "the kernel log", "nvml": "NVML's events"}
_DEAF: Final = {
    ("kernel_log", "permission"): "it may not be read: run as root, or with CAP_SYSLOG",
    ("kernel_log", "missing"): "there is no such file: mount /dev/kmsg, or set read.kernel_log",
    ("nvml", "not_supported"): "no board here offers them",
    ("nvml", "starting"): "not yet asked for",
    ("nvml", "gpu_is_lost"): "every GPU is lost",
}
_UNITS: Final = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))


def state_of(gpu: Gpu) -> str:
    """The state of its verdict, or that there is none."""
    return NOT_JUDGED if gpu.verdict is None else gpu.verdict.state


def worst_first(gpus: tuple[Gpu, ...]) -> list[Gpu]:
    """All of them; those that failed first, those without a verdict last."""
    return sorted(gpus, key=lambda gpu: (-STATES.index(gpu.verdict.state) if gpu.verdict else 1, gpu.identity.index))


def findings(gpus: tuple[Gpu, ...]) -> list[Gpu]:
    """The GPUs about which a verdict has something to say, the worst first."""
    return [gpu for gpu in worst_first(gpus) if gpu.verdict is not None and (gpu.verdict.state != "ok" or gpu.verdict.reasons)]


def worst_state(gpus: tuple[Gpu, ...]) -> State | None:
    """Of all GPUs; ``None`` when none is judged."""
    return max((gpu.verdict.state for gpu in gpus if gpu.verdict), key=STATES.index, default=None)


def summary_of(gpus: tuple[Gpu, ...]) -> str:
    """How many GPUs are in which state, the worst first: ``1 of 4 GPUs failed, 3 ok``."""
    counts = Counter(map(state_of, worst_first(gpus)))
    total = f"{len(gpus)} GPU{'s' * (len(gpus) != 1)}"
    if counts["ok"] == len(gpus):
        return "the GPU is ok" if len(gpus) == 1 else f"all {total} are ok"
    (state, first), *others = counts.items()
    return ", ".join((f"{first} of {total} {state}", *(f"{count} {other}" for other, count in others)))


def newest_xids(gpus: tuple[Gpu, ...]) -> list[tuple[Gpu, XidCount]]:
    """Every XID of every GPU, the newest first."""
    found = [(gpu, count) for gpu in gpus for count in gpu.xids]
    return sorted(found, key=lambda one: -one[1].last_seen_seconds)


def meaning_of(xid: str) -> str:
    """The name of an XID in the table of :mod:`gpuwatch.health.xid`."""
    return policy_of(int(xid)).name if xid.isdecimal() and xid.isascii() else "more numbers than are counted one by one"


def source_name(health: SourceHealth) -> str:
    """What a person calls a source of faults."""
    return _SOURCES.get(health.source, health.source)


def deafness_of(health: SourceHealth) -> str:
    """Why a source does not listen, and what to do where something can be done."""
    return _DEAF.get((health.source, health.fault), health.fault.replace("_", " ") or "no reason is known")


def moment_of(seconds: float) -> str:
    """A Unix time as ``2026-11-30 06:41:11 UTC``."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return "at no known time"


def age_of(seconds: float) -> str:
    """How long ago, in the largest unit that fits; a clock that was set back makes nothing older or newer than now."""
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago" if seconds >= 1.0 else "just now"
