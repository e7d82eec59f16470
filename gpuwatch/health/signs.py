"""Reasons that lie in what the GPU reports: whether it answers, memory, heat, clocks and links. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpuwatch.health.evidence import Evidence, PeerFault
from gpuwatch.health.policy import NONSENSE_MARGIN_CELSIUS, POLICY, RECOVERY_TEXT, XID_ECHO, XID_PAGE_HOLD
from gpuwatch.health.xid import recovery_of_text
from gpuwatch.snapshot import Reason

NODE_FAULTS: Final = frozenset(
    {"starting", "reader_down", "driver_not_loaded", "library_not_found", "lib_rm_version_mismatch", "uninitialized", "no_gpu"}
)
"""A GPU that does not answer for one of these is not at fault: the driver is down for all."""
LOST: Final = frozenset({"gpu_is_lost", "missing", "not_found"})
_HUNG: Final = frozenset({"stalled", "timeout"})
_RECOVERY_RULES: Final = {1: "recovery_reset", 2: "recovery_reboot", 3: "recovery_drain_p2p", 4: "recovery_drain_and_reset"}
LOST_XID: Final = 79
RECOVERY_CHANGED: Final = 154
"""XID that tells what the driver asks for."""


def reason(rule: str, detail: str = "") -> Reason:
    """The reason of that rule; ``detail`` holds the values that were seen."""
    found = POLICY[rule]
    return Reason(code=rule, severity=found.severity, action=found.action, detail=f"{found.says}: {detail}" if detail else found.says)


def signs(evidence: Evidence) -> Iterator[Reason]:
    """Every reason but those of XIDs."""
    yield from _reading(evidence)
    yield from _recovery(evidence)
    yield from _ecc(evidence)
    yield from _replaced_memory(evidence)
    yield from _throttling(evidence)
    yield from _heat(evidence)
    yield from _nvlink(evidence)
    yield from _pcie(evidence)
    if evidence.suspect_jobs and len(evidence.suspect_jobs) >= _value("suspect_hardware"):
        yield reason("suspect_hardware", ", ".join(evidence.suspect_jobs))


def recovery_wanted(evidence: Evidence) -> int:
    """What the driver asks for (NVML field 230), 0 for nothing: the field, or the text of an XID 154 that is newer than the field."""
    said = next((seen for seen in evidence.xids if seen.code == RECOVERY_CHANGED), None)
    told = None if said is None else recovery_of_text(said.text)
    if said is None or told is None or evidence.at - said.last_at > XID_PAGE_HOLD.seconds:
        return evidence.recovery_action or 0
    read_at = evidence.at if evidence.recovery_read_at is None else evidence.recovery_read_at
    if evidence.recovery_action is not None and read_at - said.last_at > RECOVERY_TEXT.seconds:
        return evidence.recovery_action
    return max(told, evidence.recovery_action or 0, key=_weight)


def _weight(wanted: int) -> int:
    """How much the driver asks for: its numbers are in no order, and draining peer-to-peer (3) is less than a reset (1)."""
    return {0: 0, 3: 2, 1: 3, 4: 4, 2: 5}.get(wanted, 1)


def echo_of(evidence: Evidence, at: float) -> PeerFault | None:
    """The fault of a peer that may have caused an NVLink error of this GPU at that time."""
    near = XID_ECHO.seconds
    return next((peer for peer in evidence.peers if peer.from_at - near <= at <= peer.until_at + near), None)


def _felled_by(evidence: Evidence) -> PeerFault | None:
    """The fault of a peer that may have taken the links down with it, and that is not repaired yet or was a moment ago."""
    near, down_at = XID_ECHO.seconds, evidence.at if evidence.nvlinks_down_at is None else evidence.nvlinks_down_at
    for peer in evidence.peers:
        if peer.from_at - near <= down_at <= peer.until_at + near and (peer.stands or evidence.at <= peer.until_at + near):
            return peer
    return None


def _value(rule: str) -> float:
    return POLICY[rule].value or 0.0


def _above(rule: str, value: float | None) -> bool:
    """The value is known and has reached the rule's threshold."""
    return value is not None and value >= _value(rule)


def _reading(evidence: Evidence) -> Iterator[Reason]:
    fault, down = evidence.fault, evidence.down_seconds
    if fault in LOST:
        yield reason("gpu_lost", fault)
    elif fault == "reset_required":
        yield reason("gpu_reset_required")
    elif fault in _HUNG and down >= (POLICY["gpu_hung"].window_seconds or 0.0):
        yield reason("gpu_hung", f"for {down:.0f} s")
    elif fault in NODE_FAULTS or (not fault and not evidence.read):
        yield reason("not_read_yet", fault)
    elif fault:
        yield reason("unreadable", fault)
    elif evidence.missing:
        yield reason("not_reported", ", ".join(evidence.missing))


def _recovery(evidence: Evidence) -> Iterator[Reason]:
    if wanted := recovery_wanted(evidence):
        yield reason(_RECOVERY_RULES.get(wanted, "recovery_other"), f"action {wanted}")


def _ecc(evidence: Evidence) -> Iterator[Reason]:
    if _above("ecc_uncorrected", evidence.ecc_uncorrected_grown):
        yield reason("ecc_uncorrected", f"{evidence.ecc_uncorrected_grown:.0f} new")
    elif _above("ecc_uncorrected_before", evidence.ecc_uncorrected):
        yield reason("ecc_uncorrected_before", f"{evidence.ecc_uncorrected}")
    if _above("ecc_corrected_storm", evidence.ecc_corrected_per_second):
        yield reason("ecc_corrected_storm", f"{evidence.ecc_corrected_per_second:.0f} a second")
    if _above("sram_worn", evidence.sram_uncorrected_ever):
        yield reason("sram_worn", f"{evidence.sram_uncorrected_ever}")


def _replaced_memory(evidence: Evidence) -> Iterator[Reason]:
    if evidence.row_remap_failed:
        yield reason("row_remap_failed")
    if evidence.row_remap_pending:
        yield reason("row_remap_pending")
    if _above("row_remap_spares_low", evidence.banks_without_spare):
        yield reason("row_remap_spares_low", f"{evidence.banks_without_spare} banks")
    if _above("row_remaps_many", evidence.rows_remapped_uncorrected):
        yield reason("row_remaps_many", f"{evidence.rows_remapped_uncorrected} rows")
    if evidence.retired_pages_pending:
        yield reason("retired_pages_pending")
    if _above("retired_pages_full", evidence.retired_pages):
        yield reason("retired_pages_full", f"{evidence.retired_pages} of 64")
    elif _above("retired_pages_many", evidence.retired_pages):
        yield reason("retired_pages_many", f"{evidence.retired_pages} of 64")
    if _above("retired_pages_growing", evidence.retired_pages_uncorrected):
        grown = evidence.retired_pages_uncorrected_grown or 0.0
        yield reason("retired_pages_growing" if grown > 1 else "retired_pages_uncorrected", f"{evidence.retired_pages_uncorrected}")


def _throttling(evidence: Evidence) -> Iterator[Reason]:
    """The power brake explains a hardware slowdown, and so does heat; the software power cap is never a fault."""
    ratio = evidence.throttled_ratio
    named = False
    for rule in ("power_brake", "hardware_thermal_lasting", "hardware_thermal", "software_thermal"):
        if _above(rule, ratio.get(rule)):
            if rule == "hardware_thermal" and _above("hardware_thermal_lasting", ratio.get("hardware_thermal_lasting")):
                continue
            named = named or rule != "software_thermal"
            yield reason(rule, f"{ratio[rule]:.0%} of the time")
    if not named and _above("hardware_slowdown", ratio.get("hardware_slowdown")):
        yield reason("hardware_slowdown", f"{ratio['hardware_slowdown']:.0%} of the time")


def _heat(evidence: Evidence) -> Iterator[Reason]:
    margin, headroom, memory = evidence.margin_celsius, evidence.headroom_celsius, evidence.memory_headroom_celsius
    if margin is not None and margin < _value("temperature_margin") and _is_warm(evidence):
        yield reason("temperature_margin", f"{margin:.0f} °C left")
    if headroom is not None and headroom < _value("temperature"):
        yield reason("temperature", f"{headroom:.0f} °C left")
    if memory is not None and memory < _value("memory_temperature"):
        yield reason("memory_temperature", f"{memory:.0f} °C left")
    clock = evidence.busy_clock_ratio
    if clock is not None and clock < _value("clocks_stuck_low"):
        yield reason("clocks_stuck_low", f"{clock:.0%} of its highest clock")


def _is_warm(evidence: Evidence) -> bool:
    """Something besides the margin says that the GPU is hot: boards have shown a margin of 0 and -5 at 60 °C."""
    slowed = max(evidence.throttled_ratio.get("hardware_thermal", 0.0), evidence.throttled_ratio.get("software_thermal", 0.0))
    near = evidence.nearest_limit_celsius
    return slowed > 0.0 or (near is not None and near <= NONSENSE_MARGIN_CELSIUS)


def _nvlink(evidence: Evidence) -> Iterator[Reason]:
    if _above("nvlink_down", evidence.nvlinks_down):
        peer = _felled_by(evidence)
        seen = f"{evidence.nvlinks_down:.0f} of {evidence.nvlinks_most}"
        yield reason("nvlink_down", seen) if peer is None else reason("nvlink_down_echo", f"{seen}; GPU {peer.gpu} failed")
    if _above("nvlink_crc_storm", evidence.nvlink_crc_per_second):
        yield reason("nvlink_crc_storm", f"{evidence.nvlink_crc_per_second:.0f} a second")
    if _above("nvlink_errors", evidence.nvlink_errors_per_minute):
        yield reason("nvlink_errors", f"{evidence.nvlink_errors_per_minute:.1f} a minute")
    if evidence.fabric_sound is False:
        yield reason("fabric")


def _pcie(evidence: Evidence) -> Iterator[Reason]:
    width, most = evidence.pcie_width, evidence.pcie_width_most
    if width is not None and most is not None and width < most:
        yield reason("pcie_width", f"{width} lanes, {most} before")
    generation, highest = evidence.pcie_generation, evidence.pcie_generation_most
    if generation is not None and highest is not None and generation < highest:
        yield reason("pcie_generation", f"generation {generation}, {highest} before")
    replays, budget = evidence.pcie_replays_per_minute, evidence.pcie_replay_budget
    if replays is not None and budget and replays / budget > _value("pcie_replays"):
        yield reason("pcie_replays", f"{replays:.1f} a minute, {budget:.1f} allowed")
