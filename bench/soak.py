"""What the daemon says of a real node over a while: verdicts, sources of faults, XIDs, throttling. Under load nothing must be invented.

``python bench/soak.py SECONDS [FILE]`` starts ``gpuwatch run``, asks it once a second and prints a summary; the load on the GPU is
yours. With a FILE the summary is also written there every 30 s, so that a run that is cut off is not lost.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

PORT = 19843
SAVE_SECONDS = 30.0
COUNTERS = ("gpuwatch_gpu_xid_errors_total", "gpuwatch_gpu_throttled_seconds_total", "gpuwatch_gpu_ecc_errors_total")


class Summary:
    """What was seen so far."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.answers, self.failures = 0, 0
        self.states: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.sources: Counter[str] = Counter()
        self.last: dict[str, float] = {}

    def take(self, text: str) -> None:
        """One answer."""
        self.answers += 1
        self.last = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = sample.labels
                gpu = labels.get("gpu", "")
                if sample.name == "gpuwatch_gpu_health_state" and sample.value:
                    self.states[f"GPU {gpu} {labels['state']}"] += 1
                elif sample.name == "gpuwatch_gpu_health_reason":
                    self.reasons[f"GPU {gpu} {labels['reason']}"] += 1
                elif sample.name == "gpuwatch_xid_source_up":
                    self.sources[f"{labels['source']} {'up' if sample.value else 'down'}"] += 1
                elif sample.name in (
                    "gpuwatch_gpu_xid_errors_total",
                    "gpuwatch_gpu_throttled_seconds_total",
                    "gpuwatch_gpu_ecc_errors_total",
                ):
                    told = " ".join(f"{key}={value}" for key, value in labels.items() if key not in ("node", "uuid", "model", "category"))
                    self.last[f"{sample.name} {told}"] = sample.value

    def shown(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "seconds": round(time.monotonic() - self.begun, 1),
            "answers": self.answers,
            "failures": self.failures,
            "states": dict(self.states),
            "reasons": dict(self.reasons),
            "sources": dict(self.sources),
            "counters that are not zero": {name: value for name, value in self.last.items() if value},
        }


def main() -> int:
    """Watch and print."""
    seconds, file = float(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None
    command = [sys.executable, "-m", "gpuwatch", "run", f"--port={PORT}", "--address=127.0.0.1"]
    daemon = subprocess.Popen(command)
    summary = Summary()
    saved = 0.0
    try:
        while time.monotonic() - summary.begun < seconds and daemon.poll() is None:
            time.sleep(1)
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=5) as answer:
                    summary.take(answer.read().decode())
            except OSError:
                summary.failures += 1
            if file is not None and time.monotonic() - saved > SAVE_SECONDS:
                file.write_text(json.dumps(summary.shown(), indent=1))
                saved = time.monotonic()
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait()
        text = json.dumps(summary.shown(), indent=1)
        if file is not None:
            file.write_text(text)
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
