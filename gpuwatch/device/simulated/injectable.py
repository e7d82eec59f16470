"""What may be injected into a simulated node: the kinds of fault with their keys, and what an XID brings with it on a real node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuwatch.device import nvml
from gpuwatch.device.simulated.board import Board, Capability
from gpuwatch.device.simulated.fault import (
    CallError,
    CgroupLost,
    Crash,
    EccStorm,
    EccUncorrected,
    Fault,
    GpuLost,
    Hang,
    NvlinkDown,
    NvlinkErrors,
    PcieReplays,
    PcieWidth,
    PowerBrake,
    RecoveryAction,
    RemappedRows,
    RetiredPages,
    ThermalThrottle,
)

MAX_XID: Final = 999
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Numbers:
    """A number from ``low`` to ``high``, both allowed."""

    low: float
    high: float
    whole: bool = True

    def read(self, text: str) -> float | int | None:
        """The value, or ``None`` when the text is not allowed."""
        if not _NUMBER.fullmatch(text) or (self.whole and "." in text):
            return None
        value = int(text) if self.whole else float(text)
        return value if self.low <= value <= self.high else None

    def __str__(self) -> str:
        return f"{'a whole number' if self.whole else 'a number'} from {self.low:.9g} to {self.high:.9g}"


@dataclass(frozen=True, slots=True)
class Words:
    """One of these words; ``true`` and ``false`` are read as what they mean."""

    words: tuple[str, ...]

    def read(self, text: str) -> str | bool | None:
        """The value, or ``None`` when the text is not allowed."""
        if text not in self.words:
            return None
        return text == "true" if self.words == _YES_OR_NO else text

    def __str__(self) -> str:
        return " or ".join(self.words)


_YES_OR_NO = ("true", "false")
YES_OR_NO: Final = Words(_YES_OR_NO)
COUNT: Final = Numbers(0, 512)
RATE: Final = Numbers(0.000001, 1e6, whole=False)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault, with its own keys and what those are that a spec leaves out."""

    fault: type[Fault]
    keys: Mapping[str, Numbers | Words] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    needs: Capability | None = None
    """What a board must have."""
    of_gpu: bool = True
    """False: the whole node has it."""
    lasts: bool = True
    """False: over at once."""


_LINK = Numbers(0, 17)
KINDS: Final[dict[str, Kind]] = {
    "gpu-lost": Kind(GpuLost),
    "hang": Kind(Hang),
    "call-error": Kind(CallError, {"code": Numbers(1, 999)}, {"code": nvml.UNKNOWN}),
    "recovery-action": Kind(RecoveryAction, {"action": Numbers(1, 5)}, {"action": 1}, needs="recovery_action"),
    "ecc-uncorrected": Kind(EccUncorrected, {"count": Numbers(1, 512)}, {"count": 1}, needs="ecc_counters"),
    "ecc-storm": Kind(EccStorm, {"per_second": RATE}, {"per_second": 17_700.0}, needs="ecc_counters"),
    "remapped-rows": Kind(
        RemappedRows,
        {"corrected": COUNT, "uncorrected": COUNT, "pending": YES_OR_NO, "failed": YES_OR_NO},
        {"uncorrected": 1, "pending": True},
        needs="remapped_rows",
    ),
    "retired-pages": Kind(
        RetiredPages,
        {"single_bit": Numbers(0, 64), "double_bit": Numbers(0, 64), "pending": YES_OR_NO},
        {"double_bit": 1, "pending": True},
        needs="retired_pages",
    ),
    "thermal-throttle": Kind(ThermalThrottle, {"slowdown": Words(("software", "hardware"))}, {"slowdown": "hardware"}),
    "power-brake": Kind(PowerBrake),
    "nvlink-down": Kind(NvlinkDown, {"link": _LINK}, {"link": 0}, needs="nvlink"),
    "nvlink-errors": Kind(
        NvlinkErrors,
        {"link": _LINK, "counter": Words(("crc", "replay", "recovery")), "per_second": RATE},
        {"link": 0, "counter": "crc", "per_second": 500.0},
        needs="nvlink",
    ),
    "pcie-width": Kind(PcieWidth, {"width": Numbers(1, 16)}, {"width": 4}),
    "pcie-replays": Kind(PcieReplays, {"per_second": RATE}, {"per_second": 5.0}),
    "cgroup-lost": Kind(CgroupLost, of_gpu=False),
    "crash": Kind(Crash, of_gpu=False, lasts=False),
}
"""By the names that scenario files use."""


@dataclass(frozen=True, slots=True)
class Brought:
    """A fault that comes with an XID. ``tells``: the simulated driver reports the XID by itself when this fault strikes."""

    fault: type[Fault]
    fields: Mapping[str, Any]
    tells: bool = True


def brought_by(xid: int, board: Board) -> tuple[Brought, ...]:
    """What comes with the XID on that board; nothing where the XID is all there is."""
    has = board.support
    match xid:
        case 79:
            return (Brought(GpuLost, {}),)
        case 48 | 94 | 95 if "ecc_counters" in has:
            return (Brought(EccUncorrected, {"xid": xid}),)
        case 63 if "remapped_rows" in has:
            return (Brought(RemappedRows, {"uncorrected": 1, "pending": True}),)
        case 63 if "retired_pages" in has:
            return (Brought(RetiredPages, {"double_bit": 1, "pending": True}),)
        case 64 if "remapped_rows" in has:
            return (Brought(RemappedRows, {"uncorrected": 1, "failed": True}),)
        case 74 if "nvlink" in has:
            return (Brought(NvlinkDown, {"link": 0}),)
        case 119 | 120:
            reset = Brought(RecoveryAction, {"action": 1}, tells=False)
            return (Brought(CallError, {"code": nvml.TIMEOUT}, tells=False), reset)
        case 154:
            return (Brought(RecoveryAction, {"action": 1}),)
        case _:
            return ()
