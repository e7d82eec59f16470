"""The verdicts of the GPUs, their newest XIDs, and who does not listen for them, as parts of the page."""

from __future__ import annotations

from html import escape

from gpuwatch.diagnosis import (
    NOT_JUDGED,
    age_of,
    deafness_of,
    findings,
    meaning_of,
    moment_of,
    newest_xids,
    source_name,
    summary_of,
    worst_state,
)
from gpuwatch.health.actions import sentence_of
from gpuwatch.snapshot import Gpu, Listening, Reason, Snapshot, Verdict, XidCount
from gpuwatch.web.holders import Holders
from gpuwatch.web.markup import table, text

_SIGNS = {"ok": "✓", "degraded": "▲", "unknown": "?", "failed": "✕"}
"""A state is told by its word and its sign, never by colour alone."""
_TONES = {"ok": "good", "degraded": "warn", "unknown": "odd", "failed": "bad"}
_MOST_XIDS = 10
_FAULTS = {
    "gpu_is_lost": "The GPU fell off the bus or needs a reset.",
    "unknown": "The driver answers with an unknown error.",
    "stalled": "The driver does not answer for this GPU.",
    "reader_down": "The process that reads the driver is down and is being restarted.",
    "missing": "The GPU was here before and is gone.",
}
"""What the usual faults of one GPU mean; the node's own fault comes with its words in the snapshot."""


def node_state(snapshot: Snapshot) -> str:
    """The node in one sentence: whether it is read, else what the worst verdict says."""
    if not snapshot.up:
        token = f" <code>{escape(snapshot.fault)}</code>" if snapshot.fault else ""
        return f'<p class="state bad" role="status"><strong>Not reading GPUs.</strong> {escape(snapshot.detail)}{token}</p>'
    down = sum(not gpu.up for gpu in snapshot.gpus)
    total = f"{len(snapshot.gpus)} GPU{'s' * (len(snapshot.gpus) != 1)}"
    silent = f"{down} of {total} not answering." if down else ""
    worst = worst_state(snapshot.gpus)
    if worst is None:
        return f'<p class="state {"bad" if down else "good"}" role="status"><strong>{silent or f"{total} answering."}</strong></p>'
    summary = summary_of(snapshot.gpus)
    sentence = f"{_sign(worst)}<strong>{summary[0].upper()}{summary[1:]}.</strong>"
    return f'<p class="state {_TONES[worst]}" role="status">{sentence}{f" {down} not answering." if down else ""}</p>'


def gpu_state(gpu: Gpu) -> str:
    """The cell of one GPU: its verdict, and where it does not answer why."""
    verdict = gpu.verdict
    if verdict is not None:
        shown = _state(verdict)
    else:
        shown = f'<span class="good">up</span> <small>{NOT_JUDGED}</small>' if gpu.up else '<span class="bad">down</span>'
    if gpu.up:
        return shown
    # Where there is a verdict, the findings say it in words.
    words = "" if verdict else _FAULTS.get(gpu.fault, "")
    return f"{shown} <code>{escape(gpu.fault)}</code>" + (f"<small>{escape(words)}</small>" if words else "")


def findings_table(gpus: tuple[Gpu, ...], holders: Holders) -> str:
    """Every GPU that somebody should know about, the worst first; empty where there is none."""
    heads = ("GPU", "State", *(("Held by",) if holders.known else ()), "What to do", "Why")
    rows = [_finding(gpu, gpu.verdict, holders) for gpu in findings(gpus) if gpu.verdict]
    return table("Findings", heads, rows) if rows else ""


def _finding(gpu: Gpu, verdict: Verdict, holders: Holders) -> tuple[str, ...]:
    action = verdict.action.replace("_", " ").replace("gpu", "GPU")
    return (
        f"<b>{gpu.identity.index} · {escape(gpu.identity.model) or 'unknown model'}</b>",
        _state(verdict),
        *((holders.cell_with_instances(gpu.identity.uuid),) if holders.known else ()),
        f"<b>{escape(action)}</b><small>{escape(sentence_of(verdict.action, gpu.identity.uuid))}</small>",
        "".join(map(_reason, verdict.reasons)),
    )


def _reason(reason: Reason) -> str:
    return (
        f'<div class="reason">{_severity(reason.severity)} {escape(reason.detail or reason.code)} <code>{escape(reason.code)}</code></div>'
    )


def _severity(severity: str) -> str:
    return f'<span class="mark{" bad" if severity == "page" else ""}">{escape(severity)}</span>'


def _state(verdict: Verdict) -> str:
    return f'<span class="verdict {_TONES[verdict.state]}">{_sign(verdict.state)}{verdict.state}</span>'


def _sign(state: str) -> str:
    return f'<span class="sign" aria-hidden="true">{_SIGNS[state]}</span> '


def xids(snapshot: Snapshot) -> str:
    """The newest XIDs and, always, how far their absence means anything."""
    if not snapshot.gpus:
        return ""
    found = newest_xids(snapshot.gpus)
    rows = [_xid(gpu, one, snapshot.timestamp_seconds) for gpu, one in found[:_MOST_XIDS]]
    more = len(found) - _MOST_XIDS
    shown = (
        table("Last XIDs", ("XID", "GPU", "Severity", "Count", "Last seen"), rows) if rows else '<section id="last-xids"><h2>Last XIDs</h2>'
    )
    rest = f"<p>and {more} more</p>" if more > 0 else ""
    return (shown.removesuffix("</section>") if rows else shown) + rest + _hearing(snapshot.listening, heard=bool(rows)) + "</section>"


def _xid(gpu: Gpu, one: XidCount, now: float) -> tuple[str, ...]:
    return (
        f"<b>{escape(one.xid)} · {escape(meaning_of(one.xid))}</b>",
        str(gpu.identity.index),
        _severity(one.severity),
        str(one.count),
        f"{text(age_of(now - one.last_seen_seconds))}<small>{text(moment_of(one.last_seen_seconds))}</small>",
    )


def _hearing(listening: Listening, *, heard: bool) -> str:
    """Silence proves nothing where nobody listens."""
    up = [source_name(one) for one in listening.sources if one.up]
    deaf = "".join(
        f'<p class="deaf"><span class="bad">{_sign("failed")}Not listening</span> to {escape(source_name(one))}: '
        f"{escape(deafness_of(one))} <code>{escape(one.fault)}</code></p>"
        for one in listening.sources
        if not one.up
    )
    if up:
        return f"<p>{'' if heard else 'None so far. '}Listening to {escape(' and '.join(up))}.</p>{deaf}"
    return deaf or '<p class="deaf">Nobody listens for XIDs now: that none are shown means nothing.</p>'
