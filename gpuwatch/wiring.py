"""From the settings to the parts of the agent: what each is told, and which of them there are."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol

import structlog

from gpuwatch.config import ConfigError, KubernetesSettings, Settings
from gpuwatch.device.wire import ReaderOptions, Simulation
from gpuwatch.health.xid import OverrideError, XidPolicy, parse_overrides
from gpuwatch.herald import Herald
from gpuwatch.kube.labels import LabelMap
from gpuwatch.kube.objects import Views

SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

_log = structlog.get_logger("gpuwatch.agent")


class Sources(Protocol):
    """Where attribution comes from: the real sources, or those of a scenario."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End, without waiting."""

    def offer_pids(self, pids: frozenset[int]) -> None:
        """The processes that hold GPUs now."""

    def view(self) -> Views:
        """The newest facts; never blocks."""


def reader_options(settings: Settings, simulation: Simulation | None, *, once: bool = False) -> ReaderOptions:
    """What the reader is told, from the settings."""
    read = settings.read
    return ReaderOptions(
        fast_seconds=read.fast_interval_seconds,
        medium_seconds=read.medium_interval_seconds,
        static_seconds=read.static_interval_seconds,
        pcie_throughput=read.pcie_throughput,
        nvlink_errors_per_link=read.nvlink_errors_per_link,
        kernel_log=read.kernel_log,
        once=once,
        simulation=simulation,
        epoch=time.monotonic(),
        started_at=time.time(),
    )


def xid_overrides(settings: Settings) -> dict[int, XidPolicy]:
    """The rows of the XID table that the operator changed.

    Raises:
        ConfigError: the setting is refused.
    """
    try:
        return parse_overrides(settings.health.xid_overrides)
    except OverrideError as error:
        raise ConfigError(f"health.xid_overrides: {error}") from None


def label_map(settings: Settings) -> LabelMap:
    """The pod labels that become metric labels.

    Raises:
        ConfigError: the setting is refused.
    """
    try:
        return LabelMap.parse(settings.kubernetes.pod_labels)
    except ValueError as error:
        raise ConfigError(f"kubernetes.pod_labels: {error}") from None


def kube_sources(settings: Settings, simulation: Simulation | None, *, epoch: float) -> Sources | None:
    """The sources of attribution that the settings ask for; ``None`` when it is switched off.

    The modules are imported only then: they bring gRPC and the Kubernetes client with them.
    """
    wishes = settings.kubernetes
    if simulation is not None:
        from gpuwatch.kube.simulated import simulated_sources  # noqa: PLC0415

        at = simulation.at_seconds
        return simulated_sources(simulation.scenario, (lambda: time.monotonic() - epoch) if at is None else (lambda: at))
    if not _attributes(wishes):
        return None
    from gpuwatch.kube.sources import KubeSources  # noqa: PLC0415

    try:
        return KubeSources(wishes, settings.node_name, ask_api_server=_asks_api_server(wishes))
    except ValueError as error:
        raise ConfigError(f"node_name: {error}") from None


def herald_of(settings: Settings, simulation: Simulation | None, *, once: bool = False) -> Herald:
    """Who says what changed. A cluster is told only by a daemon that reads real GPUs, and where the settings wish it.

    Raises:
        ConfigError: the node's name cannot be one in Kubernetes.
    """
    wishes = settings.kubernetes
    if once or not (wishes.events or wishes.node_condition):
        return Herald()
    if simulation is not None:
        _log.info("no cluster is told of simulated GPUs: kubernetes.events and kubernetes.node_condition are off")
        return Herald()
    if not _attributes(wishes) or not _asks_api_server(wishes):
        _log.info("there is no API server to tell: kubernetes.events and kubernetes.node_condition are off")
        return Herald()
    from gpuwatch.kube.client import api_server  # noqa: PLC0415 (only where a cluster is told)
    from gpuwatch.kube.notices import Notices  # noqa: PLC0415

    node = settings.node_name
    try:
        return Herald(Notices(api_server(node), node, events=wishes.events, condition=wishes.node_condition))
    except ValueError as error:
        raise ConfigError(f"node_name: {error}") from None


def _attributes(wishes: KubernetesSettings) -> bool:
    return wishes.attribution == "always" or (wishes.attribution == "auto" and bool(os.environ.get("KUBERNETES_SERVICE_HOST")))


def _asks_api_server(wishes: KubernetesSettings) -> bool:
    return wishes.api_server == "always" or (wishes.api_server == "auto" and SERVICE_ACCOUNT_TOKEN.exists())
