"""``gpuwatch top`` in a real pseudo terminal, with another program's idea of what that terminal shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyte

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 60.0
_TAKE_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a shell that started the tests in the background had ignored
os.execv(sys.executable, sys.argv[1:])
"""


@dataclass(slots=True)
class Terminal:
    """The terminal and the program in it. ``raw`` is all that the program has written."""

    process: subprocess.Popen[bytes]
    master: int
    screen: pyte.Screen
    stream: pyte.ByteStream
    modes_before: list[Any]
    raw: bytearray = field(default_factory=bytearray)

    @property
    def text(self) -> str:
        """What is on the screen, without its clock and blanks at the ends."""
        lines = "\n".join(line.rstrip() for line in self.screen.display).rstrip("\n") + "\n"
        return re.sub(r"\d\d:\d\d:\d\d", "hh:mm:ss", lines)

    @property
    def modes(self) -> list[Any]:
        """How the terminal is set now."""
        return termios.tcgetattr(self.master)

    def until(self, condition: Callable[[str], object], what: str) -> str:
        """Look on until the screen is so; returns it."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not condition(self.text):
            assert self.read() or time.monotonic() < end, f"never seen: {what}\n{self.text}\n{self.process.poll()}"
        return self.text

    def read(self) -> bool:
        """Take what the program has written; whether there was something."""
        if not select.select([self.master], [], [], 0.1)[0]:
            return False
        try:
            told = os.read(self.master, 65536)
        except OSError:  # nobody has the other end open
            return False
        self.raw += told
        self.stream.feed(told)
        return bool(told)

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self.master, keys)

    def resize(self, lines: int, columns: int) -> None:
        """Change the size, as when a window is dragged."""
        self.screen.resize(lines, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def end(self) -> int:
        """Wait until the program has left; returns its exit code."""
        limit = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None:
            self.read()
            assert time.monotonic() < limit, f"it does not leave\n{self.text}"
        while self.read():
            pass
        return self.process.returncode


@contextlib.contextmanager
def top(*arguments: str, lines: int = 24, columns: int = 80, **variables: str) -> Iterator[Terminal]:
    """``gpuwatch top`` with these arguments in a terminal of this size."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {"PATH": os.defpath, "HOME": "/nonexistent", "TERM": "xterm-256color", "LANG": "C.UTF-8", "TZ": "UTC"} | variables
    screen = pyte.Screen(columns, lines)
    before = termios.tcgetattr(master)
    process = subprocess.Popen(
        [sys.executable, "-c", _TAKE_TERMINAL, sys.executable, "-m", "gpuwatch", "top", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env=environment,
        cwd=ROOT,
    )
    try:
        # The test keeps the terminal open, so that how it was left can be seen.
        yield Terminal(process, master, screen, pyte.ByteStream(screen), before)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(slave)
        os.close(master)
