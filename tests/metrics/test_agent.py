"""What gpuwatch says of itself."""

from __future__ import annotations

import platform

import msgspec

from metrics.builders import down, h100, lost, mixed, snapshot
from metrics.scrape import names, values


def test_before_the_first_read_there_is_a_reason_and_no_device() -> None:
    """Up is 0 with its reason, and no series of a device exists (D5, D21)."""
    assert values(down(), "gpuwatch_up", "node") == {("node-1",): 0.0}
    assert values(down(), "gpuwatch_fault", "reason") == {("driver_not_loaded",): 1.0}
    assert values(down(), "gpuwatch_series") == {(): 0.0}
    assert not {name for name in names(down()) if name.startswith(("gpuwatch_gpu_", "gpuwatch_mig_"))}


def test_a_node_that_is_up_has_no_fault() -> None:
    """Up is 1; a reason that lingers is not shown."""
    shown = msgspec.structs.replace(mixed(), fault="starting")
    assert values(shown, "gpuwatch_up") == {(): 1.0}
    assert values(shown, "gpuwatch_fault") == {}


def test_a_node_that_is_down_without_a_word_says_unknown() -> None:
    """There is always a reason to look for."""
    assert values(msgspec.structs.replace(down(), fault=""), "gpuwatch_fault", "reason") == {("unknown",): 1.0}


def test_a_simulation_says_so() -> None:
    """Nobody may take a demonstration for a fleet."""
    labels = "version", "python", "simulated"
    assert values(snapshot(), "gpuwatch_build_info", *labels) == {("0.1.0", platform.python_version(), "true"): 1.0}
    assert values(down(), "gpuwatch_build_info", *labels) == {("0.1.0", platform.python_version(), "false"): 1.0}


def test_errors_are_counted_by_call_and_code() -> None:
    """A count of a million is exact (D20)."""
    assert values(mixed(), "gpuwatch_nvml_errors_total", "call", "error") == {
        ("nvmlDeviceGetPowerUsage", "UNKNOWN"): 3.0,
        ("nvmlDeviceGetEccMode", "GPU_IS_LOST"): 1e6,
    }
    assert values(mixed(), "gpuwatch_nvml_rejected_values_total", "field") == {("utilization_ratio",): 2.0}
    assert values(mixed(), "gpuwatch_reader_restarts_total", "reason") == {("crash",): 1.0}


def test_reads_are_timed_by_tier() -> None:
    """Durations and times of the newest pass keep their precision."""
    assert values(mixed(), "gpuwatch_read_duration_seconds", "tier")[("fast",)] == 0.00012
    assert values(mixed(), "gpuwatch_last_read_timestamp_seconds", "tier")[("fast",)] == 1764471234.125


def test_a_node_whose_gpus_are_all_lost_still_names_them() -> None:
    """The agent is down, its GPUs are known."""
    shown = msgspec.structs.replace(snapshot(lost(h100(0)), lost(h100(1))), up=False, fault="all_gpus_lost")
    assert values(shown, "gpuwatch_gpu_up", "gpu") == {("0",): 0.0, ("1",): 0.0}
