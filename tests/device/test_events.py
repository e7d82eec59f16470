"""Listening to the driver's events: what comes through, what does not, and what a driver that refuses, hangs or dies does to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from faulty import FaultyDriver, _Script
from gpuwatch.device import nvml
from gpuwatch.device.events import EventSource, EventWatch
from gpuwatch.device.fault_box import FaultBox
from gpuwatch.device.gpu_thread import GpuThread
from gpuwatch.device.readings import FaultEvent, GpuReading, Identity
from gpuwatch.device.wire import ReaderOptions
from nodes import Node

WAIT = "nvmlEventSetWait_v2"
WALL = 1_760_000_000.0
TWO = "gpus: [{board: h100-sxm, count: 2}]\n"


class Watched:
    """A simulated node whose GPUs are each watched, on one clock and without threads."""

    def __init__(self, text: str) -> None:
        self.node = Node(text)
        self.driver = FaultyDriver(self.node.driver)
        self.box = FaultBox()
        self.source = EventSource(self.box)
        self.fault = "not told"
        count = self.node.driver.nvmlDeviceGetCount()
        self.watches = [self._watch(index) for index in range(count)]

    def _watch(self, index: int) -> EventWatch:
        now: Callable[[], float] = lambda: self.node.t  # noqa: E731
        wall: Callable[[], float] = lambda: WALL + self.node.t  # noqa: E731
        return EventWatch(self.driver, index, box=self.box, source=self.source, clock=now, wall=wall, idle_seconds=0.0)

    def arm(self) -> None:
        """What the GPUs' threads do when they have opened their handles."""
        for index, watch in enumerate(self.watches):
            identity = Identity(index=index, uuid=self.node.ask("UUID", gpu=index), pci_bus_id=f"00000000:{index:02X}:00.0")
            watch.arm(self.node.handle(index), identity)

    def listen(self, seconds: float = 1.0) -> list[FaultEvent]:
        """Everything that is told from now until that many seconds later."""
        found: list[FaultEvent] = []
        for step in range(int(seconds) + 1):
            for watch in self.watches:
                for _ in range(3):
                    watch.step()
            taken = self.box.take()
            found += taken.events
            self.fault = next((health.fault for health in taken.sources), self.fault)
            if step < int(seconds):
                self.node.t += 1.0
        return found


def watched(text: str) -> Watched:
    """Armed at second 0."""
    made = Watched(text)
    made.arm()
    assert made.listen(0) == []
    assert made.fault == ""
    return made


def test_an_xid_comes_through() -> None:
    """An XID has its number, its GPU, and the time at which it came."""
    node = watched(TWO + "faults: [{kind: xid, code: 31, gpu: 1, from: 5}]")
    (event,) = node.listen(10)
    told = (event.kind, event.code, event.uuid, event.pci_bus_id, event.source, event.at, event.gpu_instance, event.pid)
    assert told == ("xid", 31, node.node.ask("UUID", gpu=1), "00000000:01:00.0", "nvml", WALL + 5, None, None)


def test_an_xid_of_a_mig_instance_names_it() -> None:
    """Under MIG the event says which GPU instance it is about."""
    node = watched(TWO + "faults: [{kind: xid, code: 43, gpu: 1, from: 5, gpu_instance: 7}]")
    assert [event.gpu_instance for event in node.listen(10)] == [7]


def test_nothing_is_invented() -> None:
    """A node at work for ten minutes tells nothing."""
    assert watched("gpus: [{board: h200-sxm, loads: [{kind: training}]}]\n").listen(600) == []


def test_xid_0_is_dropped() -> None:
    """Some drivers send an event without a number."""
    node = watched(TWO)
    nothing = SimpleNamespace(eventType=8, eventData=0, gpuInstanceId=0xFFFFFFFF)
    node.driver.answer(WAIT, nothing)
    assert node.listen(3) == []


def test_uncorrected_errors_are_told_at_once() -> None:
    """A double bit error comes as an event of its own and as XID 48."""
    node = watched("gpus: [{board: a100-80gb-sxm}]\nfaults: [{kind: ecc-uncorrected, from: 5}]")
    assert {(event.kind, event.code) for event in node.listen(10)} == {("ecc_double", 0), ("xid", 48), ("xid", 63)}


def test_a_storm_of_corrected_errors_hides_no_xid() -> None:
    """After a hundred corrected errors in a second they are not listened to; an event a second is told until then, and XIDs always."""
    node = watched(
        "gpus: [{board: a100-80gb-sxm}]\nfaults: [{kind: ecc-storm, from: 5, per_second: 17700}, {kind: xid, code: 31, from: 300}]"
    )
    node.node.t = 5.0
    for _ in range(150):
        node.watches[0].step()
    told = node.listen(400)
    assert 1 <= sum(event.kind == "ecc_single" for event in told) <= 2
    assert [event.code for event in told if event.kind == "xid"] == [31]
    assert node.fault == ""


def test_a_lost_gpu_is_no_reason_to_call_the_source_down() -> None:
    """The GPU says itself that it is lost; its neighbour is listened to as before, and it too once it is back (row 13)."""
    node = watched(TWO + "faults: [{kind: gpu-lost, gpu: 1, from: 10, until: 60}, {kind: xid, code: 31, gpu: 0, from: 30}]")
    assert [event.code for event in node.listen(50)] == [31]
    assert node.fault == ""
    node.node.t = 60.0
    node.arm()
    node.listen(0)
    node.driver.answer(WAIT, SimpleNamespace(eventType=8, eventData=94, gpuInstanceId=0xFFFFFFFF))
    assert [event.code for event in node.listen(0)] == [94, 94]


def test_a_gpu_that_refuses_events_is_said_to() -> None:
    """A board that is not listened to makes the source down: silence is not health; the others are listened to."""
    node = Watched(TWO + "faults: [{kind: xid, code: 31, gpu: 0, from: 5}]")
    node.driver.fail("nvmlDeviceRegisterEvents", nvml.NOT_SUPPORTED, gpu=1)
    node.arm()
    assert [event.code for event in node.listen(10)] == [31]
    assert node.fault == "not_supported"


@pytest.mark.parametrize("call", ["nvmlEventSetCreate", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents", WAIT])
@pytest.mark.parametrize("code", [nvml.FUNCTION_NOT_FOUND, nvml.UNKNOWN, nvml.NO_PERMISSION, nvml.UNINITIALIZED])
def test_any_failing_call_is_told_and_tried_again(call: str, code: int) -> None:
    """Whatever fails makes the source down under the error's name, and up again once it works."""
    node = Watched(TWO)
    node.driver.fail(call, code)
    node.arm()
    node.listen(0)
    assert node.fault == nvml.ERROR_NAMES[code].lower()
    node.driver.mend()
    node.listen(12)
    assert node.fault == ""


def test_a_failing_driver_is_not_asked_without_pause() -> None:
    """An error of the wait ends the waiting for ten seconds: no busy loop."""
    node = watched(TWO)
    node.driver.fail(WAIT, nvml.UNKNOWN)
    node.driver.log = []
    node.listen(9)
    assert sum(call == WAIT for call, _ in node.driver.log) == 2


def test_a_hanging_call_is_told_by_others() -> None:
    """A call that does not come back makes the source down after a while; reading the GPU goes on meanwhile."""
    node = watched(TWO)
    release = threading.Event()
    node.driver.log = []
    node.driver.block("nvmlDeviceRegisterEvents", release)
    node.arm()
    thread = threading.Thread(target=node.watches[0].step)
    thread.start()
    while not any(call == "nvmlDeviceRegisterEvents" for call, _ in node.driver.log):
        release.wait(0.001)
    node.node.t += 16.0
    node.watches[0].check()
    (health,) = node.box.take().sources
    assert (health.up, health.fault) == (False, "stalled")
    readings: list[GpuReading] = []
    reader = GpuThread(node.driver, 0, options=ReaderOptions(), emit=readings.append, clock=lambda: node.node.t, watch=node.watches[0])
    reader.read_fast_tier()
    assert [reading.fault for reading in readings] == [""]
    release.set()
    thread.join()
    node.listen(12)
    assert node.fault == ""


def test_a_wait_that_comes_back_late_listens_again() -> None:
    """The driver blocked the wait for longer than anyone believes; once it answers, the source is up."""
    node = watched(TWO)
    late: list[str] = []

    def slow(_: Any) -> Any:
        node.node.t += 16.0
        node.watches[0].check()
        late.extend(health.fault for health in node.box.take().sources)
        return SimpleNamespace(eventType=8, eventData=31, gpuInstanceId=0xFFFFFFFF)

    node.driver._script(WAIT, _Script(None, slow, times=1))
    assert [event.code for event in node.listen(2)] == [31]
    assert late == ["stalled"]
    assert node.fault == ""


def test_a_thread_that_opens_its_gpu_has_it_watched() -> None:
    """The GPU's thread arms its watch when it has a handle, again when the GPU was away, and when MIG was switched."""
    faults = "[{kind: gpu-lost, from: 10, until: 20}, {kind: mig-reshape, gpu: 0, from: 30, layout: [1g.10gb]}]"
    node = Node(f"gpus: [{{board: a100-80gb-sxm}}]\nfaults: {faults}")
    armed: list[tuple[float, str, str]] = []

    class Noting(EventWatch):
        def arm(self, handle: Any, identity: Identity) -> None:
            assert handle == node.handle()
            armed.append((node.t, identity.uuid, identity.pci_bus_id or ""))

    box = FaultBox()
    watch = Noting(node.driver, 0, box=box, source=EventSource(box))
    reader = GpuThread(node.driver, 0, options=ReaderOptions(pcie_throughput=False), emit=lambda _: None, clock=lambda: node.t, watch=watch)
    for t in (0.0, 1.0, 10.0, 11.0, 20.0, 21.0, 30.0, 31.0):
        node.t = t
        reader.read_both_tiers()
    assert [(at, bool(uuid), bool(address)) for at, uuid, address in armed] == [(0.0, True, True), (20.0, True, True), (30.0, True, True)]
