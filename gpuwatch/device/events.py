"""Listens to the driver's own events: critical XIDs and ECC errors, without asking again and again.

Each GPU has an event set and a thread of its own. One set could hold every GPU, but waiting for it fails as soon as one of them is lost,
and a call that hangs on one would silence all; eight threads that wake once a second cost a thousandth of a core.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from gpuwatch.device import nvml
from gpuwatch.device.fault_box import FaultBox
from gpuwatch.device.kernel_line import normalise_address
from gpuwatch.device.nvml import Driver, NVMLError
from gpuwatch.device.readings import FaultEvent, Identity

SINGLE_BIT, DOUBLE_BIT, XID = 0x1, 0x2, 0x8
"""``nvmlEventType*``. The others tell nothing that a reading does not tell better (clocks, P-states), or have no documented content."""
_WAIT_MILLISECONDS: Final = 1000
_RETRY_SECONDS: Final = 10.0
_STALLED_SECONDS: Final = 15.0
_STORM_EVENTS: Final = 100
"""Corrected errors in a second after which they are not listened to for an hour: counters tell as much, and no XID may queue behind."""
_MUTE_SECONDS: Final = 3600.0
_NO_INSTANCE: Final = 0xFFFFFFFF
_LOST: Final = "gpu_is_lost"


@dataclass(frozen=True, slots=True, eq=False)
class _Wish:
    """Listen to this GPU, by this handle."""

    handle: Any
    uuid: str
    pci_bus_id: str


class EventSource:
    """What the watches of all GPUs together say of the source ``nvml``. Safe to use from several threads.

    It is down while a GPU that answers is not listened to: silence is not health. A lost GPU is no reason: it says so itself.
    """

    def __init__(self, box: FaultBox) -> None:
        self._box = box
        self._lock = threading.Lock()
        self._faults: dict[int, str] = {}
        box.set_source("nvml", "starting")

    def report(self, index: int, fault: str) -> None:
        """A watch listens (empty), or why it does not."""
        with self._lock:
            self._faults[index] = fault
            told = [one for one in self._faults.values() if one != _LOST]
            faults = [one for one in told if one]
        self._box.set_source("nvml", faults[0] if faults else "" if told else _LOST)


class EventWatch:
    """Listens to one GPU. :meth:`arm` belongs to the GPU's own thread, :meth:`step` and :meth:`run` to the watch's."""

    def __init__(
        self,
        driver: Driver,
        index: int,
        *,
        box: FaultBox,
        source: EventSource,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        idle_seconds: float = 1.0,
    ) -> None:
        """``idle_seconds``: how long a step waits for a handle while there is nothing to listen to."""
        self.index = index
        self._idle_seconds = idle_seconds
        self._driver = driver
        self._box = box
        self._source = source
        self._clock = clock
        self._wall = wall
        self._wish: _Wish | None = None
        self._wished = threading.Event()
        self._armed: _Wish | None = None
        self._set: Any = None
        self._retry_at = 0.0
        self._busy_since: float | None = None
        self._storm = (0.0, 0)
        self._muted_until = 0.0
        self._stalled = False

    def arm(self, handle: Any, identity: Identity) -> None:
        """Listen to the GPU behind this handle from now on: it was opened, or its MIG mode has changed. Never blocks."""
        address = normalise_address(identity.pci_bus_id) if identity.pci_bus_id else ""
        self._wish = _Wish(handle, identity.uuid, address)
        self._wished.set()

    def run(self) -> None:
        """Listen for ever. A mistake in this code costs a pause, never the thread."""
        while True:
            try:
                self.step()
            except Exception as error:  # noqa: BLE001 (the last place that can keep the thread)
                self._give_up(type(error).__name__)
                time.sleep(self._idle_seconds)
            self._busy_since = None

    def step(self) -> None:
        """Arm if that is due, then wait for one event, about a second at most."""
        wish = self._wish
        if wish is not None and (wish is not self._armed or (self._set is None and self._clock() >= self._retry_at)):
            self._wished.clear()
            self._begin(wish)
        if self._set is None or self._armed is None:
            self._wished.wait(self._idle_seconds)
            return
        try:
            data = self._call("nvmlEventSetWait_v2", self._set, _WAIT_MILLISECONDS)
        except NVMLError as error:
            if error.value != nvml.TIMEOUT:
                self._give_up(nvml.error_name(error).lower())
                return
            data = None
        if self._stalled:
            self._stalled = False
            self._source.report(self.index, "")
        if data is not None:
            self._take(data, self._armed)

    def check(self) -> None:
        """Called by another thread about once a second: a driver that does not come back from a call is no source."""
        since = self._busy_since
        if since is not None and self._clock() - since > _STALLED_SECONDS:
            self._stalled = True
            self._source.report(self.index, "stalled")

    def _begin(self, wish: _Wish) -> None:
        self._free()
        self._armed = wish
        try:
            types = self._call("nvmlDeviceGetSupportedEventTypes", wish.handle) & (XID | DOUBLE_BIT | SINGLE_BIT)
            if self._clock() < self._muted_until:
                types &= ~SINGLE_BIT
            if not types & XID:
                self._give_up("not_supported")
                return
            self._set = self._call("nvmlEventSetCreate")
            self._call("nvmlDeviceRegisterEvents", wish.handle, types, self._set)
        except NVMLError as error:
            self._give_up(nvml.error_name(error).lower())
            return
        self._source.report(self.index, "")

    def _give_up(self, fault: str) -> None:
        """Not listening for now; tried again after a while, or when the GPU was opened anew."""
        self._free()
        self._retry_at = self._clock() + _RETRY_SECONDS
        self._source.report(self.index, fault)

    def _free(self) -> None:
        event_set, self._set = self._set, None
        if event_set is not None:
            try:
                self._call("nvmlEventSetFree", event_set)
            except NVMLError:
                return  # the library is down, or the GPU is: nothing to free

    def _take(self, data: Any, armed: _Wish) -> None:
        kind = int(data.eventType)
        code = int(data.eventData) if kind & XID else 0
        if kind & XID and not code:
            return  # some drivers send an event without a number: there is nothing to say about it
        instance = int(data.gpuInstanceId)
        self._box.add(
            FaultEvent(
                kind="xid" if kind & XID else "ecc_double" if kind & DOUBLE_BIT else "ecc_single",
                code=code,
                uuid=armed.uuid,
                pci_bus_id=armed.pci_bus_id,
                source="nvml",
                at=self._wall(),
                gpu_instance=None if instance == _NO_INSTANCE else instance,
            )
        )
        if kind & SINGLE_BIT:
            self._notice_storm()

    def _notice_storm(self) -> None:
        now = self._clock()
        began, count = self._storm
        self._storm = (began, count + 1) if now - began < 1.0 else (now, 1)
        if self._storm[1] > _STORM_EVENTS:
            self._muted_until = now + _MUTE_SECONDS
            self._armed = None

    def _call(self, name: str, *args: Any) -> Any:
        self._busy_since = self._clock()
        try:
            return getattr(self._driver, name)(*args)
        except AttributeError:
            raise NVMLError(nvml.FUNCTION_NOT_FOUND) from None
        finally:
            self._busy_since = None
