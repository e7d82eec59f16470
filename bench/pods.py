"""What following pods costs: time to take a list in and memory that the facts keep, for a crowded node and for far more than a node has.

The pods are TFJob workers of about the size that API servers send (7 kB with managedFields), with labels and a TF_CONFIG of their own.
"""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from typing import Any

from table import show

from gpuwatch.kube import answers
from gpuwatch.kube.objects import Pod
from gpuwatch.kube.pods import decode_pod

SIZES = (110, 2_000)
ROUNDS = 5
BUDGET_MIB = 5.0
_MIB = 1 << 20


def main() -> None:
    """Measure and print."""
    rows = [measure(size) for size in SIZES]
    heads = ("pods", "list MiB", "take in ms", "one event us", "kept MiB", "peak beside the list MiB", "budget MiB")
    show("Pods of a node: a list taken in, one line of a watch, and what is kept", heads, rows)


def measure(size: int) -> tuple[object, ...]:
    """One row."""
    body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": [pod(number) for number in range(size)]}).encode()
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        take_in(body)
        times.append((time.perf_counter() - started) * 1e3)
    line = json.dumps({"type": "MODIFIED", "object": pod(0)}).encode()
    started = time.perf_counter()
    for _ in range(100):
        decode_pod(answers.event_of(line).object)
    event_us = (time.perf_counter() - started) * 1e4
    gc.collect()
    tracemalloc.start()
    kept = take_in(body)
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == size
    return size, len(body) / _MIB, min(times), event_us, now / _MIB, peak / _MIB, str(BUDGET_MIB) if size == SIZES[0] else "-"


def take_in(body: bytes) -> dict[str, Pod]:
    """As the watch does it."""
    return {answers.key_of(raw).uid: decode_pod(raw) for raw in answers.list_of(body).items or ()}


def pod(number: int) -> dict[str, Any]:
    """One worker."""
    hosts = [f"train-{number}-worker-{index}.team-vision.svc:2222" for index in range(16)]
    config = {"cluster": {"worker": hosts, "ps": hosts[:2]}, "task": {"type": "worker", "index": number % 16}, "environment": "cloud"}
    labels = {
        f"training.kubeflow.org/{name}": f"{name}-{number}" for name in ("job-name", "operator-name", "replica-type", "replica-index")
    }
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": f"train-{number}", "controller": True}
    return {
        "metadata": {
            "uid": f"00000000-0000-4000-8000-{number:012d}",
            "name": f"train-{number}-worker-0",
            "namespace": "team-vision",
            "resourceVersion": str(number),
            "labels": {**labels, "team": "vision", "app.kubernetes.io/part-of": "imagenet"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 1000},
            "ownerReferences": [owner],
            "managedFields": [{"manager": "kubelet", "fieldsV1": {f"f:field-{index}": {".": {}} for index in range(120)}}],
        },
        "spec": {
            "containers": [
                {
                    "name": "tensorflow",
                    "image": "registry.example.org/team/train:1",
                    "env": [{"name": "TF_CONFIG", "value": json.dumps(config)}, {"name": "SECRET", "value": "x"}],
                    "ports": [{"name": "tfjob-port", "containerPort": 2222}],
                    "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
                }
            ],
            "tolerations": [{"key": f"node.kubernetes.io/{index}", "operator": "Exists"} for index in range(6)],
        },
        "status": {
            "phase": "Running",
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": f"Condition{index}", "status": "True", "lastProbeTime": None} for index in range(5)],
            "containerStatuses": [{"name": "tensorflow", "containerID": f"containerd://{number:064x}", "state": {"running": {}}}],
        },
    }


if __name__ == "__main__":
    main()
