"""The HTTP server: metrics for Prometheus, probes for the kubelet, a page for people, JSON for scripts.

A request never touches the driver, the kubelet or the API server: everything it shows comes from the latest frozen snapshot.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.config import Config
from uvicorn.server import ServerState

from gpuwatch.curves import Curves
from gpuwatch.snapshot import Snapshot
from gpuwatch.web.configuration import WebConfigError
from gpuwatch.web.connection import Connection, Connections, Limits
from gpuwatch.web.credentials import Credentials
from gpuwatch.web.document import encode_snapshot
from gpuwatch.web.gate import MAX_HEADER_BYTES, Gate
from gpuwatch.web.listener import ListenError, accept_connections, bind
from gpuwatch.web.page import CONTENT_SECURITY_POLICY, render_page
from gpuwatch.web.policy import WebPolicy

_STOP_SECONDS = 1.0
_RESERVED_FILES = 64
"""Files that clients never get: a new reader needs a dozen, attribution some more."""
_TEXT = "text/plain; charset=utf-8"


class Source(Protocol):
    """Where answers come from: the agent."""

    def snapshot(self) -> Snapshot:
        """The latest snapshot; never blocks."""

    def curves(self) -> Curves:
        """The last five minutes; they change only together with the snapshot."""

    def alive(self) -> tuple[bool, str]:
        """Whether the agent works, and if not, why."""


class Renderer(Protocol):
    """What turns a snapshot into a scrape."""

    def render(self, snapshot: Snapshot, accept: str, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
        """Body and headers of the response, in the format that ``accept`` and ``accept_encoding`` negotiate."""


class Settings(Protocol):
    """How to serve; :class:`gpuwatch.config.ServerSettings` in the daemon."""

    @property
    def address(self) -> str:
        """Address or host name to listen on."""

    @property
    def port(self) -> int:
        """TCP port; 0 lets the kernel choose."""

    @property
    def web_config_file(self) -> str:
        """Path of the web configuration; empty: plain HTTP for everybody."""

    @property
    def probes_without_credentials(self) -> bool:
        """Whether /healthz and /readyz need neither password nor client certificate."""

    @property
    def max_connections(self) -> int:
        """Connections held at once; the next one costs the one idle longest."""

    @property
    def header_timeout_seconds(self) -> float:
        """From the connection, or from the first byte of a later request, to the end of the request's header."""

    @property
    def keep_alive_seconds(self) -> float:
        """How long a connection may idle between requests."""


class ServerError(RuntimeError):
    """The server cannot start; one line that names what is wrong."""


def connections_allowed(wanted: int, files: int) -> int:
    """How many of the ``wanted`` connections a process may hold that may open ``files`` files (-1: any number)."""
    return wanted if files < 0 else min(wanted, max(files - _RESERVED_FILES, files // 2))


class Server:
    """Owned by one event loop; ``start``, then ``serve`` until somebody calls ``stop``."""

    def __init__(self, settings: Settings, source: Source, renderer: Renderer) -> None:
        self._settings = settings
        self._source = source
        self._renderer = renderer
        self._log = structlog.get_logger("gpuwatch.server")
        self._credentials = Credentials()
        self._stopped = asyncio.Event()
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._state = ServerState()
        self._shown: Snapshot | None = None
        self._bodies: dict[Callable[[Snapshot], str | bytes], str | bytes] = {}
        self._connections = Connections(
            Limits(
                max_connections=connections_allowed(settings.max_connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
                header_seconds=settings.header_timeout_seconds,
                keep_alive_seconds=settings.keep_alive_seconds,
            ),
        )

    @property
    def bound_port(self) -> int:
        """The port that is listened on; 0 before ``start``."""
        return int(self._listener.getsockname()[1]) if self._listener is not None else 0

    async def start(self) -> None:
        """Read the web configuration, bind the port and begin to answer.

        Raises:
            ServerError: the port cannot be had or the web configuration cannot be used.
        """
        settings = self._settings
        try:
            policy = WebPolicy(settings.web_config_file, certificate_optional=settings.probes_without_credentials)
            self._listener = await bind(settings.address, settings.port)
        except (WebConfigError, ListenError) as error:
            raise ServerError(str(error)) from error
        gate = Gate(
            self._pages(),
            policy=policy,
            credentials=self._credentials,
            probes_open=settings.probes_without_credentials,
        )
        policy.on_change = self._connections.retire
        self._accepting = asyncio.create_task(self._accept(self._listener, gate, policy))
        self._log.info("listening", address=settings.address, port=self.bound_port, tls=policy.context is not None)

    async def serve(self) -> None:
        """Wait until ``stop`` is called; requests are answered meanwhile."""
        await self._stopped.wait()

    async def stop(self) -> None:
        """Close the port, let responses under way end within a second, then drop what is left."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        if self._listener is not None:
            self._listener.close()
        self._connections.retire()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self._connections.wait_empty()
        await self._drop_rest()
        self._credentials.close()
        self._stopped.set()

    async def _drop_rest(self) -> None:
        for connection in list(self._connections.open):
            connection.drop()
        for task in list(self._state.tasks):
            task.cancel()
        # asyncio tells a protocol of its end some turns of the loop later: one for TCP, one for TLS, one for the task.
        for _ in range(4):
            await asyncio.sleep(0)

    async def _accept(self, listener: socket.socket, gate: Gate, policy: WebPolicy) -> None:
        config = Config(
            gate,
            loop="none",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        )
        config.load()

        def context() -> ssl.SSLContext | None:
            policy.refresh()
            return policy.context

        await accept_connections(
            listener,
            connections=self._connections,
            make_connection=lambda: Connection(config, self._state, self._connections),
            context=context,
        )

    def _pages(self) -> Starlette:
        routes = [
            Route("/", self._page),
            Route("/metrics", self._metrics),
            Route("/healthz", self._health),
            Route("/readyz", self._readiness),
            Route("/api/v1/snapshot", self._document),
        ]
        pages = Starlette(routes=routes)
        # A redirect from /metrics/ would echo the client's Host header.
        pages.router.redirect_slashes = False
        return pages

    def _made(self, make: Callable[[Snapshot], str | bytes]) -> str | bytes:
        """What ``make`` makes of the present snapshot: once, however many clients ask, so that none of them can delay the others."""
        snapshot = self._source.snapshot()
        if snapshot is not self._shown:
            self._shown, self._bodies = snapshot, {}
        if make not in self._bodies:
            self._bodies[make] = make(snapshot)
        return self._bodies[make]

    async def _metrics(self, request: Request) -> Response:
        accept, encoding = request.headers.get("accept", ""), request.headers.get("accept-encoding", "")
        body, headers = self._renderer.render(self._source.snapshot(), accept, encoding)
        return Response(body, headers=headers)

    async def _health(self, _request: Request) -> Response:
        alive, reason = self._source.alive()
        return PlainTextResponse("ok\n" if alive else f"{reason or 'not alive'}\n", 200 if alive else 503)

    async def _readiness(self, _request: Request) -> Response:
        snapshot = self._source.snapshot()
        if snapshot.ready:
            return PlainTextResponse("ok\n")
        reason = ": ".join(part for part in (snapshot.fault, snapshot.detail) if part)
        return PlainTextResponse(f"{reason or 'the first read is not complete'}\n", 503)

    async def _document(self, _request: Request) -> Response:
        return Response(self._made(encode_snapshot), media_type="application/json")

    async def _page(self, _request: Request) -> Response:
        return HTMLResponse(self._made(self._render_page), headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})

    def _render_page(self, snapshot: Snapshot) -> str:
        return render_page(snapshot, self._source.curves())
