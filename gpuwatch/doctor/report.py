"""What ``gpuwatch check`` tells a person: what can be read on this node and, where something cannot, why and what to do.

The report is a function of a snapshot and of what was found on the host, so that it is the same for a real and a simulated node.
"""

from __future__ import annotations

import msgspec

from gpuwatch.doctor.attribution import attribution_lines
from gpuwatch.doctor.features import feature_lines
from gpuwatch.doctor.health import health_lines
from gpuwatch.doctor.host import LIBRARY, Host, host_lines
from gpuwatch.doctor.lines import INDENT, line, plain
from gpuwatch.doctor.xids import xid_lines
from gpuwatch.snapshot import Gpu, Snapshot

_ADVICE = {
    "driver_not_loaded": "Is the NVIDIA kernel module loaded? 'lsmod | grep nvidia'; on a new kernel the driver must be built again.",
    "library_not_found": f"{LIBRARY} is missing: install the NVIDIA driver, or in a container use the NVIDIA runtime with "
    "NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility.",
    "lib_rm_version_mismatch": "The driver was upgraded while its old kernel module is still loaded: reload the module or reboot.",
    "no_permission": "The device files may not be used by this user; see above.",
    "no_gpu": "The driver works and shows no GPU: in a container, is NVIDIA_VISIBLE_DEVICES=all set?",
    "gpu_is_lost": "The GPU fell off the bus: 'Xid 79' in the kernel log says when.",
    "reset_required": "The GPU asks for a reset: drain it, then 'nvidia-smi --gpu-reset'.",
    "stalled": "A driver call does not return: look for 'NVRM' in the kernel log.",
    "unknown": "If all GPUs say this in a container, it lost its device access (after a systemd reload, for one): start a new container.",
}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Lines for a person; ``healthy``: all GPUs were read, and there is one; ``failed``: the verdict on one of them is so."""

    lines: tuple[str, ...]
    healthy: bool
    failed: bool = False


def report_of(snapshot: Snapshot, host: Host | None) -> Report:
    """Return the report. ``host`` is ``None`` when the node is simulated: this machine then has no part in it."""
    lines = [plain(f"gpuwatch {snapshot.version} on {snapshot.node}")]
    lines += host_lines(host) if host else ["  SIMULATED: the driver below is made up; this machine's driver and GPUs are not looked at"]
    lines += _driver_lines(snapshot)
    for gpu in snapshot.gpus:
        lines += _gpu_lines(gpu)
    for part in (["Attribution", *attribution_lines(snapshot)], xid_lines(snapshot), health_lines(snapshot)):
        lines += ["", *part] if part else []
    readable = sum(gpu.up for gpu in snapshot.gpus)
    failed = sum(gpu.verdict is not None and gpu.verdict.state == "failed" for gpu in snapshot.gpus)
    result = f"{readable} of {len(snapshot.gpus)} GPUs can be read" if snapshot.gpus else "no GPU can be read"
    lines += ["", f"Result: {result}" + (f", {failed} failed" if failed else "")]
    return Report(lines=tuple(lines), healthy=bool(snapshot.gpus) and readable == len(snapshot.gpus), failed=failed > 0)


def _driver_lines(snapshot: Snapshot) -> list[str]:
    lines = (
        [line("driver", f"{snapshot.driver_version}, CUDA {snapshot.cuda_version or 'unknown'}", good=True)]
        if snapshot.driver_version
        else []
    )
    lines.append(line("GPUs", str(len(snapshot.gpus)), good=bool(snapshot.gpus)))
    if not snapshot.up:
        fault = snapshot.fault or "unknown"
        lines.append(line("fault", snapshot.detail or fault, good=False))
        lines += _advice(fault)
    return lines


def _gpu_lines(gpu: Gpu) -> list[str]:
    """One GPU: its state, then what it does not report."""
    identity = gpu.identity
    lines = ["", plain(f"GPU {identity.index}: {identity.model or 'unknown model'} {identity.uuid}")]
    if not gpu.up:
        return [*lines, line("state", f"cannot be read: {gpu.fault or 'unknown'}", good=False), *_advice(gpu.fault)]
    return [*lines, line("state", "is read", good=True), *feature_lines(gpu)]


def _advice(fault: str) -> list[str]:
    return [f"{INDENT}{_ADVICE[fault]}"] if fault in _ADVICE else []
