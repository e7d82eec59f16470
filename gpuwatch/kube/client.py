"""HTTP to the API server: the official client's configuration, credentials, TLS and proxies, with bytes in place of its models.

The client is imported with the first request and in the thread that makes it, because it takes 20 MiB and more than a second.
Its models and its watch are left alone: models cost memory, and the watch loses its place on every error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch import __version__

TOKEN_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
CA_FILE = TOKEN_FILE.with_name("ca.crt")
"""Where Kubernetes mounts a service account in a container."""
_KEEP_ALIVE_IDLE_SECONDS, _KEEP_ALIVE_INTERVAL_SECONDS, _KEEP_ALIVE_PROBES = 30, 15, 3
_CHUNK_BYTES = 65536
_MAX_BODY_BYTES = 128 << 20
_MAX_LINE_BYTES = 16 << 20
"""Far above what etcd holds (1.5 MiB an object; a node has some hundred pods): a reply beyond it is no answer to our question."""
_MAX_ANSWER_SECONDS = 120.0
_MAX_ERROR_BYTES = 65536
_MAX_REASON = 300
_FAULTS = {401: "unauthorized", 403: "forbidden", 404: "not_found", 409: "conflict", 410: "expired", 429: "throttled"}


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    params: Mapping[str, str] = {}
    method: str = "GET"
    body: Mapping[str, object] | None = None
    content_type: str = ""


class ApiError(Exception):
    """No usable answer.

    Attributes:
        status: HTTP status; 0 when there was no HTTP answer.
        reason: One line for a person; never holds a credential.
        fault: A bounded token, one of :data:`FAULTS`.
        retry_after: Seconds that the server asks to wait, ``None`` when it does not.
    """

    def __init__(self, status: int, reason: str, *, fault: str = "", retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}" if status else reason)
        self.status = status
        self.reason = reason
        self.fault = fault or fault_of(status)
        self.retry_after = retry_after


FAULTS = frozenset(
    {*_FAULTS.values(), "closed", "no_configuration", "refused", "server_error", "timeout", "tls", "too_large", "unreachable"}
)


def fault_of(status: int) -> str:
    """The token for an HTTP status."""
    return _FAULTS.get(status, "server_error" if status >= 500 else "refused")  # noqa: PLR2004 - the 5xx class


class ApiServer:
    """The API server as one source sees it. For one thread; each source has its own.

    Args:
        node: Name of the node, for the User-Agent, so that an administrator sees who asks.
        configure: Fills in a ``kubernetes.client.Configuration``; called again when credentials are refused.
        connect_seconds: Time to open a connection.
        read_seconds: Longest silence within an answer; :meth:`stream` has its own.
        clock: CLOCK_MONOTONIC in seconds.
    """

    def __init__(
        self,
        node: str,
        configure: Callable[[Any], None],
        *,
        connect_seconds: float = 5.0,
        read_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._configure = configure
        self._connect_seconds = connect_seconds
        self._read_seconds = read_seconds
        self._clock = clock
        self._client: Any = None
        self.user_agent = f"gpuwatch/{__version__} ({node})"

    def get(self, path: str, params: Mapping[str, str]) -> bytes:
        """The whole body of ``GET path``.

        Raises:
            ApiError: No answer, or none with a status of 200 to 299.
        """
        return self._whole(_Request(path=path, params=params))

    def post(self, path: str, params: Mapping[str, str], body: Mapping[str, object]) -> bytes:
        """The whole body of the answer to ``POST path``, which creates an object. Raises as :meth:`get`; 409: it is there already."""
        return self._whole(_Request(path=path, params=params, method="POST", body=body, content_type="application/json"))

    def patch(self, path: str, body: Mapping[str, object]) -> bytes:
        """The whole body of the answer to ``PATCH path``: the object after a strategic merge. Raises as :meth:`get`.

        Such a merge changes only those entries of a list that the patch names by their key; a plain merge would put the list in its place.
        """
        return self._whole(_Request(path=path, method="PATCH", body=body, content_type="application/strategic-merge-patch+json"))

    def stream(self, path: str, params: Mapping[str, str], timeout: float) -> Generator[bytes, None, None]:
        """The lines of ``GET path`` as the server writes them, without their line ends. An unfinished last line is left out.

        The answer has begun when this returns. Whoever does not read to the end closes the iterator.

        Args:
            path: Path of the resource.
            params: Query.
            timeout: Longest silence in seconds.

        Raises:
            ApiError: As for :meth:`get`; also in the midst of the lines.
        """
        lines = self._lines(_Request(path=path, params=params), timeout)
        next(lines)
        return lines

    def _whole(self, request: _Request) -> bytes:
        give_up_at = self._clock() + _MAX_ANSWER_SECONDS
        parts: list[bytes] = []
        size = 0
        with closing(self._chunks(request, self._read_seconds)) as chunks:
            for chunk in chunks:
                parts.append(chunk)
                size += len(chunk)
                if size > _MAX_BODY_BYTES:
                    raise ApiError(0, f"the answer to {request.path} is larger than {_MAX_BODY_BYTES} bytes", fault="too_large")
                if self._clock() > give_up_at:
                    reason = f"the answer to {request.path} was not complete after {_MAX_ANSWER_SECONDS:.0f} s"
                    raise ApiError(0, reason, fault="timeout")
        return b"".join(parts)

    def _lines(self, request: _Request, read_seconds: float) -> Generator[bytes, None, None]:
        """The lines, after an empty one when the answer begins."""
        parts: list[bytes] = []
        size = 0
        with closing(self._chunks(request, read_seconds)) as chunks:
            yield next(chunks)
            for chunk in chunks:
                *lines, rest = chunk.split(b"\n")
                for line in lines:
                    yield b"".join((*parts, line))
                    parts, size = [], 0
                parts.append(rest)
                size += len(rest)
                if size > _MAX_LINE_BYTES:
                    raise ApiError(0, f"a line of {request.path} is longer than {_MAX_LINE_BYTES} bytes", fault="too_large")

    def close(self) -> None:
        """Close idle connections and forget the credentials; the next request reads them anew."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _chunks(self, request: _Request, read_seconds: float) -> Generator[bytes, None, None]:
        """The body as it comes, after an empty chunk when the answer begins."""
        with self._translated():
            response = self._answer(request, read_seconds)
            done = False
            try:
                yield b""
                while chunk := response.read1(_CHUNK_BYTES):
                    yield chunk
                done = True
            finally:
                # Only a body read to its end leaves a connection that can carry the next request.
                _ = response.release_conn() if done else response.close()

    def _answer(self, request: _Request, read_seconds: float) -> Any:  # noqa: ANN401 - urllib3's response
        response = self._send(request, read_seconds)
        if response.status == 401:  # noqa: PLR2004 - Unauthorized
            # A token that was replaced is believed at once, not only when the client's own minute is over.
            response.close()
            self.close()
            response = self._send(request, read_seconds)
        if 200 <= response.status < 300:  # noqa: PLR2004 - the 2xx class
            return response
        try:
            raise _error_of(response)
        finally:
            response.close()

    def _send(self, request: _Request, read_seconds: float) -> Any:  # noqa: ANN401 - urllib3's response
        client = self._client = self._client or self._made_client()
        serialized = client.param_serialize(
            request.method,
            request.path,
            query_params=list(request.params.items()),
            header_params={"Accept": "application/json"} | ({"Content-Type": request.content_type} if request.content_type else {}),
            body=request.body,
            auth_settings=["BearerToken"],
        )
        return client.call_api(*serialized, _request_timeout=(self._connect_seconds, read_seconds)).response

    def _made_client(self) -> Any:  # noqa: ANN401 - the client has no useful types
        from kubernetes.client.api_client import ApiClient  # noqa: PLC0415 - see above
        from kubernetes.client.configuration import Configuration  # noqa: PLC0415
        from kubernetes.utils.keepalive import tcp_keepalive_socket_options  # noqa: PLC0415

        configuration = Configuration()
        self._configured(configuration)
        _strip_token(configuration)
        configuration.retries = False  # waiting is the watch's business
        configuration.socket_options = tcp_keepalive_socket_options(
            _KEEP_ALIVE_IDLE_SECONDS, _KEEP_ALIVE_INTERVAL_SECONDS, _KEEP_ALIVE_PROBES
        )
        client = ApiClient(configuration)
        client.user_agent = self.user_agent
        return client

    def _configured(self, configuration: Any) -> None:  # noqa: ANN401 - the client has no useful types
        from kubernetes.config.config_exception import ConfigException  # noqa: PLC0415 - see above

        try:
            self._configure(configuration)
        except (ConfigException, OSError):
            raise
        except Exception as error:  # noqa: BLE001
            # A file that is not shaped as expected ends in any error, whose text may quote a credential.
            reason = f"no usable credentials: the configuration cannot be read ({type(error).__name__})"
            raise ApiError(0, reason, fault="no_configuration") from None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (ApiError, GeneratorExit):
            raise
        except Exception as error:
            translated = _no_answer(error)
            if translated is None:
                raise
            raise translated from None


def in_cluster(
    node: str, *, token_file: Path = TOKEN_FILE, ca_file: Path = CA_FILE, environment: Mapping[str, str] | None = None, **limits: float
) -> ApiServer:
    """The API server as a container's service account reaches it. ``limits``: the seconds of :class:`ApiServer`."""

    def configure(configuration: Any) -> None:  # noqa: ANN401 - the client has no useful types
        from kubernetes.config.incluster_config import InClusterConfigLoader  # noqa: PLC0415 - see above

        loader = InClusterConfigLoader(str(token_file), str(ca_file), environ=os.environ if environment is None else environment)
        loader.load_and_set(configuration)

    return ApiServer(node, configure, **limits)  # type: ignore[arg-type]


def by_kubeconfig(node: str, file: Path, **limits: float) -> ApiServer:
    """The API server as a kubeconfig file's current context names it; the file is never written to."""

    def configure(configuration: Any) -> None:  # noqa: ANN401 - the client has no useful types
        from kubernetes.config.kube_config import load_kube_config  # noqa: PLC0415 - see above

        load_kube_config(str(file), client_configuration=configuration, persist_config=False)

    return ApiServer(node, configure, **limits)  # type: ignore[arg-type]


def api_server(node: str, environment: Mapping[str, str] | None = None) -> ApiServer:
    """In a container of a cluster its service account; elsewhere the kubeconfig that ``KUBECONFIG`` names, else ``~/.kube/config``."""
    environment = os.environ if environment is None else environment
    if environment.get("KUBERNETES_SERVICE_HOST") and not environment.get("KUBECONFIG"):
        return in_cluster(node, environment=environment)
    return by_kubeconfig(node, Path(environment.get("KUBECONFIG") or Path.home() / ".kube/config"))


def _strip_token(configuration: Any) -> None:  # noqa: ANN401 - the client has no useful types
    """Take a line end off the token, which would make the header illegal (and the error would print the token)."""
    refresh = configuration.refresh_api_key_hook

    def stripped(configuration: Any) -> None:  # noqa: ANN401 - the client has no useful types
        if refresh is not None:
            refresh(configuration)
            # Credentials set their own hook back in place when they refresh.
            configuration.refresh_api_key_hook = stripped
        for name, key in configuration.api_key.items():
            configuration.api_key[name] = key.strip()

    configuration.refresh_api_key_hook = stripped


class _Status(msgspec.Struct):
    message: str = ""


def _error_of(response: Any) -> ApiError:  # noqa: ANN401 - urllib3's response
    """The error of an HTTP answer. Source: meta/v1 ``Status``."""
    body = response.read(_MAX_ERROR_BYTES)
    try:
        reason = msgspec.json.decode(body, type=_Status).message
    except msgspec.DecodeError:
        reason = body.decode(errors="replace")
    retry_after = response.headers.get("Retry-After", "")
    return ApiError(
        response.status,
        one_line(reason) or str(response.reason),
        retry_after=float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None,
    )


def _no_answer(error: Exception) -> ApiError | None:
    """What the libraries raise, in our words; ``None`` for a defect of ours."""
    from kubernetes.client.exceptions import ApiException  # noqa: PLC0415 - see above
    from kubernetes.config.config_exception import ConfigException  # noqa: PLC0415
    from urllib3 import exceptions as http  # noqa: PLC0415 - comes with the client

    if isinstance(error, ApiException):
        return ApiError(0, one_line(str(error.reason)), fault="tls")
    if isinstance(error, http.NewConnectionError | http.ProxyError | http.LocationValueError):
        return ApiError(
            0, f"no connection to the API server: {one_line(str(error.__cause__ or type(error).__name__))}", fault="unreachable"
        )
    if isinstance(error, http.ConnectTimeoutError):
        return ApiError(0, "no connection to the API server in time", fault="timeout")
    if isinstance(error, http.TimeoutError):
        return ApiError(0, "the API server was silent for too long", fault="timeout")
    if isinstance(error, http.SSLError):
        return ApiError(0, one_line(str(error)), fault="tls")
    if isinstance(error, http.HTTPError):
        return ApiError(0, "the API server closed the connection", fault="closed")
    if isinstance(error, ConfigException | OSError):
        return ApiError(0, f"no usable credentials: {one_line(str(error))}", fault="no_configuration")
    if isinstance(error, ValueError):
        # The library's own text may show a header with the token.
        return ApiError(0, "no usable credentials: a value of the configuration makes no legal request", fault="no_configuration")
    return None


def one_line(text: str) -> str:
    """The text without line ends and control characters, of bounded length."""
    return " ".join("".join(character if character.isprintable() else " " for character in text[: 4 * _MAX_REASON]).split())[:_MAX_REASON]
