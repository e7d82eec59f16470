"""The web configuration in force, kept in step with its files.

Kubernetes swaps the links of a mounted secret; cert-manager rewrites certificates every few weeks. So the files are looked at (``stat``
only) at each new connection and each request, and read again when one of them changed. What cannot be used is reported once and leaves
the old configuration at work.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from pathlib import Path

import structlog

from gpuwatch.web.configuration import WebConfig, WebConfigError, read_web_config
from gpuwatch.web.tls import build_context

_Signature = tuple[tuple[int, int, int, int] | None, ...]


class WebPolicy:
    """Holds the configuration and the TLS context that new connections and requests use. Owned by the event loop."""

    def __init__(self, path: str, *, certificate_optional: bool) -> None:
        """Read the file.

        Args:
            path: the web configuration; empty: no TLS, no users.
            certificate_optional: as in :func:`gpuwatch.web.tls.build_context`.

        Raises:
            WebConfigError: the file cannot be used; one line.
        """
        self._path = Path(path).absolute() if path else None
        self._certificate_optional = certificate_optional
        self._log = structlog.get_logger("gpuwatch.web")
        self._watched: tuple[Path, ...] = () if self._path is None else (self._path,)
        self._signature: _Signature = ()
        self._trouble = ""
        self.config = WebConfig()
        self.context: ssl.SSLContext | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called after a new configuration has taken effect."""
        if self._path is not None:
            self.config, self.context = self._read(self._path)

    @property
    def certificate_required(self) -> bool:
        """Whether everything but a probe needs a verified client certificate."""
        return self.context is not None and self.config.tls_server_config.client_auth_type == "RequireAndVerifyClientCert"

    def refresh(self) -> None:
        """Read the files again if one of them changed; never raises, never leaves a half-changed state."""
        if self._path is None or self._signature == _sign(self._watched):
            return
        try:
            config, context = self._read(self._path)
        except WebConfigError as error:
            self._report(str(error))
            return
        if (context is None) != (self.context is None):
            self._report(f"web configuration {self._path}: switching TLS on or off takes effect only with a restart")
            return
        if config == WebConfig() != self.config:
            # Most likely a file that is just being written; at start an empty one is taken at its word.
            self._report(f"web configuration {self._path}: became empty; dropping all protection takes effect only with a restart")
            return
        self.config, self.context = config, context
        self._trouble = ""
        self._log.info("web configuration read again", file=str(self._path))
        self.on_change()

    def _read(self, path: Path) -> tuple[WebConfig, ssl.SSLContext | None]:
        # Each file is signed before it is read: a change in between is seen at the next look.
        self._signature = _sign(self._watched)
        own = self._signature[0]
        config = read_web_config(path)
        self._watched = (path, *config.files)
        self._signature = (own, *_sign(config.files))
        if not config.tls_server_config.enabled:
            return config, None
        try:
            return config, build_context(config.tls_server_config, certificate_optional=self._certificate_optional)
        except WebConfigError as error:
            raise WebConfigError(f"web configuration {path}: {error}") from error

    def _report(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._log.warning("web configuration not taken, the old one stays in force", reason=trouble)


def _sign(paths: tuple[Path, ...]) -> _Signature:
    return tuple(_sign_file(path) for path in paths)


def _sign_file(path: Path) -> tuple[int, int, int, int] | None:
    """What tells one version of a file from the next, through links; ``None``: it cannot be looked at."""
    try:
        state = os.stat(path)  # noqa: PTH116 (half the cost of the path object's, on every request)
    except (OSError, ValueError):
        return None
    return state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size
