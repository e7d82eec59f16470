"""The verdict as a state set and its reasons."""

from __future__ import annotations

import msgspec

from metrics.builders import h100, judged, lost, snapshot
from metrics.scrape import samples, values


def test_the_state_is_a_state_set() -> None:
    """Each GPU has all four states, one of them 1; a lost GPU too."""
    shown = judged(snapshot(h100(0), lost(h100(1))))
    found = values(shown, "gpuwatch_gpu_health_state", "gpu", "state")
    assert {state for (_, state), value in found.items() if value == 1.0} == {"ok", "failed"}
    assert [value for (gpu, _), value in found.items() if gpu == "0"] == [1.0, 0.0, 0.0, 0.0]
    assert found["1", "failed"] == 1.0
    assert len(found) == 8


def test_reasons_are_those_of_the_state() -> None:
    """What makes the state has a series with its own action; a program's own error has none."""
    shown = judged(snapshot(h100(0), lost(h100(1))))
    assert values(shown, "gpuwatch_gpu_health_reason", "gpu", "reason", "action") == {
        ("1", "gpu_lost", "reboot_node"): 1.0,
        ("1", "row_remap_pending", "reset_gpu"): 1.0,
    }


def test_a_gpu_that_was_not_judged_has_no_state() -> None:
    """No verdict, no series: absent is not ok."""
    shown = snapshot(h100(0), msgspec.structs.replace(h100(1), verdict=None))
    assert not [sample for sample in samples(shown) if sample.name.startswith("gpuwatch_gpu_health_")]
