"""GPM: differences of two samples, of the right kind, within their range."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.device import nvml
from gpuwatch.device.calls import Calls
from gpuwatch.device.gpm import Gpm
from gpuwatch.device.readings import Activity
from pipeline import Pipeline

H200 = "gpus: [{board: h200-sxm, loads: [{kind: training}]}]\n"
MIB = 1 << 20


def gpm_of(pipeline: Pipeline) -> Gpm:
    """GPM of GPU 0."""
    return Gpm(Calls(pipeline.driver, pipeline.node.handle()))


def read_later(pipeline: Pipeline, gpm: Gpm) -> Activity | None:
    """A read, ten seconds after the one before."""
    pipeline.node.t += 10.0
    return gpm.read()


def test_the_first_sample_says_nothing() -> None:
    """A mean needs two samples."""
    pipeline = Pipeline(H200)
    gpm = gpm_of(pipeline)
    assert gpm.read() is None
    activity = read_later(pipeline, gpm)
    assert activity is not None
    assert activity.sm_active_ratio == pytest.approx(0.926)
    assert activity.pipe_active_ratio["tensor_half"] == pytest.approx(0.891)
    assert activity.nvlink_bytes_per_second["rx"] == pytest.approx(7568 * MIB)
    assert set(activity.pcie_bytes_per_second) == {"rx", "tx"}


@pytest.mark.parametrize("code", [nvml.UNKNOWN, nvml.GPU_IS_LOST])
def test_a_failed_sample_starts_anew(code: int) -> None:
    """After a sample that failed the next one has nothing to be compared with: no mean over a gap, no error of its own."""
    pipeline = Pipeline(H200)
    gpm = gpm_of(pipeline)
    gpm.read()
    assert read_later(pipeline, gpm) is not None
    pipeline.driver.fail("nvmlGpmSampleGet", code)
    assert read_later(pipeline, gpm) is None
    pipeline.driver.mend()
    assert [read_later(pipeline, gpm) is None for _ in range(3)] == [True, False, False]


def test_counters_that_run_backwards() -> None:
    """A busy GPU whose multiprocessors do next to nothing in every second interval: none of its counters is believed for an hour."""
    pipeline = Pipeline(H200)
    gpm = gpm_of(pipeline)
    gpm.read()

    def told(sm_percent: float, *utilization: float) -> bool:
        for ratio in utilization:
            gpm.saw(ratio)
        pipeline.driver.answer("gpm_metrics", lambda *_: {2: sm_percent, 5: sm_percent, 10: 40.4, 20: 1.0})
        return read_later(pipeline, gpm) is not None

    busy = (0.98, 0.99)
    backwards, forwards = (4.2e-6, *busy), (35.03, *busy)
    assert [told(*one) for one in (backwards, forwards, backwards)] == [True] * 3, "not yet proven"
    assert not told(*forwards)
    assert gpm.refused, "what GPM told too is asked for otherwise"
    assert not any(told(*forwards) for _ in range(359))
    assert (told(*forwards), gpm.refused) == (True, False)
    assert not all(told(*one) for one in [backwards, forwards] * 2)
    gpm.close()
    gpm.read()
    assert (told(*forwards), gpm.refused) == (True, False), "a reset, or another board, begins anew"


@pytest.mark.parametrize(
    "intervals",
    [
        pytest.param([(0.0, 1.0, 1.0)] * 6, id="copies"),
        pytest.param([(4.2e-6, 1.0, 1.0)] * 6, id="copies and a small kernel now and then"),
        pytest.param([(0.0, 1.0, 1.0), (60.0, 1.0, 1.0)] * 3, id="copies and kernels by turns"),
        pytest.param([(0.76, 1.0, 1.0)] * 6, id="one thread"),
        pytest.param([(0.0103, 0.08, 0.08)] * 6, id="small kernels one after the other"),
        pytest.param([(4.2e-6, 0.0, 1.0), (60.0, 1.0, 1.0)] * 3, id="idle for a part of the time, by turns"),
        pytest.param([(4.2e-6,), (60.0,)] * 3, id="nobody knows how busy"),
    ],
)
def test_strange_work_is_believed(intervals: list[tuple[float, ...]]) -> None:
    """What a GPU does that is utilised without, or nearly without, its multiprocessors: as seen on an H200."""
    pipeline = Pipeline(H200)
    gpm = gpm_of(pipeline)
    gpm.read()
    for sm_percent, *utilization in intervals:
        for ratio in utilization:
            gpm.saw(ratio)
        pipeline.driver.answer("gpm_metrics", {2: sm_percent})
        activity = read_later(pipeline, gpm)
        assert activity is not None
        assert activity.sm_active_ratio == sm_percent / 100


def test_a_board_without_gpm_allocates_once() -> None:
    """A board that refuses samples is not asked for them again."""
    pipeline = Pipeline("gpus: [{board: t4}]\n")
    pipeline.driver.log = log = []
    gpm = gpm_of(pipeline)
    assert [gpm.read() for _ in range(5)] == [None] * 5
    calls = [call for call, _ in log]
    assert (calls.count("nvmlGpmSampleAlloc"), calls.count("nvmlGpmSampleGet")) == (2, 1)


def test_closed_samples_are_never_compared() -> None:
    """After close the next read allocates anew and waits for two samples."""
    pipeline = Pipeline(H200)
    gpm = gpm_of(pipeline)
    for _ in range(2):
        assert gpm.read() is None
        assert read_later(pipeline, gpm) is not None
        gpm.close()


@given(st.dictionaries(st.sampled_from((1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 20, 21, 60, 61)), st.floats(allow_nan=True)))
def test_any_metric_values(values: dict[int, float]) -> None:
    """D13: whatever a metric says, a ratio lies in 0 to 1, a rate is finite and not negative, and the rest is absent."""
    pipeline = Pipeline(H200)
    pipeline.driver.answer("gpm_metrics", values)
    gpm = gpm_of(pipeline)
    gpm.read()
    activity = read_later(pipeline, gpm)
    assert activity is not None
    single = (activity.graphics_ratio, activity.sm_active_ratio, activity.sm_occupancy_ratio, activity.tensor_active_ratio)
    ratios = [ratio for ratio in (*single, activity.dram_active_ratio, *activity.pipe_active_ratio.values()) if ratio is not None]
    assert all(0.0 <= ratio <= 1.0 for ratio in ratios)
    rates = [*activity.pcie_bytes_per_second.values(), *activity.nvlink_bytes_per_second.values()]
    assert all(0.0 <= rate < 1e15 for rate in rates)


def test_the_drivers_rounding_is_forgiven() -> None:
    """100.4 % is 1; 103 % is no value."""
    pipeline = Pipeline(H200)
    pipeline.driver.answer("gpm_metrics", {2: 100.4, 5: 103.0})
    gpm = gpm_of(pipeline)
    gpm.read()
    activity = read_later(pipeline, gpm)
    assert activity is not None
    assert (activity.sm_active_ratio, activity.tensor_active_ratio) == (1.0, None)
