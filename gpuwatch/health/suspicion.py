"""Whether a program's error is the program's or the board's: one job that dies on several GPUs, or several jobs that die on one.

XID 13 and 31 are nearly always an illegal access by the program. Only who knows the jobs can tell when they are not.
"""

from __future__ import annotations

from typing import Final

from gpuwatch.health.policy import POLICY

PROGRAM_ERRORS: Final = frozenset({13, 31})
_MOST_JOBS: Final = 64


class Suspicion:
    """Which jobs had such an error on which GPU. Times are Unix seconds. At most 64 jobs a GPU: the oldest are forgotten."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, float]] = {}
        self._window_seconds = POLICY["suspect_hardware"].window_seconds or 0.0

    def note(self, uuid: str, job: str, at: float) -> None:
        """A job (empty: unknown, which accuses nobody) had such an error on that GPU."""
        if not job:
            return
        jobs = self._seen.setdefault(uuid, {})
        jobs[job] = max(at, jobs.pop(job, at))
        if len(jobs) > _MOST_JOBS:
            del jobs[next(iter(jobs))]

    def forget(self, uuid: str, until: float) -> None:
        """The GPU was reset at that time."""
        self._seen[uuid] = {job: at for job, at in self._seen.get(uuid, {}).items() if at > until}

    def jobs(self, uuid: str, at: float) -> tuple[str, ...]:
        """Different jobs that had such an error on this GPU within the window, without those that are at fault themselves."""
        guilty = self.guilty(at)
        return tuple(sorted(job for job, seen in self._seen.get(uuid, {}).items() if self._is_recent(seen, at) and job not in guilty))

    def guilty(self, at: float) -> frozenset[str]:
        """Jobs that had such an error on several GPUs within the window."""
        once: set[str] = set()
        again: set[str] = set()
        for jobs in self._seen.values():
            recent = {job for job, seen in jobs.items() if self._is_recent(seen, at)}
            again |= once & recent
            once |= recent
        return frozenset(again)

    def _is_recent(self, seen: float, at: float) -> bool:
        return at - seen <= self._window_seconds
