"""What attribution costs: processor time to tag a snapshot; memory and load of the whole daemon with its Kubernetes sources on.

The daemon reads a simulated node and asks a real gRPC server and a real HTTP server, which stand for the kubelet and the API server.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from pods import pod
from table import quantile, show

import daemon
from gpuwatch import agent
from gpuwatch.config import load
from gpuwatch.device.readings import Fast, Identity, Medium, MigInstance, Process
from gpuwatch.device.wire import Simulation
from gpuwatch.kube.objects import Allocation, Allocations, Pods, ProcessOwner, ProcessOwners, SourceState, Views
from gpuwatch.kube.pods import decode_pod
from gpuwatch.kube.sources import KubeSources
from gpuwatch.snapshot import Gpu, Snapshot
from gpuwatch.tagging import Tagger

HERE = Path(__file__).parent
NODES = ((8, 0, 30), (8, 7, 110))
"""(GPUs, MIG instances of each, pods)."""
ROUNDS = 200
PODS = 30
WARM_UP_SECONDS, SETTLE_SECONDS = 10, 40
"""Several readings of every tier and questions to the kubelet."""
UP = SourceState(up=True, fault="", updated_at=0.0)


def main() -> None:
    """Measure and print."""
    heads = ("node", "holders", "nothing changed, ms", "a process came, ms", "first, ms")
    show("Tagging a snapshot", heads, [tagging(*node) for node in NODES])
    off, on = costs(attributed=False), costs(attributed=True)
    rows = [("attribution off", *off), ("with kubelet, pods, DRA and processes", *on)]
    heads = ("", "agent, PSS MiB", "reader", "both", "budget", "agent, % of one core")
    show(f"The daemon on training with {PODS} pods, a scrape every 5 s", heads, rows)


def tagging(gpus: int, instances: int, pods: int) -> tuple[object, ...]:
    """One row: most snapshots change no holder; when a process comes or goes everything is attributed anew."""
    tagger = Tagger(labels_of=lambda _: (), grace_seconds=300.0, max_gap_seconds=11.0)
    snapshot, views = node(gpus, instances, pods)
    first = milliseconds(tagger, snapshot, views, 0.0)
    same = [milliseconds(tagger, snapshot, answered(views, number), 1.0 + number) for number in range(ROUNDS)]
    changed = []
    for number in range(ROUNDS):
        other = msgspec.structs.replace(snapshot, gpus=(with_process(snapshot.gpus[0], 10_000 + number), *snapshot.gpus[1:]))
        changed.append(milliseconds(tagger, other, views, 1.0 + ROUNDS + number))
    held = len(tagger.tag(snapshot, views, 2.0 + 2 * ROUNDS).jobs)
    title = f"{gpus * instances} MIG instances, {pods} pods" if instances else f"{gpus} GPUs, {pods} pods"
    return title, held, quantile(same, 0.5), quantile(changed, 0.5), first


def milliseconds(tagger: Tagger, snapshot: Snapshot, views: Views, now: float) -> float:
    """Processor time of one pass."""
    started = time.process_time()
    tagger.tag(snapshot, views, now)
    return (time.process_time() - started) * 1e3


def answered(views: Views, number: int) -> Views:
    """The same facts, told once more."""
    state = SourceState(up=True, fault="", updated_at=float(number))
    return msgspec.structs.replace(views, allocations=msgspec.structs.replace(views.allocations, state=state))


def node(gpus: int, instances: int, pods: int) -> tuple[Snapshot, Views]:
    """A node whose devices are all held, each by a pod of its own, while there are pods."""
    known = [decode_pod(msgspec.Raw(msgspec.json.encode(pod(number)))) for number in range(pods)]
    made = tuple(gpu(index, instances) for index in range(gpus))
    devices = [mig.uuid for one in made for mig in (one.medium.mig_instances if one.medium else ())] or [one.identity.uuid for one in made]
    pairs = list(zip(known, devices, strict=False))
    allocations = tuple(
        Allocation(namespace=one.namespace, pod=one.name, container="tensorflow", device_id=device, resource="nvidia.com/gpu")
        for one, device in pairs
    )
    owners = {
        100 + place: ProcessOwner(pid=100 + place, pod_uid=one.uid, container_id=f"{place:064x}") for place, (one, _) in enumerate(pairs)
    }
    views = Views(
        allocations=Allocations(state=UP, allocations=allocations),
        pods=Pods(state=UP, pods=tuple(known)),
        processes=ProcessOwners(state=UP, owners=owners),
    )
    return Snapshot(node="n", timestamp_seconds=0.0, version="0", up=True, gpus=made), views


def gpu(index: int, instances: int) -> Gpu:
    """An H100, whole or cut, with one process on each device."""
    migs = tuple(
        MigInstance(uuid=f"MIG-{index}-{slot}", gpu_instance=slot + 7, compute_instance=0, profile="1g.10gb") for slot in range(instances)
    )
    processes = tuple(
        Process(kind="compute", pid=100 + index * max(instances, 1) + slot, gpu_instance=slot + 7 if instances else None)
        for slot in range(max(instances, 1))
    )
    return Gpu(
        identity=Identity(index=index, uuid=f"GPU-{index:08d}-0000-4000-8000-000000000000", minor_number=index),
        up=True,
        fast=Fast(utilization_ratio=0.5, power_watts=300.0, processes=processes),
        medium=Medium(mig_instances=migs),
    )


def with_process(one: Gpu, pid: int) -> Gpu:
    """The GPU with one more process, of nobody."""
    assert one.fast is not None
    fast = msgspec.structs.replace(one.fast, processes=(*(one.fast.processes or ()), Process(kind="compute", pid=pid)))
    return msgspec.structs.replace(one, fast=fast)


def costs(*, attributed: bool) -> tuple[float, float, float, str, float]:
    """PSS of agent, reader and both after a while of reading and being scraped, and the agent's share of a core in that time."""
    with tempfile.TemporaryDirectory() as directory, cluster(Path(directory)) as environment:
        started = time.monotonic()
        command = [sys.executable, str(Path(__file__)), "serve", directory if attributed else ""]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            daemon.until_ready(started)
            time.sleep(WARM_UP_SECONDS)
            before, begun = daemon.cpu_seconds(process.pid), time.monotonic()
            while time.monotonic() - begun < SETTLE_SECONDS:
                daemon.scrape()
                time.sleep(5)
            share = (daemon.cpu_seconds(process.pid) - before) / (time.monotonic() - begun) * 100
            assert held() == (8 if attributed else 0)
            agent_mib, reader_mib = (daemon.proportional_mib(pid) for pid in (process.pid, daemon.child_of(process.pid)))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    return agent_mib, reader_mib, agent_mib + reader_mib, "96 (goal 80)", share


def held() -> int:
    """GPUs of the last scrape that carry a job."""
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.PORT}/metrics") as answer:
        return sum(line.startswith(b"gpuwatch_job_gpu_info{") and b'job_kind="TFJob"' in line for line in answer)


@contextmanager
def cluster(directory: Path) -> Iterator[dict[str, str]]:
    """The fakes while the block lasts; the environment in which the daemon finds them."""
    command = [sys.executable, str(HERE / "cluster.py"), str(directory), "training", str(PODS)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        # The image and the service set the second, so it is measured with it.
        yield {**os.environ, "KUBECONFIG": str(directory / "kubeconfig"), "MALLOC_ARENA_MAX": "1"}
    finally:
        process.stdin.close()
        process.wait()


def serve(directory: str) -> int:
    """The daemon as ``gpuwatch run`` starts it, but reading a simulated node."""
    flags = {
        "server.port": str(daemon.PORT),
        "server.address": "127.0.0.1",
        "kubernetes.kubelet_root": directory or "/none",
        "log.level": "error",
    }
    settings = load(Path("/dev/null"), environment={}, flags=flags)
    sources = (lambda *_, **__: KubeSources(settings.kubernetes, "n", ask_api_server=True)) if directory else (lambda *_, **__: None)
    agent.kube_sources = sources
    return agent.run(settings, Simulation(scenario="training"))


if __name__ == "__main__":
    sys.exit(serve(sys.argv[2]) if sys.argv[1:2] == ["serve"] else main())
