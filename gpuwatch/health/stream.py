"""One stream of fault events out of two sources: each fault once, and with the UUID of its GPU wherever that is known. Pure.

NVML and the kernel log tell of most faults both, each in its own time; some only one of them tells. An event is taken for the other
source's account of a known one when GPU, kind and number are the same and their times are at most ten seconds apart. Each event is matched
once, so that a fault which happens twice is counted twice. Where NVML was first, the log's account still comes through, marked as one that
only completes: NVML has no words, and some XIDs are judged by them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from gpuwatch.device.kernel_line import normalise_address
from gpuwatch.device.readings import FaultEvent, Identity

_SAME_FAULT_SECONDS: Final = 10.0
_MAX_WAITING: Final = 4096
"""Events that may still meet their other account; in a storm the oldest are given up."""


class FaultStream:
    """Remembers addresses and the events of the last seconds."""

    def __init__(self) -> None:
        self._uuid_at: dict[str, str] = {}
        self._address_of: dict[str, str] = {}
        self._waiting: deque[FaultEvent] = deque(maxlen=_MAX_WAITING)

    def learn(self, identity: Identity) -> None:
        """Which GPU is at which address. After an exchange of the board another one is at the same address."""
        if not identity.uuid or not identity.pci_bus_id:
            return
        address = normalise_address(identity.pci_bus_id)
        self._uuid_at[address] = identity.uuid
        self._address_of[identity.uuid] = address

    def merge(self, events: Iterable[FaultEvent]) -> tuple[FaultEvent, ...]:
        """Those of the events that tell something new, with what is known of their GPU filled in."""
        return tuple(fresh for told in events if (fresh := self._fresh(self.placed(told))) is not None)

    def placed(self, event: FaultEvent) -> FaultEvent:
        """The event with UUID and address, as far as they are known. What was read from the GPU is trusted more than a log line's UUID."""
        if event.kind == "sxid":
            return event
        uuid = self._uuid_at.get(event.pci_bus_id) or event.uuid
        address = event.pci_bus_id or self._address_of.get(event.uuid, "")
        if (uuid, address) == (event.uuid, event.pci_bus_id):
            return event
        return msgspec.structs.replace(event, uuid=uuid, pci_bus_id=address)

    def _fresh(self, event: FaultEvent) -> FaultEvent | None:
        for other in self._waiting:
            if other.source != event.source and _is_same(other, event):
                self._waiting.remove(other)
                return msgspec.structs.replace(event, completes=True) if event.source == "kernel_log" else None
        while self._waiting and event.at - self._waiting[0].at > 2 * _SAME_FAULT_SECONDS:
            self._waiting.popleft()
        self._waiting.append(event)
        return event


def _is_same(one: FaultEvent, other: FaultEvent) -> bool:
    if (one.kind, one.code) != (other.kind, other.code) or abs(one.at - other.at) > _SAME_FAULT_SECONDS:
        return False
    return bool(one.uuid and one.uuid == other.uuid) or bool(one.pci_bus_id and one.pci_bus_id == other.pci_bus_id)
