"""Alerts about NVLink, its fabric, and PCIe. What a board had before is the measure, not a table of models."""

from __future__ import annotations

from typing import Final

from gpuwatch.health.policy import PCIE_REPLAYS_PER_LANE_MINUTE
from gpuwatch.rules.alert import Alert
from gpuwatch.rules.recording import NVLINKS_UP, PCIE_WIDTH
from gpuwatch.rules.words import DEVICE, GPU, HOLDERS, WHERE, per_gpu

_GROUP: Final = "gpuwatch-links"
_UP: Final = f"sum by ({GPU}) (max by ({GPU}, link) (gpuwatch_gpu_nvlink_up))"
_WIDTH: Final = per_gpu("gpuwatch_gpu_pcie_link_width")
_GENERATION: Final = per_gpu("max_over_time(gpuwatch_gpu_pcie_link_generation[1h])")
_REPLAY_BUDGET: Final = " + ".join(
    f"({_GENERATION} == bool {generation}) * {value}" for generation, value in PCIE_REPLAYS_PER_LANE_MINUTE.items()
)
"""Replays a minute for one lane; the generation is that under load, since idle boards lower it."""


def _errors(kinds: str, window: str) -> str:
    """Errors a second over the kinds, each once."""
    return f'sum by ({GPU}) (max by ({GPU}, kind) (rate(gpuwatch_gpu_nvlink_errors_total{{kind=~"{kinds}"}}[{window}])))'


def _most(recorded: str) -> str:
    """The most within a day. It is recorded by UUID, so that a GPU that got another number keeps its past."""
    return f"max_over_time({recorded}[1d:5m])"


LINKS: Final = (
    Alert(
        name="GpuNvlinkDown", group=_GROUP, severity="critical", for_="${nvlink_down_window}", subject="gpu", board="node",
        # A link that could not be read is absent, and not down.
        expression=f"{_most(NVLINKS_UP)} - on ({DEVICE}) group_right () {_UP} >= ${{nvlink_down}} "
        f"and on ({DEVICE}) gpuwatch_gpu_nvlink_up == 0",
        summary="NVLinks of a GPU are down that were up.",
        description=f"{{{{ $value }}}} NVLinks of {WHERE} that were up within a day are down.{HOLDERS} "
        "First: look whether another GPU of the node failed; if not, drain this one and reset it.",
    ),
    Alert(
        name="GpuNvlinkErrors", group=_GROUP, severity="critical", for_="5m", subject="gpu", board="node",
        expression=_errors("crc", "${nvlink_crc_storm_window}") + " >= ${nvlink_crc_storm}",
        summary="NVLink carries damaged packets all the time.",
        description=f"{WHERE} counts {{{{ $value | humanize }}}} damaged packets a second.{HOLDERS} "
        "First: drain it and look at its seat and bridge.",
    ),
    Alert(
        name="GpuNvlinkErrors", group=_GROUP, severity="warning", for_="5m", subject="gpu", board="node",
        expression=_errors("replay|recovery", "${nvlink_errors_window}") + " * 60 >= ${nvlink_errors}",
        summary="NVLink repeats packets or trains its links again.",
        description=f"{WHERE}: {{{{ $value | humanize }}}} times a minute.{HOLDERS} "
        "First: look at its seat and bridge at the end of the job.",
    ),
    Alert(
        name="GpuFabricUnhealthy", group=_GROUP, severity="critical", for_="${fabric_window}", subject="gpu", board="node",
        expression=per_gpu("gpuwatch_gpu_fabric_healthy") + " == 0",
        summary="A GPU has not joined its NVSwitch fabric.",
        description=f"{WHERE} cannot run CUDA until it has.{HOLDERS} "
        "First: look at the fabric manager's service and log, then reboot the node.",
    ),
    Alert(
        name="GpuPcieWidthDegraded", group=_GROUP, severity="warning", for_="${pcie_width_window}", subject="gpu", board="node",
        expression=f"{_WIDTH} < on ({DEVICE}) group_left () {_most(PCIE_WIDTH)}",
        summary="A GPU runs on fewer PCIe lanes than it has had.",
        description=f"{WHERE} runs on {{{{ $value }}}} lanes.{HOLDERS} First: look at its seat and riser when the node is free.",
    ),
    Alert(
        name="GpuPcieReplays", group=_GROUP, severity="warning", for_="10m", subject="gpu", board="node",
        expression=f"{per_gpu('rate(gpuwatch_gpu_pcie_replays_total[${pcie_replays_window}])')} * 60 "
        f"> on ({GPU}) ${{pcie_replays}} * {_WIDTH} * on ({GPU}) ({_REPLAY_BUDGET} > 0)",
        summary="PCIe repeats packets more often than its line may.",
        description=f"{WHERE} repeats {{{{ $value | humanize }}}} packets a minute, more than the bit error rate of its line allows."
        f"{HOLDERS} First: look at its seat and riser when the node is free.",
    ),
)  # fmt: skip
