"""What is worth telling of a change of verdict, and to whom. Pure: it keeps what was told last and compares.

Told is a state, an action and reason codes, never a reason's detail, whose numbers change with every read. ``unknown`` is never told and
lets nothing be forgotten: what cannot be seen is neither worse nor better. Reasons of severity ``info`` are no news either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from gpuwatch.device.readings import FaultEvent, Struct
from gpuwatch.health.verdict import ACTIONS
from gpuwatch.snapshot import Action, Gpu, Holder, Reason, Snapshot, State, Verdict

Kind = Literal["GpuFailed", "GpuDegraded", "GpuRecovered"]
Scope = Literal["gpu", "all_instances", "instance"]
KIND_OF: Final[Mapping[State, Kind]] = {"failed": "GpuFailed", "degraded": "GpuDegraded", "ok": "GpuRecovered"}

AGAIN_SECONDS: Final = 600.0
"""Between two notices of one kind about one GPU, unless the second one asks for a heavier action."""
MOST_NOTICES: Final = 64
"""About all GPUs of the node within that time. What is held back is told later if it is still true then."""
FORGOTTEN_SECONDS: Final = 3600.0
"""A reason that was away for as long is news when it comes back. An event lives as long in a cluster."""
JUST_ENDED_SECONDS: Final = 30.0
"""A container that ended so shortly before held the GPU when it failed: most faults kill it before the next whole read shows them."""
_SETTLING_SECONDS: Final = 60.0
_HOLDER_SOURCES: Final = ("podresources", "pods", "dra")
_MOST_GONE: Final = 64

HolderKey = tuple[str, str, str, str]
"""MIG UUID, namespace, pod, container."""


class Notice(Struct, frozen=True, kw_only=True):
    """One thing to tell of one GPU."""

    kind: Kind
    gpu: int
    uuid: str
    model: str
    before: State | None
    """The state that was told last; ``None``: nothing was told of this GPU since the agent started."""
    state: State
    action: Action
    reasons: tuple[Reason, ...] = ()
    """The gravest first, without those of severity ``info``."""
    holders: tuple[Holder, ...] = ()
    """Who held it when it failed; of a recovery those who were told of the failure and still hold it."""
    scope: Scope = "gpu"
    """With MIG: whether the fault is of the whole GPU, and so of all its instances, or of the one whose holders these are."""
    at: float
    """Unix time."""


@dataclass(slots=True)
class _Board:
    """What was told of one GPU. Times are CLOCK_MONOTONIC in seconds."""

    state: State | None = None
    gravity: int = 0
    codes: dict[str, float] = field(default_factory=dict)
    """Told in this state → when last true."""
    told: dict[Kind, tuple[float, int]] = field(default_factory=dict)
    """When, and how heavy the action was."""
    held: dict[HolderKey, tuple[Holder, float]] = field(default_factory=dict)
    """Holders → when they last held it."""
    told_holders: set[HolderKey] = field(default_factory=set)


class Telling:
    """The GPUs of one node. One is for notices; another, with a shorter ``again_seconds``, for the log."""

    def __init__(self, *, again_seconds: float = AGAIN_SECONDS) -> None:
        self._again_seconds = again_seconds
        self._boards: dict[str, _Board] = {}
        self._recent: deque[float] = deque()
        self._began_at: float | None = None

    def note(self, snapshot: Snapshot, now: float) -> tuple[Notice, ...]:
        """What to tell now. ``now``: CLOCK_MONOTONIC, seconds."""
        self._began_at = now if self._began_at is None else self._began_at
        waits = now - self._began_at < _SETTLING_SECONDS and _is_starting(snapshot)
        held = _held(snapshot)
        notices = []
        for gpu in snapshot.gpus:
            board = self._board(gpu)
            _remember(board, gpu, held.get(gpu.identity.uuid, ()), now)
            verdict = gpu.verdict
            if waits or verdict is None or verdict.state == "unknown":
                continue
            if _is_news(board, verdict, now) and self._may_tell(board, verdict, now):
                notices.append(_told(board, gpu, verdict, snapshot, now))
                self._recent.append(now)
        self._forget_gone(snapshot)
        return tuple(notices)

    def _board(self, gpu: Gpu) -> _Board:
        """By UUID, so that another board in the slot starts clean. One that was told of before its UUID was known is the same."""
        key = _key(gpu)
        board = self._boards.get(key)
        if board is None:
            board = self._boards.pop(f"index:{gpu.identity.index}", None) or _Board()
            self._boards[key] = board
        return board

    def _may_tell(self, board: _Board, verdict: Verdict, now: float) -> bool:
        while self._recent and now - self._recent[0] >= self._again_seconds:
            self._recent.popleft()
        if len(self._recent) >= MOST_NOTICES:
            return False
        at, gravity = board.told.get(KIND_OF[verdict.state], (now - self._again_seconds, -1))
        return now - at >= self._again_seconds or ACTIONS.index(verdict.action) > gravity

    def _forget_gone(self, snapshot: Snapshot) -> None:
        gone = self._boards.keys() - {_key(gpu) for gpu in snapshot.gpus}
        if len(gone) > _MOST_GONE:
            for key in [key for key in self._boards if key in gone][:-_MOST_GONE]:
                del self._boards[key]


def key_of(holder: Holder) -> HolderKey:
    """What makes it the same holder of a GPU."""
    return (holder.mig_uuid, holder.namespace, holder.pod, holder.container)


def _key(gpu: Gpu) -> str:
    return gpu.identity.uuid or f"index:{gpu.identity.index}"


def _is_starting(snapshot: Snapshot) -> bool:
    """Who holds a GPU is not known yet, and will be in a moment: a GPU that was bad before the agent started can wait for it."""
    sources = snapshot.kubernetes.sources if snapshot.kubernetes is not None else {}
    return any(name in sources and sources[name].fault == "starting" for name in _HOLDER_SOURCES)


def _held(snapshot: Snapshot) -> dict[str, list[Holder]]:
    found: dict[str, list[Holder]] = {}
    for use in snapshot.jobs:
        if use.held:
            found.setdefault(use.holder.gpu_uuid, []).append(use.holder)
    return found


def _remember(board: _Board, gpu: Gpu, holders: Iterable[Holder], now: float) -> None:
    """Holders of now and of a moment ago. Of a GPU in MIG mode that does not answer nobody knows the instances: the last ones count on."""
    if gpu.modes.mig_enabled and gpu.medium is None:
        board.held = {key: (holder, now) for key, (holder, _) in board.held.items()}
    board.held |= {key_of(holder): (holder, now) for holder in holders}
    for key in [key for key, (_, at) in board.held.items() if now - at > JUST_ENDED_SECONDS]:
        del board.held[key]


def _is_news(board: _Board, verdict: Verdict, now: float) -> bool:
    """Another state than was told, a heavier action, or a reason that was not told. Fewer reasons for the same state are none."""
    if verdict.state == "ok":
        if board.state in (None, "ok"):
            board.state = "ok"
            return False
        return True
    codes = {reason.code for reason in _reasons(verdict)}
    if verdict.state != board.state:
        return True
    board.codes |= {code: now for code in codes if code in board.codes and now - board.codes[code] < FORGOTTEN_SECONDS}
    board.codes = {code: at for code, at in board.codes.items() if now - at < FORGOTTEN_SECONDS}
    return ACTIONS.index(verdict.action) > board.gravity or not codes <= board.codes.keys()


def _told(board: _Board, gpu: Gpu, verdict: Verdict, snapshot: Snapshot, now: float) -> Notice:
    """The notice, and the memory of it."""
    kind, before = KIND_OF[verdict.state], board.state
    gravity = ACTIONS.index(verdict.action)
    reasons = _reasons(verdict)
    holders = tuple(holder for holder, _ in board.held.values())
    if kind == "GpuRecovered":
        holders = tuple(holder for holder, at in board.held.values() if at == now and key_of(holder) in board.told_holders)
        board.told_holders = set()
        scope: Scope = _scope(gpu)
    else:
        holders, scope = _concerned(gpu, reasons, holders, snapshot)
        board.told_holders |= {key_of(holder) for holder in holders}
    same = verdict.state == before
    board.state, board.gravity = verdict.state, max(gravity, board.gravity if same else 0)
    board.codes = (board.codes if same else {}) | {reason.code: now for reason in reasons}
    board.told[kind] = (now, gravity)
    identity = gpu.identity
    return Notice(
        kind=kind,
        gpu=identity.index,
        uuid=identity.uuid,
        model=identity.model,
        before=before,
        state=verdict.state,
        action=verdict.action if kind != "GpuRecovered" else "none",
        reasons=reasons,
        holders=holders,
        scope=scope,
        at=snapshot.timestamp_seconds,
    )


def _reasons(verdict: Verdict) -> tuple[Reason, ...]:
    return tuple(reason for reason in verdict.reasons if reason.severity != "info")


def _scope(gpu: Gpu) -> Scope:
    return "all_instances" if gpu.modes.mig_enabled or (gpu.medium is not None and gpu.medium.mig_instances) else "gpu"


def _concerned(gpu: Gpu, reasons: Iterable[Reason], holders: tuple[Holder, ...], snapshot: Snapshot) -> tuple[tuple[Holder, ...], Scope]:
    """All holders, since a board's fault is that of all its instances; unless there are only XIDs, each of which names its instance."""
    uuids: dict[int | None, set[str]] = {}
    for one in gpu.medium.mig_instances if gpu.medium is not None else ():
        uuids.setdefault(one.gpu_instance, set()).add(one.uuid)
    named: set[str] = set()
    for reason in reasons:
        instances = {event.gpu_instance for event in _new_xids(gpu, snapshot) if reason.code == f"xid_{event.code}"}
        if not instances or not instances <= uuids.keys():
            return holders, _scope(gpu)
        named = named.union(*(uuids[instance] for instance in instances))
    return tuple(holder for holder in holders if holder.mig_uuid in named), "instance"


def _new_xids(gpu: Gpu, snapshot: Snapshot) -> Iterator[FaultEvent]:
    """XIDs of this GPU that are new enough to concern its present holders."""
    identity = gpu.identity
    for event in snapshot.listening.events:
        is_new = not event.replayed and snapshot.timestamp_seconds - event.at < AGAIN_SECONDS
        is_of = event.uuid == identity.uuid if event.uuid else event.pci_bus_id == identity.pci_bus_id != ""
        if event.kind == "xid" and is_new and is_of:
            yield event
