"""Loads, heat and counters over time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.device import nvml
from gpuwatch.device.simulated.load import PATTERNS
from gpuwatch.device.simulated.noise import noise, noise_integral
from nodes import Node

TIMES = st.lists(st.floats(min_value=0.0, max_value=1e6), min_size=2, max_size=30).map(sorted)
BUSY = """
seed: 9
gpus:
  - board: h100-sxm
    loads: [{kind: training, from: 20, until: 300}, {kind: starved, from: 300, until: 900.5}, {kind: matmul, from: 2000}]
faults:
  - {kind: thermal-throttle, from: 100, until: 250}
  - {kind: power-brake, from: 2500, until: 2600}
"""
COUNTER_FIELDS = (74, 75, 83, 138, 139, 269, 270, 271)


def counters(node: Node) -> list[float]:
    """Every counter of GPU 0 now."""
    return [float(nvml.field_value(node.field(field, nvml.ALL_LINKS)) or 0) for field in COUNTER_FIELDS]


@given(times=TIMES)
def test_counters_never_fall(times: list[float]) -> None:
    """Energy, violation times and NVLink bytes only grow, through every change of load, throttle and brake."""
    node, seen = Node(BUSY), []
    for t in times:
        node.t = t
        seen.append(counters(node))
    assert all(later >= earlier for before, after in pairwise(seen) for earlier, later in zip(before, after, strict=True))


@given(t=st.floats(min_value=0.0, max_value=1e6), born=st.floats(min_value=0.0, max_value=1e6))
def test_a_new_driver_object_continues_the_counters(t: float, born: float) -> None:
    """A reader that was started anew reads the same counters, temperature and UUID as the old one would."""
    old, new = Node(BUSY), Node(BUSY, t=min(t, born))
    old.t = new.t = t
    assert counters(old) == counters(new)
    assert old.ask("Temperature", 0) == new.ask("Temperature", 0)
    assert old.ask("UUID") == new.ask("UUID")


@given(start=st.floats(min_value=0.0, max_value=3000.0), steps=st.integers(min_value=1, max_value=8))
def test_energy_is_the_integral_of_power(start: float, steps: int) -> None:
    """Joules between two moments equal watts times seconds, also within one second and across changes of load."""
    node = Node(BUSY, t=start)
    timeline = node.driver._world.gpus[0].timeline
    before = timeline.counters_at(start).energy_joules
    end = start + steps * 0.37
    slice_seconds = (end - start) / 2000
    joules = sum(timeline.power_watts_at(start + (part + 0.5) * slice_seconds) * slice_seconds for part in range(2000))
    assert timeline.counters_at(end).energy_joules - before == pytest.approx(joules, rel=2e-3)


@given(key=st.integers(min_value=0, max_value=2**64 - 1), t=st.floats(min_value=0.0, max_value=1e9))
def test_noise_is_bounded_and_adds_up_to_nothing(key: int, t: float) -> None:
    """Noise stays within -1..1, so does its integral, and the same moment always reads the same."""
    assert -1.0 <= noise(key, t) == noise(key, t) <= 1.0
    assert -1.0 <= noise_integral(key, t) <= 1.0


@given(t=st.floats(min_value=0.0, max_value=1e5), kind=st.sampled_from(sorted(PATTERNS)))
def test_every_load_stays_within_the_board(t: float, kind: str) -> None:
    """No load leaves the physical range of a board: percent, power limit, clocks, memory, heat."""
    node = Node(f"gpus: [{{board: t4, loads: [{{kind: {kind}}}]}}]", t=t)
    rates, memory = node.ask("UtilizationRates"), node.ask("MemoryInfo")
    assert 0 <= rates.gpu <= 100
    assert 0 <= rates.memory <= 100
    assert 13_000 <= node.ask("PowerUsage") <= 71_500
    assert node.ask("ClockInfo", 0) <= node.ask("MaxClockInfo", 0)
    assert memory.used + memory.free == memory.total
    assert 37 <= node.ask("Temperature", 0) <= 76


def test_heat_follows_power() -> None:
    """A GPU that starts to work warms over minutes, not at once, and cools when it stops."""
    node = Node("gpus: [{board: a100-80gb-sxm, loads: [{kind: matmul, from: 10, until: 310}]}]", t=10.0)
    cold = node.ask("Temperature", 0)
    node.t = 40.0
    warming = node.ask("Temperature", 0)
    node.t = 309.0
    hot = node.ask("Temperature", 0)
    node.t = 900.0
    assert cold < warming < hot
    assert node.ask("Temperature", 0) == cold == 25


def test_power_cap_is_reported_by_a_starved_gpu() -> None:
    """A GPU that waits 70 percent of the time still spends all of it under the power cap, as measured."""
    node = Node("data-starved", t=100.0)
    assert node.ask("UtilizationRates").gpu < 40
    assert node.ask("CurrentClocksEventReasons") == 4
    assert node.ask("ViolationStatus", 0).violationTime == 100_000_000_000


def test_a_straggler_has_low_utilisation_while_its_peer_spins() -> None:
    """The late rank reads about 32 percent, the waiting one 100, at the same power and the same NVLink rate."""
    node = Node("straggler", t=300.0)
    waiting, late = (node.ask("UtilizationRates", gpu=gpu).gpu for gpu in (0, 1))
    assert waiting > 98
    assert late < 40
    assert node.ask("PowerUsage", gpu=0) == pytest.approx(node.ask("PowerUsage", gpu=1), rel=0.06)


def test_links_share_the_bytes() -> None:
    """The bytes of all links of a GPU add up to the summed scope."""
    node = Node("gpus: [{board: a100-80gb-sxm, loads: [{kind: training}]}]", t=100.0)
    each = [node.field(138, link).value.ullVal for link in range(12)]
    assert sum(each) == pytest.approx(node.field(138, nvml.ALL_LINKS).value.ullVal, abs=12)
    assert min(each) > 0
    assert node.field(138, 12).nvmlReturn == nvml.INVALID_ARGUMENT


def test_pcie_throughput_blocks_for_its_window() -> None:
    """The measuring call costs 20 ms of real time, so that a reader that calls it too often shows."""
    node = Node("gpus: [{board: t4}]")
    node.ask("PcieThroughput", 0)
    assert node.waited == [0.020]
