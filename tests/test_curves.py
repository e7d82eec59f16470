"""The last five minutes: a bounded ring in which a gap stays a gap."""

from __future__ import annotations

import tracemalloc

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.curves import LENGTH, STEP_SECONDS, Curves
from gpuwatch.device.readings import Activity, Fast, Medium, Memory, MigInstance
from gpuwatch.snapshot import Gpu, Snapshot
from snapshots import GIB, a100_mig, h100, node

UUID = h100().identity.uuid


def drawing(power: float | None) -> Snapshot:
    """A node with one GPU that draws so much; ``None``: it does not answer."""
    fast = None if power is None else Fast(power_watts=power)
    return node(msgspec.structs.replace(h100(), up=fast is not None, fast=fast))


def noted(*powers: float | None, start: float = 1000.0) -> Curves:
    """A sample a step."""
    curves = Curves()
    for step, power in enumerate(powers):
        curves.note(drawing(power), start + step * STEP_SECONDS)
    return curves


def test_values_are_kept_in_their_order() -> None:
    """The newest stands last; what was before the start is not known."""
    assert noted(10.0, 20.0, 30.0).of("power_watts", UUID) == (*(None,) * (LENGTH - 3), 10.0, 20.0, 30.0)


def test_a_silent_gpu_leaves_a_gap_not_a_zero() -> None:
    """A GPU that did not answer for a while has no value there, and zero is zero."""
    assert noted(0.0, None, None, 5.0).of("power_watts", UUID)[-4:] == (0.0, None, None, 5.0)


def test_steps_that_were_slept_through_are_gaps() -> None:
    """An agent that stood still does not join the ends of its sleep."""
    curves = noted(10.0)
    curves.note(drawing(20.0), 1000.0 + 3 * STEP_SECONDS)
    assert curves.of("power_watts", UUID)[-4:] == (10.0, None, None, 20.0)
    curves.note(drawing(30.0), 1e6)
    assert curves.of("power_watts", UUID) == (*(None,) * (LENGTH - 1), 30.0)


def test_one_sample_a_step() -> None:
    """However often it is told within a step, the first counts."""
    curves = Curves()
    for moment in range(5):
        curves.note(drawing(float(moment)), 1000.0 + moment)
    assert curves.of("power_watts", UUID)[-1] == 0.0


def test_only_five_minutes_are_kept() -> None:
    """What is older is forgotten, and so is a GPU that has been gone for as long."""
    curves = noted(*map(float, range(200)))
    assert curves.of("power_watts", UUID) == tuple(map(float, range(200 - LENGTH, 200)))
    for step in range(200, 200 + LENGTH):
        curves.note(node(h100(1)), 1000.0 + step * STEP_SECONDS)
    assert curves.of("power_watts", UUID) == ()
    assert len(curves._rings) == 1


def test_what_a_board_never_reports_has_no_curve() -> None:
    """A GPU in MIG mode has no utilisation; its instances have curves of their own."""
    curves = Curves()
    gpu = a100_mig()
    assert gpu.medium is not None
    curves.note(node(msgspec.structs.replace(gpu, medium=msgspec.structs.replace(gpu.medium, mig_activity={"MIG-1-1": ACTIVE}))), 0.0)
    assert curves.of("utilization_ratio", gpu.identity.uuid) == ()
    assert curves.of("memory_ratio", gpu.identity.uuid, "MIG-1-0")[-1] == 0.30000001192092896
    assert curves.of("sm_active_ratio", gpu.identity.uuid, "MIG-1-1")[-1] == 0.5


ACTIVE = Activity(sm_active_ratio=0.5)


@given(st.lists(st.tuples(st.floats(0, 1e4), st.none() | st.floats()), max_size=80))
def test_any_course_of_time_and_values_keeps_the_newest_value_in_its_place(course: list[tuple[float, float | None]]) -> None:
    """Whatever comes, a curve is empty or whole, and ends with the last sample."""
    curves, now, step, last = Curves(), 0.0, -1, None
    for passed, power in course:
        now += passed
        curves.note(drawing(power), now)
        if int(now // STEP_SECONDS) != step:
            step, last = int(now // STEP_SECONDS), power
        curve = curves.of("power_watts", UUID)
        assert len(curve) in (0, LENGTH)
        if curve and last is not None and abs(last) < 1e30:
            assert curve[-1] is not None
            assert abs(curve[-1] - last) <= abs(last) * 1e-6 + 1e-30


def full_node(number: int) -> Snapshot:
    """Eight GPUs with seven instances each, of new names for each ``number``."""
    return node(*(full_gpu(index, number) for index in range(8)))


def full_gpu(index: int, number: int) -> Gpu:
    """A GPU that reports all."""
    names = [f"MIG-{number}-{index}-{slot}" for slot in range(7)]
    instances = tuple(MigInstance(uuid=name, gpu_instance=slot, compute_instance=0) for slot, name in enumerate(names))
    gpu = h100(index)
    assert gpu.fast is not None
    memory = {name: Memory(total_bytes=GIB, used_bytes=1) for name in names}
    return msgspec.structs.replace(
        gpu,
        fast=msgspec.structs.replace(gpu.fast, mig_memory=memory),
        medium=Medium(mig_instances=instances, mig_activity=dict.fromkeys(names, ACTIVE)),
    )


def test_memory_is_bounded() -> None:
    """A full node takes well below 200 KiB; instances that are cut anew all the time do not pile up."""
    snapshot = full_node(0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    curves = Curves()
    for step in range(LENGTH):
        curves.note(snapshot, step * STEP_SECONDS)
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken < 200 * 1024
    for step in range(LENGTH, 3 * LENGTH):
        curves.note(full_node(step), step * STEP_SECONDS)
    assert len(curves._rings) <= 1024
