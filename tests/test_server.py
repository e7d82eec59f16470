"""The server as its clients see it: Prometheus, the kubelet, people, and those who mean no good."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from gpuwatch.server import Server, ServerError, connections_allowed
from gpuwatch.web.document import encode_snapshot
from gpuwatch.web.page import render_page
from serving import Agent, Settings, ask, serving
from snapshots import hostile, node, starting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpuwatch.snapshot import Snapshot
    from serving import Running


@pytest.fixture(scope="module", name="running")
def _running() -> Iterator[Running]:
    with serving() as running:
        yield running


class Broken:
    """A renderer that fails as long as it is told to."""

    def __init__(self) -> None:
        self.broken = True

    def render(self, _snapshot: Snapshot, accept: str, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
        """Raise, or answer what it was asked for."""
        if self.broken:
            raise KeyError("no such gpu")
        return f"{accept}|{accept_encoding}".encode(), {"Content-Type": "text/plain"}


@pytest.mark.parametrize(("files", "allowed"), [(-1, 1024), (1 << 20, 1024), (1024, 960), (64, 32)])
def test_connections_leave_files_for_the_reader(files: int, allowed: int) -> None:
    """However many connections are asked for, some of the files that the process may open stay free for a new reader."""
    assert connections_allowed(1024, files) == allowed


def test_metrics_parse_and_belong_to_the_node(running: Running) -> None:
    """/metrics is a strict exposition of the snapshot."""
    answer = running.get("/metrics")
    samples = [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert {sample.labels["node"] for sample in samples if "uuid" in sample.labels} == {"gpu-node-1"}


@pytest.mark.parametrize("headers", [{"X": "a" * 20_000}, {f"X{number}": "a" * 200 for number in range(90)}], ids=["one", "many"])
def test_a_large_header_that_comes_at_once_is_refused(running: Running, headers: dict[str, str]) -> None:
    """The limit of the header holds for one that needs no second look, too."""
    assert running.get("/metrics", **headers).status == 431
    assert running.get("/metrics", X="a" * 10_000).status == 200


@pytest.mark.parametrize("make", [encode_snapshot, render_page])
def test_a_page_is_made_once_a_snapshot(running: Running, make: Callable[[Snapshot], str | bytes]) -> None:
    """However often the page and the JSON are asked for, they are written once for each snapshot, and anew for the next."""
    server, before = running.server, running.agent.latest
    first = server._made(make)
    assert server._made(make) is first
    running.agent.latest = starting()
    assert server._made(make) != first
    running.agent.latest = before


def test_metrics_answer_before_the_first_read(running: Running) -> None:
    """A scrape before the first read is a 200 that says up 0 and shows no GPU."""
    with serving(agent=Agent(starting())) as fresh:
        answer = fresh.get("/metrics")
    values = {sample.name: sample.value for family in text_string_to_metric_families(answer.text) for sample in family.samples}
    assert (answer.status, values["gpuwatch_up"]) == (200, 0.0)
    assert not any(name.startswith("gpuwatch_gpu_") for name in values)
    assert running.get("/metrics").status == 200


def test_negotiation_headers_reach_the_renderer() -> None:
    """Format and compression are chosen from what the scraper accepts."""
    renderer = Broken()
    renderer.broken = False
    with serving(renderer=renderer) as running:
        assert running.get("/metrics", accept="text/x", accept_encoding="gzip").text == "text/x|gzip"


def test_health_tells_why() -> None:
    """/healthz is 200 while the agent lives and 503 with the reason when it does not."""
    with serving() as running:
        alive = running.get("/healthz")
        running.agent.health = (False, "no frame for 300 s")
        dead = running.get("/healthz")
    assert (alive.status, alive.text) == (200, "ok\n")
    assert (dead.status, dead.text) == (503, "no frame for 300 s\n")
    assert dead.headers["Content-Type"].startswith("text/plain")


def test_readiness_follows_the_snapshot() -> None:
    """/readyz is 503 with the fault until a snapshot says ready."""
    with serving(agent=Agent(starting())) as running:
        before = running.get("/readyz")
        running.agent.latest = node()
        after = running.get("/readyz")
    assert (before.status, before.text) == (503, "starting: no read is complete yet\n")
    assert (after.status, after.text) == (200, "ok\n")


def test_document_is_the_snapshot(running: Running) -> None:
    """/api/v1/snapshot is JSON with all fields."""
    answer = running.get("/api/v1/snapshot")
    document = json.loads(answer.body)
    assert answer.headers["Content-Type"] == "application/json"
    assert document["up"] is True
    assert document["gpus"][0]["fast"]["utilization_ratio"] == 0.87


def test_page_comes_with_a_strict_policy(running: Running) -> None:
    """The page may load nothing, run only its own script, be framed by nobody and be kept nowhere."""
    answer = running.get("/")
    policy = answer.headers["Content-Security-Policy"]
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert re.fullmatch(r"script-src 'sha256-[\w+/]{43}='", policy.split("; ")[2])
    assert "connect-src 'self'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Server" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/readyz", "/api/v1/snapshot"])
def test_head_is_get_without_a_body(running: Running, path: str) -> None:
    """HEAD gives GET's status and headers and no body."""
    head, get = running.get(path, method="HEAD"), running.get(path)
    assert (head.status, head.body) == (get.status, b"")
    assert head.headers["Content-Length"] == get.headers["Content-Length"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_other_methods_are_told_which_to_use(running: Running, method: str) -> None:
    """Anything but GET and HEAD is a 405 with Allow."""
    answer = running.get("/metrics", method=method)
    assert answer.status == 405
    assert {word.strip() for word in answer.headers["Allow"].split(",")} == {"GET", "HEAD"}


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "//metrics", "/metrics%00", "/../etc/passwd", "/api/v1"])
def test_unknown_paths_are_404(running: Running, path: str) -> None:
    """A path that is not there is a plain 404: no redirect, no guess."""
    answer = running.get(path)
    assert answer.status == 404
    assert "Location" not in answer.headers


def test_failing_page_is_a_500_logged_once() -> None:
    """A page that fails answers 500 each time, is logged once, and works again by itself."""
    renderer = Broken()
    with capture_logs() as logs, serving(renderer=renderer) as running:
        statuses = [running.get("/metrics").status for _ in range(5)]
        health = running.get("/healthz").status
        renderer.broken = False
        cured = running.get("/metrics").status
    assert (statuses, health, cured) == ([500] * 5, 200, 200)
    assert [entry["path"] for entry in logs if entry["event"] == "page failed"] == ["/metrics"]


def test_hostile_snapshot_is_served_everywhere() -> None:
    """Texts that try to break out are still text on the page, in JSON and in the readiness reason."""
    with serving(agent=Agent(hostile())) as running:
        answers = [running.get(path) for path in ("/", "/metrics", "/api/v1/snapshot", "/readyz")]
    assert [answer.status for answer in answers] == [200, 200, 200, 503]
    assert answers[0].text.count("<script") == 1
    assert answers[3].headers["X-Content-Type-Options"] == "nosniff"


def test_taken_port_is_one_line() -> None:
    """A port in use stops the start with one line that names it."""
    with serving() as running:
        expected = rf"^cannot listen on 127\.0\.0\.1:{running.port}: address already in use$"
        with pytest.raises(ServerError, match=expected), serving(Settings(port=running.port)):
            pass


def test_unknown_address_is_one_line() -> None:
    """An address that cannot be resolved is named."""
    with (
        pytest.raises(ServerError, match=r"^cannot listen on no\.such\.host\.invalid:0: ") as caught,
        serving(Settings(address="no.such.host.invalid")),
    ):
        pass
    assert "\n" not in str(caught.value)


def test_directory_as_web_configuration_is_one_line(tmp_path: Path) -> None:
    """A directory given as the web configuration is said to be one."""
    with pytest.raises(ServerError, match=r"Is a directory$"), serving(Settings(web_config_file=str(tmp_path))):
        pass


def test_bound_port_is_zero_before_start() -> None:
    """Before it starts the server has no port."""
    assert Server(Settings(), Agent(), Broken()).bound_port == 0


def test_idle_and_dribbling_clients_cost_a_scrape_nothing(running: Running) -> None:
    """500 silent and 50 dribbling connections are open, and a scrape is answered."""
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(running.raw()) for _ in range(500)]
        dribbling = [stack.enter_context(running.raw()) for _ in range(50)]
        for byte in b"GET /met":
            for client in dribbling:
                client.sendall(bytes([byte]))
        assert running.get("/metrics").status == 200
        assert len(silent) == 500


def test_oldest_idle_client_makes_room() -> None:
    """At the limit the newcomer is served and the one idle longest is dropped."""
    with serving(Settings(max_connections=8)) as running, contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(running.raw()) for _ in range(8)]
        assert running.get("/healthz").status == 200
        assert crowd[0].recv(1) == b""
        crowd[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert crowd[-1].recv(15) == b"HTTP/1.1 200 OK"


def test_unfinished_header_meets_its_deadline() -> None:
    """A header that does not end in time ends the connection, however often a byte comes."""
    with serving(Settings(header_timeout_seconds=0.05)) as running, running.raw() as client, contextlib.suppress(OSError):
        while client.sendall(b"G") is None:
            client.settimeout(0.01)
            with contextlib.suppress(TimeoutError):
                assert client.recv(100) == b""
                break


def test_idle_keep_alive_ends() -> None:
    """A connection that asks nothing more after its response is closed after the keep-alive time."""
    with serving(Settings(keep_alive_seconds=0.05)) as running, contextlib.closing(running.connect()) as client:
        assert ask(client, "/healthz").status == 200
        assert client.sock.recv(1) == b""


def test_keep_alive_serves_many_requests(running: Running) -> None:
    """One connection carries many scrapes."""
    with contextlib.closing(running.connect()) as client:
        assert [ask(client, "/healthz").status for _ in range(20)] == [200] * 20


def test_pipelined_requests_are_answered_in_order(running: Running) -> None:
    """Requests sent at once get their answers one after the other, and a half-closed client still gets them."""
    with running.raw() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = read_all(client)
    assert received.index(b"200 OK") < received.index(b"404 Not Found")


def test_half_closed_client_is_answered(running: Running) -> None:
    """A client that says it will send no more still gets its response, as netcat users expect."""
    with running.raw() as client:
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        assert b"200 OK" in read_all(client)


def test_endless_header_is_refused(running: Running) -> None:
    """A header above the limit gets an error and no memory."""
    received = b""
    with running.raw() as client, contextlib.suppress(ConnectionError):
        client.sendall(b"GET /metrics HTTP/1.1\r\nX-Filler: " + b"x" * 200_000)
        received = read_all(client)
    # A reset may overtake the answer, since the rest of the header was still on its way.
    assert received == b"" or received.startswith(b"HTTP/1.1 400")
    assert running.get("/healthz").status == 200


def test_large_body_is_refused(running: Running) -> None:
    """A body announced above the limit is a 413 before it is sent."""
    with running.raw() as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n")
        assert read_all(client).startswith(b"HTTP/1.1 413")


def test_unread_body_ends_the_connection(running: Running) -> None:
    """A GET with a body it never sends is answered and cut off, so nobody can hold a connection that way."""
    with running.raw() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")
        assert b"200 OK" in read_all(client)


def test_client_that_never_reads_is_bounded(running: Running) -> None:
    """A client that asks without end and reads nothing is paused, not buffered."""
    with running.raw() as client:
        client.settimeout(0.2)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with contextlib.suppress(OSError):
            for _ in range(20_000):
                client.sendall(b"GET /api/v1/snapshot HTTP/1.1\r\nHost: x\r\n\r\n" * 10)
        buffered = running.call(lambda: max(open_.transport.get_write_buffer_size() for open_ in running.server._connections.open))
        assert isinstance(buffered, int)
        assert buffered < 200_000
        assert running.get("/healthz").status == 200


@given(st.binary(max_size=400))
def test_any_bytes_leave_the_server_alive(running: Running, data: bytes) -> None:
    """Random bytes to the port are answered with an error or a closed connection, and the next scrape works."""
    with running.raw() as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            read_all(client)
    assert running.get("/healthz").status == 200


def test_garbled_requests_leave_the_server_alive(running: Running) -> None:
    """Requests with bytes flipped, cut and repeated do no harm and leave no line in the log."""
    source = random.Random(7)  # noqa: S311
    sound = (
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\nUpgrade: websocket\r\n\r\n"
        b"3\r\nabc\r\n0\r\n\r\n"
    )
    with capture_logs() as logs:
        for _ in range(300):
            garbled = bytearray(sound * source.randint(1, 2))
            for _ in range(source.randint(0, 4)):
                garbled[source.randrange(len(garbled))] = source.randrange(256)
            with running.raw() as client, contextlib.suppress(ConnectionError):
                client.sendall(garbled)
                if source.random() < 0.5:
                    client.shutdown(socket.SHUT_WR)
                    read_all(client)
        assert running.get("/healthz").status == 200
    assert logs == []


def test_garbage_after_a_sound_header_is_refused_once(running: Running) -> None:
    """A broken body gets one 400, and the page that its header asked for is neither sent nor logged as failing."""
    with capture_logs() as logs, running.raw() as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n")
        received = read_all(client)
    assert received.startswith(b"HTTP/1.1 400")
    assert received.count(b"HTTP/1.1") == 1
    assert logs == []


def read_all(client: socket.socket) -> bytes:
    """What the server sends until it closes."""
    received = bytearray()
    while chunk := client.recv(65536):
        received += chunk
    return bytes(received)
