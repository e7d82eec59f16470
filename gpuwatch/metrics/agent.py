"""How well gpuwatch itself does."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuwatch.metrics.row import Rows
    from gpuwatch.snapshot import Snapshot


def agent_rows(snapshot: Snapshot, series: int) -> Rows:
    """State of the agent. ``series`` is how many series of devices the same exposition holds."""
    simulated = "true" if snapshot.simulated else "false"
    yield "gpuwatch_build_info", {(snapshot.version, platform.python_version(), simulated): 1}
    yield "gpuwatch_up", snapshot.up
    if not snapshot.up:
        yield "gpuwatch_fault", {snapshot.fault or "unknown": 1}
    agent = snapshot.agent
    yield "gpuwatch_read_duration_seconds", agent.read_duration_seconds
    yield "gpuwatch_last_read_timestamp_seconds", agent.last_read_timestamp_seconds
    yield "gpuwatch_nvml_errors_total", agent.nvml_errors
    yield "gpuwatch_nvml_rejected_values_total", agent.nvml_rejected_values
    yield "gpuwatch_reader_restarts_total", agent.reader_restarts
    yield "gpuwatch_series", series
