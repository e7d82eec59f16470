"""Alerts about the memory of a GPU: ECC errors, rows that are replaced, pages that are retired."""

from __future__ import annotations

from typing import Final

from gpuwatch.rules.alert import Alert
from gpuwatch.rules.words import DEVICE, GPU, HOLDERS, WHERE, per_gpu

_GROUP: Final = "gpuwatch-memory"
_ERRORS: Final = "gpuwatch_gpu_ecc_errors_total"
_UNCORRECTED: Final = f'{_ERRORS}{{severity="uncorrected", scope="volatile"}}'
_PLACE: Final = f"{GPU}, location"
_PENDING_FOR: Final = "15m"
_ALL_PAGES: Final = f"sum by ({GPU}) (max by ({GPU}, cause) (gpuwatch_gpu_retired_pages))"


def _sum(vector: str) -> str:
    """Over the locations, each once."""
    return f"sum by ({GPU}) (max by ({_PLACE}) ({vector}))"


_NOW: Final = f"{_sum(_UNCORRECTED)} >= ${{ecc_uncorrected}}"
_BEFORE: Final = f"sum by ({DEVICE}) (max by ({DEVICE}, location) (last_over_time({_UNCORRECTED}[1d] offset ${{ecc_uncorrected_window}})))"
"""What was known when the window began, also by an agent that was away just then."""
_LEAST: Final = f"sum by ({DEVICE}) (min by ({DEVICE}, location) (min_over_time({_UNCORRECTED}[${{ecc_uncorrected_window}}])))"
"""The least within the window: after a reset the counter may rise again and still be below what it was before."""

MEMORY: Final = (
    Alert(
        name="GpuEccUncorrectable", group=_GROUP, severity="critical", subject="gpu", board="node",
        expression=f"({_NOW} unless on ({DEVICE}) {_sum(_UNCORRECTED)} <= on ({DEVICE}) group_left () {_BEFORE}) "
        f"or {_NOW} > on ({DEVICE}) group_left () {_LEAST}",
        summary="A GPU lost data in its memory.",
        description=f"{WHERE} has {{{{ $value }}}} uncorrected ECC errors, the last of them just now.{HOLDERS} "
        "First: drain it and reset it; what ran is wrong or dead.",
    ),
    Alert(
        name="GpuEccUncorrectable", group=_GROUP, severity="warning", for_="${ecc_uncorrected_window}", subject="gpu", board="node",
        expression=_NOW,
        summary="A GPU has had uncorrected ECC errors and was not reset since.",
        description=f"{WHERE} has {{{{ $value }}}} uncorrected ECC errors since its driver was loaded.{HOLDERS} "
        "First: reset it when its job has ended.",
    ),
    Alert(
        name="GpuEccCorrectedStorm", group=_GROUP, severity="warning", for_="5m", subject="gpu", board="node",
        expression=_sum(f'rate({_ERRORS}{{severity="corrected", scope="volatile"}}[${{ecc_corrected_storm_window}}])')
        + " > ${ecc_corrected_storm}",
        summary="The memory of a GPU corrects errors all the time.",
        description=f"{WHERE} corrects {{{{ $value | humanize }}}} errors a second.{HOLDERS} "
        "First: drain it and run the vendor's diagnostics.",
    ),
    Alert(
        name="GpuSramErrors", group=_GROUP, severity="warning", subject="gpu", board="node",
        expression=per_gpu(f'{_ERRORS}{{severity="uncorrected", scope="aggregate", location="sram"}}') + " >= ${sram_worn}",
        summary="A GPU has had more uncorrected SRAM errors than it should in its life.",
        description=f"{WHERE} has had {{{{ $value }}}} uncorrected SRAM errors. SRAM has no spare rows.{HOLDERS} "
        "First: ask the vendor for a replacement; there is no haste.",
    ),
    Alert(
        name="GpuRowRemapFailed", group=_GROUP, severity="critical", subject="gpu", board="node",
        expression=per_gpu("gpuwatch_gpu_row_remap_failed") + " == 1",
        summary="A GPU could not replace a row of its memory.",
        description=f"No spare row is left where {WHERE} needs one.{HOLDERS} First: drain it and have it replaced.",
    ),
    Alert(
        name="GpuRowRemapPending", group=_GROUP, severity="warning", for_=_PENDING_FOR, subject="gpu", board="node",
        expression=per_gpu("gpuwatch_gpu_row_remap_pending") + " == 1",
        summary="A GPU waits for a reset to replace a row of its memory.",
        description=f"{WHERE} avoids the row until it is reset.{HOLDERS} First: reset it when its job has ended.",
    ),
    Alert(
        name="GpuRowRemapSparesLow", group=_GROUP, severity="warning", subject="gpu", board="node",
        expression=per_gpu('gpuwatch_gpu_row_remap_banks{availability="none"}') + " >= ${row_remap_spares_low} or "
        + per_gpu('gpuwatch_gpu_remapped_rows{severity="uncorrected"}') + " >= ${row_remaps_many}",
        summary="A GPU runs out of spare memory rows.",
        description=f"{WHERE} has a bank without a spare row, or most of its replacements are used up ({{{{ $value }}}}).{HOLDERS} "
        "First: plan its replacement.",
    ),
    Alert(
        name="GpuRetiredPages", group=_GROUP, severity="critical", subject="gpu", board="node",
        expression=_ALL_PAGES + " >= ${retired_pages_full}",
        summary="A GPU can take no more memory pages out of use.",
        description=f"{WHERE} has {{{{ $value }}}} retired pages of 64.{HOLDERS} First: drain it and have it replaced.",
    ),
    Alert(
        name="GpuRetiredPages", group=_GROUP, severity="warning", for_=_PENDING_FOR, subject="gpu", board="node",
        expression=per_gpu("gpuwatch_gpu_retired_pages_pending") + f" == 1 or {_ALL_PAGES} >= ${{retired_pages_many}}",
        summary="A GPU retires memory pages.",
        description=f"On {WHERE} a page waits for a restart of the driver to be retired, or nearly all of 64 are.{HOLDERS} "
        "First: reset it when its job has ended; near 64 plan its replacement.",
    ),
)  # fmt: skip
