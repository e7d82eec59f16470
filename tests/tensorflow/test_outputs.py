"""Endpoint and text file of a training process, as the training handles them."""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from daemon import free_port
from gpuwatch.tensorflow.measures import Measures
from gpuwatch.tensorflow.outputs import Outputs
from gpuwatch.tensorflow.settings import Settings, read_settings

ROOT = Path(__file__).parents[2]


def scraped(port: int) -> float:
    """Steps, as the endpoint tells them."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as client:
        client.request("GET", "/metrics")
        return steps(client.getresponse().read().decode())


def steps(text: str) -> float:
    """Steps in an exposition."""
    [value] = [sample.value for family in parse_text(text) for sample in family.samples if sample.name == "gpuwatch_tensorflow_steps_total"]
    return value


def ours() -> list[str]:
    """Names of our threads."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("gpuwatch"))


def test_a_training_from_begin_to_end(tmp_path: Path) -> None:
    """Both are there from the start on, live, through a second training; the file stays, the port is freed, no thread is left."""
    measures = Measures()
    outputs = Outputs(measures, Settings(port=free_port(), textfile_directory=tmp_path, pod="p"))
    outputs.flush()
    outputs.close()
    assert (ours(), outputs.port, list(tmp_path.iterdir())) == ([], None, [])
    for done in (1, 2):
        outputs.start()
        outputs.start()
        assert ours() == ["gpuwatch-endpoint", "gpuwatch-textfile"]
        assert outputs.port is not None
        measures.steps = done
        assert scraped(outputs.port) == done
        outputs.flush()
        [file] = tmp_path.iterdir()
        assert steps(file.read_text()) == done
    measures.steps = 3
    outputs.close()
    outputs.close()
    assert (ours(), outputs.port, steps(file.read_text())) == ([], None, 3)


def test_nothing_is_wished_for(caplog: pytest.LogCaptureFixture) -> None:
    """Then nothing is done and nothing is said."""
    outputs = Outputs(Measures(), Settings(port=None))
    outputs.start()
    outputs.flush()
    assert (ours(), outputs.port, caplog.records) == ([], None, [])
    outputs.close()


def test_each_thing_that_is_wrong_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However often trainings begin and end: a bad variable, a port that cannot be had and a directory that is not there are told once."""
    environment = {
        "GPUWATCH_TENSORFLOW_ADDRESS": "192.0.2.1",
        "GPUWATCH_AGENT_URL": "agent",
        "GPUWATCH_TEXTFILE_DIRECTORY": str(tmp_path / "later"),
    }
    outputs = Outputs(Measures(), read_settings(environment))
    for _ in range(3):
        outputs.start()
        outputs.flush()
    outputs.close()
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3
    assert [re.search(r"GPUWATCH_\w+|later", record.message)[0] for record in caplog.records] == [  # type: ignore[index]
        "GPUWATCH_AGENT_URL", "GPUWATCH_TENSORFLOW_PORT", "later",
    ]  # fmt: skip


TRAINING = """
import os, sys
from gpuwatch.tensorflow.measures import Measures
from gpuwatch.tensorflow.outputs import Outputs
from gpuwatch.tensorflow.settings import read_settings

measures = Measures()
outputs = Outputs(measures, read_settings())
outputs.start()
measures.steps = 5
{rest}
"""


def train(folder: Path, rest: str, port: int) -> subprocess.CompletedProcess[str]:
    """A process that does five steps and then the rest."""
    environment = {
        "PATH": os.defpath,
        "GPUWATCH_TENSORFLOW_PORT": str(port),
        "GPUWATCH_TEXTFILE_DIRECTORY": str(folder),
        "POD_NAMESPACE": "vision",
        "POD_NAME": "mnist",
    }
    program = TRAINING.format(rest=rest)  # newer Pythons warn of any fork beside threads
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("rest", "code"), [("", 0), ("sys.exit(3)", 3), ("raise SystemExit('no data')", 1)])
def test_a_process_that_ends_leaves_its_last_values(tmp_path: Path, rest: str, code: int) -> None:
    """Also when it fails: the file tells of every step, and the process ends with its own exit code and words."""
    done = train(tmp_path, rest, free_port())
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == ("no data\n" if "data" in rest else "")
    [file] = tmp_path.iterdir()
    assert steps(file.read_text()) == 5


FORK = """
if os.fork() == 0:
    measures.steps = 1000
    {child}
    sys.exit(0)
os.wait()
"""


def test_a_forked_child_leaves_the_files_of_its_parent_alone(tmp_path: Path) -> None:
    """A worker that was forked writes nothing, also when it ends as a script does."""
    done = train(tmp_path, FORK.format(child="outputs.flush()"), free_port())
    assert (done.returncode, done.stderr) == (0, "")
    assert [steps(file.read_text()) for file in tmp_path.iterdir()] == [5]


def test_a_forked_child_that_trains_has_outputs_of_its_own(tmp_path: Path) -> None:
    """It says that the port is its parent's, and writes a file of its own."""
    done = train(tmp_path, FORK.format(child="outputs.start()"), free_port())
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert "GPUWATCH_TENSORFLOW_PORT" in done.stderr
    assert sorted(steps(file.read_text()) for file in tmp_path.iterdir()) == [5, 1000]


POOL = """
import multiprocessing
def square(number):
    return number * number
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(square, range(20)) == [number * number for number in range(20)]
print(outputs.port)
"""


def test_pools_of_processes_work_beside_it(tmp_path: Path) -> None:
    """As an input pipeline uses them: their workers neither hang nor speak, and the endpoint is still there."""
    port = free_port()
    done = train(tmp_path, POOL, port)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{port}\n", "")
    assert [steps(file.read_text()) for file in tmp_path.iterdir()] == [5]
