"""Answers of ``nvmlDeviceGetFieldValues``: each field has its own return code and its own type of value."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpuwatch.device import nvml
from gpuwatch.device.nvml import NVMLError
from gpuwatch.device.simulated import condition
from gpuwatch.device.simulated.answers import activity, health, links
from gpuwatch.device.simulated.support import field_refusal
from gpuwatch.device.simulated.view import Answer, View

_UINT, _ULONGLONG, _SINT = 1, 3, 5
_MEMBER_OF_TYPE = {_UINT: "uiVal", _ULONGLONG: "ullVal", _SINT: "siVal"}
_NANOSECONDS = 1_000_000_000


class Value(ctypes.Union):
    """``nvmlValue_t``, a real union: a member of the wrong type reads the same bytes, so -2 read unsigned is 4294967294."""

    _fields_ = (
        ("dVal", ctypes.c_double),
        ("uiVal", ctypes.c_uint),
        ("ulVal", ctypes.c_ulong),
        ("ullVal", ctypes.c_ulonglong),
        ("sllVal", ctypes.c_longlong),
        ("siVal", ctypes.c_int),
        ("usVal", ctypes.c_ushort),
    )


@dataclass(slots=True)
class FieldValue:
    """``nvmlFieldValue_t``."""

    fieldId: int  # noqa: N815 (NVML's own names)
    scopeId: int  # noqa: N815
    nvmlReturn: int  # noqa: N815
    valueType: int  # noqa: N815
    value: Value
    timestamp: int = 0
    latencyUsec: int = 2  # noqa: N815


def field_values(view: View, requests: Iterable[int | tuple[int, int]]) -> list[FieldValue]:
    """One answer a request, each an id or (id, scope id)."""
    return [_field(view, request, 0) if isinstance(request, int) else _field(view, *request) for request in requests]


def _field(view: View, field: int, scope: int) -> FieldValue:
    answer = FieldValue(field, scope, 0, 0, Value())
    refusal = field_refusal(field, board=view.board, driver_branch=view.driver_branch, mig_on=view.instances is not None)
    if refusal is not None or field not in _FIELDS:
        answer.nvmlReturn = refusal or nvml.NOT_SUPPORTED
        return answer
    answer.valueType, read = _FIELDS[field]
    try:
        setattr(answer.value, _MEMBER_OF_TYPE[answer.valueType], read(view, scope))
    except NVMLError as error:
        answer.nvmlReturn, answer.valueType = int(error.value), 0
    return answer


def _policy(policy: int) -> Callable[[View, int], int]:
    return lambda view, _: health.violation_nanoseconds(view, policy)


def _seconds(counter: str) -> Callable[[View, int], int]:
    return lambda view, _: int(getattr(view.gpu.timeline.counters_at(view.t), counter) * _NANOSECONDS)


def _links_in(view: View, scope: int) -> tuple[int, ...]:
    """The links a scope id means."""
    everything = tuple(range(links.link_count(view)))
    if scope == nvml.ALL_LINKS:
        return everything
    if scope not in everything:
        raise NVMLError(nvml.INVALID_ARGUMENT)
    return (scope,)


def _nvlink_kibibytes(view: View, scope: int) -> int:
    total = view.gpu.timeline.counters_at(view.t).nvlink_kibibytes
    return int(total * len(_links_in(view, scope)) / links.link_count(view))


def _nvlink_errors(counter: str) -> Callable[[View, int], int]:
    return lambda view, scope: sum(condition.link_errors(view.gpu, counter, view.t, link=link) for link in _links_in(view, scope))


def _nvlink_total(counter: str) -> Callable[[View, int], int]:
    return lambda view, _: condition.link_errors(view.gpu, counter, view.t, link=None)


def _nvlink_speed(view: View, scope: int) -> int:
    """MB/s of one link in one direction; a link that is down has none."""
    up = [link for link in _links_in(view, scope) if condition.link_is_up(view.gpu, link, view.t)]
    return view.board.nvlink.speed_mb_per_second if up and view.board.nvlink is not None else 0


def _offset(name: str) -> Callable[[View, int], int]:
    def read(view: View, _: int) -> int:
        offset: int | None = getattr(view.board.heat, name)
        if offset is None:
            raise NVMLError(nvml.NOT_SUPPORTED)
        return offset

    return read


_FIELDS: dict[int, tuple[int, Callable[[View, int], int]]] = {
    38: (_ULONGLONG, _nvlink_total("crc")),
    45: (_ULONGLONG, lambda _view, _scope: 0),
    52: (_ULONGLONG, _nvlink_total("replay")),
    59: (_ULONGLONG, _nvlink_total("recovery")),
    74: (_ULONGLONG, _policy(0)),
    75: (_ULONGLONG, _policy(1)),
    76: (_ULONGLONG, _policy(2)),
    77: (_ULONGLONG, _policy(3)),
    78: (_ULONGLONG, _policy(4)),
    79: (_ULONGLONG, _policy(5)),
    82: (_UINT, lambda view, _: activity.memory_temperature(view)),
    83: (_ULONGLONG, lambda view, _: health.energy(view)),
    90: (_UINT, lambda view, _: _nvlink_speed(view, nvml.ALL_LINKS)),
    91: (_UINT, lambda view, _: links.link_count(view)),
    94: (_UINT, lambda view, _: condition.pcie_replays(view.gpu, view.t)),
    138: (_ULONGLONG, _nvlink_kibibytes),
    139: (_ULONGLONG, _nvlink_kibibytes),
    142: (_ULONGLONG, lambda view, _: condition.remap(view.gpu, view.t).corrected),
    143: (_ULONGLONG, lambda view, _: condition.remap(view.gpu, view.t).uncorrected),
    144: (_ULONGLONG, lambda view, _: int(condition.remap(view.gpu, view.t).pending)),
    145: (_ULONGLONG, lambda view, _: int(condition.remap(view.gpu, view.t).failed)),
    161: (_ULONGLONG, _nvlink_errors("replay")),
    162: (_ULONGLONG, _nvlink_errors("recovery")),
    163: (_ULONGLONG, _nvlink_errors("crc")),
    164: (_UINT, _nvlink_speed),
    185: (_UINT, lambda view, _: activity.power(view)),
    186: (_UINT, lambda view, _: activity.instant_power(view)),
    193: (_SINT, _offset("offset_shutdown")),
    194: (_SINT, _offset("offset_slowdown")),
    195: (_SINT, _offset("offset_memory_max")),
    196: (_SINT, _offset("offset_gpu_max")),
    230: (_UINT, lambda view, _: condition.recovery_action(view.gpu, view.t)),
    269: (_ULONGLONG, _seconds("software_thermal_seconds")),
    270: (_ULONGLONG, _seconds("hardware_thermal_seconds")),
    271: (_ULONGLONG, _seconds("power_brake_seconds")),
    301: (_ULONGLONG, lambda _view, _scope: 0),
    302: (_ULONGLONG, lambda _view, _scope: 0),
}
"""Field id → type of its value on a real H200, and where it comes from."""

ANSWERS: dict[str, Answer] = {"nvmlDeviceGetFieldValues": field_values}
