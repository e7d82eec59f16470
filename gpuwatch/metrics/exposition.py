"""From a snapshot to the bytes of a scrape.

Writing the series ourselves costs about a twentieth of what prometheus_client's generator takes, because the labels of a device are escaped
once. The metrics of the agent's own process still come from the library and follow ours.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector

from gpuwatch.metrics.catalog import METRICS
from gpuwatch.metrics.negotiation import Format, format_of, gzip_allowed
from gpuwatch.metrics.text import Encoder, header

if TYPE_CHECKING:
    from gpuwatch.snapshot import Snapshot

_GZIP_LEVEL = 1
"""It leaves a twenty-fifth of the text. Level 9 saves an eighth more, for eight times the work."""
_END = b"# EOF\n"

_Style = tuple[bool, str, bool]
"""OpenMetrics or not, escaping, compressed or not: what decides the bytes."""


class Exposition:
    """Renders snapshots, each at most once a format, however often it is scraped. Owned by the thread that serves HTTP."""

    __slots__ = ("_bodies", "_encoders", "_headers", "_pod_labels", "_registry", "_snapshot")

    def __init__(self, registry: CollectorRegistry | None, pod_labels: tuple[str, ...] = ()) -> None:
        """``registry`` holds the metrics of the process itself (see :func:`process_registry`); ``None`` leaves them out.

        ``pod_labels`` are the metric labels that the operator made of pod labels.
        """
        self._registry = registry
        self._pod_labels = pod_labels
        self._encoders: dict[str, Encoder] = {}
        self._headers: dict[tuple[bool, str], dict[str, str]] = {}
        self._snapshot: Snapshot | None = None
        self._bodies: dict[_Style, bytes] = {}

    def render(self, snapshot: Snapshot, accept: str, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
        """Body and headers for a scrape with these ``Accept`` and ``Accept-Encoding`` headers (empty where there is none)."""
        wanted = format_of(accept)
        compressed = gzip_allowed(accept_encoding)
        if snapshot is not self._snapshot:
            self._snapshot, self._bodies = snapshot, {}
        headers = {"Content-Type": wanted.content_type, "Vary": "Accept, Accept-Encoding"}
        if compressed:
            headers["Content-Encoding"] = "gzip"
        return self._body(snapshot, wanted, compressed=compressed), headers

    def _body(self, snapshot: Snapshot, wanted: Format, *, compressed: bool) -> bytes:
        style = (wanted.openmetrics, wanted.escaping, compressed)
        body = self._bodies.get(style)
        if body is None:
            if compressed:
                body = gzip.compress(self._body(snapshot, wanted, compressed=False), _GZIP_LEVEL, mtime=0)
            else:
                body = self._write(snapshot, wanted)
            self._bodies[style] = body
        return body

    def _write(self, snapshot: Snapshot, wanted: Format) -> bytes:
        headers = self._family_headers(wanted)
        encoder = self._encoders.get(wanted.escaping)
        if encoder is None:
            encoder = self._encoders[wanted.escaping] = Encoder(wanted.escaping, self._pod_labels)
        parts: list[str] = []
        for name, series in encoder.families(snapshot).items():
            if series:
                parts.append(headers[name])
                parts.extend(series.values())
        body = "".join(parts).encode()
        if self._registry is not None:
            return body + wanted.generate(self._registry)
        return body + _END if wanted.openmetrics else body

    def _family_headers(self, wanted: Format) -> dict[str, str]:
        key = (wanted.openmetrics, wanted.escaping)
        headers = self._headers.get(key)
        if headers is None:
            headers = {metric.name: header(metric, wanted.escaping, openmetrics=wanted.openmetrics) for metric in METRICS}
            self._headers[key] = headers
        return headers


def process_registry() -> CollectorRegistry:
    """A registry with what prometheus_client knows of this process: CPU, memory, open files."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry
