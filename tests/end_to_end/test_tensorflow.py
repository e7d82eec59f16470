"""Why a job wastes its GPUs, from the training loop to its owner: real TensorFlow, simulated GPUs, the shipped rules, all jobs at once.

Each training is a process with its endpoint. There is no GPU in it: what its GPU does meanwhile is what such a job's GPU was measured to
do, told by a simulated agent. One Prometheus scrapes both; the rules join them. The clock of GPUs and rules runs sixty times as fast.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from daemon import ROOT, free_port
from end_to_end.film import Frame, Node
from end_to_end.stage import Stage, Target, staged, until
from gpuwatch.rules.cause import CAUSE, CAUSE_NAMES, JOB_PHASE, UNEQUAL
from gpuwatch.rules.recording import RATIO_NOW

_FILM_SECONDS = 5400.0
_START_PATIENCE_SECONDS = 240.0
_PATIENCE_SECONDS = _FILM_SECONDS / 60
"""No promise of speed: what has not come by then never comes."""
_PROGRAM = Path(__file__).with_name("trainings.py")
_VALUES = {"underutilized_window": "20m"}
"""In place of an hour, so that the weaker alert, which is to be silenced, comes in time to be seen."""
_NVLINK = re.compile(r"^(gpuwatch_gpu_nvlink_bytes_total\{[^}]*\}) (\S+)$", re.MULTILINE)
_FULL_LINKS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job, whose workers hold a GPU each."""

    name: str
    says: str
    board: str
    loads: tuple[str, ...]
    """What the GPU of each worker does."""
    training: str = ""
    """What its processes run; empty: they have no endpoint."""
    cause: str = ""
    alert: str = ""
    """That its owner is told, of those about TensorFlow."""
    fault: str = ""
    agents: int = 1
    """Two, where an old pod and a new one serve its node side by side."""

    @property
    def node(self) -> str:
        """Its node, as a scenario."""
        gpus = ", ".join(f"{{board: {self.board}, loads: [{{kind: {load}}}]}}" for load in self.loads)
        pods = ", ".join(
            f'{{name: {self.pod(number)}, namespace: research, devices: ["{number}"], '
            f"tfjob: {{name: {self.name}, type: worker, index: {number}, cluster: {{worker: {len(self.loads)}}}}}}}"
            for number in range(len(self.loads))
        )
        return f"gpus: [{gpus}]\npods: [{pods}]\nfaults: [{self.fault}]\n"

    def pod(self, number: int) -> str:
        """Of a worker."""
        return f"{self.name}-worker-{number}"


STARVED, WAITING, LATE = "starved", "straggler_wait", "straggler_late"
JOBS = (
    # Three jobs whose GPUs do exactly the same: only the processes know why.
    Job(name="input", says="batches made one after the other", board="a100-80gb-sxm", loads=(STARVED,), training="input",
        cause="input_bound", alert="TensorFlowInputBound"),
    Job(name="host", says="a callback that takes its time", board="a100-80gb-sxm", loads=(STARVED,), training="host",
        cause="host_bound", alert="TensorFlowHostBound"),
    Job(name="mute", says="no endpoint", board="a100-80gb-sxm", loads=(STARVED,), cause="unknown"),
    Job(name="fed", says="batches made ahead, GPU busy", board="h100-sxm", loads=("training",), training="fed"),
    Job(name="small", says="steps that compute, GPU hardly busy", board="t4", loads=("tiny",), training="small",
        cause="small_work", alert="TensorFlowSmallWork"),
    Job(name="buffer", says="a shuffle buffer that is never full", board="l40s", loads=("held",), training="buffer",
        cause="not_started", alert="TensorFlowNotStarted"),
    Job(name="retrace", says="a function traced at every step", board="rtx4090", loads=("tiny",), training="retrace",
        cause="not_started", alert="TensorFlowNotStarted"),
    Job(name="over", says="its training has ended, its process has not", board="v100-sxm2", loads=("held",), training="over",
        cause="memory_held_idle"),
    Job(name="team", says="two workers, the second late for its input; two agents", board="l40s", loads=(WAITING, LATE), training="team",
        cause="imbalanced", alert="TensorFlowImbalanced", agents=2),
    Job(name="nan", says="a loss that becomes NaN, GPU busy", board="h100-sxm", loads=("training",), training="nan"),
    Job(name="notebook", says="no endpoint, memory held", board="h100-sxm", loads=("held",), cause="memory_held_idle"),
    Job(name="late", says="no endpoint, the second worker late", board="h200-sxm", loads=(WAITING, LATE), cause="imbalanced"),
    Job(name="tiny", says="no endpoint, tiny kernels", board="h100-sxm", loads=("tiny",), cause="small_work"),
    Job(name="hot", says="no endpoint, GPU held down for heat", board="h100-sxm", loads=("training",), cause="throttled",
        fault="{kind: thermal-throttle, gpu: 0, slowdown: hardware}"),
    Job(name="links", says="no endpoint, NVLinks full (scripted)", board="h100-sxm", loads=(WAITING, WAITING), cause="communication_bound"),
)  # fmt: skip
_LATE = {"team-worker-1", "late-worker-1"}
_CAUSES = {job.name: [job.cause] for job in JOBS if job.cause}


@dataclass(frozen=True, slots=True)
class Trainings:
    """The processes, by job and worker."""

    process: subprocess.Popen[bytes]
    folder: Path
    ports: dict[str, list[int]]

    def scrape(self, job: str, worker: int = 0) -> str:
        """What an endpoint says; empty while it does not answer."""
        try:
            return httpx.get(f"http://127.0.0.1:{self.ports[job][worker]}/metrics").raise_for_status().text
        except httpx.TransportError:
            return ""

    def stepped(self, job: str, worker: int) -> bool:
        """It trains, and has made its first step if it ever will."""
        values = {sample.name: sample.value for family in parse_text(self.scrape(job, worker)) for sample in family.samples}
        return bool(values.get("gpuwatch_tensorflow_steps_total") or (job == "buffer" and values.get("gpuwatch_tensorflow_training")))

    def check(self) -> None:
        """None has ended: none should."""
        assert self.process.poll() is None, (self.folder / "log").read_text()

    def begun(self) -> bool:
        """All of them have."""
        self.check()
        return all(self.stepped(job, worker) for job, ports in self.ports.items() for worker in range(len(ports)))

    def targets(self) -> list[dict[str, Any]]:
        """As a PodMonitor makes them: the endpoint does not know its pod."""
        return [
            {
                "targets": [f"127.0.0.1:{port}"],
                "labels": {"cluster": job.name, "namespace": "research", "pod": job.pod(worker), "container": "tensorflow"},
            }
            for job in JOBS
            for worker, port in enumerate(self.ports.get(job.training, ()))
        ]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainings]:
    """Every training, begun or about to."""
    folder = tmp_path_factory.mktemp("trainings")
    ports = {job.training: [free_port() for _ in job.loads] for job in JOBS if job.training}
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    command = [sys.executable, str(_PROGRAM), *(f"{name}={','.join(map(str, each))}" for name, each in ports.items())]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder, env=environment)
    try:
        yield Trainings(process, folder, ports)
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True, slots=True)
class Play:
    """How it went."""

    stage: Stage
    causes: list[dict[str, list[str]]]
    """By job, at each evaluation at which any had one."""
    late: set[str]
    """Pods that were said to be late for their input, at any evaluation."""
    fired: set[tuple[str, str]]
    """Job and alert."""
    silenced: set[tuple[str, str]]
    failed_rules: dict[str, str]


@pytest.fixture(scope="module")
def play(started: Trainings, tmp_path_factory: pytest.TempPathFactory, show_table: Callable[[str, list[tuple[str, ...]]], None]) -> Play:
    """All jobs at once, until each has its cause and its owner was told."""
    targets = {job.name: Target(frames=filmed(number, job), agents=job.agents) for number, job in enumerate(JOBS)}
    assert until(started.begun, patience=_START_PATIENCE_SECONDS), (started.folder / "log").read_text()
    beside = [{"job_name": "tensorflow", "static_configs": started.targets()}]
    with staged(targets, tmp_path_factory.mktemp("stage"), beside=beside, values=_VALUES) as stage:
        (started.folder / "spoiled").touch()
        until(lambda: _settled(stage), patience=_PATIENCE_SECONDS)
        started.check()
        played = Play(
            stage,
            causes=_causes(stage),
            late=_late(stage),
            fired=_fired(stage),
            silenced=stage.silenced(),
            failed_rules=stage.failed_rules(),
        )
        title = f"why jobs waste their GPUs: the cause expected and found (after {stage.now / 60:.0f} minutes, {stage.late} late)"
        show_table(title, _rows(stage, played))
    return played


def filmed(number: int, job: Job) -> tuple[Frame, ...]:
    """What the agent says of the job's node. No simulated board fills its links: that is written into the film."""
    film = Node(f"seed: {8000 + number}\n{job.node}").film(_FILM_SECONDS)
    return tuple(_full_links(frame) for frame in film) if job.cause == "communication_bound" else tuple(film)


def _full_links(frame: Frame) -> Frame:
    text = _NVLINK.sub(lambda found: f"{found[1]} {_FULL_LINKS * float(found[2])}", zlib.decompress(frame.packed).decode())
    return Frame(zlib.compress(text.encode(), 1), frame.timestamps)


def _last(stage: Stage, series: str) -> list[tuple[dict[str, str], float]]:
    """What the last evaluation recorded."""
    found = stage.recorded(series, "1m")
    return [(labels, value) for at, labels, value in found if at == max(one[0] for one in found)]


def _causes(stage: Stage) -> list[dict[str, list[str]]]:
    """By job, at each evaluation at which any had one."""
    found: dict[float, dict[str, list[str]]] = {}
    for at, labels, _ in sorted(stage.recorded(CAUSE, "10m"), key=lambda one: one[0]):
        found.setdefault(at, {}).setdefault(labels["job_name"], []).append(labels["cause"])
    return list(found.values())


def _late(stage: Stage) -> set[str]:
    return {labels["pod"] for _, labels, _ in stage.recorded(f'{UNEQUAL}{{kind="input"}}', "10m")}


def _fired(stage: Stage) -> set[tuple[str, str]]:
    alerts = stage.recorded('ALERTS{alertstate="firing", alertname=~"TensorFlow.+"}', "10m")
    return {(labels["job_name"], labels["alertname"]) for _, labels, _ in alerts}


def _told(stage: Stage, job: Job) -> set[str]:
    return {one for one in stage.of(job.name) if one.startswith("TensorFlow") and "Nonfinite" not in one}


def _expected(job: Job) -> set[str]:
    return {f"{job.alert} info job-owner research/{job.name}"} if job.alert else set()


def _settled(stage: Stage) -> bool:
    return (
        all(_told(stage, job) >= _expected(job) for job in JOBS)
        and _causes(stage)[-1:] == [_CAUSES]
        and _late(stage) >= _LATE
        and ("nan", "TensorFlowNonfiniteLoss") in _fired(stage)
        and ("input", "GpuJobUnderutilized") in stage.silenced()
    )


def _rows(stage: Stage, played: Play) -> list[tuple[str, ...]]:
    used = {labels["job_name"]: value for labels, value in _last(stage, RATIO_NOW)}
    phases: dict[str, list[str]] = {job.name: [] for job in JOBS}
    for labels, share in sorted(_last(stage, JOB_PHASE), key=lambda one: -one[1]):
        if share > 0.05:
            phases[labels["job_name"]].append(f"{labels['phase']} {share:.0%}")
    rows = [("job", "what it is", "GPU used", "its time", "expected", "found", "its owner is told")]
    for job in JOBS:
        told = ", ".join(sorted(one.partition(" ")[0] for one in _told(stage, job)))
        found = ", ".join(played.causes[-1].get(job.name, ["none"])) if played.causes else "none"
        share = f"{used[job.name]:.0%}" if job.name in used else "?"
        rows.append((job.name, job.says, share, ", ".join(phases[job.name]) or "-", job.cause or "none", found, told or "-"))
    return rows


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_the_cause_of_each_job(job: Job, play: Play) -> None:
    """Exactly the expected one, or none; and its owner gets the alert that says so, or none about TensorFlow."""
    assert play.causes[-1].get(job.name, []) == _CAUSES.get(job.name, [])
    assert _told(play.stage, job) == _expected(job)


def test_every_cause_is_shown() -> None:
    """No cause that the rules know is left out here."""
    assert {job.cause for job in JOBS} - {""} == set(CAUSE_NAMES)


def test_no_job_ever_had_two_causes(play: Play) -> None:
    """At no evaluation, while the causes came up one after the other; and a busy job had none at any time."""
    for evaluation in play.causes:
        assert evaluation.keys() <= _CAUSES.keys()
        assert [causes for causes in evaluation.values() if len(causes) != 1] == []


def test_the_late_worker_is_named(play: Play) -> None:
    """By its pod, where its process says so as where only its GPU does, and no other ever was; the owner reads it."""
    assert play.late == _LATE
    [text] = {one["annotations"]["description"] for one in _alerts(play.stage, "TensorFlowImbalanced")}
    assert "waits for pod team-worker-1, which is late for its input." in text


def test_one_word_for_one_problem(play: Play) -> None:
    """The owner of the job that waits for its input hears of that, and not also that it uses little of its GPU."""
    assert ("input", "GpuJobUnderutilized") in play.silenced
    assert {one.partition(" ")[0] for one in play.stage.of("input")} == {"TensorFlowInputBound"}


def test_a_loss_that_is_not_finite(play: Play) -> None:
    """It is told of the one job whose data went bad, though it is busy, and of no other."""
    assert {job for job, alert in play.fired if alert == "TensorFlowNonfiniteLoss"} == {"nan"}


def test_what_is_said(play: Play) -> None:
    """Each notification is filled in with what real processes say, as how long a step takes."""
    for alert in {job.alert for job in JOBS if job.alert}:
        for told in _alerts(play.stage, alert):
            text = told["annotations"]["description"]
            assert "First: " in text
            assert "A step takes " in text or alert == "TensorFlowNotStarted"
            for flaw in ("<no value>", "<error", "{{", "${", "%!", "  ", "NaN"):
                assert flaw not in text, text


def test_every_rule_was_evaluated(play: Play) -> None:
    """None failed on what real processes export: no two series where a join wants one."""
    assert play.failed_rules == {}


@pytest.mark.parametrize("job", [job for job in JOBS if job.training], ids=lambda job: job.name)
def test_what_an_endpoint_serves(job: Job, play: Play, started: Trainings) -> None:  # noqa: ARG001 (it has begun by then)
    """Prometheus's own linter has no word against it, whatever the training is at."""
    for worker in range(len(job.loads)):
        text = started.scrape(job.training, worker)
        assert "gpuwatch_tensorflow_info" in text
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def _alerts(stage: Stage, name: str) -> list[dict[str, Any]]:
    return [alert for payload in stage.payloads for alert in payload["alerts"] if alert["labels"]["alertname"] == name]
