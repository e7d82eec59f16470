"""Faults that come and go while the demo runs: the file that a person edits, and the one that the reader follows.

The agent's process looks at the person's file and writes down what is to happen (:class:`Rehearsal`); the reader's process reads that
(:class:`FaultsFile`), also a reader that starts anew. Every change is written two seconds ahead: nobody ever reads another past.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from gpuwatch.device.simulated.fault import AnyFault
from gpuwatch.device.simulated.injection import Injection, InjectionError, faults_of, parse_injection
from gpuwatch.device.simulated.scenario import Scenario

AHEAD_SECONDS: Final = 2.0
"""From seeing a change to the second in which it takes effect; the reader has read it by then."""
LOOK_SECONDS: Final = 1.0
"""Between two looks at the person's file."""
_FOLLOW_SECONDS: Final = 0.5
_MAX_BYTES: Final = 1 << 20
_MAX_ENTRIES: Final = 256
_MAX_OVER: Final = 4096
_DECODER = msgspec.json.Decoder(tuple[AnyFault, ...])


def parse_injections(text: bytes, scenario: Scenario) -> tuple[Injection, ...]:
    """The injections in a YAML list of specs, each once; an empty file holds none.

    Raises:
        InjectionError: it is no such list, or a spec is refused for that scenario; one line.
    """
    if len(text) > _MAX_BYTES:
        raise InjectionError(f"is larger than {_MAX_BYTES} bytes; expected a short list")
    try:
        entries = msgspec.yaml.decode(text.decode("utf-8-sig"), type=list[str] | None) or []
    except (msgspec.MsgspecError, RecursionError, ValueError, LookupError, ArithmeticError, AttributeError, TypeError) as error:
        # PyYAML lets more than its own errors through for scalars that look like a date or a number and are none.
        problem = " ".join("".join(letter if letter.isprintable() else " " for letter in str(error)).split())
        raise InjectionError(f"is no YAML list of faults, such as '- xid=79,gpu=3' ({problem[:200]})") from None
    if len(entries) > _MAX_ENTRIES:
        raise InjectionError(f"holds {len(entries)} faults; expected at most {_MAX_ENTRIES}")
    found: dict[Injection, None] = {}
    for number, spec in enumerate(entries, 1):
        try:
            injection = parse_injection(spec)
            faults_of(injection, scenario)
        except InjectionError as error:
            raise InjectionError(f"entry {number}: {error}") from None
        found[injection] = None
    return tuple(found)


class Rehearsal:
    """Follows the person's file at ``path`` and keeps at ``told`` what the reader shall know.

    A fault that is struck out of the file ends; one that had not begun never happens. A file that cannot be used changes nothing and is
    told to ``warn`` once. One thread calls :meth:`look`; :meth:`run` does so for ever.
    """

    def __init__(self, path: Path, told: Path, scenario: Scenario, *, warn: Callable[[str], None]) -> None:
        """Read the file for the first time.

        Raises:
            InjectionError: the file cannot be used.
            OSError: ``told`` cannot be written.
        """
        self._path = path
        self._told = told
        self._scenario = scenario
        self._warn = warn
        self._seen: bytes | str = b""
        self._over: list[AnyFault] = []
        self._held: dict[Injection, tuple[AnyFault, ...]] = {}
        self._seen = _content(path)
        self._change(parse_injections(self._seen, scenario), moment=0.0)

    def run(self, clock: Callable[[], float], pause: Callable[[float], object] = time.sleep) -> None:
        """Look again and again. ``clock``: seconds since the scenario's start."""
        while True:
            pause(LOOK_SECONDS)
            self.look(clock())

    def look(self, now: float) -> None:
        """Take in what was changed since the last look; ``now``: seconds since the scenario's start."""
        seen: bytes | str
        try:
            seen = _content(self._path)
        except InjectionError as error:
            seen = str(error)
        if seen == self._seen:
            return
        self._seen = seen
        problem = seen if isinstance(seen, str) else self._take(seen, now + AHEAD_SECONDS)
        if problem:
            self._warn(problem)

    def _take(self, content: bytes, moment: float) -> str:
        """Let the file hold from that moment on; returns what is wrong with it."""
        try:
            self._change(parse_injections(content, self._scenario), moment=moment)
        except (InjectionError, OSError) as error:
            return str(error)
        return ""

    def _change(self, wanted: tuple[Injection, ...], *, moment: float) -> None:
        for injection in [one for one in self._held if one not in wanted]:
            self._over += (_ended(fault, moment) for fault in self._held.pop(injection) if fault.from_ < moment)
        for injection in wanted:
            if injection not in self._held:
                self._held[injection] = faults_of(injection, self._scenario, earliest=moment)
        del self._over[:-_MAX_OVER]
        faults = [*self._over, *(fault for held in self._held.values() for fault in held)]
        fresh = self._told.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(faults))
        fresh.replace(self._told)


class FaultsFile:
    """The reader's end: call it for the faults that are injected now. Safe to call from any number of threads."""

    def __init__(self, path: Path, always: tuple[AnyFault, ...] = (), *, clock: Callable[[], float] = time.monotonic) -> None:
        """``always``: faults that hold besides those of the file."""
        self._path = path
        self._always = self._faults = always
        self._clock = clock
        self._lock = threading.Lock()
        self._look_at = 0.0
        self._version: tuple[int, int] | None = None

    def __call__(self) -> tuple[AnyFault, ...]:
        """The same tuple as before while nothing has changed."""
        now = self._clock()
        if now >= self._look_at:
            with self._lock, contextlib.suppress(OSError, msgspec.MsgspecError):
                self._look_at = now + _FOLLOW_SECONDS
                self._follow()
        return self._faults

    def _follow(self) -> None:
        """Every change is a new file, so its number and time tell it from the one before."""
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            version = (status.st_ino, status.st_mtime_ns)
            if version != self._version:
                self._faults = (*self._always, *_DECODER.decode(file.read()))
                self._version = version


def _content(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise InjectionError("is no regular file; expected one that can be read again and again")
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InjectionError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _ended(fault: AnyFault, moment: float) -> AnyFault:
    return msgspec.structs.replace(fault, until=min(fault.end, moment))
