"""What a board or an older driver refuses, as tables: the simulated driver asks here before it answers.

Three reasons to refuse: the board lacks the feature (its ``support`` list), the driver is older than the function or the field,
or MIG is on. Facts: captures of board models on drivers 410 to 610, and a full NVML recording of an H200 on driver 580.
"""

from __future__ import annotations

from gpuwatch.device import nvml
from gpuwatch.device.simulated.board import Board, Capability

NEWER_THAN_DRIVER = nvml.INVALID_ARGUMENT
"""Return code of a field id that the driver does not know."""

CAPABILITY_OF_CALL: dict[str, Capability] = {
    "nvmlDeviceGetSerial": "serial",
    "nvmlDeviceGetBoardPartNumber": "board_part_number",
    "nvmlDeviceGetEncoderUtilization": "encoder",
    "nvmlDeviceGetDecoderUtilization": "encoder",
    "nvmlDeviceGetJpgUtilization": "jpeg_ofa",
    "nvmlDeviceGetOfaUtilization": "jpeg_ofa",
    "nvmlDeviceGetMarginTemperature": "temperature_margin",
    "nvmlDeviceGetEccMode": "ecc_mode",
    "nvmlDeviceGetTotalEccErrors": "ecc_counters",
    "nvmlDeviceGetMemoryErrorCounter": "ecc_counters",
    "nvmlDeviceGetRemappedRows": "remapped_rows",
    "nvmlDeviceGetRowRemapperHistogram": "remapped_rows",
    "nvmlDeviceGetRetiredPages": "retired_pages",
    "nvmlDeviceGetRetiredPagesPendingStatus": "retired_pages",
    "nvmlDeviceGetNvLinkState": "nvlink",
    "nvmlDeviceGetNvLinkErrorCounter": "nvlink",
    "nvmlDeviceGetGpuFabricInfoV": "fabric",
    "fabric_info": "fabric",
    "nvmlDeviceGetMigMode": "mig",
    "nvmlGpmSampleGet": "gpm",
    "nvmlGpmMigSampleGet": "gpm",
}

CAPABILITY_OF_FIELD: dict[int, Capability] = {
    82: "memory_temperature",
    **dict.fromkeys((38, 45, 52, 59, 90), "nvlink_totals"),
    **dict.fromkeys((91, 138, 139), "nvlink"),
    **dict.fromkeys((161, 162, 163, 164), "nvlink_link_fields"),
    **dict.fromkeys((142, 143, 144, 145, 301, 302), "remapped_rows"),
    185: "power_average",
    **dict.fromkeys((193, 194, 196), "temperature_margin"),
    195: "temperature_margin",
    230: "recovery_action",
}

DRIVER_OF_CALL: dict[str, int] = {
    "nvmlDeviceGetJpgUtilization": 535,
    "nvmlDeviceGetOfaUtilization": 535,
    "nvmlDeviceGetCurrentClocksEventReasons": 535,
    "nvmlDeviceGetMarginTemperature": 570,
    "nvmlDeviceGetGpuFabricInfoV": 545,
    "fabric_info": 545,
    "nvmlDeviceGetRowRemapperHistogram": 450,
    "nvmlDeviceGetRemappedRows": 450,
    "nvmlDeviceGetMigMode": 450,
    "nvmlGpmQueryDeviceSupport": 520,
    "nvmlGpmSampleAlloc": 520,
    "nvmlGpmSampleGet": 520,
    "nvmlGpmMigSampleGet": 520,
    "gpm_metrics": 520,
    "nvmlDeviceGetComputeRunningProcesses_v3": 510,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": 510,
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": 510,
    "nvmlDeviceGetComputeRunningProcesses_v2": 460,
    "nvmlDeviceGetGraphicsRunningProcesses_v2": 460,
    "nvmlDeviceGetMPSComputeRunningProcesses_v2": 460,
}
"""First driver branch whose library has the function; an older one has no such symbol."""

DRIVER_OF_FIELD: dict[int, int] = {
    **dict.fromkeys((185, 186), 535),
    **dict.fromkeys((193, 194, 195, 196), 535),
    **dict.fromkeys((161, 162, 163, 164), 525),
    **dict.fromkeys((230, 269, 270, 271), 570),
    **dict.fromkeys((301, 302), 580),
}

REFUSED_UNDER_MIG = frozenset(
    {
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetEncoderUtilization",
        "nvmlDeviceGetDecoderUtilization",
        "nvmlDeviceGetJpgUtilization",
        "nvmlDeviceGetOfaUtilization",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetNvLinkErrorCounter",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetRowRemapperHistogram",
        "nvmlGpmSampleGet",
    }
)
FIELDS_REFUSED_UNDER_MIG = frozenset(
    field
    for field, capability in CAPABILITY_OF_FIELD.items()
    if capability in {"nvlink", "nvlink_totals", "nvlink_link_fields", "remapped_rows"}
)

ANSWERED_BY_MIG_INSTANCE = frozenset(
    {
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetName",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetBAR1MemoryInfo",
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId",
        "nvmlDeviceGetAttributes_v2",
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
        "nvmlDeviceGetMemoryErrorCounter",
    }
) | frozenset(
    f"nvmlDeviceGet{kind}RunningProcesses_{version}" for kind in ("Compute", "Graphics", "MPSCompute") for version in ("v1", "v2", "v3")
)


def call_refusal(name: str, *, board: Board, mig_on: bool, of_instance: bool) -> int | None:
    """NVML error code with which this call is refused, or ``None`` when it is answered."""
    if of_instance:
        return None if name in ANSWERED_BY_MIG_INSTANCE else nvml.NOT_SUPPORTED
    capability = CAPABILITY_OF_CALL.get(name)
    if capability is not None and capability not in board.support:
        return nvml.NOT_SUPPORTED
    if mig_on and name in REFUSED_UNDER_MIG:
        return nvml.NOT_SUPPORTED
    return None


def field_refusal(field: int, *, board: Board, driver_branch: int, mig_on: bool) -> int | None:
    """NVML return code of a field that is refused, or ``None``."""
    if driver_branch < DRIVER_OF_FIELD.get(field, 0):
        return NEWER_THAN_DRIVER
    capability = CAPABILITY_OF_FIELD.get(field)
    if capability is not None and capability not in board.support:
        return nvml.NOT_SUPPORTED
    if mig_on and field in FIELDS_REFUSED_UNDER_MIG:
        return nvml.NOT_SUPPORTED
    return None


def symbol_missing(name: str, driver_branch: int) -> bool:
    """True when the library of that driver branch (535, 580, …) has no such function."""
    return driver_branch < DRIVER_OF_CALL.get(name, 0)
