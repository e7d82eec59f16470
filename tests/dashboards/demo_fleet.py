"""The fleet that the boards are tried on: nine simulated nodes of every kind of board, with jobs, faults and waste, and what each shows.

Times are seconds since the film began.
"""

from __future__ import annotations

from typing import Final

HALF_HOURS: Final = 1800
SECONDS: Final = int(6.5 * HALF_HOURS)
CLUSTER: Final = "demo"
_STRAGGLES: Final = 3 * HALF_HOURS


def _replicas(job: str, namespace: str, numbers: range, size: int, kind: str = "worker") -> str:
    """Pods of a TFJob, on the GPUs 0, 1, ... of a node."""
    return "\n".join(
        f'  - {{name: {job}-{kind}-{number}, namespace: {namespace}, devices: ["{gpu}"], '
        f"tfjob: {{name: {job}, type: {kind}, index: {number}, cluster: {{{kind}: {size}}}}}}}"
        for gpu, number in enumerate(numbers)
    )


def _turns(kind: str) -> str:
    return f"[{{kind: training, until: {_STRAGGLES}}}, {{kind: {kind}, from: {_STRAGGLES}}}]"


NODES: Final = {
    # A training over two nodes, of which one worker is late for its input from the middle on.
    "h100-1": f"""
seed: 101
gpus: [{{board: h100-sxm, count: 4, loads: {_turns("straggler_wait")}, holders: [{{pid: 4100, memory_share: 0.8}}]}}]
faults:
  - {{kind: nvlink-errors, gpu: 1, link: 3, counter: replay, per_second: 0.01}}
pods:
{_replicas("gpt", "language", range(4), 7)}
""",
    # The other three workers, the late one among them, and a notebook that holds its GPU and does nothing.
    "h100-2": f"""
seed: 102
gpus:
  - {{board: h100-sxm, loads: {_turns("straggler_wait")}, holders: [{{pid: 4200, memory_share: 0.8}}]}}
  - {{board: h100-sxm, loads: {_turns("straggler_late")}, holders: [{{pid: 4201, memory_share: 0.8}}]}}
  - {{board: h100-sxm, loads: {_turns("straggler_wait")}, holders: [{{pid: 4202, memory_share: 0.8}}]}}
  - {{board: h100-sxm, loads: [{{kind: held}}], holders: [{{pid: 4203, memory_share: 0.6}}]}}
pods:
{_replicas("gpt", "language", range(4, 7), 7)}
  - name: bob-0
    namespace: research
    devices: ["3"]
    image: kubeflownotebookswg/jupyter-tensorflow-cuda:v1.10
    labels: {{notebook-name: bob, statefulset: bob}}
    owner: {{group: apps, kind: StatefulSet, name: bob}}
""",
    # MIG where instances report their use.
    "h100-3": """
seed: 103
gpus:
  - board: h100-sxm
    mig: [3g.40gb, 2g.20gb, 1g.10gb, 1g.10gb]
    loads: [{kind: matmul, mig: 0}, {kind: starved, mig: 1}, {kind: tiny, mig: 2}]
  - {board: h100-sxm, mig: []}
pods:
  - {name: tune-0, namespace: research, devices: ["0/0"], labels: {batch.kubernetes.io/job-name: tune}, OWNER_tune}
  - {name: classify-0, namespace: serving, devices: ["0/1"], labels: {batch.kubernetes.io/job-name: classify}, OWNER_classify}
  - {name: sweep-0, namespace: research, devices: ["0/2"], labels: {batch.kubernetes.io/job-name: sweep}, OWNER_sweep}
""",
    # MIG where they do not, beside a healthy training.
    "a100-1": f"""
seed: 104
gpus:
  - board: a100-80gb-sxm
    mig: [3g.40gb, 2g.20gb, 1g.10gb, 1g.10gb]
    loads: [{{kind: matmul, mig: 0}}, {{kind: held, mig: 2}}]
  - {{board: a100-80gb-sxm, count: 2, loads: [{{kind: training}}]}}
faults:
  - {{kind: remapped-rows, gpu: 2, from: {HALF_HOURS}, corrected: 2}}
pods:
  - {{name: embed-0, namespace: language, devices: ["0/0"], labels: {{batch.kubernetes.io/job-name: embed}}, OWNER_embed}}
  - name: alice-0
    namespace: research
    devices: ["0/2"]
    image: kubeflownotebookswg/jupyter-tensorflow-cuda:v1.10
    labels: {{notebook-name: alice, statefulset: alice}}
    owner: {{group: apps, kind: StatefulSet, name: alice}}
  - {{name: resnet-worker-0, namespace: vision, devices: ["1"], tfjob: {{name: resnet, type: worker, index: 0, cluster: {{worker: 2}}}}}}
  - {{name: resnet-worker-1, namespace: vision, devices: ["2"], tfjob: {{name: resnet, type: worker, index: 1, cluster: {{worker: 2}}}}}}
""",
    # A GPU falls off the bus in the middle of a training.
    "a100-2": f"""
seed: 105
gpus: [{{board: a100-40gb-sxm, count: 4, loads: [{{kind: training}}], holders: [{{pid: 4500, memory_share: 0.7}}]}}]
faults:
  - {{kind: gpu-lost, gpu: 2, from: {int(5.5 * HALF_HOURS)}}}
pods:
{_replicas("wav2vec", "speech", range(4), 4)}
""",
    # A service on a GPU that is too hot, and a notebook that may idle; its kubelet stops answering near the end.
    "l40s-1": f"""
seed: 106
gpus:
  - {{board: l40s, loads: [{{kind: memory_bound}}]}}
  - {{board: l40s, loads: [{{kind: held}}]}}
  - {{board: l40s}}
faults:
  - {{kind: thermal-throttle, gpu: 0, from: {4 * HALF_HOURS}}}
  - {{kind: pcie-replays, gpu: 0, per_second: 0.02}}
pods:
  - name: ranker-predictor-7d9f8b6c5-x2k4q
    namespace: serving
    devices: ["0"]
    image: tensorflow/serving:2.21.0-gpu
    labels: {{serving.kserve.io/inferenceservice: ranker, component: predictor, pod-template-hash: 7d9f8b6c5}}
    owner: {{group: apps, kind: ReplicaSet, name: ranker-predictor-7d9f8b6c5}}
  - name: dora-0
    namespace: vision
    devices: ["1"]
    annotations: {{gpuwatch.io/idle-ok: "true"}}
    labels: {{notebook-name: dora, statefulset: dora}}
    owner: {{group: apps, kind: StatefulSet, name: dora}}
""",
    # A program's own error, and a driver that tells nonsense.
    "rtx4090-1": f"""
seed: 107
gpus: [{{board: rtx4090, count: 2, loads: [{{kind: matmul}}]}}]
faults:
  - {{kind: xid, gpu: 0, code: 31, from: {3 * HALF_HOURS}}}
  - {{kind: garbage, gpu: 1, call: nvmlDeviceGetPowerUsage, value: 4294967295, from: {5 * HALF_HOURS}}}
pods:
  - {{name: render-3f9a, namespace: media, devices: ["0"], labels: {{workflows.argoproj.io/workflow: render}}, OWNER_render}}
  - {{name: encode-0, namespace: media, devices: ["1"], labels: {{batch.kubernetes.io/job-name: encode}}, OWNER_encode}}
""",
    # Two services share a GPU; the reader of this node crashes once.
    "t4-1": f"""
seed: 108
gpus:
  - board: t4
    loads: [{{kind: starved}}]
    holders: [{{pid: 4800, memory_share: 0.3}}, {{pid: 4801, memory_share: 0.2}}]
  - {{board: t4}}
faults:
  - {{kind: crash, from: {2 * HALF_HOURS}}}
pods:
  - name: score-a-5c7d9-2xk8f
    namespace: serving
    devices: ["0::0"]
    pids: [4800]
    image: tensorflow/serving:2.21.0-gpu
    labels: {{pod-template-hash: 5c7d9}}
    owner: {{group: apps, kind: ReplicaSet, name: score-a-5c7d9}}
  - name: score-b-6b8f4-m4t2w
    namespace: serving
    devices: ["0::1"]
    pids: [4801]
    image: tensorflow/serving:2.21.0-gpu
    labels: {{pod-template-hash: 6b8f4}}
    owner: {{group: apps, kind: ReplicaSet, name: score-b-6b8f4}}
""",
    # Old boards whose memory wears out, and two jobs one after the other.
    "v100-1": f"""
seed: 109
gpus: [{{board: v100-sxm2, count: 2, loads: [{{kind: fp32, until: {4 * HALF_HOURS}}}, {{kind: starved, from: {4 * HALF_HOURS}}}]}}]
faults:
  - {{kind: retired-pages, gpu: 0, from: {HALF_HOURS}, single_bit: 3}}
  - {{kind: ecc-uncorrected, gpu: 1, from: {6 * HALF_HOURS}}}
pods:
  - {{name: etl-0, namespace: research, devices: ["0", "1"], until: {4 * HALF_HOURS}, OWNER_etl}}
  - {{name: grid-0, namespace: research, devices: ["0"], from: {4 * HALF_HOURS + 120}, OWNER_grid}}
  - {{name: grid-1, namespace: research, devices: ["1"], from: {4 * HALF_HOURS + 120}, OWNER_grid}}
""",
    # A driver that is gone for good.
    "t4-2": f"""
seed: 110
gpus: [{{board: t4}}]
faults:
  - {{kind: driver-missing, from: {6 * HALF_HOURS}}}
  - {{kind: driver-upgrade, from: {6 * HALF_HOURS - 60}, until: {6 * HALF_HOURS}, driver: "580.159.04"}}
""",
}
DEAF_KUBELET: Final = {"l40s-1": (5.9 * HALF_HOURS, "timeout")}
"""Nodes whose kubelet stops answering: from when on, and why."""
WITHOUT_AGENT: Final = "h100-9"
"""A node that offers eight GPUs and runs no agent."""
PRICES: Final = {"NVIDIA H100 80GB HBM3": 3.0, "NVIDIA A100-SXM4-80GB": 2.0}
"""Made up, in dollars an hour, for some models only."""


def scenario_of(name: str) -> str:
    """The scenario of a node."""
    text = NODES[name]
    for job, kind in (("render", "{group: argoproj.io, kind: Workflow, name: render}"),):
        text = text.replace(f"OWNER_{job}", f"owner: {kind}")
    for job in ("tune", "classify", "sweep", "embed", "encode", "etl", "grid"):
        text = text.replace(f"OWNER_{job}", f"owner: {{group: batch, kind: Job, name: {job}}}")
    return text
