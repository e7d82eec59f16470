"""Medium tier: PCIe, NVLink and the NVSwitch fabric."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from gpuwatch.device import nvml
from gpuwatch.device.calls import Calls
from gpuwatch.device.readings import Links
from gpuwatch.device.supply import Step

_REPLAYS = 94
_BYTES = {"tx": 138, "rx": 139}
"""``NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_*``: KiB; scope 0xFFFFFFFF sums all links."""
_ERRORS = {"replay": 161, "recovery": 162, "crc": 163}
"""``NVML_FI_DEV_NVLINK_ERROR_DL_*`` (Hopper and newer): per link, or summed by the same scope."""
_OLD_ERRORS = {"crc": 38, "crc_data": 45, "replay": 52, "recovery": 59}
"""``NVML_FI_DEV_NVLINK_*_ERROR_COUNT_TOTAL``: sums over links, Volta to Ampere."""
_KIBIBYTE = 1024

_FABRIC_NOT_SUPPORTED, _FABRIC_COMPLETED = 0, 3
_FABRIC_FAULT_BITS = ((0, 1), (2, 1), (4, 1), (6, 1))
"""(shift, value that is a fault) of the two-bit parts of the health mask: bandwidth, route recovery, route health, access timeout."""
_CONFIGURATION_SHIFT, _CONFIGURATION_MASK, _CONFIGURATION_SOUND = 8, 0xF, (0, 1)


def read_links(calls: Calls, pcie_bytes_per_second: dict[str, float], *, nvlink_count: int | None, errors_every_link: bool) -> Step:
    """The one field ``links`` of :class:`~gpuwatch.device.readings.Medium`.

    ``pcie_bytes_per_second`` is what :class:`gpuwatch.device.pcie.PcieMeter` measured last. The error counters are summed over the links
    by the driver (3 ms on an H200); ``errors_every_link`` also asks each link, which takes 45 ms of driver time.
    """
    replays = calls.fields(_REPLAYS).get(_REPLAYS)
    if replays is None:
        replays = calls.ask("nvmlDeviceGetPcieReplayCounter")
    yield
    count = nvml.MAX_NVLINKS if nvlink_count is None else nvlink_count
    nvlink = yield from _read_nvlink(calls, count, errors_every_link=errors_every_link)
    generation = calls.check_whole("pcie_generation", calls.ask("nvmlDeviceGetCurrPcieLinkGeneration"), 1, 10)
    width = calls.check_whole("pcie_width", calls.ask("nvmlDeviceGetCurrPcieLinkWidth"), 1, 32)
    links = Links(
        pcie_generation=generation,
        pcie_width=width,
        pcie_replays=calls.check_count("pcie_replays", replays),
        pcie_bytes_per_second=pcie_bytes_per_second,
        fabric_healthy=_fabric_healthy(calls),
        **nvlink,
    )
    return {"links": links}


def _read_nvlink(calls: Calls, count: int, *, errors_every_link: bool) -> Generator[None, None, dict[str, Any]]:
    """Fields of :class:`Links` about NVLink; empty on boards without it and with MIG on."""
    up = _link_states(calls, count)
    yield
    if not up:
        return {}
    kibibytes = _counts(calls, {name: (field, nvml.ALL_LINKS) for name, field in _BYTES.items()})
    yield
    errors = _counts(calls, {kind: (field, nvml.ALL_LINKS) for kind, field in _ERRORS.items()}) or _counts(calls, _OLD_ERRORS)
    yield
    link_errors = {}
    for link in up if errors_every_link else ():
        link_errors[link] = _counts(calls, {kind: (field, link) for kind, field in _ERRORS.items()})
        yield
    return {
        "nvlink_up": up,
        "nvlink_bytes": {name: value * _KIBIBYTE for name, value in kibibytes.items()},
        "nvlink_errors": errors,
        "nvlink_link_errors": {link: counts for link, counts in link_errors.items() if counts},
    }


def _link_states(calls: Calls, count: int) -> dict[int, bool]:
    """Link → up. Links beyond the board's own are refused or invalid: they are not links that are down."""
    states = {}
    for link in range(count):
        nothing = (nvml.INVALID_ARGUMENT, nvml.NOT_SUPPORTED) if link else (nvml.INVALID_ARGUMENT,)
        state = calls.ask("nvmlDeviceGetNvLinkState", link, nothing=nothing)
        if state is not None:
            states[link] = bool(state)
        elif link == 0 and calls.refuses("nvmlDeviceGetNvLinkState", 0):
            break
    return states


def _counts(calls: Calls, requests: Mapping[str, int | tuple[int, int]]) -> dict[str, int]:
    """Counter fields by name, those that answered."""
    values = calls.fields(*requests.values())
    checked = {name: calls.check_count("nvlink_counter", values.get(request)) for name, request in requests.items()}
    return {name: count for name, count in checked.items() if count is not None}


def _fabric_healthy(calls: Calls) -> bool | None:
    """Registered with the fabric and no fault bit; ``None`` on boards without an NVSwitch fabric."""
    info = calls.ask("fabric_info")
    if info is None or info.state == _FABRIC_NOT_SUPPORTED:
        return None
    faults = any((info.healthMask >> shift) & 0x3 == fault for shift, fault in _FABRIC_FAULT_BITS)
    configuration = (info.healthMask >> _CONFIGURATION_SHIFT) & _CONFIGURATION_MASK
    registered = info.state == _FABRIC_COMPLETED and info.status == 0
    return registered and not faults and configuration in _CONFIGURATION_SOUND
