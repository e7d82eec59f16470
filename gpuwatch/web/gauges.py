"""What a GPU does, each value against its own limit and with its last five minutes, as cells of the page."""

from __future__ import annotations

from collections.abc import Callable

from gpuwatch.curves import Curve, Curves, share_of
from gpuwatch.device.readings import Fast, Medium, Memory, MigInstance
from gpuwatch.snapshot import Gpu
from gpuwatch.web.markup import NOT_REPORTED, gibibytes, meter, number, of
from gpuwatch.web.sparkline import sparkline


class Gauges:
    """Draws the values of one snapshot; where the curves know a device its last minutes stand below, else a bar. All HTML."""

    def __init__(self, curves: Curves) -> None:
        self._curves = curves

    def utilization(self, gpu: Gpu) -> str:
        """Share of time in which anything ran."""
        now = gpu.fast.utilization_ratio if gpu.fast else None
        return percent(now) + self._share("Utilisation", now, self._curves.of("utilization_ratio", gpu.identity.uuid))

    def memory(self, gpu: Gpu) -> str:
        """Used framebuffer."""
        return self._memory(gpu.fast.memory if gpu.fast else None, self._curves.of("memory_ratio", gpu.identity.uuid))

    def power(self, gpu: Gpu) -> str:
        """Against the limit in force."""
        now = gpu.fast.power_watts if gpu.fast else None
        limit = gpu.medium.power_limit_watts.get("enforced") if gpu.medium else None
        curve = self._curves.of("power_watts", gpu.identity.uuid)
        return of(watts(now), watts(limit)) + _picture("Power", now, curve, limit=limit, show=watts)

    def temperature(self, gpu: Gpu) -> str:
        """Against what this board calls too hot: the margin where it reports one, else its slowdown limit."""
        fast, medium = gpu.fast or Fast(), gpu.medium or Medium()
        now = fast.temperature_celsius.get("gpu")
        margin, slowdown = medium.temperature_margin_celsius, gpu.identity.temperature_limit_celsius.get("slowdown")
        words, limit = "", None
        if margin is not None:
            words = f"<small>{celsius(abs(margin))} {'below' if margin >= 0 else 'above'} its limit</small>"
            limit = None if now is None else now + margin
        elif gpu.up and slowdown is not None:
            words, limit = f"<small>slows down at {celsius(slowdown)}</small>", slowdown
        curve = self._curves.of("temperature_celsius", gpu.identity.uuid)
        return celsius(now) + words + _picture("Temperature", now, curve, limit=limit, show=celsius)

    def instance_memory(self, gpu: Gpu, instance: MigInstance) -> str:
        """Used memory of a MIG instance."""
        memory = (gpu.fast.mig_memory.get(instance.uuid) if gpu.fast else None) or Memory(total_bytes=instance.memory_total_bytes)
        return self._memory(memory, self._curves.of("memory_ratio", gpu.identity.uuid, instance.uuid))

    def instance_activity(self, gpu: Gpu, instance: MigInstance) -> str:
        """Share of time in which the multiprocessors of a MIG instance had work."""
        activity = gpu.medium.mig_activity.get(instance.uuid) if gpu.medium else None
        now = activity.sm_active_ratio if activity else None
        return percent(now) + self._share("SM activity", now, self._curves.of("sm_active_ratio", gpu.identity.uuid, instance.uuid))

    def _memory(self, memory: Memory | None, curve: Curve) -> str:
        shown = of(gibibytes(memory.used_bytes), gibibytes(memory.total_bytes)) if memory else NOT_REPORTED
        return shown + self._share("Memory", share_of(memory), curve)

    def _share(self, name: str, now: float | None, curve: Curve) -> str:
        return _picture(name, now, curve, limit=1.0, show=percent)


def percent(value: float | None) -> str:
    """A share of one."""
    return number(None if value is None else value * 100, "%")


def watts(value: float | None) -> str:
    """Watts."""
    return number(value, "W")


def celsius(value: float | None) -> str:
    """Degrees Celsius."""
    return number(value, "°C")


def _picture(name: str, now: float | None, curve: Curve, *, limit: float | None, show: Callable[[float | None], str]) -> str:
    if curve:
        return sparkline(name, curve, limit=limit, show=show)
    return meter(now / limit) if now is not None and limit and limit > 0 else ""
