"""What the daemon serves and how it ends, asked of a running process."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from daemon import ROOT, Daemon, children_of, demo, start, wait_for

SOUND = """
gpus: [{board: h100-sxm, count: 2, loads: [{kind: training}]}, {board: a100-80gb-sxm, mig: [3g.40gb, 1g.10gb]}]
faults: [{kind: garbage, gpu: 0, call: nvmlDeviceGetPowerUsage, value: 4294967295}]
"""
BLOCKED = "gpus: [{board: l40s, count: 2}]\nfaults: [{kind: hang, calls: [nvmlDeviceGetMemoryInfo], seconds: 600}]\n"
UNSTARTED = "gpus: [{board: l40s}]\nfaults: [{kind: hang, calls: [nvmlInit], seconds: 600}]\n"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A sound, ready node that nobody watches."""
    with demo(tmp_path_factory.mktemp("sound"), SOUND, "read.medium_interval=1s", watch=False) as daemon:
        wait_for(lambda: daemon.look().ready, "a ready node")
        yield daemon


def passes(daemon: Daemon) -> float:
    """Fast passes over the GPU whose power sensor tells nonsense, since each counts one."""
    return daemon.look().value("gpuwatch_nvml_rejected_values_total", field="power") or 0.0


def test_scrapes_cause_no_reads(node: Daemon) -> None:
    """A burst of scrapes never makes the reader read more than once a tick (case D16)."""
    started, before = time.monotonic(), passes(node)
    for _ in range(50):
        assert node.get("/metrics").status_code == 200
    after, took = passes(node), time.monotonic() - started
    assert after - before <= took + 2
    assert node.readers == children_of(node.process.pid)
    assert len(node.readers) == 1


def test_openmetrics(node: Daemon) -> None:
    """Both text formats parse strictly, and tell of the same series."""
    answer = node.get("/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    strict = {sample.name for family in parse_openmetrics(answer.text) for sample in family.samples}
    plain = {sample.name for family in parse_text(node.get("/metrics").text) for sample in family.samples}
    assert {name for name in strict if name.startswith("gpuwatch_")} == {name for name in plain if name.startswith("gpuwatch_")}
    assert {"gpuwatch_gpu_up", "gpuwatch_mig_info", "process_cpu_seconds_total"} <= strict


def test_page_and_document(node: Daemon) -> None:
    """The page and the JSON document show the GPUs of the node, and that they are simulated."""
    page = node.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "simulated" in page.text.lower()
    document = node.get("/api/v1/snapshot")
    assert document.headers["content-type"] == "application/json"
    told = json.loads(document.text)
    assert (told["node"], told["simulated"], told["up"], len(told["gpus"])) == ("simulated-node", True, True, 3)
    for gpu in told["gpus"]:
        assert gpu["identity"]["model"] in page.text


def test_scrape_is_clean(node: Daemon) -> None:
    """Promtool has nothing to say about what the running daemon serves, its own process's metrics included."""
    done = subprocess.run(["promtool", "check", "metrics"], input=node.get("/metrics").text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("body", "fault", "number"),
    [(BLOCKED, "stalled", signal.SIGTERM), (UNSTARTED, "starting", signal.SIGINT)],
    ids=["blocked", "unstarted"],
)
def test_stops_while_calls_are_blocked(tmp_path: Path, body: str, fault: str, number: signal.Signals) -> None:
    """Asked to stop while the driver blocks, the daemon leaves with 0 and takes its reader along (case D18)."""
    with demo(tmp_path, body, "read.stall_after=1s", watch=False) as daemon:
        reader = daemon.reader()
        wait_for(lambda: daemon.look().fault() == fault, fault)
        assert daemon.signal(number) == 0
        assert not Path(f"/proc/{reader}").exists()
        assert daemon.events[-1]["event"] == "stopped"
        assert "Traceback" not in daemon.log


def test_reader_dies_with_the_daemon(tmp_path: Path) -> None:
    """A daemon that is killed leaves no reader behind, though it has no time to end it."""
    with demo(tmp_path, BLOCKED, watch=False) as daemon:
        reader = daemon.reader()
        assert daemon.signal(signal.SIGKILL) == -signal.SIGKILL
        wait_for(lambda: not Path(f"/proc/{reader}").exists(), "the reader's end")


def test_node_without_driver(tmp_path: Path) -> None:
    """``run`` where no driver can be loaded never simulates: it stays up, alive and not ready, and says why."""
    with start(["run", "--address", "127.0.0.1", "--node-name", "n1"], tmp_path, watch=False) as daemon:
        if not Path("/dev/nvidiactl").exists():
            wait_for(lambda: daemon.look().fault() == "library_not_found", "the reason")
            seen = daemon.look()
            assert (seen.up(), seen.health[0], seen.readiness[0], seen.device_series) == (0, 200, 503, set())
            assert "libnvidia-ml.so.1" in seen.readiness[1]
        assert daemon.look().value("gpuwatch_build_info", simulated="false", node="n1") == 1


def left(*arguments: str) -> tuple[int, list[str]]:
    """Exit code and lines of standard error of a daemon that cannot start."""
    command = [sys.executable, "-m", "gpuwatch", *arguments, "--set", "log.level=error"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize("command", ["run", "demo"])
def test_port_in_use(command: str) -> None:
    """A port that is taken is exit code 3 and one line that names it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, lines = left(command, "--address", "127.0.0.1", "--port", str(port))
    assert code == 3
    assert len(lines) == 1
    assert f"127.0.0.1:{port}" in lines[0]


def test_wrong_web_configuration(tmp_path: Path) -> None:
    """A web configuration that cannot be used is exit code 3 and one line that names the file and the key."""
    file = tmp_path / "web.yaml"
    file.write_text("basic_auth_usrs: {a: b}\n")
    code, lines = left("run", "--address", "127.0.0.1", "--set", f"server.web_config_file={file}")
    assert code == 3
    assert len(lines) == 1
    assert re.search(r"web\.yaml.*basic_auth_usrs", lines[0])


def test_demo_takes_settings() -> None:
    """``demo`` refuses a wrong setting as every other command does."""
    code, lines = left("demo", "--set", "read.fast_interval=3")
    assert code == 2
    assert len(lines) == 1
    assert "read.fast_interval" in lines[0]
