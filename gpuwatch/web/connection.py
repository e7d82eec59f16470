"""One client's connection, and the set of all of them: deadlines, a limit, and who goes first when it is reached.

uvicorn's HTTP/1.1 protocol has no deadline for a request that never ends. Here every connection has exactly one deadline at every moment
of its life: while TLS and the header arrive, while the response is made and taken, while it idles, and while it closes.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from gpuwatch.web.tls import names_of

RESPONSE_SECONDS = 30.0
"""From a complete request header until the client has taken the response."""
CLOSING_SECONDS = 2.0
"""For a closing connection to hand over what is still in its buffer."""


@dataclass(frozen=True, slots=True)
class Peer:
    """What the TLS handshake proved about the client: the names in its verified certificate."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a client may take, in seconds, and how many there may be."""

    max_connections: int
    header_seconds: float
    keep_alive_seconds: float


class Connections:
    """All open connections, the idle ones in the order in which they became idle. Owned by the event loop."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.open: set[Connection] = set()
        self.idle: dict[Connection, None] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def admit(self, connection: Connection) -> bool:
        """Take in a newcomer, at the cost of whoever has been idle longest; ``False``: all others are being served right now."""
        if len(self.open) >= self.limits.max_connections and not self.evict():
            return False
        self.open.add(connection)
        self._empty.clear()
        self.idle[connection] = None
        return True

    def evict(self) -> bool:
        """Drop the connection that has been idle longest; ``False`` where none is idle."""
        oldest = next(iter(self.idle), None)
        if oldest is None:
            return False
        oldest.drop()
        return True

    def forget(self, connection: Connection) -> None:
        """Strike a connection off."""
        self.open.discard(connection)
        self.idle.pop(connection, None)
        if not self.open:
            self._empty.set()

    async def wait_empty(self) -> None:
        """Return once no connection is open."""
        await self._empty.wait()

    def mark(self, connection: Connection, *, idle: bool) -> None:
        """Note that a connection began to wait for a request, or to be served."""
        self.idle.pop(connection, None)
        if idle and connection in self.open:
            self.idle[connection] = None

    def retire(self) -> None:
        """End every connection: idle ones now, others after their response. New certificates then reach every client."""
        for connection in list(self.open):
            connection.retire()


class Connection(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with one deadline at all times, and the peer's certificate in the request's ``state``."""

    def __init__(self, config: Config, server_state: ServerState, connections: Connections) -> None:
        super().__init__(config, server_state, {}, asyncio.get_running_loop())
        # A logger outside the tree: strangers' bad requests are no news, and the app logs its own failures.
        self.logger = logging.Logger("uvicorn", logging.CRITICAL + 1)  # noqa: LOG001
        self.access_log = False
        self.opening: asyncio.Task[None] | None = None
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._begun = True
        self._draining = False
        self._arm(connections.limits.header_seconds)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The TCP connection, and TLS on it if any, stands."""
        super().connection_made(transport)
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert() if tls is not None else None
        self.app_state = {"peer": Peer(names_of(certificate)) if certificate else None}

    def data_received(self, data: bytes) -> None:
        """Bytes came; the first of a request start the clock for its header."""
        if self._draining:
            return
        if not self._begun and not self._busy:
            self._begun = True
            self._arm(self._connections.limits.header_seconds)
        try:
            super().data_received(data)
        except (h11.ProtocolError, RuntimeError, ValueError):
            # Input that fits no state of the protocol, for example garbage in the middle of a response.
            self.drop()
        self._settle()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP. Garbage may follow a sound header: the page that is being made for that one must then stay unsent."""
        if self._responding:
            self.cycle.disconnected = True
            if self.cycle.response_started:
                self.drop()
                return
        super().send_400_response(msg)

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client will send no more: it still gets the response that is being made (plain TCP only; TLS cannot half-close)."""
        if not self._busy or self.scheme == "https":
            return False
        self.cycle.keep_alive = False
        return True

    def on_response_complete(self) -> None:
        """The response is written: wait for the next request, unless there is an unread body in between."""
        self._busy = False
        self._begun = False
        self._connections.mark(self, idle=True)
        self._arm(self._connections.limits.keep_alive_seconds)
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._drain()
            return
        super().on_response_complete()
        self._unset_keepalive_if_required()
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self.forget()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def forget(self) -> None:
        """Stop the clock and leave the set."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._connections.forget(self)

    def drop(self) -> None:
        """End the connection now, whatever it is doing."""
        self._connections.forget(self)
        if self._transport is not None:
            self._transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def retire(self) -> None:
        """End the connection as soon as nobody waits for a response on it."""
        if self._busy:
            self.cycle.keep_alive = False
        else:
            self._close()

    @property
    def _transport(self) -> asyncio.Transport | None:
        """The transport, which uvicorn types as always present: it is absent until TLS stands."""
        transport: Any = self.transport
        return transport if isinstance(transport, asyncio.Transport) else None

    @property
    def _responding(self) -> bool:
        """Whether uvicorn has a response under way; its attribute, typed as always present, is absent before the first request."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _settle(self) -> None:
        """Follow what uvicorn made of the last event: a request began, or the connection is closing."""
        if self.transport.is_closing():
            self._connections.mark(self, idle=True)
            self._arm(CLOSING_SECONDS, expired=self.drop)
        elif not self._busy and self._responding:
            self._busy = True
            self._connections.mark(self, idle=False)
            self._arm(RESPONSE_SECONDS, expired=self.drop)

    def _drain(self) -> None:
        """End our side and let the unread body run into nothing: closing at once could reset away the response just sent."""
        self._draining = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()
        self._arm(CLOSING_SECONDS, expired=self.drop)

    def _close(self) -> None:
        """Say goodbye and give the client a moment to take what is left."""
        transport = self._transport
        if transport is None or transport.get_write_buffer_size():
            self.drop()
            return
        transport.close()
        self._arm(CLOSING_SECONDS, expired=self.drop)

    def _arm(self, seconds: float, *, expired: Any = None) -> None:  # noqa: ANN401
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, expired or self._close)
