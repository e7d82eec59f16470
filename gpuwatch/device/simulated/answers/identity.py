"""Answers to what never changes while the driver is loaded: names, numbers, limits."""

from __future__ import annotations

from types import SimpleNamespace

from gpuwatch.device import nvml
from gpuwatch.device.nvml import NVMLError
from gpuwatch.device.simulated.board import ARCHITECTURE_IDS
from gpuwatch.device.simulated.view import Answer, View


def uuid(view: View) -> str:
    """``GPU-…`` or ``MIG-…``."""
    return view.gpu.uuid if view.instance is None else view.instance.uuid


def name(view: View) -> str:
    """Product name; of a MIG device with its profile."""
    return view.board.name if view.instance is None else f"{view.board.name} MIG {view.instance.name}"


def pci_info(view: View) -> SimpleNamespace:
    """PCI address."""
    bus = int(view.gpu.pci_bus_id[9:11], 16)
    legacy = view.gpu.pci_bus_id[4:].encode()
    return SimpleNamespace(busId=view.gpu.pci_bus_id, busIdLegacy=legacy.decode(), domain=0, bus=bus, device=0)


def max_clock(view: View, clock: int) -> int:
    """MHz: 0 graphics, 1 SM, 2 memory, 3 video."""
    clocks = view.board.clocks
    return by_clock(clock, (clocks.graphics_max, clocks.graphics_max, clocks.memory_max, clocks.video_max))


def by_clock(clock: int, values: tuple[int, int, int, int]) -> int:
    """The value of one clock domain.

    Raises:
        NVMLError: the domain does not exist.
    """
    if not 0 <= clock < len(values):
        raise NVMLError(nvml.INVALID_ARGUMENT)
    return values[clock]


def temperature_threshold(view: View, kind: int) -> int:
    """Degrees Celsius: 0 shutdown, 1 slowdown, 2 memory maximum, 3 GPU maximum, 5 target; the rest is refused."""
    heat = view.board.heat
    limits = {0: heat.shutdown, 1: heat.slowdown, 2: heat.memory_max, 3: heat.gpu_max, 5: heat.target}
    if not 0 <= kind <= 8:  # noqa: PLR2004 (NVML_TEMPERATURE_THRESHOLD_COUNT)
        raise NVMLError(nvml.INVALID_ARGUMENT)
    limit = limits.get(kind)
    if limit is None:
        raise NVMLError(nvml.NOT_SUPPORTED)
    return limit


ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetUUID": uuid,
    "nvmlDeviceGetName": name,
    "nvmlDeviceGetIndex": lambda view: view.gpu.index,
    "nvmlDeviceGetSerial": lambda view: view.gpu.serial,
    "nvmlDeviceGetMinorNumber": lambda view: view.gpu.index,
    "nvmlDeviceGetPciInfo": pci_info,
    "nvmlDeviceGetPciInfo_v3": pci_info,
    "nvmlDeviceGetVbiosVersion": lambda view: view.board.vbios,
    "nvmlDeviceGetBoardPartNumber": lambda view: view.board.part_number,
    "nvmlDeviceGetArchitecture": lambda view: ARCHITECTURE_IDS[view.board.architecture],
    "nvmlDeviceGetCudaComputeCapability": lambda view: tuple(view.board.compute_capability),
    "nvmlDeviceGetMaxClockInfo": max_clock,
    "nvmlDeviceGetTemperatureThreshold": temperature_threshold,
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda view: view.board.pcie.generation,
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": lambda view: view.board.pcie.generation,
    "nvmlDeviceGetMaxPcieLinkWidth": lambda view: view.board.pcie.width,
    "nvmlDeviceGetNumFans": lambda view: view.board.fans,
    "nvmlGpmQueryDeviceSupport": lambda view: SimpleNamespace(version=1, isSupportedDevice=int("gpm" in view.board.support)),
}
