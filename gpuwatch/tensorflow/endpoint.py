"""The Prometheus endpoint of a training process: one port, one thread that sleeps until somebody scrapes.

``prometheus_client.start_http_server`` does the same with less care: its thread wakes twice a second, a client that says nothing keeps its
thread for ever, and a forked child (a worker of ``multiprocessing``) keeps the port after the training has ended.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

LOG: Final = logging.getLogger("gpuwatch.tensorflow")
CLIENT_TIMEOUT_SECONDS: Final = 5.0
"""For each read from a client and each write to it."""
MOST_CLIENTS: Final = 16
"""At once. A client beyond is turned away by closing its connection."""
_CLOSE_TIMEOUT_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.5


class Endpoint:
    """Serves a registry at ``/metrics``. Opened and closed by the training's thread; what is not open is closed without a word."""

    def __init__(self, registry: CollectorRegistry, *, address: str, port: int) -> None:
        """``address``: empty for all interfaces, IPv6 and IPv4. ``port``: 0 for one of the system's choice."""
        self._registry = registry
        self._address = address
        self._port = port
        self._open: _Open | None = None
        _forget_in_children(self)

    @property
    def port(self) -> int | None:
        """The port that is listened on; ``None`` while it is closed."""
        return None if self._open is None else int(self._open.server.server_address[1])

    def open(self) -> bool:
        """Listen and serve. When the port cannot be had, one line is logged and the training goes on: returns ``False``."""
        if self._open is not None:
            return True
        try:
            listener = _listener(self._address, self._port)
        except OSError as error:
            reason = error.strerror or str(error)
            where = f"port {self._port}" + (f" of {self._address}" if self._address else "")
            LOG.warning("no metrics endpoint: %s cannot be listened on (%s); GPUWATCH_TENSORFLOW_PORT chooses another", where, reason)
            return False
        waker, wakened = socket.socketpair()
        server = _Server(listener, self._registry)
        thread = threading.Thread(target=_serve, args=(server, wakened), name="gpuwatch-endpoint", daemon=True)
        self._open = _Open(server, waker, wakened, thread)
        thread.start()
        return True

    def close(self) -> None:
        """Free the port. Answers that are under way may still end."""
        if (opened := self._open) is None:
            return
        self._open = None
        with contextlib.suppress(OSError):
            opened.waker.send(b".")
        opened.thread.join(_CLOSE_TIMEOUT_SECONDS)
        opened.release()

    def forget(self) -> None:
        """In a forked child: its copies of the sockets are closed, without a word to the parent's clients; the port is the parent's."""
        if (opened := self._open) is not None:
            self._open = None
            opened.release()


@dataclass(slots=True)
class _Open:
    """What an open endpoint holds."""

    server: _Server
    waker: socket.socket
    """A byte into it ends the thread, which reads at the other end."""
    wakened: socket.socket
    thread: threading.Thread

    def release(self) -> None:
        for one in (self.server.socket, self.waker, self.wakened):
            one.close()


def _forget_in_children(endpoint: Endpoint) -> None:
    """A hook of the interpreter cannot be taken back, so it holds nothing that must end."""
    held = weakref.ref(endpoint)

    def forget() -> None:
        if (one := held()) is not None:
            one.forget()

    os.register_at_fork(after_in_child=forget)


def _listener(address: str, port: int) -> socket.socket:
    """A listening socket that never blocks.

    Raises:
        OSError: the port is taken, or may not be used.
    """
    if address:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, port), family=family)
    else:
        listener = _listener_on_all(port)
    listener.setblocking(False)
    return listener


def _listener_on_all(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        # Where IPv6 is known but switched off, "::" is no address of the machine; then there is IPv4 alone.
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _serve(server: _Server, wakened: socket.socket) -> None:
    # poll() belongs to this process alone; an epoll would be shared with forked children.
    with selectors.PollSelector() as selector:
        selector.register(server.socket, selectors.EVENT_READ)
        selector.register(wakened, selectors.EVENT_READ)
        while not any(key.fileobj is wakened for key, _ in selector.select()):
            server.handle_request()


class _Server(ThreadingMixIn, TCPServer):
    """A thread for each client, so that a slow one holds up nobody, and never too many."""

    daemon_threads = True
    block_on_close = False
    timeout = 0
    """``handle_request`` is called when somebody waits; it never waits itself."""

    def __init__(self, listener: socket.socket, registry: CollectorRegistry) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_address = listener.getsockname()[:2]
        self.registry = registry
        self._room = threading.BoundedSemaphore(MOST_CLIENTS)

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection."""
        try:
            return super().get_request()
        except BlockingIOError:  # it has left
            raise
        except OSError:
            # Out of file descriptors: whoever waits goes on waiting, and asking again at once would take a CPU from the training.
            time.sleep(_PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 (as in the library)
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 (as in the library)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002 (as in the library)
        """The library prints a traceback into the training's output. A client that leaves early is no news."""
        LOG.debug("a scrape failed: %r", sys.exc_info()[1])


def _render(registry: CollectorRegistry, accept: str) -> tuple[str, bytes]:
    """Type and body of an answer. A header that the library stumbles over is as good as none."""
    try:
        encode, content_type = choose_encoder(accept)
        return content_type, encode(registry)
    except Exception:  # noqa: BLE001 (a version that is no number has several ways to fail)
        encode, content_type = choose_encoder("")
        return content_type, encode(registry)


class _Handler(BaseHTTPRequestHandler):
    """``GET`` and ``HEAD`` of ``/metrics``, one request a connection; the library answers every other method with 501."""

    timeout = CLIENT_TIMEOUT_SECONDS
    server: _Server
    server_version = "gpuwatch"
    sys_version = ""

    def do_GET(self) -> None:
        """The metrics, in the format that is asked for."""
        self._answer(whole=True)

    def do_HEAD(self) -> None:
        """The same without the body."""
        self._answer(whole=False)

    def _answer(self, *, whole: bool) -> None:
        if self.path.partition("?")[0] not in ("/metrics", "/"):
            self.send_error(404, explain="Metrics are at /metrics.")
            return
        content_type, body = _render(self.server.registry, self.headers.get("Accept", ""))
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if whole:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (as in the library)
        """Nothing: a scrape is no news."""
