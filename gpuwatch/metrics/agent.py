"""How well gpuwatch itself does."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from gpuwatch.metrics.xid import listening_rows

if TYPE_CHECKING:
    from gpuwatch.metrics.row import Rows
    from gpuwatch.snapshot import Kubernetes, Snapshot


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
    yield from _attribution_rows(snapshot.kubernetes)
    yield from listening_rows(snapshot.listening)
    yield "gpuwatch_series", series


def _attribution_rows(kubernetes: Kubernetes | None) -> Rows:
    if kubernetes is None:
        return
    yield "gpuwatch_attribution_up", {name: state.up for name, state in kubernetes.sources.items()}
    yield "gpuwatch_attribution_fault", {(name, state.fault): 1 for name, state in kubernetes.sources.items() if not state.up}
    yield "gpuwatch_attribution_age_seconds", kubernetes.age_seconds
    yield "gpuwatch_kubernetes_events_total", kubernetes.notices
    yield "gpuwatch_unattributed_gpus", len(kubernetes.unattributed)
    yield "gpuwatch_unknown_devices", len(kubernetes.unknown_devices)
