"""The frozen picture of the node that every consumer reads: scrapes, the page, the JSON API.

The agent builds a new :class:`Snapshot` after each frame from the reader; nobody changes one afterwards, so any number of scrapes may
render it from any place without a lock.
"""

from __future__ import annotations

from typing import Literal

from gpuwatch.device.readings import Fast, FaultEvent, Identity, Medium, SourceHealth, Struct
from gpuwatch.kube.objects import JobRef, SourceState

State = Literal["ok", "degraded", "failed", "unknown"]
Severity = Literal["page", "ticket", "info"]
"""``page``: wake somebody, drain now; ``ticket``: when convenient; ``info``: nobody but the owner of the job need care."""
Action = Literal["none", "watch", "restart_job", "drain", "reset_gpu", "reboot_node", "inspect"]
"""From the lightest to the heaviest. A reset, a reboot and an inspection each need the GPU drained first."""


class Reason(Struct, frozen=True, kw_only=True):
    """Why a GPU is not simply sound."""

    code: str
    """A bounded token: the name of a rule of :mod:`gpuwatch.health.policy`, ``xid_<number>`` or ``xid_unknown``."""
    severity: Severity
    action: Action
    detail: str = ""
    """For a person, with the values that were seen."""


class Verdict(Struct, frozen=True, kw_only=True):
    """Whether a GPU can be trusted, why not, and the one thing to do. Source: :mod:`gpuwatch.health.verdict`."""

    state: State
    action: Action = "none"
    reasons: tuple[Reason, ...] = ()
    """The gravest first. Those of severity ``info`` leave the state as it is."""


class Totals(Struct, frozen=True, kw_only=True):
    """Counters that the agent itself keeps for one GPU (they outlive the reader). Source: :mod:`gpuwatch.accounting`."""

    busy_seconds: float | None = None
    """Integral of the utilisation over time; ``None`` until the board has reported utilisation once."""
    energy_joules: float | None = None
    """The device's own counter, continued over its resets; ``None`` until reported once."""
    throttled_seconds: dict[str, float] = {}
    """By reason: the driver's counter where it keeps one, else the sampled share of time."""


class Modes(Struct, frozen=True, kw_only=True):
    """How the GPU is set up, as last told: kept while nothing fresh is known, since it names the GPU in ``gpu_info``."""

    ecc_enabled: bool | None = None
    mig_enabled: bool | None = None
    mig_pending: bool | None = None
    compute_mode: str | None = None
    persistence_mode: bool | None = None


class XidCount(Struct, frozen=True, kw_only=True):
    """One XID of one GPU. Source: :mod:`gpuwatch.health.xid_counters`."""

    xid: str
    """Its number, or ``other`` for those beyond the first 64 of a GPU."""
    category: str
    severity: str
    count: int
    last_seen_seconds: float
    """Unix time."""


class Listening(Struct, frozen=True, kw_only=True):
    """What is known of the sources of fault events, and what belongs to no GPU."""

    sources: tuple[SourceHealth, ...] = ()
    log_lines: dict[str, int] = {}
    """Lines of the kernel log about GPUs, by kind."""
    sxid_errors: dict[tuple[str, str], int] = {}
    """Errors of NVSwitches by (SXid, severity)."""
    events: tuple[FaultEvent, ...] = ()
    """The newest events of all sources, each once, in the order in which they came."""
    event_count: int = 0
    """Events since the start: who has seen n of them before takes the last ``event_count - n`` of ``events``."""


class Gpu(Struct, frozen=True, kw_only=True):
    """One physical GPU. ``fast`` and ``medium`` are ``None`` when there is no fresh reading of that tier: nothing stale is shown."""

    identity: Identity
    up: bool
    fault: str = ""
    """Why ``up`` is false (``gpu_is_lost``, ``stalled``, ``reader_down``, ``missing``, an NVML error in lower case)."""
    fast: Fast | None = None
    medium: Medium | None = None
    modes: Modes = Modes()
    totals: Totals = Totals()
    unsupported: dict[str, str] = {}
    xids: tuple[XidCount, ...] = ()
    verdict: Verdict | None = None
    """``None``: not judged (yet), or the board was exchanged for another one."""


class Holder(Struct, frozen=True, kw_only=True):
    """A container that holds a GPU or a MIG instance. Source: :mod:`gpuwatch.attribution`."""

    gpu_uuid: str
    mig_uuid: str = ""
    profile: str = ""
    """Of the MIG instance."""
    namespace: str
    pod: str
    container: str
    job: JobRef
    labels: tuple[str, ...] = ()
    """Values of the pod labels that the operator chose, in the order of the setting."""
    shared: bool = False
    """Others hold the same device: what cannot be told apart (power, energy) is not given to anybody."""
    requested: bool = True
    """False: nobody asked for a device; its processes were found on it."""
    idle_ok: bool = False
    """The pod says that it may hold the device without using it; false also where no pod is known."""
    pids: tuple[int, ...] = ()


class JobUse(Struct, frozen=True, kw_only=True):
    """What one holder gets of its device. Source: :mod:`gpuwatch.ledger`."""

    holder: Holder
    held: bool = True
    """False during the grace period after the end: counters only."""
    allocated_seconds: float = 0.0
    busy_seconds: float | None = None
    energy_joules: float | None = None
    nvlink_bytes: dict[str, int] = {}
    utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    power_watts: float | None = None
    sm_active_ratio: float | None = None
    tensor_active_ratio: float | None = None


class Unattributed(Struct, frozen=True, kw_only=True):
    """A GPU or MIG instance without a holder, and why."""

    gpu_uuid: str
    mig_uuid: str = ""
    reason: str


class Kubernetes(Struct, frozen=True, kw_only=True):
    """How well attribution does."""

    sources: dict[str, SourceState] = {}
    """``podresources``, ``pods``, ``dra``, ``processes``, and what is told (``events``, ``node_condition``) → state; those switched on."""
    age_seconds: dict[str, float] = {}
    """Age of the last good answer, by source."""
    unattributed: tuple[Unattributed, ...] = ()
    unknown_devices: tuple[str, ...] = ()
    """Device ids the kubelet has given out and NVML does not know."""
    notices: dict[str, int] = {}
    """Events for the cluster by what became of them; empty where none are wished. Source: :mod:`gpuwatch.kube.notices`."""


class Agent(Struct, frozen=True, kw_only=True):
    """How well gpuwatch itself does."""

    read_duration_seconds: dict[str, float] = {}
    """Longest of the GPUs' last passes, by tier ``fast|medium|static``."""
    last_read_timestamp_seconds: dict[str, float] = {}
    """Unix time of the newest complete pass, by tier."""
    nvml_errors: dict[tuple[str, str], int] = {}
    """(call, error) → failures since the agent started."""
    nvml_rejected_values: dict[str, int] = {}
    reader_restarts: dict[str, int] = {}
    """reason → restarts of the reader process."""


class Snapshot(Struct, frozen=True, kw_only=True):
    """The node at one moment."""

    node: str
    timestamp_seconds: float
    """Unix time at which it was built."""
    version: str
    simulated: bool = False
    up: bool = False
    """The reader runs and at least one GPU was read within its deadline."""
    fault: str = ""
    """Why ``up`` is false, a bounded token such as ``driver_not_loaded``, ``no_gpu``, ``starting``."""
    detail: str = ""
    """The same in a person's words."""
    ready: bool = False
    """The first complete read has happened and ``up`` holds."""
    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: str | None = None
    gpus: tuple[Gpu, ...] = ()
    jobs: tuple[JobUse, ...] = ()
    kubernetes: Kubernetes | None = None
    """``None``: attribution is switched off."""
    listening: Listening = Listening()
    agent: Agent = Agent()
