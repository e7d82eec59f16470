"""Everything in the reader that waits to be told: a watch for each GPU's events, and the follower of the kernel log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gpuwatch.device.events import EventSource, EventWatch
from gpuwatch.device.fault_box import FaultBox, Taken
from gpuwatch.device.kernel_log import KernelLog, KmsgFeed, LogFeed
from gpuwatch.device.nvml import Driver
from gpuwatch.device.wire import ReaderOptions


class Listening:
    """Owned by the reader's main thread. A recording is not listened to: this machine's kernel log is not the recorded one's.

    ``ring`` is called from other threads when something has come.
    """

    def __init__(self, driver: Driver, count: int, options: ReaderOptions, ring: Callable[[], None] = lambda: None) -> None:
        self._box = FaultBox(ring)
        self.watches: tuple[EventWatch, ...] = ()
        self._log: KernelLog | None = None
        if options.replay:
            return
        if not options.once:
            source = EventSource(self._box)
            self.watches = tuple(EventWatch(driver, index, box=self._box, source=source) for index in range(count))
        if feed := _feed_of(driver, options):
            self._log = KernelLog(feed, self._box, started_at=options.started_at or time.time())
        if options.once and self._log is not None:
            self._log.catch_up()

    def watch_of(self, index: int) -> EventWatch | None:
        """The watch of one GPU; ``None`` where nobody listens."""
        return self.watches[index] if self.watches else None

    def start(self) -> None:
        """Start the threads; nobody ever waits for them to end."""
        if not self.watches:
            return
        for watch in self.watches:
            threading.Thread(target=watch.run, name=f"events-{watch.index}", daemon=True).start()
        if self._log is not None:
            threading.Thread(target=self._log.run, name="kernel-log", daemon=True).start()

    def take(self) -> Taken:
        """What has come since the last call, and whether everybody still listens."""
        for watch in self.watches:
            watch.check()
        return self._box.take()


def _feed_of(driver: Driver, options: ReaderOptions) -> LogFeed | None:
    if options.simulation is not None:
        feed: LogFeed = driver.kernel_log(options.log_sequence)
        return feed
    return KmsgFeed(options.kernel_log, options.log_sequence) if options.kernel_log else None
