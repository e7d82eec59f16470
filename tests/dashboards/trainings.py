"""What the processes of some jobs of the demo fleet tell of their training, minute by minute, served as they serve it.

The labels of the target are those that the chart's PodMonitor for jobs gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from dashboards.demo_fleet import CLUSTER, HALF_HOURS
from gpuwatch.tensorflow.exposition import MeasuresCollector
from gpuwatch.tensorflow.measures import Measures, Phase
from gpuwatch.tensorflow.series import TARGET_LABELS
from health.watched import EPOCH

_STRAGGLES: Final = 3 * HALF_HOURS
_GIB: Final = 2**30
_FACTS: Final = {
    "tensorflow": "2.21.0", "keras": "3.15.0", "precision_policy": "mixed_bfloat16", "jit_compile": "false", "tf32": "true",
    "memory_growth": "false", "run_eagerly": "false", "steps_per_execution": "1",
}  # fmt: skip
_EVEN: Final[Mapping[Phase, float]] = {"input": 0.02, "compute": 0.92, "host": 0.03, "checkpoint": 0.01, "validation": 0.02}
_LATE: Final[Mapping[Phase, float]] = {"input": 0.66, "compute": 0.3, "host": 0.03, "checkpoint": 0.01}
_STARVED: Final[Mapping[Phase, float]] = {"input": 0.68, "compute": 0.27, "host": 0.05}
_FILES: Final = {"source": "files", "map": "parallel", "interleave": "parallel", "prefetch": "true", "cache": "false", "shuffle": "true"}
_GENERATOR: Final = _FILES | {"source": "generator", "map": "sequential", "interleave": "none", "prefetch": "false"}


@dataclass(slots=True)
class Training:
    """The process of a pod, from a second on."""

    namespace: str
    pod: str
    shares: Mapping[Phase, float]
    then: Mapping[Phase, float] | None = None
    """From the middle of the film on."""
    begin: float = 0.0
    step_seconds: float = 0.25
    replicas: int = 1
    dataset: Mapping[str, str] = field(default_factory=dict)
    measures: Measures = field(default_factory=Measures)

    def step(self, t: float, seconds: float) -> Iterator[str]:
        """So many seconds of training; then the series of a scrape."""
        if t < self.begin:
            return
        told, steps = self.measures, int(seconds / self.step_seconds)
        if not told.training:
            self._start()
        for phase, share in ((self.then if self.then and t >= _STRAGGLES else None) or self.shares).items():
            told.phase_seconds[phase] += share * seconds
        told.steps, told.examples = told.steps + steps, told.examples + 64 * steps
        told.count_step(self.step_seconds, steps=steps)
        told.last_step_timestamp_seconds = EPOCH + t
        target = (self.namespace, self.pod, "tensorflow")
        fixed = {"instance": f"{self.pod}:9839", "job": "gpuwatch-jobs", "cluster": CLUSTER}
        fixed |= dict(zip(TARGET_LABELS, target, strict=True))
        for family in MeasuresCollector(told, fixed).collect():
            for sample in family.samples:
                labels = ",".join(f'{name}="{text}"' for name, text in sample.labels.items())
                yield f"{sample.name}{{{labels}}} {sample.value} {EPOCH + t:.0f}\n"

    def _start(self) -> None:
        told = self.measures
        told.training, told.replicas, told.gpus, told.first_step_seconds, told.traces = True, self.replicas, 1, 31.5, 2
        told.facts = {**_FACTS, "strategy": "MultiWorkerMirroredStrategy" if self.replicas > 1 else "default", "task_type": "worker"}
        told.facts["task_index"] = self.pod.rpartition("-")[2]
        told.dataset = dict(self.dataset)
        told.memory_in_use_bytes, told.memory_peak_bytes = {"GPU:0": 21 * _GIB}, {"GPU:0": 34 * _GIB}
        told.phase_seconds["compile"] += 31.5


def trainings() -> list[Training]:
    """One over two nodes of which a worker is late from the middle on, some that starve, and one with tiny steps on a slice."""
    gpt = [
        Training("language", f"gpt-worker-{number}", _EVEN, _LATE if number == 5 else None, replicas=7, dataset=_FILES)
        for number in range(7)
    ]
    begin = 4 * HALF_HOURS + 180.0
    grid = [Training("research", f"grid-{number}", _STARVED, begin=begin, step_seconds=0.1, dataset=_GENERATOR) for number in range(2)]
    classify = Training("serving", "classify-0", _STARVED, step_seconds=0.1, dataset=_GENERATOR)
    return [*gpt, *grid, classify, Training("research", "sweep-0", {"compute": 0.97, "host": 0.03}, step_seconds=0.004)]
