"""Alerts about the fleet as a whole."""

from __future__ import annotations

from typing import Final

from gpuwatch.rules.alert import Alert

FLEET: Final = (
    Alert(
        name="GpuMixedDrivers", group="gpuwatch-fleet", severity="info", for_="1d", subject="fleet", board="fleet",
        expression='count by (cluster) (count by (cluster, driver) (gpuwatch_gpu_info{driver!=""})) > 1',
        summary="Nodes run different driver versions.",
        description="{{ $value }} driver versions are in use for a day. First: look whether an upgrade stopped half-way.",
    ),
)  # fmt: skip
