"""All Kubernetes sources of one node behind one view. Each has a thread of its own; the agent's loop only reads what they publish."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Protocol

from gpuwatch.kube.client import api_server
from gpuwatch.kube.objects import ProcessOwners, Views
from gpuwatch.kube.podresources import PodResources, socket_of
from gpuwatch.kube.pods import PodSource
from gpuwatch.kube.processes import ProcessSource
from gpuwatch.kube.slices import DraSource

_LOOK_UP_SECONDS = 2.0
"""Between two look-ups of processes: they are cached, so that only new ones cost anything."""


class Wishes(Protocol):
    """The part of the settings that chooses sources; :class:`gpuwatch.config.KubernetesSettings` is one."""

    @property
    def kubelet_root(self) -> str:
        """Root directory of the kubelet."""

    @property
    def allocations_interval_seconds(self) -> float:
        """Between two questions to the kubelet."""

    @property
    def resource_claims(self) -> bool:
        """Whether to follow ResourceClaims, to know administrative ones."""

    @property
    def processes(self) -> bool:
        """Whether to map processes to pods."""

    @property
    def proc_root(self) -> str:
        """Where the host's /proc is."""


class KubeSources:
    """The kubelet's allocations, and as far as wished the API server's pods and DRA devices and the kernel's processes."""

    def __init__(self, wishes: Wishes, node: str, *, ask_api_server: bool) -> None:
        self._allocations = PodResources(socket_of(Path(wishes.kubelet_root)), interval_seconds=wishes.allocations_interval_seconds)
        self._processes = _ProcessThread(ProcessSource(Path(wishes.proc_root))) if wishes.processes else None
        self._pods = PodSource(api_server(node), node, on_change=self._allocations.poke) if ask_api_server else None
        claims = api_server(node) if ask_api_server and wishes.resource_claims else None
        self._dra = DraSource(api_server(node), node, claims_api=claims) if ask_api_server else None

    def start(self) -> None:
        """Begin; nothing here waits for an answer."""
        for source in (self._allocations, self._pods, self._dra, self._processes):
            if source is not None:
                source.start()

    def stop(self) -> None:
        """Ask every thread to end; none is waited for, since it may be blocked."""
        for source in (self._allocations, self._pods, self._dra, self._processes):
            if source is not None:
                source.stop()

    def offer_pids(self, pids: frozenset[int]) -> None:
        """The processes that hold GPUs now."""
        if self._processes is not None:
            self._processes.offer(pids)

    def view(self) -> Views:
        """The newest facts of every source; never blocks."""
        return Views(
            allocations=self._allocations.view,
            pods=None if self._pods is None else self._pods.view,
            dra=None if self._dra is None else self._dra.view,
            processes=None if self._processes is None else self._processes.view,
        )


class _ProcessThread:
    """Looks processes up beside the loop: reading /proc of a process that is just ending can take a while."""

    def __init__(self, source: ProcessSource) -> None:
        self._source = source
        self._pids: frozenset[int] = frozenset()
        self._listed_at = 0.0
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self.view = ProcessOwners()

    def offer(self, pids: frozenset[int]) -> None:
        """The processes to look up from now on. One that began after this moment bears a PID that was another's when it was listed."""
        self._listed_at = time.monotonic()
        if pids != self._pids:
            self._pids = pids
            self._wake.set()

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._look_for_ever, name="kube-processes", daemon=True).start()

    def stop(self) -> None:
        """End after the present look-up."""
        self._stopping.set()
        self._wake.set()

    def _look_for_ever(self) -> None:
        while not self._stopping.is_set():
            self.view = self._source.look_up(self._pids, self._listed_at)
            self._wake.wait(_LOOK_UP_SECONDS)
            self._wake.clear()
