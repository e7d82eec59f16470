"""PCIe, NVLink and the NVSwitch fabric of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuwatch.device.readings import Activity, Identity, Links
    from gpuwatch.metrics.row import Rows


def link_rows(links: Links) -> Rows:
    """State and counters of the links."""
    yield "gpuwatch_gpu_pcie_link_generation", links.pcie_generation
    yield "gpuwatch_gpu_pcie_link_width", links.pcie_width
    yield "gpuwatch_gpu_pcie_replays_total", links.pcie_replays
    yield "gpuwatch_gpu_nvlink_up", links.nvlink_up
    yield "gpuwatch_gpu_nvlink_bytes_total", links.nvlink_bytes
    yield "gpuwatch_gpu_nvlink_errors_total", links.nvlink_errors
    by_link = {(str(link), kind): count for link, counts in links.nvlink_link_errors.items() for kind, count in counts.items()}
    yield "gpuwatch_gpu_nvlink_link_errors_total", by_link
    yield "gpuwatch_gpu_fabric_healthy", links.fabric_healthy


def link_limit_rows(identity: Identity) -> Rows:
    """What board and slot can do together."""
    yield "gpuwatch_gpu_pcie_link_generation_max", identity.pcie_generation_max
    yield "gpuwatch_gpu_pcie_link_width_max", identity.pcie_width_max
    yield "gpuwatch_gpu_nvlink_speed_bytes_per_second", identity.nvlink_speed_bytes_per_second


def traffic_rows(activity: Activity | None, links: Links | None) -> Rows:
    """Traffic now: from GPM where the board has it, since that is the fresher of the two, else from the blocking PCIe call."""
    pcie = activity.pcie_bytes_per_second if activity else {}
    yield "gpuwatch_gpu_pcie_throughput_bytes_per_second", pcie or (links.pcie_bytes_per_second if links else {})
