"""Jobs as series in promtool's notation: what the agent exports of each GPU that a pod of a job holds, and what its process says."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rules.promtool import labels_of

MINUTES = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a GPU does for its job. ``None``: not reported."""

    utilization: float | None = 1.0
    sm: float | None = None
    tensor: float | None = None
    watts: float | None = None
    memory: float | None = None
    """Bytes in use."""
    limit: float = 700.0
    clock: float | None = None
    software_power_cap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A pod of a job on a GPU of its own, from a minute on."""

    job: str
    index: int = 0
    kind: str = "TFJob"
    replica: str = "worker"
    work: Work = Work()
    model: str = "H200"
    mig: str = ""
    node: str = ""
    since: int = 0
    minutes: int = MINUTES

    @property
    def gpu(self) -> str:
        """Labels of its GPU."""
        node = self.node or f"n-{self.job}"
        number = self.index + (4 if self.replica != "worker" else 0)
        return f'node="{node}", gpu="{number}", uuid="GPU-{node}-{number}", model="{self.model}"'

    @property
    def pod(self) -> str:
        """The name of its pod."""
        return f"{self.job}-{self.replica}-{self.index}"

    @property
    def labels(self) -> str:
        """Labels of its series."""
        return (
            f'{self.gpu}, mig_uuid="{self.mig}", namespace="vision", pod="{self.pod}", container="tensorflow", job_kind="{self.kind}", '
            f'job_name="{self.job}", replica_type="{self.replica}", replica_index="{self.index}"'
        )

    def series(self) -> dict[str, str]:
        """Selector → values."""
        work, made = self.work, dict[str, str]()

        def steady(name: str, labels: str, value: float | None) -> None:
            if value is not None:
                made[f"gpuwatch_{name}{{{labels}}}"] = self.values(f"{value}x{self.minutes}")

        def growing(name: str, labels: str, ratio: float | None) -> None:
            if ratio is not None:
                made[f"gpuwatch_{name}{{{labels}}}"] = self.values(f"0+{60 * ratio:g}x{self.minutes}")

        steady("job_gpu_info", self.labels, 1)
        growing("job_gpu_allocated_seconds_total", self.labels, 1)
        growing("job_gpu_busy_seconds_total", self.labels, work.utilization)
        steady("job_gpu_utilization_ratio", self.labels, work.utilization)
        steady("job_gpu_sm_active_ratio", self.labels, work.sm)
        steady("job_gpu_tensor_active_ratio", self.labels, work.tensor)
        steady("job_gpu_memory_used_bytes", self.labels, work.memory)
        steady("gpu_power_watts", self.gpu, work.watts)
        steady("gpu_power_limit_watts", f'{self.gpu}, limit="enforced"', None if work.watts is None else work.limit)
        steady("gpu_clock_hertz", f'{self.gpu}, clock="sm"', None if work.clock is None else work.clock * 1e6)
        growing("gpu_throttled_seconds_total", f'{self.gpu}, reason="software_power_cap"', 1 if work.software_power_cap else None)
        return made

    def values(self, values: str) -> str:
        """From the minute on in which it came."""
        return f"_x{self.since} {values}" if self.since else values


def team(*works: Work, job: str, **more: str) -> dict[str, str]:
    """Workers of one job, a GPU each."""
    return merged(*(replace(Worker(job=job, **more), index=number, work=work) for number, work in enumerate(works)))  # type: ignore[arg-type]


def merged(*workers: Worker) -> dict[str, str]:
    """The series of all of them."""
    return {name: values for worker in workers for name, values in worker.series().items()}


def of_job(worker: Worker) -> dict[str, str]:
    """The labels of an alert about its job."""
    return {"namespace": "vision", "job_kind": worker.kind, "job_name": worker.job}


def of_worker(worker: Worker) -> dict[str, str]:
    """The labels of an alert about one of its pods."""
    wanted = ("node", "gpu", "uuid", "model", "namespace", "pod", "job_kind", "job_name", "replica_type", "replica_index")
    return {name: value for name, value in labels_of(worker.labels).items() if name in wanted}


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What the process of a worker says of its training. Shares of its time, all of them known from the start."""

    input: float | None = 0.0
    """``None``: it cannot be known, and is in ``compute``."""
    host: float = 0.0
    checkpoint: float = 0.0
    compile: float = 0.0
    validation: float = 0.0
    training: bool = True
    steps: float = 2.0
    """A second."""
    replicas: int = 1
    port: int = 9839

    def series(self, worker: Worker) -> dict[str, str]:
        """Selector → values, from the minute on in which the worker came."""
        labels = f'namespace="vision", pod="{worker.pod}", container="tensorflow", endpoint="{self.port}"'
        phases = {name: getattr(self, name) for name in ("host", "checkpoint", "compile", "validation")}
        phases |= {} if self.input is None else {"input": self.input}
        phases["compute"] = max(0.0, 1 - sum(phases.values()))
        moving = self.training and self.steps
        made = {f'phase_seconds_total{{{labels}, phase="{name}"}}': 60 * share if moving else 0 for name, share in phases.items()}
        made |= {f"steps_total{{{labels}}}": 60 * self.steps if moving else 0, f"nonfinite_losses_total{{{labels}}}": 0}
        made |= {f"step_duration_seconds_sum{{{labels}}}": 60, f"step_duration_seconds_count{{{labels}}}": 60 * self.steps}
        still = {f"training{{{labels}}}": int(self.training), f"replicas{{{labels}}}": self.replicas}
        return {
            **{f"gpuwatch_tensorflow_{name}": worker.values(f"0+{each:g}x{worker.minutes}") for name, each in made.items()},
            **{f"gpuwatch_tensorflow_{name}": worker.values(f"{value}x{worker.minutes}") for name, value in still.items()},
        }


def training(*workers: tuple[Work, Process], job: str, **more: str) -> dict[str, str]:
    """Workers of one job that say what they do, a GPU each."""
    made: dict[str, str] = {}
    for number, (work, process) in enumerate(workers):
        worker = replace(Worker(job=job, **more), index=number, work=work)  # type: ignore[arg-type]
        made |= worker.series() | process.series(worker)
    return made
