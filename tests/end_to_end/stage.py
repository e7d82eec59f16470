"""A real Prometheus and a real Alertmanager on a clock that runs fast: films of nodes go in, notifications come out."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import yaml

from daemon import free_port, wait_for
from end_to_end.fast_clock import fast_configuration, fast_rules
from end_to_end.film import STEP_SECONDS, Frame
from gpuwatch.rules.alertmanager import configuration
from health.watched import EPOCH

FACTOR = 60.0
"""So much faster than the world: an hour is a minute."""
_SCRAPE, _EVALUATE = "1s", "500ms"
_PATIENT_SECONDS = 30.0
_FAILURES = re.compile(r'^prometheus_rule_evaluation_failures_total\{.*;(.*)"\} (\S+)$', re.MULTILINE)
_MISSED = re.compile(r"^prometheus_rule_group_iterations_missed_total\{.*\} (\S+)$", re.MULTILINE)
_HELD = re.compile(r"Held by \w+ (\S+) \(pod")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One alert as a receiver was told of it. ``job``: whom it hits, ``-`` where nobody."""

    target: str
    alert: str
    severity: str
    receiver: str
    job: str

    def __str__(self) -> str:
        return f"{self.alert} {self.severity} {self.receiver} {self.job}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is scraped under one name."""

    frames: tuple[Frame | None, ...]
    """``None``: the agent does not answer."""
    extra: str = ""
    agents: int = 1
    """Two, where an old pod and a new one serve the same node."""


@dataclass
class Stage:
    """Serves the targets as time goes by and takes the notifications."""

    targets: Mapping[str, Target]
    began: float = field(default_factory=time.time)
    told: set[Told] = field(default_factory=set)
    payloads: list[dict[str, Any]] = field(default_factory=list)
    given_up: int = 0
    """Scrapes that Prometheus did not wait for."""
    prometheus: str = ""
    """Where the Prometheus is."""
    alertmanager: str = ""

    @property
    def now(self) -> float:
        """Seconds of the films."""
        return (time.time() - self.began) * FACTOR

    def wall(self, at: float) -> float:
        """The Unix time on the stage of a Unix time in a film."""
        return self.began + (at - EPOCH) / FACTOR

    def scrape(self, name: str) -> bytes | None:
        """The exposition of now; ``None`` while the agent does not answer."""
        target = self.targets[name]
        frame = target.frames[min(int(self.now / STEP_SECONDS), len(target.frames) - 1)]
        return None if frame is None else frame.text(self.wall) + target.extra.encode()

    def take(self, payload: dict[str, Any]) -> None:
        """One notification."""
        self.payloads.append(payload)
        for alert in payload["alerts"]:
            if alert["status"] == "firing":
                labels = alert["labels"]
                receiver = payload["receiver"].removeprefix("gpuwatch-")
                job = f"{labels['namespace']}/{labels['job_name']}" if labels.get("job_name") else _held(alert["annotations"])
                name, severity = labels["alertname"], labels["severity"]
                self.told.add(Told(target=labels["cluster"], alert=name, severity=severity, receiver=receiver, job=job))

    @property
    def late(self) -> int:
        """Scrapes that were given up and evaluations that were left out, because this machine had no time for them."""
        metrics = httpx.get(f"{self.prometheus}/metrics").raise_for_status().text
        return self.given_up + sum(round(float(one[1])) for one in _MISSED.finditer(metrics))

    def failed_rules(self) -> dict[str, str]:
        """Rules whose evaluation ever failed, by group, with what the last of them said."""
        metrics = httpx.get(f"{self.prometheus}/metrics").raise_for_status().text
        found = {one[1]: float(one[2]) for one in _FAILURES.finditer(metrics)}
        groups = httpx.get(f"{self.prometheus}/api/v1/rules").raise_for_status().json()["data"]["groups"]
        assert set(found) == {group["name"] for group in groups}
        said = {group["name"]: "; ".join(rule["lastError"] for rule in group["rules"] if rule.get("lastError")) for group in groups}
        return {group: said[group] for group, count in found.items() if count}

    def of(self, name: str) -> set[str]:
        """What was told of one target."""
        # A copy, since notifications come in meanwhile.
        return {str(told) for told in self.told.copy() if told.target == name}

    def recorded(self, series: str, span: str) -> list[tuple[float, dict[str, str], float]]:
        """Every sample of that time span: Unix time, labels, value."""
        asked = {"query": f"{series}[{span}]"}
        answer = httpx.get(f"{self.prometheus}/api/v1/query", params=asked, timeout=_PATIENT_SECONDS).raise_for_status().json()
        found = answer["data"]["result"]
        return [(float(at), one["metric"], float(value)) for one in found for at, value in one["values"]]

    def silenced(self) -> set[tuple[str, str]]:
        """Target and name of each alert that another one explains."""
        alerts = httpx.get(f"{self.alertmanager}/api/v2/alerts", timeout=_PATIENT_SECONDS).raise_for_status().json()
        return {(one["labels"]["cluster"], one["labels"]["alertname"]) for one in alerts if one["status"]["inhibitedBy"]}


def _held(annotations: dict[str, str]) -> str:
    return ",".join(sorted(set(_HELD.findall(annotations["description"])))) or "-"


@contextlib.contextmanager
def staged(
    targets: Mapping[str, Target], folder: Path, *, beside: Iterable[dict[str, Any]] = (), values: Mapping[str, str] | None = None
) -> Iterator[Stage]:
    """Everything runs; ended with the block. ``beside``: more scrape configurations; ``values``: of the rules, instead of the defaults."""
    stage = Stage(targets)
    with _served(stage) as port, _alertmanager(folder, port) as alertmanager:
        stage.alertmanager = f"http://127.0.0.1:{alertmanager}"
        stage.began = time.time()
        (folder / "rules.yml").write_text(json.dumps(fast_rules(FACTOR, values)))
        with _prometheus(folder, stage, port, beside):
            yield stage


@contextlib.contextmanager
def _served(stage: Stage) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = stage.scrape(unquote(self.path).removeprefix("/"))
            self._answer(503 if body is None else 200, body or b"")

        def do_POST(self) -> None:
            stage.take(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer(200, b"")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 128

        def handle_error(self, *_: object) -> None:
            stage.given_up += 1

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="stage")
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def _alertmanager(folder: Path, webhooks: int) -> Iterator[int]:
    file, port = folder / "alertmanager.yml", free_port()
    file.write_text(yaml.safe_dump(fast_configuration(configuration(f"http://127.0.0.1:{webhooks}"), FACTOR)))
    flags = [f"--config.file={file}", f"--storage.path={folder / 'alertmanager'}", f"--web.listen-address=127.0.0.1:{port}"]
    with _running("prometheus-alertmanager", [*flags, "--cluster.listen-address="], folder, f"http://127.0.0.1:{port}/-/ready"):
        yield port


@contextlib.contextmanager
def _prometheus(folder: Path, stage: Stage, port: int, beside: Iterable[dict[str, Any]]) -> Iterator[None]:
    targets = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"__metrics_path__": f"/{name}", "cluster": name, "instance": agent, "node": "node-1"}}
        for name, target in stage.targets.items()
        for agent in ("old", "new")[: target.agents]
    ]
    file, address = folder / "prometheus.yml", free_port()
    body = {
        "global": {"scrape_interval": _SCRAPE, "scrape_timeout": _SCRAPE, "evaluation_interval": _EVALUATE},
        "rule_files": ["rules.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [stage.alertmanager.removeprefix("http://")]}]}]},
        "scrape_configs": [{"job_name": "gpuwatch", "honor_labels": True, "static_configs": targets}, *beside],
    }
    file.write_text(yaml.safe_dump(body))
    stage.prometheus = f"http://127.0.0.1:{address}"
    flags = [f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{address}"]
    with _running("prometheus", [*flags, "--query.lookback-delta=5s"], folder, f"{stage.prometheus}/-/ready"):
        yield


@contextlib.contextmanager
def _running(name: str, flags: list[str], folder: Path, ready: str) -> Iterator[None]:
    program = shutil.which(name)
    assert program, f"{name} is not installed; make tools gets it"
    log_path = folder / f"{name}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen([program, *flags], stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    try:
        wait_for(lambda: process.poll() is not None or _answers(ready), f"a ready {name}")
        assert process.poll() is None, log_path.read_text()
        yield
    finally:
        process.terminate()
        process.wait()


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(url).status_code == 200
    return False


def until(condition: Callable[[], bool], *, patience: float) -> bool:
    """Whether the condition came true; no promise of speed: what has not come by then never comes."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.2)
    return condition()
