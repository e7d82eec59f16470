"""Medium tier: PCIe, NVLink and the NVSwitch fabric."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from gpuwatch.device import nvml
from gpuwatch.device.calls import Calls
from gpuwatch.device.readings import Links
from gpuwatch.device.supply import Step

_LINK_COUNT, _REPLAYS = 91, 94
_BYTES = {"tx": 138, "rx": 139}
"""``NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_*``: KiB; scope 0xFFFFFFFF sums all links."""
_ERRORS = {"replay": 161, "recovery": 162, "crc": 163}
"""``NVML_FI_DEV_NVLINK_ERROR_DL_*`` (Hopper and newer), per link."""
_OLD_ERRORS = {"crc": 38, "crc_data": 45, "replay": 52, "recovery": 59}
"""``NVML_FI_DEV_NVLINK_*_ERROR_COUNT_TOTAL``: sums over links, Volta to Ampere."""
_SPEED, _OLD_SPEED = 164, 90
"""MB/s of one link, one direction."""
_KIBIBYTE = 1024
_MEGABYTE = 1e6

_FABRIC_NOT_SUPPORTED, _FABRIC_COMPLETED = 0, 3
_FABRIC_FAULT_BITS = ((0, 1), (2, 1), (4, 1), (6, 1))
"""(shift, value that is a fault) of the two-bit parts of the health mask: bandwidth, route recovery, route health, access timeout."""
_CONFIGURATION_SHIFT, _CONFIGURATION_MASK, _CONFIGURATION_SOUND = 8, 0xF, (0, 1)


def read_links(calls: Calls, pcie_bytes_per_second: dict[str, float], *, errors_every_link: bool) -> Step:
    """The one field ``links`` of :class:`~gpuwatch.device.readings.Medium`.

    ``pcie_bytes_per_second`` is what :class:`gpuwatch.device.pcie.PcieMeter` measured last. Reading the error counters of all 18 links
    of an H200 takes some 45 ms of driver time, so it is done in steps, and only when ``errors_every_link`` asks for it or no sum answers.
    """
    replays = calls.fields(_REPLAYS).get(_REPLAYS)
    if replays is None:
        replays = calls.ask("nvmlDeviceGetPcieReplayCounter")
    yield
    nvlink = yield from _read_nvlink(calls, errors_every_link=errors_every_link)
    generation = calls.check("pcie_generation", calls.ask("nvmlDeviceGetCurrPcieLinkGeneration"), 1, 10)
    width = calls.check("pcie_width", calls.ask("nvmlDeviceGetCurrPcieLinkWidth"), 1, 32)
    links = Links(
        pcie_generation=None if generation is None else int(generation),
        pcie_width=None if width is None else int(width),
        pcie_replays=calls.check_count("pcie_replays", None if replays is None else int(replays)),
        pcie_bytes_per_second=pcie_bytes_per_second,
        fabric_healthy=_fabric_healthy(calls),
        **nvlink,
    )
    return {"links": links}


def _read_nvlink(calls: Calls, *, errors_every_link: bool) -> Generator[None, None, dict[str, Any]]:
    """Fields of :class:`Links` about NVLink; empty on boards without it and with MIG on."""
    up = yield from _link_states(calls)
    if not up:
        return {}
    carried = calls.fields(*((field, nvml.ALL_LINKS) for field in _BYTES.values()))
    yield
    kibibytes = {name: calls.check_count("nvlink_bytes", _whole(carried.get((field, nvml.ALL_LINKS)))) for name, field in _BYTES.items()}
    errors = yield from _link_errors(calls, list(up), every_link=errors_every_link)
    yield
    return {
        "nvlink_up": up,
        "nvlink_bytes": {name: value * _KIBIBYTE for name, value in kibibytes.items() if value is not None},
        "nvlink_errors": errors,
        "nvlink_speed_bytes_per_second": _speed(calls, up),
    }


def _link_states(calls: Calls) -> Generator[None, None, dict[int, bool]]:
    """Link → up. Links beyond the board's own are refused or invalid: they are not links that are down."""
    count = calls.check_count("nvlink_count", _whole(calls.fields(_LINK_COUNT).get(_LINK_COUNT)), nvml.MAX_NVLINKS)
    yield
    states = {}
    for link in range(nvml.MAX_NVLINKS if count is None else count):
        nothing = (nvml.INVALID_ARGUMENT, nvml.NOT_SUPPORTED) if link else (nvml.INVALID_ARGUMENT,)
        state = calls.ask("nvmlDeviceGetNvLinkState", link, nothing=nothing)
        if state is not None:
            states[link] = bool(state)
        elif link == 0:
            break
    return states


def _link_errors(calls: Calls, links: list[int], *, every_link: bool) -> Generator[None, None, dict[str, int]]:
    """Errors by kind, over all links."""
    totals = calls.fields(*_OLD_ERRORS.values())
    if totals:
        counted = {kind: calls.check_count("nvlink_errors", _whole(totals.get(field))) for kind, field in _OLD_ERRORS.items()}
        return {kind: count for kind, count in counted.items() if count is not None}
    sums: dict[str, int] = {}
    if not every_link:
        return sums
    for link in links:
        yield
        values = calls.fields(*((field, link) for field in _ERRORS.values()))
        for kind, field in _ERRORS.items():
            if (count := calls.check_count("nvlink_errors", _whole(values.get((field, link))))) is not None:
                sums[kind] = sums.get(kind, 0) + count
    return sums


def _speed(calls: Calls, up: dict[int, bool]) -> float | None:
    link = next((link for link, is_up in up.items() if is_up), None)
    if link is None:
        return None
    value = calls.fields((_SPEED, link)).get((_SPEED, link)) or calls.fields(_OLD_SPEED).get(_OLD_SPEED)
    checked = calls.check("nvlink_speed", value, 1, 1_000_000)
    return None if checked is None else checked * _MEGABYTE


def _fabric_healthy(calls: Calls) -> bool | None:
    """Registered with the fabric and no fault bit; ``None`` on boards without an NVSwitch fabric."""
    info = calls.ask("fabric_info")
    if info is None or info.state == _FABRIC_NOT_SUPPORTED:
        return None
    faults = any((info.healthMask >> shift) & 0x3 == fault for shift, fault in _FABRIC_FAULT_BITS)
    configuration = (info.healthMask >> _CONFIGURATION_SHIFT) & _CONFIGURATION_MASK
    registered = info.state == _FABRIC_COMPLETED and info.status == 0
    return registered and not faults and configuration in _CONFIGURATION_SOUND


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
