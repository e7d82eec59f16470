"""A simulated node as a source: the whole agent runs in a thread, only nobody listens on a port."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from gpuwatch import agent
from gpuwatch.config import Settings, load
from gpuwatch.device.wire import Simulation
from gpuwatch.log import configure_log
from gpuwatch.top.agents import Source
from gpuwatch.web.document import encode_snapshot


def read_once(simulation: Simulation) -> Source:
    """One reading, made when it is asked for."""
    return Source(_name(simulation), lambda: encode_snapshot(agent.once(_settings(), simulation)))


@contextlib.contextmanager
def running(simulation: Simulation) -> Iterator[Source]:
    """A node that lives while the block runs."""
    loop = asyncio.new_event_loop()
    node = agent.Agent(_settings(), simulation)
    work = loop.create_task(node.run())
    thread = threading.Thread(target=_run, args=(loop, work), name="simulated node")
    thread.start()
    try:
        yield Source(_name(simulation), lambda: encode_snapshot(node.snapshot()))
    finally:
        loop.call_soon_threadsafe(work.cancel)
        thread.join()
        loop.close()


def _run(loop: asyncio.AbstractEventLoop, work: asyncio.Task[None]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_until_complete(work)


def _settings() -> Settings:
    """Nothing of this machine's real configuration."""
    settings = load(Path("/dev/null"), environment={}, flags={"node_name": "simulated-node", "log.level": "error"})
    configure_log(settings.log)
    return settings


def _name(simulation: Simulation) -> str:
    return f"scenario {simulation.scenario}"
