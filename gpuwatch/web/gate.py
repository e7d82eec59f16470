"""What every request passes before a page is made (limits, client certificate, password), and the headers of every answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import formatdate

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuwatch.web.connection import Peer
from gpuwatch.web.credentials import BusyError, Credentials
from gpuwatch.web.policy import WebPolicy

PROBES = frozenset({"/healthz", "/readyz"})
MAX_HEADER_BYTES = 16384
"""All header lines together. The parser only sees to headers that never end; one that comes whole is measured here."""
MAX_BODY_BYTES = 65536
"""No page reads a body; one announced above this is refused before its first byte."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="gpuwatch", charset="UTF-8"'}


class Bucket:
    """A token bucket: ``burst`` requests at once, one more per ``interval_seconds``. Time is monotonic seconds."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._at = float("-inf")

    def take(self, now: float, *, interval_seconds: float, burst: int) -> bool:
        """Whether one more request may pass at ``now``; an interval of 0 lets everything pass."""
        if not interval_seconds:
            return True
        self._tokens = min(float(burst), self._tokens + (now - self._at) / interval_seconds)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Gate:
    """The ASGI application around the pages. Owned by the event loop."""

    def __init__(
        self,
        pages: ASGIApp,
        *,
        policy: WebPolicy,
        credentials: Credentials,
        probes_open: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pages = pages
        self._policy = policy
        self._credentials = credentials
        self._probes_open = probes_open
        self._monotonic = monotonic
        self._bucket = Bucket()
        self._failing: dict[str, str] = {}
        self._log = structlog.get_logger("gpuwatch.web")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; whatever a page does, the client gets an answer and the server lives on."""
        if scope["type"] != "http":
            return
        started = False

        async def send_dressed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._dress(message)
            await send(message)

        try:
            self._policy.refresh()
            refusal = await self._refuse(scope)
            await (refusal or self._pages)(scope, receive, send_dressed)
        except Exception as error:
            self._report(scope["path"], error)
            if started:
                raise
            await PlainTextResponse("internal error\n", 500)(scope, receive, send_dressed)
        else:
            self._failing.pop(scope["path"], None)

    async def _refuse(self, scope: Scope) -> Response | None:
        """The answer to a request that may not pass; ``None``: it may."""
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
            return PlainTextResponse(f"a header of at most {MAX_HEADER_BYTES} bytes is accepted\n", 431)
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length[:20]) > MAX_BODY_BYTES:
            return PlainTextResponse(f"a body of at most {MAX_BODY_BYTES} bytes is accepted\n", 413)
        if self._probes_open and scope["path"] in PROBES:
            return None
        rate = self._policy.config.rate_limit
        if not self._bucket.take(self._monotonic(), interval_seconds=rate.interval_seconds, burst=rate.burst):
            return PlainTextResponse("too many requests\n", 429)
        return self._refuse_certificate(scope) or await self._refuse_user(headers)

    def _refuse_certificate(self, scope: Scope) -> Response | None:
        if not self._policy.certificate_required:
            return None
        peer = scope["state"].get("peer")
        if not isinstance(peer, Peer):
            return PlainTextResponse("a client certificate is required\n", 401)
        allowed = self._policy.config.tls_server_config.client_allowed_sans
        if allowed and peer.names.isdisjoint(allowed):
            return PlainTextResponse("the client certificate carries no allowed name\n", 403)
        return None

    async def _refuse_user(self, headers: Headers) -> Response | None:
        users = self._policy.config.basic_auth_users
        if not users:
            return None
        try:
            accepted = await self._credentials.accept(headers.get("authorization", "").encode("latin-1"), users)
        except BusyError:
            return PlainTextResponse("too many logins at once\n", 429, {"Retry-After": "1"})
        return None if accepted else PlainTextResponse("a user name and password are required\n", 401, _CHALLENGE)

    def _dress(self, message: Message) -> None:
        """Headers of every answer; those of the web configuration win over ours."""
        headers = MutableHeaders(scope=message)
        headers["Date"] = formatdate(usegmt=True)
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        for name, value in self._policy.config.http_server_config.headers.items():
            if value:
                headers[name] = value

    def _report(self, path: str, error: Exception) -> None:
        """Log a failing page once, not once per scrape; only known paths reach a page that can fail, so this stays small."""
        shown = f"{type(error).__name__}: {error}"
        if self._failing.get(path) != shown:
            self._failing[path] = shown
            self._log.error("page failed", path=path, exc_info=error)
