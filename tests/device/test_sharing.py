"""Utilisation by process: zero only for who did nothing, absent for whom nobody knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.device import nvml
from gpuwatch.device.calls import Calls
from gpuwatch.device.readings import Process
from gpuwatch.device.sharing import ProcessShares
from pipeline import Pipeline

CALL = "nvmlDeviceGetProcessUtilization"
TWO = (Process(pid=7, kind="compute"), Process(pid=8, kind="compute"))


def shares_of(pipeline: Pipeline) -> ProcessShares:
    """Shares of GPU 0."""
    return ProcessShares(Calls(pipeline.driver, pipeline.node.handle()))


def t4() -> Pipeline:
    """A node with one T4."""
    return Pipeline("gpus: [{board: t4}]\n")


def sample(pid: int, percent: int, at: int) -> Any:
    """``nvmlProcessUtilizationSample_t``."""
    return SimpleNamespace(pid=pid, smUtil=percent, timeStamp=at)


def test_means_of_the_new_samples() -> None:
    """Each process gets the mean of its samples since the previous read; one without a sample did nothing."""
    pipeline = t4()
    shares = shares_of(pipeline)
    pipeline.driver.answer(CALL, [sample(7, 40, 10), sample(7, 60, 20), sample(99, 50, 20)])
    assert shares.read(TWO) == {7: 0.5, 8: 0.0}
    pipeline.driver.answer(CALL, [sample(7, 60, 20), sample(8, 30, 30)])
    assert shares.read(TWO) == {7: 0.0, 8: 0.3}


@pytest.mark.parametrize("code", sorted(code for code in nvml.ERROR_NAMES if code))
def test_every_error(code: int) -> None:
    """D9: "no sample" means that all did nothing; any other error means that nobody knows."""
    pipeline = t4()
    pipeline.driver.fail(CALL, code)
    expected = {7: 0.0, 8: 0.0} if code == nvml.NOT_FOUND else {}
    assert shares_of(pipeline).read(TWO) == expected


def test_one_process_is_not_asked_about() -> None:
    """A GPU that one process holds is not shared: the dear call is not made."""
    pipeline = t4()
    pipeline.driver.log = log = []
    assert shares_of(pipeline).read(TWO[:1]) == {}
    assert log == []


@given(st.lists(st.builds(sample, st.sampled_from((7, 8, 9)), st.sampled_from((0, 50, 100, 101, -1, 0xFFFFFFFF)), st.integers(1, 5))))
def test_any_samples(samples: list[Any]) -> None:
    """D13: a share lies in 0 to 1; a process with an impossible sample is left out, and never shown as idle."""
    pipeline = t4()
    pipeline.driver.answer(CALL, samples)
    shares = shares_of(pipeline).read(TWO)
    broken = {one.pid for one in samples if not 0 <= one.smUtil <= 100}
    assert set(shares) == {7, 8} - broken
    assert all(0.0 <= share <= 1.0 for share in shares.values())
