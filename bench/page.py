"""What the page's curves cost: memory, each pass, and writing the page of a node whose every value changes all the time."""

from __future__ import annotations

import random
import statistics
import time
import tracemalloc

import msgspec

from gpuwatch.curves import LENGTH, STEP_SECONDS, Curves
from gpuwatch.device.readings import Activity, Fast, Identity, Medium, Memory, MigInstance
from gpuwatch.snapshot import Gpu, Snapshot
from gpuwatch.web.page import render_page

TOTAL_BYTES = 80 << 30
ROUNDS = 50


def gpu_of(index: int, instances: int, chance: random.Random) -> Gpu:
    """A GPU whose values are by chance."""
    names = [f"MIG-{index}-{number}" for number in range(instances)]
    memory = {name: Memory(total_bytes=TOTAL_BYTES, used_bytes=chance.randrange(TOTAL_BYTES)) for name in names}
    return Gpu(
        identity=Identity(index=index, uuid=f"GPU-{index}", model="NVIDIA H100 80GB HBM3"),
        up=True,
        fast=Fast(
            utilization_ratio=chance.random(),
            memory=Memory(total_bytes=TOTAL_BYTES, used_bytes=chance.randrange(TOTAL_BYTES)),
            temperature_celsius={"gpu": 90 * chance.random()},
            power_watts=700 * chance.random(),
            mig_memory=memory,
        ),
        medium=Medium(
            power_limit_watts={"enforced": 700.0},
            mig_instances=tuple(MigInstance(uuid=name, gpu_instance=1, compute_instance=0) for name in names),
            mig_activity={name: Activity(sm_active_ratio=chance.random()) for name in names},
        ),
    )


def median_of(seconds: list[float]) -> str:
    """In milliseconds."""
    return f"{statistics.median(seconds) * 1e3:.3f} ms"


def measure(instances: int) -> None:
    """One line of the table."""
    chance = random.Random(1)  # noqa: S311 - no secret
    blank = Snapshot(node="node", timestamp_seconds=0.0, version="", up=True)
    course = [msgspec.structs.replace(blank, gpus=tuple(gpu_of(i, instances, chance) for i in range(8))) for _ in range(LENGTH)]
    tracemalloc.start()
    curves = Curves()
    for step, snapshot in enumerate(course):
        curves.note(snapshot, step * STEP_SECONDS)
    kibibytes = tracemalloc.get_traced_memory()[0] / 1024
    tracemalloc.stop()
    samples, passes, pages, bare = [], [], [], []
    for number in range(ROUNDS):
        now = (LENGTH + number) * STEP_SECONDS
        for spans, act in (
            (samples, lambda now=now: curves.note(course[-1], now)),
            (passes, lambda now=now: curves.note(course[-1], now + 1.0)),
            (pages, lambda: render_page(course[-1], curves)),
            (bare, lambda: render_page(course[-1])),
        ):
            began = time.perf_counter()
            act()
            spans.append(time.perf_counter() - began)
    costs = " | ".join(map(median_of, (passes, samples, pages, bare)))
    print(f"| 8 with {instances} | {kibibytes:.0f} KiB | {costs} |")


print("| GPUs and MIG instances | curves | pass | sample | page | page without curves |\n|---|---|---|---|---|---|")
for count in (0, 7):
    measure(count)
