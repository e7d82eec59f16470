"""The real daemon as a process of its own, on a free port, with a watch that notes every answer it gives while a test looks on."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import httpx
from prometheus_client.parser import text_string_to_metric_families as parse_text

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 45.0
"""No promise of speed: what has not come by then never comes."""
_PAUSE_SECONDS = 0.3
_PLAIN = ssl.create_default_context()
"""Made once: nothing here speaks TLS, and a client that makes its own reads all certificates of the system."""
_LOWEST_PORT, _PORT_COUNT = 16_384, 16_384
_PORTS = (_LOWEST_PORT + (64 * os.getpid() + number) % _PORT_COUNT for number in itertools.count())
_PER_GPU = re.compile(r"gpuwatch_(gpu|mig)_")


@dataclass(frozen=True)
class Seen:
    """What the daemon answered at one moment. ``at`` is CLOCK_MONOTONIC before the questions."""

    at: float
    exposition: str
    health: tuple[int, str]
    readiness: tuple[int, str]

    @cached_property
    def samples(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Values by name and sorted labels."""
        found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        for family in parse_text(self.exposition):
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert key not in found, f"{key} stands twice in one scrape"
                found[key] = sample.value
        return found

    @property
    def counters(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """The samples of counters."""
        return {key: value for key, value in self.samples.items() if key[0].endswith("_total")}

    @property
    def device_series(self) -> set[str]:
        """Names of the metrics about GPUs."""
        return {name for name, _ in self.samples if _PER_GPU.match(name)}

    @property
    def ready(self) -> bool:
        """True when both the readiness probe and the exposition say so; they were asked one after the other."""
        return self.readiness[0] == 200 and self.up() == 1

    def value(self, name: str, **labels: str) -> float | None:
        """The one sample with these labels; ``None`` where there is none."""
        found = [value for (other, pairs), value in self.samples.items() if other == name and labels.items() <= dict(pairs).items()]
        assert len(found) <= 1, f"{name}{labels} names {len(found)} samples"
        return found[0] if found else None

    def up(self, gpu: int | None = None) -> float | None:
        """``gpuwatch_gpu_up`` of a GPU, or ``gpuwatch_up``."""
        return self.value("gpuwatch_up") if gpu is None else self.value("gpuwatch_gpu_up", gpu=str(gpu))

    def fault(self, gpu: int | None = None) -> str:
        """The reason of a GPU that is down, or of the node; empty when there is none."""
        name = "gpuwatch_fault" if gpu is None else "gpuwatch_gpu_fault"
        wanted = {} if gpu is None else {"gpu": str(gpu)}
        found = [dict(pairs)["reason"] for other, pairs in self.samples if other == name and wanted.items() <= dict(pairs).items()]
        return ",".join(found)


@dataclass
class Daemon:
    """A started gpuwatch. ``seen`` grows while it runs."""

    process: subprocess.Popen[bytes]
    url: str
    log_path: Path
    seen: list[Seen] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def get(self, path: str, **headers: str) -> httpx.Response:
        """One request on a connection of its own."""
        return httpx.get(self.url + path, headers=headers, timeout=PATIENCE_SECONDS, verify=_PLAIN)

    def look(self) -> Seen:
        """Ask for metrics and both probes."""
        at = time.monotonic()
        with httpx.Client(base_url=self.url, timeout=PATIENCE_SECONDS, verify=_PLAIN) as client:
            answers = [client.get(path) for path in ("/metrics", "/healthz", "/readyz")]
        return Seen(at, answers[0].raise_for_status().text, *((one.status_code, one.text) for one in answers[1:]))

    def until(self, condition: Callable[[Seen], bool], what: str, *, after: float = 0.0) -> Seen:
        """The first moment from ``after`` on at which ``condition`` held; waits for it while the watch goes on."""
        end = time.monotonic() + PATIENCE_SECONDS
        checked = 0
        while True:
            for one in self.seen[checked:]:
                if one.at >= after and condition(one):
                    return one
                checked += 1
            if self.broken or self.process.poll() is not None or time.monotonic() > end:
                last = self.seen[-1].exposition[:3000] if self.seen else "nothing"
                raise AssertionError(f"never seen: {what}\nbroken: {self.broken}\nlog:\n{self.log}\nlast seen:\n{last}")
            time.sleep(_PAUSE_SECONDS)

    @property
    def log(self) -> str:
        """Standard error so far."""
        return self.log_path.read_text()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The log's JSON lines."""
        return [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]

    @property
    def readers(self) -> list[int]:
        """Process ids of the children: the reader, or none between two of them."""
        return children_of(self.process.pid)

    def reader(self) -> int:
        """Process id of the one reader."""
        return wait_for(lambda: self.readers, "a reader")[0]

    def signal(self, number: int) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        self._end_watch()
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)

    def begin_watch(self) -> None:
        """Look again and again, from a thread."""
        self._thread = threading.Thread(target=self._watch, name="watch")
        self._thread.start()

    def stop(self) -> None:
        """End it whatever state it is in."""
        self._end_watch()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _watch(self) -> None:
        while not self._stop.wait(_PAUSE_SECONDS):
            try:
                self.seen.append(self.look())
            except httpx.HTTPError as error:
                if self._stop.is_set():
                    return
                self.broken.append(repr(error))

    def _end_watch(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def children_of(pid: int) -> list[int]:
    """Process ids of the living children."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    return []


def wait_for(question: Callable[[], T], what: str) -> T:
    """Ask until the answer is true; returns it."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if answer := question():
            return answer
        time.sleep(_PAUSE_SECONDS / 5)
    raise AssertionError(f"never came: {what}")


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on, and that the system gives to nobody else before it is used."""
    while True:
        port = next(_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def write_scenario(folder: Path, body: str) -> Path:
    """A scenario file with these GPUs and faults."""
    path = folder / "scenario.yaml"
    path.write_text(f"name: test\ndescription: A test.\n{body}")
    return path


@contextlib.contextmanager
def start(command: list[str], folder: Path, *, watch: bool = True) -> Iterator[Daemon]:
    """``python -m gpuwatch COMMAND --port FREE``, listening; ended with the block, whatever happens in it."""
    port, log_path = free_port(), folder / "daemon.log"
    environment = {"PATH": os.defpath, "HOME": "/nonexistent", "GPUWATCH_LOG__FORMAT": "json"}
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuwatch", *command, "--port", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=environment,
            cwd=ROOT,
        )
    daemon = Daemon(process, f"http://127.0.0.1:{port}", log_path)
    try:
        wait_for(lambda: process.poll() is not None or _listens(port), f"a listener on port {port}")
        assert process.poll() is None, f"left with {process.returncode}: {daemon.log}"
        if watch:
            daemon.begin_watch()
        yield daemon
    finally:
        daemon.stop()


@contextlib.contextmanager
def demo(folder: Path, body: str, *settings: str, watch: bool = True) -> Iterator[Daemon]:
    """``gpuwatch demo`` over the scenario with these GPUs and faults."""
    pairs = [part for pair in settings for part in ("--set", pair)]
    with start(["demo", "--scenario", str(write_scenario(folder, body)), "--log-level", "debug", *pairs], folder, watch=watch) as daemon:
        yield daemon


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
