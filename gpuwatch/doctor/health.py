"""The verdicts: the worst GPU first, with the one thing to do, who is hit by it, and why. The last thing a person reads."""

from __future__ import annotations

from gpuwatch.diagnosis import findings, state_of, summary_of
from gpuwatch.doctor.attribution import holders_of
from gpuwatch.doctor.lines import WIDTH, cut, plain, wrapped
from gpuwatch.health.actions import sentence_of
from gpuwatch.snapshot import Gpu, Snapshot

_HEAD = "  GPU  STATE     ACTION       MODEL"
_LEAD = len("  GPU  ")
_NAME = len("STATE     ")
_MODEL = len("  GPU  STATE     ACTION       ")
_ONE_LOOK = "at one look; heat and error rates only 'gpuwatch run' can judge"
"""Two passes a second apart bring no window to its end."""


def health_lines(snapshot: Snapshot) -> list[str]:
    """One calm line for a sound node, else a table of what was found; nothing where there is no GPU to speak of."""
    gpus = snapshot.gpus
    if not gpus or all(gpu.verdict is None for gpu in gpus):
        return []
    found = findings(gpus)
    if not found and all(gpu.verdict for gpu in gpus):
        return wrapped("Health: ", f"{summary_of(gpus)} {_ONE_LOOK}")
    lines = [f"Health: {summary_of(gpus)}", _HEAD]
    for gpu in found:
        lines += _finding(gpu, snapshot)
    for state in ("ok", "not judged"):
        rest = [str(gpu.identity.index) for gpu in gpus if gpu not in found and state_of(gpu) == state]
        if rest:
            note = f" ({_ONE_LOOK})" if state == "ok" else ""
            lines += wrapped(f"  {state:<12} ", f"GPU {', '.join(rest)}{note}")
    return lines


def _finding(gpu: Gpu, snapshot: Snapshot) -> list[str]:
    verdict = gpu.verdict
    if verdict is None:
        return []
    state = verdict.state.upper() if verdict.state in ("failed", "unknown") else verdict.state
    model = cut(gpu.identity.model or "unknown model", WIDTH - _MODEL)
    lines = [f"  {gpu.identity.index:>3}  {state:<9} {verdict.action:<12} {model}"]
    lines += _part("do", sentence_of(verdict.action, gpu.identity.uuid))
    if snapshot.kubernetes is not None:
        lines += _part("held by", holders_of(gpu, snapshot))
    for reason in verdict.reasons:
        lines += _part(reason.severity, f"{reason.code}: {reason.detail}" if reason.detail else reason.code)
    return lines


def _part(name: str, text: str) -> list[str]:
    return wrapped(f"{' ' * _LEAD}{plain(name):<{_NAME - 1}} ", text)
