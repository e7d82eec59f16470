"""The reader process, run as the supervisor runs it."""

from __future__ import annotations

import io
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import msgspec
import pytest

from daemon import wait_for, write_scenario
from gpuwatch.device.listening import Listening
from gpuwatch.device.reader import gather, simulated_clock, write_all
from gpuwatch.device.readings import Frame, Goodbye, GpuReading, Hello, Tick
from gpuwatch.device.wire import HEADER, ReaderOptions, Simulation, decode


def command_of(options: ReaderOptions) -> list[str]:
    """The command line of a reader."""
    return [sys.executable, "-m", "gpuwatch.device.reader", msgspec.json.encode(options).decode()]


def reader(options: ReaderOptions) -> subprocess.Popen[bytes]:
    """A started reader."""
    return subprocess.Popen(command_of(options), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def next_frame(pipe: IO[bytes]) -> Frame | None:
    """The next frame; ``None`` at the end."""
    header = pipe.read(HEADER.size)
    return decode(pipe.read(HEADER.unpack(header)[0])) if header else None


def frames_of(options: ReaderOptions) -> list[Frame]:
    """Everything a reader says that ends by itself."""
    with reader(options) as process:
        output, errors = process.communicate()
    assert (process.returncode, errors) == (0, b"")
    pipe, frames = io.BytesIO(output), []
    while frame := next_frame(pipe):
        frames.append(frame)
    return frames


def simulated(scenario: str | Path, at_seconds: float | None = None, *, once: bool = True) -> ReaderOptions:
    """Options for a simulated node."""
    return ReaderOptions(once=once, simulation=Simulation(scenario=str(scenario), at_seconds=at_seconds))


def readings_in(frames: list[Frame]) -> list[GpuReading]:
    """All readings, in order."""
    return [reading for frame in frames if isinstance(frame, Tick) for reading in frame.readings]


def test_once_is_two_passes() -> None:
    """``once`` says hello, reads both tiers of each GPU twice, a fast interval apart, and says goodbye."""
    frames = frames_of(simulated("mixed-fleet", 100.0))
    assert isinstance(frames[0], Hello)
    assert frames[0].gpu_count == 8
    assert frames[-1] == Goodbye(reason="done")
    for index in range(8):
        own = [reading for reading in readings_in(frames) if reading.index == index]
        assert [reading.at for reading in own if reading.fast] == [99.0, 100.0]
        assert len([reading for reading in own if reading.medium]) == 2
        assert own[0].identity is not None


@pytest.mark.parametrize(
    ("scenario", "at", "reason"),
    [
        ("no-gpu", 1.0, "no_gpu"),
        ("driver-late", 1.0, "library_not_found"),
        ("driver-late", 30.0, "driver_not_loaded"),
        ("driver-upgrade", 70.0, "lib_rm_version_mismatch"),
        ("cgroup-lost", 70.0, "unknown"),
    ],
)
def test_driver_that_does_not_start(scenario: str, at: float, reason: str) -> None:
    """A reader that cannot start the library says why, in one frame, and ends."""
    [goodbye] = frames_of(simulated(scenario, at))
    assert isinstance(goodbye, Goodbye)
    assert goodbye.reason == reason
    assert goodbye.detail


def test_what_the_driver_told_travels_with_the_readings(tmp_path: Path) -> None:
    """``once`` shows what the kernel log holds by then, marked with its number; nobody waits for events."""
    body = "gpus: [{board: t4}]\nfaults: [{kind: xid, code: 31, from: 3}, {kind: xid, code: 79, from: 200}]\n"
    ticks = [frame for frame in frames_of(simulated(write_scenario(tmp_path, body), 100.0)) if isinstance(frame, Tick)]
    assert [(event.code, event.source) for tick in ticks for event in tick.events] == [(31, "kernel_log")]
    assert [(health.source, health.up) for tick in ticks for health in tick.sources] == [("kernel_log", True)]
    assert [tick.log_sequence for tick in ticks if tick.log_sequence is not None] == [3_000_000]


@pytest.mark.parametrize(("path", "expected"), [("/nowhere/kmsg", [("kernel_log", False, "missing")]), ("", [])])
def test_where_the_kernel_log_is_read(path: str, expected: list[tuple[str, bool, str]]) -> None:
    """The path is the operator's; an empty one switches the source off, so that nobody waits for it."""
    box = Listening(None, 1, ReaderOptions(once=True, kernel_log=path))
    assert [(health.source, health.up, health.fault) for health in box.take().sources] == expected


def test_a_recording_is_not_listened_to() -> None:
    """The kernel log of this machine says nothing about the recorded one."""
    recording = Path(__file__).parents[1] / "recordings" / "h200x1-idle.json"
    ticks = [frame for frame in frames_of(ReaderOptions(once=True, replay=str(recording))) if isinstance(frame, Tick)]
    assert ticks
    assert not any(tick.events or tick.sources or tick.log_lines for tick in ticks)


def test_library_that_goes_down(tmp_path: Path) -> None:
    """When every GPU answers that the library is down, the reader ends by itself, so that the device files are released."""
    upgrade = 'gpus: [{board: t4, count: 2}]\nfaults: [{kind: driver-upgrade, from: 2, until: 600, driver: "580.1"}]\n'
    options = simulated(write_scenario(tmp_path, upgrade), once=False)
    options = msgspec.structs.replace(options, epoch=time.monotonic())
    frames = frames_of(options)
    assert isinstance(frames[0], Hello)
    assert frames[-1] == Goodbye(reason="lib_rm_version_mismatch", detail="every GPU answers that the library is down")
    assert {reading.index for reading in readings_in(frames) if reading.fast} == {0, 1}


def test_replayed_recording() -> None:
    """A recording that cannot be read ends the reader with a message that names it."""
    with reader(ReaderOptions(replay="/nowhere.json", once=True)) as process:
        _, errors = process.communicate()
    assert process.returncode != 0
    assert b"recording /nowhere.json" in errors


def test_ends_with_its_agent() -> None:
    """A reader whose agent no longer listens ends, without a word."""
    with reader(simulated("idle", once=False)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert isinstance(next_frame(process.stdout), Hello)
        process.stdout.close()
        assert process.wait() == 0
        assert process.stderr.read() == b""


def test_interrupt_is_left_to_the_agent() -> None:
    """Ctrl-C in a terminal reaches the reader too; it goes on until its agent ends it."""
    with reader(simulated("idle", once=False)) as process:
        assert process.stdout is not None
        assert isinstance(next_frame(process.stdout), Hello)
        process.send_signal(signal.SIGINT)
        for _ in range(4):
            assert isinstance(next_frame(process.stdout), Tick)
        process.kill()


def test_what_the_library_prints_is_no_frame() -> None:
    """Text that a library writes to descriptor 1 goes to standard error, never between frames."""
    code = (
        "import os\nfrom gpuwatch.device.reader import claim_stdout, write_all\n"
        "pipe = claim_stdout()\nos.write(1, b'printed')\nwrite_all(pipe, b'frame')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"frame", b"printed")


def test_large_frames_are_written_whole() -> None:
    """A frame larger than the pipe waits for the agent to read."""
    data = os.urandom(1 << 20)
    end, start = os.pipe()

    def write() -> None:
        write_all(start, data)
        os.close(start)

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(end, "rb") as pipe:
        assert pipe.read() == data
    writer.join()


def test_heartbeat() -> None:
    """Nothing to tell is told too: an empty tick."""
    assert gather(queue.SimpleQueue()) == ()


def test_gathers_what_ticks_together() -> None:
    """Readings that arrive together share a frame, in their order."""
    readings: queue.SimpleQueue[GpuReading] = queue.SimpleQueue()
    sent = [GpuReading(index=index, uuid="", at=0.0) for index in range(8)]
    for reading in sent:
        readings.put(reading)
    assert list(gather(readings)) == sent


def test_frozen_clock() -> None:
    """A frozen scenario stands one fast interval before its time in each thread, until that thread steps on."""
    clock = simulated_clock(ReaderOptions(fast_seconds=2.0, simulation=Simulation(scenario="idle", at_seconds=10.0)))
    assert clock() == 8.0


def test_running_clock_counts_from_the_epoch() -> None:
    """A running scenario goes on over restarts of the reader, since the agent tells when it began."""
    clock = simulated_clock(ReaderOptions(simulation=Simulation(scenario="idle"), epoch=time.monotonic() - 100.0))
    assert clock() >= 100.0


def test_dies_when_the_agent_is_killed() -> None:
    """The kernel ends the reader with its parent, even one that is killed."""
    command = command_of(simulated("idle", once=False))
    code = f"import subprocess, time\nsubprocess.Popen({command!r}, stdout=subprocess.PIPE)\ntime.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        child = wait_for(lambda: children.read_text().split(), "the reader")[0]
        wait_for(lambda: b"gpuwatch.device.reader" in Path(f"/proc/{child}/cmdline").read_bytes(), "its program")
        wait_for(lambda: len(list(Path(f"/proc/{child}/task").iterdir())) > 1, "its threads")
        parent.kill()
    wait_for(lambda: not Path(f"/proc/{child}").exists(), "its end")
