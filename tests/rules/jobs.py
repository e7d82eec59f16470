"""Jobs as series in promtool's notation: what the agent exports of each GPU that a pod of a job holds."""

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
    def labels(self) -> str:
        """Labels of its series."""
        pod = f"{self.job}-{self.replica}-{self.index}"
        return (
            f'{self.gpu}, mig_uuid="{self.mig}", namespace="vision", pod="{pod}", container="tensorflow", job_kind="{self.kind}", '
            f'job_name="{self.job}", replica_type="{self.replica}", replica_index="{self.index}"'
        )

    def series(self) -> dict[str, str]:
        """Selector → values."""
        work, made = self.work, dict[str, str]()

        def steady(name: str, labels: str, value: float | None) -> None:
            if value is not None:
                made[f"gpuwatch_{name}{{{labels}}}"] = self._from(f"{value}x{self.minutes}")

        def growing(name: str, labels: str, ratio: float | None) -> None:
            if ratio is not None:
                made[f"gpuwatch_{name}{{{labels}}}"] = self._from(f"0+{60 * ratio:g}x{self.minutes}")

        steady("job_gpu_info", self.labels, 1)
        growing("job_gpu_allocated_seconds_total", self.labels, 1)
        growing("job_gpu_busy_seconds_total", self.labels, work.utilization)
        steady("job_gpu_utilization_ratio", self.labels, work.utilization)
        steady("job_gpu_sm_active_ratio", self.labels, work.sm)
        steady("job_gpu_tensor_active_ratio", self.labels, work.tensor)
        steady("gpu_power_watts", self.gpu, work.watts)
        steady("gpu_power_limit_watts", f'{self.gpu}, limit="enforced"', None if work.watts is None else work.limit)
        steady("gpu_clock_hertz", f'{self.gpu}, clock="sm"', None if work.clock is None else work.clock * 1e6)
        growing("gpu_throttled_seconds_total", f'{self.gpu}, reason="software_power_cap"', 1 if work.software_power_cap else None)
        return made

    def _from(self, values: str) -> str:
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
