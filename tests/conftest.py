"""What holds for every test: examples are not timed, since a slow machine is no defect of the code."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("gpuwatch", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gpuwatch")
