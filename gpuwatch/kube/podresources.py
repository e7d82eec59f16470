"""Source: the kubelet's PodResources API, which tells what device it gave to which container.

One daemon thread asks ``List`` over a Unix socket and publishes the answer whole in :attr:`PodResources.view`. The channel stays open while
it works; after a failure it is made anew, because a restarted kubelet makes a new socket under the old name.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import grpc
import structlog

from gpuwatch.kube.allocations import Reply, ReplyError, decode_v1, decode_v1alpha1
from gpuwatch.kube.kubelet_socket import KubeletFault, try_socket
from gpuwatch.kube.objects import Allocations, SourceState

FAULTS = frozenset(
    {
        "starting",
        "no_directory",
        "no_socket",
        "permission",
        "not_listening",
        "timeout",
        "unavailable",
        "rate_limited",
        "too_large",
        "unimplemented",
        "bad_reply",
        "refused",
        "unexpected",
    }
)
"""Every value of ``view.state.fault`` beside the empty one."""

_LEAST_SECONDS = 1.0
"""Between two questions, however often one is poked: all clients of the kubelet together may ask 100 times a second."""
_BACKOFF_SECONDS = 2.0
_BACKOFF_MAX_SECONDS = 30.0
_MAX_DOUBLINGS = 6
_V1 = "/v1.PodResourcesLister/List"
_V1ALPHA1 = "/v1alpha1.PodResourcesLister/List"
_MAX_DETAIL = 300
_REQUEST = b""
"""``ListPodResourcesRequest`` has no fields."""

_log = structlog.get_logger("gpuwatch.kube")

Wait = Callable[[threading.Event, float], bool]
"""Waits for an event for at most so many seconds; true when it is set."""


def socket_of(kubelet_root: Path) -> Path:
    """The PodResources socket of a kubelet with that root directory (``/var/lib/kubelet`` unless ``--root-dir`` says otherwise)."""
    return kubelet_root / "pod-resources" / "kubelet.sock"


class PodResources:
    """Keeps :attr:`view` in step with what the kubelet has given out.

    Args:
        socket_path: The kubelet's socket. In a pod its directory must be mounted, not the socket itself.
        interval_seconds: Between two questions while all is well.
        deadline_seconds: Longest time for one answer.
        keep_seconds: How long the last good answer is believed while no new one comes. 300 s: longer than a restart of the kubelet,
            shorter than it takes to drain a node and fill it again.
        max_message_bytes: Largest answer. gRPC's own limit of 4 MiB is too little for a node with many pods.
        clock: Monotonic seconds.
        wait: Waits for an event; tests make it return at once.
        jitter: Random number from 0 to 1 by which a wait after a failure is scaled.
    """

    def __init__(
        self,
        socket_path: Path,
        *,
        interval_seconds: float = 10.0,
        deadline_seconds: float = 5.0,
        keep_seconds: float = 300.0,
        max_message_bytes: int = 64 << 20,
        clock: Callable[[], float] = time.monotonic,
        wait: Wait = threading.Event.wait,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._path = socket_path
        self._interval = interval_seconds
        self._deadline = deadline_seconds
        self._keep = keep_seconds
        self._max_bytes = max_message_bytes
        self._clock = clock
        self._wait = wait
        self._jitter = jitter
        self._channel: grpc.Channel | None = None
        self._failures = 0
        self._told: tuple[str, int] = ("starting", 0)
        self._stopping = threading.Event()
        self._poked = threading.Event()
        self._thread: threading.Thread | None = None
        self._view = Allocations()

    @property
    def view(self) -> Allocations:
        """What the kubelet has given out, with how well the source does. May be read from any thread; never blocks."""
        return self._view

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="podresources", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Tell the thread to end, also out of a question; does not wait for it."""
        self._stopping.set()
        self._poked.set()
        self._close()

    def poke(self) -> None:
        """Ask soon, because a pod has changed. While the kubelet does not answer this changes nothing."""
        self._poked.set()

    def poll(self) -> float:
        """Ask once and publish what came; returns the seconds until the next question. Never raises."""
        try:
            reply, version = self._ask()
        except KubeletFault as failure:
            return self._failed(failure)
        except Exception as error:  # noqa: BLE001 (a source must outlive what nobody foresaw)
            return self._failed(KubeletFault("unexpected", f"{type(error).__name__}: {error}"))
        self._failures = 0
        state = SourceState(up=True, fault="", detail=f"the kubelet answers by PodResources {version}", updated_at=self._clock())
        self._view = Allocations(state=state, allocations=reply.allocations, rejected=reply.rejected)
        self._tell("", reply.rejected, example=reply.example)
        return max(self._interval, _LEAST_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._pause(self.poll())
        self._close()

    def _pause(self, seconds: float) -> None:
        if self._wait(self._stopping, _LEAST_SECONDS):
            return
        # Only a kubelet that answers may be asked early: one in trouble is left alone for the whole wait.
        event = self._poked if self._failures == 0 else self._stopping
        if seconds > _LEAST_SECONDS:
            self._wait(event, seconds - _LEAST_SECONDS)
        self._poked.clear()

    def _failed(self, failure: KubeletFault) -> float:
        self._close()
        self._failures += 1
        now = self._clock()
        old = self._view
        known_at = old.state.updated_at
        state = SourceState(up=False, fault=failure.fault, detail=str(failure), updated_at=known_at)
        is_believed = known_at is not None and now - known_at <= self._keep
        self._view = Allocations(state=state, allocations=old.allocations if is_believed else (), rejected=old.rejected)
        self._tell(failure.fault, 0, detail=str(failure))
        ceiling = min(_BACKOFF_SECONDS * 2.0 ** min(self._failures - 1, _MAX_DOUBLINGS), _BACKOFF_MAX_SECONDS)
        return max(ceiling * self._jitter(), _LEAST_SECONDS)

    def _tell(self, fault: str, rejected: int, *, detail: str = "", example: str = "") -> None:
        before, rejected_before = self._told
        self._told = (fault, rejected if fault == "" else rejected_before)
        if fault and fault != before and not self._stopping.is_set():
            _log.warning("the kubelet does not tell who holds the GPUs", source="podresources", fault=fault, detail=detail)
        if not fault and before:
            _log.info("the kubelet tells who holds the GPUs", source="podresources")
        if not fault and rejected and not rejected_before:
            _log.warning("the kubelet lists entries that make no sense", source="podresources", entries=rejected, example=example)

    def _ask(self) -> tuple[Reply, str]:
        channel = self._channel
        if channel is None:
            try_socket(self._path, self._deadline)
            channel = self._channel = self._open()
        if self._stopping.is_set():
            raise KubeletFault("unavailable", "gpuwatch is stopping")
        try:
            # v1 is tried each time: a kubelet may have been upgraded since.
            try:
                return decode_v1(self._call(channel, _V1)), "v1"
            except grpc.RpcError as error:
                if _call_of(error).code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise
                return decode_v1alpha1(self._call(channel, _V1ALPHA1)), "v1alpha1, which tells no dynamic resources (DRA)"
        except ReplyError as error:
            raise KubeletFault("bad_reply", f"{self._path} answers {error}") from error
        except grpc.RpcError as error:
            raise self._failure_of(error) from error

    def _open(self) -> grpc.Channel:
        # Before its first channel gRPC reads from here whether to write lines of its own, which would break the form of the log.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        return grpc.insecure_channel(
            f"unix://{self._path.absolute()}",
            options=[
                ("grpc.max_receive_message_length", self._max_bytes),
                ("grpc.default_authority", "localhost"),
                ("grpc.enable_http_proxy", 0),
                # A channel of its own: no state of an older one to the same path.
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )

    def _call(self, channel: grpc.Channel, method: str) -> bytes:
        """The bytes as they come: what they mean is decided where an error can still be told from gRPC's own."""
        ask = channel.unary_unary(method, request_serializer=_as_is, response_deserializer=_as_is)
        answer: bytes = ask(_REQUEST, timeout=self._deadline)
        return answer

    def _close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _failure_of(self, error: grpc.RpcError) -> KubeletFault:
        call = _call_of(error)
        code, text = call.code(), _text(call)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return KubeletFault(
                "timeout", f"{self._path} took a connection but gave no answer in {self._deadline:g} s: is the kubelet hung?"
            )
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
            return KubeletFault("too_large", f"the kubelet's answer is above {self._max_bytes} bytes: {text}")
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return KubeletFault("rate_limited", f"the kubelet is asked too often, by all its clients together: {text}")
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return KubeletFault(
                "unimplemented", f"{self._path} serves neither v1 nor v1alpha1 of PodResources: is it the kubelet's socket?"
            )
        if code is grpc.StatusCode.UNAVAILABLE:
            return KubeletFault("unavailable", f"the connection to {self._path} broke; a kubelet that restarts does that: {text}")
        return KubeletFault("refused", f"the kubelet refuses to list its pods: {code.name}: {text}")


def _as_is(payload: bytes) -> bytes:
    return payload


def _call_of(error: grpc.RpcError) -> grpc.Call:
    # The error of a call that waits is the call itself; the published types do not say so.
    return cast("grpc.Call", error)


def _text(call: grpc.Call) -> str:
    """What gRPC says itself: one line, of bounded length."""
    return " ".join((call.details() or "no reason given").split())[:_MAX_DETAIL]
