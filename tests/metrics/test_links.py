"""PCIe, NVLink and fabric."""

from __future__ import annotations

import msgspec

from gpuwatch.device.readings import Links, Medium
from metrics.builders import h100, snapshot, t4
from metrics.scrape import names, values


def test_each_nvlink_has_its_state() -> None:
    """A link that is down is 0 beside the others."""
    gpu = h100(0)
    assert gpu.medium is not None
    links = Links(nvlink_up={0: True, 1: False}, nvlink_errors={"replay": 3})
    shown = snapshot(msgspec.structs.replace(gpu, medium=msgspec.structs.replace(gpu.medium, links=links)))
    assert values(shown, "gpuwatch_gpu_nvlink_up", "link") == {("0",): 1.0, ("1",): 0.0}
    assert values(shown, "gpuwatch_gpu_nvlink_errors_total", "kind") == {("replay",): 3.0}


def test_errors_of_each_link_stand_beside_their_sum_on_request() -> None:
    """Under a name of their own, so that the sum over the other is not doubled."""
    links = Links(nvlink_up={0: True, 1: True}, nvlink_errors={"crc": 3}, nvlink_link_errors={0: {"crc": 1}, 1: {"crc": 2}})
    shown = snapshot(msgspec.structs.replace(h100(0), medium=Medium(links=links)))
    assert values(shown, "gpuwatch_gpu_nvlink_link_errors_total", "link", "kind") == {("0", "crc"): 1.0, ("1", "crc"): 2.0}
    assert "gpuwatch_gpu_fabric_healthy" not in names(shown)


def test_pcie_traffic_comes_from_gpm_or_from_the_blocking_call() -> None:
    """The fresher source wins; a board without GPM still has the metric."""
    hopper, turing = h100(0), t4(1)
    assert hopper.medium is not None
    both = msgspec.structs.replace(hopper, medium=msgspec.structs.replace(hopper.medium, links=Links(pcie_bytes_per_second={"rx": 1.0})))
    assert values(snapshot(both, turing), "gpuwatch_gpu_pcie_throughput_bytes_per_second", "gpu", "direction") == {
        ("0", "rx"): 123456789.0,
        ("0", "tx"): 98765.4,
        ("1", "rx"): 1e6,
        ("1", "tx"): 0.0,
    }


def test_a_link_and_its_highest_state_stand_side_by_side() -> None:
    """A narrow or slow link shows by comparing two series of the same labels."""
    for part, now in (("generation", 5.0), ("width", 16.0)):
        assert values(snapshot(h100(0)), f"gpuwatch_gpu_pcie_link_{part}", "gpu") == {("0",): now}
        assert values(snapshot(h100(0)), f"gpuwatch_gpu_pcie_link_{part}_max", "gpu") == {("0",): now}


def test_a_board_without_nvlink_has_no_nvlink_series() -> None:
    """Absent, not zero."""
    assert not {name for name in names(snapshot(t4(0))) if "nvlink" in name or "fabric" in name}
