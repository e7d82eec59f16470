"""What the agent has heard: through the node into the snapshot, over restarts of the reader."""

from __future__ import annotations

from gpuwatch.device.readings import FaultEvent, GpuReading, Hello, Identity, SourceHealth, Tick
from gpuwatch.device.supervisor import Ending
from gpuwatch.health.hearing import KEPT_EVENTS
from gpuwatch.node import Node
from gpuwatch.snapshot import Snapshot

WALL = 1_760_000_000.0
ADDRESS = "00000000:3b:00.0"


class Told:
    """A node, and what it shows after each frame."""

    def __init__(self) -> None:
        self.node = Node("n", "0", fast_seconds=1.0, medium_seconds=10.0, stall_seconds=5.0)
        self.node.apply(Hello(pid=1, gpu_count=1), 0.0, WALL)

    def identify(self, uuid: str = "GPU-0") -> None:
        """The GPU at the address is read."""
        identity = Identity(index=0, uuid=uuid, pci_bus_id=ADDRESS.upper())
        self.node.apply(Tick(readings=(GpuReading(index=0, at=0.0, uuid=uuid, identity=identity),)), 0.0, WALL)

    def hear(self, *events: FaultEvent, sources: tuple[SourceHealth, ...] = (), lines: dict[str, int] | None = None) -> Snapshot:
        """A frame of the reader."""
        self.node.apply(Tick(events=events, sources=sources, log_lines=lines or {}), 0.0, WALL)
        return self.node.snapshot(0.0, WALL)


def line(code: int, at: float = 0.0, *, uuid: str = "") -> FaultEvent:
    """A line of the kernel log about the GPU at the address."""
    return FaultEvent(kind="xid", code=code, pci_bus_id=ADDRESS, uuid=uuid, source="kernel_log", at=at)


def test_an_xid_reaches_its_gpu() -> None:
    """A line that only names the address counts for the GPU that is there, also when its MIG or lost state hides everything else."""
    told = Told()
    told.identify()
    shown = told.hear(line(79, 5.0))
    assert [(one.xid, one.count, one.last_seen_seconds, one.severity) for one in shown.gpus[0].xids] == [("79", 1, 5.0, "page")]
    assert [event.uuid for event in shown.listening.events] == ["GPU-0"]
    assert shown.listening.event_count == 1


def test_what_came_before_the_gpu_was_known_is_kept_for_it() -> None:
    """At the start the kernel log is read before the first GPU: its lines wait for the identity."""
    told = Told()
    assert told.hear(line(48)).listening.event_count == 0
    told.identify()
    assert [one.xid for one in told.hear().gpus[0].xids] == ["48"]


def test_counters_and_lines_outlive_the_reader() -> None:
    """A restart of the reader forgets nothing; until the new one says so nobody listens."""
    told = Told()
    told.identify()
    up = (SourceHealth(source="kernel_log", up=True), SourceHealth(source="nvml", up=False, fault="not_supported"))
    assert told.hear(line(31), sources=up, lines={"xid": 3}).listening.sources == up
    told.node.reader_ended(Ending(reason="crashed"), {"crashed": 1})
    down = told.node.snapshot(0.0, WALL)
    assert [(one.source, one.up, one.fault) for one in down.listening.sources] == [
        ("kernel_log", False, "reader_down"),
        ("nvml", False, "not_supported"),
    ]
    told.node.apply(Hello(pid=2, gpu_count=1), 0.0, WALL)
    shown = told.hear(line(31, 30.0), sources=up[:1], lines={"xid": 2})
    assert shown.gpus[0].xids[0].count == 2
    assert shown.listening.log_lines == {"xid": 5}
    assert shown.listening.sources[0].up


def test_who_looks_after_each_frame_misses_no_event() -> None:
    """The newest events are as many as a frame can bring, and their number tells which are new."""
    told = Told()
    told.identify()
    for frame in range(3):
        shown = told.hear(*(line(code, 100.0 * frame) for code in range(1, KEPT_EVENTS + 1)))
        new = shown.listening.event_count - frame * KEPT_EVENTS
        assert [event.code for event in shown.listening.events[-new:]] == list(range(1, KEPT_EVENTS + 1))
    assert len(shown.listening.events) == KEPT_EVENTS
