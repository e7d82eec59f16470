"""One GPU's thread: lost GPUs, tiers, what is forgotten when; two GPUs side by side."""

from __future__ import annotations

import threading

import pytest

from gpuwatch.device import nvml
from gpuwatch.device.gpu_thread import GpuThread
from gpuwatch.device.readings import GpuReading
from gpuwatch.device.simulated.driver import ANSWERS
from gpuwatch.device.wire import ReaderOptions
from pipeline import Pipeline, check_text, families, of_gpu

FOUR = "gpus: [{board: h100-sxm, count: 4, loads: [{kind: training}]}]\n"
MIXED = "gpus: [{board: rtx4090}, {board: a100-80gb-sxm}]\n"
H200 = "gpus: [{board: h200-sxm, loads: [{kind: matmul}]}, {board: h200-sxm}]\n"
DOWN = {"gpuwatch_gpu_info", "gpuwatch_gpu_up", "gpuwatch_gpu_fault"}
COUNTERS = {"gpuwatch_gpu_busy_seconds_total", "gpuwatch_gpu_energy_joules_total", "gpuwatch_gpu_throttled_seconds_total"}


def others(pipeline: Pipeline) -> list[str]:
    """The series of GPUs 0, 1 and 3."""
    lines = pipeline.lines()
    return [line for index in (0, 1, 3) for line in of_gpu(lines, index)]


@pytest.mark.parametrize("code", [nvml.GPU_IS_LOST, nvml.UNKNOWN, nvml.RESET_REQUIRED])
@pytest.mark.parametrize("when", ["start", "later"])
def test_one_of_four_is_lost(code: int, when: str) -> None:
    """D1, D2: one GPU that fails every call is down with its reason; the series of the others are the same to the byte."""
    sound, pipeline = Pipeline(FOUR), Pipeline(FOUR)
    if when == "later":
        sound.read(3)
        pipeline.read(3)
    for call in names_of_calls():
        pipeline.driver.fail(call, code, gpu=2)
    sound.read(3)
    snapshot = pipeline.read(3)
    check_text(pipeline.text())
    assert others(pipeline) == others(sound)
    lost = snapshot.gpus[2]
    assert (lost.up, lost.fault, lost.fast, lost.medium) == (False, nvml.ERROR_NAMES[code].lower(), None, None)
    shown = families(of_gpu(pipeline.lines(), 2))
    assert shown - COUNTERS == DOWN
    if when == "later":
        assert lost.identity == sound.agent.snapshot(sound.node.t, 0.0).gpus[2].identity
        assert shown >= COUNTERS


@pytest.mark.parametrize("code", [nvml.GPU_IS_LOST, nvml.UNKNOWN])
def test_a_lost_gpu_comes_back(code: int) -> None:
    """D1: a GPU that answers again is whole in the next pass, under the labels it had, and its counters go on."""
    sound, pipeline = Pipeline(FOUR), Pipeline(FOUR)
    sound.read(9)
    pipeline.read(3)
    before = pipeline.agent.snapshot(pipeline.node.t, 0.0).gpus[2]
    for call in names_of_calls():
        pipeline.driver.fail(call, code, gpu=2)
    pipeline.read(3)
    pipeline.driver.mend()
    back = pipeline.read(3).gpus[2]
    assert back.up
    assert back.identity == before.identity
    assert families(of_gpu(pipeline.lines(), 2)) == families(of_gpu(sound.lines(), 2))
    assert back.totals.busy_seconds is not None
    assert before.totals.busy_seconds is not None
    assert back.totals.busy_seconds > before.totals.busy_seconds


def test_slow_calls_do_not_starve_the_medium_tier() -> None:
    """A driver so slow that a fast pass takes longer than its interval still gets its medium tier read, step by step in between."""
    pipeline = Pipeline(H200)
    calls = pipeline.driver.log = SlowLog(pipeline)
    thread, turns = pipeline.threads[0], 0
    while not any(reading.medium for reading in pipeline.readings):
        thread.take_turn()
        turns += 1
        assert turns < 200, f"no medium reading after {len(calls)} calls"


class SlowLog(list[tuple[str, tuple[object, ...]]]):
    """Takes note of each call, which lasts 100 ms."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__()
        self._pipeline = pipeline

    def append(self, call: tuple[str, tuple[object, ...]]) -> None:
        """Let the time of the call pass."""
        super().append(call)
        self._pipeline.node.t += 0.1


def test_two_lost_calls_make_a_lost_gpu() -> None:
    """D1: one call that says the GPU is lost does not take it down; two different ones do."""
    pipeline = Pipeline(H200)
    pipeline.read(3)
    pipeline.driver.fail("nvmlDeviceGetClockInfo", nvml.GPU_IS_LOST, gpu=0)
    assert pipeline.read().gpus[0].up
    pipeline.driver.fail("nvmlDeviceGetTemperature", nvml.GPU_IS_LOST, gpu=0)
    assert pipeline.read().gpus[0].fault == "gpu_is_lost"


def test_a_lost_gpu_is_opened_by_uuid() -> None:
    """D1: an index may mean another board after a reset, so a GPU that was known is asked for by its UUID."""
    pipeline = Pipeline(H200)
    uuid = pipeline.read().gpus[0].identity.uuid
    pipeline.threads[0]._go_down("test")
    pipeline.driver.log = log = []
    pipeline.read()
    assert ("nvmlDeviceGetHandleByUUID", (uuid,)) in log
    assert all(call != "nvmlDeviceGetHandleByIndex" for call, _ in log)


def test_a_library_without_handles_by_uuid() -> None:
    """D8: without that function the index has to do."""
    pipeline = Pipeline(H200)
    pipeline.read()
    pipeline.driver.remove("nvmlDeviceGetHandleByUUID")
    pipeline.threads[0]._go_down("test")
    assert pipeline.read().gpus[0].up


@pytest.mark.parametrize("text", [MIXED, "gpus: [{board: a100-80gb-sxm}, {board: rtx4090}]\n"])
def test_capabilities_are_per_gpu(text: str) -> None:
    """D10: an RTX 4090 beside an A100 shows what it shows alone, and so does the A100, whichever is GPU 0."""
    pipeline = Pipeline(text)
    snapshot = pipeline.read(3)
    driver = pipeline.node.driver.nvmlSystemGetDriverVersion()
    for gpu in snapshot.gpus:
        board = "rtx4090" if "4090" in gpu.identity.model else "a100-80gb-sxm"
        alone = Pipeline(f"driver: {driver}\ngpus: [{{board: {board}}}]\n")
        alone.read(3)
        assert families(of_gpu(pipeline.lines(), gpu.identity.index)) == families(of_gpu(alone.lines(), 0))


def test_the_fast_tier_goes_first() -> None:
    """A medium pass is done in steps, with every fast pass that falls due in between."""
    pipeline = Pipeline("gpus: [{board: h100-sxm}]\n")
    thread = pipeline.threads[0]
    slow = pipeline.driver
    slow.answer("nvmlDeviceGetTotalEnergyConsumption", lambda true: take_time(pipeline, true))
    slow.answer("nvmlDeviceGetMarginTemperature", lambda true: take_time(pipeline, true))
    slow.answer("nvmlDeviceGetEccMode", lambda true: take_time(pipeline, true))
    while not any(reading.medium for reading in pipeline.readings):
        pause = thread.take_turn()
        pipeline.node.t += pause
    kinds = ["fast" if reading.fast else "medium" for reading in pipeline.readings]
    assert kinds == ["fast", "fast", "fast", "fast", "medium"]


def take_time(pipeline: Pipeline, answer: object) -> object:
    """A second and a half pass in the driver."""
    pipeline.node.t += 1.5
    return answer


def test_missed_ticks_are_not_made_up_for() -> None:
    """D3: after a call that blocked a minute there is one pass, not sixty."""
    pipeline = Pipeline("gpus: [{board: t4}]\n", options=ReaderOptions(pcie_throughput=False, medium_seconds=1e6))
    thread = pipeline.threads[0]
    for _ in range(50):
        thread.take_turn()
    pipeline.node.t += 60.0
    passes = len([reading for reading in pipeline.readings if reading.fast])
    for _ in range(50):
        thread.take_turn()
    assert len([reading for reading in pipeline.readings if reading.fast]) == passes + 1


def test_a_turn_says_when_the_next_is_due() -> None:
    """With nothing due the thread is told to sleep until the next tick, and never longer."""
    pipeline = Pipeline("gpus: [{board: t4}]\n")
    thread = pipeline.threads[0]
    waits = [thread.take_turn() for _ in range(100)]
    assert waits[0] == 0.0
    assert waits[-1] == pytest.approx(1.0)


def test_refusals_are_forgotten_every_hour() -> None:
    """What a board refused is asked again with the static tier; until then it is not asked, and no call is an error."""
    pipeline = Pipeline("gpus: [{board: h200-sxm}]\n")
    pipeline.driver.fail("nvmlDeviceGetMarginTemperature", nvml.NOT_SUPPORTED)
    pipeline.read(3)
    pipeline.driver.mend()
    margin = [gpu.medium.temperature_margin_celsius for gpu in pipeline.read().gpus if gpu.medium]
    pipeline.node.t += 3600.0
    later = pipeline.read()
    assert margin == [None]
    assert [gpu.medium.temperature_margin_celsius is None for gpu in later.gpus if gpu.medium] == [False]
    assert later.agent.nvml_errors == {}


def test_refusals_are_forgotten_when_mig_is_switched() -> None:
    """M1: a GPU that leaves MIG mode tells its utilisation again at once, without waiting for the hourly static tier."""
    text = "gpus: [{board: a100-80gb-sxm, mig: [3g.40gb]}]\nfaults: [{kind: mig-reshape, gpu: 0, from: 110, layout: 'off'}]\n"
    pipeline = Pipeline(text)
    under_mig = pipeline.read(3).gpus[0]
    pipeline.node.t = 120.0
    whole = pipeline.read(2).gpus[0]
    assert under_mig.fast is not None
    assert whole.fast is not None
    assert (under_mig.fast.utilization_ratio, whole.fast.utilization_ratio) == (None, 0.0)


def test_samples_are_freed() -> None:
    """However often a GPU is lost, no more samples are held than it needs."""
    pipeline = Pipeline("gpus: [{board: h100-sxm, mig: [3g.40gb, 1g.10gb]}]\n")
    pipeline.driver.log = log = []
    for _ in range(5):
        pipeline.read(3)
        for call in names_of_calls():
            pipeline.driver.fail(call, nvml.GPU_IS_LOST, gpu=0)
        pipeline.read(2)
        pipeline.driver.mend()
    calls = [call for call, _ in log]
    assert calls.count("nvmlGpmSampleAlloc") == calls.count("nvmlGpmSampleFree") == 5 * 6


def test_freeing_ends_whatever_the_driver_says() -> None:
    """A lost GPU whose samples cannot be freed is just lost."""
    pipeline = Pipeline(H200)
    pipeline.read(3)
    pipeline.driver.fail("nvmlGpmSampleFree", nvml.GPU_IS_LOST)
    for call in names_of_calls():
        pipeline.driver.fail(call, nvml.GPU_IS_LOST, gpu=0)
    assert [gpu.fault for gpu in pipeline.read(2).gpus] == ["gpu_is_lost", ""]


def test_a_stopped_thread_ends() -> None:
    """Stop ends the loop without another pass."""
    pipeline = Pipeline("gpus: [{board: t4}]\n")
    readings: list[GpuReading] = []
    thread = GpuThread(pipeline.driver, 0, options=ReaderOptions(), emit=readings.append)
    thread.stop()
    thread.run()
    assert readings == []


def test_a_blocked_pcie_meter_delays_nothing() -> None:
    """The PCIe call that blocks has a thread of its own: with it blocked for good, both tiers go on."""
    pipeline = Pipeline("gpus: [{board: t4}]\n", options=ReaderOptions())
    gate = threading.Event()
    pipeline.driver.block("nvmlDeviceGetPcieThroughput", gate)
    snapshot = pipeline.read(20)
    assert snapshot.gpus[0].up
    assert snapshot.gpus[0].medium is not None
    assert snapshot.gpus[0].medium.links.pcie_bytes_per_second == {}
    pipeline.threads[0].stop()
    gate.set()
    meter = pipeline.threads[0]._pcie
    assert meter is not None
    assert meter._thread is not None
    meter._thread.join(30.0)
    assert not meter._thread.is_alive()


def names_of_calls() -> list[str]:
    """Every call about a device that the simulated driver answers."""
    return [*ANSWERS, "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID"]
