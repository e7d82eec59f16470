"""How long a scrape takes at 500, 2,000 and 5,000 series, through the real server over a socket.

Each scrape is of a snapshot never rendered before.
The readings come from the simulated H100 node; GPUs are repeated under other UUIDs to reach the number of series. The server runs in a
process of its own; the client asks as Prometheus does (one kept connection, gzip).
"""

from __future__ import annotations

import asyncio
import http.client
import multiprocessing
import time
from multiprocessing.connection import Connection

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from table import quantile, show

from gpuwatch import agent
from gpuwatch.config import LogSettings, ServerSettings, load
from gpuwatch.curves import Curves
from gpuwatch.device.readings import Identity
from gpuwatch.device.wire import Simulation
from gpuwatch.log import configure_log
from gpuwatch.metrics.exposition import Exposition, process_registry
from gpuwatch.server import Server
from gpuwatch.snapshot import Gpu, Snapshot

SIZES = (500, 2_000, 5_000)
SCRAPES = 300
_identities: dict[int, Identity] = {}


def main() -> None:
    """Measure and print."""
    configure_log(LogSettings(level="warning"))
    moments = [agent.once(load(None, environment={}), Simulation(scenario="training", at_seconds=100.0 + second)) for second in range(8)]
    rows = [measure([widened(moment, size) for moment in moments], size) for size in SIZES]
    heads = ("series", "bytes", "gzip bytes", "cold ms", "p50 ms", "p99 ms", "budget p99 ms", "prometheus_client encoder ms")
    show(f"Scrape latency, {SCRAPES} scrapes each, every scrape of a new snapshot", heads, rows)


def widened(snapshot: Snapshot, size: int) -> Snapshot:
    """The snapshot with as many GPUs as make ``size`` series."""
    per_gpu = series_of(snapshot) / len(snapshot.gpus)
    gpus: list[Gpu] = []
    for number in range(max(round(size / per_gpu), 1)):
        gpu = snapshot.gpus[number % len(snapshot.gpus)]
        gpus.append(msgspec.structs.replace(gpu, identity=identity_of(gpu.identity, number)))
    return msgspec.structs.replace(snapshot, gpus=tuple(gpus))


def identity_of(identity: Identity, number: int) -> Identity:
    """One object per GPU for all snapshots, as in the daemon, where it changes once an hour."""
    if number not in _identities:
        _identities[number] = msgspec.structs.replace(identity, index=number, uuid=f"GPU-00000000-0000-4000-8000-{number:012d}")
    return _identities[number]


def series_of(snapshot: Snapshot) -> int:
    """Number of sample lines."""
    body, _ = Exposition(None).render(snapshot, "", "")
    return sum(not line.startswith(b"#") for line in body.splitlines())


def measure(snapshots: list[Snapshot], size: int) -> tuple[object, ...]:
    """One row."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("fork").Process(target=serve, args=(there, snapshots), daemon=True)
    server.start()
    connection = http.client.HTTPConnection("127.0.0.1", here.recv())
    times = []
    body = b""
    for _ in range(SCRAPES):
        started = time.perf_counter()
        connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip", "Accept": "text/plain;version=0.0.4"})
        body = connection.getresponse().read()
        times.append((time.perf_counter() - started) * 1e3)
    server.terminate()
    plain, _ = Exposition(None).render(snapshots[0], "", "")
    budget = "5" if size == 2_000 else "-"
    return (
        series_of(snapshots[0]),
        len(plain),
        len(body),
        times[0],
        quantile(times[1:], 0.5),
        quantile(times[1:], 0.99),
        budget,
        library_ms(plain),
    )


def library_ms(plain: bytes) -> float:
    """The same samples through prometheus_client's encoder."""
    families = list(text_string_to_metric_families(plain.decode()))

    class Collected:
        def collect(self) -> list[Metric]:
            return families

    registry = CollectorRegistry()
    registry.register(Collected())  # type: ignore[arg-type]
    started = time.perf_counter()
    generate_latest(registry)
    return (time.perf_counter() - started) * 1e3


class Changing:
    """A source whose snapshot is new at every scrape."""

    def __init__(self, snapshots: list[Snapshot]) -> None:
        self._snapshots = snapshots
        self._turn = 0
        self._curves = Curves()

    def snapshot(self) -> Snapshot:
        """The next one, as an object that was never rendered."""
        self._turn += 1
        return msgspec.structs.replace(self._snapshots[self._turn % len(self._snapshots)], timestamp_seconds=time.time())

    def curves(self) -> Curves:
        """None."""
        return self._curves

    def alive(self) -> tuple[bool, str]:
        """Always."""
        return True, ""


def serve(pipe: Connection, snapshots: list[Snapshot]) -> None:
    """The server's process."""

    async def run() -> None:
        settings = msgspec.structs.replace(ServerSettings(), address="127.0.0.1", port=0)
        server = Server(settings, Changing(snapshots), Exposition(process_registry()))
        await server.start()
        pipe.send(server.bound_port)
        await server.serve()

    asyncio.run(run())


if __name__ == "__main__":
    main()
