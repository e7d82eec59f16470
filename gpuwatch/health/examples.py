"""Evidence of every kind, sound and faulty: the rows of the truth table in ``docs/health.md``, whose verdicts the code itself fills in."""

from __future__ import annotations

from typing import Final

from gpuwatch.health.evidence import Evidence, PeerFault, XidSeen

_AT: Final = 1_760_000_000.0


class Example(Evidence, frozen=True, kw_only=True):
    """Evidence with the words for it."""

    title: str
    rule: str = ""
    """The rule it shows; empty for the rows about XIDs and for sound boards."""


def _xids(*codes: int, text: str = "", ago: float = 10.0) -> tuple[XidSeen, ...]:
    return tuple(XidSeen(code=code, last_at=_AT - ago, text=text) for code in codes)


def _ratio(**shares: float) -> dict[str, float]:
    return shares


def _example(title: str, rule: str = "", **facts: object) -> Example:
    return Example(title=title, rule=rule, at=_AT, **facts)  # type: ignore[arg-type]


_PEER: Final = PeerFault(gpu=3, code=79, from_at=_AT - 20, until_at=_AT)

SOUND: Final = (
    _example("nothing to report", pcie_width=16, pcie_width_most=16, nvlinks_most=18, nvlinks_down=0.0),
    _example("full load at the power cap, or clocks low because of it"),
    _example("8 lanes of 16, as ever", pcie_width=8, pcie_width_most=8),
    _example("uncorrected errors of earlier days, all replaced", ecc_uncorrected=0, rows_remapped_uncorrected=4, row_remap_pending=False),
    _example("margin of -5 °C on a GPU that is 29 °C below its slowdown", margin_celsius=-3.0, nearest_limit_celsius=29.0),
    _example("T4 at 75 °C", headroom_celsius=18.0, nearest_limit_celsius=18.0),
    _example("a few PCIe replays", pcie_replays_per_minute=0.4, pcie_replay_budget=15.4),
    _example("A100 without NVLink bridges", nvlinks_most=0, nvlinks_down=0.0),
    _example("XID 45 alone, as often as it likes", xids=_xids(45)),
    _example("XID 31 or 13 of one job", xids=_xids(31)),
    _example("XID 63, and nothing waits for a reset", xids=_xids(63), row_remap_pending=False),
    _example("XID 74 while a peer falls off the bus", xids=_xids(74), peers=(_PEER,)),
)
READING: Final = (
    _example("the driver has not been read yet", "not_read_yet", fault="starting", read=False),
    _example("every call fails with one error", "unreadable", fault="unknown", down_seconds=30.0),
    _example("ECC counters fail for five minutes", "not_reported", missing=("ecc_errors",)),
    _example("a call has not returned for 30 s", "unreadable", fault="stalled", down_seconds=30.0),
    _example("a call has not returned for 3 min", "gpu_hung", fault="stalled", down_seconds=180.0),
    _example("the GPU is lost", "gpu_lost", fault="gpu_is_lost", xids=_xids(79)),
    _example("the GPU must be reset before it answers", "gpu_reset_required", fault="reset_required"),
)
DRIVER: Final = (
    _example("recovery action 1", "recovery_reset", recovery_action=1),
    _example("recovery action 2", "recovery_reboot", recovery_action=2),
    _example("recovery action 3", "recovery_drain_p2p", recovery_action=3),
    _example("recovery action 4", "recovery_drain_and_reset", recovery_action=4),
    _example("recovery action 5", "recovery_other", recovery_action=5),
    _example(
        "XID 48, then XID 154 with (Node Reboot Required)",
        "recovery_reboot",
        xids=(*_xids(48), *_xids(154, text="recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")),
    ),
)
XIDS: Final = (
    _example("XID 48", xids=_xids(48)),
    _example("XID 48 with its details 171 and 63, a row waits", "row_remap_pending", xids=_xids(48, 63, 171), row_remap_pending=True),
    _example("XID 79, and the driver asks for a reset", "recovery_reset", xids=_xids(79), recovery_action=1),
    _example("XID 94", xids=_xids(94)),
    _example("XID 74, all peers sound", xids=_xids(74)),
    _example("XID 145, nonfatal", xids=_xids(145, text="RLW_REMAP Nonfatal XC0 i0 Link 05")),
    _example("XID 145, fatal", xids=_xids(145, text="RLW_SRC_TRACK Fatal XC0 i0 Link 05")),
    _example("XID 999", xids=_xids(999)),
    _example("XID 48 two days ago, no reset seen", xids=_xids(48, ago=2 * 86_400.0)),
    _example("XID 31 of two jobs within a day", "suspect_hardware", xids=_xids(31), suspect_jobs=("a/TFJob/x", "b/Job/y")),
)
MEMORY: Final = (
    _example("an uncorrected ECC error a minute ago", "ecc_uncorrected", ecc_uncorrected=1, ecc_uncorrected_grown=1.0),
    _example(
        "an uncorrected ECC error an hour ago, no reset since", "ecc_uncorrected_before", ecc_uncorrected=1, ecc_uncorrected_grown=0.0
    ),
    _example("17,700 corrected errors a second", "ecc_corrected_storm", ecc_corrected_per_second=17_700.0),
    _example("6 uncorrected SRAM errors in its life", "sram_worn", sram_uncorrected_ever=6),
    _example("row remapping failed", "row_remap_failed", row_remap_failed=True),
    _example("a row waits for a reset", "row_remap_pending", row_remap_pending=True),
    _example("a bank without spare rows", "row_remap_spares_low", banks_without_spare=1),
    _example("400 rows replaced", "row_remaps_many", rows_remapped_uncorrected=400),
    _example("a page waits for a reset (V100, T4)", "retired_pages_pending", retired_pages_pending=True),
    _example("63 retired pages", "retired_pages_full", retired_pages=63),
    _example("60 retired pages", "retired_pages_many", retired_pages=60),
    _example("16 pages retired for uncorrected errors", "retired_pages_uncorrected", retired_pages=16, retired_pages_uncorrected=16),
    _example(
        "the same, 2 of them this week",
        "retired_pages_growing",
        retired_pages=16,
        retired_pages_uncorrected=16,
        retired_pages_uncorrected_grown=2.0,
    ),
)
HEAT: Final = (
    _example("slowed by the board for heat, 10 % of five minutes", "hardware_thermal", throttled_ratio=_ratio(hardware_thermal=0.1)),
    _example(
        "the same, 60 % of a quarter of an hour",
        "hardware_thermal_lasting",
        throttled_ratio=_ratio(hardware_thermal=0.9, hardware_thermal_lasting=0.6),
    ),
    _example(
        "slowed by the driver for heat, 30 % of a quarter of an hour", "software_thermal", throttled_ratio=_ratio(software_thermal=0.3)
    ),
    _example("slowed by the hardware, no reason given", "hardware_slowdown", throttled_ratio=_ratio(hardware_slowdown=0.8)),
    _example("power brake of the chassis", "power_brake", throttled_ratio=_ratio(power_brake=1.0, hardware_slowdown=1.0)),
    _example("margin of 1 °C to the slowdown, die 6 °C below it", "temperature_margin", margin_celsius=1.0, nearest_limit_celsius=6.0),
    _example("2 °C to the slowdown, a board without margin", "temperature", headroom_celsius=2.0, nearest_limit_celsius=2.0),
    _example("memory 1 °C below its limit", "memory_temperature", memory_headroom_celsius=1.0, nearest_limit_celsius=1.0),
    _example("busy at 40 % of its clock, far below its power limit, no reason given", "clocks_stuck_low", busy_clock_ratio=0.4),
)
LINKS: Final = (
    _example("2 of 18 NVLinks are down", "nvlink_down", nvlinks_most=18, nvlinks_down=2.0),
    _example("2 NVLinks are down and a peer is lost", "nvlink_down_echo", nvlinks_most=4, nvlinks_down=2.0, peers=(_PEER,)),
    _example("6 NVLink replays a minute", "nvlink_errors", nvlink_errors_per_minute=6.0),
    _example("500 damaged NVLink packets a second", "nvlink_crc_storm", nvlink_crc_per_second=500.0),
    _example("not in its fabric for ten minutes", "fabric", fabric_sound=False),
    _example("8 lanes, 16 before", "pcie_width", pcie_width=8, pcie_width_most=16),
    _example("generation 1 under load, 4 before", "pcie_generation", pcie_generation=1, pcie_generation_most=4),
    _example("60 replays a minute where 15 may be", "pcie_replays", pcie_replays_per_minute=60.0, pcie_replay_budget=15.4),
)
EXAMPLES: Final = (*SOUND, *READING, *DRIVER, *XIDS, *MEMORY, *HEAT, *LINKS)
