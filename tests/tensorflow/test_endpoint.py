"""The endpoint of a training process, spoken to as Prometheus does, and as those do who do not mean well."""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from daemon import free_port, wait_for
from gpuwatch.tensorflow.endpoint import MOST_CLIENTS, Endpoint
from gpuwatch.tensorflow.exposition import registry_of
from gpuwatch.tensorflow.measures import Measures

ROOT = Path(__file__).parents[2]
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
THREADS = "gpuwatch-endpoint"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An open one on this machine, of a process that has done seven steps. Nothing of it is left afterwards."""
    one = Endpoint(registry_of(Measures(steps=7)), address="127.0.0.1", port=0)
    assert one.open()
    yield one
    one.close()
    assert one.port is None
    assert not [thread for thread in threading.enumerate() if thread.name == THREADS]


def ask(
    endpoint: Endpoint, path: str = "/metrics", *, method: str = "GET", host: str = "127.0.0.1", **headers: str
) -> tuple[int, str, str]:
    """Status, type and body of an answer."""
    assert endpoint.port is not None
    with contextlib.closing(http.client.HTTPConnection(host, endpoint.port, timeout=30)) as client:
        client.request(method, path, headers=headers)
        answer = client.getresponse()
        return answer.status, answer.headers.get("Content-Type", ""), answer.read().decode()


def steps(text: str, *, openmetrics: bool = False) -> float:
    """The steps in an exposition."""
    [family] = [one for one in (parse_openmetrics if openmetrics else parse_text)(text) if one.name == "gpuwatch_tensorflow_steps"]
    return family.samples[0].value


def test_both_formats(endpoint: Endpoint) -> None:
    """Each scrape gets the format that it asks for; one that asks for nothing, or for nonsense, gets text."""
    status, kind, body = ask(endpoint)
    assert (status, kind.split(";")[0], steps(body)) == (200, "text/plain", 7)
    status, kind, body = ask(endpoint, Accept=OPENMETRICS)
    assert (status, kind.split(";")[0], steps(body, openmetrics=True)) == (200, "application/openmetrics-text", 7)
    for accept in ("application/openmetrics-text;version=x", "*/*", ";;;", "text/plain;version=0.0.x;q=é".encode().decode("latin-1")):
        assert ask(endpoint, Accept=accept)[0] == 200


def test_only_reading(endpoint: Endpoint) -> None:
    """GET and HEAD of the metrics, with the same head; nothing else is served."""
    head = ask(endpoint, method="HEAD")
    assert head[:2] == ask(endpoint)[:2]
    assert head[2] == ""
    assert [ask(endpoint, method=method)[0] for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE")] == [501] * 5
    assert [ask(endpoint, path)[0] for path in ("/", "/metrics?x=1", "/metrics/", "/..", "/favicon.ico")] == [200, 200, 404, 404, 404]


def test_opening_twice_is_opening_once(endpoint: Endpoint) -> None:
    """The port stays the same."""
    port = endpoint.port
    assert endpoint.open()
    assert endpoint.port == port


def test_it_opens_again_on_its_port() -> None:
    """A closed endpoint frees its port at once, and may be opened there again."""
    one = Endpoint(registry_of(Measures()), address="127.0.0.1", port=free_port())
    for _ in range(3):
        assert one.open()
        assert ask(one)[0] == 200
        one.close()
    one.close()


def test_all_interfaces() -> None:
    """Without an address, IPv4 is served, and IPv6 where the machine has it."""
    one = Endpoint(registry_of(Measures()), address="", port=0)
    assert one.open()
    try:
        assert ask(one)[0] == 200
        if Path("/proc/net/if_inet6").exists() and Path("/proc/net/if_inet6").read_text():
            assert ask(one, host="::1")[0] == 200
    finally:
        one.close()


def test_a_taken_port_is_one_line(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    """The second process on a port says so once, and serves nothing; the first goes on."""
    assert endpoint.port is not None
    other = Endpoint(registry_of(Measures()), address="127.0.0.1", port=endpoint.port)
    assert not other.open()
    other.close()
    [record] = caplog.records
    assert (record.name, record.levelno) == ("gpuwatch.tensorflow", logging.WARNING)
    assert f"port {endpoint.port}" in record.message
    assert "GPUWATCH_TENSORFLOW_PORT" in record.message
    assert steps(ask(endpoint)[2]) == 7


def test_an_address_of_another_machine_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """As is a port that the process may not have."""
    assert not Endpoint(registry_of(Measures()), address="192.0.2.1", port=0).open()
    assert len(caplog.records) == 1


def test_slow_and_dead_clients_hold_up_nobody(endpoint: Endpoint, capfd: pytest.CaptureFixture[str]) -> None:
    """While some say nothing and some read nothing, others are served; those who break off are no news."""
    assert endpoint.port is not None
    address = ("127.0.0.1", endpoint.port)
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_CLIENTS // 2):
            stack.enter_context(socket.create_connection(address))
        for _ in range(MOST_CLIENTS // 2 - 2):
            stack.enter_context(socket.create_connection(address)).sendall(b"GET /metrics HTTP/1.1\r\n")
        assert steps(ask(endpoint)[2]) == 7
    for _ in range(5):
        with socket.create_connection(address) as rude:
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # leaves with a reset
            rude.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    with socket.create_connection(address) as binary:
        binary.sendall(os.urandom(4096) + b"\r\n\r\n")
    assert steps(ask(endpoint)[2]) == 7
    assert "Traceback" not in "".join(capfd.readouterr())


def test_too_many_clients_are_turned_away_and_forgotten(endpoint: Endpoint) -> None:
    """There is never more than the allowed number of threads, and once the crowd has gone there is room again."""
    assert endpoint.port is not None
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(socket.create_connection(("127.0.0.1", endpoint.port), timeout=30)) for _ in range(3 * MOST_CLIENTS)]
        assert crowd[-1].recv(1) == b""
        assert threading.active_count() <= before + MOST_CLIENTS

    def served() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return ask(endpoint)[0] == 200
        return False

    wait_for(served, "room again")


FORKING = """
import os, sys, signal
from gpuwatch.tensorflow.endpoint import Endpoint
from gpuwatch.tensorflow.exposition import registry_of
from gpuwatch.tensorflow.measures import Measures

endpoint = Endpoint(registry_of(Measures(steps=7)), address="127.0.0.1", port=int(sys.argv[1]))
assert endpoint.open()
child = os.fork()
if child == 0:
    assert endpoint.port is None
    endpoint.close()
    print(os.getpid(), flush=True)
    signal.pause()
os.read(0, 1)
"""


def test_a_forked_child_neither_serves_nor_holds_the_port() -> None:
    """While the parent trains it alone serves; after it the port is free, though a worker that it forked lives on."""
    port = free_port()
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as client:
                client.request("GET", "/metrics")
                assert steps(client.getresponse().read().decode()) == 7
            parent.kill()
            parent.wait()
            os.kill(child, 0)
            socket.create_server(("127.0.0.1", port)).close()
        finally:
            os.kill(child, 9)


LEAVING = """
import sys
from gpuwatch.tensorflow.endpoint import Endpoint
from gpuwatch.tensorflow.exposition import registry_of
from gpuwatch.tensorflow.measures import Measures
import socket

endpoint = Endpoint(registry_of(Measures()), address="127.0.0.1", port=0)
assert endpoint.open()
quiet = socket.create_connection(("127.0.0.1", endpoint.port))
"""


def test_an_open_endpoint_does_not_keep_the_process() -> None:
    """A script that ends, ends, without a word, though nobody closed the endpoint and a client says nothing."""
    done = subprocess.run([sys.executable, "-c", LEAVING], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
