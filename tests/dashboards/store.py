"""A real Prometheus that holds the film of the demo fleet, with what the shipped rules make of it.

The recording rules are filled in backwards by promtool, as shipped. It cannot do so with alerts; theirs are made series ``ALERTS`` of the
last minutes by recording rules that wait as long as ``for`` says.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import promql_parser
import yaml

from daemon import free_port, wait_for
from dashboards.demo_fleet import CLUSTER, PRICES, SECONDS
from dashboards.film import write_film
from end_to_end.film import STEP_SECONDS as STEP
from gpuwatch.dashboards.query import PRICE
from gpuwatch.rules.pack import rule_file
from health.watched import EPOCH

NOW: Final = EPOCH + SECONDS
"""The end of the film: what the boards show as now."""
_ALERTS_FROM: Final = NOW - 5 * STEP


@dataclass(frozen=True, slots=True)
class Store:
    """Its HTTP API. A query that it refuses raises."""

    url: str
    client: httpx.Client

    def instant(self, expression: str, at: float = NOW) -> list[dict[str, Any]]:
        """The result of an instant query."""
        return self._asked("query", query=expression, time=at)["result"]

    def graph(self, expression: str, seconds: float, step: float = STEP) -> list[dict[str, Any]]:
        """The series of a range query that ends now."""
        return self._asked("query_range", query=expression, start=NOW - seconds, end=NOW, step=step)["result"]

    def values(self, selector: str, label: str) -> list[str]:
        """What Grafana's ``label_values(selector, label)`` finds."""
        return [value for value in self._asked(f"label/{label}/values", **{"match[]": selector, "start": EPOCH, "end": NOW}) if value]

    def _asked(self, path: str, **parameters: str | float) -> Any:
        method = "POST" if path.startswith("query") else "GET"
        given = {"data": parameters} if method == "POST" else {"params": parameters}
        answer = self.client.request(method, f"{self.url}/api/v1/{path}", **given)  # type: ignore[arg-type]
        body = answer.json()
        assert body["status"] == "success", f"{body['error']}: {parameters}"
        return body["data"]


@contextlib.contextmanager
def filled_store(folder: Path) -> Iterator[Store]:
    """Films the fleet, fills a Prometheus and serves it; ended with the block."""
    data = folder / "data"
    data.mkdir()
    for film in write_film(folder):
        _promtool("create-blocks-from", "openmetrics", str(film), str(data))
        film.unlink()
    for number, (rules, start) in enumerate(_layers()):
        # Each layer reads what those before it have recorded, once Prometheus has loaded that.
        file = folder / f"layer-{number}.yml"
        file.write_text(json.dumps({"groups": [{"name": f"layer-{number}", "rules": rules}]}))
        with _running(folder, data) as url:
            times = [f"--start={start:.0f}", f"--end={NOW:.0f}", f"--eval-interval={STEP:.0f}s"]
            _promtool("create-blocks-from", "rules", *times, f"--url={url}", f"--output-dir={data}", str(file))
    with _running(folder, data) as url, httpx.Client(timeout=60) as client:
        yield Store(url, client)


def _layers() -> list[tuple[list[dict[str, Any]], float]]:
    """Rules that read no other, those that read them, and so on; the alerts last. With when each begins."""
    rules = [rule for group in yaml.safe_load(rule_file())["groups"] for rule in group["rules"]]
    waiting = [rule for rule in rules if "record" in rule]
    prices = [{"record": PRICE, "expr": f"vector({price})", "labels": {"model": model}} for model, price in PRICES.items()]
    layers: list[tuple[list[dict[str, Any]], float]] = [(prices, EPOCH)]
    while waiting:
        ready = [rule for rule in waiting if not any(other["record"] in rule["expr"] for other in waiting if other is not rule)]
        waiting = [rule for rule in waiting if rule not in ready]
        layers.append((ready, EPOCH))
    layers[0][0].extend(layers.pop(1)[0])
    return [*layers, ([_as_series(rule) for rule in rules if "alert" in rule], _ALERTS_FROM)]


def _as_series(alert: dict[str, Any]) -> dict[str, Any]:
    """The alert as the series that Prometheus would write while it fires."""
    expression = alert["expr"]
    if "for" in alert:
        waits = promql_parser.parse_duration(alert["for"]).total_seconds()
        expression = f"count_over_time(({expression})[{waits:.0f}s:{STEP:.0f}s]) >= {waits // STEP:.0f}"
    labels = {"alertname": alert["alert"], "alertstate": "firing", **alert["labels"]}
    return {"record": "ALERTS", "expr": f"({expression}) * 0 + 1", "labels": labels}


def _promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", "tsdb", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@contextlib.contextmanager
def _running(folder: Path, data: Path) -> Iterator[str]:
    program = shutil.which("prometheus")
    assert program, "Prometheus is not installed; make tools gets it"
    configuration, port = folder / "prometheus.yml", free_port()
    configuration.write_text(json.dumps({"global": {"external_labels": {"cluster": CLUSTER}}}))
    flags: Sequence[str] = (
        f"--config.file={configuration}", f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([program, *flags], stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    try:
        wait_for(lambda: process.poll() is not None or _ready(url), "a ready Prometheus")
        assert process.poll() is None, (folder / "prometheus.log").read_text()
        yield url
    finally:
        process.terminate()
        process.wait()


def _ready(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/-/ready").status_code == 200
    return False
