"""Logs on standard error: coloured lines for a person at a terminal, JSON lines for a collector."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, TextIO

import structlog

if TYPE_CHECKING:
    from structlog.typing import Processor

    from gpuwatch.config import LogSettings


def configure_log(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send every record, structlog's and the standard library's alike, to ``stream`` in one form.

    Args:
        settings: Level and form; ``auto`` looks whether ``stream`` is a terminal.
        stream: Standard error by default.
    """
    stream = sys.stderr if stream is None else stream
    is_json = settings.format == "json" or (settings.format == "auto" and not stream.isatty())
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *before, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=before, processors=_last_steps(is_json=is_json, stream=stream))
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    logging.captureWarnings(capture=True)
    # A collector that closed the pipe must not turn each log line into a traceback.
    logging.raiseExceptions = False


def _last_steps(*, is_json: bool, stream: TextIO) -> list[Processor]:
    """From the event to its line."""
    steps: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if is_json:
        return [
            *steps,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    return [*steps, structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)]
