"""Who holds each GPU, and how well that is known, as parts of the page."""

from __future__ import annotations

from html import escape

from gpuwatch.explanation import SOURCES, advice_on, marks_of, reason_of, title_of
from gpuwatch.kube.objects import SourceState
from gpuwatch.snapshot import Holder, Kubernetes, Snapshot
from gpuwatch.web.markup import NOT_REPORTED, span, table

_MAX_HOLDERS = 8
"""Shown of one device; a time-sliced GPU may have dozens."""
_MAX_UNKNOWN = 20


class Holders:
    """Looks up who holds a device of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.known = snapshot.kubernetes is not None
        """False: attribution is off, and a column for it would be empty."""
        self._holders: dict[tuple[str, str], list[Holder]] = {}
        for use in snapshot.jobs:
            if use.held:
                self._holders.setdefault((use.holder.gpu_uuid, use.holder.mig_uuid), []).append(use.holder)
        unattributed = snapshot.kubernetes.unattributed if snapshot.kubernetes else ()
        self._reasons = {(one.gpu_uuid, one.mig_uuid): one.reason for one in unattributed}

    def cell(self, gpu_uuid: str, mig_uuid: str = "") -> str:
        """The holders of a device, or in words why it has none; HTML."""
        found = self._holders.get((gpu_uuid, mig_uuid), [])
        if not found:
            reason = self._reasons.get((gpu_uuid, mig_uuid))
            return NOT_REPORTED if reason is None else f'<span class="free">{escape(reason_of(reason))}</span>'
        return _shown(found)

    def cell_with_instances(self, gpu_uuid: str) -> str:
        """The holders of a GPU and of all its MIG instances: everybody whom its fault hits; HTML."""
        found = [holder for (uuid, mig), held in self._holders.items() if mig and uuid == gpu_uuid for holder in held]
        return _shown(found) if found else self.cell(gpu_uuid)

    def cell_of_parent(self, gpu_uuid: str, instances: int) -> str:
        """A GPU in MIG mode is held by its instances; HTML."""
        held = sum(bool(mig) and uuid == gpu_uuid for uuid, mig in self._holders)
        return f"{held} of {instances} MIG instances held"


def _shown(found: list[Holder]) -> str:
    more = len(found) - _MAX_HOLDERS
    return "".join(map(_holder, found[:_MAX_HOLDERS])) + (f"<small>and {more} more</small>" if more > 0 else "")


def _holder(holder: Holder) -> str:
    marks = "".join(f' <span class="mark">{mark}</span>' for mark in marks_of(holder))
    container = f" · {escape(holder.container)}" if holder.container else ""
    return (
        f'<div class="holder"><b>{escape(title_of(holder))}</b>{marks}'
        f"<small>{escape(holder.namespace)}/{escape(holder.pod)}{container}</small></div>"
    )


def attribution(kubernetes: Kubernetes | None) -> str:
    """The state of each source, and the device ids that nobody knows; empty when attribution is off."""
    if kubernetes is None:
        return ""
    heads = ("Source", "State", "Last answer")
    rows = (_source(name, state, kubernetes.age_seconds.get(name)) for name, state in kubernetes.sources.items())
    return table("Attribution", heads, rows) + _unknown(kubernetes.unknown_devices)


def _source(name: str, state: SourceState, age: float | None) -> tuple[str, ...]:
    if state.up:
        shown = '<span class="good">up</span>'
    else:
        advice = advice_on(name, state.fault)
        shown = f'<span class="bad">down</span> <code>{escape(state.fault)}</code>' + "".join(
            f"<small>{escape(words)}</small>" for words in (state.detail, advice) if words
        )
    when = "never" if age is None else span(age)
    return f"<b>{escape(SOURCES.get(name, name))}</b>", shown, when if when in ("now", "never") else f"{when} ago"


def _unknown(devices: tuple[str, ...]) -> str:
    if not devices:
        return ""
    more = len(devices) - _MAX_UNKNOWN
    shown = "".join(f"<li><code>{escape(device)}</code></li>" for device in devices[:_MAX_UNKNOWN])
    rest = f"<li>and {more} more</li>" if more > 0 else ""
    return f'<p class="unknown">The kubelet has given out devices that NVML does not know:</p><ul class="unknown">{shown}{rest}</ul>'
