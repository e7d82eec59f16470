"""Logs: one form for all records, made for whoever reads the stream."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import warnings
from collections.abc import Iterator
from datetime import datetime

import pytest
import structlog

from gpuwatch.config import LogSettings
from gpuwatch.log import configure_log


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Leave the process's logging as it was found."""
    root = logging.getLogger()
    handlers, level, raises = root.handlers[:], root.level, logging.raiseExceptions
    yield
    root.handlers[:], logging.raiseExceptions = handlers, raises
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    """The JSON lines written so far."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_line() -> None:
    """A record is one JSON object with a UTC time, a level and the event, however odd its values are."""
    stream = io.StringIO()
    configure_log(LogSettings(), stream)
    structlog.get_logger("gpuwatch.agent").warning("gpu lost\nline", gpu=2, uuid='GPU-"1"', odd=object())
    [record] = lines(stream)
    assert record["event"] == "gpu lost\nline"
    assert (record["level"], record["logger"], record["gpu"], record["uuid"]) == ("warning", "gpuwatch.agent", 2, 'GPU-"1"')
    assert datetime.fromisoformat(str(record["timestamp"])).utcoffset() is not None


def test_standard_library_is_routed_in() -> None:
    """Records of libraries and Python's warnings take the same form."""
    stream = io.StringIO()
    configure_log(LogSettings(format="json"), stream)
    logging.getLogger("uvicorn.error").error("port %d", 9838)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    first, second = lines(stream)
    assert (first["event"], first["level"], first["logger"]) == ("port 9838", "error", "uvicorn.error")
    assert "old" in str(second["event"])


def test_level() -> None:
    """Records below the level are dropped, from structlog and the standard library alike."""
    stream = io.StringIO()
    configure_log(LogSettings(level="warning"), stream)
    structlog.get_logger("a").info("no")
    logging.getLogger("b").info("no")
    structlog.get_logger("a").warning("yes")
    assert [record["event"] for record in lines(stream)] == ["yes"]


def test_exception_is_one_line() -> None:
    """A traceback stays inside its JSON line."""
    stream = io.StringIO()
    configure_log(LogSettings(), stream)
    try:
        raise ValueError("broken")  # noqa: TRY301 - any exception will do
    except ValueError:
        structlog.get_logger("a").exception("read failed")
    [record] = lines(stream)
    assert "ValueError: broken" in str(record["exception"])


def test_terminal_gets_colours() -> None:
    """In a terminal the form is for people, with colours."""
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w", encoding="utf-8") as stream:
        configure_log(LogSettings(), stream)
        structlog.get_logger("a").info("hello", gpu=1)
        text = os.read(controller, 4096).decode()
    os.close(controller)
    assert "hello" in text
    assert "\x1b[" in text
    assert not text.startswith("{")


def test_console_without_terminal_has_no_colours() -> None:
    """Console form in a file has no escape codes."""
    stream = io.StringIO()
    configure_log(LogSettings(format="console"), stream)
    structlog.get_logger("a").info("hello", gpu=1)
    assert "hello" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_closed_stream_does_not_stop_the_agent() -> None:
    """Logging to a pipe whose reader went away raises nothing."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8", closefd=True) as stream:
        configure_log(LogSettings(), stream)
        structlog.get_logger("a").error("nobody listens")
        with pytest.raises(BrokenPipeError):
            stream.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def test_configured_twice_logs_once() -> None:
    """Configuring again replaces the first configuration."""
    stream = io.StringIO()
    configure_log(LogSettings(), io.StringIO())
    configure_log(LogSettings(), stream)
    structlog.get_logger("a").info("once")
    assert len(lines(stream)) == 1
