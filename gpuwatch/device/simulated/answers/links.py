"""Answers about PCIe, NVLink, the NVSwitch fabric and BAR1."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gpuwatch.device import nvml
from gpuwatch.device.nvml import NVMLError
from gpuwatch.device.simulated import condition
from gpuwatch.device.simulated.board import MEBIBYTE
from gpuwatch.device.simulated.fault import PcieWidth
from gpuwatch.device.simulated.view import Answer, View

_PCIE_WINDOW_SECONDS = 0.020
"""``nvmlDeviceGetPcieThroughput`` blocks for its measuring window, 20.9 ms on an H200."""
_TX, _RX = 0, 1
_BAR1_IDLE_BYTES = 1_703_936
_MAX_LINKS = 18
_LINK_COUNTERS = {0: "replay", 1: "recovery", 2: "crc"}
"""``NVML_NVLINK_ERROR_DL_*``: 0 replay, 1 recovery, 2 CRC flit; 3 (CRC data) and 4 (ECC) answer 0."""
_COMPLETED, _SUCCESS = 3, 0
_KNOWN_FABRIC_VERSIONS = frozenset({0x02000024, 0x03000028})


def pcie_width(view: View) -> int:
    """Lanes in use."""
    return min((fault.width for fault in view.gpu.active(PcieWidth, view.t)), default=view.board.pcie.width)


def pcie_throughput(view: View, direction: int) -> int:
    """KB/s over a window for which the call blocks: 0 sent by the GPU, 1 received."""
    if direction not in {_TX, _RX}:
        raise NVMLError(nvml.INVALID_ARGUMENT)
    view.block(_PCIE_WINDOW_SECONDS)
    mebibytes = view.level.pcie_tx if direction == _TX else view.level.pcie_rx
    return round(mebibytes * MEBIBYTE / 1000)


def link_count(view: View) -> int:
    """NVLinks of the board."""
    return 0 if view.board.nvlink is None else view.board.nvlink.links


def link_state(view: View, link: int) -> int:
    """1 active, 0 not."""
    _check_link(view, link)
    return int(condition.link_is_up(view.gpu, link, view.t))


def link_error_counter(view: View, link: int, counter: int) -> int:
    """Errors of one link by ``NVML_NVLINK_ERROR_DL_*``."""
    _check_link(view, link)
    name = _LINK_COUNTERS.get(counter)
    return 0 if name is None else condition.link_errors(view.gpu, name, view.t, link=link)


def bar1(view: View) -> SimpleNamespace:
    """Bytes. A BAR as large as the memory maps what processes hold."""
    total = view.board.memory.bar1_mib * MEBIBYTE
    large = total >= view.board.memory.total_mib * MEBIBYTE
    used = min(total, _BAR1_IDLE_BYTES + (view.gpu.used_bytes(view.t) if large else 0))
    return SimpleNamespace(bar1Total=total, bar1Used=used, bar1Free=total - used)


def fabric_info(view: View) -> SimpleNamespace:
    """State of the NVSwitch fabric: registered, no health bit reported."""
    del view
    return SimpleNamespace(state=_COMPLETED, status=_SUCCESS, healthMask=0, cliqueId=0)


def fill_fabric_info(view: View, info: Any) -> int:
    """``nvmlDeviceGetGpuFabricInfoV`` fills a struct whose version must be set; the real library may crash on an unset one."""
    struct = getattr(info, "_obj", info)
    if struct.version not in _KNOWN_FABRIC_VERSIONS:
        raise NVMLError(nvml.ARGUMENT_VERSION_MISMATCH)
    for name, value in vars(fabric_info(view)).items():
        setattr(struct, name, value)
    return 0


def _check_link(view: View, link: int) -> None:
    if not 0 <= link < _MAX_LINKS or link >= link_count(view):
        raise NVMLError(nvml.INVALID_ARGUMENT)


ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda view: view.level.pcie_generation,
    "nvmlDeviceGetCurrPcieLinkWidth": pcie_width,
    "nvmlDeviceGetPcieReplayCounter": lambda view: condition.pcie_replays(view.gpu, view.t),
    "nvmlDeviceGetPcieThroughput": pcie_throughput,
    "nvmlDeviceGetNvLinkState": link_state,
    "nvmlDeviceGetNvLinkErrorCounter": link_error_counter,
    "nvmlDeviceGetBAR1MemoryInfo": bar1,
    "nvmlDeviceGetGpuFabricInfoV": fill_fabric_info,
    "fabric_info": fabric_info,
}
