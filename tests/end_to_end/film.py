"""A simulated node from driver to exposition, step by step in simulated time, kept as the texts that a Prometheus would have scraped.

The parts are those of the daemon, in its order: readers, kernel log, node, sources of attribution, tags, verdict, exposition.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gpuwatch.agent import pids_of
from gpuwatch.device.fault_box import FaultBox
from gpuwatch.device.kernel_log import KernelLog, Stretch
from gpuwatch.kube.objects import SourceState, Views
from gpuwatch.kube.simulated import SimulatedSources
from gpuwatch.metrics.exposition import Exposition
from gpuwatch.snapshot import Snapshot
from gpuwatch.tagging import Tagger
from health.watched import EPOCH, Watched

STEP_SECONDS = 60.0
_TIMESTAMP = re.compile(r"^(\w+_timestamp_seconds\{[^}]*\}) (\S+)$", re.MULTILINE)
_COMMENT = re.compile(r"^#.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Frame:
    """One exposition: its series without those of timestamps, packed, and those with their Unix times."""

    packed: bytes
    timestamps: tuple[tuple[str, float], ...]

    def text(self, when: Callable[[float], float]) -> bytes:
        """As a scrape reads it; ``when`` says which Unix time a simulated one is."""
        told = "".join(f"{series} {when(at):.3f}\n" for series, at in self.timestamps)
        return zlib.decompress(self.packed) + told.encode()


class Node(Watched):
    """A node with its pods. ``broken``: what the sources of attribution say instead, from a time on; ``deaf``: no kernel log.

    Its agent starts at ``begin``, seconds of the scenario.
    """

    def __init__(self, text: str, *, broken: tuple[float, str] | None = None, deaf: bool = False, begin: float = 0.0) -> None:
        self._sources: SimulatedSources | None = None
        self._tagger = Tagger(labels_of=lambda _: (), grace_seconds=300.0, max_gap_seconds=2 * STEP_SECONDS)
        self._broken = broken
        super().__init__(text, read_seconds=STEP_SECONDS)
        self._sources = SimulatedSources(self.scenario, lambda: self.t, now=lambda: self.t)
        self._deaf = deaf
        self.t = self._began = begin

    def merged(self) -> Snapshot:
        """Tagged."""
        snapshot = super().merged()
        if self._sources is None or not self.scenario.pods:
            return snapshot
        self._sources.offer_pids(pids_of(snapshot))
        return self._tagger.tag(snapshot, self._views(self._sources.view()), self.t)

    def film(self, seconds: float) -> list[Frame]:
        """One frame a step for that long."""
        exposition, frames = Exposition(None), []
        for _ in range(int(seconds / STEP_SECONDS)):
            self._step()
            frames.append(_frame(exposition.render(self.snapshot, "", "")[0].decode()))
            self.t += STEP_SECONDS
        return frames

    def _start(self) -> bool:
        """A new reader listens anew, behind what the one before it has heard."""
        if not super()._start():
            return False
        heard, self._box = self._log._feed.after, FaultBox()
        feed = _Refused() if self._deaf else self._load().kernel_log(heard)
        self._log = KernelLog(feed, self._box, started_at=EPOCH + self._began, wall=lambda: EPOCH + self.t)
        self._box.set_source("nvml", "")
        return True

    def _views(self, views: Views) -> Views:
        if self._broken is None or self.t < self._broken[0]:
            return views
        down = SourceState(up=False, fault=self._broken[1], updated_at=self._broken[0])
        return msgspec.structs.replace(views, allocations=msgspec.structs.replace(views.allocations, state=down))


class _Refused:
    """A kernel log that the container may not open."""

    now_seconds = 0.0
    after = -1

    def read(self, _limit: int) -> Stretch:
        raise PermissionError(13, "Permission denied")

    def wait(self, _seconds: float) -> None:
        """Nothing comes."""

    def close(self) -> None:
        """Nothing is open."""


def _frame(text: str) -> Frame:
    series = _COMMENT.sub("", text)
    stamps = tuple((found[1], float(found[2])) for found in _TIMESTAMP.finditer(series))
    return Frame(zlib.compress(_TIMESTAMP.sub("", series).encode(), 1), stamps)
