"""The settings of the daemon: a YAML file, then the environment, then flags; the later wins, and a mistake is refused at start.

Every struct here is a section and every field a key. The key of a field that ends in ``_seconds`` is its name without that ending, and its
value is written as a duration with a unit (``1s``, ``500ms``). The environment variable of ``server.port`` is ``GPUWATCH_SERVER__PORT``.
``docs/configuration.md`` is made of the docstrings here.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gpuwatch import setting
from gpuwatch.duration import format_duration
from gpuwatch.setting import ConfigError
from gpuwatch.yamlfile import YamlFileError, read_mapping

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULT_FILE", "ConfigError", "LogSettings", "ServerSettings", "Settings", "load"]

DEFAULT_FILE = Path("/etc/gpuwatch/config.yaml")
"""Read when no other file is named and this one exists."""

_Text = Annotated[str, Meta(min_length=1, max_length=253)]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """What all settings are: immutable and keyword-only."""


class ServerSettings(Section, frozen=True, kw_only=True):
    """Where and how the HTTP server listens."""

    address: _Text = "0.0.0.0"  # noqa: S104 - Prometheus scrapes from another machine
    """Address to listen on. All IPv4 addresses by default, because the scraper is elsewhere; ``::`` for IPv6 too."""
    port: Annotated[int, Meta(ge=1, le=65535)] = 9838
    """TCP port. 9838 is not taken in the list of default ports of Prometheus exporters."""
    web_config_file: str = ""
    """TLS, client certificates and users, in the form that Prometheus exporters share (exporter-toolkit). Empty: plain HTTP, no users."""
    probes_without_credentials: bool = True
    """``/healthz`` and ``/readyz`` ask for no credentials, because the kubelet cannot send any. They tell nothing but a state."""
    max_connections: Annotated[int, Meta(ge=8, le=65536)] = 1024
    """Open connections; above it the longest idle one is closed for the newcomer, so that idlers cannot lock a scraper out. Fewer where the
    limit of open files would leave none for the reader."""
    header_timeout_seconds: Annotated[float, Meta(ge=1, le=60)] = 10.0
    """Time for a client to send its request. Long enough for a slow link, short enough that dribbling clients go away."""
    keep_alive_seconds: Annotated[float, Meta(ge=1, le=3600)] = 75.0
    """How long an idle connection stays open. Longer than a usual scrape interval of 60 s, so that a scraper can reuse its connection."""


class ReadSettings(Section, frozen=True, kw_only=True):
    """How often the GPUs are read."""

    fast_interval_seconds: Annotated[float, Meta(ge=0.2, le=60)] = 1.0
    """Between reads of utilisation, memory, power, clocks, temperature, which cost little. 1 s: the driver's own sampling is not finer."""
    medium_interval_seconds: Annotated[float, Meta(ge=1, le=600)] = 10.0
    """Between reads of ECC, links, energy, limits, which cost milliseconds. 10 s: fresh in every scrape at the usual 15 s. Not shorter than
    ``read.fast_interval``."""
    static_interval_seconds: Annotated[float, Meta(ge=60, le=86400)] = 3600.0
    """Between reads of serial, firmware and the like; also read at start and after a reset. Not shorter than ``read.medium_interval``."""
    stall_after_seconds: Annotated[float, Meta(ge=1, le=300)] = 5.0
    """A GPU that was not read for this long beyond its interval is shown as stalled. 5 s: dear calls on a sound board stay below 1 s."""
    pcie_throughput: bool = True
    """Read PCIe throughput where only a blocking call gives it (boards before Hopper): about 40 ms in each medium read."""
    nvlink_errors_per_link: bool = False
    """NVLink error series for each link beside their sum. Off: 54 series a GPU, mostly zeros, and 45 ms of driver time a read."""
    kernel_log: Annotated[str, Meta(max_length=4096)] = "/dev/kmsg"
    """Where the kernel log is read for XIDs; empty: it is not. Needs CAP_SYSLOG, without which this source is shown as down."""


class ReaderSettings(Section, frozen=True, kw_only=True):
    """When the process that holds the driver library is taken for broken and replaced."""

    start_deadline_seconds: Annotated[float, Meta(ge=5, le=600)] = 60.0
    """Time for the library to come up. 60 s: without persistence mode the driver initialises every GPU first."""
    heartbeat_deadline_seconds: Annotated[float, Meta(ge=3, le=300)] = 15.0
    """Longest silence of that process, which reports at least once a second; then it is replaced."""
    hang_deadline_seconds: Annotated[float, Meta(ge=10, le=3600)] = 60.0
    """Longest time in which no GPU can be read before that process is replaced, and after twice as long if that did not help. One hung GPU
    beside a sound one never costs it. Not shorter than ``read.stall_after``."""
    backoff_max_seconds: Annotated[float, Meta(ge=1, le=600)] = 30.0
    """Longest wait between two of its starts. 30 s: GPUs appear soon after a driver is installed, without load on a node that has none."""


class LivenessSettings(Section, frozen=True, kw_only=True):
    """When ``/healthz`` asks Kubernetes for a new container."""

    unreadable_after_seconds: Annotated[float, Meta(ge=0, le=86400)] = 300.0
    """No GPU readable for this long after one was: a new container may get its device files back. ``0s`` turns it off."""


class KubernetesSettings(Section, frozen=True, kw_only=True):
    """How GPUs are attributed to pods and jobs."""

    attribution: Literal["auto", "always", "never"] = "auto"
    """Tag GPUs with the pods and jobs that hold them. ``auto``: in a container of a cluster (``KUBERNETES_SERVICE_HOST`` is set)."""
    api_server: Literal["auto", "always", "never"] = "auto"
    """Ask for pods and DRA devices: job names and labels need it. ``auto``: with a service account token. ``never`` needs no rights."""
    resource_claims: bool = False
    """Follow ResourceClaims too, to leave out pods whose DRA claim is administrative (monitoring). Off: the watch is cluster-wide."""
    processes: bool = True
    """Map processes to pods by ``/proc``, for shared GPUs and for holders that asked for nothing. Only works with the host's processes."""
    kubelet_root: _Text = "/var/lib/kubelet"
    """The kubelet's root directory; its ``pod-resources`` directory must be mounted. MicroK8s and k0s have others."""
    proc_root: _Text = "/proc"
    """Where the host's ``/proc`` is: ``/proc`` with hostPID, else where it is mounted."""
    allocations_interval_seconds: Annotated[float, Meta(ge=1, le=300)] = 10.0
    """Between two questions to the kubelet. 10 s; a change among the pods is followed at once."""
    grace_seconds: Annotated[float, Meta(ge=0, le=3600)] = 300.0
    """How long the counters of a job stay after its end. 5 min: every scraper has seen the last value by then."""
    events: bool = False
    """Post events about GPUs that fail to the pods that hold them and to the node; see [health](health.md#who-is-told). Off: it needs a
    right that writes."""
    node_condition: bool = False
    """Keep the condition ``GpuHealthy`` of the node. Off: it needs a right that writes, and others may act on it."""
    pod_labels: object = ""
    """Pod labels that become labels of the job's metrics: a mapping to label names, a list, or text. None by default: each costs series."""


class HealthSettings(Section, frozen=True, kw_only=True):
    """How grave a fault of a GPU is."""

    xid_overrides: dict[object, object] = {}
    """Rows of the XID table to change: number to ``severity`` (page, ticket, info), ``action`` or both, such as
    ``{31: {severity: ticket, action: inspect}}``; see [health](health.md). None: the table is as tested."""


class LogSettings(Section, frozen=True, kw_only=True):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is shown. ``debug`` also shows the traceback of an unexpected error."""
    format: Literal["auto", "console", "json"] = "auto"
    """``auto``: colours in a terminal, JSON lines elsewhere."""


class Settings(Section, frozen=True, kw_only=True):
    """All settings."""

    node_name: _Text = msgspec.field(default_factory=socket.gethostname)
    """The ``node`` label. By default the environment's ``NODE_NAME`` (set it from the pod's ``spec.nodeName``), else the host name."""
    server: ServerSettings = ServerSettings()
    read: ReadSettings = ReadSettings()
    reader: ReaderSettings = ReaderSettings()
    liveness: LivenessSettings = LivenessSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    health: HealthSettings = HealthSettings()
    log: LogSettings = LogSettings()


def load(
    file: Path | None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings in force.

    Args:
        file: The YAML file. ``None``: :data:`DEFAULT_FILE` if there is one.
        environment: Variables to look at; the process's own by default.
        flags: Values of flags as text, by dotted key (``{"server.port": "9000"}``).
        defaults: The same for what holds where nobody says otherwise, for a command with defaults of its own.

    Raises:
        ConfigError: Something is refused; the message is one line with source, key, value and what is allowed.
    """
    environment = os.environ if environment is None else environment
    keys = setting.keys_of(Settings)
    chosen = setting.given_in_flags(defaults or {}, keys)
    if environment.get("NODE_NAME"):
        chosen["node_name"] = setting.Given(value=environment["NODE_NAME"], source="environment variable NODE_NAME")
    chosen |= _given_in_file(file, keys)
    chosen |= setting.given_in_environment(environment, keys)
    chosen |= setting.given_in_flags(flags or {}, keys)
    values = {path: setting.value_of(keys[path], given) for path, given in chosen.items()}
    settings = _built(values, keys)
    _check_together(settings, chosen)
    return settings


def _given_in_file(file: Path | None, keys: Mapping[str, setting.Key]) -> dict[str, setting.Given]:
    """What the file says; the default file may be missing, a named one may not."""
    if file is None:
        if not DEFAULT_FILE.exists():
            return {}
        file = DEFAULT_FILE
    source = f"configuration file {file if str(file).isprintable() else repr(str(file))}"
    try:
        return setting.given_in_mapping(read_mapping(file), keys, source=source)
    except YamlFileError as error:
        raise ConfigError(f"{source}: {error}") from None


def _built(values: Mapping[str, object], keys: Mapping[str, setting.Key]) -> Settings:
    """The structs with ``values`` in place of their defaults."""
    top: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        section, _, _ = path.rpartition(".")
        (sections.setdefault(section, {}) if section else top)[keys[path].attribute] = value
    defaults = Settings(**top)
    return msgspec.structs.replace(
        defaults, **{name: msgspec.structs.replace(getattr(defaults, name), **changes) for name, changes in sections.items()}
    )


def _check_together(settings: Settings, chosen: Mapping[str, setting.Given]) -> None:
    """Refuse values that are each allowed and make no sense together."""
    _check_telling(settings.kubernetes, chosen)
    read, reader = settings.read, settings.reader
    for longer, long_seconds, shorter, short_seconds in (
        ("read.medium_interval", read.medium_interval_seconds, "read.fast_interval", read.fast_interval_seconds),
        ("read.static_interval", read.static_interval_seconds, "read.medium_interval", read.medium_interval_seconds),
        ("reader.hang_deadline", reader.hang_deadline_seconds, "read.stall_after", read.stall_after_seconds),
    ):
        if long_seconds < short_seconds:
            given = chosen.get(longer) or chosen[shorter]
            raise ConfigError(
                f"{given.source}: {longer} is {format_duration(long_seconds)} and {shorter} is {format_duration(short_seconds)}; "
                f"expected {longer} not to be shorter than {shorter}"
            )


def _check_telling(wishes: KubernetesSettings, chosen: Mapping[str, setting.Given]) -> None:
    """Whoever wishes a cluster to be told may not forbid to speak to it."""
    for told in ("events", "node_condition"):
        for barred in ("attribution", "api_server"):
            if getattr(wishes, told) and getattr(wishes, barred) == "never":
                raise ConfigError(
                    f"{chosen[f'kubernetes.{told}'].source}: kubernetes.{told} is true and kubernetes.{barred} is never; "
                    f"expected kubernetes.{barred} to be auto or always, since it is the API server that is told"
                )
