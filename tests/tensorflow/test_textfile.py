"""Text files of training processes: what stands in them, when, and what happens where they cannot be written."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from daemon import wait_for
from gpuwatch.tensorflow import textfile
from gpuwatch.tensorflow.exposition import registry_of
from gpuwatch.tensorflow.measures import Measures
from gpuwatch.tensorflow.settings import Settings
from gpuwatch.tensorflow.textfile import TextFile, replace, textfile_of

NEVER = 1e6
"""Seconds between two writes where a test asks for each of them."""


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "gpuwatch-textfile"]


def steps(path: Path) -> float:
    """The steps in a file that a strict parser reads."""
    [family] = [one for one in parse_text(path.read_text()) if one.name == "gpuwatch_tensorflow_steps"]
    return family.samples[0].value


def test_the_file_says_whose_it_is(tmp_path: Path) -> None:
    """Name and labels tell namespace, pod, container and process; promtool has no complaint; everybody may read it."""
    settings = Settings(textfile_directory=tmp_path, namespace="vision", pod="mnist-worker-0", container="tensorflow")
    file = textfile_of(Measures(steps=3), settings)
    assert file is not None
    old = os.umask(0o077)
    try:
        file.start()
        file.close()
    finally:
        os.umask(old)
    assert [path.name for path in tmp_path.iterdir()] == [f"gpuwatch_tensorflow_vision_mnist-worker-0_tensorflow_{os.getpid()}.prom"]
    samples = [sample for family in parse_text(file.path.read_text()) for sample in family.samples]
    labels = {"namespace": "vision", "pod": "mnist-worker-0", "container": "tensorflow", "pid": str(os.getpid())}
    assert samples
    assert all(labels.items() <= sample.labels.items() for sample in samples)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o644
    check = subprocess.run(["promtool", "check", "metrics"], input=file.path.read_bytes(), capture_output=True, check=False)
    assert (check.returncode, check.stdout, check.stderr) == (0, b"", b"")


def test_without_a_directory_there_is_no_file() -> None:
    """Nothing is written unasked."""
    assert textfile_of(Measures(), Settings()) is None


def test_names_stay_within_the_directory(tmp_path: Path) -> None:
    """Whatever a pod claims to be called, the file has a name that can be written, and its labels tell the whole one."""
    for pod in ("../../etc/passwd", "a b/é", "p" * 253, "\udcff"):
        file = textfile_of(Measures(), Settings(textfile_directory=tmp_path, namespace="n" * 63, pod=pod, container="c" * 63))
        assert file is not None
        assert file.path.parent == tmp_path
        file.start()
        file.close()
        assert steps(file.path) == 0


def test_it_is_written_at_the_start_at_each_flush_and_at_the_end(tmp_path: Path) -> None:
    """And stays when all is over."""
    measures = Measures()
    file = TextFile(registry_of(measures), tmp_path / "a.prom", interval_seconds=NEVER)
    file.flush()
    file.close()
    assert not file.path.exists()
    file.start()
    file.start()
    wait_for(file.path.exists, "the first file")
    measures.steps = 1
    file.flush()
    assert steps(file.path) == 1
    measures.steps = 2
    file.close()
    assert steps(file.path) == 2
    file.start()
    measures.steps = 3
    file.flush()
    assert steps(file.path) == 3
    file.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a.prom"]


def test_it_is_written_every_interval(tmp_path: Path) -> None:
    """Without anybody asking."""
    measures = Measures()
    file = TextFile(registry_of(measures), tmp_path / "a.prom", interval_seconds=0.01)
    file.start()
    wait_for(file.path.exists, "the first file")
    measures.steps = 9
    wait_for(lambda: steps(file.path) == 9, "the next file")
    file.close()


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    """While it is written again and again, each look finds a whole file."""
    file = TextFile(registry_of(Measures(steps=5)), tmp_path / "a.prom", interval_seconds=0.0)
    file.start()
    try:
        wait_for(file.path.exists, "the first file")
        assert {steps(file.path) for _ in range(200)} == {5}
    finally:
        file.close()


def test_a_directory_that_is_not_there_is_one_line_until_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The training is told once, and once more when files are written again; nobody makes the directory."""
    caplog.set_level(logging.INFO, "gpuwatch.tensorflow")
    file = TextFile(registry_of(Measures()), tmp_path / "later" / "a.prom", interval_seconds=NEVER)
    file.start()
    for _ in range(3):
        file.flush()
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "No such file or directory" in record.message
    assert not file.path.parent.exists()
    file.path.parent.mkdir()
    file.flush()
    assert [one.levelno for one in caplog.records] == [logging.WARNING, logging.INFO]
    file.close()
    assert steps(file.path) == 0


def test_a_full_disk_leaves_the_old_file(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was written before stays whole, no half file is left, and one line is told."""
    measures = Measures()
    file = TextFile(registry_of(measures), tmp_path / "a.prom", interval_seconds=NEVER)
    file.start()
    file.flush()
    measures.steps = 1
    opened = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest: opened("/dev/full", os.O_WRONLY) if str(path).endswith(".new") else opened(path, *rest)
    )
    monkeypatch.setattr(os, "fchmod", lambda *_: None)  # of the device, for whoever may
    file.flush()
    file.flush()
    monkeypatch.undo()
    assert steps(file.path) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a.prom"]
    assert ["No space left on device" in one.message for one in caplog.records] == [True]
    file.close()


def test_a_draft_that_a_killed_process_left_is_no_hindrance(tmp_path: Path) -> None:
    """Nor is a link that somebody put in its place: what it points to stays as it is."""
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / ".a.prom.new").symlink_to(target)
    replace(tmp_path / "a.prom", b"x")
    assert (target.read_text(), (tmp_path / "a.prom").read_text()) == ("mine", "x")
    assert not (tmp_path / "a.prom").is_symlink()


def test_a_hanging_directory_holds_up_nobody_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of one training waits for its time-out, that of the next not at all; the thread ends when the directory answers."""
    hanging, seen = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        seen.set()
        hanging.wait()

    monkeypatch.setattr(textfile, "replace", hang)
    monkeypatch.setattr(textfile, "FLUSH_TIMEOUT_SECONDS", 0.05)
    file = TextFile(registry_of(Measures()), tmp_path / "a.prom")
    file.start()
    seen.wait()
    [thread] = [one for one in threading.enumerate() if one.name == "gpuwatch-textfile"]
    file.flush()
    monkeypatch.setattr(textfile, "FLUSH_TIMEOUT_SECONDS", threading.TIMEOUT_MAX)
    file.flush()
    monkeypatch.setattr(textfile, "FLUSH_TIMEOUT_SECONDS", 0.05)
    file.close()
    assert thread.is_alive()
    hanging.set()
    thread.join()


LEAVING = """
import sys
from pathlib import Path
from gpuwatch.tensorflow.measures import Measures
from gpuwatch.tensorflow.settings import Settings
from gpuwatch.tensorflow.textfile import textfile_of

file = textfile_of(Measures(), Settings(textfile_directory=Path(sys.argv[1])))
file.start()
"""


def test_a_started_file_does_not_keep_the_process(tmp_path: Path) -> None:
    """A script that ends, ends, without a word."""
    command = [sys.executable, "-c", LEAVING, str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
