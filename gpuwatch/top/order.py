"""Which rows are shown, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpuwatch.top.rows import NodeView, Row, rank


def _memory_share(row: Row) -> float | None:
    if row.memory_used_bytes is None or not row.memory_total_bytes:
        return None
    return row.memory_used_bytes / row.memory_total_bytes


def _job_name(row: Row) -> str | None:
    return row.jobs[0].title.casefold() if row.jobs else None


_MOST_FIRST: Final[dict[str, Callable[[Row], float | None]]] = {
    "use": lambda row: row.utilization_ratio,
    "memory": _memory_share,
    "power": lambda row: row.power_watts,
    "heat": lambda row: row.temperature_celsius,
    "state": lambda row: -float(rank(row.state)),
}
SORTS: Final = (*_MOST_FIRST, "job")


def ordered(views: list[NodeView], *, sort: str = "", job: str = "") -> list[Row]:
    """The rows of all nodes: by node and index, or by ``sort`` (one of ``SORTS``) with what is not reported last.

    ``job``: only what a job holds whose name, pod or namespace contains this, whatever the case.
    """
    rows = [row for view in views for row in view.rows if not job or _matches(row, job.casefold())]
    if sort == "job":
        return sorted(rows, key=lambda row: (_job_name(row) is None, _job_name(row) or ""))
    if sort in _MOST_FIRST:
        value = _MOST_FIRST[sort]
        return sorted(rows, key=lambda row: -_least(value(row)))
    return rows


def _least(value: float | None) -> float:
    return float("-inf") if value is None else value


def _matches(row: Row, wanted: str) -> bool:
    return any(wanted in f"{job.kind} {job.title} {job.namespace}/{job.pod}".casefold() for job in row.jobs)
