"""Curves of a training for TensorBoard: when a point is due, and what the node's agent says of the GPUs just then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpuwatch.tensorflow.measures import Measures
from gpuwatch.tensorflow.node_agent import NodeAgent
from gpuwatch.tensorflow.tensorboard import Scalars

_EVERY_SECONDS: Final = 15.0


class Curves:
    """Of one training, by its thread. Nothing here fails.

    Args:
        log_directory: Where TensorBoard looks.
        measures: Of the process.
        agent: Tells of the GPUs; ``None`` where the environment names no agent.
        now: Seconds that never go back.
    """

    def __init__(
        self, log_directory: str | Path, measures: Measures, agent: NodeAgent | None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._scalars = Scalars(log_directory, since=measures)
        self._measures, self._agent, self._now = measures, agent, now
        self._drawn = -math.inf
        if agent is not None:
            agent.start()

    def look(self) -> None:
        """After a step: draw if it is time."""
        if self._now() - self._drawn >= _EVERY_SECONDS:
            self.draw()

    def draw(self) -> None:
        """A point of every curve, at the step of now."""
        self._drawn = self._now()
        self._scalars.write(self._measures.steps, self._measures, self._agent.gpus() if self._agent else ())

    def end(self) -> None:
        """The last point."""
        self.draw()
        self._scalars.close()
        if self._agent is not None:
            self._agent.stop()
