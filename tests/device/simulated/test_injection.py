"""Faults injected by a line of text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.device.simulated import InjectionError, inject, load_scenario, scenario_names
from gpuwatch.device.simulated.fault import EccUncorrected, GpuLost, PowerBrake, Xid
from gpuwatch.device.simulated.injectable import KINDS
from gpuwatch.device.simulated.injection import DEFAULT_AT_SECONDS, faults_of, parse_injection
from gpuwatch.device.simulated.world import build_world

FLEET = load_scenario("mixed-fleet")
WORDS = st.sampled_from(
    ["xid", "fault", "gpu", "at", "for", "every", "count", "link", "pending", *KINDS, "79", "0", "3", "-1", "1e9", "true"]
)
SPECS = st.one_of(
    st.text(),
    st.lists(st.tuples(WORDS, st.one_of(WORDS, st.integers().map(str), st.floats().map(str), st.text(max_size=5)))).map(
        lambda pairs: ",".join(f"{key}={value}" for key, value in pairs)
    ),
    st.builds("fault={},gpu={},{}={}".format, st.sampled_from([*KINDS]), st.integers(0, 9), WORDS, WORDS),
)


@given(SPECS)
def test_any_text_is_a_fault_or_one_line(spec: str) -> None:
    """Whatever is written, it is a fault that the node can have, or refused in one short line that names it."""
    try:
        faults = inject(FLEET, (spec,))
    except InjectionError as error:
        assert str(error).isprintable()
        assert len(str(error)) < 600
        assert str(error).startswith(("'", '"'))
        return
    assert faults
    assert all(0.0 <= fault.from_ < fault.end for fault in faults)
    build_world(FLEET, faults)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("", "expected KEY=VALUE"),
        ("xid", "expected KEY=VALUE"),
        ("gpu=3", "expected either xid=NUMBER or fault=KIND"),
        ("xid=79,fault=hang,gpu=3", "expected either xid=NUMBER or fault=KIND"),
        ("xid=79", "gpu is missing"),
        ("fault=hang", "gpu is missing"),
        ("xid=79,gpu=3,gpu=4", "the key 'gpu' is given twice"),
        ("xid=79,gpu=3,when=4", "the key 'when' is not known here; expected one of xid, gpu, at, for, every, count"),
        ("fault=hang,gpu=3,every=4", "the key 'every' is not known here; expected one of gpu, at, for"),
        ("xid=0,gpu=3", "xid '0' is not allowed; expected a whole number from 1 to 999"),
        ("xid=1000,gpu=3", "xid '1000' is not allowed"),
        ("xid=79,gpu=8", "the scenario mixed-fleet has no GPU 8; expected 0 to 7"),
        ("xid=79,gpu=-1", "gpu '-1' is not allowed"),
        ("xid=79,gpu=3,at=-1", "at '-1' is not allowed; expected a number from 0 to 1000000 (seconds)"),
        ("xid=79,gpu=3,at=nan", "at 'nan' is not allowed"),
        ("xid=79,gpu=3,for=0", "for '0' is not allowed"),
        ("xid=31,gpu=3,for=5", "nothing lasts after XID 31"),
        ("fault=meltdown,gpu=3", "fault 'meltdown' is not known; expected one of gpu-lost, hang"),
        ("fault=nvlink-down,gpu=2", "GPU 2 (NVIDIA L40S) has no NVLink"),
        ("fault=nvlink-down,gpu=1,link=12", "has no link 12; expected 0 to 11"),
        ("fault=retired-pages,gpu=1", "has no page retirement"),
        ("fault=pcie-width,gpu=1,width=16", "expected fewer than its 16 lanes"),
        ("fault=remapped-rows,gpu=1,pending=yes", "pending 'yes' is not allowed; expected true or false"),
        ("fault=crash,gpu=1", "the key 'gpu' is not known here; expected one of at"),
    ],
)
def test_refused(spec: str, said: str) -> None:
    """A mistake is told with the spec, the value and what is allowed."""
    with pytest.raises(InjectionError) as refusal:
        inject(FLEET, (spec,))
    assert str(refusal.value).startswith(f"{spec!r}: ")
    assert said in str(refusal.value)


def test_the_same_time_line() -> None:
    """An injected fault is what a scenario file would say."""
    assert inject(FLEET, ("xid=79,gpu=3", "fault=power_brake,gpu=0,at=30,for=600")) == (
        GpuLost(gpu=3, from_=DEFAULT_AT_SECONDS),
        PowerBrake(gpu=0, from_=30.0, until=630.0),
    )
    assert inject(FLEET, ("xid=31, gpu=1, at=5, every=2.5, count=3",)) == (Xid(code=31, gpu=1, from_=5.0, times=3, every=2.5),)


def test_repetitions_follow_what_strikes() -> None:
    """The fault tells its XID by itself the first time; only the rest is told beside it, until the end where none is given."""
    faults = inject(FLEET, ("xid=48,gpu=1,at=5,every=10,count=3",))
    assert faults == (EccUncorrected(gpu=1, from_=5.0), Xid(code=48, gpu=1, from_=15.0, times=2, every=10.0))
    told = [alarm.at for alarm in build_world(FLEET, faults).alarms if " 48, " in alarm.line]
    assert told == [5.0, 15.0, 25.0]
    assert inject(FLEET, ("xid=31,gpu=1,every=10",))[0] == Xid(code=31, gpu=1, from_=DEFAULT_AT_SECONDS, times=1000, every=10.0)


@pytest.mark.parametrize("name", scenario_names())
def test_every_scenario(name: str) -> None:
    """Every scenario that has a GPU can lose it."""
    scenario = load_scenario(name)
    assert faults_of(parse_injection("xid=79,gpu=0"), scenario, earliest=40.0) == (GpuLost(gpu=0, from_=40.0),)
