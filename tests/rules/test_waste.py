"""Alerts about GPUs that are held and not used, or used badly, in the real promtool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rules.jobs import Work, Worker, merged, of_job, of_worker, team
from rules.promtool import alert, both, fire, say

IDLE, LOW = Work(utilization=0.0), Work(utilization=0.3)
PATTERNS = {
    # Measured on two H200; what an alert should say of each.
    "held": Work(utilization=0.001, sm=0, tensor=0, watts=112, clock=1816),
    "starved": Work(utilization=0.31, sm=0.25, tensor=0.25, watts=361, clock=1877, software_power_cap=True),
    "tiny": Work(utilization=0.19, sm=0.002, tensor=0, watts=115, clock=1980),
    "memory-bound": Work(utilization=0.99, sm=0.98, tensor=0, watts=607, clock=1980),
    "fp32": Work(utilization=1, sm=0.96, tensor=0, watts=570, clock=1980),
    "bf16": Work(utilization=0.99, sm=0.95, tensor=0.93, watts=690, clock=1506, software_power_cap=True),
}
EVEN = (
    Work(utilization=1, sm=0.92, tensor=0.88, watts=706, clock=1470, software_power_cap=True),
    Work(utilization=1, sm=0.94, tensor=0.9, watts=689, clock=1470, software_power_cap=True),
)
WAITING = Work(utilization=1, sm=0.39, tensor=0.25, watts=410, clock=1959)
LATE = Work(utilization=0.32, sm=0.26, tensor=0.25, watts=414, clock=1952, software_power_cap=True)
PACED = Work(utilization=1, sm=0.5, tensor=0.45, watts=450, clock=1900)
SLOW = Work(utilization=1, sm=0.9, tensor=0.45, watts=400, clock=1300)


def told(name: str, *workers: Worker) -> list[dict[str, str]]:
    """The alert for the job of each."""
    return [alert(name, "info") | of_job(worker) for worker in workers]


def uneven(*jobs: str) -> list[dict[str, str]]:
    """The alert about the workers of each job."""
    return [one | {"replica_type": "worker"} for one in told("GpuJobImbalance", *(Worker(job=job) for job in jobs))]


def straggler(worker: Worker, kind: str) -> dict[str, str]:
    """The alert about one worker."""
    return alert("GpuJobStraggler", "info", f'kind="{kind}"') | of_worker(worker)


def test_an_idle_job(tmp_path: Path) -> None:
    """Half an hour and five minutes after it came; once though two agents tell of it; not when it is nearly idle, and not twice."""
    idle, twice, late, nearly, half = (
        Worker(job="idle", work=IDLE),
        Worker(job="twice", work=IDLE),
        Worker(job="late", work=IDLE, since=40),
        Worker(job="nearly", work=Work(utilization=0.021)),
        Worker(job="half", work=Work(utilization=0.5)),
    )
    series = merged(idle, late, nearly, half) | both(twice.series())
    first = told("GpuJobIdle", idle, twice)
    more = first + told("GpuJobUnderutilized", nearly)
    fire(tmp_path, series, {"34m": [], "35m": first, "69m": first, "70m": more, "74m": more, "75m": more + told("GpuJobIdle", late)})


def test_an_underutilised_job(tmp_path: Path) -> None:
    """After an hour and ten minutes, over all its GPUs; two agents do not double its use; an idle hour half is told by one alert."""
    low, enough = Worker(job="low", work=Work(utilization=0.39)), Worker(job="enough", work=Work(utilization=0.41))
    services = merged(*(Worker(job="uneven", index=number, kind="Deployment", work=Work(utilization=number * 0.25)) for number in range(4)))
    twice = both(team(LOW, Work(utilization=0.45), job="twice"))
    series = low.series() | enough.series() | services | twice
    found = told("GpuJobUnderutilized", low, Worker(job="uneven", kind="Deployment"), Worker(job="twice"))
    fire(tmp_path, series, {"69m": [], "70m": found, "150m": found})


def test_a_job_that_stopped_to_work_is_idle_only(tmp_path: Path) -> None:
    """Busy for an hour, then idle: told as idle after half an hour, not as underutilised too."""
    done = Worker(job="done")
    name = f"gpuwatch_job_gpu_busy_seconds_total{{{done.labels}}}"
    fire(tmp_path, done.series() | {name: "0+60x60 3600x119"}, {at: told("GpuJobIdle", done) for at in ("97m", "110m", "150m")})


def test_what_is_not_known_is_not_idle(tmp_path: Path) -> None:
    """A MIG instance without GPM and a shared GPU without its processes tell no use; beside them, what is known counts."""
    unknown = Work(utilization=None)
    cut = [Worker(job="cut", index=number, mig=f"MIG-{number}", work=unknown) for number in range(2)]
    shared = [Worker(job=job, node="n-shared", work=unknown) for job in ("a", "b")]
    mixed = [Worker(job="mixed", work=IDLE), Worker(job="mixed", index=1, mig="MIG-1", work=unknown)]
    busy = [Worker(job="busy"), Worker(job="busy", index=1, mig="MIG-1", work=unknown)]
    fire(tmp_path, merged(*cut, *shared, *mixed, *busy), {at: told("GpuJobIdle", mixed[0]) for at in ("35m", "150m")})


def test_an_agent_that_starts_anew_changes_no_ratio(tmp_path: Path) -> None:
    """Counters that begin again under another instance, busy before and idle after, are one job."""
    held, idle = Worker(job="held", work=Work(utilization=0.5)), Worker(job="idle", work=IDLE)
    old, new = {}, {}
    for worker in (held, idle):
        pair = both(worker.series())
        for name, values in pair.items():
            if 'instance="old"' in name:
                old[name] = values.replace("x180", "x80 stale")
            else:
                new[name] = f"_x81 {values}"
    expected = told("GpuJobIdle", idle)
    fire(tmp_path, old | new, {f"{minute}m": expected for minute in (80, 83, 90, 100, 111, 140)})


def test_who_is_excused(tmp_path: Path) -> None:
    """A job that may idle, or has a GPU that was broken or held down for more than a moment; the software power cap excuses nobody."""
    jobs = {
        name: [Worker(job=name, index=number, work=IDLE) for number in range(2)] for name in ("may", "slow", "lost", "capped", "moment")
    }
    series = merged(*(worker for workers in jobs.values() for worker in workers))
    series |= {
        f"gpuwatch_job_gpu_idle_ok{{{jobs['may'][1].labels}}}": "1x180",
        f'gpuwatch_gpu_throttled_seconds_total{{{jobs["slow"][0].gpu}, reason="hardware_slowdown"}}': "0+6x180",
        f'gpuwatch_gpu_throttled_seconds_total{{{jobs["capped"][0].gpu}, reason="software_power_cap"}}': "0+60x180",
        f'gpuwatch_gpu_throttled_seconds_total{{{jobs["moment"][0].gpu}, reason="hardware_slowdown"}}': "0+2x180",
        f'gpuwatch_gpu_health_state{{{jobs["lost"][0].gpu}, state="unknown"}}': "1x180",
        f'gpuwatch_gpu_health_state{{{jobs["capped"][0].gpu}, state="failed"}}': "0x180",
    }
    fire(tmp_path, series, {at: told("GpuJobIdle", jobs["capped"][0], jobs["moment"][0]) for at in ("35m", "100m", "170m")})


def test_broken_gpus_excuse_every_alert_by_use(tmp_path: Path) -> None:
    """Neither underutilised nor inefficient nor unequal is a job on a GPU that is held down; nor one that may idle."""
    tiny = Work(utilization=0.95, sm=0.05)
    series: dict[str, str] = {}
    for name, extra in (("slow", 'gpuwatch_gpu_throttled_seconds_total{%s, reason="hardware_slowdown"}'), ("may", "")):
        for job, works in {"low": (LOW, LOW), "tiny": (tiny, tiny), "team": (Work(), Work(utilization=0.2))}.items():
            series |= team(*works, job=f"{name}-{job}")
            first = Worker(job=f"{name}-{job}")
            series |= {extra % first.gpu: "0+30x180"} if extra else {f"gpuwatch_job_gpu_idle_ok{{{first.labels}}}": "1x180"}
    fire(tmp_path, series, {"31m": [], "76m": [], "150m": []})


def test_a_busy_job_that_does_little(tmp_path: Path) -> None:
    """By the multiprocessors where they are told, else by the power; after an hour and a quarter."""
    by_sm, by_power = Work(utilization=0.95, sm=0.1, watts=600), Work(utilization=0.95, watts=20, limit=70)
    found = [Worker(job="sm", work=by_sm), Worker(job="power", work=by_power, model="T4")]
    twice = Worker(job="twice", work=by_power, model="T4")
    silent = [
        Worker(job="more", work=replace(by_sm, sm=0.16, watts=100)),
        Worker(job="strong", work=replace(by_power, watts=25)),
        Worker(job="half", work=replace(by_sm, utilization=0.79)),
        Worker(job="dark", work=Work(utilization=0.95)),
    ]
    expected = told("GpuJobBusyButInefficient", *found, twice)
    fire(tmp_path, merged(*found, *silent) | both(twice.series()), {"74m": [], "75m": expected, "150m": expected})


def test_unequal_workers(tmp_path: Path) -> None:
    """Within one replica type of one training; not a single GPU, a parameter server, a service, or a holder of unknown use."""
    full, half = Work(utilization=0.95), Work(utilization=0.4)
    series = team(full, half, job="uneven") | both(team(full, full, half, job="twice")) | team(full, Work(utilization=0.46), job="even")
    series |= merged(Worker(job="single", work=half), Worker(job="ps"), Worker(job="ps", replica="ps", work=IDLE))
    series |= team(full, IDLE, job="web", kind="InferenceService") | team(full, Work(utilization=None), job="shared")
    expected = uneven("uneven", "twice")
    fire(tmp_path, series, {"29m": [], "30m": expected, "150m": expected})


def test_measured_patterns(tmp_path: Path) -> None:
    """Each way to waste that was measured is told once and by its name; good work is not told of."""
    jobs = {name: Worker(job=name, work=work) for name, work in PATTERNS.items()}
    series = merged(*jobs.values()) | team(*EVEN, job="all-reduce")
    idle, low = told("GpuJobIdle", jobs["held"]), told("GpuJobUnderutilized", jobs["starved"], jobs["tiny"])
    fire(tmp_path, series, {"35m": idle, "70m": idle + low, "170m": idle + low})


def test_stragglers(tmp_path: Path) -> None:
    """The worker that is late for its input and the one with low clocks are named, each with its kind; two agents do not double them."""
    series = team(WAITING, LATE, job="input") | team(PACED, PACED, SLOW, job="clock") | both(team(WAITING, LATE, job="twice"))
    late = [straggler(Worker(job=job, index=1, work=LATE), "input") for job in ("input", "twice")]
    found = [*late, straggler(Worker(job="clock", index=2, work=SLOW), "clock")]
    everything = [*found, *uneven("input", "twice")]
    fire(tmp_path, series, {"14m": [], "15m": found, "29m": found, "30m": everything, "170m": everything})


def test_who_is_no_straggler(tmp_path: Path) -> None:
    """Equal workers, a worker that computes less, GPUs of another model, one that is not busy, other replica types, a single GPU."""
    series = team(*EVEN, job="even") | team(WAITING, replace(LATE, utilization=0.71), job="nearly")
    series |= team(WAITING, replace(LATE, utilization=0.6, tensor=0.1), job="less") | team(
        PACED, replace(SLOW, utilization=0.7), job="rest"
    )
    series |= team(PACED, replace(SLOW, clock=1630), job="paced") | team(PACED, SLOW, job="web", kind="Deployment")
    series |= merged(Worker(job="models", work=PACED), Worker(job="models", index=1, work=SLOW, model="A100"))
    series |= merged(Worker(job="roles", work=PACED), Worker(job="roles", replica="evaluator", work=SLOW), Worker(job="one", work=SLOW))
    fire(tmp_path, series, {"16m": [], "60m": [], "170m": []})


def test_a_slow_clock_is_told_also_when_heat_is_its_reason(tmp_path: Path) -> None:
    """Heat excuses a job from waste, and is just what makes a straggler."""
    slow = Worker(job="clock", index=1, work=SLOW)
    heat = {f'gpuwatch_gpu_throttled_seconds_total{{{slow.gpu}, reason="hardware_slowdown"}}': "0+50x180"}
    fire(tmp_path, team(PACED, SLOW, job="clock") | heat, {"15m": [straggler(slow, "clock")], "100m": [straggler(slow, "clock")]})


def test_says_which_job_where_and_what_to_do(tmp_path: Path) -> None:
    """The owner reads job, GPUs, node and a first thing to do; the straggler's pod and kind."""
    tiny = Work(utilization=0.95, sm=0.05)
    cases = {
        "GpuJobIdle": team(IDLE, IDLE, job="j"),
        "GpuJobUnderutilized": team(LOW, LOW, job="j"),
        "GpuJobBusyButInefficient": team(tiny, tiny, job="j"),
        "GpuJobImbalance": team(Work(), LOW, job="j"),
    }
    for name, series in cases.items():
        (one,) = say(tmp_path, series, "100m", name)
        for word in ("TFJob vision/j", "It holds 2 x H200 on n-j.", "First: "):
            assert word in one["description"], one
        assert "%" in one["description"]
    for job, works, cause in (("i", (WAITING, LATE), "late for its input"), ("c", (PACED, SLOW), "clock is below")):
        (one,) = say(tmp_path, team(*works, job=job), "100m", "GpuJobStraggler")
        for word in (f"TFJob vision/{job} waits for pod {job}-worker-1 (GPU 1 (H200) on n-{job})", cause, "First: "):
            assert word in one["description"], one


def test_thresholds_may_be_set(tmp_path: Path) -> None:
    """Other values and windows count."""
    changed = {"idle_ratio": "0.4", "idle_window": "10m", "imbalance_ratio": "0.2", "straggler_clock_ratio": "0.5"}
    series = Worker(job="low", work=LOW).series() | team(Work(), Work(utilization=0.7), job="uneven") | team(PACED, SLOW, job="clock")
    low = told("GpuJobIdle", Worker(job="low"))
    fire(tmp_path, series, {"14m": [], "15m": low, "30m": low + uneven("uneven")}, thresholds=changed)
