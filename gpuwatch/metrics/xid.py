"""Faults that the driver told of by itself: XIDs of GPUs, SXids of NVSwitches, and who listens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuwatch.metrics.row import Rows
    from gpuwatch.snapshot import Listening, XidCount


def xid_rows(xids: tuple[XidCount, ...]) -> Rows:
    """XIDs of one GPU. They are shown for a lost GPU too."""
    yield "gpuwatch_gpu_xid_errors_total", {(one.xid, one.category, one.severity): one.count for one in xids}
    yield "gpuwatch_gpu_xid_last_timestamp_seconds", {(one.xid, one.category, one.severity): one.last_seen_seconds for one in xids}


def listening_rows(listening: Listening) -> Rows:
    """What belongs to the node."""
    yield "gpuwatch_xid_source_up", {str(one.source): one.up for one in listening.sources}
    yield "gpuwatch_xid_source_fault", {(str(one.source), one.fault or "unknown"): 1 for one in listening.sources if not one.up}
    yield "gpuwatch_xid_log_lines_total", listening.log_lines
    yield "gpuwatch_nvswitch_errors_total", listening.sxid_errors
