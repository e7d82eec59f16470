"""Faults that a GPU has counted or repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuwatch.device.readings import Health
    from gpuwatch.metrics.row import Rows


def health_rows(health: Health) -> Rows:
    """ECC errors, replaced memory and what the driver asks for."""
    yield "gpuwatch_gpu_ecc_errors_total", {(ecc.severity, ecc.scope, ecc.location): ecc.count for ecc in health.ecc_errors}
    yield "gpuwatch_gpu_remapped_rows", health.remapped_rows
    yield "gpuwatch_gpu_row_remap_pending", health.row_remap_pending
    yield "gpuwatch_gpu_row_remap_failed", health.row_remap_failed
    yield "gpuwatch_gpu_row_remap_banks", health.row_remap_banks
    yield "gpuwatch_gpu_retired_pages", health.retired_pages
    yield "gpuwatch_gpu_retired_pages_pending", health.retired_pages_pending
    yield "gpuwatch_gpu_recovery_action", health.recovery_action
