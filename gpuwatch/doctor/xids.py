"""The newest XIDs, and whether somebody listened for them at all."""

from __future__ import annotations

from typing import Final

from gpuwatch.diagnosis import age_of, deafness_of, meaning_of, moment_of, newest_xids
from gpuwatch.doctor.lines import cut, line, wrapped
from gpuwatch.snapshot import Snapshot

_MOST_XIDS: Final = 10
_HEAD: Final = "  GPU  XID    COUNT  SEVERITY  LAST SEEN                           MEANING"
_MOST_COUNT: Final = 99_999


def xid_lines(snapshot: Snapshot) -> list[str]:
    """One calm line where the kernel log was read and holds none. NVML tells its events only to who waits for them: the running agent."""
    if not snapshot.gpus:
        return []
    log = next((one for one in snapshot.listening.sources if one.source == "kernel_log"), None)
    found = newest_xids(snapshot.gpus)
    strangers = _strangers(snapshot)
    if log is not None and log.up and not found and not strangers:
        return ["XIDs: none in the kernel log of the last two hours"]
    lines = ["XIDs"]
    if log is None:
        lines.append(line("kernel", "its log was not read: read.kernel_log is empty, or this is no live node"))
    elif not log.up:
        lines += wrapped("  BAD kernel    ", f"its log is not heard, so no XID is seen here: {deafness_of(log)}")
    if found:
        lines.append(_HEAD)
    for gpu, one in found[:_MOST_XIDS]:
        when = f"{moment_of(one.last_seen_seconds)}, {age_of(snapshot.timestamp_seconds - one.last_seen_seconds)}"
        count = str(one.count) if one.count <= _MOST_COUNT else f">{_MOST_COUNT}"
        lead = f"  {gpu.identity.index:>3}  {cut(one.xid, 5):<5} {count:>6}  {cut(one.severity, 8):<8}  {cut(when, 35):<35} "
        lines += wrapped(lead, meaning_of(one.xid))
    if len(found) > _MOST_XIDS:
        lines.append(f"  and {len(found) - _MOST_XIDS} older")
    return lines + strangers


def _strangers(snapshot: Snapshot) -> list[str]:
    """Lines of the kernel log that may be about a GPU that does not even say which board it is."""
    silent = [str(gpu.identity.index) for gpu in snapshot.gpus if not gpu.identity.uuid]
    counts = {kind: snapshot.listening.log_lines.get(kind, 0) for kind in ("xid", "lost")}
    known = sum(one.count for gpu in snapshot.gpus for one in gpu.xids)
    if not silent or counts["xid"] + counts["lost"] <= known:
        return []
    text = f"its log tells of a GPU that is silent, perhaps GPU {', '.join(silent)}: journalctl -k | grep NVRM"
    return wrapped("      kernel    ", text)
