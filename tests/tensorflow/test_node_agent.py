"""A training asks the agent of its node: the real daemon over simulated GPUs and pods, and servers that are none."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certificates import Authority
from daemon import Daemon, demo, free_port, wait_for
from gpuwatch.tensorflow import node_agent
from gpuwatch.tensorflow.node_agent import GpuUse, NodeAgent, agent_of, fetch, gpus_of
from gpuwatch.tensorflow.settings import Settings, read_settings
from serving import Settings as ServerSettings
from serving import serving

NODE = """
gpus:
  - {board: h100-sxm, count: 3, loads: [{kind: training}]}
  - {board: h100-sxm, mig: [3g.40gb, 1g.10gb], loads: [{kind: matmul, mig: 0}]}
  - {board: t4, holders: [{pid: 51, memory_share: 0.3}, {pid: 52, memory_share: 0.2}], loads: [{kind: training}]}
pods:
  - {name: mnist-worker-0, namespace: vision, devices: ["0", "1"]}
  - {name: mnist-worker-0, namespace: other, devices: ["2"]}
  - {name: sliced, namespace: vision, devices: ["3/0"]}
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A ready agent that knows its pods."""
    with demo(tmp_path_factory.mktemp("agent"), NODE, "read.medium_interval=1s", watch=False) as daemon:
        wait_for(lambda: daemon.look().value("gpuwatch_job_gpu_utilization_ratio", pod="sliced") is not None, "the use of a MIG instance")
        yield daemon


def asked(daemon: Daemon, namespace: str, pod: str) -> tuple[GpuUse, ...]:
    """What the agent says of a pod."""
    return gpus_of(json.loads(fetch(daemon.url)), namespace=namespace, pod=pod)


def test_a_pod_sees_its_own_gpus_and_no_others(node: Daemon) -> None:
    """Use, power and memory of each GPU that the pod holds, in base units; a pod of the same name elsewhere has its own."""
    mine = asked(node, "vision", "mnist-worker-0")
    assert [one.gpu for one in mine] == ["0", "1"]
    for one in mine:
        assert one.utilization_ratio is not None
        assert one.power_watts is not None
        assert one.memory_used_bytes is not None
        assert 0.5 < one.utilization_ratio <= 1.0
        assert 100.0 < one.power_watts < 1000.0
        assert one.memory_used_bytes > 1 << 28
    assert [one.gpu for one in asked(node, "other", "mnist-worker-0")] == ["2"]
    assert [one.gpu for one in asked(node, "", "mnist-worker-0")] == ["0", "1", "2"]
    assert asked(node, "vision", "nobody") == ()


def test_a_mig_instance_has_a_name_and_no_power(node: Daemon) -> None:
    """The board measures power as a whole; that is nobody's."""
    [one] = asked(node, "vision", "sliced")
    assert one.gpu.split(".")[0] == "3"
    assert len(one.gpu.split(".")) == 3
    assert one.utilization_ratio is not None
    assert one.power_watts is None


def test_values_equal_the_agents_metrics(node: Daemon) -> None:
    """The board of the operator and the curves of the training show the same memory."""
    memory = node.look().value("gpuwatch_job_gpu_memory_used_bytes", pod="mnist-worker-0", namespace="vision", gpu="0")
    [first, _] = asked(node, "vision", "mnist-worker-0")
    assert first.memory_used_bytes == pytest.approx(memory, rel=0.2)


def test_the_thread_asks_while_somebody_wants_the_values(node: Daemon) -> None:
    """After the start there are values, after the stop none and no thread; starting twice is starting once; it starts again."""
    agent = agent_of(read_settings({"GPUWATCH_AGENT_URL": node.url, "POD_NAMESPACE": "vision", "POD_NAME": "mnist-worker-0"}))
    assert agent is not None
    for _ in range(2):
        assert agent.gpus() == ()
        agent.start()
        agent.start()
        assert [one.gpu for one in wait_for(agent.gpus, "the first answer")] == ["0", "1"]
        [thread] = _threads()
        agent.stop()
        thread.join()
        assert (agent.gpus(), _threads()) == ((), [])
    agent.stop()


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gpuwatch-node-agent"]


def test_nobody_is_asked_unless_named() -> None:
    """Without a URL there is no agent."""
    assert agent_of(Settings(pod="p")) is None


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_credentials_and_tls(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """User and password of the URL, with signs that a URL must write otherwise, and a certificate that the system trusts."""
    hashed = bcrypt.hashpw(b"p@ss/w:rd", bcrypt.gensalt(4)).decode()
    configuration = {"basic_auth_users": {"training": hashed}}
    if scheme == "https":
        authority = Authority(tmp_path / "authority")
        pair = authority.issue("localhost")
        configuration["tls_server_config"] = {"cert_file": str(pair.cert), "key_file": str(pair.key)}
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.cert))
    file = tmp_path / "web.yaml"
    file.write_text(json.dumps(configuration))
    with serving(ServerSettings(web_config_file=str(file))) as server:
        where = f"localhost:{server.port}"
        assert "gpus" in json.loads(fetch(f"{scheme}://training:p%40ss%2Fw%3Ard@{where}/"))
        for url in (f"{scheme}://{where}", f"{scheme}://training:wrong@{where}"):
            with pytest.raises(ValueError, match="it answers with 401"):
                fetch(url)
        if scheme == "https":
            monkeypatch.delenv("SSL_CERT_FILE")
            with pytest.raises(OSError, match="certificate verify failed"):
                fetch(f"https://training:p%40ss%2Fw%3Ard@{where}")


def test_an_agent_that_goes_and_comes_is_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Its values are absent meanwhile and come back by themselves; the first failure is no news yet."""
    caplog.set_level(logging.INFO, "gpuwatch.tensorflow")
    answers: list[bytes | Exception] = []

    def answer() -> bytes:
        one = answers.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    agent = NodeAgent(answer, namespace="n", pod="p")
    gone = ConnectionRefusedError(111, "Connection refused")
    for good in (_snapshot(), gone, _snapshot(), gone, gone, gone, b"<html>", _snapshot(), _snapshot()):
        answers.append(good)
        agent.ask()
        assert bool(agent.gpus()) == (good == _snapshot())
    assert [(one.levelno, one.message.partition(" (")[0]) for one in caplog.records] == [
        (logging.WARNING, "no values of the node's agent"),
        (logging.INFO, "the node's agent answers again"),
    ]


def _snapshot(**job: Any) -> bytes:
    holder = {"gpu_uuid": "GPU-1", "mig_uuid": "", "namespace": "n", "pod": "p"}
    whole = {"holder": holder, "held": True, "utilization_ratio": 0.5, "power_watts": 300.0, "memory_used_bytes": 1 << 30} | job
    gpu = {"identity": {"uuid": "GPU-1", "index": 4}, "medium": None}
    return json.dumps({"gpus": [gpu], "jobs": [whole]}).encode()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (_snapshot(held=False), "knows of no GPU of pod 'p'"),
        (b"[]", "not the JSON of an agent"),
        (b"{}", "not the JSON of an agent"),
        (b'{"gpus": 3, "jobs": null}', "not the JSON of an agent"),
        (b"\xff", "not the JSON of an agent"),
        (b"", "not the JSON of an agent"),
    ],
)
def test_what_is_wrong_is_said(answer: bytes, words: str, caplog: pytest.LogCaptureFixture) -> None:
    """In one line, however often."""
    agent = NodeAgent(lambda: answer, namespace="n", pod="p")
    for _ in range(5):
        agent.ask()
    [record] = caplog.records
    assert words in record.message
    assert agent.gpus() == ()


def test_two_containers_of_the_pod_on_one_gpu() -> None:
    """Their shares add up to one GPU; power, which nobody can divide, stays unknown."""
    one = json.loads(_snapshot(power_watts=None))
    one["jobs"] = [one["jobs"][0], one["jobs"][0] | {"utilization_ratio": 0.25, "memory_used_bytes": None}]
    assert gpus_of(one, namespace="n", pod="p") == (GpuUse(gpu="4", utilization_ratio=0.75, power_watts=None, memory_used_bytes=1 << 30),)


LEAVES = st.none() | st.booleans() | st.floats() | st.text(max_size=5)
KEYS = st.sampled_from(("gpus", "jobs", "identity", "holder", "held", "medium", "uuid", "x"))


@settings(max_examples=50)
@given(st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8))
def test_no_json_fails(answer: Any) -> None:
    """Whatever is answered, the training goes on without values."""
    agent = NodeAgent(lambda: json.dumps(answer).encode(), namespace="n", pod="p")
    agent.ask()
    assert agent.gpus() == ()


class _Elsewhere(BaseHTTPRequestHandler):
    """Sends everybody on, as a login page does, and notes who came."""

    came: list[str]

    def do_GET(self) -> None:
        """A redirect to this same server."""
        self.came.append(self.path)
        self.send_response(302)
        self.send_header("Location", "/login")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_redirects_and_proxies_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The password goes to the named agent only."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    _Elsewhere.came = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(ValueError, match="it answers with 302"):
                fetch(f"http://user:secret@127.0.0.1:{server.server_address[1]}")
        finally:
            server.shutdown()
            thread.join()
    assert _Elsewhere.came == ["/api/v1/snapshot"]


def test_an_agent_that_hangs_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """A server that accepts and says nothing costs the time-out, in the thread that asks; no password is in the log."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        url = f"http://user:secret@127.0.0.1:{server.server_address[1]}"
        agent = NodeAgent(lambda: fetch(url, timeout_seconds=0.05), namespace="n", pod="p")
        for _ in range(2):
            agent.ask()
    [record] = caplog.records
    assert f"no answer within {node_agent.TIMEOUT_SECONDS:g} s" in record.message
    assert "secret" not in caplog.text
