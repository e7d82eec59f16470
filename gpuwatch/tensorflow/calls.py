"""Whether a call still runs. An error, or Ctrl-C, between two steps ends the ``fit`` of Keras without a word to any callback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import get_ident
from types import FrameType


class Call:
    """Of a function in this thread. Holds what the call holds, until somebody asks after its end, or lets go of this."""

    def __init__(self, frame: FrameType) -> None:
        self._frame: FrameType | None = frame
        self._thread = get_ident()

    def runs(self) -> bool:
        """Any thread may ask; it looks at some dozen frames."""
        innermost = sys._current_frames().get(self._thread)  # noqa: SLF001 (of CPython)
        if all(one is not self._frame for one in _outwards(innermost)):
            self._frame = None
        return self._frame is not None


def calls_of(name: str) -> Iterator[tuple[Call, object]]:
    """Those of functions with this name in which this thread is now, the innermost first, and of which object they are methods."""
    for frame in _outwards(sys._getframe()):  # noqa: SLF001 (the same)
        if frame.f_code.co_name == name:
            yield Call(frame), frame.f_locals.get("self")


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
