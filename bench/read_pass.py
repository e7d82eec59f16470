"""What one read of a GPU costs, from Python and, on a real driver, from C: ``python bench/read_pass.py [SCENARIO]``.

Without a scenario it reads the real driver of this machine (and says so when there is none); the C program makes the same NVML calls
in the same order in the same run, so that the difference is gpuwatch's own. Medians and p99 of passes 20 ms apart.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from table import quantile, show

from gpuwatch.device import nvml
from gpuwatch.device.gpu_thread import GpuThread
from gpuwatch.device.reader import open_driver
from gpuwatch.device.readings import GpuReading, Tick
from gpuwatch.device.wire import ReaderOptions, Simulation, encode

PASSES = 200


def main() -> int:
    """Measure and print."""
    scenario = sys.argv[1] if len(sys.argv) > 1 else ""
    options = ReaderOptions(pcie_throughput=False, simulation=Simulation(scenario=scenario) if scenario else None, epoch=time.monotonic())
    driver = open_driver(options)
    try:
        driver.nvmlInit()
    except nvml.NVMLError as error:
        print(f"no driver here ({error}); name a scenario to measure the simulated one")
        return 0
    native = {} if scenario else from_c()
    rows = []
    for index in range(driver.nvmlDeviceGetCount()):
        rows += measure(driver, index, options, native.get(index))
    heads = ("GPU and tier", "Python median us", "Python p99 us", "cpu median us", "C median us", "C p99 us", "Python / C")
    show(f"One pass over the driver ({scenario or 'real'}), {PASSES} passes", heads, rows)
    return 0


def measure(driver: Any, index: int, options: ReaderOptions, native: tuple[float, ...] | None) -> list[tuple[object, ...]]:
    """Rows of one GPU: fast pass, medium pass, and the frame that carries them."""
    readings: list[GpuReading] = []
    gpu = GpuThread(driver, index, options=options, emit=readings.append)
    gpu.read_both_tiers()
    gpu.read_both_tiers()
    fast, fast_cpu, both, both_cpu = [], [], [], []
    for turn in range(PASSES):
        time.sleep(0.02)
        started, busy = time.perf_counter(), time.thread_time()
        gpu.read_fast_tier()
        fast.append((time.perf_counter() - started) * 1e6)
        fast_cpu.append((time.thread_time() - busy) * 1e6)
        if turn % 10 == 9:
            started, busy = time.perf_counter(), time.thread_time()
            gpu.read_both_tiers()
            both.append((time.perf_counter() - started) * 1e6 - quantile(fast, 0.5))
            both_cpu.append((time.thread_time() - busy) * 1e6 - quantile(fast_cpu, 0.5))
    rows = []
    for tier, wall, cpu, offset in (("fast", fast, fast_cpu, 0), ("medium", both, both_cpu, 2)):
        median = quantile(wall, 0.5)
        c_median, c_p99 = (native[offset], native[offset + 1]) if native else ("-", "-")
        ratio = median / c_median if native and c_median else "-"
        rows.append((f"{index} {tier}", median, quantile(wall, 0.99), quantile(cpu, 0.5), c_median, c_p99, ratio))
    started = time.perf_counter()
    for reading in readings[-50:]:
        encode(Tick(readings=(reading,)))
    rows.append((f"{index} frame encoding", (time.perf_counter() - started) / 50 * 1e6, "-", "-", "-", "-", "-"))
    return rows


def from_c() -> dict[int, tuple[float, ...]]:
    """Index → (fast median, fast p99, medium median, medium p99) in microseconds, by the C program; empty without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("no C compiler here: the C column is empty")
        return {}
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "nvml_pass"
        subprocess.run([compiler, "-O2", "-w", "-o", program, Path(__file__).with_name("nvml_pass.c"), "-ldl"], check=True)
        printed = subprocess.run([program, str(PASSES)], check=True, capture_output=True, text=True).stdout
    lines = [line.split() for line in printed.splitlines()]
    return {int(line[0]): tuple(map(float, line[1:])) for line in lines}


if __name__ == "__main__":
    sys.exit(main())
