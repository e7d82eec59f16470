"""Who holds each GPU, and how well that is known."""

from __future__ import annotations

from gpuwatch.doctor.lines import INDENT, line
from gpuwatch.explanation import SOURCES, advice_on, marks_of, reason_of, title_of
from gpuwatch.kube.objects import SourceState
from gpuwatch.snapshot import Gpu, Holder, Snapshot

_MOST_DEVICES, _MOST_HOLDERS = 4, 8
"""Named in one breath; a broken device plugin invents ids, and a shared GPU may have dozens of holders."""


def attribution_lines(snapshot: Snapshot) -> list[str]:
    """How well it is known who holds the GPUs, and who does. Trouble here makes no node unhealthy: its GPUs are read all the same."""
    kubernetes = snapshot.kubernetes
    if kubernetes is None:
        where = (
            "the simulated node has no pods" if snapshot.simulated else "this is no pod of a cluster, or kubernetes.attribution is never"
        )
        return [line("off", f"{where}; kubernetes.attribution=always switches it on")]
    lines: list[str] = []
    for name, state in kubernetes.sources.items():
        lines += _source_lines(name, state)
    for gpu in snapshot.gpus:
        for mig_uuid in _instances_of(gpu) or [""]:
            found = _holders_of_device((gpu.identity.uuid, mig_uuid), snapshot)
            lines.append(line(f"GPU {gpu.identity.index}", f"{mig_uuid}: {found}" if mig_uuid else found))
    for device in kubernetes.unknown_devices:
        lines.append(
            line("unknown", f"the kubelet has given out {device!r}, which NVML does not know: see docs/attribution.md", good=False)
        )
    return lines


def _source_lines(name: str, state: SourceState) -> list[str]:
    title = SOURCES.get(name, name)
    if state.up:
        return [line(title, state.detail or "answers", good=True)]
    advice = advice_on(name, state.fault)
    return [line(title, f"{state.fault}: {state.detail or 'no answer yet'}", good=False)] + ([f"{INDENT}{advice}"] if advice else [])


def holders_of(gpu: Gpu, snapshot: Snapshot) -> str:
    """Everybody who holds the GPU or an instance of it, or why nobody does."""
    kubernetes = snapshot.kubernetes
    if not gpu.identity.uuid and kubernetes is not None and kubernetes.unknown_devices:
        given = ", ".join(kubernetes.unknown_devices[:_MOST_DEVICES])
        return f"not known, since it does not say which board it is; the kubelet has given out {given}, which no GPU here answers for"
    held = [use.holder for use in snapshot.jobs if use.held and use.holder.gpu_uuid == gpu.identity.uuid]
    if not held:
        return _holders_of_device((gpu.identity.uuid, ""), snapshot)
    more = len(held) - _MOST_HOLDERS
    return "; ".join(map(_held, held[:_MOST_HOLDERS])) + (f"; and {more} more" if more > 0 else "")


def _instances_of(gpu: Gpu) -> list[str]:
    return [one.uuid for one in gpu.medium.mig_instances] if gpu.medium else []


def _holders_of_device(device: tuple[str, str], snapshot: Snapshot) -> str:
    """A GPU or a MIG instance: who holds it, or why nobody does."""
    holders = [use.holder for use in snapshot.jobs if use.held and (use.holder.gpu_uuid, use.holder.mig_uuid) == device]
    if holders:
        return "; ".join(map(_held, holders))
    unattributed = snapshot.kubernetes.unattributed if snapshot.kubernetes else ()
    reason = next((one.reason for one in unattributed if (one.gpu_uuid, one.mig_uuid) == device), None)
    return reason_of(reason) if reason else "not known"


def _held(holder: Holder) -> str:
    marks = "".join(f", {mark}" for mark in marks_of(holder))
    return f"{title_of(holder)} ({holder.namespace}/{holder.pod}{marks})"
