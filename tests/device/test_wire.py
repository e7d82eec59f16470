"""Frames and options between agent and reader."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.device.readings import Fast, Frame, Goodbye, GpuReading, Hello, Identity, Medium, NvmlError, Tick
from gpuwatch.device.wire import HEADER, ReaderOptions, Simulation, decode, encode

READING = GpuReading(
    index=3,
    uuid="GPU-00000000-0000-4000-8000-000000000003",
    at=12.5,
    identity=Identity(index=3, uuid="GPU-00000000-0000-4000-8000-000000000003"),
    fast=Fast(utilization_ratio=0.25),
    medium=Medium(throttled_seconds={"power": 1.5}),
    duration_seconds={"fast": 0.001},
    errors=(NvmlError(call="nvmlDeviceGetName", error="UNKNOWN", count=2),),
    rejected={"power": 1},
    unsupported={"nvmlDeviceGetFanSpeed_v2": "NOT_SUPPORTED"},
)
FRAMES: list[Frame] = [
    Hello(pid=7, gpu_count=2, driver_version="580.1"),
    Tick(),
    Tick(readings=(READING, READING)),
    Goodbye(reason="no_gpu", detail="é"),
]


@pytest.mark.parametrize("frame", FRAMES, ids=["hello", "heartbeat", "readings", "goodbye"])
def test_frames_arrive_as_they_were_sent(frame: Frame) -> None:
    """A frame is its length and its body, and the body decodes to an equal frame."""
    data = encode(frame)
    assert HEADER.unpack(data[: HEADER.size]) == (len(data) - HEADER.size,)
    assert decode(data[HEADER.size :]) == frame


@given(body=st.binary(max_size=200))
def test_garbage_is_refused(body: bytes) -> None:
    """Any bytes are either a frame or one kind of error."""
    with contextlib.suppress(msgspec.MsgspecError):
        assert isinstance(decode(body), Hello | Tick | Goodbye)


@pytest.mark.parametrize(
    "body",
    [
        b"\x82\xa4type\xa4tick\xa1z" + b"\x91" * 200_000,
        msgspec.msgpack.encode(Hello(pid=1, gpu_count=0)),
        msgspec.msgpack.encode(Hello(pid=1, gpu_count=1 << 40)),
    ],
    ids=["nested", "no GPU", "too many GPUs"],
)
def test_a_frame_that_would_harm_the_agent_is_refused(body: bytes) -> None:
    """What decodes to no end, or makes the agent wait for GPUs that cannot exist, is garbage like any other."""
    with pytest.raises(msgspec.MsgspecError):
        decode(body)


@given(cut=st.integers(min_value=0, max_value=len(encode(FRAMES[2])) - HEADER.size - 1))
def test_cut_frame_is_refused(cut: int) -> None:
    """A frame that lost its end is never taken for a shorter one."""
    with pytest.raises(msgspec.MsgspecError):
        decode(encode(FRAMES[2])[HEADER.size :][:cut])


def test_options_travel_as_json() -> None:
    """The reader gets the options that the agent chose."""
    options = ReaderOptions(fast_seconds=0.5, once=True, simulation=Simulation(scenario="idle", at_seconds=3.0), epoch=9.25)
    assert msgspec.json.decode(msgspec.json.encode(options), type=ReaderOptions) == options


def test_agent_never_loads_the_driver() -> None:
    """The agent's process does not even import the binding of the driver library, let alone the library."""
    code = "import sys, gpuwatch.agent; print([name for name in sys.modules if 'pynvml' in name or name == 'gpuwatch.device.nvml'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
