"""The agent over the real reader and simulated nodes, on a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from daemon import wait_for, write_scenario
from gpuwatch.agent import Agent, once
from gpuwatch.config import Settings, load
from gpuwatch.device.wire import Simulation

NO_FILE = Path("/dev/null")


def settings_of(**pairs: str) -> Settings:
    """Settings by key, with ``__`` for the dot."""
    flags = {"node_name": "node-1"} | {key.replace("__", "."): value for key, value in pairs.items()}
    return load(NO_FILE, environment={}, flags=flags)


@dataclass(slots=True)
class Clock:
    """The agent's monotonic time."""

    now: float = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now


async def until(question: Callable[[], object], what: str) -> None:
    """Wait for an answer while the event loop runs."""
    await asyncio.to_thread(wait_for, question, what)


@asynccontextmanager
async def reading(agent: Agent) -> AsyncIterator[None]:
    """The agent's supervisor at work; ticks are the test's."""
    task = asyncio.create_task(agent._supervisor.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


LOST = "gpus: [{board: v100-sxm2, count: 2}]\nfaults: [{kind: cgroup-lost, from: 6}]\n"
HUNG = (
    "gpus: [{board: l40s, count: 2}]\n"
    # Each GPU by itself: were it all calls, the start of the next reader would hang too, unless it came before the fault.
    "faults: [{kind: hang, gpu: 0, from: 4, seconds: 600}, {kind: hang, gpu: 1, from: 4, seconds: 600}]\n"
)


def agent_over(folder: Path, body: str, clock: Clock, **pairs: str) -> Agent:
    """An agent of that node."""
    return Agent(settings_of(**pairs), Simulation(scenario=str(write_scenario(folder, body))), clock=clock)


def test_liveness_counts_from_the_loss(tmp_path: Path) -> None:
    """A node that lost its devices gets a new reader meanwhile, which does not put off the moment when liveness fails (case D7).

    With a limit of 0 s it never fails.
    """
    clock = Clock()
    agent, never = (
        agent_over(tmp_path, LOST, clock, reader__hang_deadline="60s", liveness__unreadable_after=limit, reader__backoff_max="1s")
        for limit in ("300s", "0s")
    )

    async def live() -> None:
        async with reading(agent), reading(never):
            await until(lambda: agent.snapshot().up and never.snapshot().up, "two readable nodes")
            agent.tick(clock.now)
            never.tick(clock.now)
            await until(lambda: agent.snapshot().fault == never.snapshot().fault == "unknown", "the loss")
            agent.tick(clock.now)
            never.tick(clock.now)
            lost = clock.now
            clock.now = lost + 61
            agent.tick(clock.now)
            await until(lambda: agent._supervisor.restarts["unknown"] >= 1, "new readers, refused too")
            assert agent._supervisor.restarts["unreadable"] == 1
            clock.now = lost + 299
            agent.tick(clock.now)
            assert agent.alive() == (True, "")
            clock.now = lost + 301
            agent.tick(clock.now)
            await until(lambda: agent.snapshot().fault == "unknown", "a settled state")
            never.tick(clock.now)
            assert never.alive() == (True, "")
            assert agent.alive() == (False, f"no GPU can be read since 301 s (unknown): {agent.snapshot().detail}")

    asyncio.run(live())


def test_the_last_minutes_go_on_over_a_loss(tmp_path: Path) -> None:
    """The agent keeps the curves itself: while no GPU can be read they have a gap, and what was before stays."""
    clock = Clock()
    agent = agent_over(tmp_path, LOST, clock, reader__backoff_max="1s")

    async def live() -> None:
        async with reading(agent):
            await until(lambda: agent.snapshot().up, "a readable node")
            uuid = agent.snapshot().gpus[0].identity.uuid
            clock.now += 5
            agent.tick(clock.now)
            await until(lambda: agent.curves().of("power_watts", uuid), "a sample")
            await until(lambda: agent.snapshot().fault == "unknown", "the loss")
            clock.now += 5
            agent.tick(clock.now)
            *_, before, now = agent.curves().of("power_watts", uuid)
            assert now is None
            assert before is not None

    asyncio.run(live())


def test_reader_whose_gpus_all_hang_is_replaced(tmp_path: Path) -> None:
    """When every GPU hangs beyond the deadline, the reader is replaced; the next one is given twice the time; liveness holds."""
    clock = Clock()
    agent = agent_over(tmp_path, HUNG, clock, reader__hang_deadline="60s", liveness__unreadable_after="100s", reader__backoff_max="1s")

    async def live() -> None:
        async with reading(agent):
            await until(lambda: len(agent.snapshot().gpus) == 2 and agent.snapshot().up, "a readable node")
            agent.tick(clock.now)
            for number, patience in enumerate((60, 120), start=1):
                clock.now += 10
                agent.tick(clock.now)
                assert agent.snapshot().fault == "stalled"
                clock.now += patience - 1
                agent.tick(clock.now)
                assert agent._supervisor.restarts["hung"] == number - 1
                clock.now += 2
                agent.tick(clock.now)
                await until(lambda: agent._supervisor.restarts["hung"] == number, "the end of the reader")  # noqa: B023
                await until(lambda: agent._supervisor.pid is not None and agent._node._hello is not None, "a new reader")
            assert agent.alive() == (True, "")

    asyncio.run(live())


def test_loop_that_stands_still_is_sick() -> None:
    """Liveness fails when the agent's own loop has not ticked for half a minute, and only then."""
    clock = Clock()
    agent = Agent(settings_of(), clock=clock)
    clock.now += 30
    assert agent.alive() == (True, "")
    clock.now += 1
    assert agent.alive() == (False, "the read loop has not moved for 31 s")


@pytest.mark.parametrize(("at", "up"), [(10.0, {0, 1, 2, 3, 4, 5, 6, 7}), (40.0, {0, 1, 2, 3, 4, 6, 7})])
def test_once_beside_a_hung_gpu(at: float, up: set[int]) -> None:
    """``once`` shows each GPU that answered, and the one that blocks as stalled, though the others had to wait for it (case D3)."""
    snapshot = once(settings_of(read__stall_after="1s"), Simulation(scenario="hang", at_seconds=at))
    assert {gpu.identity.index for gpu in snapshot.gpus if gpu.up and gpu.fast and gpu.medium} == up
    assert {gpu.fault for gpu in snapshot.gpus if not gpu.up} <= {"stalled"}
    assert len(snapshot.gpus) == 8


def test_once_says_why_there_is_nothing() -> None:
    """``once`` where no GPU can be read tells the reason and does not wait for a better time."""
    snapshot = once(settings_of(), Simulation(scenario="driver-late", at_seconds=30.0))
    assert (snapshot.up, snapshot.fault, snapshot.gpus) == (False, "driver_not_loaded", ())
