"""Follows the kernel log: the one source that still tells of a GPU which fell off the bus, or that the driver's events leave out.

``/dev/kmsg`` needs CAP_SYSLOG; without it this source is down and says so, and nothing else changes. The ring is read from its beginning at
the start of the agent: its lines carry their own times, and a new reader goes on behind the last record that the agent has seen.
"""

from __future__ import annotations

import errno
import os
import select
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from gpuwatch.device.fault_box import FaultBox
from gpuwatch.device.kernel_line import Line, Record, opens_lost_message, parse_line, parse_record
from gpuwatch.device.readings import FaultEvent

OLDEST_SECONDS: Final = 7200.0
"""Of an older line nobody can tell whether its cause still holds."""
_RECORD_BYTES: Final = 16384
"""A record and its keys are at most half of this; the kernel refuses a buffer that is too small."""
_BATCH: Final = 1000
_PAUSE_SECONDS: Final = 0.2
"""Between full batches: five thousand lines a second at most, a tenth of a core. What is not read is overwritten and counted."""
_IDLE_SECONDS: Final = 0.2
_POLL_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 30.0
_MAX_REFUSALS: Final = 100
_MAX_ADDRESSES: Final = 256
_ECHO_SECONDS: Final = 300.0
"""The driver tells of a lost GPU with its number and without it, and of a lost one again at every attempt to use it."""
_PROMPT_SECONDS: Final = 10.0
"""A line that was just written is read within this."""
_FELL_OFF: Final = 79
_WORDS = (b"NVRM: ", b"SXid", b"GPU reset executed")
_NAMES = {errno.EACCES: "permission", errno.EPERM: "permission", errno.ENOENT: "missing", errno.ENXIO: "missing", errno.ENODEV: "missing"}


_Value = TypeVar("_Value", str, float)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Records that lie one after the other. ``overwritten`` were lost before they could be read; ``complete``: there are no more now."""

    records: list[Record]
    overwritten: int = 0
    complete: bool = True


class LogFeed(Protocol):
    """Where records come from: the kernel, or a simulated node."""

    @property
    def now_seconds(self) -> float:
        """The clock of the records' times, now."""

    @property
    def after(self) -> int:
        """Number of the last record read; -1 before the first."""

    def read(self, limit: int) -> Stretch:
        """About ``limit`` records at most, without waiting.

        Raises:
            OSError: the log cannot be opened or read.
        """

    def wait(self, seconds: float) -> None:
        """Block until there is more, at most that long."""

    def close(self) -> None:
        """Give back what is open; the next read opens it anew."""


class KmsgFeed:
    """Records of ``/dev/kmsg``, or of a file or FIFO in the same format. ``after`` is the number of the last record already seen.

    Only lines with one of the driver's words are decoded: in a storm of others each costs a microsecond.
    """

    def __init__(self, path: str, after: int = -1) -> None:
        self._path = path
        self._after = after
        self._file: int | None = None
        self._rest = b""

    @property
    def now_seconds(self) -> float:
        """The kernel stamps records with a clock that, like CLOCK_MONOTONIC and unlike CLOCK_BOOTTIME, stands still in suspend."""
        return time.monotonic()

    def read(self, limit: int) -> Stretch:
        """See :class:`LogFeed`."""
        if self._file is None:
            self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._rest = b""
        records: list[Record] = []
        overwritten = seen = refusals = 0
        while seen < limit:
            try:
                data = os.read(self._file, _RECORD_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                refusals += 1
                # EPIPE: the ring overtook us, the next read stands at its oldest record. EINVAL: a record too long for us was skipped.
                if error.errno not in (errno.EPIPE, errno.EINVAL) or refusals > _MAX_REFUSALS:
                    self.close()
                    raise
                continue
            if not data:
                break
            for raw in self._split(data):
                seen += 1
                overwritten += self._keep(raw, records)
        return Stretch(records, overwritten, complete=seen < limit)

    def wait(self, seconds: float) -> None:
        """See :class:`LogFeed`. After the first sign of news it waits a moment: lines come in bursts, and a file is always ready."""
        if self._file is None:
            time.sleep(seconds)
            return
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        if poll.poll(seconds * 1000.0):
            time.sleep(_IDLE_SECONDS)

    def close(self) -> None:
        """See :class:`LogFeed`."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _split(self, data: bytes) -> list[bytes]:
        """Whole lines; a device gives one record a read, a file or FIFO gives them in pieces."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) <= _RECORD_BYTES else b""
        return [line for line in lines if line and not line.startswith(b" ")]

    def _keep(self, raw: bytes, records: list[Record]) -> int:
        """Add the record if it is new and the driver's; how many are missing before it."""
        number = raw[: raw.find(b";")].split(b",", 2)[1:2]
        if not number or not number[0].isdigit() or len(number[0]) > 20:  # noqa: PLR2004 (digits of 64 bits)
            return 0
        sequence = int(number[0])
        if sequence <= self._after:
            return 0
        missing = sequence - self._after - 1 if self._after >= 0 else 0
        self._after = sequence
        if any(word in raw for word in _WORDS) and (record := parse_record(raw)) is not None:
            records.append(record)
        return missing

    @property
    def after(self) -> int:
        """Number of the last record read; -1 before the first."""
        return self._after


class KernelLog:
    """Turns records into events. Belongs to one thread; :meth:`catch_up` may be called before it runs.

    Args:
        feed: where the records come from.
        box: where the events go.
        started_at: Unix time of the agent's start; what was logged before is marked as replayed.
        wall: Unix time.
    """

    def __init__(self, feed: LogFeed, box: FaultBox, *, started_at: float, wall: Callable[[], float] = time.time) -> None:
        self._feed = feed
        self._box = box
        self._started_at = started_at
        self._wall = wall
        self._continues = feed.after >= 0
        self._live = False
        self._uuids: dict[str, str] = {}
        self._lost_at: dict[str, float] = {}
        self._opened = ""

    def run(self) -> None:
        """Follow the log for ever."""
        while True:
            if self.read_batch():
                time.sleep(_PAUSE_SECONDS)
            elif self._live:
                self._feed.wait(_POLL_SECONDS)
            else:
                time.sleep(_RETRY_SECONDS)

    def catch_up(self) -> None:
        """Read what is there now."""
        while self.read_batch():
            pass

    def read_batch(self) -> bool:
        """Read one stretch and pass its events on; true when there is probably more. A log that cannot be read is told once."""
        before = self._feed.after
        try:
            stretch = self._feed.read(_BATCH)
        except OSError as error:
            self._live = False
            self._box.set_source("kernel_log", _NAMES.get(error.errno or 0, "unreadable"))
            return False
        lines: Counter[str] = Counter()
        if stretch.overwritten:
            lines["overwritten"] = stretch.overwritten
        events = [event for record in stretch.records if (event := self._event_of(record, lines)) is not None]
        self._box.add_log(events, lines, self._feed.after if self._feed.after != before else None)
        self._box.set_source("kernel_log", "")
        self._live = self._live or stretch.complete
        return not stretch.complete

    def _event_of(self, record: Record, lines: Counter[str]) -> FaultEvent | None:
        """The event in the record, if it holds one; ``lines`` counts what kind of line it is."""
        line = parse_line(record.text)
        if line is None:
            self._opened = opens_lost_message(record.text) or self._opened
            return None
        if line.kind == "identity":
            _remember(self._uuids, line.pci_bus_id, line.uuid)
            return None
        at = self._time_of(record)
        if self._wall() - at > OLDEST_SECONDS:
            lines["too_old"] += 1
            return None
        lines["sxid" if line.kind == "detail" else line.kind] += 1
        return self._event(line, at)

    def _event(self, line: Line, at: float) -> FaultEvent | None:
        pci = line.pci_bus_id
        if line.kind == "lost":
            pci = pci or self._opened
            self._opened = ""
            if not pci or at - self._lost_at.get(pci, -_ECHO_SECONDS) < _ECHO_SECONDS:
                return None
        elif line.kind == "reset":
            self._lost_at.pop(pci, None) if pci else self._lost_at.clear()
        elif line.kind not in ("xid", "sxid") or line.code == 0:
            return None
        if line.kind != "sxid" and line.code == _FELL_OFF:
            _remember(self._lost_at, pci, at)
        return FaultEvent(
            kind="xid" if line.kind in ("xid", "lost") else "sxid" if line.kind == "sxid" else "reset",
            code=line.code,
            uuid=line.uuid or ("" if line.kind == "sxid" else self._uuids.get(pci, "")),
            pci_bus_id=pci,
            source="kernel_log",
            at=at,
            text=line.text,
            pid=line.pid,
            gpu_instance=line.gpu_instance,
            replayed=at < self._started_at and not self._continues,
        )

    def _time_of(self, record: Record) -> float:
        """Unix time. The kernel's clock is never set right and may be minutes off after months, so news is taken to be new."""
        lag = self._feed.now_seconds - record.seconds
        return self._wall() - (lag if lag >= 0.0 and (lag <= _PROMPT_SECONDS or not self._live) else 0.0)


def _remember(known: dict[str, _Value], key: str, value: _Value) -> None:
    """Keep the newest; garbage must not fill the memory."""
    if len(known) >= _MAX_ADDRESSES and key not in known:
        known.clear()
    known[key] = value
