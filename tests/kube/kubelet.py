"""A kubelet's socket with a real gRPC server behind it; what it answers is a function of the test's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import grpc

Answer = Callable[[grpc.ServicerContext], bytes]
LISTED = (Path(__file__).parents[1] / "recordings" / "kubernetes" / "podresources-list.bin").read_bytes()
"""A real kubelet's answer to ``List``."""


class Kubelet:
    """Serves ``List`` of the given versions on ``path`` while the ``with`` block lasts; leaves the socket's file behind like a real one."""

    def __init__(self, path: Path, **versions: Answer) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.calls: list[str] = []
        self._path = path
        self._pool = ThreadPoolExecutor(4)
        self._server = grpc.server(self._pool, options=[("grpc.max_send_message_length", -1)])
        for version, answer in versions.items():
            handlers = {"List": grpc.unary_unary_rpc_method_handler(self._noting(version, answer))}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(f"{version}.PodResourcesLister", handlers),))

    def _noting(self, version: str, answer: Answer) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def listed(request: bytes, context: grpc.ServicerContext) -> bytes:
            assert request == b""
            self.calls.append(version)
            return answer(context)

        return listed

    def __enter__(self) -> Self:
        self._path.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix://{self._path}")
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(grace=None).wait()
        self._pool.shutdown()


def answer(payload: bytes) -> Answer:
    """Always that."""
    return lambda _: payload


def refuse(code: grpc.StatusCode, text: str) -> Answer:
    """Always that error."""

    def refusing(context: grpc.ServicerContext) -> bytes:
        context.abort(code, text)
        raise AssertionError

    return refusing
