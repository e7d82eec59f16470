"""The windows of one GPU: fed with each whole read, they give the numbers of its evidence."""

from __future__ import annotations

from typing import Any, Final

from gpuwatch.device.readings import Fast, Health, Identity, Links, Medium
from gpuwatch.health.policy import PCIE_REPLAYS_PER_LANE_MINUTE, window
from gpuwatch.health.window import Best, Growths
from gpuwatch.snapshot import Gpu

_READS_IN_WINDOW: Final = 3.0
_COUNTED_AS: Final = {
    "hardware_thermal": "hardware_thermal",
    "hardware_thermal_lasting": "hardware_thermal",
    "software_thermal": "software_thermal",
    "hardware_slowdown": "hardware_slowdown",
    "power_brake": "hardware_power_brake",
}
"""Rule → the reason under which :mod:`gpuwatch.accounting` counts throttled seconds."""
_EXPLAINS_SLOWDOWN: Final = ("hardware_thermal", "hardware_power_brake")
"""The slowdown bit is set with these too: what is left of its time had no reason, also when their own, shorter windows are over."""
_BUSY_FOR_PCIE, _BUSY_FOR_CLOCKS = 0.5, 0.8
_LOW_POWER_RATIO: Final = 0.7
"""Low clocks near the power limit are the limit's work, whether the board says so or not."""
_CLOCK_EXCUSES: Final = frozenset(
    {
        "software_power_cap",
        "software_thermal",
        "hardware_thermal",
        "hardware_slowdown",
        "hardware_power_brake",
        "application_clocks",
        "sync_boost",
    }
)
_RETRIES: Final = frozenset({"replay", "recovery"})
_MINUTE = 60.0


class Measures:
    """Windows over what one GPU reports. Times are CLOCK_MONOTONIC in seconds; ``read_seconds`` is the time between whole reads."""

    def __init__(self, read_seconds: float) -> None:
        self._shortest = _READS_IN_WINDOW * read_seconds
        self._nvlinks_ever: set[int] = set()
        self._pcie_most: dict[str, int] = {}
        self._pcie_before: dict[str, int] = {}
        self.clear()

    def clear(self, *, from_zero: bool = False) -> None:
        """The GPU was reset: what it counted is over. What it could do before (links, lanes) stays the measure.

        ``from_zero``: what its error counters say next has been counted since.
        """
        self._ecc_uncorrected = self._growths("ecc_uncorrected", lost_gaps=False)
        self._ecc_events = self._growths("ecc_uncorrected", lost_gaps=False)
        self._ecc_corrected = self._growths("ecc_corrected_storm")
        self._retired = self._growths("retired_pages_growing", lost_gaps=False)
        self._throttled = {rule: self._growths(rule) for rule in _COUNTED_AS}
        self._explained = self._growths("hardware_slowdown")
        self._retries = self._growths("nvlink_errors")
        self._crc = self._growths("nvlink_crc_storm")
        self._replays = self._growths("pcie_replays")
        self._margin, self._headroom, self._memory_headroom = map(self._best, ("temperature_margin", "temperature", "memory_temperature"))
        self._clock = self._best("clocks_stuck_low")
        self._nvlinks = self._best("nvlink_down")
        self._nvlinks_down: tuple[int, float] | None = None
        """How many, and since when as many."""
        self._fabric = self._best("fabric")
        self._pcie = {"width": self._best("pcie_width"), "generation": self._best("pcie_generation")}
        self._reported: dict[str, Best] = {}
        self._nearest_limit: float | None = None
        self._budget: float | None = None
        self._from_zero = from_zero

    def take(self, gpu: Gpu, now: float) -> None:
        """Take a whole read: one with a medium tier."""
        medium, fast = gpu.medium, gpu.fast
        if medium is None:
            return
        for rule, counted in _COUNTED_AS.items():
            self._throttled[rule].update(counted, gpu.totals.throttled_seconds.get(counted), now)
        for counted in _EXPLAINS_SLOWDOWN:
            self._explained.update(counted, gpu.totals.throttled_seconds.get(counted), now)
        self._take_memory(medium.health, now)
        self._take_links(medium.links, now)
        self._take_pcie(gpu.identity, medium.links, fast, now)
        facts = _reported_facts(gpu)
        self._reported = {name: best for name, best in self._reported.items() if name in facts}
        for name, reported in facts.items():
            self._reported.setdefault(name, self._best("not_reported")).update(float(reported), now)
        if fast is not None:
            self._take_heat(gpu.identity, medium, fast, now)
            self._clock.update(_busy_clock_ratio(gpu.identity, medium, fast), now)

    def note_uncorrected(self, now: float) -> None:
        """An event told of an uncorrected error, before any counter was read. The counter will tell of the same one."""
        self._ecc_events.add("event", 1.0, now)

    def fields(self, now: float) -> dict[str, Any]:
        """The fields of :class:`gpuwatch.health.evidence.Evidence` that come from windows."""
        margin = self._margin.value(now)
        grown = [amount for told in (self._ecc_uncorrected, self._ecc_events) if (amount := told.amount(now)) is not None]
        down, fabric = self._nvlinks.value(now), self._fabric.value(now)
        ratios = {rule: rate for rule, growth in self._throttled.items() if (rate := growth.rate(now)) is not None}
        if "hardware_slowdown" in ratios:
            ratios["hardware_slowdown"] = max(ratios["hardware_slowdown"] - (self._explained.rate(now) or 0.0), 0.0)
        return {
            "missing": tuple(sorted(name for name, best in self._reported.items() if best.value(now) == 0.0)),
            "ecc_uncorrected_grown": max(grown) if grown else None,
            "ecc_corrected_per_second": self._ecc_corrected.rate(now),
            "retired_pages_uncorrected_grown": self._retired.amount(now),
            "throttled_ratio": ratios,
            "margin_celsius": margin,
            "headroom_celsius": self._headroom.value(now),
            "memory_headroom_celsius": self._memory_headroom.value(now),
            "nearest_limit_celsius": self._nearest_limit,
            "busy_clock_ratio": self._clock.value(now),
            "nvlinks_most": len(self._nvlinks_ever),
            "nvlinks_down": None if down is None else -down,
            "nvlink_errors_per_minute": _per_minute(self._retries.rate(now)),
            "nvlink_crc_per_second": self._crc.rate(now),
            "fabric_sound": None if fabric is None else fabric > 0.0,
            "pcie_width": _whole(self._pcie["width"].value(now)),
            "pcie_width_most": self._pcie_most.get("width"),
            "pcie_generation": _whole(self._pcie["generation"].value(now)),
            "pcie_generation_most": self._pcie_most.get("generation"),
            "pcie_replays_per_minute": _per_minute(self._replays.rate(now)),
            "pcie_replay_budget": self._budget,
        }

    @property
    def nvlinks_down_since(self) -> float | None:
        """When the newest of the links that are down now went down; ``None``: none is."""
        return None if self._nvlinks_down is None else self._nvlinks_down[1]

    def _growths(self, rule: str, *, lost_gaps: bool = True) -> Growths:
        return Growths(max(window(rule), self._shortest), lost_gaps=lost_gaps)

    def _best(self, rule: str) -> Best:
        return Best(max(window(rule), self._shortest))

    def _take_memory(self, health: Health, now: float) -> None:
        for ecc in health.ecc_errors:
            if ecc.scope == "volatile":
                growths = self._ecc_uncorrected if ecc.severity == "uncorrected" else self._ecc_corrected
                if self._from_zero:
                    growths.update(ecc.location, 0, now)
                growths.update(ecc.location, ecc.count, now)
        self._from_zero = False
        self._retired.update("double_bit", health.retired_pages.get("double_bit"), now)

    def _take_links(self, links: Links, now: float) -> None:
        self._nvlinks_ever |= {link for link, up in links.nvlink_up.items() if up}
        if links.nvlink_up:
            down = sum(links.nvlink_up.get(link) is False for link in self._nvlinks_ever)
            self._nvlinks.update(-float(down), now)
            before, since = self._nvlinks_down or (0, now)
            self._nvlinks_down = (down, now if down > before else since) if down else None
        for kind, count in links.nvlink_errors.items():
            growths = self._retries if kind in _RETRIES else self._crc
            growths.update(kind, count, now)
        self._fabric.update(None if links.fabric_healthy is None else float(links.fabric_healthy), now)

    def _take_pcie(self, identity: Identity, links: Links, fast: Fast | None, now: float) -> None:
        """A width or generation counts as had once it was read twice in a row, so that one wrong answer accuses nobody for ever."""
        limits = {"width": identity.pcie_width_max, "generation": identity.pcie_generation_max}
        for name, value in (("width", links.pcie_width), ("generation", links.pcie_generation)):
            if value is None:
                continue
            limit = limits[name]
            steady = min(value, self._pcie_before.get(name, 0), value if limit is None else limit)
            self._pcie_most[name] = max(steady, self._pcie_most.get(name, 0))
            self._pcie_before[name] = value
        busy = fast is not None and (fast.utilization_ratio or 0.0) > _BUSY_FOR_PCIE
        self._pcie["width"].update(links.pcie_width, now)
        self._pcie["generation"].update(links.pcie_generation if busy else None, now)
        self._replays.update("replays", links.pcie_replays, now)
        lanes, generation = links.pcie_width, self._pcie_most.get("generation")
        allowed = PCIE_REPLAYS_PER_LANE_MINUTE.get(generation or 0)
        self._budget = None if allowed is None or lanes is None else allowed * lanes

    def _take_heat(self, identity: Identity, medium: Medium, fast: Fast, now: float) -> None:
        limits, offsets = identity.temperature_limit_celsius, identity.temperature_limit_offset_celsius
        rooms = {
            sensor: limits[limit] - fast.temperature_celsius[sensor]
            for sensor, limit in (("gpu", "slowdown"), ("memory", "memory_max"))
            if limit in limits and sensor in fast.temperature_celsius
        }
        self._nearest_limit = min(rooms.values(), default=None)
        margin, offset = medium.temperature_margin_celsius, offsets.get("slowdown")
        self._margin.update(None if margin is None or offset is None else margin - offset, now)
        self._headroom.update(None if margin is not None else rooms.get("gpu"), now)
        self._memory_headroom.update(rooms.get("memory"), now)


def _busy_clock_ratio(identity: Identity, medium: Medium, fast: Fast) -> float | None:
    """SM clock as a share of the highest; 1 while the GPU is not busy or has an excuse; ``None`` where that cannot be known (MIG)."""
    clock, highest = fast.clock_hertz.get("sm"), identity.clock_max_hertz.get("sm")
    limit = medium.power_limit_watts.get("enforced")
    if clock is None or not highest or fast.utilization_ratio is None or fast.throttle_reasons is None:
        return None
    if not limit or fast.power_watts is None or fast.power_watts > _LOW_POWER_RATIO * limit:
        return 1.0
    if fast.utilization_ratio <= _BUSY_FOR_CLOCKS or _CLOCK_EXCUSES & set(fast.throttle_reasons):
        return 1.0
    return clock / highest


def _reported_facts(gpu: Gpu) -> dict[str, bool]:
    """Facts about health that this board ought to report: whether it did. What the board refuses is left out."""
    if gpu.medium is None:
        return {}
    health = gpu.medium.health
    facts = {
        "ecc_mode": (health.ecc_enabled is not None, "nvmlDeviceGetEccMode"),
        "row_remapping": (health.row_remap_pending is not None, "nvmlDeviceGetRemappedRows"),
        "retired_pages": (health.retired_pages_pending is not None, "nvmlDeviceGetRetiredPagesPendingStatus"),
        "recovery_action": (health.recovery_action is not None, "field 230"),
    }
    if health.ecc_enabled:
        facts["ecc_errors"] = (bool(health.ecc_errors), "nvmlDeviceGetTotalEccErrors")
    return {
        name: reported for name, (reported, call) in facts.items() if reported or not any(one.startswith(call) for one in gpu.unsupported)
    }


def _per_minute(rate: float | None) -> float | None:
    return None if rate is None else rate * _MINUTE


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
