"""One thing that is sent to the API server again and again: its pauses after failures, its state, and one log line a change of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import structlog

from gpuwatch.kube.client import ApiError, one_line
from gpuwatch.kube.objects import SourceState

SLOW_PAUSE_SECONDS: Final = (120.0, 300.0)
"""Between tries of what is forbidden: only a person can change that."""
_LEAST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 1.0, 60.0
_MAX_RETRY_AFTER_SECONDS: Final = 300.0

_log = structlog.get_logger("gpuwatch.kube")


class Lane:
    """Used by one thread; ``state`` may be read from any.

    Args:
        name: What is sent, for logs and metrics.
        right: The verb and resource that it needs.
        clock: CLOCK_MONOTONIC in seconds.
        chance: Spreads pauses.
        slow: Faults that nothing but a person ends, so that there is no hurry to try again.
    """

    def __init__(
        self, name: str, right: str, *, clock: Callable[[], float], chance: random.Random, slow: frozenset[str] = frozenset()
    ) -> None:
        self.name = name
        self.state = SourceState()
        self.pause_until = 0.0
        """CLOCK_MONOTONIC."""
        self._right = right
        self._clock = clock
        self._chance = chance
        self._slow = slow
        self._failures = 0
        self._told_fault = "starting"

    def attempt(self, act: Callable[[], bool]) -> None:
        """Act, unless in a pause. ``act`` says whether the server took what it was sent; it raises ``ApiError`` when it did not."""
        if self._clock() < self.pause_until:
            return
        try:
            took = act()
        except ApiError as error:
            self._note_failure(error)
        except Exception as error:  # noqa: BLE001 - a defect must not end the thread: it is shown, logged and tried again
            _log.debug("telling the cluster failed unexpectedly", what=self.name, exc_info=True)
            self._note_failure(ApiError(0, one_line(f"{type(error).__name__}: {error}"), fault="internal"))
        else:
            if took:
                self._failures = 0
                self.state = SourceState(up=True, fault="", updated_at=self._clock())
                self._tell("")

    def _note_failure(self, error: ApiError) -> None:
        detail = f"{self.name}: {error}"
        if error.fault == "forbidden":
            detail = f"the service account lacks the verb {self._right}; a ClusterRole must allow it ({error.reason})"
        self.state = SourceState(fault=error.fault, detail=detail, updated_at=self.state.updated_at)
        self._failures += 1
        self.pause_until = self._clock() + self._pause(error)
        self._tell(error.fault)

    def _pause(self, error: ApiError) -> float:
        if error.fault in self._slow:
            return self._chance.uniform(*SLOW_PAUSE_SECONDS)
        longest = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures - 1, 16), _MAX_PAUSE_SECONDS)
        asked = min(error.retry_after or 0.0, _MAX_RETRY_AFTER_SECONDS)
        return asked + max(self._chance.uniform(0, longest), _LEAST_PAUSE_SECONDS)

    def _tell(self, fault: str) -> None:
        if fault == self._told_fault:
            return
        self._told_fault = fault
        if fault:
            _log.warning("the API server does not take what it is told", what=self.name, fault=fault, detail=self.state.detail)
        else:
            _log.info("telling the API server", what=self.name)
