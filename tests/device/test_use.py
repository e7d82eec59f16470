"""The fast tier: memory, processes and sensors, with the values that broken boards really tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.device import nvml
from gpuwatch.device.readings import Fast, Process
from pipeline import Pipeline, check_text

H200 = "gpus: [{board: h200-sxm, loads: [{kind: matmul}]}]\n"
MIB = 1 << 20
ALL_ONES, ALL_ONES_64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
NEVER_PERCENT = (ALL_ONES, 101, -1)
NEVER_WATTS = (0, ALL_ONES, -1)
NEVER_CELSIUS = (255, -1, 0, ALL_ONES, 127000)


def fast_of(pipeline: Pipeline) -> Fast:
    """The fast reading of GPU 0."""
    fast = pipeline.read(2).gpus[0].fast
    assert fast is not None
    return fast


def value_at(fast: Fast, path: str) -> Any:
    """``temperature_celsius.gpu`` → its value, or ``None``."""
    name, _, key = path.partition(".")
    value = getattr(fast, name)
    return value.get(key) if key else value


@pytest.mark.parametrize(
    ("call", "member", "wrong", "path", "rejected"),
    [
        ("nvmlDeviceGetUtilizationRates", "gpu", NEVER_PERCENT, "utilization_ratio", "utilization"),
        ("nvmlDeviceGetUtilizationRates", "memory", NEVER_PERCENT, "memory_activity_ratio", "memory_activity"),
        ("nvmlDeviceGetEncoderUtilization", 0, NEVER_PERCENT, "engine_utilization_ratio.encoder", "encoder_utilization"),
        ("nvmlDeviceGetDecoderUtilization", 0, NEVER_PERCENT, "engine_utilization_ratio.decoder", "decoder_utilization"),
        ("nvmlDeviceGetJpgUtilization", 0, NEVER_PERCENT, "engine_utilization_ratio.jpeg", "jpeg_utilization"),
        ("nvmlDeviceGetOfaUtilization", 0, NEVER_PERCENT, "engine_utilization_ratio.ofa", "ofa_utilization"),
        ("nvmlDeviceGetTemperature", None, NEVER_CELSIUS, "temperature_celsius.gpu", "gpu_temperature"),
        ("field 82", None, NEVER_CELSIUS, "temperature_celsius.memory", "memory_temperature"),
        ("field 186", None, NEVER_WATTS, "power_instant_watts", "power"),
        ("nvmlDeviceGetClockInfo", None, (ALL_ONES, -1, 1_000_000), "clock_hertz.sm", "clock"),
        ("nvmlDeviceGetPerformanceState", None, (16, -1, 255), "performance_state", "performance_state"),
        ("nvmlDeviceGetMemoryInfo", "total", (0, ALL_ONES_64, -1), "memory", "memory_total"),
    ],
)
def test_impossible_values(call: str, member: str | int | None, wrong: tuple[int, ...], path: str, rejected: str) -> None:
    """D13: a value that cannot be is dropped and counted by its field; the rest of the reading is as ever."""
    sound = fast_of(Pipeline(H200))
    for value in wrong:
        pipeline = Pipeline(H200)
        pipeline.driver.answer(call, spoiled(value, member) if member is not None else value)
        fast = fast_of(pipeline)
        assert value_at(fast, path) is None, value
        assert pipeline.agent.snapshot(pipeline.node.t, 0.0).agent.nvml_rejected_values[rejected] > 0
        assert fast.throttle_reasons == sound.throttle_reasons
        assert fast.processes == sound.processes
        check_text(pipeline.text())


def spoiled(value: int, member: str | int) -> Any:
    """The true answer with one member replaced."""

    def answer(true: Any) -> Any:
        if isinstance(member, int):
            return [value if place == member else one for place, one in enumerate(true)]
        return SimpleNamespace(**(vars(true) | {member: value}))

    return answer


@pytest.mark.parametrize("wrong", NEVER_WATTS)
def test_impossible_power(wrong: int) -> None:
    """D13: no GPU draws 0 W; where the call says so the average field is taken, and without that there is no value."""
    pipeline = Pipeline(H200)
    pipeline.driver.answer("nvmlDeviceGetPowerUsage", wrong)
    assert (fast_of(pipeline).power_watts or 0.0) > 82.0
    pipeline.driver.fail("field 185", nvml.UNKNOWN)
    assert fast_of(pipeline).power_watts is None


@pytest.mark.parametrize("member", ["used", "free", "reserved"])
@pytest.mark.parametrize("wrong", [-1, ALL_ONES_64, 1 << 60])
def test_impossible_memory(member: str, wrong: int) -> None:
    """D13: more memory in use than there is is no value."""
    pipeline = Pipeline(H200)
    pipeline.driver.answer("nvmlDeviceGetMemoryInfo", spoiled(wrong, member))
    memory = fast_of(pipeline).memory
    assert memory is not None
    assert getattr(memory, f"{member}_bytes") is None
    assert memory.total_bytes == 143771 * MIB


def test_an_unknown_performance_state_is_no_state() -> None:
    """P32 means "unknown": absent, and nothing to count."""
    pipeline = Pipeline(H200)
    pipeline.driver.answer("nvmlDeviceGetPerformanceState", 32)
    assert fast_of(pipeline).performance_state is None
    assert pipeline.agent.snapshot(pipeline.node.t, 0.0).agent.nvml_rejected_values == {}


def test_memory_as_nvidia_smi_shows_it() -> None:
    """D14: memory v2 tells what the driver reserves apart from what is used."""
    pipeline = Pipeline(H200)
    answer = SimpleNamespace(version=nvml.MEMORY_V2, total=40960 * MIB, reserved=308 * MIB, used=0, free=40652 * MIB)
    pipeline.driver.answer("nvmlDeviceGetMemoryInfo", answer)
    memory = fast_of(pipeline).memory
    assert memory is not None
    assert (memory.total_bytes, memory.used_bytes, memory.reserved_bytes) == (40960 * MIB, 0, 308 * MIB)


@pytest.mark.parametrize("code", [nvml.FUNCTION_NOT_FOUND, nvml.ARGUMENT_VERSION_MISMATCH, nvml.NOT_SUPPORTED])
def test_memory_of_old_drivers(code: int) -> None:
    """D14: where v2 is missing v1 is read, which counts reserved memory as used and tells it not apart."""
    pipeline = Pipeline("gpus: [{board: t4}]\n")
    sound = fast_of(Pipeline("gpus: [{board: t4}]\n")).memory
    real = pipeline.node.driver.nvmlDeviceGetMemoryInfo

    def only_v1(handle: Any, version: int | None = None) -> Any:
        if version is not None:
            raise nvml.NVMLError(code)
        return real(handle)

    pipeline.driver.nvmlDeviceGetMemoryInfo = only_v1
    memory = fast_of(pipeline).memory
    assert memory is not None
    assert sound is not None
    assert memory.total_bytes == sound.total_bytes
    assert memory.reserved_bytes is None
    assert memory.used_bytes == (sound.used_bytes or 0) + (sound.reserved_bytes or 0)
    assert pipeline.agent.snapshot(pipeline.node.t, 0.0).agent.nvml_errors == {}


def test_unified_memory() -> None:
    """D15: a board that has no memory of its own to tell about still tells its utilisation."""
    pipeline = Pipeline(H200)
    pipeline.driver.fail("nvmlDeviceGetMemoryInfo", nvml.NOT_SUPPORTED)
    fast = fast_of(pipeline)
    assert fast.memory is None
    assert fast.utilization_ratio is not None
    assert "gpuwatch_gpu_memory" not in "".join(line for line in pipeline.lines() if "_bytes{" in line)


@pytest.mark.parametrize("missing", [(), ("_v3",), ("_v3", "_v2")])
def test_process_lists_of_every_age(missing: tuple[str, ...]) -> None:
    """The newest process list that the library has is read; the oldest knows no instances."""
    pipeline = Pipeline(H200)
    for suffix in missing:
        for kind in ("Compute", "Graphics", "MPSCompute"):
            pipeline.driver.remove(f"nvmlDeviceGet{kind}RunningProcesses{suffix}")
    processes = fast_of(pipeline).processes
    assert processes is not None
    assert [(process.kind, process.gpu_instance, process.compute_instance) for process in processes] == [("compute", None, None)]
    assert processes[0].used_bytes is not None


def test_no_list_at_all() -> None:
    """A board that tells no process list has unknown processes, not none."""
    pipeline = Pipeline(H200)
    for kind in ("Compute", "Graphics", "MPSCompute"):
        for version in (1, 2, 3):
            pipeline.driver.remove(f"nvmlDeviceGet{kind}RunningProcesses_v{version}")
    assert fast_of(pipeline).processes is None
    assert not [line for line in pipeline.lines() if line.startswith("gpuwatch_gpu_processes")]


@given(used=st.one_of(st.none(), st.integers(0, ALL_ONES_64)), instances=st.tuples(*[st.sampled_from((0, 7, ALL_ONES))] * 2))
def test_processes(used: int | None, instances: tuple[int, int]) -> None:
    """Memory that the driver does not know and instances that do not exist are unknown, whatever number says so."""
    pipeline = Pipeline(H200)
    entry = SimpleNamespace(pid=1, usedGpuMemory=used, gpuInstanceId=instances[0], computeInstanceId=instances[1])
    pipeline.driver.answer("nvmlDeviceGetComputeRunningProcesses_v3", lambda _: [entry])
    pipeline.threads[0].read_fast_tier()
    reading = pipeline.readings[-1].fast
    assert reading is not None
    known = None if used is None or used >= 1 << 63 else used
    ids = [None if one == ALL_ONES else one for one in instances]
    assert reading.processes == (Process(pid=1, kind="compute", used_bytes=known, gpu_instance=ids[0], compute_instance=ids[1]),)


@pytest.mark.parametrize(
    ("bits", "names"), [(0, ()), (1, ("idle",)), (0x4, ("software_power_cap",)), (0x88, ("hardware_slowdown", "hardware_power_brake"))]
)
def test_throttle_reasons(bits: int, names: tuple[str, ...]) -> None:
    """Each bit is a reason; no bit is "none", which is not "not reported"."""
    pipeline = Pipeline(H200)
    pipeline.driver.answer("nvmlDeviceGetCurrentClocksEventReasons", bits)
    assert fast_of(pipeline).throttle_reasons == names


@given(st.integers(0, ALL_ONES_64))
def test_any_throttle_bits(bits: int) -> None:
    """Bits newer than this code are left out and break nothing."""
    pipeline = Pipeline(H200)
    pipeline.driver.answer("nvmlDeviceGetCurrentClocksEventReasons", bits)
    pipeline.threads[0].read_fast_tier()
    assert pipeline.readings[-1].fault == ""
