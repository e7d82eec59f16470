"""A real server on a port of 127.0.0.1, in a thread with its own event loop, for tests that speak to it as any client would."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuwatch.curves import Curves
from gpuwatch.metrics.exposition import Exposition
from gpuwatch.server import Server
from snapshots import node

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from gpuwatch.server import Renderer
    from gpuwatch.snapshot import Snapshot


@dataclass(slots=True, kw_only=True)
class Settings:
    """What the daemon's configuration holds, with a port of the kernel's choice and patience that no test outlasts."""

    address: str = "127.0.0.1"
    port: int = 0
    web_config_file: str = ""
    probes_without_credentials: bool = True
    max_connections: int = 1024
    header_timeout_seconds: float = 600.0
    keep_alive_seconds: float = 600.0


@dataclass(slots=True)
class Agent:
    """Stands where the agent stands: hands out what a test gave it."""

    latest: Snapshot = field(default_factory=node)
    health: tuple[bool, str] = (True, "")
    past: Curves = field(default_factory=Curves)

    def snapshot(self) -> Snapshot:
        """The snapshot the test set."""
        return self.latest

    def curves(self) -> Curves:
        """The curves the test filled."""
        return self.past

    def alive(self) -> tuple[bool, str]:
        """The health the test set."""
        return self.health


@dataclass(slots=True)
class Running:
    """A server under test."""

    port: int
    agent: Agent
    server: Server
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        """Of the page."""
        return f"http://127.0.0.1:{self.port}/"

    def get(self, path: str, *, method: str = "GET", context: ssl.SSLContext | None = None, **headers: str) -> Answer:
        """One request on a connection of its own."""
        with contextlib.closing(self.connect(context)) as client:
            return ask(client, path, method=method, **headers)

    def connect(self, context: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
        """A client connection; nothing is sent yet."""
        if context is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        return http.client.HTTPSConnection("localhost", self.port, timeout=30, context=context)

    def raw(self) -> socket.socket:
        """A bare TCP connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def call(self, function: Callable[[], object]) -> object:
        """Run a function in the server's loop and return what it returns."""

        async def wrapped() -> object:
            return function()

        return asyncio.run_coroutine_threadsafe(wrapped(), self.loop).result(30)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response, read to its end."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


def ask(client: http.client.HTTPConnection, path: str, *, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    """One request and its whole response on an open connection."""
    client.request(method, path, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = client.getresponse()
    return Answer(response.status, response.headers, response.read())


@contextlib.contextmanager
def serving(settings: Settings | None = None, *, agent: Agent | None = None, renderer: Renderer | None = None) -> Iterator[Running]:
    """A started server; stopped, with nothing of it left, when the block ends."""
    agent = agent or Agent()
    loop = asyncio.new_event_loop()
    complaints: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _loop, context: complaints.append(context))
    server = Server(settings or Settings(), agent, renderer or Exposition(None))
    thread = threading.Thread(target=loop.run_forever, name="server under test")
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(30)
        serve = asyncio.run_coroutine_threadsafe(server.serve(), loop)
        yield Running(server.bound_port, agent, server, loop)
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
        serve.result(30)
        left = asyncio.run_coroutine_threadsafe(_tasks_left(), loop).result(30)
        assert not left, f"tasks outlive the server: {left}"
        assert not complaints, f"the loop was told of errors: {complaints}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _tasks_left() -> list[str]:
    return [str(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
