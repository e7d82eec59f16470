"""What the agent on this node says of the GPUs of this pod: use, power and memory, to be drawn beside the training's own curves.

Nothing is followed, no redirect and no proxy of the environment: a password goes to the agent that was named, and nowhere else.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from gpuwatch.tensorflow.settings import Settings

LOG: Final = logging.getLogger("gpuwatch.tensorflow")
INTERVAL_SECONDS: Final = 15.0
TIMEOUT_SECONDS: Final = 2.0
MOST_BYTES: Final = 16 << 20
"""The JSON of a full node has some 200 KiB."""
_PATH: Final = "/api/v1/snapshot"
_PATIENCE: Final = 2
"""Failures in a row before one is told: an agent that starts anew, and a pod that it has not met yet, are no news."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """What this pod gets of one GPU or MIG instance. ``None`` is "not reported", as power of a device that others use too."""

    gpu: str
    """NVML's index; of a MIG instance ``index.gpu_instance.compute_instance``."""
    utilization_ratio: float | None
    power_watts: float | None
    memory_used_bytes: int | None


class NodeAgent:
    """Asks the agent, from a thread of its own, while somebody wants the values."""

    def __init__(self, fetch: Callable[[], bytes], *, namespace: str, pod: str, interval_seconds: float = INTERVAL_SECONDS) -> None:
        """``fetch`` gives the agent's JSON or raises; ``namespace`` may be empty where it is not known."""
        self._fetch = fetch
        self._namespace = namespace
        self._pod = pod
        self._interval_seconds = interval_seconds
        self._latest: tuple[GpuUse, ...] = ()
        self._failures = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Ask now, and again and again. Called by the training's thread, as :meth:`stop` is."""
        if self._thread is None or not self._thread.is_alive():  # a forked child has no thread
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(self._stop,), name="gpuwatch-node-agent", daemon=True)
            self._thread.start()

    def gpus(self) -> tuple[GpuUse, ...]:
        """The last answer, by GPU; empty when there was none. Costs nothing, and any thread may ask."""
        return self._latest

    def stop(self) -> None:
        """Ask no more. An answer that is still awaited is not waited for."""
        self._stop.set()
        self._thread = None
        self._latest = ()

    def ask(self) -> None:
        """Ask once. What fails is told once, and so is that it works again."""
        try:
            latest = gpus_of(json.loads(self._fetch()), namespace=self._namespace, pod=self._pod)
            failure = "" if latest else f"it knows of no GPU of pod {self._pod!r}; POD_NAMESPACE and POD_NAME say who this is"
        except Exception as error:  # noqa: BLE001 (whatever it is, the training goes on)
            latest, failure = (), _reason(error)
        self._latest = latest
        if not failure and self._failures >= _PATIENCE:
            LOG.info("the node's agent answers again")
        self._failures = self._failures + 1 if failure else 0
        if self._failures == _PATIENCE:
            LOG.warning("no values of the node's agent (%s); GPUs are not shown until it answers", failure)

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.ask()
            if stop.is_set():
                self._latest = ()
            stop.wait(self._interval_seconds)


def agent_of(settings: Settings) -> NodeAgent | None:
    """The agent of the settings; ``None`` where none is named."""
    url = settings.agent_url
    if url is None:
        return None
    return NodeAgent(lambda: fetch(url), namespace=settings.namespace, pod=settings.pod)


def gpus_of(snapshot: Mapping[str, Any], *, namespace: str, pod: str) -> tuple[GpuUse, ...]:
    """What this pod holds, by the agent's JSON (docs/api.md).

    Raises:
        LookupError, TypeError, AttributeError: it is none.
    """
    names = _names(snapshot)
    found: dict[str, GpuUse] = {}
    for job in snapshot["jobs"]:
        holder = job["holder"]
        if job["held"] and holder["pod"] == pod and namespace in ("", holder["namespace"]):
            name = names.get((holder["gpu_uuid"], holder["mig_uuid"])) or holder["mig_uuid"] or holder["gpu_uuid"]
            use = GpuUse(
                gpu=name,
                utilization_ratio=job["utilization_ratio"],
                power_watts=job["power_watts"],
                memory_used_bytes=job["memory_used_bytes"],
            )
            found[name] = _together(found[name], use) if name in found else use
    return tuple(found[name] for name in sorted(found))


def _names(snapshot: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Short names by the UUIDs of GPU and MIG instance."""
    names: dict[tuple[str, str], str] = {}
    for gpu in snapshot["gpus"]:
        uuid, index = gpu["identity"]["uuid"], str(gpu["identity"]["index"])
        names[uuid, ""] = index
        for instance in (gpu.get("medium") or {}).get("mig_instances", ()):
            names[uuid, instance["uuid"]] = f"{index}.{instance['gpu_instance']}.{instance['compute_instance']}"
    return names


def _together(one: GpuUse, other: GpuUse) -> GpuUse:
    """Two containers of the pod share the device: their shares add up, and what is not known per process stays unknown."""
    use, memory = (one.utilization_ratio, other.utilization_ratio), (one.memory_used_bytes, other.memory_used_bytes)
    uses, memories = [value for value in use if value is not None], [value for value in memory if value is not None]
    return GpuUse(
        gpu=one.gpu,
        utilization_ratio=min(sum(uses), 1.0) if uses else None,
        power_watts=None,
        memory_used_bytes=sum(memories) if memories else None,
    )


def fetch(url: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> bytes:
    """The JSON of the agent at ``url``, which may hold ``user:password@``.

    Raises:
        OSError, http.client.HTTPException, ValueError: there is no answer, or another one.
    """
    parts = urlsplit(url)
    headers = {"Accept": "application/json", "User-Agent": "gpuwatch-tensorflow"}
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(credentials.encode()).decode()
    host = parts.hostname or ""
    connection = (
        http.client.HTTPSConnection(host, parts.port, timeout=timeout_seconds, context=ssl.create_default_context())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, parts.port, timeout=timeout_seconds)
    )
    try:
        connection.request("GET", parts.path.rstrip("/") + _PATH, headers=headers)
        answer = connection.getresponse()
        body = answer.read(MOST_BYTES + 1)
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ValueError(f"it answers with {answer.status}")
    if len(body) > MOST_BYTES:
        raise ValueError(f"it sends more than {MOST_BYTES >> 20} MiB")
    return body


def _reason(error: Exception) -> str:
    """In words without the URL, in which a password may be."""
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:g} s"
    if isinstance(error, json.JSONDecodeError | LookupError | TypeError | AttributeError | UnicodeError):
        return "what it answers is not the JSON of an agent"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
