"""Faults that a GPU has counted or repaired."""

from __future__ import annotations

from gpuwatch.device.readings import EccCount, Health, Identity, Medium
from gpuwatch.snapshot import Gpu, Snapshot
from metrics.builders import snapshot, t4
from metrics.scrape import names, values


def node(health: Health) -> Snapshot:
    """A node with one GPU of this health."""
    return snapshot(Gpu(identity=Identity(index=0), up=True, medium=Medium(health=health)))


def test_ecc_errors_have_severity_scope_and_location() -> None:
    """Each counter of the board is its own series."""
    errors = (
        EccCount(severity="corrected", scope="volatile", location="dram", count=7),
        EccCount(severity="uncorrected", scope="aggregate", location="total", count=0),
    )
    assert values(node(Health(ecc_errors=errors)), "gpuwatch_gpu_ecc_errors_total", "severity", "scope", "location") == {
        ("corrected", "volatile", "dram"): 7.0,
        ("uncorrected", "aggregate", "total"): 0.0,
    }


def test_states_are_one_zero_or_absent() -> None:
    """True is 1, false is 0 and what is not reported has no series."""
    shown = node(Health(row_remap_pending=True, row_remap_failed=False, recovery_action=2))
    assert values(shown, "gpuwatch_gpu_row_remap_pending") == {(): 1.0}
    assert values(shown, "gpuwatch_gpu_row_remap_failed") == {(): 0.0}
    assert values(shown, "gpuwatch_gpu_recovery_action") == {(): 2.0}
    assert "gpuwatch_gpu_retired_pages_pending" not in names(shown)


def test_old_boards_show_retired_pages_and_new_ones_remapped_rows() -> None:
    """What a board does not do is absent, not zero."""
    shown = snapshot(t4(0))
    assert values(shown, "gpuwatch_gpu_retired_pages", "cause") == {("single_bit",): 1.0, ("double_bit",): 0.0}
    assert not {name for name in names(shown) if "remap" in name}
