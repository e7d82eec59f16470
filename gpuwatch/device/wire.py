"""How the agent and the reader process talk: options in as one JSON argument, frames out as length-prefixed msgpack.

No driver code is imported here, so that the agent's process stays free of it.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from gpuwatch.device.readings import Frame, Hello, Struct

MAX_FRAME_BYTES: Final = 16 << 20
"""56 MIG instances with their processes need some 100 KiB; more than this is a broken pipe, not a reading."""
MAX_GPUS: Final = 256
"""More than any machine holds: a number above it is garbage."""
HEADER: Final = struct.Struct("<I")
HEARTBEAT_SECONDS: Final = 1.0

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


class Simulation(Struct, frozen=True, kw_only=True):
    """Read a simulated node instead of the driver. Only ever asked for by name on the command line."""

    scenario: str
    """Name of a shipped scenario, or path of a YAML file."""
    at_seconds: float | None = None
    """Freeze the scenario at this time (``once --at``); ``None`` lets it run."""
    inject: tuple[str, ...] = ()
    """Faults on top of the scenario's, such as ``xid=79,gpu=3``; see :mod:`gpuwatch.device.simulated.injection`."""
    injected_file: str = ""
    """File in which the demo keeps the faults that come and go while it runs; see :mod:`gpuwatch.device.simulated.injection_file`."""


class ReaderOptions(Struct, frozen=True, kw_only=True):
    """What the reader process is told at its start."""

    fast_seconds: float = 1.0
    medium_seconds: float = 10.0
    static_seconds: float = 3600.0
    pcie_throughput: bool = True
    nvlink_errors_per_link: bool = False
    once: bool = False
    """Two passes, one fast interval apart, then the end."""
    simulation: Simulation | None = None
    epoch: float = 0.0
    """CLOCK_MONOTONIC at which the simulated scenario began, so that it goes on over restarts of the reader."""
    replay: str = ""
    """Path of a recording to read instead of the driver."""
    kernel_log: str = "/dev/kmsg"
    """Where the kernel log is read; empty: it is not."""
    log_sequence: int = -1
    """Last record of the kernel log that an earlier reader has read."""
    started_at: float = 0.0
    """Unix time at which the agent started: what the kernel logged before is marked as replayed."""


def encode(frame: Frame) -> bytes:
    """One frame with its length in front."""
    body = _ENCODER.encode(frame)
    return HEADER.pack(len(body)) + body


def decode(body: bytes) -> Frame:
    """A frame without its length.

    Raises:
        msgspec.MsgspecError: the bytes are no frame, or one that no reader sends.
    """
    try:
        frame = _DECODER.decode(body)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    if isinstance(frame, Hello) and not 0 < frame.gpu_count <= MAX_GPUS:
        raise msgspec.ValidationError(f"it tells of {frame.gpu_count} GPUs; expected 1 to {MAX_GPUS}")
    return frame
