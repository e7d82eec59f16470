"""The command line, run as a person runs it: as a process of its own."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from daemon import free_port
from gpuwatch import __version__

ROOT = Path(__file__).parents[1]
COMMANDS = ("run", "once", "demo", "scenarios", "record", "check", "generate", "top")


def gpuwatch(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``gpuwatch`` with these arguments and environment variables, nothing else from this process's environment."""
    environment = {"PATH": os.defpath, "HOME": "/nonexistent"} | variables
    command = [sys.executable, "-m", "gpuwatch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)


def refusal(done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """The one line on standard error with which a command left with ``code``."""
    assert (done.returncode, done.stdout) == (code, "")
    [line] = done.stderr.splitlines()
    return line


def test_version() -> None:
    """--version prints the package's version."""
    done = gpuwatch("--version")
    assert (done.returncode, done.stdout) == (0, f"gpuwatch {__version__}\n")


def test_help_lists_commands_and_exit_codes() -> None:
    """--help names every command and says what each exit code means."""
    done = gpuwatch("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\S", done.stdout, flags=re.MULTILINE)
    for code in range(5):
        assert re.search(rf"^ +{code}  \S", done.stdout, flags=re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command(command: str) -> None:
    """Each command explains itself, each of its options too."""
    done = gpuwatch(command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: gpuwatch {command}")


@pytest.mark.parametrize(
    "arguments", [("fly",), ("run", "--fly"), ("once", "--format", "xml"), ("once", "--at", "3"), ("record", "--seconds", "0")]
)
def test_wrong_command_line(arguments: tuple[str, ...]) -> None:
    """A wrong command line is exit code 2 with usage."""
    done = gpuwatch(*arguments)
    assert done.returncode == 2
    assert "Usage:" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_settings(tmp_path: Path) -> None:
    """A wrong setting from any source is exit code 2 with one line that names the source, the key and the range."""
    file = tmp_path / "config.yaml"
    file.write_text("read: {fast_interval: 3}", encoding="utf-8")
    line = refusal(gpuwatch("run", "--config", str(file)))
    assert line.startswith(f"gpuwatch: configuration file {file}: read.fast_interval: 3 is not allowed; expected a duration")
    assert "read.fast_interval" in refusal(gpuwatch("run", GPUWATCH_CONFIG=str(file)))
    assert "is a directory" in refusal(gpuwatch("run", "--config", str(tmp_path)))
    assert "No such file" in refusal(gpuwatch("check", "--config", str(tmp_path / "none.yaml")))
    assert "GPUWATCH_SERVER__PORT" in refusal(gpuwatch("run", GPUWATCH_SERVER__PORT="x"))
    assert "server.port: '70000'" in refusal(gpuwatch("run", "--port", "70000"))
    assert "server.port: '70000'" in refusal(gpuwatch("demo", "--port", "70000"))
    assert "expected KEY=VALUE" in refusal(gpuwatch("run", "--set", "server.port"))
    assert "did you mean server.port?" in refusal(gpuwatch("run", "--set", "server.prt=1"))


def test_scenarios_have_a_sentence_each() -> None:
    """Each scenario is listed with a sentence."""
    done = gpuwatch("scenarios")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) >= 10
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+ {2,}\S.*\.", line)] == []


def test_unknown_scenario() -> None:
    """An unknown scenario is refused with the names of those that exist."""
    done = gpuwatch("once", "--scenario", "nowhere")
    assert done.returncode == 2
    assert "no scenario 'nowhere'; expected a file or one of:" in done.stderr
    assert "mixed-fleet" in done.stderr


@pytest.mark.parametrize("text", ["gpus: [", "foo: 1", "", "name: x\ndescription: x\ngpus: [{board: nosuch}]", "\t"])
@pytest.mark.parametrize("command", ["once", "check", "demo"])
def test_broken_scenario(tmp_path: Path, command: str, text: str) -> None:
    """A scenario file that cannot be used is a mistake of the command line, refused in one line that names the file."""
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    assert "mine.yaml" in refusal(gpuwatch(command, "--scenario", str(file)))


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "1e300"])
def test_no_moment_of_a_scenario(seconds: str) -> None:
    """What is no number of seconds within a range is refused."""
    assert gpuwatch("once", "--scenario", "idle", "--at", seconds).returncode == 2
    assert gpuwatch("record", "--seconds", seconds).returncode == 2


def test_once_prints_metrics_of_a_simulated_node() -> None:
    """``once`` prints an exposition that says it is simulated and that a strict parser reads."""
    done = gpuwatch("once", "--scenario", "single-h200", "--at", "60", "--node-name", "n1")
    assert (done.returncode, done.stderr) == (0, "")
    samples = [sample for family in parse_text(done.stdout) for sample in family.samples]
    assert {sample.labels["node"] for sample in samples if sample.name == "gpuwatch_gpu_up"} == {"n1"}
    assert {sample.labels["simulated"] for sample in samples if sample.name == "gpuwatch_build_info"} == {"true"}


def test_once_in_other_forms() -> None:
    """``once`` also prints OpenMetrics and JSON."""
    openmetrics = gpuwatch("once", "--scenario", "single-h200", "--at", "60", "--format", "openmetrics")
    assert list(parse_openmetrics(openmetrics.stdout))
    document = json.loads(gpuwatch("once", "--scenario", "single-h200", "--at", "60", "--format", "json").stdout)
    assert document["simulated"] is True


@pytest.mark.parametrize("arguments", [("--scenario", "no-gpu", "--at", "1"), ()])
def test_once_without_gpu(arguments: tuple[str, ...]) -> None:
    """Without a readable GPU (here: a node without any, and this machine without a driver) ``once`` still prints metrics and exits 1."""
    if not arguments and Path("/dev/nvidiactl").exists():
        arguments = ("--scenario", "no-gpu", "--at", "1")
    done = gpuwatch("once", *arguments)
    assert done.returncode == 1
    assert "gpuwatch_up" in done.stdout
    assert "no GPU could be read" in done.stderr.splitlines()[-1]


def test_record_without_driver(tmp_path: Path) -> None:
    """Where nothing can be recorded (here: no such directory, or no driver) ``record`` says so in one line."""
    assert "cannot record to" in refusal(gpuwatch("record", "--seconds", "1", "--output", str(tmp_path / "none" / "file.json")), code=1)


def test_port_in_use() -> None:
    """A port that is taken is exit code 3 with one line that names address and port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = gpuwatch("run", "--address", "127.0.0.1", "--port", str(port))
    assert done.returncode == 3
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_check_of_simulated_nodes() -> None:
    """``check`` exits 0 on a sound node and 1 on one without a GPU, and says why."""
    sound = gpuwatch("check", "--scenario", "single-h200", "--at", "60")
    assert (sound.returncode, "1 of 1 GPUs can be read" in sound.stdout, "SIMULATED" in sound.stdout) == (0, True, True)
    empty = gpuwatch("check", "--scenario", "no-gpu", "--at", "1")
    assert (empty.returncode, "no GPU can be read" in empty.stdout) == (1, True)


def test_check_tells_a_failed_gpu_by_its_exit_code() -> None:
    """A GPU that can be read and has failed is exit code 4, one that cannot be read stays 1; as JSON it is what ``once`` prints."""
    failed = gpuwatch("check", "--scenario", "ecc-storm", "--at", "120")
    assert (failed.returncode, "reset_gpu" in failed.stdout) == (4, True)
    lost = gpuwatch("check", "--scenario", "gpu-lost", "--at", "120", "--format", "json")
    assert lost.returncode == 1
    assert [gpu["verdict"]["state"] for gpu in json.loads(lost.stdout)["gpus"]] == ["ok", "ok", "failed", "ok"]


def test_generated_documents_are_in_step() -> None:
    """``generate --check`` finds the committed documents as the code would write them."""
    done = gpuwatch("generate", "--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_demo_serves_and_stops() -> None:
    """``demo`` says loudly that it is simulated and what to open, serves it to this machine only, and leaves with 0 when asked."""
    port = free_port()
    command = [sys.executable, "-m", "gpuwatch", "demo", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        head = "".join(process.stdout.readline() for _ in range(4))
        address = re.search(r"http://\S+/", head)
        assert address is not None
        body = _get_patiently(address.group() + "metrics", process)
        process.terminate()
        _, errors = process.communicate()
    assert "SIMULATED" in head
    assert address.group() == f"http://127.0.0.1:{port}/"
    assert 'simulated="true"' in body
    assert process.returncode == 0, errors


def _get_patiently(url: str, process: subprocess.Popen[str]) -> str:
    """The body at ``url``, as soon as the process listens there."""
    while process.poll() is None:
        try:
            return httpx.get(url).raise_for_status().text
        except httpx.ConnectError:
            continue
    raise AssertionError(f"the process left with {process.returncode}")
