"""``xid=79,gpu=3``: a fault that a person injects into a simulated node, from text to the faults of the scenario's own time line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gpuwatch.device.simulated.board import Board, load_board
from gpuwatch.device.simulated.fault import AnyFault, Fault, Xid
from gpuwatch.device.simulated.injectable import KINDS, MAX_XID, Kind, Numbers, Words, brought_by
from gpuwatch.device.simulated.scenario import Scenario

DEFAULT_AT_SECONDS: Final = 15.0
"""Late enough for two whole reads of a sound GPU, which show what it ought to be, and for a first scrape."""
MAX_SECONDS: Final = 1_000_000.0
MAX_TIMES: Final = 1000
_EVERY_SECONDS: Final = 60.0
_FELL_OFF: Final = 79
_SHOWN: Final = 80
_NEEDS: Final = {
    "ecc_counters": "ECC counters",
    "nvlink": "NVLink",
    "recovery_action": "recovery action",
    "remapped_rows": "row remapping",
    "retired_pages": "page retirement",
}
_SECONDS = Numbers(0, MAX_SECONDS, whole=False)
_XID_KEYS: Final[dict[str, Numbers | Words]] = {
    "xid": Numbers(1, MAX_XID),
    "gpu": Numbers(0, 255),
    "at": _SECONDS,
    "for": Numbers(1, MAX_SECONDS, whole=False),
    "every": Numbers(1, MAX_SECONDS, whole=False),
    "count": Numbers(1, MAX_TIMES),
}
_FAULT_KEYS: Final = {key: _XID_KEYS[key] for key in ("gpu", "at", "for")}


class InjectionError(ValueError):
    """A spec is refused; the message is one line that names the spec, the value and what is allowed."""


class Injection(msgspec.Struct, frozen=True, kw_only=True):
    """A spec that was read: either an XID or a kind of :data:`KINDS`. Seconds since the start of the scenario."""

    spec: str
    """As it was written, for messages."""
    xid: int | None = None
    kind: str = ""
    gpu: int | None = None
    at: float = DEFAULT_AT_SECONDS
    lasts: float | None = None
    """Seconds until it clears by itself; ``None``: it stays."""
    every: float = _EVERY_SECONDS
    count: int = 1
    own: tuple[tuple[str, Any], ...] = ()
    """Fields of the fault that only its kind has."""


def parse_injection(spec: str) -> Injection:
    """The injection that ``spec`` means, whatever node it is for.

    Raises:
        InjectionError: a key is unknown, missing or given twice, or a value is not allowed.
    """
    pairs = _pairs(spec)
    if ("xid" in pairs) == ("fault" in pairs):
        raise _refused(spec, "expected either xid=NUMBER or fault=KIND, such as xid=79,gpu=3 or fault=power-brake,gpu=0,for=300")
    if "xid" in pairs:
        values = _values(spec, pairs, _XID_KEYS)
        if "gpu" not in values:
            raise _refused(spec, "gpu is missing; an XID needs the GPU that it happens on, such as gpu=0")
        values["count"] = values.get("count", MAX_TIMES if "every" in values else 1)
        return _injection(spec, values)
    written = pairs.pop("fault")
    name = written.replace("_", "-")
    kind = KINDS.get(name)
    if kind is None:
        raise _refused(spec, f"fault {_shown(written)} is not known; expected one of {', '.join(KINDS)}")
    return _of_kind(spec, name, kind, pairs)


def faults_of(injection: Injection, scenario: Scenario, *, earliest: float = 0.0) -> tuple[AnyFault, ...]:
    """The faults that the injection puts on the time line of that scenario, none before ``earliest`` (seconds).

    Raises:
        InjectionError: the node has no such GPU, or its board cannot have the fault.
    """
    start = max(injection.at, earliest)
    until = None if injection.lasts is None else start + injection.lasts
    window = {"from_": start, "until": until, "gpu": injection.gpu}
    board = None if injection.gpu is None else _board(injection, scenario)
    if injection.xid is not None and board is not None:
        return _of_xid(injection, injection.xid, board, window)
    kind = KINDS[injection.kind]
    own = dict(injection.own)
    if board is not None:
        _check_board(injection, kind, board, own)
    return (_fault(kind.fault, own | window),)


def inject(scenario: Scenario, specs: tuple[str, ...]) -> tuple[AnyFault, ...]:
    """The faults of several specs.

    Raises:
        InjectionError: one of them is refused.
    """
    return tuple(fault for spec in specs for fault in faults_of(parse_injection(spec), scenario))


def _of_kind(spec: str, name: str, kind: Kind, pairs: dict[str, str]) -> Injection:
    allowed = {key: one for key, one in _FAULT_KEYS.items() if (key != "gpu" or kind.of_gpu) and (key != "for" or kind.lasts)}
    values = _values(spec, pairs, allowed | dict(kind.keys))
    own = {key: values.pop(key) for key in kind.keys if key in values}
    if kind.of_gpu and "gpu" not in values:
        raise _refused(spec, f"gpu is missing; fault={name} needs the GPU that it happens on, such as gpu=0")
    return _injection(spec, values | {"kind": name, "own": tuple(sorted((dict(kind.defaults) | own).items()))})


def _injection(spec: str, values: dict[str, Any]) -> Injection:
    if "for" in values:
        values["lasts"] = values.pop("for")
    return Injection(spec=spec, **values)


def _pairs(spec: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in spec.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise _refused(spec, f"{_shown(part)} is not allowed; expected KEY=VALUE, with commas between, such as xid=79,gpu=3")
        if key in pairs:
            raise _refused(spec, f"the key {_shown(key)} is given twice")
        pairs[key] = value
    return pairs


def _values(spec: str, pairs: Mapping[str, str], allowed: Mapping[str, Numbers | Words]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, text in pairs.items():
        if key not in allowed:
            raise _refused(spec, f"the key {_shown(key)} is not known here; expected one of {', '.join(allowed)}")
        values[key] = allowed[key].read(text)
        if values[key] is None:
            raise _refused(spec, f"{key} {_shown(text)} is not allowed; expected {allowed[key]}{_unit(key)}")
    return values


def _unit(key: str) -> str:
    return " (seconds)" if key in {"at", "for", "every"} else ""


def _board(injection: Injection, scenario: Scenario) -> Board:
    boards = [group.board for group in scenario.gpus for _ in range(group.count)]
    if injection.gpu is None or injection.gpu >= len(boards):
        known = "it has none" if not boards else "expected 0" if len(boards) == 1 else f"expected 0 to {len(boards) - 1}"
        raise _refused(injection.spec, f"the scenario {scenario.name} has no GPU {injection.gpu}; {known}")
    return load_board(boards[injection.gpu])


def _check_board(injection: Injection, kind: Kind, board: Board, own: Mapping[str, Any]) -> None:
    spec, gpu = injection.spec, f"GPU {injection.gpu} ({board.name})"
    if kind.needs is not None and kind.needs not in board.support:
        raise _refused(spec, f"{gpu} has no {_NEEDS[kind.needs]}; expected a GPU that has, or another fault")
    links = 0 if board.nvlink is None else board.nvlink.links
    if "link" in own and own["link"] >= links:
        raise _refused(spec, f"{gpu} has no link {own['link']}; expected 0 to {links - 1}")
    if "width" in own and own["width"] >= board.pcie.width:
        raise _refused(spec, f"width {own['width']} is no fault of {gpu}; expected fewer than its {board.pcie.width} lanes")


def _of_xid(injection: Injection, xid: int, board: Board, window: Mapping[str, Any]) -> tuple[AnyFault, ...]:
    """The XID, what it brings on that board, and its repetitions."""
    brought = brought_by(xid, board)
    if injection.lasts is not None and not brought:
        raise _refused(injection.spec, f"nothing lasts after XID {xid} on GPU {injection.gpu} ({board.name}); leave out for")
    faults = [_fault(one.fault, dict(one.fields) | dict(window)) for one in brought]
    # What strikes tells its XID by itself, once.
    told = int(any(one.tells for one in brought))
    if injection.count > told:
        start = window["from_"] + told * injection.every
        # What is no longer on the bus raises no interrupt.
        source = "kernel_log" if told and xid == _FELL_OFF else "both"
        again: dict[str, Any] = {"code": xid, "times": injection.count - told, "every": injection.every, "source": source}
        faults.insert(told, _fault(Xid, again | dict(window) | {"from_": start, "until": None}))
    return tuple(faults)


def _fault(kind: type[Fault], fields: Mapping[str, Any]) -> AnyFault:
    fault: AnyFault = kind(**fields)  # type: ignore[assignment]  # every kind that can be injected is one of them
    return fault


def _refused(spec: str, problem: str) -> InjectionError:
    return InjectionError(f"{_shown(spec)}: {problem}")


def _shown(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"
