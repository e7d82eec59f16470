"""What is loaded when, and what TensorFlow lets be set only once, in processes of their own."""

from __future__ import annotations

import subprocess
import sys


def run(program: str) -> subprocess.CompletedProcess[str]:
    """In a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_without_tensorflow() -> None:
    """One line that says what is missing and what to do."""
    done = run("import sys; sys.modules['tensorflow'] = None\nfrom gpuwatch.tensorflow import GpuWatchCallback")
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 1
    assert lines[-1] == "ImportError: gpuwatch.tensorflow.GpuWatchCallback needs tensorflow, which is not installed: see docs/tensorflow.md"
    assert "During handling" not in done.stderr


def test_the_catalogue_needs_nothing() -> None:
    """Names and measures are read without TensorFlow or anything else that is not Python's own."""
    allowed = {"gpuwatch", "gpuwatch.tensorflow", *(f"gpuwatch.tensorflow.{module}" for module in ("calls", "measures", "series"))}
    program = (
        "import sys; before = set(sys.modules)\n"
        "import gpuwatch.tensorflow.series, gpuwatch.tensorflow.measures\n"
        "new = {n for n in set(sys.modules) - before if n.partition('.')[0] not in sys.stdlib_module_names}\n"
        f"print(new == {allowed!r}, new)"
    )
    assert run(program).stdout.startswith("True")


def test_the_daemon_never_loads_it() -> None:
    """Neither TensorFlow nor our part for it, with all that a running agent imports."""
    program = (
        "import sys, gpuwatch.agent, gpuwatch.server, gpuwatch.wiring, gpuwatch.cli, gpuwatch.demo, gpuwatch.doctor\n"
        "print([n for n in sys.modules if n.startswith(('tensorflow', 'keras', 'gpuwatch.tensorflow'))])"
    )
    assert run(program).stdout.strip() == "[]"


def test_a_job_needs_few_packages() -> None:
    """A job's image installs gpuwatch without what the agent needs: nothing of it is asked for."""
    agent_only = ("msgspec", "structlog", "yaml", "kubernetes", "grpc", "pynvml", "starlette", "uvicorn", "click", "bcrypt")
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in agent_only)
    program = f"import sys\n{blocked}from gpuwatch.tensorflow import GpuWatchCallback, process_monitor\nprint('ready')"
    assert run(program).stdout.strip() == "ready"


def test_an_unknown_name() -> None:
    """As of any module."""
    done = run("import gpuwatch.tensorflow as t\nt.callbacks")
    assert "module 'gpuwatch.tensorflow' has no attribute 'callbacks'" in done.stderr


def test_a_monitor_that_is_only_made() -> None:
    """TensorFlow still takes its settings, which it does before its first tensor only: strategies of many workers need that too."""
    program = (
        "import tensorflow as tf; from gpuwatch.tensorflow import process_monitor; process_monitor(); "
        "cpu = tf.config.list_physical_devices('CPU')[0]; "
        "tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2); "
        "print(len(tf.config.list_logical_devices('CPU')))"
    )
    done = run(program)
    assert (done.stdout, done.returncode) == ("2\n", 0), done.stderr


def test_without_eager_execution_nothing_is_measured() -> None:
    """Sessions of TensorFlow 1 train on, with one warning."""
    program = (
        "import tensorflow as tf; tf.compat.v1.disable_eager_execution(); from gpuwatch.tensorflow import process_monitor\n"
        "monitor = process_monitor(); total = tf.constant(2) * 3\n"
        "with tf.compat.v1.Session() as session, monitor.training():\n"
        "    with monitor.step(): print(session.run(total))\n"
        "    with monitor.validation(), monitor.checkpoint(): pass\n"
    )
    done = run(program)
    assert (done.stdout, done.returncode) == ("6\n", 0), done.stderr
    assert done.stderr.count("gpuwatch cannot measure") == 1
