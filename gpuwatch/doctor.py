"""What ``gpuwatch check`` tells a person: what can be read on this node and, where something cannot, why and what to do.

The report is a function of a snapshot and of what was found on the host, so that it is the same for a real and a simulated node.
"""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import msgspec

from gpuwatch.explanation import SOURCES, advice_on, marks_of, reason_of, title_of
from gpuwatch.kube.objects import SourceState
from gpuwatch.snapshot import Gpu, Holder, Kubernetes, Snapshot

LIBRARY = "libnvidia-ml.so.1"
"""NVML, part of the driver (not of CUDA)."""

_DEVICE_GLOBS = ("nvidiactl", "nvidia[0-9]*", "nvidia-uvm", "nvidia-caps/nvidia-cap[0-9]*")


_INDENT = " " * 16
"""Of a line that belongs to the one above it."""


class DeviceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A device file of the driver, as this user may use it. ``owner`` and ``mode`` as ``ls -l`` shows them."""

    path: str
    usable: bool
    owner: str = ""
    mode: str = ""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver left on this machine."""

    library_path: str = ""
    library_error: str = ""
    device_files: tuple[DeviceFile, ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Lines for a person; ``healthy``: at least one GPU was read and none has a fault."""

    lines: tuple[str, ...]
    healthy: bool


class _Feature(msgspec.Struct, frozen=True, kw_only=True):
    """Something a board may report. ``calls``: beginnings of the NVML calls or fields that would give it."""

    name: str
    reported: Callable[[Gpu], object]
    calls: tuple[str, ...]


_FEATURES = (
    _Feature(name="utilisation", reported=lambda gpu: _fast(gpu, "utilization_ratio"), calls=("nvmlDeviceGetUtilizationRates",)),
    _Feature(name="SM and tensor activity (GPM)", reported=lambda gpu: _medium(gpu, "activity"), calls=("nvmlGpm",)),
    _Feature(name="memory", reported=lambda gpu: _fast(gpu, "memory"), calls=("nvmlDeviceGetMemoryInfo",)),
    _Feature(name="temperature", reported=lambda gpu: _fast(gpu, "temperature_celsius"), calls=("nvmlDeviceGetTemperature",)),
    _Feature(
        name="memory temperature",
        reported=lambda gpu: gpu.fast and gpu.fast.temperature_celsius.get("memory"),
        calls=("field 82",),
    ),
    _Feature(name="power", reported=lambda gpu: _fast(gpu, "power_watts"), calls=("nvmlDeviceGetPowerUsage", "field 185", "field 186")),
    _Feature(name="clocks", reported=lambda gpu: _fast(gpu, "clock_hertz"), calls=("nvmlDeviceGetClockInfo",)),
    _Feature(name="throttle reasons", reported=lambda gpu: _fast(gpu, "throttle_reasons"), calls=("nvmlDeviceGetCurrentClocks",)),
    _Feature(name="processes", reported=lambda gpu: _fast(gpu, "processes"), calls=("nvmlDeviceGetComputeRunningProcesses",)),
    _Feature(
        name="energy counter",
        reported=lambda gpu: _medium(gpu, "energy_joules"),
        calls=("nvmlDeviceGetTotalEnergyConsumption", "field 83"),
    ),
    _Feature(
        name="fans", reported=lambda gpu: gpu.medium and gpu.medium.fan_speed_ratio, calls=("nvmlDeviceGetFanSpeed", "nvmlDeviceGetNumFans")
    ),
    _Feature(
        name="ECC error counters",
        reported=lambda gpu: gpu.medium and gpu.medium.health.ecc_errors,
        calls=("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetMemoryErrorCounter", "nvmlDeviceGetEccMode"),
    ),
    _Feature(
        name="row remapping",
        reported=lambda gpu: gpu.medium and gpu.medium.health.remapped_rows,
        calls=("nvmlDeviceGetRemappedRows", "field 142"),
    ),
    _Feature(
        name="retired pages",
        reported=lambda gpu: gpu.medium and gpu.medium.health.retired_pages,
        calls=("nvmlDeviceGetRetiredPages",),
    ),
    _Feature(name="NVLink", reported=lambda gpu: gpu.medium and gpu.medium.links.nvlink_up, calls=("nvmlDeviceGetNvLinkState", "field 91")),
    _Feature(name="MIG", reported=lambda gpu: _medium(gpu, "mig_enabled"), calls=("nvmlDeviceGetMigMode",)),
)

_REASONS = {
    "NOT_SUPPORTED": "this board or driver does not offer it",
    "FUNCTION_NOT_FOUND": "the driver is too old for it",
    "ARGUMENT_VERSION_MISMATCH": "the driver is too old for it",
    "DEPRECATED": "the driver no longer offers it",
    "INVALID_ARGUMENT": "the driver does not know it",
    "NO_PERMISSION": "the driver allows it to root only",
    "VGPU_ECC_NOT_SUPPORTED": "a virtual GPU has no ECC",
}

_ADVICE = {
    "driver_not_loaded": "Is the NVIDIA kernel module loaded? 'lsmod | grep nvidia'; on a new kernel the driver must be built again.",
    "library_not_found": f"{LIBRARY} is missing: install the NVIDIA driver, or in a container use the NVIDIA runtime with "
    "NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility.",
    "lib_rm_version_mismatch": "The driver was upgraded while its old kernel module is still loaded: reload the module or reboot.",
    "no_permission": "The device files may not be used by this user; see above.",
    "no_gpu": "The driver works and shows no GPU: in a container, is NVIDIA_VISIBLE_DEVICES=all set?",
    "gpu_is_lost": "The GPU fell off the bus: look for 'Xid 79' in the kernel log; it needs a reset or a power cycle.",
    "reset_required": "The GPU asks for a reset: drain it, then 'nvidia-smi --gpu-reset'.",
    "stalled": "A driver call does not return: look for 'NVRM' in the kernel log.",
    "unknown": "If all GPUs say this in a container, it lost its device access (after a systemd reload, for one): start a new container.",
}


def probe_host() -> Host:
    """Look for the driver's library and device files on this machine. Opens no GPU: the library is loaded, not initialised."""
    path, error = _find_library()
    files = sorted(found for pattern in _DEVICE_GLOBS for found in Path("/dev").glob(pattern))
    return Host(library_path=path, library_error=error, device_files=tuple(map(_device_file, files)))


def _find_library() -> tuple[str, str]:
    """Where the loader finds NVML, or its complaint. Source: dlopen and ``/proc/self/maps``."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        return "", str(error)
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return next((line.split(maxsplit=5)[-1] for line in maps.splitlines() if "libnvidia-ml" in line), LIBRARY), ""


def _device_file(path: Path) -> DeviceFile:
    try:
        status = path.stat()
    except OSError as error:
        return DeviceFile(path=str(path), usable=False, owner=error.strerror or "unreadable")
    try:
        owner = f"{pwd.getpwuid(status.st_uid).pw_name}:{grp.getgrgid(status.st_gid).gr_name}"
    except KeyError:
        owner = f"{status.st_uid}:{status.st_gid}"
    return DeviceFile(path=str(path), usable=os.access(path, os.R_OK | os.W_OK), owner=owner, mode=f"{status.st_mode & 0o777:o}")


def report_of(snapshot: Snapshot, host: Host | None) -> Report:
    """Return the report. ``host`` is ``None`` when the node is simulated: this machine then has no part in it."""
    lines = [f"gpuwatch {snapshot.version} on {snapshot.node}"]
    lines += _host_lines(host) if host else ["  SIMULATED: the driver below is made up; this machine's driver and GPUs are not looked at"]
    lines += _driver_lines(snapshot)
    for gpu in snapshot.gpus:
        lines += _gpu_lines(gpu)
    lines += ["", "Attribution", *_attribution_lines(snapshot)]
    readable = sum(gpu.up for gpu in snapshot.gpus)
    healthy = bool(snapshot.gpus) and readable == len(snapshot.gpus)
    lines += ["", f"Result: {readable} of {len(snapshot.gpus)} GPUs can be read" if snapshot.gpus else "Result: no GPU can be read"]
    return Report(lines=tuple(lines), healthy=healthy)


def _host_lines(host: Host) -> list[str]:
    library = _line("library", host.library_path or f"not found: {host.library_error}", good=bool(host.library_path))
    if not host.device_files:
        return [library, _line("devices", "no /dev/nvidia* here: no driver, or the container was not given the GPUs", good=False)]
    broken = [file for file in host.device_files if not file.usable]
    if not broken:
        return [library, _line("devices", f"{len(host.device_files)} device files, all readable and writable", good=True)]
    return [library] + [
        _line("devices", f"{file.path} ({file.owner} {file.mode}): no read and write access for user id {os.getuid()}", good=False)
        for file in broken
    ]


def _driver_lines(snapshot: Snapshot) -> list[str]:
    lines = (
        [_line("driver", f"{snapshot.driver_version}, CUDA {snapshot.cuda_version or 'unknown'}", good=True)]
        if snapshot.driver_version
        else []
    )
    lines.append(_line("GPUs", str(len(snapshot.gpus)), good=bool(snapshot.gpus)))
    if not snapshot.up:
        fault = snapshot.fault or "unknown"
        lines.append(_line("fault", snapshot.detail or fault, good=False))
        lines += _advice(fault)
    return lines


def _gpu_lines(gpu: Gpu) -> list[str]:
    """One GPU: its state, then what it does not report."""
    identity = gpu.identity
    lines = ["", f"GPU {identity.index}: {identity.model or 'unknown model'} {identity.uuid}".rstrip()]
    if not gpu.up:
        return [*lines, _line("state", f"cannot be read: {gpu.fault or 'unknown'}", good=False), *_advice(gpu.fault)]
    lines.append(_line("state", "is read", good=True))
    reported = [feature.name for feature in _FEATURES if _is_reported(feature, gpu)]
    lines.append(_line("reports", ", ".join(reported) or "nothing", good=bool(reported)))
    reasons: dict[str, list[str]] = {}
    for feature in _FEATURES:
        if feature.name not in reported:
            reasons.setdefault(_reason(feature, gpu), []).append(feature.name)
    return lines + [_line("absent", f"{', '.join(names)}: {reason}") for reason, names in reasons.items()]


def _attribution_lines(snapshot: Snapshot) -> list[str]:
    """How well it is known who holds the GPUs, and who does. Trouble here makes no node unhealthy: its GPUs are read all the same."""
    kubernetes = snapshot.kubernetes
    if kubernetes is None:
        where = (
            "the simulated node has no pods" if snapshot.simulated else "this is no pod of a cluster, or kubernetes.attribution is never"
        )
        return [_line("off", f"{where}; kubernetes.attribution=always switches it on")]
    lines: list[str] = []
    for name, state in kubernetes.sources.items():
        lines += _source_lines(name, state)
    for gpu in snapshot.gpus:
        for mig_uuid in [one.uuid for one in gpu.medium.mig_instances] if gpu.medium and gpu.medium.mig_instances else [""]:
            lines.append(_holder_line(gpu, mig_uuid, snapshot, kubernetes))
    for device in kubernetes.unknown_devices:
        lines.append(
            _line("unknown", f"the kubelet has given out {device!r}, which NVML does not know: see docs/attribution.md", good=False)
        )
    return lines


def _source_lines(name: str, state: SourceState) -> list[str]:
    title = SOURCES.get(name, name)
    if state.up:
        return [_line(title, state.detail or "answers", good=True)]
    advice = advice_on(name, state.fault)
    return [_line(title, f"{state.fault}: {state.detail or 'no answer yet'}", good=False)] + ([f"{_INDENT}{advice}"] if advice else [])


def _holder_line(gpu: Gpu, mig_uuid: str, snapshot: Snapshot, kubernetes: Kubernetes) -> str:
    """One device: who holds it, or why nobody does."""
    device = (gpu.identity.uuid, mig_uuid)
    holders = [use.holder for use in snapshot.jobs if use.held and (use.holder.gpu_uuid, use.holder.mig_uuid) == device]
    if holders:
        found = "; ".join(map(_held, holders))
    else:
        reason = next((one.reason for one in kubernetes.unattributed if (one.gpu_uuid, one.mig_uuid) == device), None)
        found = reason_of(reason) if reason else "not known"
    return _line(f"GPU {gpu.identity.index}", f"{mig_uuid}: {found}" if mig_uuid else found)


def _held(holder: Holder) -> str:
    marks = "".join(f", {mark}" for mark in marks_of(holder))
    return f"{title_of(holder)} ({holder.namespace}/{holder.pod}{marks})"


def _is_reported(feature: _Feature, gpu: Gpu) -> bool:
    """Zero and an empty list of processes are reports too."""
    value = feature.reported(gpu)
    return value is not None and value != {} and (value != () or feature.name in {"processes", "throttle reasons"})


def _reason(feature: _Feature, gpu: Gpu) -> str:
    """Why a feature is absent, in words."""
    if feature.name == "fans" and not any(call.startswith(feature.calls) for call in gpu.unsupported):
        return "the board has none of its own"
    if feature.name == "ECC error counters" and gpu.medium and gpu.medium.health.ecc_enabled is False:
        return "ECC is switched off"
    error = next((error for call, error in gpu.unsupported.items() if call.startswith(feature.calls)), None)
    if error is None:
        return "not reported in this read"
    if error == "NOT_SUPPORTED" and gpu.medium and gpu.medium.mig_enabled:
        return "not offered while MIG is on, or not by this board at all"
    return _REASONS.get(error, f"the driver says {error}")


def _advice(fault: str) -> list[str]:
    return [f"{_INDENT}{_ADVICE[fault]}"] if fault in _ADVICE else []


def _line(name: str, text: str, good: bool | None = None) -> str:
    mark = {True: "ok  ", False: "BAD ", None: "    "}[good]
    return f"  {mark}{name:<9} {text}"


def _fast(gpu: Gpu, field: str) -> object:
    return None if gpu.fast is None else getattr(gpu.fast, field)


def _medium(gpu: Gpu, field: str) -> object:
    return None if gpu.medium is None else getattr(gpu.medium, field)
