"""The static tier: what a GPU is. Read at the start, after a reset, and once an hour."""

from __future__ import annotations

from gpuwatch.device import nvml
from gpuwatch.device.calls import Calls
from gpuwatch.device.readings import Identity

CLOCKS = {"sm": 1, "memory": 2, "video": 3}
"""``nvmlClockType_t``. The graphics clock (0) is the SM clock on every board since Maxwell."""

ARCHITECTURES = {2: "kepler", 3: "maxwell", 4: "pascal", 5: "volta", 6: "turing", 7: "ampere", 8: "ada", 9: "hopper", 10: "blackwell"}
"""``NVML_DEVICE_ARCH_*``."""

_THRESHOLDS = {"shutdown": 0, "slowdown": 1, "memory_max": 2, "gpu_max": 3, "target": 5}
"""``nvmlTemperatureThresholds_t``: absolute limits; ``target`` is the acoustic set point of GeForce boards."""
_OFFSET_FIELDS = {"shutdown": 193, "slowdown": 194, "memory_max": 195, "gpu_max": 196}
"""``NVML_FI_DEV_TEMPERATURE_*_TLIMIT``: limits as offsets from the board's own limit, whose distance is the margin."""

_LINK_COUNT, _LINK_SPEED, _OLD_LINK_SPEED = 91, 164, 90
"""NVLink: number of links; MB/s of one link, one direction (by link, and before Hopper of all alike)."""

MEGAHERTZ = 1e6
_MEGABYTE = 1e6


def read_identity(calls: Calls, index: int) -> Identity:
    """Static facts of the GPU with NVML index ``index``. Costs about 20 ms on an H200, most of it the maximum clocks."""
    capability = calls.ask("nvmlDeviceGetCudaComputeCapability")
    architecture = calls.ask("nvmlDeviceGetArchitecture")
    pci = calls.ask("nvmlDeviceGetPciInfo")
    return Identity(
        index=index,
        uuid=calls.ask("nvmlDeviceGetUUID") or "",
        model=calls.ask("nvmlDeviceGetName") or "",
        serial=_serial(calls.ask("nvmlDeviceGetSerial")),
        minor_number=calls.ask("nvmlDeviceGetMinorNumber"),
        pci_bus_id=None if pci is None else _text(pci.busId).lower(),
        vbios=calls.ask("nvmlDeviceGetVbiosVersion"),
        board_part_number=calls.ask("nvmlDeviceGetBoardPartNumber"),
        architecture=None if architecture is None else ARCHITECTURES.get(architecture, f"arch-{architecture}"),
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        clock_max_hertz=_max_clocks(calls),
        temperature_limit_celsius=_limits(calls),
        temperature_limit_offset_celsius=_limit_offsets(calls),
        pcie_generation_max=calls.check_whole("pcie_generation_max", calls.ask("nvmlDeviceGetMaxPcieLinkGeneration"), 1, 10),
        pcie_width_max=calls.check_whole("pcie_width_max", calls.ask("nvmlDeviceGetMaxPcieLinkWidth"), 1, 32),
        nvlink_count=calls.check_whole("nvlink_count", calls.fields(_LINK_COUNT).get(_LINK_COUNT), 0, nvml.MAX_NVLINKS),
        nvlink_speed_bytes_per_second=_link_speed(calls),
    )


def completed(now: Identity, before: Identity) -> Identity:
    """``now`` with the facts that it lacks and ``before`` had: a board does not lose its name because one call failed."""
    if now.uuid and before.uuid and now.uuid != before.uuid:
        return now  # another board has this index
    facts = {}
    for name in now.__struct_fields__:
        told, known = getattr(now, name), getattr(before, name)
        facts[name] = known | told if isinstance(told, dict) else known if told in {None, ""} else told
    return Identity(**facts)


def _serial(value: str | None) -> str | None:
    """A serial of ``0`` is what boards without one print (RTX 5090)."""
    return value if value and value != "0" else None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _max_clocks(calls: Calls) -> dict[str, float]:
    clocks = {}
    for name in ("sm", "memory"):  # each costs 1.4 ms
        clock = CLOCKS[name]
        if (value := calls.check("clock_max", calls.ask("nvmlDeviceGetMaxClockInfo", clock), 1, 20_000)) is not None:
            clocks[name] = value * MEGAHERTZ
    return clocks


def _link_speed(calls: Calls) -> float | None:
    first = (_LINK_SPEED, 0)
    value = calls.fields(first).get(first) or calls.fields(_OLD_LINK_SPEED).get(_OLD_LINK_SPEED)
    checked = calls.check("nvlink_speed", value, 1, 1_000_000)
    return None if checked is None else checked * _MEGABYTE


def _limits(calls: Calls) -> dict[str, float]:
    limits = {}
    for name, threshold in _THRESHOLDS.items():
        value = calls.check("temperature_limit", calls.ask("nvmlDeviceGetTemperatureThreshold", threshold), 1, 150)
        if value is not None:
            limits[name] = float(value)
    return limits


def _limit_offsets(calls: Calls) -> dict[str, float]:
    values = calls.fields(*_OFFSET_FIELDS.values())
    offsets = {}
    for name, field in _OFFSET_FIELDS.items():
        if (value := calls.check("temperature_limit_offset", values.get(field), -100, 100)) is not None:
            offsets[name] = float(value)
    return offsets
