"""Answers to what moves every second: utilisation, memory, heat, power, clocks, processes."""

from __future__ import annotations

from types import SimpleNamespace

from gpuwatch.device import nvml
from gpuwatch.device.nvml import NVMLError
from gpuwatch.device.simulated.answers.identity import by_clock
from gpuwatch.device.simulated.board import MEBIBYTE
from gpuwatch.device.simulated.load import IDLE
from gpuwatch.device.simulated.mig import NO_INSTANCE
from gpuwatch.device.simulated.noise import noise
from gpuwatch.device.simulated.view import Answer, View

_SAMPLING_MICROSECONDS = 100_000
_CLOCK_NOISE_SHARE = 0.01


def utilization(view: View) -> SimpleNamespace:
    """Percent of the last sample period in which a kernel ran, or the memory controller worked."""
    level, wobble = view.level, noise(view.gpu.key, view.t)
    return SimpleNamespace(
        gpu=_percent(level.utilization + level.jitter * wobble),
        memory=_percent(level.memory_utilization * (1.0 + 0.05 * wobble)),
    )


def engine(view: View) -> list[int]:
    """[percent, sampling period in µs]: no load uses the video engines."""
    del view
    return [0, _SAMPLING_MICROSECONDS]


def memory(view: View, version: int | None = None) -> SimpleNamespace:
    """Bytes. v2 tells ``reserved`` apart, v1 counts it as used; both as nvidia-smi and NVML do."""
    if version not in {None, 0, nvml.MEMORY_V2}:
        raise NVMLError(nvml.ARGUMENT_VERSION_MISMATCH)
    if view.instance is not None:
        total, reserved = view.instance.memory_bytes, 0
        used = view.gpu.used_bytes(view.t, view.instance.gpu_instance)
    else:
        total, reserved = view.board.memory.total_mib * MEBIBYTE, int(view.board.memory.reserved_mib * MEBIBYTE)
        used = min(view.gpu.used_bytes(view.t), total - reserved)
    free = total - reserved - used
    if version:
        return SimpleNamespace(version=version, total=total, reserved=reserved, used=used, free=free)
    return SimpleNamespace(total=total, used=used + reserved, free=free)


def temperature(view: View, sensor: int) -> int:
    """Degrees Celsius of the core (sensor 0)."""
    if sensor != 0:
        raise NVMLError(nvml.INVALID_ARGUMENT)
    return round(view.gpu.timeline.temperature_at(view.t))


def memory_temperature(view: View) -> int:
    """Degrees Celsius of the memory: it follows the core between its own idle and busy values."""
    heat = view.board.heat
    if heat.memory_idle is None or heat.memory_busy is None:
        raise NVMLError(nvml.NOT_SUPPORTED)
    return round(heat.memory_idle + view.gpu.timeline.heat_share_at(view.t) * (heat.memory_busy - heat.memory_idle))


def margin(view: View) -> int:
    """Degrees Celsius to the nearest limit: a little less than limit minus core under load, as memory drives it too."""
    timeline = view.gpu.timeline
    return round(view.board.heat.gpu_max - timeline.temperature_at(view.t) - timeline.heat_share_at(view.t))


def power(view: View) -> int:
    """Milliwatts, as the energy counter integrates them."""
    return round(view.gpu.timeline.power_watts_at(view.t) * 1000)


def instant_power(view: View) -> int:
    """Milliwatts of the moment: far from the mean where work comes in bursts."""
    return round(view.level.instant_watts * (1.0 + 0.02 * noise(view.gpu.key ^ 1, view.t)) * 1000)


def clock(view: View, domain: int) -> int:
    """MHz: 0 graphics, 1 SM, 2 memory, 3 video."""
    level, clocks = view.level, view.board.clocks
    wobble = _CLOCK_NOISE_SHARE * noise(view.gpu.key ^ 2, view.t) if level.capped_share else 0.0
    graphics = min(clocks.graphics_max, round(level.graphics_mhz * (1.0 + wobble)))
    return by_clock(domain, (graphics, graphics, round(level.memory_mhz), round(level.video_mhz)))


def event_reasons(view: View) -> int:
    """Bits of what holds the clocks down."""
    level = view.level
    if level.capped_share in {0.0, 1.0} or level.reasons & IDLE:
        return level.reasons
    return level.reasons if abs(noise(view.gpu.key ^ 3, view.t)) < level.capped_share else 0


def processes(view: View, kind: str, *, with_instances: bool) -> list[SimpleNamespace]:
    """Processes of one kind; ``usedGpuMemory`` is ``None`` when the driver does not know it, as pynvml says it."""
    instances, found = view.instances, []
    for holder in view.gpu.holders_at(view.t):
        device = instances[holder.mig] if instances is not None and holder.mig is not None else None
        if holder.kind != kind or (view.instance is not None and device != view.instance):
            continue
        process = SimpleNamespace(pid=holder.pid, usedGpuMemory=view.gpu.used_by(holder, view.t) if holder.memory_known else None)
        if with_instances:
            process.gpuInstanceId = NO_INSTANCE if device is None else device.gpu_instance
            process.computeInstanceId = NO_INSTANCE if device is None else device.compute_instance
        found.append(process)
    return found


def process_utilization(view: View, since: int) -> list[SimpleNamespace]:
    """Share of the SMs by process, in equal parts; ``NOT_FOUND`` when none kept one busy, refused under MIG, as the real call."""
    if view.instances is not None:
        raise NVMLError(nvml.NOT_SUPPORTED)
    busy, holders = utilization(view).gpu, [holder for holder in view.gpu.holders_at(view.t) if holder.busy]
    now = round(view.t * 1_000_000)
    if not busy or not holders or now <= since:
        raise NVMLError(nvml.NOT_FOUND)
    part = round(busy / len(holders))
    return [SimpleNamespace(pid=holder.pid, timeStamp=now, smUtil=part, memUtil=0, encUtil=0, decUtil=0) for holder in holders]


def _process_list(kind: str, version: str) -> Answer:
    return lambda view: processes(view, kind, with_instances=version != "v1")


def _percent(value: float) -> int:
    return max(0, min(100, round(value)))


ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetUtilizationRates": utilization,
    "nvmlDeviceGetEncoderUtilization": engine,
    "nvmlDeviceGetDecoderUtilization": engine,
    "nvmlDeviceGetJpgUtilization": engine,
    "nvmlDeviceGetOfaUtilization": engine,
    "nvmlDeviceGetMemoryInfo": memory,
    "nvmlDeviceGetTemperature": temperature,
    "nvmlDeviceGetMarginTemperature": margin,
    "nvmlDeviceGetPowerUsage": power,
    "nvmlDeviceGetClockInfo": clock,
    "nvmlDeviceGetCurrentClocksEventReasons": event_reasons,
    "nvmlDeviceGetCurrentClocksThrottleReasons": event_reasons,
    "nvmlDeviceGetProcessUtilization": process_utilization,
    "nvmlDeviceGetPerformanceState": lambda view: view.level.performance_state,
    **{
        f"nvmlDeviceGet{name}RunningProcesses_{version}": _process_list(kind, version)
        for name, kind in (("Compute", "compute"), ("Graphics", "graphics"), ("MPSCompute", "mps"))
        for version in ("v1", "v2", "v3")
    },
}
