"""The supervisor over programs that behave as a broken reader does, and over the real reader."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon import wait_for
from gpuwatch.device import supervisor as supervisor_module
from gpuwatch.device.readings import Frame, Hello, Tick
from gpuwatch.device.supervisor import Ending, Supervisor
from gpuwatch.device.wire import MAX_FRAME_BYTES, ReaderOptions, Simulation

HELLO = "from gpuwatch.device.wire import encode; from gpuwatch.device.readings import *; import os, sys, time, signal\n"
HELLO += "def send(frame): os.write(1, encode(frame))\nsend(Hello(pid=os.getpid(), gpu_count=1))\n"
THREADS = """
import faulthandler, os, signal, threading, time
faulthandler.enable()
def innocent(): time.sleep(60)
def the_guilty_one(): os.kill(os.getpid(), signal.SIGSEGV)
for _ in range(30): threading.Thread(target=innocent, daemon=True).start()
the_guilty_one()
"""
FOR_EVER = "import time\nwhile True: time.sleep(60)\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Short where a test waits for one, longer than any test elsewhere."""

    start_deadline_seconds: float = 600.0
    heartbeat_deadline_seconds: float = 600.0
    backoff_max_seconds: float = 0.05


@dataclass(slots=True)
class Heard:
    """What a supervisor told."""

    frames: list[Frame] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)

    def supervise(self, code: str, *, deadlines: Deadlines | None = None) -> Supervisor:
        """A supervisor of the Python program ``code``."""
        return Supervisor(
            ReaderOptions(),
            deadlines or Deadlines(),
            on_frame=self.frames.append,
            on_end=self.endings.append,
            program=(sys.executable, "-c", code),
        )


def ending_of(code: str, *, deadlines: Deadlines | None = None) -> tuple[Ending, list[Frame]]:
    """How one life of the program ended and what it had sent."""
    heard = Heard()
    return asyncio.run(heard.supervise(code, deadlines=deadlines).run_life()), heard.frames


@pytest.mark.parametrize(
    ("code", "reason", "detail"),
    [
        ("raise SystemExit(7)", "exited", "status 7"),
        ("raise ValueError('no options')", "exited", "status 1: ValueError: no options"),
        (HELLO + "os.kill(os.getpid(), signal.SIGSEGV)", "crashed", "SIGSEGV"),
        (HELLO + "os.abort()", "crashed", "SIGABRT"),
        (HELLO + "os.kill(os.getpid(), signal.SIGKILL)", "killed", "SIGKILL"),
        (HELLO + "os.kill(os.getpid(), signal.SIGTERM)", "killed", "SIGTERM"),
        (HELLO + "os.kill(os.getpid(), signal.SIGRTMIN + 1)", "crashed", "signal"),
        (HELLO + "send(Goodbye(reason='driver_not_loaded', detail='not there'))", "driver_not_loaded", "not there"),
        (HELLO + "import faulthandler, ctypes; faulthandler.enable(); ctypes.string_at(8)", "crashed", "ctypes/__init__.py"),
        (THREADS, "crashed", "in the_guilty_one"),
        ("import os; os.write(1, b'\\x03\\0\\0\\0abc'); " + FOR_EVER, "protocol", "no valid frame"),
        ("print('NVRM: something the library prints', flush=True); " + FOR_EVER, "protocol", f"at most {MAX_FRAME_BYTES}"),
        (HELLO + "os.write(1, b'\\xff\\0\\0\\0half')", "exited", "status 0"),
        (HELLO + "os.close(1); os.close(2)\n" + FOR_EVER, "exited", ""),
    ],
)
def test_reason_of_an_end(code: str, reason: str, detail: str) -> None:
    """Whatever way a reader ends, the reason is a fixed word and the detail says what happened."""
    ending, _ = ending_of(code)
    assert ending.reason == reason
    assert detail in ending.detail


def test_the_next_reader_goes_on_in_the_kernel_log() -> None:
    """What one reader has read of the kernel log the next is told; frames without a number change nothing."""
    code = HELLO + "import json; before = json.loads(sys.argv[1]).get('log_sequence', -1)\n"
    code += "send(Tick(log_lines={'before': before}, log_sequence=before + 5)); send(Tick())"
    heard = Heard()
    life = heard.supervise(code)
    for _ in range(2):
        asyncio.run(life.run_life())
    assert [frame.log_lines["before"] for frame in heard.frames if isinstance(frame, Tick) and frame.log_lines] == [-1, 4]


def test_command_that_does_not_exist() -> None:
    """A reader that cannot even be started is a reason like any other."""
    heard = Heard()
    life = Supervisor(ReaderOptions(), Deadlines(), on_frame=heard.frames.append, on_end=heard.endings.append, program=("/nowhere",))
    ending = asyncio.run(life.run_life())
    assert ending.reason == "cannot_start"
    assert "/nowhere" in ending.detail


def test_reader_that_never_says_hello() -> None:
    """A reader that sends nothing is ended at the start deadline, which the message names."""
    ending, frames = ending_of(FOR_EVER, deadlines=Deadlines(start_deadline_seconds=0.5))
    assert (ending.reason, frames) == ("start_timeout", [])
    assert ending.detail == "the reader was silent for 0.5 s (start)"


def test_reader_that_falls_silent() -> None:
    """After its hello a reader has the heartbeat deadline, however long its start was allowed to take."""
    ending, frames = ending_of(HELLO + "send(Tick())\n" + FOR_EVER, deadlines=Deadlines(heartbeat_deadline_seconds=0.5))
    assert (ending.reason, ending.detail) == ("hung", "the reader was silent for 0.5 s (running)")
    assert [type(frame) for frame in frames] == [Hello, Tick]


def test_chatty_library_does_no_harm() -> None:
    """A megabyte on standard error, without one line end, neither blocks the reader nor ends it."""
    ending, frames = ending_of(HELLO + "sys.stderr.write('x' * (1 << 20)); sys.stderr.flush(); send(Tick()); send(Goodbye(reason='done'))")
    assert (ending.reason, [type(frame) for frame in frames]) == ("done", [Hello, Tick])


def test_flood_leaves_turns_for_others() -> None:
    """Frames that come in thousands are taken one a turn of the event loop, so that scrapes are answered in between."""

    async def live() -> int:
        heard, most, before = Heard(), 0, 0
        life = asyncio.create_task(heard.supervise(HELLO + "os.write(1, encode(Tick()) * 4000); send(Goodbye(reason='done'))").run_life())
        while not life.done():
            await asyncio.sleep(0)
            most, before = max(most, len(heard.frames) - before), len(heard.frames)
        assert before == 4001
        return most

    assert asyncio.run(live()) <= 2


@given(garbage=st.binary(min_size=1, max_size=64))
@settings(max_examples=15)
def test_any_garbage_is_an_end_with_a_reason(garbage: bytes) -> None:
    """Any bytes from a reader lead to an ending with a reason, never to an error in the agent."""
    ending, frames = ending_of(f"import os; os.write(1, {garbage!r})")
    assert ending.reason in ("protocol", "exited")
    assert frames == []


async def until(question: Callable[[], object], what: str) -> None:
    """Wait for an answer while the event loop runs."""
    await asyncio.to_thread(wait_for, question, what)


@contextlib.asynccontextmanager
async def running(supervisor: Supervisor):  # type: ignore[no-untyped-def]  # noqa: ANN201 (a generator)
    """The supervisor's endless task, cancelled with the block."""
    task = asyncio.create_task(supervisor.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def is_alive(pid: int) -> bool:
    """True while the process exists and is no zombie."""
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_lives_follow_each_other() -> None:
    """Ended readers are counted by reason and told one by one, and a new one is started each time."""

    async def live() -> Heard:
        heard = Heard()
        supervisor = heard.supervise(HELLO + "raise SystemExit(3)")
        async with running(supervisor):
            await until(lambda: len(heard.endings) >= 3, "three lives")
            assert supervisor.restarts["exited"] == len(heard.endings)
        return heard

    heard = asyncio.run(live())
    pids = [frame.pid for frame in heard.frames if isinstance(frame, Hello)]
    assert len(set(pids)) == len(pids) >= 3


def test_cancelling_leaves_no_process() -> None:
    """When the agent stops, its reader is gone, whatever it was doing."""

    async def live() -> int:
        heard = Heard()
        async with running(heard.supervise(HELLO + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FOR_EVER)):
            await until(lambda: heard.frames, "hello")
        hello = heard.frames[0]
        assert isinstance(hello, Hello)
        return hello.pid

    assert not is_alive(asyncio.run(live()))


def test_kill_names_the_reason_it_was_given() -> None:
    """A reader that the agent ends counts under the agent's reason, not under the signal."""

    async def live() -> Ending:
        heard = Heard()
        supervisor = heard.supervise(HELLO + FOR_EVER)
        supervisor.kill(Ending(reason="early"))
        life = asyncio.create_task(supervisor.run_life())
        await until(lambda: heard.frames, "hello")
        supervisor.kill(Ending(reason="unreadable", detail="no GPU"))
        return await life

    assert asyncio.run(live()) == Ending(reason="unreadable", detail="no GPU")


def test_unkillable_readers_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers blocked in the kernel outlive a kill: two may be left behind, a third is not started until one of them is gone."""
    starts = tmp_path / "starts"
    code = HELLO + f"open({str(starts)!r}, 'a').write(f'{{os.getpid()}}\\n')\nos.write(1, b'\\xff' * 8)\n" + FOR_EVER
    # A process in uninterruptible sleep is one for which the kernel accepts a kill that has no effect.
    kill = os.kill
    monkeypatch.setattr(os, "kill", lambda _pid, _number: None)
    monkeypatch.setattr(supervisor_module, "_KILL_SECONDS", 0.1)

    def started() -> list[int]:
        return [int(line) for line in starts.read_text().split()] if starts.exists() else []

    async def live() -> None:
        heard = Heard()
        supervisor = heard.supervise(code)
        async with running(supervisor):
            await until(lambda: len(heard.endings) == 2, "two ends")
            await asyncio.sleep(1.0)
            assert len(started()) == 2
            assert all(is_alive(pid) for pid in started())
            kill(started()[0], signal.SIGKILL)
            await until(lambda: len(started()) == 3, "a third start")
        for pid in started()[1:]:
            kill(pid, signal.SIGKILL)
        await until(lambda: not any(is_alive(pid) for pid in started()), "the end of all")
        await until(lambda: not supervisor._left_behind, "their burial")
        assert [ending.reason for ending in heard.endings][:2] == ["protocol", "protocol"]

    try:
        asyncio.run(live())
    finally:
        for pid in started():
            with contextlib.suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.write(1, b'\\xff' * 8)\nwhile True: os.write(1, b'x' * 65536)",
        "import os, subprocess\nsubprocess.Popen(['sleep', '20'])\nos.write(1, b'\\xff' * 8)",
    ],
    ids=["unread megabytes", "a child with the pipes"],
)
def test_a_dead_reader_is_not_left_behind(code: str) -> None:
    """A reader whose pipes outlive it (nobody read them, or the driver's own helper holds them) is buried, and the next one starts."""

    async def live() -> Heard:
        heard = Heard()
        supervisor = heard.supervise(code)
        async with running(supervisor):
            await until(lambda: len(heard.endings) >= 4, "four lives")
            assert not supervisor._left_behind
        return heard

    assert {ending.reason for ending in asyncio.run(live()).endings} == {"protocol"}


def test_real_reader_ends_after_once() -> None:
    """The real reader over a simulated node says hello, sends its readings and says goodbye."""
    heard = Heard()
    options = ReaderOptions(once=True, simulation=Simulation(scenario="single-h200", at_seconds=90.0))
    life = Supervisor(options, Deadlines(), on_frame=heard.frames.append, on_end=heard.endings.append)
    assert asyncio.run(life.run_life()).reason == "done"
    assert isinstance(heard.frames[0], Hello)
    assert any(isinstance(frame, Tick) and frame.readings for frame in heard.frames)
