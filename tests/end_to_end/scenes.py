"""What happens on simulated nodes, and who must be told of it. Times are seconds of the scenario; one has ``SECONDS``.

An expectation is ``Alert severity receiver job``; the job is ``-`` where none holds the GPU or the alert is about no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

SECONDS = 7200.0
PAGE, TICKET, OWNER, TEAM, DIGEST = "page", "ticket", "job-owner", "team-language", "digest"
_WAV = """
pods:
  - {name: wav-worker-0, namespace: speech, devices: ["0"], tfjob: {name: wav, type: worker, index: 0, cluster: {worker: 2}}}
  - {name: wav-worker-1, namespace: speech, devices: ["1"], tfjob: {name: wav, type: worker, index: 1, cluster: {worker: 2}}}
"""
_SEGMENT = _WAV.replace("wav", "segment").replace("speech", "vision")
_NOTEBOOK = """
pods:
  - {name: bob-0, namespace: research, devices: ["0"], labels: {notebook-name: bob, statefulset: bob}, OWNER}
""".replace("OWNER", "owner: {group: apps, kind: StatefulSet, name: bob}")
_TWO = "gpus: [{board: BOARD, count: 2, loads: [{kind: training}], holders: [{pid: 4100, memory_share: 0.8}]}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One node. ``extra``: series of others (kube-state-metrics, Kueue) that are scraped with it."""

    kind: str
    name: str
    text: str
    alerts: tuple[str, ...] = ()
    begin: float = 0.0
    deaf: bool = False
    broken: tuple[float, str] | None = None
    silent: tuple[float, float] | None = None
    """Then the agent does not answer; after it a new one begins."""
    agents: int = 1
    """Two, where an old pod and a new one serve the node side by side."""
    extra: str = ""


def _training(fault: str, board: str = "h100-sxm", pods: str = _WAV) -> str:
    """Two GPUs that train one job, and what goes wrong on the second."""
    faults = f"\nfaults: [{fault}]" if fault else ""
    return f"{_TWO.replace('BOARD', board)}{faults}{pods}"


def _fault(name: str, text: str, *alerts: str, **others: object) -> Scene:
    return Scene(kind="fault", name=name, text=text, alerts=alerts, **others)  # type: ignore[arg-type]


def _waste(name: str, text: str, *alerts: str, **others: object) -> Scene:
    return Scene(kind="waste", name=name, text=text, alerts=alerts, **others)  # type: ignore[arg-type]


def _quiet(name: str, text: str, **others: object) -> Scene:
    return Scene(kind="quiet", name=name, text=text, **others)  # type: ignore[arg-type]


_TWO_JOBS = """
gpus: [{board: a100-80gb-sxm, loads: [{kind: matmul}]}]
faults: [{kind: xid, code: 31, from: 1200}, {kind: xid, code: 31, from: 3000}]
pods:
  - {name: wav-0, namespace: speech, devices: ["0"], until: 2000, tfjob: {name: wav, type: worker}}
  - {name: asr-0, namespace: audio, devices: ["0"], from: 2030, tfjob: {name: asr, type: worker}}
"""
_STORM = ", ".join(f"{{kind: xid, code: 45, gpu: {gpu}, from: 1800, times: 50, every: 2}}" for gpu in range(2))
_ENDING = """
gpus: [{board: h100-sxm, count: 2, loads: [{kind: training, until: 1800}]}]
FAULTS
pods:
  - {name: wav-worker-0, namespace: speech, devices: ["0"], until: 1800, tfjob: {name: wav, type: worker, index: 0}}
  - {name: wav-worker-1, namespace: speech, devices: ["1"], until: 1800, tfjob: {name: wav, type: worker, index: 1}}
"""
_RESHAPE = """
gpus: [{board: h100-sxm, loads: [{kind: matmul}, {kind: matmul, mig: 0}]}]
faults:
  - {kind: mig-reshape, gpu: 0, from: 1200, layout: [1g.10gb, 1g.10gb]}
  - {kind: mig-reshape, gpu: 0, from: 3000, layout: [3g.40gb]}
  - {kind: mig-reshape, gpu: 0, from: 4800, layout: "off"}
"""
_BEFORE_BOOT = """
gpus: [{board: h100-sxm, loads: [{kind: training}]}]
faults:
  - {kind: pcie-replays, count: 82}
  - {kind: ecc-storm, per_second: 5000, until: 60}
  - {kind: nvlink-errors, link: 1, per_second: 500, until: 60}
  - {kind: thermal-throttle, until: 900, slowdown: hardware}
"""
_FREE = """
gpus: [{board: l40s}, {board: l40s, loads: [{kind: matmul}]}]
pods: [{name: wav-0, namespace: speech, devices: ["1"], tfjob: {name: wav, type: worker}}]
"""
_STRANGER = """
gpus: [{board: l40s, loads: [{kind: matmul}]}, {board: l40s, holders: [{pid: 9, memory_share: 0.3, busy: false}]}]
pods: [{name: wav-0, namespace: speech, devices: ["0"], tfjob: {name: wav, type: worker}}]
"""
_STRAGGLER = """
gpus:
  - {board: h200-sxm, loads: [{kind: training, until: 600}, {kind: straggler_wait, from: 600}]}
  - {board: h200-sxm, loads: [{kind: training, until: 600}, {kind: straggler_late, from: 600}]}
"""

SCENES = (
    _fault("a GPU falls off the bus", _training("{kind: gpu-lost, gpu: 1, from: 900}"), "GpuXidCritical critical page speech/wav"),
    _fault("a driver call hangs", _training("{kind: hang, gpu: 1, from: 900}"), "GpuLost critical page speech/wav"),
    _fault("XID 79 alone", _training("{kind: xid, code: 79, gpu: 1, from: 900}"),
           "GpuXidCritical critical page speech/wav"),
    _fault("XID 48 alone", _training("{kind: xid, code: 48, gpu: 1, from: 900}"), "GpuXidCritical critical page speech/wav"),
    _fault("XID 63 alone", _training("{kind: xid, code: 63, gpu: 1, from: 900}"), "GpuXidDrainSoon warning ticket speech/wav"),
    _fault("XID 31 of two jobs on one GPU", _TWO_JOBS, "GpuXidApplication info team-language speech/wav",
           "GpuXidApplication info job-owner audio/asr", "GpuXidAcrossJobs warning ticket audio/asr"),
    _fault("XID 31 of one job on two GPUs", _training("{kind: xid, code: 31, from: 900}"),
           "GpuXidApplication info team-language speech/wav"),
    _fault("XID 999, which nobody knows", _training("{kind: xid, code: 999, gpu: 1, from: 900}"),
           "GpuXidUnknown warning ticket speech/wav", "GpuDegraded warning ticket speech/wav"),
    _fault("uncorrected ECC error", _training("{kind: ecc-uncorrected, gpu: 1, from: 900}"),
           "GpuXidCritical critical page speech/wav", "GpuRowRemapPending warning ticket speech/wav"),
    _fault("storm of corrected ECC errors", _training("{kind: ecc-storm, gpu: 1, from: 900, per_second: 17700}"),
           "GpuEccCorrectedStorm warning ticket speech/wav"),
    _fault("a row waits to be replaced", _training("{kind: remapped-rows, gpu: 1, from: 900, uncorrected: 1, pending: true}"),
           "GpuXidDrainSoon warning ticket speech/wav", "GpuRowRemapPending warning ticket speech/wav"),
    _fault("a row cannot be replaced", _training("{kind: remapped-rows, gpu: 1, from: 900, uncorrected: 1, failed: true}"),
           "GpuRowRemapFailed critical page speech/wav"),
    _fault("a page of a V100 waits", _training("{kind: retired-pages, gpu: 1, from: 900, double_bit: 1, pending: true}", "v100-sxm2"),
           "GpuXidDrainSoon warning ticket speech/wav", "GpuRetiredPages warning ticket speech/wav"),
    _fault("hardware slowdown for heat", _training("{kind: thermal-throttle, gpu: 1, from: 900, slowdown: hardware}"),
           "GpuHardwareThermalSlowdown critical page speech/wav", "GpuJobStraggler info team-language speech/wav"),
    _fault("software slowdown for heat", _training("{kind: thermal-throttle, gpu: 1, from: 900}"),
           "GpuNearSlowdown warning ticket speech/wav", "GpuSoftwareThermalSlowdown warning ticket speech/wav",
           "GpuJobStraggler info team-language speech/wav"),
    _fault("the chassis brakes a node", _training("{kind: power-brake, from: 900}"), "GpuPowerBrake critical page -"),
    _fault("an NVLink goes down", _training("{kind: nvlink-down, gpu: 1, link: 3, from: 900}"),
           "GpuXidCritical critical page speech/wav"),
    _fault("PCIe loses lanes", _training("{kind: pcie-width, gpu: 1, width: 4, from: 900}", "l40s"),
           "GpuPcieWidthDegraded warning ticket speech/wav"),
    _fault("the driver asks for a reset", _training("{kind: recovery-action, gpu: 1, action: 1, from: 900}"),
           "GpuRecoveryActionRequired critical page speech/wav"),
    _fault("a GPU is reset when the driver asked for it", _training("{kind: recovery-action, gpu: 1, action: 1, from: 900, until: 3000}"),
           "GpuRecoveryActionRequired critical page speech/wav"),
    _fault("a row waits, and the agent starts anew", _training("{kind: remapped-rows, gpu: 1, from: 600, uncorrected: 1, pending: true}"),
           "GpuXidDrainSoon warning ticket speech/wav", "GpuRowRemapPending warning ticket speech/wav", silent=(3600.0, 3720.0)),
    _fault("two agents serve a node", _training("{kind: recovery-action, gpu: 1, action: 4, from: 900}"),
           "GpuRecoveryActionRequired critical page speech/wav", agents=2),
    _fault("MIG without instances", "gpus: [{board: a100-40gb-sxm, mig: []}]", "GpuMigWithoutInstances info digest -"),
    _fault("the driver is missing", _training("{kind: driver-missing}"), "GpuwatchCannotRead critical page -"),
    _fault("the container loses its device files", _training("{kind: cgroup-lost, from: 900}"), "GpuwatchCannotRead critical page -"),
    _fault("the kernel log cannot be read", _training(""), "GpuXidSourceDown warning ticket -", deaf=True),
    _fault("the kubelet does not answer", _training(""), "GpuwatchAttributionFailing warning ticket -", broken=(900.0, "unreachable")),
    _fault("the agent does not answer", _training(""), "GpuwatchDown warning ticket -", silent=(900.0, SECONDS)),
    _waste("a notebook does nothing", "gpus: [{board: h100-sxm, loads: [{kind: held}]}]" + _NOTEBOOK,
           "GpuJobIdle info job-owner research/bob"),
    _waste("a job waits for its data", "gpus: [{board: h100-sxm, count: 2, loads: [{kind: starved}]}]" + _SEGMENT,
           "GpuJobUnderutilized info job-owner vision/segment"),
    _waste("one worker is late for its input", _STRAGGLER + _SEGMENT, "GpuJobStraggler info job-owner vision/segment"),
    _waste("memory held outside Kubernetes", _STRANGER, "GpuMemoryHeldWithoutPod warning ticket -"),
    _waste("a GPU is free while jobs wait", _FREE, "GpuFreeWhileJobsQueue info digest -",
           extra='kueue_pending_workloads{cluster_queue="main",status="active"} 3\n'),
    _quiet("a notebook that may idle", "gpus: [{board: h100-sxm, loads: [{kind: held}]}]"
           + _NOTEBOOK.replace("labels:", 'annotations: {gpuwatch.io/idle-ok: "true"}, labels:')),
    _quiet("an agent starts anew", _training(""), silent=(3600.0, 3720.0)),
    _quiet("two agents serve a notebook's node", "gpus: [{board: h100-sxm, loads: [{kind: fp32}]}]" + _NOTEBOOK, agents=2),
    _quiet("an idle node", "gpus: [{board: a100-80gb-sxm}, {board: t4}, {board: v100-sxm2}]"),
    _quiet("healthy training", _training("")),
    _quiet("a T4 at 75 °C", "gpus: [{board: t4, loads: [{kind: matmul}]}]"),
    _quiet("a storm of XID 45 at the end of a job", _ENDING.replace("FAULTS", f"faults: [{_STORM}]")),
    _quiet("a driver upgrade of five minutes", _training('{kind: driver-upgrade, from: 900, until: 1200, driver: "580.159.04"}')),
    _quiet("a node is drained", _ENDING.replace("FAULTS", "")),
    _quiet("MIG is reshaped", _RESHAPE),
    _quiet("the first scrape after a boot", _BEFORE_BOOT, begin=3000.0),
)  # fmt: skip
