"""Alerts about heat, power and clocks: always by what the board itself reports, never by a temperature of ours."""

from __future__ import annotations

from typing import Final

from gpuwatch.rules.alert import Alert
from gpuwatch.rules.words import GPU, HOLDERS, WHERE, per_gpu

_GROUP: Final = "gpuwatch-heat"


def throttled(reason: str, window: str) -> str:
    """Share of time for which a GPU was held down for a reason."""
    return per_gpu(f'rate(gpuwatch_gpu_throttled_seconds_total{{reason="{reason}"}}[{window}])')


def _judged(reason: str) -> str:
    """By the agent, which knows what excuses it."""
    return per_gpu(f'gpuwatch_gpu_health_reason{{reason="{reason}"}}')


_MEMORY_LIMIT: Final = per_gpu('gpuwatch_gpu_temperature_limit_celsius{limit="memory_max"}')
_MEMORY_HEAT: Final = per_gpu('gpuwatch_gpu_temperature_celsius{sensor="memory"}')

HEAT: Final = (
    Alert(
        name="GpuHardwareThermalSlowdown", group=_GROUP, severity="critical", subject="gpu", board="node",
        expression=throttled("hardware_thermal", "${hardware_thermal_lasting_window}") + " > ${hardware_thermal_lasting}",
        summary="A GPU slows itself down for heat most of the time.",
        description=f"{WHERE} was held down for heat {{{{ $value | humanizePercentage }}}} of the time.{HOLDERS} "
        "First: drain it; then fans, filters, airflow.",
    ),
    Alert(
        name="GpuHardwareThermalSlowdown", group=_GROUP, severity="warning", for_="5m", subject="gpu", board="node",
        expression=throttled("hardware_thermal", "${hardware_thermal_window}") + " > ${hardware_thermal}",
        summary="A GPU slows itself down for heat.",
        description=f"{WHERE} was held down for heat {{{{ $value | humanizePercentage }}}} of the time.{HOLDERS} "
        "First: look at fans and airflow.",
    ),
    Alert(
        name="GpuSoftwareThermalSlowdown", group=_GROUP, severity="warning", for_="15m", subject="gpu", board="node",
        expression=throttled("software_thermal", "${software_thermal_window}") + " > ${software_thermal}",
        summary="The driver holds a GPU down for heat.",
        description=f"{WHERE} was held down {{{{ $value | humanizePercentage }}}} of the time.{HOLDERS} "
        "First: look at the room and its neighbours.",
    ),
    Alert(
        name="GpuPowerBrake", group=_GROUP, severity="critical", for_="3m", subject="node", board="node",
        expression=f"count by (cluster, node) ({throttled('hardware_power_brake', '${power_brake_window}')} > ${{power_brake}})",
        summary="The power supply brakes GPUs.",
        description="{{ $value }} GPUs of {{ $labels.node }} are braked by the supply of their chassis; they are sound. "
        "First: look for the same alert from its rack, then at the power supplies and the feed.",
    ),
    Alert(
        name="GpuNearSlowdown", group=_GROUP, severity="warning", subject="gpu", board="node", keep_firing="5m",
        expression=f'max by ({GPU}) (gpuwatch_gpu_health_reason{{reason=~"temperature|temperature_margin"}}) == 1',
        summary="A GPU is about to slow down for heat.",
        description=f"{WHERE} is within a few degrees of its own limit.{HOLDERS} First: look at fans and airflow.",
    ),
    Alert(
        name="GpuMemoryHot", group=_GROUP, severity="warning", for_="${memory_temperature_window}", subject="gpu", board="node",
        expression=f"{_MEMORY_LIMIT} - on ({GPU}) {_MEMORY_HEAT} < ${{memory_temperature}}",
        summary="The memory of a GPU is about to be too hot.",
        description=f"The memory of {WHERE} is {{{{ $value }}}} degrees below its limit.{HOLDERS} First: look at fans and airflow.",
    ),
    Alert(
        name="GpuClocksStuckLow", group=_GROUP, severity="warning", subject="gpu", board="node", keep_firing="5m",
        expression=_judged("clocks_stuck_low") + " == 1",
        summary="A busy GPU stays on low clocks and gives no reason.",
        description=f"{WHERE} is busy on low clocks and low power.{HOLDERS} "
        "First: look for locked clocks (nvidia-smi -q -d CLOCK), then reset it.",
    ),
)  # fmt: skip
