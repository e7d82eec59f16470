"""A scripted API server: real HTTP on a port of 127.0.0.1, with objects, versions and a history that can be forgotten.

Left alone it answers as Kubernetes does; ``script`` puts another answer in place of the next one of a kind.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from gpuwatch.kube.client import ApiServer, by_kubeconfig
from kube.told import Told

PODS = "/api/v1/pods"
GROUP = "/apis/resource.k8s.io"
RECORDINGS = Path(__file__).parents[1] / "recordings/kubernetes"


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked."""

    kind: str
    path: str
    query: dict[str, str]
    user_agent: str
    authorization: str
    body: bytes = b""


@dataclass(slots=True)
class Cluster:
    """The truth behind the server."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    """UID → object, of all resources; ``path`` of the resource under ``resource``."""
    version: int = 100
    oldest: int = 0
    changes: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    told: Told = field(default_factory=Told)

    def put(self, item: dict[str, Any]) -> None:
        """Create or change an object."""
        self.version += 1
        uid = item["metadata"]["uid"]
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
        self.changes.append((self.version, "MODIFIED" if uid in self.objects else "ADDED", item))
        self.objects[uid] = item

    def delete(self, uid: str) -> None:
        """Remove an object."""
        self.version += 1
        item = self.objects.pop(uid)
        self.changes.append((self.version, "DELETED", {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}))

    def forget(self) -> None:
        """What etcd's compaction does: the history before now is gone."""
        self.version += 1
        self.oldest = self.version
        self.changes.clear()


class ScriptedServer(ThreadingHTTPServer):
    """The server; ``with`` starts and ends it."""

    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scheme = "https" if tls else "http"
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.cluster = Cluster()
        self.versions: list[str] | None = ["v1"]
        self.token: str | None = None
        self.requests: list[Request] = []
        self.answers: dict[str, deque[Callable[[_Handler], None]]] = {}
        self.held = False
        """Watches stay open until ``release``."""
        self.changed = threading.Condition()
        self.released = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no matter."""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def script(self, kind: str, *answers: Callable[[_Handler], None]) -> None:
        """The next answers to requests of this kind: ``list``, ``watch``, ``discovery``, ``post`` or ``patch``."""
        self.answers.setdefault(kind, deque()).extend(answers)

    def count(self, kind: str, path: str = "") -> int:
        """How many requests of a kind there were."""
        return sum(request.kind == kind and (not path or request.path == path) for request in self.requests)

    def change(self, act: Callable[[Cluster], object]) -> None:
        """Change the truth and wake the held watches."""
        with self.changed:
            act(self.cluster)
            self.changed.notify_all()

    def release(self) -> None:
        """End held watches and answers that hang."""
        with self.changed:
            self.held = False
            self.released.set()
            self.changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ScriptedServer

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = dict(parse_qsl(address.query))
        kind = "watch" if "watch" in query else "discovery" if address.path == GROUP else "list"
        if not self.answered(Request(kind, address.path, query, self.headers["User-Agent"], self.headers.get("Authorization", ""))):
            {"watch": self.watch, "list": self.list, "discovery": self.discover}[kind](address.path, query)

    def do_POST(self) -> None:
        self.take_in("post")

    def do_PATCH(self) -> None:
        self.take_in("patch")

    def take_in(self, kind: str) -> None:
        """What is created or changed."""
        address = urlsplit(self.path)
        query = dict(parse_qsl(address.query))
        text = self.rfile.read(int(self.headers["Content-Length"]))
        request = Request(kind, address.path, query, self.headers["User-Agent"], self.headers.get("Authorization", ""), text)
        if not self.answered(request):
            told = self.server.cluster.told
            take = told.create_event if kind == "post" else told.merge_node
            with self.server.changed:
                code, item = take(address.path, query, text, self.headers["Content-Type"])
            if isinstance(item, str):
                self.send_status(code, item)
            else:
                self.send_body(json.dumps(item).encode(), code)

    def answered(self, request: Request) -> bool:
        """Whether the token or the script already decides."""
        self.server.requests.append(request)
        if self.server.token is not None and request.authorization.lower() != f"bearer {self.server.token}".lower():
            self.send_status(401, "Unauthorized")
        elif self.server.answers.get(request.kind):
            self.server.answers[request.kind].popleft()(self)
        else:
            return False
        return True

    def send_body(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_status(self, code: int, message: str, headers: dict[str, str] | None = None) -> None:
        self.send_body(json.dumps({"kind": "Status", "code": code, "message": message}).encode(), code, headers)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send_chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def send_event(self, kind: str, item: dict[str, Any]) -> None:
        self.send_chunk(json.dumps({"type": kind, "object": item}).encode() + b"\n")

    def discover(self, _path: str, _query: dict[str, str]) -> None:
        if self.server.versions is None:
            return self.send_status(404, "the server could not find the requested resource")
        return self.send_body(json.dumps({"kind": "APIGroup", "versions": [{"version": name} for name in self.server.versions]}).encode())

    def list(self, path: str, query: dict[str, str]) -> None:
        with self.server.changed:
            cluster = self.server.cluster
            version, items = cluster.version, [item for item in cluster.objects.values() if item.get("resource", PODS) == path]
        if int(query.get("resourceVersion", "0")) > version:
            return self.send_status(504, f"Too large resource version: {query['resourceVersion']}, current: {version}")
        return self.send_body(json.dumps({"kind": "List", "metadata": {"resourceVersion": str(version)}, "items": items}).encode())

    def watch(self, path: str, query: dict[str, str]) -> None:
        self.begin_stream()
        sent = int(query["resourceVersion"])
        if sent < self.server.cluster.oldest:
            self.send_event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": f"too old resource version: {sent}"})
            return self.send_chunk(b"")
        while True:
            with self.server.changed:
                cluster = self.server.cluster
                due = [change for change in cluster.changes if change[0] > sent and change[2].get("resource", PODS) == path]
                if not due and self.server.held:
                    self.server.changed.wait()
                    continue
                sent = max(cluster.version, sent)
            for _, kind, item in due:
                self.send_event(kind, item)
            if not self.server.held:
                self.send_event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(sent), "creationTimestamp": None}})
                return self.send_chunk(b"")


def status(code: int, message: str = "refused by the script", **headers: str) -> Callable[[_Handler], None]:
    """An HTTP status; ``Retry_After`` names a header."""
    return lambda handler: handler.send_status(code, message, {name.replace("_", "-"): value for name, value in headers.items()})


def body(data: bytes) -> Callable[[_Handler], None]:
    """A body as it stands."""
    return lambda handler: handler.send_body(data)


def chunks(parts: Sequence[bytes], *, cut: bool = False) -> Callable[[_Handler], None]:
    """A stream of these chunks; ``cut``: the connection breaks after them."""

    def answer(handler: _Handler) -> None:
        handler.begin_stream()
        for part in parts:
            handler.send_chunk(part)
        if cut:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
        else:
            handler.send_chunk(b"")

    return answer


def after(act: Callable[[], object], answer: Callable[[_Handler], None]) -> Callable[[_Handler], None]:
    """Do something first."""

    def acting(handler: _Handler) -> None:
        act()
        answer(handler)

    return acting


def hang(handler: _Handler) -> None:
    """No answer until the server ends."""
    handler.server.released.wait()


def line(kind: str, item: dict[str, Any]) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def pod(number: int, **labels: str) -> dict[str, Any]:
    """A small pod."""
    return {
        "metadata": {"uid": f"uid-{number}", "name": f"pod-{number}", "namespace": "team", "labels": labels},
        "spec": {"nodeName": "node-a", "containers": [{"name": "main", "image": "image:1"}]},
        "status": {"phase": "Running"},
    }


@contextmanager
def reached(server: ScriptedServer, directory: Path, *, token: str = "", **limits: float) -> Iterator[ApiServer]:
    """The server through a kubeconfig file."""
    file = directory / "kubeconfig"
    file.write_text(
        json.dumps(
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "one", "user": "gpuwatch"}}],
                "clusters": [{"name": "one", "cluster": {"server": server.url}}],
                "users": [{"name": "gpuwatch", "user": {"token": token} if token else {}}],
            }
        )
    )
    api = by_kubeconfig("node-a", file, **limits)
    try:
        yield api
    finally:
        api.close()


def server_tls(cert: Path, key: Path) -> ssl.SSLContext:
    """The server's side of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


class Clock:
    """A clock that moves when someone sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        """The time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Take that long."""
        self.slept.append(seconds)
        self.now += seconds
