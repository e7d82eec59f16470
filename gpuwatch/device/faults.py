"""Medium tier: faults that the board has counted or repaired (ECC, row remapping, page retirement) and the driver's advice."""

from __future__ import annotations

from typing import Any

from gpuwatch.device import nvml
from gpuwatch.device.calls import Calls
from gpuwatch.device.readings import EccCount, Health
from gpuwatch.device.supply import Step

_SEVERITIES = {"corrected": 0, "uncorrected": 1}
_SCOPES = {"volatile": 0, "aggregate": 1}
_LOCATIONS = {"l1_cache": 0, "l2_cache": 1, "dram": 2, "register_file": 3, "texture": 4, "cbu": 6, "sram": 7}
"""``nvmlMemoryLocation_t``. Volta tells every location, Ampere and newer DRAM and SRAM."""
_RECOVERY_ACTION = 230
_BANKS = ("max", "high", "partial", "low", "none")
_RETIREMENT_CAUSES = {"single_bit": 0, "double_bit": 1}


def read_faults(calls: Calls) -> Step:
    """The one field ``health`` of :class:`~gpuwatch.device.readings.Medium`."""
    mode = calls.ask("nvmlDeviceGetEccMode")
    enabled = None if mode is None else bool(mode[0])
    yield
    errors = _ecc_errors(calls) if enabled else ()
    yield
    remap = _remapped_rows(calls)
    yield
    retired = _retired_pages(calls)
    yield
    action = calls.check_whole("recovery_action", calls.fields(_RECOVERY_ACTION).get(_RECOVERY_ACTION), 0, 64)
    health = Health(
        ecc_enabled=enabled,
        ecc_errors=errors,
        recovery_action=action,
        **remap,
        **retired,
    )
    return {"health": health}


def _ecc_errors(calls: Calls) -> tuple[EccCount, ...]:
    """Counters by location, or the total where the board tells no location; never both, so that a sum over the label is right.

    Only asked with ECC on: boards with ECC off refuse, or answer zeros that count nothing.
    """
    counts = []
    for severity, kind in _SEVERITIES.items():
        for scope, counter in _SCOPES.items():
            answers = {
                location: calls.ask("nvmlDeviceGetMemoryErrorCounter", kind, counter, number) for location, number in _LOCATIONS.items()
            }
            if all(calls.refuses("nvmlDeviceGetMemoryErrorCounter", kind, counter, number) for number in _LOCATIONS.values()):
                answers = {"total": calls.ask("nvmlDeviceGetTotalEccErrors", kind, counter)}
            for location, answer in answers.items():
                if (count := calls.check_count("ecc_errors", answer)) is not None:
                    counts.append(EccCount(severity=severity, scope=scope, location=location, count=count))
    return tuple(counts)


def _remapped_rows(calls: Calls) -> dict[str, Any]:
    """Row remapping (Ampere and newer). Some GeForce boards answer zeros with ECC off; so does their nvidia-smi."""
    rows = calls.ask("nvmlDeviceGetRemappedRows")
    histogram = calls.ask("nvmlDeviceGetRowRemapperHistogram")
    fields: dict[str, Any] = {}
    if rows is not None:
        corrected, uncorrected, pending, failed = rows
        counted = {"corrected": corrected, "uncorrected": uncorrected}
        checked = {severity: calls.check_count("remapped_rows", count) for severity, count in counted.items()}
        fields["remapped_rows"] = {severity: count for severity, count in checked.items() if count is not None}
        fields["row_remap_pending"] = bool(pending)
        fields["row_remap_failed"] = bool(failed)
    if histogram is not None:
        banks = {name: calls.check_count("row_remap_banks", getattr(histogram, name), 1 << 24) for name in _BANKS}
        fields["row_remap_banks"] = {name: count for name, count in banks.items() if count is not None}
    return fields


def _retired_pages(calls: Calls) -> dict[str, Any]:
    """Page retirement (Volta, Turing); newer boards refuse and remap rows instead."""
    pages = {}
    for cause, number in _RETIREMENT_CAUSES.items():
        listed = calls.ask("nvmlDeviceGetRetiredPages", number, nothing=(nvml.NOT_FOUND,))
        if listed is not None:
            pages[cause] = len(listed)
    pending = calls.ask("nvmlDeviceGetRetiredPagesPendingStatus")
    return {"retired_pages": pages, "retired_pages_pending": None if pending is None else bool(pending)}
