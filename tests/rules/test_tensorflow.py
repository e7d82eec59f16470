"""Why a job wastes its GPUs, and what its owner is told, in the real promtool."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from gpuwatch.rules.cause import CAUSE, CAUSE_NAMES, JOB_PHASE, PHASE, UNEQUAL
from rules.jobs import Process, Work, Worker, merged, of_job, team, training
from rules.promtool import alert, both, fire, record, say_each

LOW, IDLE, FULL = Work(utilization=0.3, sm=0.25), Work(utilization=0.001, sm=0, memory=80e9), Work(utilization=0.98, sm=0.9)
STARVED, TINY = Work(utilization=0.31, sm=0.25, tensor=0.25), Work(utilization=0.19, sm=0.002, tensor=0)
WAITING, LATE = Work(utilization=1, sm=0.39, tensor=0.25, clock=1959), Work(utilization=0.32, sm=0.26, tensor=0.25, clock=1952)
PACED, SLOW = Work(utilization=1, sm=0.5, tensor=0.45, clock=1900), Work(utilization=1, sm=0.9, tensor=0.45, clock=1300)
GPU_ONLY = {
    # What is measured on GPUs, with no word from the processes.
    "held": (IDLE,),
    "starved": (STARVED,),
    "tiny": (TINY,),
    "bf16": (FULL,),
    "late": (WAITING, LATE),
    "slow": (PACED, SLOW),
    "alone": (FULL, IDLE),
    "weak": (Work(utilization=0.95, watts=20, limit=70),),
    "dark": (Work(utilization=None, memory=80e9),),
}


def causes(**of: str) -> dict[str, float]:
    """The recorded causes: job → cause, and no other."""
    return {f'{CAUSE}{{namespace="vision", job_kind="TFJob", job_name="{job}", cause="{cause}"}}': 1 for job, cause in of.items()}


def held_down(worker: Worker, reason: str, share: float = 0.2) -> dict[str, str]:
    """Its GPU is held down for that share of the time."""
    return {f'gpuwatch_gpu_throttled_seconds_total{{{worker.gpu}, reason="{reason}"}}': worker.values(f"0+{60 * share:g}x{worker.minutes}")}


def unsound(worker: Worker) -> dict[str, str]:
    """Its GPU has failed."""
    return {f'gpuwatch_gpu_health_state{{{worker.gpu}, state="failed"}}': f"1x{worker.minutes}"}


def links(worker: Worker, *, nvlink: float | None = None, pcie: float | None = None, count: int = 18) -> dict[str, str]:
    """Traffic of its GPU in bytes a second, over NVLinks of 450 GB/s each way in all, or sixteen PCIe lanes of the fifth generation."""
    made: dict[str, str] = {}
    if nvlink is not None:
        made |= {f'gpuwatch_gpu_nvlink_up{{{worker.gpu}, link="{link}"}}': f"1x{worker.minutes}" for link in range(count)}
        made[f"gpuwatch_gpu_nvlink_speed_bytes_per_second{{{worker.gpu}}}"] = f"{450e9 / count:.0f}x{worker.minutes}"
        moved = f"0+{60 * nvlink:.0f}x{worker.minutes}"
        made |= {f'gpuwatch_gpu_nvlink_bytes_total{{{worker.gpu}, direction="{way}"}}': moved for way in ("rx", "tx")}
    if pcie is not None:
        made[f"gpuwatch_gpu_pcie_link_width{{{worker.gpu}}}"] = f"16x{worker.minutes}"
        made[f"gpuwatch_gpu_pcie_link_generation{{{worker.gpu}}}"] = f"5x{worker.minutes}"
        made[f'gpuwatch_gpu_pcie_throughput_bytes_per_second{{{worker.gpu}, direction="rx"}}'] = f"{pcie:.0f}x{worker.minutes}"
    return made


def test_causes_by_what_gpus_say(tmp_path: Path) -> None:
    """Without a word from its processes a job has a cause where its GPUs show one, else an unknown one; none when it works well."""
    series = merged(*(Worker(job=job, index=index, work=work) for job, works in GPU_ONLY.items() for index, work in enumerate(works)))
    found = causes(
        held="memory_held_idle", starved="unknown", tiny="small_work", late="imbalanced", slow="imbalanced", alone="imbalanced",
        weak="small_work",
    )  # fmt: skip
    record(tmp_path, series, "20m", found)


def test_causes_by_what_processes_say(tmp_path: Path) -> None:
    """Each cause that only the job itself knows; two processes of one pod and two agents change nothing."""
    slow_input = Process(input=0.6)
    series = training((STARVED, slow_input), job="input") | both(training((STARVED, slow_input), job="twice"))
    pair = Worker(job="pair", work=STARVED)
    series |= pair.series() | slow_input.series(pair) | Process(input=0.4, port=9840).series(pair)
    series |= training((LOW, Process(host=0.2, checkpoint=0.2)), job="host") | training((LOW, Process()), job="small")
    series |= training((IDLE, Process(compile=0.9)), job="retraces") | training((IDLE, Process(steps=0)), job="unborn")
    series |= training((IDLE, Process(training=False)), job="over") | training((LOW, Process(validation=0.8)), job="validates")
    series |= training((FULL, slow_input), job="well") | training((FULL, Process(host=0.5)), job="hidden")
    even = [(WAITING, Process(input=share, replicas=2)) for share in (0.02, 0.6)]
    series |= training(*even, job="late") | training(*((STARVED, replace(one[1], replicas=1)) for one in even), job="apart")
    series |= training((LOW, Process(input=0.24)), job="nearly") | training((LOW, Process(input=0.26)), job="just")
    series |= training((Work(utilization=0.41, sm=0.3), slow_input), job="enough")
    series |= training((LOW, Process(input=None)), job="unseen") | training((LOW, Process(input=None, host=0.6)), job="unseen_host")
    some = Worker(job="some", index=1, work=STARVED)
    series |= training((STARVED, slow_input), job="some") | some.series()
    found = causes(
        input="input_bound", twice="input_bound", pair="input_bound", host="host_bound", small="small_work", retraces="not_started",
        unborn="not_started", over="memory_held_idle", validates="unknown", late="imbalanced", apart="input_bound", some="input_bound",
        nearly="small_work", just="input_bound", unseen="unknown", unseen_host="host_bound",
    )  # fmt: skip
    record(tmp_path, series, "20m", found)


def test_causes_by_links_and_faults(tmp_path: Path) -> None:
    """Links that are nearly full while few multiprocessors work; heat and supply before all else, the power cap never; a broken GPU."""
    half = Work(utilization=1, sm=0.3)
    jobs = {
        name: Worker(job=name, work=work)
        for name, work in {
            "nvlink": half, "pcie": half, "little": half, "both": replace(half, sm=0.6), "old": Work(utilization=1, watts=100, limit=400),
            "hot": FULL, "braked": STARVED, "moment": FULL, "capped": STARVED, "failed": STARVED, "ailing": FULL,
        }.items()
    }  # fmt: skip
    series = merged(*jobs.values()) | links(jobs["nvlink"], nvlink=240e9) | links(jobs["pcie"], pcie=33e9)
    series |= links(jobs["little"], nvlink=220e9, pcie=31e9) | links(jobs["both"], nvlink=400e9) | links(jobs["old"], nvlink=300e9)
    series |= held_down(jobs["hot"], "hardware_thermal") | held_down(jobs["braked"], "hardware_power_brake")
    series |= held_down(jobs["moment"], "software_thermal", 0.04) | held_down(jobs["capped"], "software_power_cap", 1)
    guest = Worker(job="guest", node="n-shared", work=half)
    series |= Worker(job="shared", work=half).series() | guest.series() | links(guest, pcie=33e9)
    series |= unsound(jobs["failed"]) | unsound(jobs["ailing"])
    series |= Process(input=0.6).series(jobs["failed"]) | Process(input=0.6).series(jobs["braked"])
    found = causes(
        nvlink="communication_bound", pcie="communication_bound", old="communication_bound", hot="throttled", braked="throttled",
        capped="unknown", failed="unknown",
    )  # fmt: skip
    record(tmp_path, series, "20m", found)


def test_when_a_cause_is_known(tmp_path: Path) -> None:
    """After ten minutes of holding, though the job began before; not while it starts; not of a job that may idle; gone with its reason."""
    early, late = Worker(job="early", work=STARVED), Worker(job="late", work=STARVED, since=10)
    may = Worker(job="may", work=STARVED)
    series = merged(early, late, may) | {f"gpuwatch_job_gpu_idle_ok{{{may.labels}}}": "1x180"}
    for worker in (early, late, may):
        series |= Process(input=0.6).series(worker)
    both_of_them = causes(early="input_bound", late="input_bound")
    ended = {name: values.replace("x180", "x25 stale") for name, values in series.items() if 'pod="early' in name}
    record(tmp_path, series, "9m", {CAUSE: 0})
    record(tmp_path, series, "19m", causes(early="input_bound"))
    record(tmp_path, series | ended, "20m", both_of_them)
    record(tmp_path, series | ended, "26m", causes(late="input_bound"))


def test_shares_of_phases(tmp_path: Path) -> None:
    """By pod over all its processes, with its job; a job's is the mean of its pods; none where no loop runs, or of a pod without a GPU."""
    worker = Worker(job="j")
    series = worker.series() | Process(input=0.5).series(worker) | Process(input=0.1, host=0.4, port=9840).series(worker)
    series |= Process(input=0.9).series(Worker(job="none")) | training((IDLE, Process(training=False)), job="over")
    values = {"input": 0.3, "host": 0.2, "compute": 0.5, "checkpoint": 0, "compile": 0, "validation": 0}
    own, job = 'namespace="vision", pod="j-worker-0", replica_type="worker"', 'job_kind="TFJob", job_name="j"'
    record(tmp_path, series, "20m", {f'{PHASE}{{{own}, {job}, phase="{name}"}}': value for name, value in values.items()})
    series = training((FULL, Process(input=0.5)), (FULL, Process(input=0.25)), job="j")
    values = {"input": 0.375, "host": 0, "compute": 0.625, "checkpoint": 0, "compile": 0, "validation": 0}
    record(tmp_path, series, "20m", {f'{JOB_PHASE}{{namespace="vision", {job}, phase="{name}"}}': value for name, value in values.items()})


def test_who_is_unequal(tmp_path: Path) -> None:
    """The worker and the kind: what a process says of itself goes before the signs of its GPU."""
    told = [(WAITING, Process(input=0.05, replicas=3)), (WAITING, Process(input=0.5, replicas=3)), (WAITING, Process(replicas=3))]
    series = training(*told, job="told") | team(WAITING, LATE, job="seen") | team(PACED, PACED, SLOW, job="clock")
    series |= team(FULL, IDLE, IDLE, job="use")
    series |= training(*((WAITING, Process(input=share, replicas=2)) for share in (0.3, 0.5)), job="near")
    found = {("told", 1): "input", ("seen", 1): "input", ("clock", 2): "clock", ("use", 1): "use", ("use", 2): "use"}
    record(tmp_path, series, "20m", {
        f'{UNEQUAL}{{namespace="vision", pod="{job}-worker-{index}", job_kind="TFJob", job_name="{job}", kind="{kind}"}}': 1
        for (job, index), kind in found.items()
    })  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One point of the grid: a job of one worker, or of two. ``fault``: what its first GPU is held down by, or ``failed``."""

    work: Work
    process: Process | None
    second: Work | None
    fault: str
    traffic: float | None

    def series(self, job: str) -> dict[str, str]:
        """All that is known of it, for twelve minutes."""
        first = Worker(job=job, work=self.work, minutes=12)
        made = first.series()
        made |= replace(first, index=1, work=self.second).series() if self.second else {}
        made |= self.process.series(first) if self.process else {}
        if self.traffic is not None:
            made |= links(first, nvlink=self.traffic, count=1)
        if self.fault:
            made |= unsound(first) if self.fault == "failed" else held_down(first, self.fault)
        return made

    def cause(self) -> str:
        """As the documents say it, in plain words of Python."""
        works = [self.work, *([self.second] if self.second else [])]
        uses = [one.utilization for one in works if one.utilization is not None]
        sms = [one.sm for one in works if one.sm is not None]
        powers = [one.watts / one.limit for one in works if one.watts is not None]
        use, sm, power = (sum(known) / len(known) if known else None for known in (uses, sms, powers))
        little_used = use is not None and use < 0.4
        little_power = sm is None and power is not None and power < 0.35
        inefficient = use is not None and use > 0.8 and ((sm is not None and sm < 0.15) or little_power)
        low = little_used or inefficient
        says = self.process
        loop = says if says and says.training and says.steps else Process(input=0, compile=1)
        if self.fault not in ("", "failed", "software_power_cap"):
            return "throttled"
        if self.fault == "failed" and low:
            return "unknown"
        if says and little_used and says.training and (not says.steps or says.compile > 0.5):
            return "not_started"
        if use is not None and use < 0.02 and any(one.memory for one in works) and not (says and says.training):
            return "memory_held_idle"
        if self.fault != "failed" and len(uses) == 2 and (max(uses) - min(uses) > 0.5 or self._late(uses)):
            return "imbalanced"
        if low and loop.input / (1 - loop.compile - loop.validation - loop.checkpoint or 1) > 0.25:
            return "input_bound"
        if little_used and loop.host + loop.checkpoint > 0.25:
            return "host_bound"
        if self.traffic and ((sm is not None and sm < 0.5) or little_power):
            return "communication_bound"
        computing = 1 - loop.input - loop.host - loop.checkpoint - loop.compile - loop.validation
        if low and (computing > 0.5 or inefficient or (sm is not None and use and use > 0.02 and sm / use < 0.15)):
            return "small_work"
        return "unknown" if low else ""

    def _late(self, uses: list[float]) -> bool:
        tensors = [one.tensor for one in (self.work, self.second) if one and one.tensor is not None]
        return bool(self.work.tensor) and uses[0] < 0.7 * max(uses) and (self.work.tensor or 0) > 0.75 * max(tensors)


WORKS = (IDLE, STARVED, TINY, FULL, Work(utilization=1, sm=0.3), Work(utilization=0.95, watts=20, limit=70), Work(utilization=None))
PROCESSES = (
    None, Process(), Process(input=0.4), Process(input=0.3, host=0.5), Process(host=0.3), Process(compile=0.6, input=0.3), Process(steps=0),
    Process(training=False),
)  # fmt: skip
FAULTS = ("", "failed", "software_thermal", "software_power_cap")
GRID = [Case(*point) for point in product(WORKS, PROCESSES, (None, FULL, SLOW), FAULTS, (None, 300e9))][::7]
"""Every seventh point, which meets every pair of values; all of them would take promtool a minute."""


def test_a_job_never_has_two_causes(tmp_path: Path) -> None:
    """Over a grid of what may be known of a job: exactly the cause that the documents say, and none where it uses its GPUs well."""
    series = {name: values for number, case in enumerate(GRID) for name, values in case.series(f"j{number}").items()}
    found = causes(**{f"j{number}": case.cause() for number, case in enumerate(GRID) if case.cause()})
    assert {case.cause() for case in GRID} == {*CAUSE_NAMES, ""}
    record(tmp_path, series, "12m", found)


def told(name: str, *jobs: str, severity: str = "info", labels: str = "") -> list[dict[str, str]]:
    """The alert for each job."""
    return [alert(name, severity, labels) | of_job(Worker(job=job)) for job in jobs]


def unequal(name: str, job: str, index: int, kind: str) -> dict[str, str]:
    """The alert about one worker."""
    return told(name, job, labels=f'kind="{kind}", pod="{job}-worker-{index}"')[0]


def test_each_cause_has_its_alert(tmp_path: Path) -> None:
    """After thirteen minutes, to the owner; not of jobs whose processes say nothing, and not where another alert says it already."""
    series = training((STARVED, Process(input=0.6)), job="input") | both(training((STARVED, Process(input=0.6)), job="twice"))
    series |= training((LOW, Process(host=0.3)), job="host") | training((LOW, Process()), job="small")
    series |= training((IDLE, Process(steps=0)), job="unborn") | training((IDLE, Process(compile=0.9)), job="retraces")
    series |= training((WAITING, Process(replicas=2)), (WAITING, Process(input=0.5, replicas=2)), job="late")
    series |= training((PACED, Process()), (SLOW, Process()), job="clock") | training((FULL, Process()), (IDLE, Process()), job="use")
    half = Work(utilization=1, sm=0.3)
    series |= training((half, Process()), job="links") | links(Worker(job="links"), nvlink=300e9)
    hot = Worker(job="hot")
    series |= training((STARVED, Process(input=0.6)), job="hot") | held_down(hot, "software_thermal")
    series |= training((FULL, Process(input=0.6)), job="well") | training((IDLE, Process(training=False)), job="over")
    series |= merged(Worker(job="silent", work=STARVED), Worker(job="tiny", work=TINY)) | team(FULL, IDLE, job="quiet")
    found = [
        *told("TensorFlowInputBound", "input", "twice"), *told("TensorFlowHostBound", "host"), *told("TensorFlowSmallWork", "small"),
        *told("TensorFlowNotStarted", "unborn", "retraces"), *told("TensorFlowCommunicationBound", "links"),
        unequal("TensorFlowImbalanced", "late", 1, "input"), unequal("TensorFlowImbalanced", "clock", 1, "clock"),
        unequal("TensorFlowImbalanced", "use", 1, "use"),
    ]  # fmt: skip
    fire(tmp_path, series, {"12m": [], "13m": found, "14m": found}, only="TensorFlow")


def test_an_alert_outlasts_what_it_silences(tmp_path: Path) -> None:
    """The job works well from the half of the second hour on; the weaker word of the past hour would come then, and ends before."""
    worker = Worker(job="j", work=STARVED)
    process = Process(input=0.6)
    series = worker.series() | process.series(worker)
    busy = next(name for name in series if "busy_seconds" in name)
    series[busy] = "0+18x80 1440+60x100"
    weaker, stronger = told("GpuJobUnderutilized", "j"), told("TensorFlowInputBound", "j")
    fire(tmp_path, series, {"13m": stronger, "75m": weaker + stronger, "88m": weaker + stronger, "110m": stronger, "150m": []})


def nonfinite(pod: str, at: int, *, values: str = "1x180") -> dict[str, str]:
    """Its loss became NaN in that minute."""
    series = f'gpuwatch_tensorflow_nonfinite_loss_timestamp_seconds{{namespace="vision", pod="{pod}", container="tensorflow"}}'
    return {series: f"_x{at} {values.replace('1x', f'{60 * at}x')}"}


def test_a_loss_that_is_not_finite(tmp_path: Path) -> None:
    """The first time too, also where the pod ends with it, for ten minutes; a ticket where its GPU lost data; not without a GPU."""
    errors = 'gpuwatch_gpu_ecc_errors_total{{{}, severity="uncorrected", scope="volatile", location="memory"}}'
    first, twice, gone, worn = (Worker(job=job) for job in ("first", "twice", "gone", "worn"))
    series = merged(first, twice) | nonfinite(first.pod, 5) | both(nonfinite(twice.pod, 5)) | nonfinite("elsewhere-0", 5)
    series |= {name: values.replace("x180", "x6 stale") for name, values in gone.series().items()}
    series |= nonfinite(gone.pod, 5, values="1x1 stale")
    series |= worn.series() | nonfinite(worn.pod, 5) | {errors.format(worn.gpu): "3x180", errors.format(first.gpu): "0x180"}
    found = [one | {"pod": f"{one['job_name']}-worker-0"} for one in told("TensorFlowNonfiniteLoss", "first", "twice", "gone", "worn")]
    found += [found[-1] | {"severity": "warning"}]
    fire(tmp_path, series, {"4m": [], "5m": found, "14m": found, "15m": []}, only="TensorFlow")


def test_says_which_job_how_much_and_what_to_do(tmp_path: Path) -> None:
    """The owner reads job, GPUs, how long a step takes, and the change in TensorFlow's own terms."""
    series = training((STARVED, Process(input=0.6)), job="input") | training((LOW, Process(host=0.3)), job="host")
    series |= training((LOW, Process(input=0.1)), job="small") | training((IDLE, Process(steps=0)), job="unborn")
    series |= training((WAITING, Process(replicas=2)), (WAITING, Process(input=0.5, replicas=2)), job="late")
    half = Work(utilization=1, sm=0.3)
    series |= training((half, Process()), job="links") | links(Worker(job="links"), nvlink=300e9)
    lost = Worker(job="links").gpu
    series |= {f'gpuwatch_gpu_ecc_errors_total{{{lost}, severity="uncorrected", scope="volatile", location="memory"}}': "3x180"}
    series |= {f'gpuwatch_gpu_info{{{lost}, ecc="disabled"}}': "1x180"} | nonfinite("links-worker-0", 10)
    words = {
        "TensorFlowInputBound": ("vision/input stands still 60% of the time", "It uses 31% of its GPUs.", "prefetch(tf.data.AUTOTUNE)"),
        "TensorFlowHostBound": ("vision/host spends 30% of the time in callbacks", "steps_per_execution"),
        "TensorFlowSmallWork": ("vision/small waits for nothing and uses 30%", "for its input 10% of the time.", "jit_compile=True"),
        "TensorFlowNotStarted": ("vision/unborn trains for longer than 10m", "drop_remainder=True"),
        "TensorFlowImbalanced": ("vision/late waits for pod late-worker-1, which is late for its input.", "AutoShardPolicy.DATA"),
        "TensorFlowCommunicationBound": ("The links of the GPUs of TFJob vision/links are nearly full", "gradient_accumulation_steps"),
        "TensorFlowNonfiniteLoss": (
            "The loss in pod links-worker-0 of TFJob vision/links became NaN", "GPU 0 (H200) on n-links has uncorrected ECC errors",
            "GPU 0 (H200) on n-links runs without ECC", "LossScaleOptimizer",
        ),
    }  # fmt: skip
    for name, said in say_each(tmp_path, series, "15m", list(words)).items():
        text, wanted = max((one["description"] for one in said), key=len), words[name]
        if name != "TensorFlowNonfiniteLoss":
            assert "It holds " in text
            assert "A step takes 500ms." in text or name == "TensorFlowNotStarted"
        assert [word for word in (*wanted, "First: ") if word not in text] == [], text
        assert "  " not in text
