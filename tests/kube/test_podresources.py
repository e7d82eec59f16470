"""The PodResources source against a real gRPC server on a Unix socket."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest
import structlog

from gpuwatch.kube import podresources_v1_pb2 as v1
from gpuwatch.kube import podresources_v1alpha1_pb2 as v1alpha1
from gpuwatch.kube.podresources import FAULTS, PodResources, socket_of
from kube.kubelet import LISTED, Kubelet, answer, refuse

RATE_LIMIT = (Path(__file__).parents[1] / "recordings" / "kubernetes" / "podresources-rate-limit.txt").read_text()


@pytest.fixture
def path() -> Iterator[Path]:
    """Where this test's kubelet has its socket."""
    # The name of a socket has at most 107 characters, and a test's own folder may already take most of them.
    with TemporaryDirectory() as short:
        yield socket_of(Path(short))


class Now:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        """Seconds, as the test has set them."""
        return self.seconds


@pytest.fixture
def now() -> Now:
    """The clock of this test."""
    return Now()


@pytest.fixture
def source(path: Path, now: Now) -> Iterator[PodResources]:
    """A source that the test polls itself; jitter at its longest."""
    source = PodResources(path, clock=now, jitter=lambda: 1.0)
    yield source
    source.stop()
    assert source.view.state.fault in FAULTS | {""}


def holders(source: PodResources) -> set[str]:
    """Names of the pods in the view."""
    return {allocation.pod for allocation in source.view.allocations}


def test_a_real_answer_becomes_the_view(path: Path, source: PodResources, now: Now) -> None:
    """What a real kubelet listed is in the view, with the time it was learned at."""
    with Kubelet(path, v1=answer(LISTED)):
        assert source.poll() == 10.0
    assert source.view.state.up
    assert source.view.state.fault == ""
    assert source.view.state.updated_at == now.seconds
    assert {"resnet50-chief-0", "sidecar", "d1", "d2", "mig-a", "serve-2"} <= holders(source)


def test_nothing_is_known_before_the_first_answer(source: PodResources) -> None:
    """A source that has not asked yet says that it is starting."""
    assert source.view.state.fault == "starting"
    assert source.view.allocations == ()


def test_no_directory_says_what_to_mount(source: PodResources, path: Path) -> None:
    """A missing directory is its own fault, since a volume is missing."""
    source.poll()
    assert source.view.state.fault == "no_directory"
    assert str(path.parent) in source.view.state.detail


def test_no_socket_is_not_no_directory(source: PodResources, path: Path) -> None:
    """An empty directory means that the kubelet has not started."""
    path.parent.mkdir()
    source.poll()
    assert source.view.state.fault == "no_socket"


def test_a_socket_left_over_is_known_for_what_it_is(source: PodResources, path: Path) -> None:
    """A kubelet that is down leaves its socket's file behind: existing does not mean answering."""
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    source.poll()
    assert source.view.state.fault == "not_listening"


def test_a_path_that_no_socket_can_have(tmp_path: Path) -> None:
    """A path beyond the system's 107 bytes is named, not raised."""
    source = PodResources(tmp_path / ("x" * 120) / "kubelet.sock")
    source.poll()
    assert source.view.state.fault == "unavailable"
    assert "path too long" in source.view.state.detail


def test_a_kubelet_that_hangs_costs_a_deadline(path: Path) -> None:
    """No answer within the deadline is a timeout, and the last facts stay."""
    released = threading.Event()
    hanging = threading.Event()

    def hang(_: grpc.ServicerContext) -> bytes:
        if hanging.is_set():
            released.wait()
        return LISTED

    source = PodResources(path, deadline_seconds=0.5)
    with Kubelet(path, v1=hang):
        source.poll()
        hanging.set()
        source.poll()
        released.set()
    source.stop()
    assert source.view.state.fault == "timeout"
    assert "sidecar" in holders(source)


def test_a_process_that_takes_connections_and_is_silent(path: Path) -> None:
    """A stopped kubelet, whose connections the kernel still takes, is a timeout too."""
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen(8)
        source = PodResources(path, deadline_seconds=0.3)
        source.poll()
        source.stop()
    assert source.view.state.fault in {"timeout", "unavailable"}


def test_k5_facts_stay_through_a_restart_and_return_by_themselves(path: Path, source: PodResources, now: Now) -> None:
    """While the kubelet is away the last facts stay with their age; the new socket of the next one is found without help."""
    with Kubelet(path, v1=answer(LISTED)):
        source.poll()
    inode = path.stat().st_ino if path.exists() else 0
    now.seconds += 10
    source.poll()
    assert not source.view.state.up
    assert source.view.state.updated_at == 100.0
    assert "sidecar" in holders(source)
    shutil.rmtree(path.parent)
    source.poll()
    assert source.view.state.fault == "no_directory"
    now.seconds += 10
    pods = [v1.PodResources(name="new", namespace="n", containers=[gpu_container("GPU-00000009-aaaa-4bbb-8ccc-000000000009")])]
    with Kubelet(path, v1=answer(v1.ListPodResourcesResponse(pod_resources=pods).SerializeToString())):
        assert path.stat().st_ino != inode
        source.poll()
    assert source.view.state.up
    assert source.view.state.updated_at == 120.0
    assert holders(source) == {"new"}


def test_a_quick_restart_between_two_questions(path: Path, source: PodResources) -> None:
    """A kubelet that was replaced between two questions is found at the second try at the latest."""
    with Kubelet(path, v1=answer(LISTED)):
        source.poll()
    with Kubelet(path, v1=answer(LISTED)):
        source.poll()
        source.poll()
        assert source.view.state.up


def test_old_facts_are_not_believed_for_ever(path: Path, source: PodResources, now: Now) -> None:
    """After five minutes without an answer nobody holds anything, but the age is still told."""
    with Kubelet(path, v1=answer(LISTED)):
        source.poll()
    now.seconds += 300
    source.poll()
    assert source.view.allocations
    now.seconds += 1
    source.poll()
    assert source.view.allocations == ()
    assert source.view.state.updated_at == 100.0


def test_an_answer_above_grpcs_default_limit(path: Path, source: PodResources) -> None:
    """5 MB of pods are read whole, where gRPC by itself stops at 4 MiB."""
    reply = v1.ListPodResourcesResponse()
    for number in range(500):
        uuid = f"GPU-{number:08x}-aaaa-4bbb-8ccc-000000000001"
        reply.pod_resources.add(name=f"pod-{number}", namespace="n", containers=[gpu_container(uuid, name="c" * 10_000)])
        reply.pod_resources.add(name=f"ok-{number}", namespace="n", containers=[gpu_container(uuid)])
    payload = reply.SerializeToString()
    assert len(payload) > 5_000_000
    with Kubelet(path, v1=answer(payload)):
        source.poll()
    assert source.view.state.up
    assert len(source.view.allocations) == 500
    assert source.view.rejected == 500


def test_too_large_is_told_from_rate_limited(path: Path) -> None:
    """An answer above our own limit is not taken for a request to slow down."""
    source = PodResources(path, max_message_bytes=1000)
    with Kubelet(path, v1=answer(LISTED)):
        source.poll()
    source.stop()
    assert source.view.state.fault == "too_large"
    assert "1000 bytes" in source.view.state.detail


def test_the_recorded_refusal_is_a_rate_limit(path: Path, source: PodResources) -> None:
    """The text with which a real kubelet refuses is known."""
    text = RATE_LIMIT.splitlines()[-1].removeprefix("last refusal: ")
    with Kubelet(path, v1=refuse(grpc.StatusCode.RESOURCE_EXHAUSTED, text)):
        source.poll()
    assert source.view.state.fault == "rate_limited"
    assert text in source.view.state.detail


def test_an_old_kubelet_is_asked_in_its_own_version(path: Path, source: PodResources) -> None:
    """A kubelet without v1 is read by v1alpha1, and v1 is tried again each time."""
    container = v1alpha1.ContainerResources(
        name="c", devices=[v1alpha1.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["GPU-1"])]
    )
    pod = v1alpha1.PodResources(name="old", namespace="n", containers=[container])
    payload = v1alpha1.ListPodResourcesResponse(pod_resources=[pod]).SerializeToString()
    with Kubelet(path, v1alpha1=answer(payload)) as kubelet:
        source.poll()
        assert holders(source) == {"old"}
        assert "v1alpha1" in source.view.state.detail
        assert kubelet.calls == ["v1alpha1"]


def test_a_server_of_something_else(path: Path, source: PodResources) -> None:
    """A gRPC server that knows neither version is named."""
    with Kubelet(path):
        source.poll()
    assert source.view.state.fault == "unimplemented"


@pytest.mark.parametrize("junk", [b"\xff" * 100, b"\x0a\x02\x0a\xff", b"\x12\x00", b"\x0a\x05\x0a\x03\xff\xfe\xfd", b"<html></html>"])
def test_junk_takes_no_gpu_from_its_holder(path: Path, source: PodResources, junk: bytes) -> None:
    """Bytes that are no answer are a fault; the last facts stay."""
    payloads = [LISTED, junk]
    with Kubelet(path, v1=lambda _: payloads.pop(0)):
        source.poll()
        source.poll()
    assert source.view.state.fault == "bad_reply"
    assert "sidecar" in holders(source)


def test_a_server_that_speaks_no_grpc(path: Path) -> None:
    """Something that answers garbage on the wire is unavailable or silent, never a crash."""
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(8)

        def garble() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 50)

        thread = threading.Thread(target=garble)
        thread.start()
        source = PodResources(path, deadline_seconds=1.0)
        source.poll()
        source.stop()
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert source.view.state.fault in {"unavailable", "timeout"}


def test_another_refusal_keeps_its_words(path: Path, source: PodResources) -> None:
    """A code that nobody foresaw is shown with its text, in one line."""
    with Kubelet(path, v1=refuse(grpc.StatusCode.INTERNAL, "a\nb")):
        source.poll()
    assert source.view.state.fault == "refused"
    assert "INTERNAL: a b" in source.view.state.detail


def test_only_root_may_connect(path: Path) -> None:
    """Who may not enter the directory is told that uid 0 is needed (root itself becomes somebody else for this test)."""
    program = (
        "import os, sys; from pathlib import Path; from gpuwatch.kube.podresources import PodResources\n"
        "if os.getuid() == 0:\n    os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "source = PodResources(Path(sys.argv[1])); source.poll(); print(source.view.state.fault, source.view.state.detail)"
    )
    with Kubelet(path, v1=answer(LISTED)):
        path.parent.chmod(0)
        said = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
        path.parent.chmod(0o750)
    assert said.stdout.splitlines()[-1].startswith("permission ")
    assert "uid 0" in said.stdout


def test_waits_grow_and_are_bounded(source: PodResources) -> None:
    """A kubelet in trouble is asked less and less often, up to a bound, and never more than once a second."""
    assert [source.poll() for _ in range(7)] == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    eager = PodResources(Path("/nowhere/kubelet.sock"), jitter=lambda: 0.0)
    assert [eager.poll() for _ in range(3)] == [1.0, 1.0, 1.0]


def test_a_poke_shortens_the_wait_but_for_its_first_second(path: Path) -> None:
    """However often it is poked, a source waits a second between two questions; one in trouble waits in full."""
    waits: list[tuple[bool, float]] = []

    def wait(event: threading.Event, seconds: float) -> bool:
        waits.append((event.is_set(), seconds))
        return event.is_set()

    source = PodResources(path, wait=wait)
    with Kubelet(path, v1=answer(LISTED)):
        source.poll()
    source.poke()
    source._pause(10.0)
    assert waits == [(False, 1.0), (True, 9.0)]
    waits.clear()
    source._pause(10.0)
    assert waits == [(False, 1.0), (False, 9.0)]
    waits.clear()
    source.poll()
    source.poke()
    source._pause(8.0)
    assert waits == [(False, 1.0), (False, 7.0)]
    source.stop()


def test_the_thread_asks_by_itself_and_ends(path: Path) -> None:
    """Started, the source keeps asking on its own thread; stopped in the middle of a hung call, it ends."""
    asked = threading.Event()
    released = threading.Event()

    def hang_later(_: grpc.ServicerContext) -> bytes:
        if kubelet.calls == ["v1"]:
            return LISTED
        asked.set()
        released.wait()
        return LISTED

    source = PodResources(path, deadline_seconds=600.0, wait=lambda event, _: event.is_set())
    with Kubelet(path, v1=hang_later) as kubelet:
        source.start()
        asked.wait()
        assert "sidecar" in holders(source)
        source.stop()
        assert source._thread is not None
        source._thread.join()
        released.set()


def test_the_log_speaks_once_per_change(path: Path, source: PodResources) -> None:
    """Ten failures are one line, another fault is another, and so is the recovery."""
    with structlog.testing.capture_logs() as lines:
        for _ in range(5):
            source.poll()
        path.parent.mkdir()
        for _ in range(5):
            source.poll()
        with Kubelet(path, v1=answer(LISTED)):
            source.poll()
            source.poll()
    assert [line.get("fault", "well") for line in lines] == ["no_directory", "no_socket", "well"]


def test_grpc_writes_nothing_itself(path: Path) -> None:
    """A kubelet that goes away leaves no line on standard error but ours, whose form is JSON in a cluster."""
    program = (
        "import sys; from pathlib import Path; from gpuwatch.kube.podresources import PodResources\n"
        "source = PodResources(Path(sys.argv[1])); source.poll(); print(source.view.state.up, flush=True)\n"
        "sys.stdin.readline(); source.poll(); print(source.view.state.up)"
    )
    with Kubelet(path, v1=answer(LISTED)):
        asking = subprocess.Popen(
            [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert asking.stdout is not None
        while (line := asking.stdout.readline()) not in {"True\n", ""}:
            pass
        assert line == "True\n"
    said, noise = asking.communicate("go on\n")
    assert said.splitlines()[-1] == "False"
    assert noise == ""


def gpu_container(uuid: str, *, name: str = "c") -> v1.ContainerResources:
    """A container with one GPU."""
    return v1.ContainerResources(name=name, devices=[v1.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=[uuid])])
