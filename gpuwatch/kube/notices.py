"""Tells the cluster: events about pods and the node, and the node's condition, from a thread of its own that may be blocked as it likes.

The agent's loop leaves here what is to be told and never waits. An event is worthless after ten minutes, a condition as soon as there is a
newer one; neither is kept longer.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import structlog

from gpuwatch.kube.client import ApiError, ApiServer
from gpuwatch.kube.events import NODE_NAMESPACE, Announcement, Posting, postings_of, probe_of
from gpuwatch.kube.lane import SLOW_PAUSE_SECONDS, Lane
from gpuwatch.kube.node_condition import Condition, Known, known_in, patch_of, path_of
from gpuwatch.kube.objects import SourceState
from gpuwatch.kube.pods import node_name

RESULTS: Final = frozenset({"posted", "already_told", "gone", "refused", "expired", "dropped"})
"""What becomes of an event: created; known to the server; its pod or namespace is gone; not accepted; too old; too many were waiting."""
_MOST_WAITING: Final = 256
_WORTH_SECONDS: Final = 600.0
_HEARTBEAT_SECONDS: Final = 300.0
_LEAST_SPACING_SECONDS: Final = 10.0
"""After a change of the condition, before the next one is sent: each makes the API server write and tell all who watch nodes."""
_IDLE_SECONDS: Final = 60.0
_START_JITTER_SECONDS: Final = 5.0
_DRY_RUN: Final = {"dryRun": "All"}
_SLOW_FAULTS: Final = frozenset({"forbidden", "not_found"})

_log = structlog.get_logger("gpuwatch.kube")


class Notices:
    """What is waiting, and the thread that sends it. ``events`` and ``condition``: which of the two are wished.

    Args:
        api: The server, for this thread alone.
        node: The node's name in Kubernetes.
        events: Post events.
        condition: Keep the condition ``GpuHealthy`` of the node.
        clock: CLOCK_MONOTONIC in seconds.
        wall: Unix time in seconds.
        chance: Spreads pauses.

    Raises:
        ValueError: The name cannot be a node's.
    """

    def __init__(
        self,
        api: ApiServer,
        node: str,
        *,
        events: bool,
        condition: bool,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        chance: random.Random | None = None,
    ) -> None:
        self._api = api
        self._node = node_name(node)
        self._clock = clock
        self._wall = wall
        self._chance = chance or random.Random()  # noqa: S311 - spreads load, hides nothing
        self._events = Lane("events", "create on events", clock=clock, chance=self._chance) if events else None
        self._condition = (
            Lane("node_condition", "patch on nodes/status", clock=clock, chance=self._chance, slow=_SLOW_FAULTS) if condition else None
        )
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._waiting: deque[tuple[float, Posting]] = deque()
        self._probe: Posting | None = probe_of(NODE_NAMESPACE, node, wall()) if events else None
        self._forbidden: dict[str, float] = {}
        """Namespace → when to try again there."""
        self._counts: Counter[str] = Counter()
        self._wanted: Condition | None = None
        self._shown: Condition | None = None
        self._shown_at = 0.0
        self._known: Known | None = None

    @property
    def states(self) -> dict[str, SourceState]:
        """How well each of the two does; may be read from any thread."""
        return {lane.name: lane.state for lane in (self._events, self._condition) if lane is not None}

    @property
    def counts(self) -> dict[str, int]:
        """Events since the start by what became of them, one of :data:`RESULTS`."""
        with self._lock:
            return dict(self._counts)

    def start(self) -> None:
        """Begin, in a thread of its own."""
        threading.Thread(target=self.run, name="kube-notices", daemon=True).start()

    def stop(self) -> None:
        """End after the present request; does not wait."""
        self._stopping.set()
        self._wake.set()

    def tell(self, announcements: Iterable[Announcement]) -> None:
        """Post events about these, soon. Of too many waiting the oldest are dropped."""
        if self._events is None:
            return
        now = self._clock()
        fresh = [(now, posting) for announcement in announcements for posting in postings_of(announcement, self._node)]
        with self._lock:
            self._waiting.extend(fresh)
            while len(self._waiting) > _MOST_WAITING:
                self._waiting.popleft()
                self._counts["dropped"] += 1
        if fresh:
            self._wake.set()

    def show(self, condition: Condition) -> None:
        """Let the node have this condition; the newest counts."""
        if self._condition is not None and condition != self._wanted:
            self._wanted = condition
            self._wake.set()

    def run(self) -> None:
        """Send until stopped. The nodes of a cluster may start together, so the first one waits a moment."""
        self._wake.wait(self._chance.uniform(0, _START_JITTER_SECONDS))
        while not self._stopping.is_set():
            self._wake.clear()
            self._wake.wait(self.step())
        self._api.close()

    def step(self) -> float:
        """At most one event and one condition. Returns how long there is nothing to do, unless something comes, in seconds."""
        if self._events is not None:
            self._events.attempt(self._post_next)
        if self._condition is not None:
            self._condition.attempt(self._patch)
        now = self._clock()
        dues = [due for due in (self._events_due(), self._condition_due()) if due is not None]
        return min(max(min(dues, default=now + _IDLE_SECONDS) - now, 0.0), _IDLE_SECONDS)

    def _events_due(self) -> float | None:
        if self._events is None or (self._probe is None and not self._waiting):
            return None
        if self._next() is not None:
            return self._events.pause_until
        return max(self._events.pause_until, min(self._forbidden.values(), default=0.0))

    def _condition_due(self) -> float | None:
        if self._condition is None or self._wanted is None:
            return None
        due = 0.0 if self._wanted != self._shown else self._shown_at + _HEARTBEAT_SECONDS
        return max(self._condition.pause_until, due)

    def _next(self) -> Posting | None:
        """The first event that is still worth something and not for a namespace that has just refused one."""
        now = self._clock()
        self._forbidden = {namespace: until for namespace, until in self._forbidden.items() if until > now}
        with self._lock:
            while self._waiting and now - self._waiting[0][0] > _WORTH_SECONDS:
                self._waiting.popleft()
                self._counts["expired"] += 1
            postings = [posting for _, posting in self._waiting]
        postings = ([self._probe] if self._probe is not None else []) + postings
        return next((posting for posting in postings if posting.namespace not in self._forbidden), None)

    def _post_next(self) -> bool:
        posting = self._next()
        if posting is None:
            return False
        result = "posted"
        try:
            self._api.post(posting.path, _DRY_RUN if posting.is_probe else {}, posting.body)
        except ApiError as error:
            if error.fault == "forbidden" and not _is_ending(error):
                self._forbidden[posting.namespace] = self._clock() + self._chance.uniform(*SLOW_PAUSE_SECONDS)
                # Asked again until the right is there, also when nothing is left to be told.
                self._probe = probe_of(posting.namespace, self._node, self._wall())
            final = _result_of(error)
            if final is None:
                raise
            result = final
            if result == "refused" and not self._counts["refused"]:
                _log.warning("the API server refuses an event; others that it refuses are only counted", reason=error.reason)
        self._settle(posting, result)
        return not self._forbidden

    def _settle(self, posting: Posting, result: str) -> None:
        if posting.is_probe:
            self._probe = None
            return
        with self._lock:
            self._counts[result] += 1
            self._waiting = deque(one for one in self._waiting if one[1] is not posting)

    def _patch(self) -> bool:
        due = self._condition_due()
        wanted, now = self._wanted, self._clock()
        if wanted is None or due is None or due > now:
            return False
        path = path_of(self._node)
        try:
            if self._known is None:
                # An empty patch changes nothing and is answered with the node: so what it said before is known without another right.
                self._known = known_in(self._api.patch(path, {}))
            self._known = known_in(self._api.patch(path, patch_of(wanted, self._known, self._wall())))
        except msgspec.DecodeError as error:
            raise ApiError(0, f"the answer to {path} is not understood: {error}", fault="internal") from None
        if self._condition is not None and wanted != self._shown:
            self._condition.pause_until = now + _LEAST_SPACING_SECONDS
        self._shown, self._shown_at = wanted, now
        return True


def _is_ending(error: ApiError) -> bool:
    """The namespace is being deleted, for which the server's word is 403 too."""
    return "being terminated" in error.reason


def _result_of(error: ApiError) -> str | None:
    """What became of the event; ``None``: to be tried again."""
    if error.fault == "conflict":
        return "already_told"
    if error.fault == "not_found" or (error.fault == "forbidden" and _is_ending(error)):
        return "gone"
    return "refused" if error.fault == "refused" else None
