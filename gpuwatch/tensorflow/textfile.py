"""The measures as a file, for jobs that end before anybody has scraped them: what node_exporter's textfile collector reads.

The file stays when the process has ended: that is its purpose. Nobody here deletes one, since a training must not delete files of others.
Whoever provides the directory cleans it: an ``emptyDir`` goes with its pod; a directory of the node needs a rule such as
``e /var/lib/node_exporter/gpuwatch_tensorflow_*.prom - - - 1d`` for systemd-tmpfiles. A process that is killed leaves the values of up to
one interval before, and ``gpuwatch_tensorflow_training`` as it was.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

from gpuwatch.tensorflow.exposition import registry_of
from gpuwatch.tensorflow.measures import Measures
from gpuwatch.tensorflow.settings import Settings

LOG: Final = logging.getLogger("gpuwatch.tensorflow")
INTERVAL_SECONDS: Final = 15.0
FLUSH_TIMEOUT_SECONDS: Final = 5.0
"""A directory that hangs, as of a server that is gone, holds up the end of a training no longer than that."""
_UNFIT: Final = re.compile(r"[^A-Za-z0-9.-]+")
_MOST_CHARACTERS: Final = 63
"""Of one part of the name; a file name has 255 bytes at most. The end is kept, where names of pods differ."""


class TextFile:
    """Writes a registry into a file, from a thread of its own. All methods belong to the training's thread and never fail."""

    def __init__(self, registry: CollectorRegistry, path: Path, *, interval_seconds: float = INTERVAL_SECONDS) -> None:
        """``path`` must end in ``.prom``: others are not read by the collector."""
        self._registry = registry
        self._path = path
        self._interval_seconds = interval_seconds
        self._changed = threading.Condition()
        self._wanted = 0
        self._written = 0
        self._late = 0
        """What was not written in time when somebody waited for it."""
        self._ending = False
        self._failure = ""
        self._thread: threading.Thread | None = None

    @property
    def path(self) -> Path:
        """Of the file."""
        return self._path

    def start(self) -> None:
        """Write now, and every interval from now on."""
        if self._thread is None:
            self._wanted, self._written, self._late, self._ending = 1, 0, 0, False
            self._thread = threading.Thread(target=self._run, name="gpuwatch-textfile", daemon=True)
            self._thread.start()

    def flush(self) -> None:
        """Write now, and wait for it, but not for ever: a directory that hangs holds up one training, not each of many."""
        if self._thread is not None:
            with self._changed:
                self._wanted += 1
                goal = self._wanted
                self._changed.notify_all()
                hangs = self._written < self._late
                if not hangs and not self._changed.wait_for(lambda: self._written >= goal, FLUSH_TIMEOUT_SECONDS):
                    self._late = goal

    def close(self) -> None:
        """Write for the last time. The file stays."""
        if (thread := self._thread) is not None:
            with self._changed:
                self._ending = True
                self._changed.notify_all()
            thread.join(FLUSH_TIMEOUT_SECONDS)
            self._thread = None

    def _run(self) -> None:
        ending = False
        while not ending:
            with self._changed:
                self._changed.wait_for(lambda: self._ending or self._wanted > self._written, self._interval_seconds)
                ending, goal = self._ending, self._wanted
            self._write()
            with self._changed:
                self._written = goal
                self._changed.notify_all()

    def _write(self) -> None:
        try:
            replace(self._path, generate_latest(self._registry))
        except Exception as error:  # noqa: BLE001 (whatever it is, the training goes on)
            failure = (error.strerror if isinstance(error, OSError) else "") or repr(error)
            if failure != self._failure:
                LOG.warning("%s cannot be written (%s); its values are old or missing until it can", self._path, failure)
            self._failure = failure
        else:
            if self._failure:
                LOG.info("%s is written again", self._path)
            self._failure = ""


def textfile_of(measures: Measures, settings: Settings) -> TextFile | None:
    """The file of this process; ``None`` where no directory is wished for.

    Its series say whose they are: no one else can know. ``pid`` keeps two processes of one pod apart, of which the collector would
    otherwise drop one.
    """
    if settings.textfile_directory is None:
        return None
    pid = str(os.getpid())
    labels = {"namespace": settings.namespace, "pod": settings.pod, "container": settings.container, "pid": pid}
    registry = registry_of(measures, {name: text for name, text in labels.items() if text})
    parts = (_UNFIT.sub("-", text)[-_MOST_CHARACTERS:] for text in (settings.namespace, settings.pod, settings.container, pid) if text)
    return TextFile(registry, settings.textfile_directory / f"gpuwatch_tensorflow_{'_'.join(parts)}.prom")


def replace(path: Path, content: bytes) -> None:
    """Put ``content`` in the place of the file in one move, readable for everybody: the collector is another user.

    Raises:
        OSError: the directory cannot be written, or is full; the old file is as it was, and nothing else is left.
    """
    draft = path.with_name(f".{path.name}.new")
    try:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(content)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
