"""What one GPU does over time: phases of constant load, with every counter integrated exactly.

Built once from the scenario and never changed, so any thread may read it, and a new driver object with the same clock (after a crash
of the reader) goes on where the old one was.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuwatch.device.simulated.board import Board
from gpuwatch.device.simulated.fault import AnyFault, PowerBrake, ThermalThrottle
from gpuwatch.device.simulated.load import HARDWARE_THERMAL, SLOWDOWN, SOFTWARE_THERMAL, Level, braked, power_share, throttled
from gpuwatch.device.simulated.noise import noise, noise_integral

HEAT_TIME_CONSTANT_SECONDS = 40.0
_COOLING_LOST_OVER_LIMIT_CELSIUS = 8.0
_THROTTLED_CLOCK_SHARE = 0.55
_POWER_NOISE_SHARE = 0.015


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums since the scenario's start. Seconds of throttling by cause, joules, KiB in one direction over all NVLinks."""

    energy_joules: float = 0.0
    capped_seconds: float = 0.0
    software_thermal_seconds: float = 0.0
    hardware_thermal_seconds: float = 0.0
    power_brake_seconds: float = 0.0
    nvlink_kibibytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Phase:
    """A span in which the load stays the same. ``instances`` holds the levels of MIG GPU instances by id."""

    start: float
    level: Level
    instances: Mapping[int, Level]
    heat_target_celsius: float
    temperature_celsius: float
    """At the start."""
    counters: Counters
    """At the start."""


@dataclass(frozen=True, slots=True)
class Step:
    """Load from ``start`` on, before heat and brakes have their say."""

    start: float
    level: Level
    instances: Mapping[int, Level]


class Timeline:
    """Phases of one GPU. ``key`` seeds its noise."""

    def __init__(self, steps: Iterable[Step], faults: tuple[AnyFault, ...], *, board: Board, key: int) -> None:
        self._board = board
        self._key = key
        self._phases: list[Phase] = []
        throttles = tuple(fault for fault in faults if isinstance(fault, ThermalThrottle))
        brakes = tuple(fault for fault in faults if isinstance(fault, PowerBrake))
        planned = sorted(steps, key=lambda step: step.start)
        starts = {step.start for step in planned} | {edge for fault in (*throttles, *brakes) for edge in (fault.from_, fault.end)}
        edges = sorted(start for start in starts if start < math.inf)
        for start, end in zip(edges, [*edges[1:], math.inf], strict=True):
            step = [step for step in planned if step.start <= start][-1]
            level = braked(step.level, board) if any(brake.covers(start) for brake in brakes) else step.level
            throttle = next((fault for fault in throttles if fault.covers(start)), None)
            if throttle is None:
                self._append(start, level, step.instances, heat_target=self._heat_target(level))
            else:
                self._append_throttled(start, end, level, step.instances, throttle=throttle)
        self._starts = [phase.start for phase in self._phases]

    def phase_at(self, t: float) -> Phase:
        """The phase that holds at ``t`` seconds."""
        return self._phases[max(0, bisect_right(self._starts, t) - 1)]

    def counters_at(self, t: float) -> Counters:
        """Sums up to ``t``: they never fall."""
        return self._advance(self.phase_at(t), t)

    def temperature_at(self, t: float) -> float:
        """Degrees Celsius of the core."""
        return _relax(self.phase_at(t), t)

    def heat_share_at(self, t: float) -> float:
        """The core's warmth between idle (0) and busy (1); above 1 when it overheats."""
        heat = self._board.heat
        return (self.temperature_at(t) - heat.idle) / (heat.busy - heat.idle)

    def power_watts_at(self, t: float) -> float:
        """Power as the energy counter integrates it."""
        return self.phase_at(t).level.watts * (1.0 + _POWER_NOISE_SHARE * noise(self._key, t))

    def means(self, start: float, end: float, *, gpu_instance: int | None, members: tuple[str, ...]) -> dict[str, float]:
        """Mean of members of :class:`Level` between two moments, of the GPU or of one MIG GPU instance (empty when it is gone)."""
        sums = dict.fromkeys(members, 0.0)
        for number, phase in enumerate(self._phases):
            until = self._starts[number + 1] if number + 1 < len(self._starts) else math.inf
            span = min(end, until) - max(start, phase.start)
            level = phase.level if gpu_instance is None else phase.instances.get(gpu_instance)
            if span <= 0.0:
                continue
            if level is None:
                return {}
            for member in members:
                sums[member] += getattr(level, member) * span
        return {member: total / (end - start) for member, total in sums.items()}

    def _append(self, start: float, level: Level, instances: Mapping[int, Level], *, heat_target: float) -> None:
        if self._phases:
            before = self._phases[-1]
            temperature, counters = _relax(before, start), self._advance(before, start)
        else:
            temperature, counters = self._heat_target(level), Counters()
        self._phases.append(Phase(start, level, instances, heat_target, temperature, counters))

    def _append_throttled(
        self, start: float, end: float, level: Level, instances: Mapping[int, Level], *, throttle: ThermalThrottle
    ) -> None:
        hardware = throttle.slowdown == "hardware"
        limit = float(self._board.heat.slowdown if hardware else self._board.heat.gpu_max)
        hot = limit + _COOLING_LOST_OVER_LIMIT_CELSIUS
        now = _relax(self._phases[-1], start) if self._phases else self._heat_target(level)
        crossing = start
        if now < limit:
            self._append(start, level, instances, heat_target=hot)
            crossing = start + HEAT_TIME_CONSTANT_SECONDS * math.log((hot - now) / (hot - limit))
        if crossing < end:
            reason = SLOWDOWN | HARDWARE_THERMAL if hardware else SOFTWARE_THERMAL
            slow = throttled(level, reason, clock_share=_THROTTLED_CLOCK_SHARE)
            self._append(crossing, slow, instances, heat_target=limit + 1.0)

    def _heat_target(self, level: Level) -> float:
        heat = self._board.heat
        return heat.idle + power_share(level.watts, self._board) * (heat.busy - heat.idle)

    def _advance(self, phase: Phase, t: float) -> Counters:
        level, before, span = phase.level, phase.counters, max(0.0, t - phase.start)
        wobble = _POWER_NOISE_SHARE * (noise_integral(self._key, phase.start + span) - noise_integral(self._key, phase.start))
        return Counters(
            energy_joules=before.energy_joules + level.watts * (span + wobble),
            capped_seconds=before.capped_seconds + level.capped_share * span,
            software_thermal_seconds=before.software_thermal_seconds + level.software_thermal_share * span,
            hardware_thermal_seconds=before.hardware_thermal_seconds + level.hardware_thermal_share * span,
            power_brake_seconds=before.power_brake_seconds + level.power_brake_share * span,
            nvlink_kibibytes=before.nvlink_kibibytes + level.nvlink * 1024.0 * span,
        )


def _relax(phase: Phase, t: float) -> float:
    """First-order approach to the phase's steady temperature."""
    remaining = math.exp(-max(0.0, t - phase.start) / HEAT_TIME_CONSTANT_SECONDS)
    return phase.heat_target_celsius + (phase.temperature_celsius - phase.heat_target_celsius) * remaining
