"""Asks agents for their JSON over HTTP or HTTPS, within a deadline and a size, and says in one line why one does not answer.

Nothing is followed: no redirect, no proxy of the environment. So a password goes to the agents that were named, and nowhere else.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

DEFAULT_URL: Final = "http://127.0.0.1:9838"
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
MOST_BYTES: Final = 16 << 20
"""The JSON of a full node has some 200 KiB."""
_PATH: Final = "/api/v1/snapshot"
_CHUNK_BYTES: Final = 65536
_STATUS_WORDS: Final = {
    401: "it asks for a user and a password (--auth-file), or for a client certificate (--cert)",
    403: "it does not accept this client certificate",
    404: "there is no gpuwatch agent at this address",
    429: "it has too many requests now",
    503: "it is not ready",
}


class NoAnswerError(Exception):
    """An agent did not answer; the message is one line without its address."""


class AccessError(ValueError):
    """An address, a certificate or a password file cannot be used; one line that names it."""


@dataclass(frozen=True, slots=True)
class Source:
    """One node to look at. ``fetch`` gives its JSON, or raises :class:`NoAnswerError`; it may block for seconds."""

    name: str
    fetch: Callable[[], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How agents are asked."""

    context: ssl.SSLContext | None = None
    """Of ``https`` addresses; ``None``: one that trusts what this system trusts."""
    credentials: str = ""
    """``USER:PASSWORD``; empty: none are sent."""
    timeout_seconds: float = 5.0
    """For the whole answer."""


def http_source(url: str, access: Access, monotonic: Callable[[], float] = time.monotonic) -> Source:
    """The agent at ``url``; without a scheme it is ``http``.

    Raises:
        AccessError: the address cannot be one of an agent.
    """
    parts = _parsed(url)
    where = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    context = (access.context or ssl.create_default_context()) if parts.scheme == "https" else None
    return Source(where, lambda: _fetch(parts, access, context, monotonic))


def tls_context(*, ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """Trusts ``ca``, or what this system trusts, and shows the client certificate ``cert``.

    Raises:
        AccessError: a file cannot be used.
    """
    if key is not None and cert is None:
        raise AccessError("--key needs --cert: a key without its certificate proves nothing")
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as error:
        raise AccessError(f"--ca {ca}: {_reason(error)}") from None
    if cert is not None:
        try:
            context.load_cert_chain(cert, key, password=_no_password)
        except (OSError, ValueError) as error:
            raise AccessError(f"--cert {cert}: {_reason(error)}") from None
    return context


def read_credentials(path: Path) -> str:
    """``USER:PASSWORD`` from the first line of a file.

    Raises:
        AccessError: it cannot be read, or has another form; what is in it is never told.
    """
    try:
        with path.open(encoding="utf-8") as file:
            line = file.readline(4096).rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise AccessError(f"--auth-file {path}: {_reason(error)}") from None
    return checked_credentials(line, f"--auth-file {path}")


def checked_credentials(text: str, where: str) -> str:
    """The text itself.

    Raises:
        AccessError: it is not ``USER:PASSWORD``.
    """
    if not text.partition(":")[0] or ":" not in text:
        raise AccessError(f"{where}: expected USER:PASSWORD")
    return text


def _no_password() -> str:
    """An encrypted key is refused rather than asked about: the question would hang a script."""
    raise ValueError("the key is encrypted; expected one without a passphrase")


def _parsed(url: str) -> SplitResult:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise AccessError(f"--url {url!r}: {error}") from None
    if "@" in parts.netloc:
        # The address itself is not told: a password is in it.
        raise AccessError("--url: no user or password belongs into an address; put them into a file for --auth-file")
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.query or parts.fragment or port == 0:
        raise AccessError(f"--url {url!r}: expected the address of an agent, such as {DEFAULT_URL} or https://gpu-node-1:9838")
    return parts


def _fetch(parts: SplitResult, access: Access, context: ssl.SSLContext | None, monotonic: Callable[[], float]) -> bytes:
    deadline = monotonic() + access.timeout_seconds
    connection = _connection(parts, access, context)
    headers = {"Accept": "application/json", "User-Agent": "gpuwatch-top"}
    if access.credentials:
        headers["Authorization"] = "Basic " + base64.b64encode(access.credentials.encode()).decode()
    try:
        connection.request("GET", parts.path.rstrip("/") + _PATH, headers=headers)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise NoAnswerError(f"it answers with {answer.status}" + _because(answer.status))
        return _read(answer, deadline, monotonic)
    except TimeoutError:
        raise NoAnswerError(f"no answer within {access.timeout_seconds:g} s") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswerError(_reason(error)) from None
    finally:
        connection.close()


def _connection(parts: SplitResult, access: Access, context: ssl.SSLContext | None) -> http.client.HTTPConnection:
    host, port = parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]
    if context is None:
        return http.client.HTTPConnection(host, port, timeout=access.timeout_seconds)
    return http.client.HTTPSConnection(host, port, timeout=access.timeout_seconds, context=context)


def _read(answer: http.client.HTTPResponse, deadline: float, monotonic: Callable[[], float]) -> bytes:
    """The body; one that dribbles in ends at the deadline, one without end at the limit."""
    body = bytearray()
    while chunk := answer.read1(_CHUNK_BYTES):
        body += chunk
        if len(body) > MOST_BYTES:
            raise NoAnswerError(f"it sends more than {MOST_BYTES >> 20} MiB: this is no gpuwatch agent")
        if monotonic() > deadline:
            raise TimeoutError
    return bytes(body)


def _because(status: int) -> str:
    words = _STATUS_WORDS.get(status)
    return f": {words}" if words else ""


def _reason(error: Exception) -> str:
    """The heart of an error, without the numbers around it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS fails: {error.reason or error}".replace("_", " ").lower()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    if isinstance(error, http.client.HTTPException):
        return "it does not speak HTTP, or breaks off" + (f": {error}" if str(error) else "")
    return str(error) or type(error).__name__
