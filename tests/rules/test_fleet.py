"""Alerts about the fleet, in the real promtool."""

from __future__ import annotations

from pathlib import Path

from rules.promtool import alert, both, fire, say

EVERY = "30m"
MIXED = alert("GpuMixedDrivers", "info")


def node(name: str, driver: str, values: str) -> dict[str, str]:
    """A GPU of a node with its driver."""
    return {f'gpuwatch_gpu_info{{node="{name}", gpu="0", uuid="GPU-{name}", model="H100", driver="{driver}"}}': values}


def test_mixed_drivers(tmp_path: Path) -> None:
    """After a day, once for the cluster, however many agents tell; it says how many versions there are."""
    series = node("n1", "580.95.05", "1x60") | both(node("n2", "575.57.08", "1x60"))
    fire(tmp_path, series, {"1410m": [], "1440m": [MIXED]}, every=EVERY)
    (told,) = say(tmp_path, series, "25h", "GpuMixedDrivers", every=EVERY)
    assert told["description"].startswith("2 driver versions")
    assert "First: " in told["description"]


def test_an_upgrade_is_no_mixture(tmp_path: Path) -> None:
    """One that is over within a day, a driver that could not be read, and two clusters that each have one version."""
    upgraded = node("n1", "575.57.08", "1x20 stale") | node("n1", "580.95.05", "_x21 1x40")
    unread = node("n2", "580.95.05", "1x60") | node("n3", "", "1x60")
    other = {name.replace("{", '{cluster="b", '): values for name, values in node("n9", "570.1", "1x60").items()}
    fire(tmp_path, upgraded | unread | other, {"24h": [], "25h": []}, every=EVERY)
