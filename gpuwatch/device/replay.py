"""Plays a recording made by :mod:`gpuwatch.device.recording`: pynvml-shaped, so that everything above it is the real code."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gpuwatch.device import nvml
from gpuwatch.device.calls import FIELDS_CALL
from gpuwatch.device.nvml import NVMLError
from gpuwatch.device.recording import FORMAT, SAMPLE_CALLS

_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
Answers = dict[str, list[Any]]


class RecordingError(ValueError):
    """The file is no recording; one line that names what is wrong."""


def load_recording(path: str | Path) -> Answers:
    """Answers of a recording by ``target|call|arguments``.

    Raises:
        RecordingError: the file cannot be read or is no recording of this format.
    """
    try:
        recording = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise RecordingError(f"recording {path}: {error}") from error
    if not isinstance(recording, dict) or recording.get("format") != FORMAT or not isinstance(recording.get("answers"), dict):
        raise RecordingError(f"recording {path}: expected an object with format {FORMAT} and answers")
    told: object
    for key, told in recording["answers"].items():
        if not isinstance(told, list) or not told:
            raise RecordingError(f"recording {path}: {key!r} has no list of answers")
    return dict(recording["answers"])


class _Handle:
    """A device or a sample of the recording."""

    __slots__ = ("target",)

    def __init__(self, target: str) -> None:
        self.target = target


class ReplayDriver:
    """Answers each call with what was recorded for it, one after the other; the last answer stays. Safe to use from several threads.

    A call that was never made in the recording is not supported.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._turn: dict[str, int] = {}
        self._lock = threading.Lock()

    def __getattr__(self, call: str) -> Callable[..., Any]:
        if not call.startswith(("nvml", "fabric_info")):
            raise AttributeError(call)

        def answer(*args: Any, **keywords: Any) -> Any:
            target = args[0].target if args and isinstance(args[0], _Handle) else ""
            plain = [str(one) for one in args if isinstance(one, (int, str))]
            plain += [f"{name}={value}" for name, value in keywords.items()]
            result = _revived(self._next(f"{target}|{call}|{','.join(plain)}"))
            if call in SAMPLE_CALLS:
                args[-1].target = target + (f"/gi{args[1]}" if len(args) > 2 else "")  # noqa: PLR2004 (handle, instance, sample)
                return args[-1]
            return result

        return answer

    def nvmlGpmSampleAlloc(self) -> _Handle:  # noqa: N802 (pynvml's naming)
        """A sample that remembers whose it is; refused where the recorded driver refused it."""
        self._next("|nvmlGpmSampleAlloc|")
        return _Handle("")

    def nvmlGpmSampleFree(self, sample: _Handle) -> None:  # noqa: N802
        """Nothing to free."""

    def nvmlDeviceGetFieldValues(self, handle: _Handle, requests: Sequence[int | tuple[int, int]]) -> list[Any]:  # noqa: N802
        """One answer per field, each with its own return code."""
        fields = []
        for request in requests:
            name = f"{request[0]}@{request[1]}" if isinstance(request, tuple) else str(request)
            try:
                told = self._next(f"{handle.target}|{FIELDS_CALL}|{name}")
            except NVMLError as error:
                told = {"nvmlReturn": int(error.value), "valueType": 0, "value": None}
            value = SimpleNamespace(**dict.fromkeys(_MEMBERS, told["value"]))
            fields.append(SimpleNamespace(nvmlReturn=told["nvmlReturn"], valueType=told["valueType"], value=value))
        return fields

    def gpm_metrics(self, _first: _Handle, second: _Handle, ids: Sequence[int]) -> dict[int, float]:
        """See :meth:`gpuwatch.device.nvml.RealDriver.gpm_metrics`."""
        told = self._next(f"{second.target}|gpm_metrics|")
        return {metric: told[str(metric)] for metric in ids if str(metric) in told}

    def _next(self, key: str) -> Any:
        told = self._answers.get(key)
        if told is None:
            raise NVMLError(nvml.NOT_SUPPORTED)
        with self._lock:
            turn = self._turn.get(key, 0)
            self._turn[key] = turn + 1
        answer = told[min(turn, len(told) - 1)]
        if isinstance(answer, dict) and "error" in answer:
            raise NVMLError(answer["error"])
        return answer


def _revived(value: Any) -> Any:
    if isinstance(value, list):
        return [_revived(one) for one in value]
    if isinstance(value, dict) and "handle" in value:
        return _Handle(value["handle"])
    if isinstance(value, dict) and "struct" in value:
        return SimpleNamespace(**{name: _revived(one) for name, one in value["struct"].items()})
    return value
