"""A node of a cluster for benchmarks: a kubelet's socket and an API server in a process of their own.

``python bench/cluster.py DIRECTORY SCENARIO PODS`` makes ``DIRECTORY/pod-resources/kubelet.sock`` and ``DIRECTORY/kubeconfig``, gives the
scenario's GPUs to the first pods, says ``ready`` and serves until its input ends.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
from pods import pod

from gpuwatch.device.simulated import load_scenario
from gpuwatch.device.simulated.gpu import build_gpus
from gpuwatch.kube import podresources_v1_pb2 as messages


def main() -> None:
    """Serve."""
    directory, scenario, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    pods = [pod(number) for number in range(count)]
    kubelet = serve_kubelet(directory, scenario, pods)
    server = serve_pods(pods)
    config: dict[str, Any] = {"current-context": "here", "contexts": [{"name": "here", "context": {"cluster": "one", "user": "bench"}}]}
    config["clusters"] = [{"name": "one", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}]
    config["users"] = [{"name": "bench", "user": {}}]
    (directory / "kubeconfig").write_text(json.dumps(config))
    print("ready", flush=True)
    sys.stdin.read()
    kubelet.stop(grace=None)
    server.shutdown()


def serve_kubelet(directory: Path, scenario: str, pods: list[dict[str, Any]]) -> grpc.Server:
    """PodResources v1 with one GPU a pod while there are GPUs."""
    uuids = [gpu.uuid for gpu in build_gpus(load_scenario(scenario))]
    reply = messages.ListPodResourcesResponse()
    for item, uuid in zip(pods, [*uuids, *[""] * len(pods)], strict=False):
        listed = reply.pod_resources.add(name=item["metadata"]["name"], namespace=item["metadata"]["namespace"])
        container = listed.containers.add(name="tensorflow")
        if uuid:
            container.devices.add(resource_name="nvidia.com/gpu", device_ids=[uuid])
    payload = reply.SerializeToString()
    server = grpc.server(ThreadPoolExecutor(2))
    handlers = {"List": grpc.unary_unary_rpc_method_handler(lambda _request, _context: payload)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),))
    (directory / "pod-resources").mkdir(parents=True)
    server.add_insecure_port(f"unix://{directory}/pod-resources/kubelet.sock")
    server.start()
    return server


def serve_pods(pods: list[dict[str, Any]]) -> ThreadingHTTPServer:
    """Lists of pods, watches that stay open and silent, and no DRA."""
    body = json.dumps({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": pods}).encode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Quiet."""

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            found = address.path.endswith("/pods")
            watching = "watch=" in address.query
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            if found and watching:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                threading.Event().wait()
            answer = body if found else b'{"kind": "Status", "code": 404}'
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


if __name__ == "__main__":
    main()
