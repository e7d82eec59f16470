"""Scenarios: what GPUs a simulated node has, what they do and what goes wrong, as YAML files under ``scenarios/``.

Files are checked strictly: an unknown key, a board or a MIG profile that does not exist, or a GPU number out of range is one
:class:`ScenarioError` that names the file and the key.
"""

from __future__ import annotations

import math
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

import msgspec

from gpuwatch.device.simulated.board import Board, BoardError, load_board
from gpuwatch.device.simulated.fault import AnyFault, MigReshape
from gpuwatch.device.simulated.load import LoadKind
from gpuwatch.device.simulated.mig import MigLayout, instances_of
from gpuwatch.device.simulated.pod import ScenarioPod, check_pods


class ScenarioError(ValueError):
    """A scenario file is wrong or missing; the message names the file, the key and what was expected."""


class Window(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A span of time, seconds since the scenario's start."""

    from_: float = msgspec.field(name="from", default=0.0)
    until: float | None = None

    @property
    def end(self) -> float:
        """Infinity when the span is open."""
        return math.inf if self.until is None else self.until

    def covers(self, t: float) -> bool:
        """True within the span."""
        return self.from_ <= t < self.end


class Load(Window, frozen=True, kw_only=True):
    """Work on the GPUs of a group. ``mig`` puts it on the MIG device of that index; a later entry wins over an earlier one."""

    kind: LoadKind
    mig: int | None = None


class Holder(Window, frozen=True, kw_only=True):
    """A process that holds memory. In a group of several GPUs each next GPU has the next pid."""

    pid: int
    memory_share: float
    """Of the GPU's memory, or of the MIG instance's."""
    kind: Literal["compute", "graphics", "mps"] = "compute"
    mig: int | None = None
    memory_known: bool = True
    busy: bool = True
    """Whether it has a part in the load; else it only holds memory."""


class GpuGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GPUs of one kind that do the same. ``mig`` left out: MIG mode off; an empty list: on, without instances."""

    board: str
    count: int = 1
    mig: MigLayout | None = None
    loads: tuple[Load, ...] = ()
    holders: tuple[Holder, ...] | None = None
    """Left out: each load that is not idle has one process."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node and what happens on it."""

    name: str
    description: str
    seed: int = 0
    driver: str | None = None
    """Driver version of the node; left out, the one the first board's facts were captured with."""
    gpus: tuple[GpuGroup, ...] = ()
    faults: tuple[AnyFault, ...] = ()
    pods: tuple[ScenarioPod, ...] = ()

    @property
    def gpu_count(self) -> int:
        """GPUs of the node."""
        return sum(group.count for group in self.gpus)


def scenario_names() -> dict[str, str]:
    """The scenarios that ship with gpuwatch, with their one-sentence descriptions."""
    names = sorted(entry.name.removesuffix(".yaml") for entry in _folder().iterdir() if entry.name.endswith(".yaml"))
    return {name: load_scenario(name).description for name in names}


def load_scenario(name_or_path: str | Path) -> Scenario:
    """A scenario that ships with gpuwatch, by name, or any file, by a path that ends in ``.yaml``.

    Raises:
        ScenarioError: the file is missing, or something in it is wrong.
    """
    label = str(name_or_path)
    if isinstance(name_or_path, Path) or label.endswith((".yaml", ".yml")):
        source: Traversable | Path = Path(name_or_path)
    else:
        source = _folder().joinpath(f"{label}.yaml")
    try:
        text = source.read_bytes()
    except OSError as error:
        known = ", ".join(sorted(entry.name.removesuffix(".yaml") for entry in _folder().iterdir()))
        raise ScenarioError(f"scenario {label!r} cannot be read ({error.strerror}); expected a .yaml file or one of {known}") from error
    return parse_scenario(text, file=source.name)


def parse_scenario(text: bytes, *, file: str = "scenario") -> Scenario:
    """Scenario from YAML text; ``file`` is the name for error messages.

    Raises:
        ScenarioError: the text is no YAML, or something in it is wrong.
    """
    try:
        scenario = msgspec.yaml.decode(text, type=Scenario)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ScenarioError(f"{file}: {error}") from error
    for number, group in enumerate(scenario.gpus):
        _check_group(group, where=f"{file}: gpus[{number}]")
    boards = [group.board for group in scenario.gpus for _ in range(group.count)]
    for number, fault in enumerate(scenario.faults):
        where = f"{file}: faults[{number}]"
        if fault.gpu is not None and not 0 <= fault.gpu < len(boards):
            raise ScenarioError(f"{where}.gpu is {fault.gpu}; expected 0 to {len(boards) - 1}")
        _check_window(fault.from_, fault.end, where=where)
        if isinstance(fault, MigReshape) and fault.layout != "off":
            _check_layout(fault.layout, load_board(boards[fault.gpu]), where=f"{where}.layout")
    if wrong := check_pods(scenario.pods, len(boards), where=f"{file}: pods"):
        raise ScenarioError(wrong)
    return scenario


def _check_group(group: GpuGroup, *, where: str) -> None:
    try:
        board = load_board(group.board)
    except BoardError as error:
        raise ScenarioError(f"{where}.board: {error}") from error
    if group.count < 1:
        raise ScenarioError(f"{where}.count is {group.count}; expected 1 or more")
    if group.mig is not None:
        _check_layout(group.mig, board, where=f"{where}.mig")
        if not board.mig_profiles:
            raise ScenarioError(f"{where}.mig: {group.board} has no MIG; leave the key out")
    for name, windows in (("loads", group.loads), ("holders", group.holders or ())):
        for number, window in enumerate(windows):
            _check_window(window.from_, window.end, where=f"{where}.{name}[{number}]")
    for number, holder in enumerate(group.holders or ()):
        if not 0.0 <= holder.memory_share <= 1.0:
            raise ScenarioError(f"{where}.holders[{number}].memory_share is {holder.memory_share}; expected 0 to 1")


def _check_layout(layout: MigLayout, board: Board, *, where: str) -> None:
    try:
        instances_of(layout, board, seed="check")
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from error


def _check_window(start: float, end: float, *, where: str) -> None:
    if not 0.0 <= start < end:
        raise ScenarioError(f"{where}: from is {start} and until is {end}; expected 0 <= from < until")


def _folder() -> Traversable:
    return resources.files(__package__).joinpath("scenarios")
