"""Everything by which a training process tells what it measures: its endpoint and its text file."""

from __future__ import annotations

import atexit
import logging
import os
from typing import Final

from gpuwatch.tensorflow.endpoint import Endpoint
from gpuwatch.tensorflow.exposition import registry_of
from gpuwatch.tensorflow.measures import Measures
from gpuwatch.tensorflow.settings import Settings
from gpuwatch.tensorflow.textfile import TextFile, textfile_of

LOG: Final = logging.getLogger("gpuwatch.tensorflow")


class Outputs:
    """Started when a training begins; it goes on until the process ends, so that the last values are still scraped.

    All methods belong to the training's thread, may be called in any order and any number of times, and never fail. A forked child, which
    inherits neither threads nor the port, has outputs of its own if it starts them: a training in it is a training process of its own.
    """

    def __init__(self, measures: Measures, settings: Settings) -> None:
        """Nothing is opened yet."""
        self._measures = measures
        self._settings = settings
        self._pid: int | None = None
        """Of the process that started them."""
        self._endpoint: Endpoint | None = None
        self._textfile: TextFile | None = None

    @property
    def port(self) -> int | None:
        """The endpoint's, while there is one."""
        return self._endpoint.port if self._endpoint is not None and self._started else None

    @property
    def _started(self) -> bool:
        return self._pid == os.getpid()

    def start(self) -> None:
        """Open what the settings ask for; what cannot be opened is told in one line, once."""
        if self._started:
            return
        self._pid = os.getpid()
        for problem in self._settings.problems:
            LOG.warning("%s", problem)
        try:
            self._open()
        except Exception:
            LOG.exception("the measures are not exported")
        atexit.register(self.close)

    def flush(self) -> None:
        """At the end of a training: what is read later than now holds its last step too."""
        if self._started and self._textfile is not None:
            self._textfile.flush()

    def close(self) -> None:
        """Write for the last time and free the port. Also called when the interpreter ends."""
        if not self._started:
            return
        atexit.unregister(self.close)
        self._pid = None
        for one in (self._textfile, self._endpoint):
            if one is not None:
                one.close()
        self._textfile = self._endpoint = None

    def _open(self) -> None:
        self._textfile = self._endpoint = None
        if self._settings.port is not None:
            self._endpoint = Endpoint(registry_of(self._measures), address=self._settings.address, port=self._settings.port)
            self._endpoint.open()
        self._textfile = textfile_of(self._measures, self._settings)
        if self._textfile is not None:
            self._textfile.start()
