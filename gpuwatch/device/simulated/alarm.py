"""What the driver of a simulated node tells by itself when the scenario's faults strike: lines of the kernel log, and events.

Pure functions of the scenario, so that a new reader finds the same log as the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpuwatch.device.kernel_line import Record
from gpuwatch.device.kernel_log import Stretch
from gpuwatch.device.simulated.fault import (
    AnyFault,
    DriverUpgrade,
    EccUncorrected,
    GpuLost,
    NvlinkDown,
    RecoveryAction,
    RemappedRows,
    RetiredPages,
    Xid,
)
from gpuwatch.device.simulated.gpu import SimulatedGpu
from gpuwatch.device.simulated.scenario import Scenario

DOUBLE_BIT, XID = 0x2, 0x8
"""``nvmlEventType*`` of the events that come one by one."""
_MEMORY_ERRORS = {
    48: "DBE (double bit error) in device memory",
    94: "a contained memory error",
    95: "an uncontained memory error",
}
_RECOVERY = {1: "GPU Reset Required", 2: "Node Reboot Required", 3: "Drain P2P", 4: "Drain and Reset"}


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing the driver tells at ``at`` seconds. An event type of 0 is no NVML event, an empty line is not logged."""

    at: float
    gpu: int
    event_type: int
    code: int
    line: str = ""
    gpu_instance: int | None = None


def alarms_of(scenario: Scenario, gpus: Sequence[SimulatedGpu]) -> tuple[Alarm, ...]:
    """Everything the node's driver tells over the scenario, in the order of time."""
    found = [alarm for gpu in gpus for fault in gpu.faults for alarm in _of_gpu(fault, gpu)]
    upgrades = (fault for fault in scenario.faults if isinstance(fault, DriverUpgrade) and fault.until is not None)
    loaded = [Alarm(fault.end, -1, 0, 0, f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {fault.driver}") for fault in upgrades]
    return tuple(sorted([*found, *loaded], key=lambda alarm: alarm.at))


def _of_gpu(fault: AnyFault, gpu: SimulatedGpu) -> Iterator[Alarm]:
    def xid(code: int, text: str, *, at: float = fault.from_, event: bool = True) -> Alarm:
        return Alarm(at, gpu.index, XID if event else 0, code, f"NVRM: Xid (PCI:{_short(gpu)}): {code}, {text}")

    match fault:
        case Xid():
            yield from _told(fault, gpu)
        case GpuLost():
            # What is no longer on the bus cannot raise an interrupt: no event.
            yield xid(79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", event=False)
            yield Alarm(fault.from_, gpu.index, 0, 0, f"NVRM: GPU {_short(gpu)}.0: GPU has fallen off the bus.")
        case EccUncorrected():
            yield Alarm(fault.from_, gpu.index, DOUBLE_BIT, 0)
            yield xid(fault.xid, f"pid='<unknown>', name=<unknown>, {_MEMORY_ERRORS[fault.xid]}")
            yield xid(63, "row remapping or page retirement is pending")
        case RemappedRows(failed=True):
            yield xid(64, "the row remapper could not record a row")
        case RemappedRows(pending=True) | RetiredPages(pending=True):
            yield xid(63, "row remapping or page retirement is pending")
        case NvlinkDown():
            yield xid(74, f"pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link {fault.link}")
        case RecoveryAction() if fault.action in _RECOVERY:
            asked = f"{fault.action:#x} ({_RECOVERY[fault.action]})"
            yield xid(154, f"GPU recovery action changed from 0x0 (None) to {asked}")
            if fault.until is not None:
                yield xid(154, f"GPU recovery action changed from {asked} to 0x0 (None)", at=fault.end, event=False)
        case _:
            return


def _told(fault: Xid, gpu: SimulatedGpu) -> Iterator[Alarm]:
    """The XID as often as the scenario says."""
    instance = "" if fault.gpu_instance is None else f" GPU-I:{fault.gpu_instance:02d}"
    pid = "'<unknown>'" if fault.pid is None else fault.pid
    line = f"NVRM: Xid (PCI:{_short(gpu)}{instance}): {fault.code}, pid={pid}, name=<unknown>, {fault.text}"
    for number in range(fault.times):
        at = fault.from_ + number * fault.every
        if at < fault.end:
            event = XID if fault.source != "kernel_log" else 0
            yield Alarm(at, gpu.index, event, fault.code, line if fault.source != "nvml" else "", fault.gpu_instance)


def _short(gpu: SimulatedGpu) -> str:
    """The address as the kernel's driver prints it: four digits of domain, no function."""
    return gpu.pci_bus_id.lower()[4:].partition(".")[0]


class SimulatedFeed:
    """The kernel log of a simulated node: see :class:`gpuwatch.device.kernel_log.LogFeed`.

    ``alarms`` may answer more or fewer that are still to come, never other ones of the past.
    """

    def __init__(
        self, alarms: Callable[[], Sequence[Alarm]], clock: Callable[[], float], *, after: int = -1, sleep: Callable[[float], None]
    ) -> None:
        self._alarms = alarms
        self._clock = clock
        self._sleep = sleep
        self.after = after

    @property
    def now_seconds(self) -> float:
        """Seconds since the scenario's start."""
        return self._clock()

    def read(self, limit: int) -> Stretch:
        """Lines that were written by now."""
        now = self._clock()
        new = [record for record in self._unread() if record.seconds <= now]
        if new[:limit]:
            self.after = new[:limit][-1].sequence
        return Stretch(new[:limit], complete=len(new) <= limit)

    def wait(self, seconds: float) -> None:
        """Until the next line, at most that long."""
        ahead = [record.seconds - self._clock() for record in self._unread()[:1]]
        self._sleep(max(0.0, min([seconds, *ahead])))

    def _unread(self) -> list[Record]:
        """Numbered by their times (microseconds), so that a line keeps its number whatever else is injected later."""
        records: list[Record] = []
        number = -1
        for alarm in self._alarms():
            if alarm.line:
                number = max(number + 1, round(alarm.at * 1e6))
                records.append(Record(number, alarm.at, alarm.line))
        return [record for record in records if record.sequence > self.after]

    def close(self) -> None:
        """Nothing to close."""
