"""How long a fault takes to be seen: from when it strikes to the scrape that shows its metric, and to the one that shows the verdict.

A simulated node with eight GPUs under load runs in real time in the daemon at its default tiers; each GPU gets one fault, at a moment of
its own. ``/metrics`` is asked twenty times a second. Each fault comes with an XID, whose own time (its ``last_timestamp``) is that of the
fault. Targets: 2 s for what the driver tells by itself, one medium read (10 s) for what only a counter shows.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from table import show

PORT = 19841
ROUNDS = 3
EVENT_SECONDS, MEDIUM_SECONDS = 2.0, 10.0
SPARE_SECONDS = 5.0
LAST_SEEN, STATE = "gpuwatch_gpu_xid_last_timestamp_seconds", "gpuwatch_gpu_health_state"


@dataclass(frozen=True)
class Case:
    """One fault: as a scenario writes it, its metric (name and label), the value from which on it is shown, and the target in seconds."""

    name: str
    fault: str
    metric: str
    label: tuple[str, str] | None
    shown: float
    target: float
    marker: bool = False
    """The fault tells no XID itself: one is written beside it."""


CASES = (
    Case("XID by both sources", "kind: xid, code: 119", LAST_SEEN, ("xid", "119"), 1, EVENT_SECONDS),
    Case("XID by NVML only", "kind: xid, code: 62, source: nvml", LAST_SEEN, ("xid", "62"), 1, EVENT_SECONDS),
    Case("XID by the kernel log only", "kind: xid, code: 95, source: kernel_log", LAST_SEEN, ("xid", "95"), 1, EVENT_SECONDS),
    Case("GPU lost", "kind: gpu-lost", "gpuwatch_gpu_up", None, -0.5, EVENT_SECONDS),
    Case("uncorrected ECC error", "kind: ecc-uncorrected", "gpuwatch_gpu_ecc_errors_total", ("severity", "uncorrected"), 1, MEDIUM_SECONDS),
    Case("row remap failed", "kind: remapped-rows, failed: true", "gpuwatch_gpu_row_remap_failed", None, 1, MEDIUM_SECONDS),
    Case("recovery action", "kind: recovery-action, action: 2", "gpuwatch_gpu_recovery_action", None, 2, MEDIUM_SECONDS, True),
    Case("NVLink down", "kind: nvlink-down, link: 3", "gpuwatch_gpu_nvlink_up", ("link", "3"), -0.5, MEDIUM_SECONDS),
)


@dataclass
class Seen:
    """What the scrapes showed of one GPU, Unix time in seconds."""

    struck: float | None = None
    metric: float | None = None
    verdict: float | None = None


def main() -> int:
    """Measure and print."""
    runs = [measure(shift=7.3 * number) for number in range(ROUNDS)]
    rows = []
    for index, case in enumerate(CASES):
        of_case = [run[index] for run in runs]
        rows.append((case.name, delay(of_case, "metric"), delay(of_case, "verdict"), f"{case.target:g}"))
    show(f"From fault to metric, worst of {ROUNDS}, seconds", ("fault", "metric", "verdict", "target"), rows)
    return 0


def delay(seen: list[Seen], what: str) -> str:
    """The longest delay, or what was not seen."""
    times = [(getattr(one, what), one.struck) for one in seen]
    if any(shown is None or struck is None for shown, struck in times):
        return "-"
    return f"{max(shown - struck for shown, struck in times):.2f}"


def measure(*, shift: float) -> list[Seen]:
    """One life of the daemon."""
    strikes = [12.0 + shift + 1.7 * gpu for gpu in range(len(CASES))]
    faults = [f"  - {{{case.fault}, gpu: {gpu}, from: {at}}}" for gpu, (case, at) in enumerate(zip(CASES, strikes, strict=True))]
    faults += [f"  - {{kind: xid, code: 43, gpu: {gpu}, from: {strikes[gpu]}}}" for gpu, case in enumerate(CASES) if case.marker]
    text = (
        "name: bench\ndescription: One fault a GPU.\nseed: 1\ngpus:\n  - {board: h200-sxm, count: 8, loads: [{kind: training}]}\nfaults:\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench.yaml"
        file.write_text(text + "\n".join(faults) + "\n")
        command = [sys.executable, "-m", "gpuwatch", "demo", "--scenario", str(file), "--port", str(PORT)]
        daemon = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return watch(until=time.time() + strikes[-1] + MEDIUM_SECONDS + SPARE_SECONDS)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()


def watch(*, until: float) -> list[Seen]:
    """Scrape until then."""
    seen = [Seen() for _ in CASES]
    while time.time() < until:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics") as answer:
                text = answer.read().decode()
        except OSError:
            text = ""
        now = time.time()
        for sample in samples(text):
            gpu = int(sample.labels["gpu"])
            note(seen[gpu], CASES[gpu], sample, now)
        time.sleep(0.05)
    return seen


def samples(text: str) -> Iterator[Sample]:
    """Those that the cases ask for."""
    wanted = {LAST_SEEN, STATE, *(case.metric for case in CASES)}
    lines = [line for line in text.splitlines() if line.partition("{")[0] in wanted]
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        yield from family.samples


def note(seen: Seen, case: Case, sample: Sample, now: float) -> None:
    """One sample of the GPU."""
    labels, value = sample.labels, sample.value
    if sample.name == LAST_SEEN and seen.struck is None:
        seen.struck = value
    matches = sample.name == case.metric and (case.label is None or labels.get(case.label[0]) == case.label[1])
    # A negative threshold: the value falls to it.
    if seen.metric is None and matches and (value >= case.shown if case.shown > 0 else value <= -case.shown):
        seen.metric = now
    if seen.verdict is None and sample.name == STATE and value and labels["state"] in ("degraded", "failed"):
        seen.verdict = now


if __name__ == "__main__":
    sys.exit(main())
