"""The listening socket and the loop that takes connections from it.

The loop is our own, not ``asyncio.Server``: each connection gets the TLS context that is in force when it arrives, handshakes count as
connections with a deadline, and running out of file descriptors costs an idle client, not the listener.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable

import structlog

from gpuwatch.web.connection import CLOSING_SECONDS, Connection, Connections

BACKLOG = 1024
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE_SECONDS = 0.1


class ListenError(OSError):
    """The address cannot be listened on; one line that names it."""


async def bind(address: str, port: int) -> socket.socket:
    """A non-blocking socket that listens on ``address`` (a host name or an IP address; ``::`` takes IPv4 as well) and ``port``.

    Raises:
        ListenError: the name is unknown, the port is taken or not allowed.
    """
    shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    try:
        found = await asyncio.get_running_loop().getaddrinfo(address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = found[0]
        return _open(family, place, dual=address == "::")
    except (OSError, OverflowError, UnicodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ListenError(f"cannot listen on {shown}: {reason.lower()}") from error


def _open(family: int, place: object, *, dual: bool) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        listener.bind(place)  # type: ignore[arg-type]
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


async def accept_connections(
    listener: socket.socket,
    *,
    connections: Connections,
    make_connection: Callable[[], Connection],
    context: Callable[[], ssl.SSLContext | None],
) -> None:
    """Take connections for ever; ends only by cancellation. What goes wrong with one of them is logged once, not once each."""
    log, trouble = structlog.get_logger("gpuwatch.web"), ""
    while True:
        try:
            await accept_one(listener, connections=connections, make_connection=make_connection, context=context)
        except Exception as error:
            if trouble != (trouble := f"{type(error).__name__}: {error}"):
                log.exception("connection not taken")
            await asyncio.sleep(_PAUSE_SECONDS)
        # An accept that need not wait does not yield either: a flood must leave turns for those already in.
        await asyncio.sleep(0)


async def accept_one(
    listener: socket.socket,
    *,
    connections: Connections,
    make_connection: Callable[[], Connection],
    context: Callable[[], ssl.SSLContext | None],
) -> None:
    """Take one connection and start its TLS handshake, if any, in the background."""
    loop = asyncio.get_running_loop()
    try:
        client, _ = await loop.sock_accept(listener)
    except OSError as error:
        # Other errors are those of a client that left before it was taken.
        if error.errno in _EXHAUSTED and not connections.evict():
            await asyncio.sleep(_PAUSE_SECONDS)
        return
    try:
        tls = context()
        connection = make_connection()
    except BaseException:
        client.close()
        raise
    if not connections.admit(connection):
        connection.forget()
        client.close()
        return
    connection.opening = loop.create_task(_open_connection(client, connection, tls))


async def _open_connection(client: socket.socket, connection: Connection, context: ssl.SSLContext | None) -> None:
    """Bring TLS up and hand the connection to its protocol; a client that fails here is no news."""
    try:
        with contextlib.suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                client,
                ssl=context,
                ssl_shutdown_timeout=CLOSING_SECONDS if context is not None else None,
            )
            return
        connection.forget()
        client.close()
    except BaseException:
        connection.forget()
        client.close()
        raise
    finally:
        connection.opening = None
