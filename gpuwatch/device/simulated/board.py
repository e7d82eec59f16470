"""What a GPU board model is and what it supports: one YAML file a model under ``boards/``.

Figures come from public captures of ``nvidia-smi`` and from NVML recordings of real boards; each file names its own.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Literal

import msgspec

MEBIBYTE = 1 << 20

Capability = Literal[
    "board_part_number",
    "ecc_counters",
    "ecc_locations",
    "ecc_mode",
    "encoder",
    "fabric",
    "gpm",
    "jpeg_ofa",
    "memory_temperature",
    "mig",
    "nvlink",
    "nvlink_link_fields",
    "nvlink_totals",
    "power_average",
    "recovery_action",
    "remapped_rows",
    "retired_pages",
    "serial",
    "target_temperature",
    "temperature_margin",
]
"""What a board may answer. Everything that is not in its ``support`` list it refuses with NOT_SUPPORTED."""

Architecture = Literal["volta", "turing", "ampere", "ada", "hopper", "blackwell"]
ARCHITECTURE_IDS: dict[str, int] = {"volta": 5, "turing": 6, "ampere": 7, "ada": 8, "hopper": 9, "blackwell": 10}
"""``NVML_DEVICE_ARCH_*``."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the parts of a board file: an unknown key is an error."""


class Memory(Part, frozen=True, kw_only=True):
    """Framebuffer and BAR1, MiB. ``reserved_mib`` is what the driver keeps for itself on an idle board."""

    total_mib: int
    reserved_mib: float
    bar1_mib: int
    context_mib: int = 450
    """What one CUDA context takes before the program asks for anything."""


class Power(Part, frozen=True, kw_only=True):
    """Watts."""

    idle_watts: float
    min_watts: float
    default_watts: float
    max_watts: float


class Clocks(Part, frozen=True, kw_only=True):
    """MHz. ``memory_busy`` differs from ``memory_max`` where CUDA runs in P2 (GeForce)."""

    graphics_max: int
    graphics_idle: int
    memory_max: int
    memory_idle: int
    memory_busy: int
    video_max: int
    video_idle: int


class Heat(Part, frozen=True, kw_only=True):
    """Degrees Celsius. ``busy`` is the steady state at the default power limit; ``offsets`` are the T.Limit ones (fields 193 to 196)."""

    idle: float
    busy: float
    memory_idle: float | None = None
    memory_busy: float | None = None
    shutdown: int
    slowdown: int
    gpu_max: int
    memory_max: int | None = None
    target: int | None = None
    offset_shutdown: int | None = None
    offset_slowdown: int | None = None
    offset_memory_max: int | None = None
    offset_gpu_max: int | None = None


class Pcie(Part, frozen=True, kw_only=True):
    """Link as sound boards of this model run it. ``idle_generation`` is lower where the link sleeps in P8."""

    generation: int
    width: int
    idle_generation: int


class Nvlink(Part, frozen=True, kw_only=True):
    """``speed_mb_per_second`` of one link in one direction, as NVML prints it."""

    links: int
    speed_mb_per_second: int


class MigProfile(Part, frozen=True, kw_only=True):
    """One GPU instance profile. ``memory_slices`` of 8 and ``slices`` (compute) of 7 make a whole board."""

    name: str
    max_instances: int
    slices: int
    memory_slices: int
    multiprocessors: int
    memory_mib: int


class Board(Part, frozen=True, kw_only=True):
    """A GPU board model on the driver its facts were captured with."""

    name: str
    source: str
    driver: str
    architecture: Architecture
    compute_capability: tuple[int, int]
    vbios: str
    part_number: str | None = None
    memory: Memory
    power: Power
    clocks: Clocks
    heat: Heat
    pcie: Pcie
    fans: int = 0
    performance_state_idle: int = 0
    performance_state_busy: int = 0
    ecc_enabled: bool = False
    remap_banks: int = 0
    nvlink: Nvlink | None = None
    mig_profiles: tuple[MigProfile, ...] = ()
    support: frozenset[Capability]

    def mig_profile(self, name: str) -> MigProfile | None:
        """The profile of that name (``3g.40gb``), or ``None``."""
        return next((profile for profile in self.mig_profiles if profile.name == name), None)


class BoardError(ValueError):
    """A board file is wrong or missing; the message names it."""


def board_names() -> tuple[str, ...]:
    """Names of the boards that ship with gpuwatch, sorted."""
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in _folder().iterdir() if entry.name.endswith(".yaml")))


@cache
def load_board(name: str) -> Board:
    """Board by the name of its file.

    Raises:
        BoardError: there is no such board, or its file has an unknown or wrong key.
    """
    if name not in board_names():
        raise BoardError(f"board {name!r} does not exist; expected one of {', '.join(board_names())}")
    try:
        return msgspec.yaml.decode(_folder().joinpath(f"{name}.yaml").read_bytes(), type=Board)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise BoardError(f"board file {name}.yaml: {error}") from error


def _folder() -> Traversable:
    return resources.files(__package__).joinpath("boards")
