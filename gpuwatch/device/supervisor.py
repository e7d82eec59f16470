"""The agent's side of the reader process: start it, give it deadlines, say why it ended, start it again with back-off.

Nothing here waits for the driver. A reader that cannot be killed (blocked in the kernel) is left behind and reaped when it dies;
while two of them exist no third is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from gpuwatch.device.readings import Frame, Goodbye, Hello, Struct, Tick
from gpuwatch.device.wire import HEADER, MAX_FRAME_BYTES, ReaderOptions, Simulation, decode

__all__ = ["Deadlines", "Ending", "Simulation", "Supervisor"]

_FIRST_BACKOFF_SECONDS = 0.1
_STABLE_SECONDS = 30.0
"""A life longer than this starts the back-off anew."""
_KILL_SECONDS = 2.0
_LAST_WORDS_SECONDS = 0.5
"""After the pipe closed: time for the exit status, and for standard error, to arrive."""
_MAX_LEFT_BEHIND = 2
_ERROR_BYTES = 65536
"""Kept of standard error: the stacks of all threads of a crashed reader are some 10 KiB."""
_PROGRAM = (sys.executable, "-m", "gpuwatch.device.reader")


class Deadlines(Protocol):
    """The part of the settings that the supervisor needs; :class:`gpuwatch.config.ReaderSettings` is one."""

    @property
    def start_deadline_seconds(self) -> float:
        """From the start of the process to its first frame."""

    @property
    def heartbeat_deadline_seconds(self) -> float:
        """Between two frames."""

    @property
    def backoff_max_seconds(self) -> float:
        """Longest pause between two lives."""


class Ending(Struct, frozen=True, kw_only=True):
    """Why a reader ended: ``reason`` is a bounded token (a label value), ``detail`` a sentence for people."""

    reason: str
    detail: str = ""


class Supervisor:
    """Runs reader processes one after the other. All methods belong to the event loop's thread.

    ``restarts`` counts ended readers by reason. ``program`` is the reader's command line; the options follow as its last argument.
    """

    def __init__(
        self,
        options: ReaderOptions,
        deadlines: Deadlines,
        *,
        on_frame: Callable[[Frame], None],
        on_end: Callable[[Ending], None],
        program: Sequence[str] = _PROGRAM,
    ) -> None:
        self.restarts: Counter[str] = Counter()
        self._options = options
        self._program = program
        self._deadlines = deadlines
        self._on_frame = on_frame
        self._on_end = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._kill_reason: Ending | None = None
        self._left_behind: set[asyncio.Task[int]] = set()
        self._backoff_seconds = _FIRST_BACKOFF_SECONDS

    async def run(self) -> None:
        """Keep a reader alive for ever; ends only by cancellation, and then leaves no process behind that can be killed."""
        while True:
            started = time.monotonic()
            ending = await self.run_life()
            self.restarts[ending.reason] += 1
            self._on_end(ending)
            await asyncio.sleep(self._next_backoff(time.monotonic() - started))
            while len(self._left_behind) >= _MAX_LEFT_BEHIND:
                await asyncio.wait(self._left_behind, return_when=asyncio.FIRST_COMPLETED)

    async def run_life(self) -> Ending:
        """One reader from start to end."""
        try:
            process = self._process = await self._start()
        except OSError as error:
            return Ending(reason="cannot_start", detail=f"the reader process cannot be started: {error}")
        last_words = bytearray()
        listener = asyncio.create_task(_listen(process.stderr, last_words))
        try:
            ending = await self._read_frames(process)
            if ending is None:
                await asyncio.wait({asyncio.ensure_future(process.wait()), listener}, timeout=_LAST_WORDS_SECONDS)
        finally:
            killed = _kill(process)
            self._process = None
            await self._bury(process)
            listener.cancel()
        return self._kill_reason or ending or _diagnose(process.returncode, bytes(last_words), killed=killed)

    def kill(self, ending: Ending) -> None:
        """End the present reader, for the reason given. Does nothing between two lives."""
        if self._process is not None:
            self._kill_reason = ending
            _kill(self._process)

    @property
    def pid(self) -> int | None:
        """Process id of the present reader."""
        return None if self._process is None else self._process.pid

    async def _start(self) -> asyncio.subprocess.Process:
        self._kill_reason = None
        # One malloc arena: the threads of the reader allocate little, and an arena each would cost memory for nothing.
        environment = os.environ | {"MALLOC_ARENA_MAX": "1", "PYTHONUNBUFFERED": "1"}
        return await asyncio.create_subprocess_exec(
            *self._program,
            msgspec.json.encode(self._options).decode(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )

    async def _read_frames(self, process: asyncio.subprocess.Process) -> Ending | None:
        """Frames until the end; ``None`` when the pipe just closed and the exit status must tell."""
        assert process.stdout is not None  # noqa: S101 (it was asked for)
        deadline, phase = self._deadlines.start_deadline_seconds, "start"
        while True:
            try:
                async with asyncio.timeout(deadline):
                    frame = await _read_frame(process.stdout)
            except TimeoutError:
                reason = "start_timeout" if phase == "start" else "hung"
                return Ending(reason=reason, detail=f"the reader was silent for {deadline:g} s ({phase})")
            except asyncio.IncompleteReadError:
                return None
            except (msgspec.MsgspecError, ValueError) as error:
                return Ending(reason="protocol", detail=f"the reader sent no valid frame: {error}")
            if isinstance(frame, Goodbye):
                return Ending(reason=frame.reason, detail=frame.detail)
            if isinstance(frame, Hello):
                deadline, phase = self._deadlines.heartbeat_deadline_seconds, "running"
            self._on_frame(frame)
            if isinstance(frame, Tick) and frame.log_sequence is not None:
                # Only now that its events have been taken: the next reader goes on behind them.
                self._options = msgspec.structs.replace(self._options, log_sequence=frame.log_sequence)
            # Frames that lie ready are taken without waiting: a flood of them must leave turns for those who scrape.
            await asyncio.sleep(0)

    async def _bury(self, process: asyncio.subprocess.Process) -> None:
        _close_pipes(process)
        waiting = asyncio.ensure_future(process.wait())
        done, _ = await asyncio.wait({waiting}, timeout=_KILL_SECONDS)
        if not done:
            self._left_behind.add(waiting)
            waiting.add_done_callback(self._left_behind.discard)

    def _next_backoff(self, lived_seconds: float) -> float:
        if lived_seconds >= _STABLE_SECONDS:
            self._backoff_seconds = _FIRST_BACKOFF_SECONDS
        pause = min(self._backoff_seconds, self._deadlines.backoff_max_seconds)
        self._backoff_seconds = pause * 2
        return pause


async def _read_frame(pipe: asyncio.StreamReader) -> Frame:
    (length,) = HEADER.unpack(await pipe.readexactly(HEADER.size))
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes; at most {MAX_FRAME_BYTES} are allowed")
    return decode(await pipe.readexactly(length))


async def _listen(pipe: asyncio.StreamReader | None, last_words: bytearray) -> None:
    """Keep the end of the reader's standard error, whatever comes in whatever pieces."""
    while pipe is not None and (chunk := await pipe.read(8192)):
        last_words += chunk
        del last_words[:-_ERROR_BYTES]


def _kill(process: asyncio.subprocess.Process) -> bool:
    """True when the process was still running."""
    if process.returncode is not None:
        return False
    with contextlib.suppress(ProcessLookupError):
        # Not process.kill(): it asks for the exit status first, and so takes it away from the event loop if the process has just ended.
        os.kill(process.pid, signal.SIGKILL)
        return True
    return False


def _close_pipes(process: asyncio.subprocess.Process) -> None:
    """Read no more. asyncio takes a process for ended only when its pipes are, which unread frames or a child of its own may hold open."""
    for descriptor in (1, 2):
        pipe = process._transport.get_pipe_transport(descriptor)  # type: ignore[attr-defined]  # noqa: SLF001 (there is no public way)
        if pipe is not None:
            pipe.close()


def _diagnose(returncode: int | None, last_words: bytes, *, killed: bool) -> Ending:
    """Reason of an end that nobody announced, from the exit status and the end of standard error."""
    lines = last_words.decode(errors="replace").splitlines()
    if returncode is not None and returncode < 0 and not (killed and returncode == -signal.SIGKILL):
        name = signal.Signals(-returncode).name if -returncode in set(signal.Signals) else f"signal {-returncode}"
        reason = "killed" if -returncode in (signal.SIGKILL, signal.SIGTERM) else "crashed"
        place = _place_of_crash(lines)
        return Ending(reason=reason, detail=f"the reader was ended by {name}" + (f"; last known place: {place}" if place else ""))
    last = lines[-1].strip() if lines else ""
    return Ending(reason="exited", detail=f"the reader ended with status {returncode}" + (f": {last}" if last else ""))


def _place_of_crash(lines: list[str]) -> str:
    """Innermost frame of the thread that crashed, of what faulthandler wrote; empty when it wrote nothing."""
    crashed = next((number for number, line in enumerate(lines) if line.startswith("Current thread")), 0)
    return next((line.strip() for line in lines[crashed:] if line.lstrip().startswith("File ")), "")
