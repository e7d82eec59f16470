"""List and watch: a copy of one resource of the API server that follows it through one open request.

Source of the protocol: the Kubernetes API concepts, "Efficient detection of changes". A list gives the objects and a resource version; a
watch from that version gives every change since. Where the server no longer knows the version (410) changes are lost, deletions among
them, so the next list takes the place of everything known.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec
import structlog

from gpuwatch.kube import answers, client
from gpuwatch.kube.client import ApiError, ApiServer, one_line
from gpuwatch.kube.objects import SourceState

FAULTS = client.FAULTS | {"starting", "junk", "internal"}
"""Every ``SourceState.fault`` of a source that watches, but for the empty one."""
_WATCH_SECONDS = (300, 600)
"""Asked of the server; spread, so that the watches of many nodes do not end together."""
_SPARE_SECONDS = 30.0
_START_JITTER_SECONDS = 5.0
_LEAST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 1.0, 60.0
_FORBIDDEN_PAUSE_SECONDS = (120.0, 300.0)
_ABSENT_PAUSE_SECONDS = (300.0, 600.0)
_MAX_RETRY_AFTER_SECONDS = 300.0
_SOUND_AFTER_SECONDS = 60.0
"""A watch that lived this long ends a row of failures."""

_log = structlog.get_logger("gpuwatch.kube")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Generic[_T]):
    """What is watched. ``locate`` gives the path, or ``None`` where the cluster has no such API; it is asked before each list."""

    name: str
    locate: Callable[[ApiServer], str | None]
    parse: Callable[[msgspec.Raw], _T | None]
    """The object in our form; ``None``: of no interest, not kept. Raises msgspec's ``DecodeError`` for what is no such object."""
    field_selector: str = ""


class Watcher(Generic[_T]):
    """Follows one resource. All of it runs on its own thread; ``objects`` and ``state`` are replaced, never changed, so any may read.

    Args:
        api: The server; this watcher's alone.
        resource: What to follow.
        publish: Called after each change of ``objects`` or ``state``.
        clock: CLOCK_MONOTONIC in seconds.
        sleep: Waits so many seconds, or until :meth:`stop`.
        chance: Spreads pauses and durations.
    """

    def __init__(
        self,
        api: ApiServer,
        resource: Resource[_T],
        *,
        publish: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._api = api
        self._resource = resource
        self._publish = publish
        self._clock = clock
        self._stopped = threading.Event()
        self._sleep = sleep or self._stopped.wait
        self._chance = chance or random.Random()  # noqa: S311 - spreads load, hides nothing
        self._objects: dict[str, _T] = {}
        self._path: str | None = None
        self._version = "0"
        """``0`` lets the first list come from the server's cache; empty: whatever the store holds."""
        self._list_is_due = True
        self._verb = "list"
        self._failures = 0
        self._opened_at: float | None = None
        self._told_fault = "starting"
        self._listener_failed = False
        self._rejected_names: frozenset[str] = frozenset()
        self.rejected = 0
        """Answers, lines and objects that could not be understood, since the start."""
        self.state = SourceState()
        self.objects: Mapping[str, _T] = MappingProxyType({})
        """By UID."""

    def start(self) -> None:
        """Begin, in a thread of its own."""
        threading.Thread(target=self.run, name=f"watch {self._resource.name}", daemon=True).start()

    def stop(self) -> None:
        """End after the present request; does not wait."""
        self._stopped.set()

    def run(self) -> None:
        """Rounds until stopped. The nodes of a cluster may start together, so the first one waits a moment."""
        self._sleep(self._chance.uniform(0, _START_JITTER_SECONDS))
        while not self._stopped.is_set():
            self._sleep(self.follow())
        self._api.close()

    def follow(self) -> float:
        """One round: a list where one is due, then a watch to its end. Returns the pause before the next round in seconds."""
        self._opened_at = None
        try:
            if self._list_is_due:
                self._verb = "list"
                self._path = self._resource.locate(self._api)
                if self._path is None:
                    return self._note_absence()
                self._list(self._path)
            self._verb = "watch"
            self._watch(self._path or "")
        except ApiError as error:
            return self._note_failure(error)
        except Exception as error:  # noqa: BLE001 - a defect must not end the thread: it is shown, logged and tried again
            _log.debug("a watch failed unexpectedly", resource=self._resource.name, exc_info=True)
            self._list_is_due = True
            return self._note_failure(ApiError(0, one_line(f"{type(error).__name__}: {error}"), fault="internal"))
        self._failures = 0
        self._tell("")
        return self._chance.uniform(_LEAST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS)

    def _query(self, **params: str) -> dict[str, str]:
        return {"fieldSelector": self._resource.field_selector, **params} if self._resource.field_selector else params

    def _list(self, path: str) -> None:
        body = self._api.get(path, self._query(**({"resourceVersion": self._version} if self._version else {})))
        try:
            answer = answers.list_of(body)
        except answers.JUNK_ERRORS as error:
            raise self._junk(error) from None
        objects: dict[str, _T] = {}
        rejected: list[str] = []
        for raw in answer.items or ():
            try:
                self._keep(objects, raw)
            except answers.JUNK_ERRORS as error:
                rejected.append(f"{answers.name_of(raw)}: {one_line(str(error))}")
        self._note_rejected(rejected)
        self._objects = objects
        self._version = answer.metadata.resource_version or "0"
        self._list_is_due = False
        self._note_success()
        if self._told_fault == "starting":
            self._tell("")

    def _keep(self, objects: dict[str, _T], raw: msgspec.Raw) -> str:
        """Take one object in, or out if it is of no interest. Returns its resource version."""
        key = answers.key_of(raw)
        if not key.uid:
            raise msgspec.ValidationError("metadata.uid is missing or empty; expected the UID of an object")
        kept = self._resource.parse(raw)
        if kept is None:
            objects.pop(key.uid, None)
        else:
            objects[key.uid] = kept
        return key.resource_version

    def _watch(self, path: str) -> None:
        seconds = self._chance.randint(*_WATCH_SECONDS)
        query = self._query(watch="1", resourceVersion=self._version, allowWatchBookmarks="true", timeoutSeconds=str(seconds))
        began = self._clock()
        with closing(self._api.stream(path, query, seconds + _SPARE_SECONDS)) as lines:
            self._opened_at = self._clock()
            if not self.state.up:
                self._note_success()
            for line in lines:
                if self._stopped.is_set():
                    return
                if line.strip():
                    self._apply(line)
        if self._clock() - began < seconds - _SPARE_SECONDS:
            raise ApiError(0, "the API server ended the watch early", fault="closed")

    def _apply(self, line: bytes) -> None:
        """One line of a watch. Source: meta/v1 ``WatchEvent``."""
        try:
            event = answers.event_of(line)
            if event.type == "ERROR":
                raise answers.error_of(event.object)
            if event.type in ("ADDED", "MODIFIED"):
                version = self._keep(self._objects, event.object)
            elif event.type == "DELETED":
                key = answers.key_of(event.object)
                self._objects.pop(key.uid, None)
                version = key.resource_version
            elif event.type == "BOOKMARK":
                version = answers.key_of(event.object).resource_version
            else:
                raise msgspec.ValidationError(f"event type {one_line(event.type)!r}; expected ADDED, MODIFIED, DELETED, BOOKMARK or ERROR")
        except answers.JUNK_ERRORS as error:
            raise self._junk(error) from None
        if answers.is_newer(version, self._version):
            self._version = version
        self._note_success()
        self._tell("")

    def _junk(self, error: Exception) -> ApiError:
        """What was in the answer is unknown, so the facts are listed anew."""
        self._list_is_due = True
        return ApiError(0, f"not understood: {one_line(str(error))}", fault="junk")

    def _note_rejected(self, rejected: list[str]) -> None:
        self.rejected += len(rejected)
        if rejected and self._rejected_names != frozenset(rejected):
            _log.warning("objects are left out: not understood", resource=self._resource.name, objects=len(rejected), first=rejected[0])
        self._rejected_names = frozenset(rejected)

    def _note_success(self) -> None:
        self._change(SourceState(up=True, fault="", updated_at=self._clock()))

    def _note_absence(self) -> float:
        self._objects = {}
        self._failures = 0
        self._note_success()
        self._tell("")
        return self._chance.uniform(*_ABSENT_PAUSE_SECONDS)

    def _note_failure(self, error: ApiError) -> float:
        """Decide how to go on. Returns the pause in seconds."""
        if self._opened_at is not None and self._clock() - self._opened_at > _SOUND_AFTER_SECONDS:
            self._failures = 0
        self._failures += 1
        self.rejected += error.fault == "junk"
        if error.fault in ("expired", "not_found"):
            self._list_is_due = True
        if "Too large resource version" in error.reason or (error.fault == "expired" and self._verb == "list"):
            # The store was restored from a backup, or our version is too old for the cache: ask for whatever there is.
            self._list_is_due, self._version = True, ""
        # API servers end watches when they are replaced, and forget; whether anything new came in them, the age tells.
        passing = error.fault == "expired" or (error.fault == "closed" and self._opened_at is not None)
        if not (passing and self.state.up):
            self._change(SourceState(fault=error.fault, detail=self._detail(error), updated_at=self.state.updated_at))
            self._tell(error.fault)
        return self._pause(error)

    def _pause(self, error: ApiError) -> float:
        if error.fault == "forbidden":
            return self._chance.uniform(*_FORBIDDEN_PAUSE_SECONDS)
        longest = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures - 1, 16), _MAX_PAUSE_SECONDS)
        asked = min(error.retry_after or 0.0, _MAX_RETRY_AFTER_SECONDS)
        return asked + max(self._chance.uniform(0, longest), _LEAST_PAUSE_SECONDS)

    def _detail(self, error: ApiError) -> str:
        name, verb = self._resource.name, self._verb
        if error.fault == "forbidden":
            return f"the service account lacks the verb {verb} on {name}; a ClusterRole must allow it ({error.reason})"
        return f"{verb} {name}: {error}"

    def _change(self, state: SourceState) -> None:
        self.state = state
        self.objects = MappingProxyType(dict(self._objects))
        try:
            self._publish()
        except Exception as error:  # noqa: BLE001 - whoever listens must not end the thread
            if not self._listener_failed:
                _log.warning("a listener failed", resource=self._resource.name, error=one_line(f"{type(error).__name__}: {error}"))
            self._listener_failed = True

    def _tell(self, fault: str) -> None:
        """Log a change. Recovery is told of when a watch has brought something, so that a server that cannot decide fills no log."""
        if fault == self._told_fault:
            return
        self._told_fault = fault
        if fault:
            _log.warning("the API server does not serve", resource=self._resource.name, fault=fault, detail=self.state.detail)
        else:
            _log.info("following the API server", resource=self._resource.name, objects=len(self._objects))
