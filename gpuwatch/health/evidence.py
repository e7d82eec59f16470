"""What a verdict is judged from: everything that is known of one GPU at one moment, as plain numbers and flags.

``None`` and a missing key are "not known", and nothing is concluded from them. Values over a window are already taken over the window of
their rule in :mod:`gpuwatch.health.policy`; where a fact must last, the mildest value of the window stands here. Built by
:mod:`gpuwatch.health.history`.
"""

from __future__ import annotations

from gpuwatch.device.readings import Struct


class XidSeen(Struct, frozen=True, kw_only=True):
    """One XID of this GPU since its last reset. Times are Unix seconds."""

    code: int
    last_at: float
    count: int = 1
    text: str = ""
    """The driver's words of the newest one; empty where only NVML told of it."""
    job: str = ""
    """Who held the GPU at the newest one, where that is known and matters (13 and 31)."""
    replayed: bool = False
    """The newest one came before the agent started: a reset since then may have gone unseen."""


class PeerFault(Struct, frozen=True, kw_only=True):
    """A grave XID of another GPU of the node. A lost GPU counts as 79."""

    gpu: int
    code: int
    from_at: float
    """Unix time, seconds."""
    until_at: float
    """When it was last seen."""
    stands: bool = False
    """The peer was not reset since."""


class Evidence(Struct, frozen=True, kw_only=True):
    """All of it. The default is a GPU that answers and reports nothing bad."""

    at: float = 0.0
    """Unix time, seconds."""
    fault: str = ""
    """Why the GPU does not answer, as in :class:`gpuwatch.snapshot.Gpu`; empty while it does."""
    down_seconds: float = 0.0
    """How long it has not answered."""
    read: bool = True
    """False before the first whole read."""
    missing: tuple[str, ...] = ()
    """Facts about health that failed to be read for the whole window."""

    recovery_action: int | None = None
    recovery_read_at: float | None = None
    """When that was last told, Unix time; ``None``: just now. A GPU that went silent tells no more."""
    xids: tuple[XidSeen, ...] = ()
    suspect_jobs: tuple[str, ...] = ()
    """Different jobs that XID 13 or 31 hit on this GPU within the window, without those that it hit on several GPUs."""
    guilty_jobs: frozenset[str] = frozenset()
    """Jobs that XID 13 or 31 hit on several GPUs: their own fault."""
    peers: tuple[PeerFault, ...] = ()

    ecc_uncorrected: int | None = None
    """Since the driver was loaded (volatile)."""
    ecc_uncorrected_grown: float | None = None
    ecc_corrected_per_second: float | None = None
    sram_uncorrected_ever: int | None = None
    row_remap_pending: bool | None = None
    row_remap_failed: bool | None = None
    rows_remapped_uncorrected: int | None = None
    banks_without_spare: int | None = None
    retired_pages: int | None = None
    """Of all causes. Only boards before Ampere retire pages; newer ones refuse the call."""
    retired_pages_uncorrected: int | None = None
    retired_pages_uncorrected_grown: float | None = None
    retired_pages_pending: bool | None = None

    throttled_ratio: dict[str, float] = {}
    """Share of the window by the name of the rule: ``hardware_thermal``, ``power_brake``, …"""
    margin_celsius: float | None = None
    """Degrees from the board's own margin to its slowdown: the most in the window."""
    headroom_celsius: float | None = None
    """Degrees from the die to its slowdown, on boards without a margin: the most in the window."""
    memory_headroom_celsius: float | None = None
    """Degrees from the memory to its limit: the most in the window."""
    nearest_limit_celsius: float | None = None
    """Degrees from the sensor that is nearest to its limit to that limit, now."""
    busy_clock_ratio: float | None = None
    """SM clock as a share of the highest, while busy without an excuse: the most in the window."""

    nvlinks_most: int = 0
    """Links that this board has had up."""
    nvlinks_down: float | None = None
    """Links of those that are down: the fewest in the window."""
    nvlinks_down_at: float | None = None
    """When the newest of them went down, Unix time; ``None``: just now."""
    nvlink_errors_per_minute: float | None = None
    """Replays and recoveries."""
    nvlink_crc_per_second: float | None = None
    fabric_sound: bool | None = None
    """False: not for a moment of the window."""
    pcie_width: int | None = None
    """The most lanes in the window."""
    pcie_width_most: int | None = None
    pcie_generation: int | None = None
    """The highest under load in the window."""
    pcie_generation_most: int | None = None
    pcie_replays_per_minute: float | None = None
    pcie_replay_budget: float | None = None
    """Replays a minute that generation and lanes allow."""
