"""Identity, use, memory, heat, power and clocks: which reading makes which series."""

from __future__ import annotations

import msgspec
import pytest

from gpuwatch.device.readings import Fast, Identity, Medium
from gpuwatch.snapshot import Gpu, Modes, Totals
from metrics.builders import GIB, h100, h100_identity, lost, snapshot, t4
from metrics.scrape import names, samples, text, values

COUNTERS_OF_THE_AGENT = {"gpuwatch_gpu_busy_seconds_total", "gpuwatch_gpu_energy_joules_total", "gpuwatch_gpu_throttled_seconds_total"}


def test_a_gpu_that_answers_is_up_and_has_no_fault() -> None:
    """Up is 1 and there is no reason."""
    shown = snapshot(h100(0))
    assert values(shown, "gpuwatch_gpu_up", "gpu") == {("0",): 1.0}
    assert values(shown, "gpuwatch_gpu_fault") == {}


def test_a_lost_gpu_keeps_its_identity_and_its_counters_and_nothing_else() -> None:
    """Down with a reason; readings are absent, not zero; counters neither vanish nor fall; its neighbour is not touched (D1)."""
    before, after = snapshot(h100(0), h100(1)), snapshot(h100(0), lost(h100(1)))
    assert values(after, "gpuwatch_gpu_up", "gpu") == {("0",): 1.0, ("1",): 0.0}
    assert values(after, "gpuwatch_gpu_fault", "gpu", "reason") == {("1", "gpu_is_lost"): 1.0}
    kept = {sample.name for sample in samples(after) if sample.labels.get("gpu") == "1"}
    xids = {"gpuwatch_gpu_xid_errors_total", "gpuwatch_gpu_xid_last_timestamp_seconds"}
    assert kept == COUNTERS_OF_THE_AGENT | xids | {"gpuwatch_gpu_up", "gpuwatch_gpu_fault", "gpuwatch_gpu_info"}
    counters = [[sample for sample in samples(shown) if sample.name in COUNTERS_OF_THE_AGENT] for shown in (before, after)]
    assert counters[0] == counters[1]
    assert [line for line in text(after).split("\n") if 'gpu="0"' in line] == [
        line for line in text(before).split("\n") if 'gpu="0"' in line
    ]


def test_a_fault_always_has_a_reason() -> None:
    """A GPU that is down without a word says ``unknown``."""
    assert values(snapshot(lost(t4(0), fault="")), "gpuwatch_gpu_fault", "reason") == {("unknown",): 1.0}


def test_info_names_the_facts() -> None:
    """Each fact is under its own label."""
    (sample,) = (sample for sample in samples(snapshot(h100(2))) if sample.name == "gpuwatch_gpu_info")
    assert sample.value == 1
    assert sample.labels == {
        "node": "node-1",
        "gpu": "2",
        "uuid": "GPU-00000002-1111-2222-3333-444444444444",
        "model": "NVIDIA H100 80GB HBM3",
        "driver": "580.159.04",
        "cuda": "13.0",
        "vbios": "96.00.74.00.01",
        "pci_bus_id": "00000000:12:00.0",
        "serial": "1654023000002",
        "board_part_number": "692-2G520-0200-000",
        "architecture": "hopper",
        "compute_capability": "9.0",
        "minor_number": "2",
        "ecc": "enabled",
        "mig_mode": "disabled",
        "mig_mode_pending": "disabled",
        "compute_mode": "default",
        "persistence_mode": "enabled",
    }


def test_facts_that_are_not_reported_are_empty() -> None:
    """Not known is neither enabled nor disabled, and minor number 0 is a number."""
    gpu = Gpu(identity=Identity(index=0, minor_number=0), up=True, modes=Modes(ecc_enabled=False))
    labels = "minor_number", "serial", "ecc", "mig_mode", "compute_mode"
    assert values(snapshot(gpu), "gpuwatch_gpu_info", *labels) == {("0", "", "disabled", "", ""): 1.0}


def test_a_board_that_reports_nothing_has_no_values() -> None:
    """Only what is known at all: identity and up (D11, D12)."""
    gpu = Gpu(identity=Identity(index=0), up=True, fast=Fast(), medium=Medium())
    assert {name for name in names(snapshot(gpu)) if "_gpu_" in name} == {"gpuwatch_gpu_up", "gpuwatch_gpu_info"}


def test_zero_is_shown_where_the_device_said_zero() -> None:
    """An idle board has series with the value 0."""
    gpu = Gpu(
        identity=Identity(index=0),
        up=True,
        fast=Fast(utilization_ratio=0.0, performance_state=0, processes=()),
        totals=Totals(busy_seconds=0.0),
    )
    for name in ("utilization_ratio", "performance_state", "processes", "busy_seconds_total"):
        assert values(snapshot(gpu), f"gpuwatch_gpu_{name}") == {(): 0.0}


@pytest.mark.parametrize("tier", ["fast", "medium"])
def test_a_stale_tier_shows_nothing(tier: str) -> None:
    """Without a fresh reading its values are absent, those of the other tier stay."""
    shown = names(snapshot(msgspec.structs.replace(h100(0), **{tier: None})))
    assert ("gpuwatch_gpu_power_watts" in shown) == (tier != "fast")
    assert ("gpuwatch_gpu_power_limit_watts" in shown) == (tier != "medium")
    assert {"gpuwatch_gpu_pcie_throughput_bytes_per_second", "gpuwatch_mig_info"} & shown == (
        {"gpuwatch_gpu_pcie_throughput_bytes_per_second"} if tier == "fast" else set()
    )


def test_throttle_reasons_are_each_there_when_any_can_be_told() -> None:
    """1 for the active ones, 0 for the others, none for idle and for clocks somebody chose; absent where the board cannot tell."""
    gpu = msgspec.structs.replace(h100(0), fast=Fast(throttle_reasons=("idle", "hardware_thermal")))
    active = values(snapshot(gpu), "gpuwatch_gpu_throttle_active", "reason")
    assert {reason for (reason,), value in active.items() if value} == {"hardware_thermal"}
    assert len(active) == 5
    assert not {("idle",), ("application_clocks",), ("display_clocks",)} & set(active)
    assert values(snapshot(msgspec.structs.replace(gpu, fast=Fast())), "gpuwatch_gpu_throttle_active") == {}


def test_idle_is_no_throttling() -> None:
    """Seconds of the reason idle are not exported."""
    gpu = Gpu(identity=h100_identity(0), up=True, totals=Totals(throttled_seconds={"idle": 5.0, "power": 2.5}))
    assert values(snapshot(gpu), "gpuwatch_gpu_throttled_seconds_total", "reason") == {("power",): 2.5}


def test_a_process_is_counted_once() -> None:
    """One that is listed as compute and as graphics is one process."""
    assert values(snapshot(h100(0)), "gpuwatch_gpu_processes") == {(): 1.0}


def test_memory_is_exact_to_the_byte() -> None:
    """Large integers keep every digit."""
    assert values(snapshot(h100(0)), "gpuwatch_gpu_memory_used_bytes") == {(): 61 * GIB + 1}


def test_a_limit_is_told_in_one_language() -> None:
    """In degrees where the board tells them, else as the margin at which it acts; never both."""
    shown = snapshot(h100(0))
    assert set(values(shown, "gpuwatch_gpu_temperature_limit_celsius", "limit")) == {("shutdown",), ("slowdown",), ("gpu_max",)}
    assert values(shown, "gpuwatch_gpu_temperature_limit_offset_celsius", "limit") == {("memory_max",): 0.0}
