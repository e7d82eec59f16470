"""Single keys from a terminal, without echo; the terminal is put back as it was, however the block ends."""

from __future__ import annotations

import contextlib
import os
import select
import termios
import tty
from collections.abc import Iterator
from typing import Final

_KEYS: Final = {
    b"q": "quit",
    b"Q": "quit",
    b"\x04": "quit",
    b"j": "down",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"k": "up",
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[6~": "page down",
    b" ": "page down",
    b"\x1b[5~": "page up",
    b"s": "sort",
}
_MOST_BYTES: Final = 64


class Keyboard:
    """Reads the keys of one terminal; ``file`` is ``None`` where nobody can press any."""

    def __init__(self, file: int | None) -> None:
        self._file = file

    def wait(self, seconds: float) -> str:
        """The name of the key that is pressed within that time; empty: none, or one without a meaning here."""
        if not select.select([] if self._file is None else [self._file], [], [], seconds)[0] or self._file is None:
            return ""
        pressed = os.read(self._file, _MOST_BYTES)
        if not pressed:
            return "quit"  # the terminal is gone
        # Keys that came together: the quitting one counts, else the first.
        return "quit" if b"q" in pressed else _KEYS.get(pressed, _KEYS.get(pressed[:1], ""))


@contextlib.contextmanager
def keyboard(file: int) -> Iterator[Keyboard]:
    """The keys of the terminal ``file``. Ctrl-C stays a signal."""
    if not os.isatty(file):
        yield Keyboard(None)
        return
    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)
        yield Keyboard(file)
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
