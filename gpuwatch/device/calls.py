"""Calls to the driver on behalf of one GPU, under one error policy.

========================  =====================================================================================
the driver answers        then
========================  =====================================================================================
a value                   it is returned
not supported, no symbol  ``None``; remembered, not asked again until :meth:`Calls.forget` (hourly, MIG change)
GPU_IS_LOST, twice        :class:`GpuLost`: the pass ends, the GPU is down, the others go on
any other error           ``None`` this time, counted by call and error; so is an exception that is not NVML's
========================  =====================================================================================

One wrong answer never takes a GPU down: a GPU is down when it says it is lost in two different calls, or when a whole pass
brings no answer at all (:meth:`Calls.end_pass`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from gpuwatch.device import nvml
from gpuwatch.device.nvml import Driver, NVMLError
from gpuwatch.device.readings import NvmlError

_REFUSALS = frozenset(
    {
        nvml.NOT_SUPPORTED,
        nvml.FUNCTION_NOT_FOUND,
        nvml.ARGUMENT_VERSION_MISMATCH,
        nvml.DEPRECATED,
        nvml.VGPU_ECC_NOT_SUPPORTED,
    }
)
"""The board or the driver lacks it: a fact about the hardware, no error."""
_STANDING = frozenset({nvml.INVALID_ARGUMENT, nvml.NO_PERMISSION})
"""Errors that stay as they are when the very first answer was one: counted once, then not asked again."""
_INSTANCE_CALLS = frozenset({"nvmlGpmMigSampleGet"})
"""Calls about a MIG instance that go to the GPU's own handle."""
_LOST_CALLS_NEEDED = 2
_ALL_ONES = 0xFFFFFFFF
FIELDS_CALL = "nvmlDeviceGetFieldValues"


class GpuLost(Exception):  # noqa: N818 (a state of the GPU)
    """The GPU said GPU_IS_LOST in two different calls."""


class Calls:
    """Asks the driver about one GPU. Used by one thread only.

    ``unsupported`` maps what this GPU refuses to the error's name; ``rejected`` counts values outside their physical range.
    """

    def __init__(self, driver: Driver, handle: Any = None) -> None:
        self.driver = driver
        self.handle = handle
        self.unsupported: dict[str, str] = {}
        self.rejected: Counter[str] = Counter()
        self._errors: Counter[tuple[str, str]] = Counter()
        self._answered_ever: set[str] = set()
        self._lost_calls: set[str] = set()
        self._answered = 0
        self._failed: Counter[str] = Counter()

    def ask(
        self,
        call: str,
        *args: Any,
        on: Any = None,
        nothing: Sequence[int] = (),
        empty: Any = None,
        version: int | None = None,
        key: str = "",
    ) -> Any:
        """Result of ``call(handle, *args)``, or ``None`` under the policy above.

        ``on`` asks another handle (a MIG instance); the codes in ``nothing`` mean "there is none", are neither counted nor remembered,
        and bring ``empty``; ``key`` names the question where its arguments are no part of it (a point in time).
        """
        key = key or _key(call, args, version=version, mig=on is not None)
        if key in self.unsupported:
            return None
        keywords = {} if version is None else {"version": version}
        try:
            result = self._function(call)(self.handle if on is None else on, *args, **keywords)
        except NVMLError as error:
            if error.value in nothing:
                return empty
            self._note(call, key, error, passing=on is not None or call in _INSTANCE_CALLS)
            return None
        except UnicodeDecodeError as error:
            result = error.object.decode(errors="replace")
        except Exception as error:  # noqa: BLE001 (the binding stumbled over an answer: the call failed, not the GPU)
            self._count_failure(call, type(error).__name__)
            return None
        self._answer(key)
        return result

    def ask_driver(self, call: str, *args: Any) -> Any:
        """As :meth:`ask`, for calls that take no device handle (GPM samples)."""
        if call in self.unsupported:
            return None
        try:
            result = self._function(call)(*args)
        except NVMLError as error:
            self._note(call, call, error)
            return None
        except Exception as error:  # noqa: BLE001 (as above)
            self._count_failure(call, type(error).__name__)
            return None
        self._answer(call)
        return result

    def fields(self, *requests: int | tuple[int, int]) -> dict[int | tuple[int, int], float | int]:
        """Values of the NVML fields that answered, by field id or (field id, scope id). One driver call; each has its own return code."""
        wanted = [request for request in requests if _field_key(request) not in self.unsupported]
        if not wanted:
            return {}
        answers = self.ask(FIELDS_CALL, wanted)
        values: dict[int | tuple[int, int], float | int] = {}
        for request, field in zip(wanted, answers or (), strict=False):
            key = _field_key(request)
            if field.nvmlReturn == nvml.INVALID_ARGUMENT and key not in self._answered_ever:
                self.unsupported[key] = nvml.ERROR_NAMES[nvml.INVALID_ARGUMENT]  # a field newer than the driver: no error
            elif field.nvmlReturn:
                self._note(FIELDS_CALL, key, NVMLError(field.nvmlReturn))
            elif (value := nvml.field_value(field)) is not None:
                self._answer(key)
                values[request] = value
        return values

    def check(self, name: str, value: float | None, low: float, high: float) -> float | None:
        """The value when it lies in its physical range; else it is dropped and counted under ``name``."""
        if value is None or low <= value <= high:
            return value
        self.rejected[name] += 1
        return None

    def check_whole(self, name: str, value: float | None, low: int, high: int) -> int | None:
        """:meth:`check` for whole numbers."""
        checked = self.check(name, value, low, high)
        return None if checked is None else int(checked)

    def check_count(self, name: str, value: float | None, high: int = 1 << 62) -> int | None:
        """:meth:`check_whole` from zero; all ones of 32 or 64 bits mean "not available" and are out of range."""
        return self.check_whole(name, -1 if value == _ALL_ONES else value, 0, high)

    def refuses(self, call: str, *args: Any, version: int | None = None, mig: bool = False) -> bool:
        """True when this GPU is known not to support that call."""
        return _key(call, args, version=version, mig=mig) in self.unsupported

    def forget(self) -> None:
        """Ask everything anew: after a reset, a MIG change, and once in a while."""
        self.unsupported.clear()
        self._answered_ever.clear()

    def begin_pass(self) -> None:
        """Start judging the answers of one pass."""
        self._answered = 0
        self._failed.clear()
        self._lost_calls.clear()

    def end_pass(self) -> str:
        """Empty when the pass brought at least one answer (or asked nothing); else the commonest error, in lower case."""
        if self._answered or not self._failed:
            return ""
        return self._failed.most_common(1)[0][0].lower()

    @property
    def complete(self) -> bool:
        """True when nothing has failed since the pass began; what the board refuses is no failure."""
        return not self._failed

    def take_errors(self) -> tuple[NvmlError, ...]:
        """Errors counted since the last call of this method."""
        errors = tuple(NvmlError(call=call, error=error, count=count) for (call, error), count in self._errors.items())
        self._errors.clear()
        return errors

    def take_rejected(self) -> dict[str, int]:
        """Rejected values counted since the last call of this method, by field."""
        rejected = dict(self.rejected)
        self.rejected.clear()
        return rejected

    def add_counts(self, errors: Iterable[NvmlError], rejected: dict[str, int]) -> None:
        """Add what another :class:`Calls` of the same GPU has counted."""
        for error in errors:
            self._errors[error.call, error.error] += error.count
        self.rejected.update(rejected)

    def count_error(self, call: str, error: NVMLError) -> None:
        """Count a failure outside a pass (opening the handle, for one)."""
        self._errors[call, nvml.error_name(error)] += 1

    def count_mistake(self, error: Exception) -> None:
        """Count an unexpected Python error (a mistake of this code, or an answer of a shape nobody has seen) under its type."""
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = "unknown" if frame is None else frame.tb_frame.f_code.co_name
        self._errors[place, type(error).__name__] += 1

    def _function(self, call: str) -> Any:
        try:
            return getattr(self.driver, call)
        except AttributeError:
            raise NVMLError(nvml.FUNCTION_NOT_FOUND) from None

    def _answer(self, key: str) -> None:
        self._answered += 1
        self._answered_ever.add(key)

    def _count_failure(self, call: str, name: str) -> None:
        self._errors[call, name] += 1
        self._failed[name] += 1

    def _note(self, call: str, key: str, error: NVMLError, *, passing: bool = False) -> None:
        """``passing``: what was asked may be gone (a MIG instance), so that "invalid" says nothing about the board."""
        name = nvml.error_name(error)
        code = int(error.value)
        if code in _REFUSALS and key not in self._answered_ever:
            self.unsupported[key] = name
            return
        if code in _REFUSALS:
            # It answered before: once is a surprise (counted), twice in a row is a board that changed, as when MIG is switched on.
            self._answered_ever.discard(key)
        self._count_failure(call, name)
        standing = code in _STANDING and not (passing and code == nvml.INVALID_ARGUMENT)
        if standing and key not in self._answered_ever:
            self.unsupported[key] = name
        if code == nvml.GPU_IS_LOST:
            self._lost_calls.add(call)
            if len(self._lost_calls) >= _LOST_CALLS_NEEDED:
                raise GpuLost


def _key(call: str, args: tuple[Any, ...], *, version: int | None, mig: bool) -> str:
    """Name under which a refusal is remembered: the call with its plain arguments, e.g. ``nvmlDeviceGetClockInfo(3)``."""
    plain = [str(argument) for argument in args if isinstance(argument, (int, str))]
    if version is not None:
        plain.append(f"version={version}")
    return f"{call}{' of MIG instance' if mig else ''}" + (f"({','.join(plain)})" if plain else "")


def _field_key(request: int | tuple[int, int]) -> str:
    return f"field {request}" if isinstance(request, int) else f"field {request[0]} scope {request[1]}"
