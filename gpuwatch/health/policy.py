"""Every rule of health as data: from what value on, over what time, how grave, what to do, and why.

The verdict and the alert rules both read it, so that the page, the Kubernetes event and the alert never disagree. XIDs have their own
table (:mod:`gpuwatch.health.xid`); of them only the times stand here.
"""

from __future__ import annotations

from typing import Final

from gpuwatch.device.readings import Struct
from gpuwatch.snapshot import Action, Severity, State

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


class Rule(Struct, frozen=True, kw_only=True):
    """One reason that a verdict may give, and when."""

    name: str
    says: str
    """What is true of the GPU when the rule holds, as half a sentence."""
    severity: Severity
    action: Action
    value: float | None = None
    """The threshold; ``None`` for a fact that is there or not."""
    unit: str = ""
    window_seconds: float | None = None
    """The time over which the value is taken, or for which the fact must last."""
    why: str
    change: str
    """When another value is better."""
    state: State | None = None
    """Where it is not that of the severity (page: failed, ticket: degraded, info: ok)."""


class Span(Struct, frozen=True, kw_only=True):
    """A time that ties events to each other or lets them go."""

    name: str
    seconds: float
    why: str
    change: str


def _rule(name: str, says: str, severity: Severity, action: Action, *, why: str, change: str, **others: float | str | None) -> Rule:
    return Rule(name=name, says=says, severity=severity, action=action, why=why, change=change, **others)  # type: ignore[arg-type]


_NEVER = "Never: it is a fact, not a degree."

# fmt: off
_READING = (
    _rule("gpu_lost", "the GPU fell off the bus, or the driver no longer counts it", "page", "reboot_node",
          why="Nothing runs on it and only a new start of the bus brings it back; a reboot does that everywhere.", change=_NEVER),
    _rule("gpu_reset_required", "the driver refuses every call until the GPU is reset", "page", "reset_gpu",
          why="The driver says so itself.", change=_NEVER),
    _rule("gpu_hung", "a driver call to the GPU does not return", "page", "reboot_node", unit="seconds", window_seconds=2 * MINUTE,
          why="A storm of corrected errors made calls take 45 s on a GPU that lived; two minutes is no storm any more.",
          change="Raise it where boards are known to answer slowly; before that time the state is unknown."),
    _rule("unreadable", "the GPU cannot be read", "ticket", "inspect", state="unknown",
          why="What cannot be seen cannot be called sound.", change=_NEVER),
    _rule("not_reported", "facts about its health failed to be read for a while, while the rest answers", "ticket", "inspect",
          state="unknown", unit="seconds", window_seconds=5 * MINUTE,
          why="A GPU whose error counters fail is not sound by default; a call that fails now and then is common.",
          change="Raise it if a driver is known to fail for longer under load."),
    _rule("not_read_yet", "the GPU was not read yet, or the driver is down on the whole node", "info", "none", state="unknown",
          why="A start, or an upgrade of the driver, says nothing about a board; gpuwatch_up tells of the node.", change=_NEVER),
)
_DRIVER = (
    _rule("recovery_reset", "the driver asks for a reset of the GPU", "page", "reset_gpu",
          why="The driver's own verdict is better than any table.", change=_NEVER),
    _rule("recovery_reboot", "the driver asks for a reboot of the node", "page", "reboot_node", why="As above.", change=_NEVER),
    _rule("recovery_drain_p2p", "the driver asks to stop peer-to-peer work on the GPU", "ticket", "drain",
          why="Work within the GPU goes on; only traffic between GPUs is at risk.", change="Make it a page where every job uses NVLink."),
    _rule("recovery_drain_and_reset", "the driver asks to drain the GPU and reset it", "page", "reset_gpu", why="As recovery_reset.",
          change=_NEVER),
    _rule("recovery_other", "the driver asks for an action that is about the fabric, or newer than gpuwatch", "ticket", "inspect",
          why="Somebody must read what the driver means.", change=_NEVER),
)
_MEMORY = (
    _rule("ecc_uncorrected", "uncorrected ECC errors since the driver was loaded, the last of them in the window", "page", "reset_gpu",
          value=1, unit="errors", window_seconds=10 * MINUTE,
          why="Data was lost; what ran is wrong or dead, and the memory is replaced only at a reset.",
          change="Lengthen the window to keep the page up until somebody came."),
    _rule("ecc_uncorrected_before", "uncorrected ECC errors since the driver was loaded, none in the window", "ticket", "reset_gpu",
          value=1, unit="errors",
          why="Later the reset can wait for the end of the job. A restart of the agent cannot tell when it was, so it does not page again.",
          change="Never: the counter goes back to zero with the reset. Aggregate counts, which do not, are not used."),
    _rule("ecc_corrected_storm", "corrected ECC errors come faster than memory can be in order", "ticket", "inspect",
          value=100, unit="errors per second", window_seconds=5 * MINUTE,
          why="Corrected errors are harmless one by one; at thousands a second the driver's calls take half a minute.",
          change="Lower it to see weak memory earlier; sound boards have a few a day."),
    _rule("sram_worn", "the board has counted more uncorrected SRAM errors in its life than it should", "ticket", "inspect",
          value=5, unit="errors", why="SRAM has no spare rows: more than four are the vendor's sign for a replacement. No haste is in it.",
          change="Set it to the number your vendor replaces boards at."),
    _rule("row_remap_failed", "a memory row could not be replaced", "page", "inspect",
          why="No spare is left where the error is, so it comes back at every use.", change=_NEVER),
    _rule("row_remap_pending", "a memory row waits for a reset to be replaced", "ticket", "reset_gpu",
          why="Until then the row is avoided, so the job may end first.", change="Make it a page where jobs run for weeks."),
    _rule("row_remap_spares_low", "some memory bank has no spare row left", "ticket", "inspect", value=1, unit="banks",
          why="The next error in that bank cannot be repaired.", change=_NEVER),
    _rule("row_remaps_many", "most of the rows that may be replaced have been", "ticket", "inspect", value=400, unit="rows",
          why="512 is the most a board can replace; a count alone is no sign for a replacement before.",
          change="Lower it to plan replacements earlier."),
    _rule("retired_pages_pending", "a memory page waits for a reset to be taken out of use", "ticket", "reset_gpu",
          why="V100 and T4 take the page out only when the driver starts anew.", change=_NEVER),
    _rule("retired_pages_full", "no more memory pages can be taken out of use", "page", "inspect", value=63, unit="pages",
          why="V100 and T4 can retire 64 pages; at 63 the vendor replaces the board.", change=_NEVER),
    _rule("retired_pages_many", "memory pages that can be taken out of use run out", "ticket", "inspect", value=60, unit="pages",
          why="Early enough before 63 to plan for it.", change="Lower it to plan earlier."),
    _rule("retired_pages_growing", "many pages were retired for uncorrected errors, and more than one in the window", "page", "inspect",
          value=16, unit="pages", window_seconds=7 * DAY, why="More than 15 such pages and more than one a week: the vendor's sign.",
          change=_NEVER),
    _rule("retired_pages_uncorrected", "many pages were retired for uncorrected errors", "ticket", "inspect", value=16, unit="pages",
          why="As above, without the haste.", change=_NEVER),
)
_HEAT = (
    _rule("hardware_thermal", "the board slows itself down for heat", "ticket", "inspect", value=0.05, unit="share of time",
          window_seconds=5 * MINUTE, why="A cooled board never does this: 15 s in five minutes is a fan, paste or airflow fault.",
          change="Raise it for boards in offices and workshops."),
    _rule("hardware_thermal_lasting", "the board slows itself down for heat most of the time", "page", "drain", value=0.5,
          unit="share of time", window_seconds=15 * MINUTE, why="Whatever runs there holds up its whole job, and the heat ages the board.",
          change="Raise it where slow is better than not at all."),
    _rule("software_thermal", "the driver holds clocks down for heat", "ticket", "inspect", value=0.2, unit="share of time",
          window_seconds=15 * MINUTE, why="The driver acts some degrees before the hardware, in hot hours also on sound boards.",
          change="Raise it in rooms that run warm on purpose."),
    _rule("hardware_slowdown", "the hardware holds clocks down and gives neither heat nor the power brake as reason", "ticket", "inspect",
          value=0.5, unit="share of time", window_seconds=10 * MINUTE, why="Boards before driver 570 often tell no more than this.",
          change="Lower it for boards whose supply is in doubt."),
    _rule("power_brake", "the power supply of the chassis brakes the GPU", "page", "inspect", value=0.05, unit="share of time",
          window_seconds=3 * MINUTE, state="degraded", why="The GPU is sound and the rack is not: a rack ran braked for 36 hours unseen.",
          change="Raise it where the chassis is meant to cap power."),
    _rule("temperature_margin", "the GPU is about to slow down for heat by its own measure", "ticket", "inspect", value=3,
          unit="degrees before the slowdown", window_seconds=5 * MINUTE,
          why="Boards that tell a margin know their hottest part. A margin near zero on a cool board is nonsense and is not believed.",
          change="Raise it to hear of it earlier."),
    _rule("temperature", "the GPU is about to slow down for heat", "ticket", "inspect", value=3, unit="degrees before the slowdown",
          window_seconds=5 * MINUTE, why="For boards that tell no margin. Never a fixed temperature: 75 is normal for a T4.",
          change="Raise it to hear of it earlier."),
    _rule("memory_temperature", "the memory is about to be too hot", "ticket", "inspect", value=3, unit="degrees before its limit",
          window_seconds=5 * MINUTE, why="HBM that runs hot makes more errors.", change="Raise it to hear of it earlier."),
    _rule("clocks_stuck_low", "the GPU is busy on low clocks and low power, and gives no reason", "ticket", "reset_gpu", value=0.6,
          unit="share of the highest clock", window_seconds=15 * MINUTE,
          why="At its power limit a board may run at 57 % of its clock; far below both, something holds it.",
          change="Lower it where clocks are locked on purpose without the driver's knowledge."),
)
_LINKS = (
    _rule("nvlink_down", "NVLinks that were up are down", "page", "reset_gpu", value=1, unit="links", window_seconds=2 * MINUTE,
          why="Jobs over several GPUs stall or fail. Compared with the links this board has had up: a bridge may be absent by design.",
          change="Lengthen it where the fabric starts slowly."),
    _rule("nvlink_down_echo", "NVLinks are down because a peer failed", "ticket", "watch", value=1, unit="links",
          window_seconds=2 * MINUTE, why="The peer is to be repaired, not this GPU.", change=_NEVER),
    _rule("nvlink_errors", "NVLink repeats packets or trains its links again", "ticket", "inspect", value=1, unit="errors per minute",
          window_seconds=5 * MINUTE, why="Sound links do neither; it slows every step of a job.", change="Raise it for old bridges."),
    _rule("nvlink_crc_storm", "NVLink carries damaged packets all the time", "page", "inspect", value=100, unit="errors per second",
          window_seconds=5 * MINUTE, why="Far beyond what a sound link counts.", change="Raise it for old bridges."),
    _rule("fabric", "the GPU has not joined its NVSwitch fabric", "page", "reboot_node", window_seconds=10 * MINUTE,
          why="CUDA does not start without it. The fabric manager needs minutes after a boot.",
          change="Lengthen it on large NVLink domains."),
    _rule("pcie_width", "PCIe runs on fewer lanes than it has had", "ticket", "inspect", window_seconds=15 * MINUTE,
          why="A bad seat or riser. Compared with what this board has had, since x8 in an x16 slot is common.", change=_NEVER),
    _rule("pcie_generation", "PCIe stays slower under load than it has been", "ticket", "inspect", window_seconds=15 * MINUTE,
          why="Only while busy: idle boards lower it to save power.", change="Lengthen it for loads of short bursts."),
    _rule("pcie_replays", "PCIe repeats packets more often than its line may", "ticket", "inspect", value=1, unit="share of the budget",
          window_seconds=10 * MINUTE, why="The budget grows with generation and lanes; a few replays in a life are normal.",
          change="Raise it for long risers that cannot be changed."),
)
_JOBS = (
    _rule("suspect_hardware", "different jobs died here of errors that are usually a program's", "ticket", "inspect", value=2, unit="jobs",
          window_seconds=DAY, why="One job that dies on several GPUs is at fault itself; several jobs that die on one GPU are not.",
          change="Raise it where many people share one broken program."),
)
# fmt: on
RULES: Final = (*_READING, *_DRIVER, *_MEMORY, *_HEAT, *_LINKS, *_JOBS)
POLICY: Final[dict[str, Rule]] = {rule.name: rule for rule in RULES}

XID_PAGE_HOLD: Final = Span(
    name="xid_page_hold",
    seconds=DAY,
    why="A page stays until the GPU was reset, the node rebooted or the board exchanged; a day later the driver's own facts must do.",
    change="Lengthen it where nobody looks for days.",
)
XID_TICKET_HOLD: Final = Span(
    name="xid_ticket_hold", seconds=DAY, why="Long enough to be seen in working hours.", change="Lengthen it over week-ends."
)
XID_INFO_HOLD: Final = Span(
    name="xid_info_hold", seconds=HOUR, why="The owner of a job looks at once or not at all.", change="As you like: it changes no state."
)
XID_DETAIL: Final = Span(
    name="xid_detail", seconds=MINUTE, why="171 and 172 are written right beside their 48, and a 45 beside what caused it.", change=_NEVER
)
XID_ECHO: Final = Span(
    name="xid_echo",
    seconds=5 * MINUTE,
    why="A GPU that dies lets the links of its peers fail within minutes (XID 74).",
    change="Lengthen it if echoes are blamed.",
)
RECOVERY_TEXT: Final = Span(
    name="recovery_text",
    seconds=MINUTE,
    why="XID 154 tells the driver's wish at once; from the next read on NVML tells it too, and that is newer.",
    change="Not below three medium reads.",
)
SPANS: Final = (XID_PAGE_HOLD, XID_TICKET_HOLD, XID_INFO_HOLD, XID_DETAIL, XID_ECHO, RECOVERY_TEXT)

PCIE_REPLAYS_PER_LANE_MINUTE: Final = {1: 0.15, 2: 0.30, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
"""By PCIe generation: what the bit error rate of the standard allows for one lane."""

NONSENSE_MARGIN_CELSIUS: Final = 15.0
"""A margin near zero is believed while some sensor is that near to its own limit, or the GPU does slow down for heat."""


def window(name: str) -> float:
    """The window of a rule, seconds."""
    return POLICY[name].window_seconds or 0.0
