"""Recording rules in the real promtool: their values, and their names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuwatch.rules.pack import RECORDINGS
from gpuwatch.rules.recording import FREE, JOB_INFO, NVLINKS_UP, PCIE_WIDTH, RATIO_LONG, RATIO_SHORT
from rules.jobs import Work, Worker, merged, team
from rules.promtool import GPU, both, moved, record

OF_JOB = 'namespace="vision", job_kind="TFJob", job_name="j"'
OF_MODEL = 'model="H100"'
COUNTED = "namespace_job_name:gpuwatch_job_gpu_{}:rate5m"
HARDWARE = {
    f'gpuwatch_gpu_info{{{GPU}, driver="580"}}': "1x60",
    f"gpuwatch_gpu_busy_seconds_total{{{GPU}}}": "0+30x60",
    f"gpuwatch_gpu_power_watts{{{GPU}}}": "400x60",
    f'gpuwatch_gpu_health_state{{{GPU}, state="ok"}}': "1x60",
    f'gpuwatch_gpu_health_state{{{GPU}, state="failed"}}': "0x60",
    f'gpuwatch_gpu_nvlink_up{{{GPU}, link="0"}}': "1x60",
    f'gpuwatch_gpu_nvlink_up{{{GPU}, link="1"}}': "0x60",
    f'gpuwatch_gpu_nvlink_up{{{GPU}, link="2"}}': "1x60",
    f"gpuwatch_gpu_pcie_link_width{{{GPU}}}": "16x60",
    f'gpuwatch_gpu_unattributed{{{GPU}, reason="not_allocated"}}': "1x60",
}


@pytest.mark.parametrize("agents", [1, 2])
def test_hardware(tmp_path: Path, agents: int) -> None:
    """Counts and sums by model, each GPU once though two agents tell of it."""
    told = HARDWARE | moved(HARDWARE, "n2")
    by_uuid = 'node="n1", uuid="GPU-0"'
    series = told if agents == 1 else both(told)
    record(
        tmp_path,
        series,
        "30m",
        {
            f"cluster_model:gpuwatch_gpu:count{{{OF_MODEL}}}": 2,
            f"{FREE}{{{OF_MODEL}}}": 2,
            f"cluster_model:gpuwatch_gpu_busy_seconds:rate5m{{{OF_MODEL}}}": 1,
            f"cluster_model:gpuwatch_gpu_power_watts:sum{{{OF_MODEL}}}": 800,
        },
    )
    one = {name: values for name, values in series.items() if 'node="n1"' in name}
    record(
        tmp_path,
        one,
        "30m",
        {
            f"{NVLINKS_UP}{{{by_uuid}}}": 2,
            f"{PCIE_WIDTH}{{{by_uuid}}}": 16,
            f"node_uuid:gpuwatch_gpu_busy_seconds:rate5m{{{by_uuid}, {OF_MODEL}}}": 0.5,
        },
    )


@pytest.mark.parametrize("agents", [1, 2])
def test_jobs(tmp_path: Path, agents: int) -> None:
    """GPUs held, work and ratio of a job, the same though two agents tell of it; containers that share a GPU hold it each."""
    told = team(Work(utilization=0.5), Work(utilization=0.25), job="j")
    series = told if agents == 1 else both(told)
    wanted = {COUNTED.format("allocated_seconds"): 2, COUNTED.format("busy_seconds"): 0.75, RATIO_SHORT: 0.375, RATIO_LONG: 0.375}
    record(tmp_path, series, "120m", {f"{name}{{{OF_JOB}}}": value for name, value in wanted.items()})


def test_a_ratio_is_of_what_is_known(tmp_path: Path) -> None:
    """A GPU whose use is not told counts as held and not as idle; a job of which nothing is told has no ratio; an ended one neither."""
    series = merged(Worker(job="j", work=Work(utilization=0.5)), Worker(job="j", index=1, work=Work(utilization=None)))
    record(tmp_path, series, "120m", {f"{RATIO_LONG}{{{OF_JOB}}}": 0.5, f"{COUNTED.format('allocated_seconds')}{{{OF_JOB}}}": 2})
    nothing = merged(Worker(job="j", work=Work(utilization=None)))
    record(tmp_path, nothing, "120m", {RATIO_SHORT: 0, RATIO_LONG: 0})
    ended = {name: values.replace("x180", "x60 stale") for name, values in merged(Worker(job="j")).items()}
    record(tmp_path, ended, "140m", {RATIO_SHORT: 0, RATIO_LONG: 0, JOB_INFO: 0})


def test_a_job_that_grew(tmp_path: Path) -> None:
    """GPUs that came a moment ago weigh by the time they were held."""
    series = merged(Worker(job="j"), *(Worker(job="j", index=index, since=90, work=Work(utilization=0)) for index in range(1, 3)))
    record(tmp_path, series, "120m", {f"{RATIO_LONG}{{{OF_JOB}}}": 0.5})


def test_names_tell_level_metric_and_operation() -> None:
    """As Prometheus advises; each level is made of labels, each says what it is, and no name stands twice."""
    form = re.compile(r"[a-z_]+:gpuwatch_(job|(job_)?gpu|tensorflow)(_[a-z0-9_]+)?:[a-z0-9_]+")
    names = [one.name for one in RECORDINGS]
    assert all(form.fullmatch(name) for name in names)
    assert len(set(names)) == len(names)
    assert all(one.says.endswith(".") for one in RECORDINGS)
    assert [one.name for one in RECORDINGS if one.forward and one.name.startswith("node")] == []
