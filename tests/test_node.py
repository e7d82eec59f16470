"""The node: frames in any order go in, and what comes out is fresh, complete and never falls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.device.readings import Fast, Frame, Goodbye, GpuReading, Hello, Identity, Medium, NvmlError, Tick
from gpuwatch.device.supervisor import Ending
from gpuwatch.node import FAULTS_IN_WORDS, Node
from gpuwatch.snapshot import Gpu, Snapshot
from pipeline import check_text

from metrics.scrape import text  # isort: skip

FAST, MEDIUM, STALL = 1.0, 10.0, 5.0
FAST_STALE, MEDIUM_STALE = FAST + STALL, 3 * MEDIUM + STALL
HELLO = Hello(pid=1, gpu_count=2, driver_version="580.1", nvml_version="13", cuda_version="13.0")
WALL = 1_760_000_000.0


def new_node() -> Node:
    """A node that has heard nothing."""
    return Node("n", "0", fast_seconds=FAST, medium_seconds=MEDIUM, stall_seconds=STALL)


def reading(index: int, *, uuid: str | None = None, at: float = 0.0, medium: bool = False, busy: float = 0.5) -> GpuReading:
    """A good reading of a GPU, by default ``GPU-<index>``."""
    name = f"GPU-{index}" if uuid is None else uuid
    return GpuReading(
        index=index,
        at=at,
        uuid=name,
        identity=Identity(index=index, uuid=name, model="T4"),
        fast=Fast(utilization_ratio=busy),
        medium=Medium(energy_joules=at) if medium else None,
        duration_seconds={"fast": 0.001},
    )


def tick(*readings: GpuReading) -> Tick:
    """A frame."""
    return Tick(readings=readings)


def started(*readings: GpuReading, now: float = 0.0) -> Node:
    """A node after hello and these readings."""
    node = new_node()
    node.apply(HELLO, now, WALL)
    node.apply(tick(*(readings or (reading(0, medium=True), reading(1, medium=True)))), now, WALL)
    return node


def faults(snapshot: Snapshot) -> list[str]:
    """By GPU."""
    return [gpu.fault for gpu in snapshot.gpus]


def test_before_the_first_frame() -> None:
    """D21: nothing heard is not up, starting, and no GPU."""
    snapshot = new_node().snapshot(0.0, WALL)
    assert (snapshot.up, snapshot.ready, snapshot.fault, snapshot.gpus) == (False, False, "starting", ())
    assert snapshot.detail == FAULTS_IN_WORDS["starting"]


def test_ready_once_both_tiers_were_read() -> None:
    """Up with the first fast reading, ready when every GPU that answers has been read whole."""
    node = started(reading(0, medium=True), reading(1))
    assert (node.snapshot(0.0, WALL).up, node.snapshot(0.0, WALL).ready) == (True, False)
    node.apply(tick(reading(1, medium=True)), 1.0, WALL)
    assert node.snapshot(1.0, WALL).ready


def test_gpus_are_kept_by_uuid() -> None:
    """M5: two GPUs that swap their indices keep their counters: the UUID says who is who."""
    node = new_node()
    node.apply(HELLO, 0.0, WALL)
    for second in range(5):
        node.apply(tick(reading(0, at=float(second), busy=1.0), reading(1, at=float(second), busy=0.0)), float(second), WALL)
    node.apply(HELLO, 5.0, WALL)
    node.apply(tick(reading(0, uuid="GPU-1", at=5.0, busy=0.0), reading(1, uuid="GPU-0", at=5.0, busy=1.0)), 5.0, WALL)
    gpus = node.snapshot(5.0, WALL).gpus
    assert [(gpu.identity.index, gpu.identity.uuid, gpu.totals.busy_seconds) for gpu in gpus] == [(0, "GPU-1", 0.0), (1, "GPU-0", 5.0)]


def test_a_gpu_that_never_told_its_uuid() -> None:
    """D1: a GPU lost from the start is shown by its index, and becomes itself when it speaks."""
    node = started(reading(0), GpuReading(index=1, at=0.0, fault="gpu_is_lost"))
    assert [(gpu.identity.uuid, gpu.fault) for gpu in node.snapshot(0.0, WALL).gpus] == [("GPU-0", ""), ("", "gpu_is_lost")]
    node.apply(tick(reading(1)), 1.0, WALL)
    assert [gpu.identity.uuid for gpu in node.snapshot(1.0, WALL).gpus] == ["GPU-0", "GPU-1"]


def test_a_known_gpu_lost_in_a_new_reader() -> None:
    """D1: a GPU that was known and is lost when the reader starts anew is still that GPU, with its labels and its counters."""
    node = started()
    node.apply(HELLO, 1.0, WALL)
    node.apply(tick(reading(0), GpuReading(index=1, at=1.0, fault="gpu_is_lost")), 1.0, WALL)
    gpus = node.snapshot(1.0, WALL).gpus
    assert [(gpu.identity.uuid, gpu.identity.model, gpu.fault) for gpu in gpus] == [("GPU-0", "T4", ""), ("GPU-1", "T4", "gpu_is_lost")]
    assert gpus[1].totals.energy_joules == 0.0


def test_values_without_a_uuid_go_to_nobody_known() -> None:
    """A new reader that cannot tell the UUID of GPU 1 yet shows it as unknown: its values may be another board's."""
    node = started()
    node.apply(HELLO, 1.0, WALL)
    node.apply(tick(reading(1, uuid="", at=1.0, busy=1.0)), 1.0, WALL)
    uuids = [gpu.identity.uuid for gpu in node.snapshot(1.0, WALL).gpus]
    assert uuids == ["GPU-0", "", "GPU-1"]
    node.apply(tick(reading(1, at=2.0)), 2.0, WALL)
    assert [gpu.identity.uuid for gpu in node.snapshot(2.0, WALL).gpus] == ["GPU-0", "GPU-1"]


def test_silence_is_a_stall() -> None:
    """D3: a GPU that says nothing past its deadline is down as stalled with nothing stale; the other is up."""
    node = started()
    for second in range(1, 20):
        node.apply(tick(reading(0, at=float(second))), float(second), WALL)
    snapshot = node.snapshot(19.0, WALL)
    assert faults(snapshot) == ["", "stalled"]
    assert (snapshot.gpus[1].fast, snapshot.gpus[1].medium) == (None, None)
    assert snapshot.up


def test_a_gpu_that_was_announced_and_never_read() -> None:
    """D3: a GPU whose very first call hangs is listed by its index once the deadline is over."""
    node = started(reading(0))
    node.apply(tick(reading(0)), FAST_STALE + 1.0, WALL)
    assert len(started(reading(0)).snapshot(1.0, WALL).gpus) == 1
    snapshot = node.snapshot(FAST_STALE + 1.0, WALL)
    assert [(gpu.identity.index, gpu.fault) for gpu in snapshot.gpus] == [(0, ""), (1, "stalled")]


def test_a_gpu_that_is_gone_after_a_restart() -> None:
    """A GPU that the new reader does not count any more is missing, not forgotten."""
    node = started()
    node.apply(Hello(pid=2, gpu_count=1), 10.0, WALL)
    for second in range(10, 30):
        node.apply(tick(reading(0, at=float(second))), float(second), WALL)
    assert faults(node.snapshot(29.0, WALL)) == ["", "missing"]


@pytest.mark.parametrize("restarted", [True, False])
def test_a_gpu_whose_index_another_one_took(restarted: bool) -> None:
    """A GPU that fell off, so that the next one moved up to its index, or that was swapped, is missing; it does not stall."""
    node = started()
    if restarted:
        node.apply(Hello(pid=2, gpu_count=1), 10.0, WALL)
    told = Identity(index=0, uuid="GPU-1", model="T4")
    for second in range(10, 30):
        news = GpuReading(index=0, at=float(second), uuid="GPU-1", identity=told if second == 10 else None, fast=Fast())
        node.apply(tick(news), float(second), WALL)
    shown = {gpu.identity.uuid: gpu.fault for gpu in node.snapshot(29.0, WALL).gpus}
    assert (shown["GPU-0"], shown["GPU-1"]) == ("missing", "")


def test_the_detail_is_that_of_the_fault() -> None:
    """What an earlier reader died of is not told as the reason why the GPUs of the present one cannot be read."""
    node = started()
    node.reader_ended(Ending(reason="exited", detail="the reader ended with status 1"), {"exited": 1})
    node.apply(HELLO, 1.0, WALL)
    for faults_told, fault in ((("gpu_is_lost", "gpu_is_lost"), "gpu_is_lost"), (("gpu_is_lost", "not_found"), "no_gpu_readable")):
        node.apply(tick(*(GpuReading(index=i, at=2.0, uuid=f"GPU-{i}", fault=told) for i, told in enumerate(faults_told))), 2.0, WALL)
        snapshot = node.snapshot(2.0, WALL)
        assert snapshot.fault == fault
        assert "status 1" not in snapshot.detail


def test_the_reader_ends() -> None:
    """D4: values of a reader that died stay until they are stale, so that a quick restart leaves no gap."""
    node = started()
    node.reader_ended(Ending(reason="crashed"), {"crashed": 1})
    shown = node.snapshot(FAST_STALE, WALL)
    assert (shown.up, faults(shown), shown.agent.reader_restarts) == (True, ["", ""], {"crashed": 1})
    stale = node.snapshot(FAST_STALE + 0.1, WALL)
    assert (stale.up, stale.ready, stale.fault, faults(stale)) == (False, False, "crashed", ["reader_down"] * 2)
    assert stale.driver_version == "580.1"
    assert [gpu.identity.model for gpu in stale.gpus] == ["T4", "T4"]
    assert stale.gpus[0].totals.busy_seconds is not None


def test_a_stale_medium_reading_is_not_shown() -> None:
    """A medium tier that hangs takes its values away, not those of the fast tier."""
    node = started()
    for second in range(1, 40):
        node.apply(tick(reading(0, at=float(second)), reading(1, at=float(second))), float(second), WALL)
    gpu = node.snapshot(39.0, WALL).gpus[0]
    assert (gpu.up, gpu.medium) == (True, None)
    assert gpu.fast is not None


def test_errors_add_up() -> None:
    """D20: errors and rejected values of all GPUs and all readers are summed by what they are."""
    node = started()
    for index in (0, 1):
        error = NvmlError(call="nvmlDeviceGetName", error="UNKNOWN", count=500)
        node.apply(tick(GpuReading(index=index, at=0.0, uuid=f"GPU-{index}", errors=(error,), rejected={"power": 2})), 0.0, WALL)
    agent = node.snapshot(0.0, WALL).agent
    assert agent.nvml_errors == {("nvmlDeviceGetName", "UNKNOWN"): 1_000}
    assert agent.nvml_rejected_values == {"power": 4}


@pytest.mark.parametrize("reason", ["driver_not_loaded", "no_gpu", "hung", "something_else"])
def test_the_nodes_fault_in_words(reason: str) -> None:
    """D5: a node that cannot be read says why, as a token and in a sentence."""
    node = new_node()
    node.reader_ended(Ending(reason=reason, detail="in detail"), {reason: 1})
    snapshot = node.snapshot(0.0, WALL)
    assert (snapshot.up, snapshot.fault, snapshot.detail) == (False, reason, FAULTS_IN_WORDS.get(reason, "in detail"))


UUIDS = st.sampled_from(("", "GPU-a", "GPU-b", "GPU-c"))
FASTS = st.one_of(st.none(), st.builds(Fast, utilization_ratio=st.one_of(st.none(), st.floats(0.0, 1.0))))
MEDIUMS = st.one_of(st.none(), st.builds(Medium, energy_joules=st.one_of(st.none(), st.floats(0.0, 1e6))))


@st.composite
def readings(draw: st.DrawFn) -> GpuReading:
    """Whatever a reader may say about a GPU."""
    index, uuid = draw(st.integers(0, 3)), draw(UUIDS)
    if draw(st.integers(0, 4)) == 0:
        return GpuReading(index=index, at=draw(st.floats(0.0, 1e4)), uuid=uuid, fault=draw(st.sampled_from(("gpu_is_lost", "unknown"))))
    identity = Identity(index=index, uuid=uuid, model="T4") if draw(st.booleans()) else None
    return GpuReading(index=index, at=draw(st.floats(0.0, 1e4)), uuid=uuid, identity=identity, fast=draw(FASTS), medium=draw(MEDIUMS))


FRAMES = st.one_of(
    st.builds(Hello, pid=st.just(1), gpu_count=st.integers(0, 4)),
    st.lists(readings(), max_size=4).map(lambda some: Tick(readings=tuple(some))),
    st.lists(readings(), max_size=4).map(lambda some: Tick(readings=tuple(some))),
    st.just(Goodbye(reason="unknown")),
    st.sampled_from(("crashed", "hung", "no_gpu")).map(lambda reason: Ending(reason=reason)),
)


@given(st.lists(st.tuples(st.floats(0.0, 20.0), FRAMES), max_size=25))
def test_any_sequence_of_frames(steps: list[tuple[float, Frame | Ending]]) -> None:
    """Nothing raises, no known GPU vanishes, what is up was read within its deadline, totals never fall, and the text is valid."""
    node, now, known = new_node(), 0.0, dict[str, Gpu]()
    heard: dict[str, float] = {}
    for pause, frame in steps:
        now += pause
        if isinstance(frame, Ending):
            node.reader_ended(frame, {frame.reason: 1})
        else:
            node.apply(frame, now, WALL)
            if isinstance(frame, Tick):
                heard |= {one.uuid: now for one in frame.readings if one.fast is not None and one.uuid}
        snapshot = node.snapshot(now, WALL)
        by_uuid = {gpu.identity.uuid: gpu for gpu in snapshot.gpus if gpu.identity.uuid}
        assert known.keys() <= by_uuid.keys()
        check_gpus(snapshot, heard, now)
        for uuid, before in known.items():
            check_totals(before, by_uuid[uuid])
        known = by_uuid
    check_text(text(node.snapshot(now, WALL)))


def check_gpus(snapshot: Snapshot, heard: dict[str, float], now: float) -> None:
    """Up means fresh; down means a reason and no values."""
    assert snapshot.up == any(gpu.up for gpu in snapshot.gpus)
    assert snapshot.up or snapshot.fault
    for gpu in snapshot.gpus:
        assert gpu.up == (not gpu.fault) == (gpu.fast is not None)
        assert gpu.up or gpu.medium is None
        if gpu.up and gpu.identity.uuid:
            assert now - heard.get(gpu.identity.uuid, now) <= FAST_STALE


def check_totals(before: Gpu, after: Gpu) -> None:
    """Counters of one GPU only grow."""
    for name in ("busy_seconds", "energy_joules"):
        earlier, later = getattr(before.totals, name), getattr(after.totals, name)
        assert earlier is None or (later is not None and later >= earlier)
