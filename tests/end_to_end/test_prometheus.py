"""A real Prometheus server scrapes the real daemon, and promtool reads every shipped scenario."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from daemon import ROOT, Daemon, demo, wait_for
from gpuwatch.device.simulated import scenario_names
from prometheus import Prometheus, prometheus

NODE = """
driver: "580.159.04"
gpus:
  - {board: h200-sxm, count: 2, loads: [{kind: training}]}
  - {board: a100-80gb-sxm, mig: [3g.40gb, 1g.10gb], loads: [{kind: matmul, mig: 0}]}
  - {board: t4}
"""
CONFIGURATION = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: gpuwatch
    honor_labels: true
    static_configs: [{{targets: ["{target}"]}}]
"""
MOMENTS = {
    "driver-late": ("30", "70"),
    "driver-upgrade": ("70", "100"),
    "no-gpu": ("10", "400"),
}
"""Seconds into a scenario: amid and after its faults. Elsewhere one moment shows all that is there."""


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Prometheus]]:
    """A daemon, and the Prometheus that scrapes it every second."""
    folder = tmp_path_factory.mktemp("prometheus")
    with demo(folder, NODE, "read.medium_interval=1s", watch=False) as daemon:
        wait_for(lambda: daemon.look().ready, "a ready node")
        configuration = CONFIGURATION.format(target=daemon.url.removeprefix("http://"))
        with prometheus(folder, configuration, "--log.level=debug") as server:
            wait_for(lambda: server.query("sum_over_time(up[1m])").get("", 0) >= 3, "three scrapes")
            yield daemon, server


def test_every_scrape_is_good(scraped: tuple[Daemon, Prometheus]) -> None:
    """Prometheus finds the target up in each scrape, and its log knows of no duplicate, rejected or unparsable sample."""
    _, server = scraped
    assert server.query("min_over_time(up[1m])") == {"": 1.0}
    [target] = server.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    log = server.log.read_text()
    assert "level=warn" not in log.replace("component=tsdb", ""), log
    for trouble in ("level=error", "duplicate", "out-of-order", "out of order", "append failed", "Scrape failed"):
        assert trouble not in log, log


def test_series_arrive_as_they_are_served(scraped: tuple[Daemon, Prometheus]) -> None:
    """All series of a scrape are stored, under the labels the daemon gave them."""
    daemon, server = scraped
    served = daemon.look()
    assert server.query("gpuwatch_gpu_up") == {"0": 1.0, "1": 1.0, "2": 1.0, "3": 1.0}
    assert server.query("scrape_samples_scraped") == server.query("scrape_samples_post_metric_relabeling")
    names = {name for name, _ in served.samples if name.startswith("gpuwatch_")}
    assert names <= set(server.ask("label/__name__/values"))
    assert not [label for label in server.ask("labels") if label.startswith("exported_")]
    stored = {one["node"] for one in server.ask("series", **{"match[]": "gpuwatch_up"})}
    assert stored == {"simulated-node"}


def test_counters_have_rates(scraped: tuple[Daemon, Prometheus]) -> None:
    """A rate of busy seconds is the share of time a GPU worked, one of joules its power, as the documents say."""
    _, server = scraped
    busy = server.query("rate(gpuwatch_gpu_busy_seconds_total[1m])")
    watts = server.query("rate(gpuwatch_gpu_energy_joules_total[1m])")
    assert busy["3"] == 0.0
    assert 0.0 < busy["0"] <= 2.0
    assert watts["0"] > watts["3"] > 0.0


def test_metadata_is_known(scraped: tuple[Daemon, Prometheus]) -> None:
    """Prometheus knows type and help of each metric that was scraped."""
    daemon, server = scraped
    told = server.ask("metadata")
    for name in {name for name, _ in daemon.look().samples if name.startswith("gpuwatch_")}:
        [metadata] = told[name.removesuffix("_total")]  # OpenMetrics, which Prometheus asks for, names the family of a counter
        assert metadata["type"] == ("counter" if name.endswith("_total") else "gauge")
        assert metadata["help"]


def complaint_of(moment: tuple[str, str]) -> str:
    """What promtool says of a scenario at a moment; empty when it is content."""
    scenario, at = moment
    command = [sys.executable, "-m", "gpuwatch", "once", "--scenario", scenario, "--at", at]
    once = subprocess.run(command, capture_output=True, check=False, cwd=ROOT)
    assert once.returncode in (0, 1), once.stderr.decode()
    done = subprocess.run(["promtool", "check", "metrics"], input=once.stdout, capture_output=True, check=False)
    text = (done.stdout + done.stderr).decode()
    return f"{scenario} at {at}: {text}" if done.returncode or text else ""


def test_promtool_reads_every_scenario() -> None:
    """Whatever a shipped scenario does, at its start, amid its faults and after them, its exposition is clean."""
    moments = [(name, at) for name in scenario_names() for at in MOMENTS.get(name, ("70",))]
    with ThreadPoolExecutor(4) as pool:
        assert [text for text in pool.map(complaint_of, moments) if text] == []
