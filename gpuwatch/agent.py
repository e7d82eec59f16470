"""The agent: one event loop that owns the supervisor of the reader, the present snapshot, the HTTP server and the signals."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import sys
import time
from collections.abc import Callable

import structlog

from gpuwatch import __version__
from gpuwatch.config import Settings
from gpuwatch.curves import Curves
from gpuwatch.device.readings import Frame, Tick
from gpuwatch.device.supervisor import Ending, Supervisor
from gpuwatch.device.wire import Simulation
from gpuwatch.health.board import HealthBoard
from gpuwatch.health.xid import policy_of
from gpuwatch.journal import Journal
from gpuwatch.node import Node
from gpuwatch.snapshot import Snapshot
from gpuwatch.tagging import Tagger, states_of
from gpuwatch.wiring import herald_of, kube_sources, label_map, reader_options, xid_overrides

EXIT_OK, EXIT_CANNOT_LISTEN = 0, 3
_TICK_SECONDS = 1.0
_LATE_TICKS = 30
_LIVENESS_FAULTS = frozenset({"unknown", "no_permission", "operating_system"})
"""Faults of a whole node that only a new container cures: it has lost its device files, as after a systemd reload."""
_MAX_HANG_DOUBLINGS = 6
_ONCE_SPARE_SECONDS = 5.0
_HEAD_START_SECONDS = 0.01
"""So that the reader's process is started before this one is busy with imports."""
_SOURCES_SECONDS = 0.05
"""Between two looks at sources that have not answered yet."""

_log = structlog.get_logger("gpuwatch.agent")


class Agent:
    """Merges what the reader sends into the present snapshot. Everything here runs on the event loop's thread."""

    def __init__(
        self, settings: Settings, simulation: Simulation | None = None, *, once: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._clock = clock
        read = settings.read
        overrides = xid_overrides(settings)
        self._node = Node(
            settings.node_name,
            __version__,
            fast_seconds=read.fast_interval_seconds,
            medium_seconds=read.medium_interval_seconds,
            stall_seconds=read.stall_after_seconds,
            simulated=simulation is not None,
            once=once,
            classify=lambda code: (policy_of(code, overrides).category, policy_of(code, overrides).severity),
        )
        self._health = HealthBoard(read_seconds=read.medium_interval_seconds, overrides=overrides)
        options = reader_options(settings, simulation, once=once)
        self._supervisor = Supervisor(options, settings.reader, on_frame=self._on_frame, on_end=self._on_end)
        self._journal = Journal()
        self._curves = Curves()
        self._labels = label_map(settings)
        self._sources = kube_sources(settings, simulation, epoch=options.epoch)
        self._herald = herald_of(settings, simulation, once=once)
        self._tags = not once
        self._tagger = Tagger(
            labels_of=lambda pod: self._labels.labels_of(pod) if pod is not None else ("",) * len(self._labels.names),
            grace_seconds=settings.kubernetes.grace_seconds,
            max_gap_seconds=read.fast_interval_seconds + read.stall_after_seconds,
        )
        self._ticked_at = clock()
        self._published_at = -math.inf
        self._unreadable_since: float | None = None
        self._patient_since = 0.0
        self._heard_at: float | None = None
        self._was_readable = False
        self._hangs = 0
        self._snapshot = self._node.snapshot(self._clock(), time.time())

    def snapshot(self) -> Snapshot:
        """The present snapshot; never blocks."""
        return self._snapshot

    def curves(self) -> Curves:
        """The last five minutes of each GPU."""
        return self._curves

    def alive(self) -> tuple[bool, str]:
        """Whether this process works. A driver that is missing or a GPU that is lost does not make it sick: a restart would not help."""
        late = self._clock() - self._ticked_at
        if late > _LATE_TICKS * _TICK_SECONDS:
            return False, f"the read loop has not moved for {late:.0f} s"
        limit = self._settings.liveness.unreadable_after_seconds
        if limit and self._was_readable and self._unreadable_since is not None and self._snapshot.fault in _LIVENESS_FAULTS:
            unreadable = self._clock() - self._unreadable_since
            if unreadable > limit:
                return False, f"no GPU can be read since {unreadable:.0f} s ({self._snapshot.fault}): {self._snapshot.detail}"
        return True, ""

    @property
    def pod_labels(self) -> tuple[str, ...]:
        """Names of the metric labels made of pod labels."""
        return self._labels.names

    async def run(self) -> None:
        """Read and tick until cancelled."""
        if self._sources is not None:
            self._sources.start()
        self._herald.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._supervisor.run())
                tasks.create_task(self._tick_for_ever())
        finally:
            self._herald.stop()
            if self._sources is not None:
                self._sources.stop()

    async def read_once(self) -> Snapshot:
        """One life of a reader that makes two passes and ends; what did not answer in time is shown as down."""
        read = self._settings.read
        limit = self._settings.reader.start_deadline_seconds + read.fast_interval_seconds + read.stall_after_seconds
        life = asyncio.create_task(self._supervisor.run_life())
        watch = asyncio.create_task(self._until_silent())
        await asyncio.wait({life, watch}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        ending = await life if life.done() else Ending(reason="stalled")
        for task in (life, watch):
            task.cancel()
        await asyncio.wait({life, watch})
        if ending.reason not in ("done", "stalled"):
            self._node.reader_ended(ending, dict(self._supervisor.restarts))
        await self._until_sources_answered()
        self._publish()
        return self._snapshot

    async def _until_sources_answered(self) -> None:
        """Give the sources of attribution a moment to tell the first time."""
        if self._sources is None:
            return
        self._sources.start()
        self._sources.offer_pids(pids_of(self._snapshot))
        give_up_at = self._clock() + _ONCE_SPARE_SECONDS
        while self._clock() < give_up_at and any(  # noqa: ASYNC110 (the sources are threads)
            state.fault == "starting" for state in states_of(self._sources.view()).values()
        ):
            await asyncio.sleep(_SOURCES_SECONDS)
        self._sources.stop()
        self._tags = True

    def _on_frame(self, frame: Frame) -> None:
        if not isinstance(frame, Tick) or frame.readings:
            self._heard_at = self._clock()
        self._node.apply(frame, self._clock(), time.time())
        self._publish()

    def _on_end(self, ending: Ending) -> None:
        self._node.reader_ended(ending, dict(self._supervisor.restarts))
        _log.debug("the reader ended", reason=ending.reason, detail=ending.detail)
        if ending.reason in ("crashed", "killed", "hung", "protocol", "exited", "cannot_start"):
            _log.warning("the reader ended unexpectedly; a new one is started", reason=ending.reason, detail=ending.detail)
        self._publish()

    def _publish(self) -> None:
        now = self._published_at = self._clock()
        snapshot = self._node.snapshot(now, time.time())
        views = None
        if self._sources is not None and self._tags:
            self._sources.offer_pids(pids_of(snapshot))
            views = self._sources.view()
            snapshot = self._tagger.tag(snapshot, views, now)
        snapshot = self._health.judge(snapshot, now)
        self._journal.note(snapshot)
        self._curves.note(snapshot, now)
        self._snapshot = self._herald.tell(snapshot, views, now)

    async def _tick_for_ever(self) -> None:
        while True:
            self.tick(self._clock())
            await asyncio.sleep(_TICK_SECONDS)

    def tick(self, now: float) -> None:
        """Notice what no frame tells: readings that became stale, a node that cannot be read, a reader whose GPUs all hang."""
        self._ticked_at = now
        if now - self._published_at >= _TICK_SECONDS / 2:
            self._publish()
        if self._snapshot.up:
            self._was_readable, self._unreadable_since, self._hangs = True, None, 0
            return
        if self._unreadable_since is None:
            self._unreadable_since = self._patient_since = now
        patience = self._settings.reader.hang_deadline_seconds * 2 ** min(self._hangs, _MAX_HANG_DOUBLINGS)
        if self._supervisor.pid is not None and self._snapshot.gpus and now - self._patient_since > patience:
            # Not for one hung GPU among sound ones: a new reader might hang in its start and cost them all.
            self._hangs += 1
            self._patient_since = now
            reason = "hung" if self._snapshot.fault == "stalled" else "unreadable"
            self._supervisor.kill(Ending(reason=reason, detail=f"no GPU could be read for {patience:g} s ({self._snapshot.fault})"))

    async def _until_silent(self) -> None:
        """Ends when the reader has said hello and then brought no news of a GPU for as long as a GPU may stay silent."""
        read = self._settings.read
        patience = read.fast_interval_seconds + read.stall_after_seconds + _ONCE_SPARE_SECONDS
        while self._heard_at is None or self._clock() - self._heard_at < patience:  # noqa: ASYNC110 (silence is no event)
            await asyncio.sleep(_TICK_SECONDS)


def pids_of(snapshot: Snapshot) -> frozenset[int]:
    """Every process that holds a GPU."""
    return frozenset(process.pid for gpu in snapshot.gpus if gpu.fast for process in gpu.fast.processes or ())


def run(settings: Settings, simulation: Simulation | None, on_listening: Callable[[int], None] = lambda _: None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. ``on_listening`` is called with the port, once it is listened on."""
    code = asyncio.run(_serve(settings, simulation, on_listening))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the interpreter takes its handlers away before it is gone
    return code


def once(settings: Settings, simulation: Simulation | None) -> Snapshot:
    """Read the GPUs once, with two passes so that GPM has a difference."""

    async def read() -> Snapshot:
        return await Agent(settings, simulation, once=True).read_once()

    return asyncio.run(read())


async def _serve(settings: Settings, simulation: Simulation | None, on_listening: Callable[[int], None]) -> int:
    agent = Agent(settings, simulation)
    stopped = _stop_on_signal()
    work = asyncio.create_task(agent.run())
    await asyncio.sleep(_HEAD_START_SECONDS)
    # While the reader starts, this process has time to import what only serving needs: together they take a third longer.
    from gpuwatch.metrics.exposition import Exposition, process_registry  # noqa: PLC0415
    from gpuwatch.server import Server, ServerError  # noqa: PLC0415

    server = Server(settings.server, agent, Exposition(process_registry(), agent.pod_labels))
    try:
        await server.start()
    except ServerError as error:
        await _cancelled(work)
        print(f"gpuwatch: {error}", file=sys.stderr)  # noqa: T201 (the last word before the exit code)
        return EXIT_CANNOT_LISTEN
    on_listening(server.bound_port)
    stopping = asyncio.create_task(stopped.wait())
    await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
    await _cancelled(work)
    await server.stop()
    if not stopping.done():
        stopping.cancel()
        work.result()  # the read loop broke: let its error be seen
    _log.info("stopped")
    return EXIT_OK


def _stop_on_signal() -> asyncio.Event:
    """Set by SIGTERM and SIGINT. The handlers outlive the loop: a second signal does not spoil the end that the first one began."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(_number: int, _frame: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the end is near
            loop.call_soon_threadsafe(stopped.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return stopped


async def _cancelled(work: asyncio.Task[None]) -> None:
    """End the read loop, and with it the reader."""
    work.cancel()
    await asyncio.wait({work})
