"""A driver that misbehaves on demand: it wraps any driver, passes calls on, notes them, and fails where a test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpuwatch.device import nvml
from gpuwatch.device.nvml import NVMLError

FIELDS_CALL = "nvmlDeviceGetFieldValues"
_WIDE = ("ullVal", 3)


@dataclass(slots=True)
class _Script:
    """What one call does instead of answering. ``times`` left: ``None`` is for ever."""

    gpu: int | None
    act: Callable[[Any], Any]
    times: int | None = None
    needs_answer: bool = False
    """The wrapped driver is asked first."""


class FaultyDriver:
    """Pynvml-shaped. Names of calls are NVML's, or ``field 82`` for one field of ``nvmlDeviceGetFieldValues``.

    ``answered`` holds the names of calls that gave a value; ``log``, when a test sets it to a list, takes every call.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._scripts: dict[str, list[_Script]] = {}
        self.answered: set[str] = set()
        self.log: list[tuple[str, tuple[Any, ...]]] | None = None

    def fail(self, call: str, code: int, *, gpu: int | None = None, times: int | None = None) -> None:
        """From now on ``call`` answers the NVML error ``code`` (``times`` times, or for ever)."""

        def act(_: Any) -> Any:
            raise NVMLError(code)

        self._script(call, _Script(gpu, act, times))

    def remove(self, symbol: str) -> None:
        """The library has no such function: pynvml says so when it is called."""
        self.fail(symbol, nvml.FUNCTION_NOT_FOUND)

    def answer(self, call: str, value: Any, *, gpu: int | None = None) -> None:
        """From now on ``call`` answers ``value``; a function gets the true answer and returns the one to give."""
        self._script(call, _Script(gpu, value if callable(value) else lambda _: value, needs_answer=callable(value)))

    def block(self, call: str, event: threading.Event, *, gpu: int | None = None) -> None:
        """From now on ``call`` answers only once the event is set."""

        def act(true: Any) -> Any:
            event.wait()
            return true

        self._script(call, _Script(gpu, act, needs_answer=True))

    def mend(self) -> None:
        """From now on everything answers as it should."""
        self._scripts.clear()

    def __getattr__(self, call: str) -> Callable[..., Any]:
        function = getattr(self._driver, call)

        def answer(*args: Any, **keywords: Any) -> Any:
            self._note(call, args)
            scripts = self._due(call, args)
            true = None
            if not scripts or scripts[-1].needs_answer:
                true = function(*args, **keywords)
            result: Any = scripts[-1].act(true) if scripts else true
            self.answered.add(call)
            return self._spoil_fields(args, result) if call == FIELDS_CALL else result

        return answer

    def _spoil_fields(self, args: tuple[Any, ...], result: Sequence[Any]) -> Sequence[Any]:
        for request, field in zip(args[1], result, strict=True):
            name = f"field {request[0] if isinstance(request, tuple) else request}"
            self._note(name, args)
            if not field.nvmlReturn:
                self.answered.add(name)
            if scripts := self._due(name, args):
                _spoil(field, scripts[-1])
        return result

    def _note(self, call: str, args: tuple[Any, ...]) -> None:
        if self.log is not None:
            self.log.append((call, args))

    def _script(self, call: str, script: _Script) -> None:
        self._scripts.setdefault(call, []).append(script)

    def _due(self, call: str, args: tuple[Any, ...]) -> list[_Script]:
        if call not in self._scripts:
            return []
        due = [script for script in self._scripts[call] if script.gpu in {None, _gpu_of(call, args)} and script.times != 0]
        if due and due[-1].times is not None:
            due[-1].times -= 1
        return due


def _spoil(field: Any, script: _Script) -> None:
    try:
        value = script.act(None)
    except NVMLError as error:
        field.nvmlReturn = int(error.value)
        return
    member, field.valueType = ("dVal", 0) if isinstance(value, float) else ("sllVal", 4) if value < 0 else _WIDE
    setattr(field.value, member, value)
    field.nvmlReturn = 0


def _gpu_of(call: str, args: tuple[Any, ...]) -> int | None:
    if call == "nvmlDeviceGetHandleByIndex":
        return int(args[0])
    index = getattr(args[0], "index", None) if args else None
    return index if isinstance(index, int) else None
