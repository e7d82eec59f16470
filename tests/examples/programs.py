"""Real programs that train with TensorFlow on the processor, each in a process of its own, and what they left behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families as parse_text

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "tensorflow"
PATIENCE_SECONDS = 240.0
"""No promise of speed: what has not come by then never comes."""
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Training:
    """A program that was started."""

    process: subprocess.Popen[str]
    folder: Path
    """Its text files."""
    port: int | None
    """Its endpoint."""

    def scrape(self) -> Told:
        """The first answer of its endpoint with steps in it, while it trains."""
        end, url = time.monotonic() + PATIENCE_SECONDS, f"http://127.0.0.1:{self.port}/metrics"
        while self.process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(httpx.TransportError):
                told = Told(httpx.get(url).raise_for_status().text)
                if told.value("steps_total"):
                    return told
            time.sleep(_PAUSE_SECONDS)
        raise AssertionError(f"no step was seen at {url}; {self.process.poll()=}")

    def end(self) -> str:
        """Wait for it; returns what it printed."""
        printed, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert self.process.returncode == 0, printed
        return printed

    def told(self, pod: str) -> Told:
        """The text file of a pod, read when the program has ended."""
        found = [path for path in self.folder.iterdir() if f"_{pod}_" in path.name]
        assert [path.suffix for path in found] == [".prom"], f"{pod}: {sorted(path.name for path in self.folder.iterdir())}"
        return Told(found[0].read_text(encoding="utf-8"))


class Told:
    """Samples of one process."""

    def __init__(self, text: str) -> None:
        self.samples = [sample for family in parse_text(text) for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The one sample of ``gpuwatch_tensorflow_<name>`` with these labels."""
        [found] = [one for one in self.samples if one.name == f"gpuwatch_tensorflow_{name}" and labels.items() <= one.labels.items()]
        return float(found.value)

    def seconds(self, phase: str) -> float:
        """In a phase."""
        return self.value("phase_seconds_total", phase=phase)

    def labels(self, name: str) -> dict[str, str]:
        """Of the one sample of that name."""
        [found] = [one.labels for one in self.samples if one.name == f"gpuwatch_tensorflow_{name}"]
        return dict(found)


def start(program: Path, *arguments: str, folder: Path, port: int | None = None, **environment: str) -> Training:
    """Start ``python PROGRAM ARGUMENTS``; what it exports goes to ``folder``, and to a port if there is one."""
    folder.mkdir(exist_ok=True)
    given = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "POD_NAMESPACE": "research",
        "GPUWATCH_TEXTFILE_DIRECTORY": str(folder),
        "GPUWATCH_TENSORFLOW_PORT": str(port or "off"),
        **environment,
    }
    command = [sys.executable, str(program), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=given, cwd=folder)
    return Training(process, folder, port)
