"""The PCIe meter: its own thread, its own errors, and never an old value."""

from __future__ import annotations

import threading
import time

from gpuwatch.device import nvml
from gpuwatch.device.calls import Calls
from gpuwatch.device.pcie import PcieMeter
from gpuwatch.device.wire import ReaderOptions
from pipeline import Pipeline

T4 = "gpus: [{board: t4, loads: [{kind: training}]}]\n"
CALL = "nvmlDeviceGetPcieThroughput"


def meter_of(pipeline: Pipeline, interval_seconds: float = 1.0) -> PcieMeter:
    """A meter of GPU 0 that has not started."""
    return PcieMeter(Calls(pipeline.driver, pipeline.node.handle()), interval_seconds)


def test_both_directions_in_bytes() -> None:
    """The call tells KB/s of each direction; the meter tells bytes per second."""
    pipeline = Pipeline(T4)
    pipeline.driver.answer(CALL, 3)
    assert meter_of(pipeline).measure() == {"tx": 3072.0, "rx": 3072.0}


def test_impossible_rates() -> None:
    """D13: a rate of all ones is dropped and counted."""
    pipeline = Pipeline(T4)
    pipeline.driver.answer(CALL, 0xFFFFFFFF)
    meter = meter_of(pipeline)
    assert meter.measure() == {}
    assert meter.take(time.monotonic())[2] == {"pcie_throughput": 2}


def test_errors_are_handed_over_once() -> None:
    """D9: what fails in the meter's thread is counted with the GPU's errors, and never ends the thread."""
    for code in sorted(code for code in nvml.ERROR_NAMES if code):
        pipeline = Pipeline(T4)
        pipeline.driver.fail(CALL, code)
        meter = meter_of(pipeline)
        assert meter.measure() == {}
        errors = meter.take(time.monotonic())[1]
        remembered = meter._calls.refuses(CALL, 0)
        assert [error.error for error in errors] == [nvml.ERROR_NAMES[code]] or remembered
        assert meter.take(time.monotonic())[1] == ()


def test_old_rates_are_not_told() -> None:
    """Rates older than two intervals are absent, as when the call hangs."""
    pipeline = Pipeline(T4)
    measured = threading.Event()
    meter = meter_of(pipeline, interval_seconds=600.0)
    pipeline.driver.answer(CALL, lambda true: (measured.set(), true)[1])
    meter.start()
    measured.wait()
    while not (rates := meter.take(time.monotonic())[0]):
        time.sleep(0.001)
    meter.stop()
    assert set(rates) == {"tx", "rx"}
    assert meter.take(time.monotonic() + 1201.0)[0] == {}


def test_started_twice_is_started_once() -> None:
    """There is one thread for a meter."""
    pipeline = Pipeline(T4)
    meter = meter_of(pipeline, interval_seconds=600.0)
    meter.start()
    thread = meter._thread
    meter.start()
    assert meter._thread is thread
    meter.stop()
    assert thread is not None
    thread.join()


def test_boards_with_gpm_need_no_meter() -> None:
    """Where GPM tells the PCIe traffic the call that blocks is never made; where it does not, also on drivers before GPM, it is."""
    hopper = Pipeline("gpus: [{board: h100-sxm}]\n", options=ReaderOptions())
    hopper.driver.log = log = []
    hopper.read(3)
    assert CALL not in {call for call, _ in log}
    for driver in ("530.30.02", "450.80.02"):
        once = Pipeline(f"driver: {driver}\n{T4}", options=ReaderOptions(once=True))
        for _ in range(2):
            medium = once.read().gpus[0].medium
            assert medium is not None
            assert set(medium.links.pcie_bytes_per_second) == {"tx", "rx"}
    off = Pipeline(T4, options=ReaderOptions(pcie_throughput=False))
    off.driver.log = log = []
    off.read(3)
    assert CALL not in {call for call, _ in log}
