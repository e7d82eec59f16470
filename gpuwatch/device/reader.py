"""The reader process: holds NVML, runs a thread per GPU, streams frames to its parent. ``python -m gpuwatch.device.reader OPTIONS``.

It is a process of its own because the driver library can hang, crash, or keep device files open. It keeps nothing that matters:
the agent may kill it at any moment. Frames go to the file that was standard output; whatever the driver library prints goes to
standard error, where the agent finds the reason of a crash.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import msgspec

from gpuwatch.device import nvml
from gpuwatch.device.fault_box import Taken
from gpuwatch.device.gpu_thread import GpuThread
from gpuwatch.device.listening import Listening
from gpuwatch.device.nvml import Driver, NVMLError
from gpuwatch.device.readings import Frame, Goodbye, GpuReading, Hello, Tick
from gpuwatch.device.wire import HEARTBEAT_SECONDS, MAX_GPUS, ReaderOptions, encode

_LIBRARY_FAULTS = frozenset({"uninitialized", "driver_not_loaded", "library_not_found", "lib_rm_version_mismatch"})
"""When every GPU answers with one of these, the library is down, not the GPUs: the process ends and releases the device files."""
_GATHER_SECONDS = 0.02
"""The GPUs tick together; their readings travel in one frame."""
_PR_SET_PDEATHSIG = 1
Readings = queue.SimpleQueue[GpuReading | None]


def main() -> int:
    """Entry point of the process. The one argument is :class:`ReaderOptions` as JSON."""
    options = msgspec.json.decode(sys.argv[1], type=ReaderOptions)
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches the whole group; the parent decides
    die_with_parent()
    pipe = claim_stdout()

    def send(frame: Frame) -> None:
        write_all(pipe, encode(frame))

    with contextlib.suppress(BrokenPipeError):  # the agent is gone
        send(read_until_down(open_driver(options), options, send))
    sys.stderr.flush()
    os._exit(0)  # threads may be blocked in the driver: they cannot be joined


def open_driver(options: ReaderOptions) -> Driver:
    """The driver the options name: the real one unless they ask for a scenario or a recording."""
    if options.simulation is not None:
        from gpuwatch.device.simulated import open_simulation  # noqa: PLC0415 (never loaded on a real node)

        return open_simulation(options.simulation, simulated_clock(options))
    if options.replay:
        from gpuwatch.device.replay import ReplayDriver, load_recording  # noqa: PLC0415

        return ReplayDriver(load_recording(options.replay))
    return nvml.RealDriver()


_frozen = threading.local()


def simulated_clock(options: ReaderOptions) -> Callable[[], float]:
    """Seconds since the scenario began. Frozen (``once --at``), each thread stands one fast interval before the time, then on it."""
    at = _frozen_at(options)
    if at is None:
        return lambda: time.monotonic() - options.epoch
    return lambda: at - (0.0 if getattr(_frozen, "arrived", False) else options.fast_seconds)


def once_clock(options: ReaderOptions) -> tuple[Callable[[], float], Callable[[], None]]:
    """The clock of the readings, and what to do between the two passes of ``once``: wait, or step the frozen scenario on."""
    if _frozen_at(options) is None:
        return time.monotonic, partial(time.sleep, options.fast_seconds)
    return simulated_clock(options), partial(setattr, _frozen, "arrived", True)


def _frozen_at(options: ReaderOptions) -> float | None:
    return None if options.simulation is None else options.simulation.at_seconds


def read_until_down(driver: Driver, options: ReaderOptions, send: Callable[[Frame], None]) -> Goodbye:
    """Start the library and a thread per GPU, pass their readings on; returns why it ended."""
    try:
        driver.nvmlInit()
        count = driver.nvmlDeviceGetCount()
    except NVMLError as error:
        return Goodbye(reason=nvml.error_name(error).lower(), detail=str(error))
    if not count:
        return Goodbye(reason="no_gpu", detail="the driver is loaded and shows no GPU")
    if count > MAX_GPUS:
        return Goodbye(reason="unknown", detail=f"the driver says that it has {count} GPUs; at most {MAX_GPUS} are believed")
    send(hello(driver, count))
    readings: Readings = queue.SimpleQueue()
    clock, between = once_clock(options)
    listening = Listening(driver, count, options, partial(readings.put, None))
    gpus = [
        GpuThread(driver, index, options=options, emit=readings.put, clock=clock, watch=listening.watch_of(index)) for index in range(count)
    ]
    work = [partial(gpu.read_once, between) if options.once else gpu.run for gpu in gpus]
    threads = [threading.Thread(target=job, name=f"gpu-{index}", daemon=True) for index, job in enumerate(work)]
    for thread in threads:
        thread.start()
    listening.start()
    return pass_on(readings, threads, send, listening=listening)


def pass_on(
    readings: Readings, threads: list[threading.Thread], send: Callable[[Frame], None], *, listening: Listening | None = None
) -> Goodbye:
    """Send what the threads read and were told, at least an empty tick a second, until the library is down or every thread has ended."""
    faults = dict.fromkeys(range(len(threads)), "")
    while True:
        gathered = gather(readings)
        told = Taken() if listening is None else listening.take()
        send(Tick(readings=gathered, events=told.events, sources=told.sources, log_lines=told.log_lines, log_sequence=told.log_sequence))
        faults.update({reading.index: reading.fault for reading in gathered})
        if all(fault in _LIBRARY_FAULTS for fault in faults.values()):
            return Goodbye(reason=faults[0], detail="every GPU answers that the library is down")
        if readings.empty() and not any(thread.is_alive() for thread in threads) and readings.empty():
            return Goodbye(reason="done")


def gather(readings: Readings) -> tuple[GpuReading, ...]:
    """What arrived within one heartbeat, waiting a moment after the first so that GPUs which tick together share a frame.

    A ``None`` in the queue only says that there are events.
    """
    try:
        gathered = [readings.get(timeout=HEARTBEAT_SECONDS)]
    except queue.Empty:
        return ()
    time.sleep(_GATHER_SECONDS)
    while True:
        try:
            gathered.append(readings.get_nowait())
        except queue.Empty:
            return tuple(reading for reading in gathered if reading is not None)


def hello(driver: Driver, count: int) -> Hello:
    """Versions of the driver; one that does not answer is absent."""
    cuda = _version(driver, "nvmlSystemGetCudaDriverVersion")
    return Hello(
        pid=os.getpid(),
        gpu_count=count,
        driver_version=_version(driver, "nvmlSystemGetDriverVersion"),
        nvml_version=_version(driver, "nvmlSystemGetNVMLVersion"),
        cuda_version=None if cuda is None else f"{int(cuda) // 1000}.{int(cuda) % 1000 // 10}",
    )


def _version(driver: Driver, call: str) -> str | None:
    try:
        return str(getattr(driver, call)())
    except (NVMLError, AttributeError, ValueError):  # the last: text that is no UTF-8
        return None


def claim_stdout() -> int:
    """A private descriptor of standard output for frames; descriptor 1 then leads to standard error, for libraries that print."""
    pipe = os.dup(1)
    os.dup2(2, 1)
    return pipe


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything; blocks while the agent does not read.

    Raises:
        BrokenPipeError: the agent is gone.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the agent dies, however it dies."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
