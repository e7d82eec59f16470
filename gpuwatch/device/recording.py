"""``gpuwatch record``: what a real driver answered, call by call, without anything that identifies the machine.

The real reader runs over a driver that notes every answer, so a recording holds exactly the calls gpuwatch makes, in their order.
Format (JSON): ``answers`` maps ``target|call|arguments`` to the list of answers in order; a list of one means "always this".
``target`` is empty, ``gpu<index>`` or ``gpu<index>/mig<slot>``. An answer is plain JSON, ``{"error": code}``,
``{"handle": target}`` or ``{"struct": {name: value}}``. NVML fields and GPM metrics are kept one by one.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gpuwatch import __version__
from gpuwatch.device import nvml
from gpuwatch.device.calls import FIELDS_CALL
from gpuwatch.device.gpu_thread import GpuThread
from gpuwatch.device.nvml import Driver, NVMLError
from gpuwatch.device.wire import ReaderOptions

FORMAT: Final = 1
SAMPLE_CALLS: Final = ("nvmlGpmSampleGet", "nvmlGpmMigSampleGet")
FIELD_PARTS: Final = ("nvmlReturn", "valueType", "value")
_UNRECORDED = ("nvmlGpmSampleFree",)


class RecordingDriver:
    """Passes every call on to ``driver`` and notes the answer. Safe to use from several threads."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []
        self.answers: dict[str, list[Any]] = {}

    def __getattr__(self, call: str) -> Callable[..., Any]:
        function = getattr(self._driver, call)

        def noted(*args: Any, **keywords: Any) -> Any:
            try:
                result = function(*args, **keywords)
            except NVMLError as error:
                self._note(call, args, keywords, {"error": int(error.value)})
                raise
            self._note(call, args, keywords, result)
            return result

        return noted

    def gpm_metrics(self, first: Any, second: Any, ids: tuple[int, ...]) -> dict[int, float]:
        """See :meth:`gpuwatch.device.nvml.RealDriver.gpm_metrics`."""
        metrics: dict[int, float] = self._driver.gpm_metrics(first, second, ids)
        self._add(f"{self._target(second)}|gpm_metrics|", {str(metric): value for metric, value in metrics.items()})
        return metrics

    def _note(self, call: str, args: tuple[Any, ...], keywords: dict[str, Any], result: Any) -> None:
        if call in _UNRECORDED:
            return
        if call == FIELDS_CALL:
            self._note_fields(args[0], args[1], result)
            return
        target, plain = self._split(args)
        if call in SAMPLE_CALLS:
            self._name(args[-1], target + (f"/gi{args[1]}" if len(args) > 2 else ""))  # noqa: PLR2004 (handle, instance, sample)
        plain += [f"{name}={value}" for name, value in keywords.items()]
        self._add(f"{target}|{call}|{','.join(plain)}", self._encode(call, target, args, result))

    def _note_fields(self, handle: Any, requests: list[Any], result: Any) -> None:
        target = self._target(handle)
        failed = isinstance(result, dict)
        for slot, request in enumerate(requests):
            answer = result if failed else _field(result[slot])
            name = f"{request[0]}@{request[1]}" if isinstance(request, tuple) else str(request)
            self._add(f"{target}|{FIELDS_CALL}|{name}", answer)

    def _encode(self, call: str, target: str, args: tuple[Any, ...], result: Any) -> Any:
        if call.startswith(("nvmlDeviceGetHandleBy", "nvmlDeviceGetMigDeviceHandle")):
            if isinstance(result, dict):
                return result
            name = f"{target}/mig{args[1]}" if target else self._gpu_name(args[0])
            self._name(result, name)
            return {"handle": name}
        if call in (*SAMPLE_CALLS, "nvmlGpmSampleAlloc"):
            return result if isinstance(result, dict) else None
        return encode_value(result)

    def _gpu_name(self, argument: Any) -> str:
        """By index; a UUID was told by the GPU before."""
        if isinstance(argument, int):
            return f"gpu{argument}"
        return next(key.split("|")[0] for key, told in self.answers.items() if argument in told and key.endswith("|nvmlDeviceGetUUID|"))

    def _split(self, args: tuple[Any, ...]) -> tuple[str, list[str]]:
        target = self._target(args[0]) if args and not isinstance(args[0], (int, str)) else ""
        return target, [str(argument) for argument in args if isinstance(argument, (int, str))]

    def _target(self, handle: Any) -> str:
        return self._names.get(id(handle), "")

    def _name(self, handle: Any, name: str) -> None:
        with self._lock:
            self._names[id(handle)] = name
            self._kept.append(handle)  # an id is only good while the object lives

    def _add(self, key: str, answer: Any) -> None:
        with self._lock:
            self.answers.setdefault(key, []).append(answer)


def encode_value(value: Any) -> Any:
    """Plain JSON of what pynvml returns."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if value is None or isinstance(value, (bool, int, float, str, dict)):
        return value
    if isinstance(value, (list, tuple)):
        return [encode_value(one) for one in value]
    if isinstance(value, ctypes.Structure):
        names = [str(field[0]) for field in value._fields_]
        return {
            "struct": {name: encode_value(getattr(value, name)) for name in names if not isinstance(getattr(value, name), ctypes.Array)}
        }
    return {"struct": {name: encode_value(one) for name, one in vars(value).items()}}


def _field(field: Any) -> dict[str, Any]:
    value = None if field.nvmlReturn else nvml.field_value(field)
    return dict(zip(FIELD_PARTS, (int(field.nvmlReturn), int(field.valueType), value), strict=True))


def record(output: Path, seconds: float, *, driver: Driver | None = None) -> None:
    """Read this node's GPUs for ``seconds`` with the real reader and write the anonymised answers to ``output``.

    Raises:
        NVMLError: the driver cannot be started.
        OSError: the file cannot be written.
    """
    recorder = RecordingDriver(driver or nvml.RealDriver())
    recorder.nvmlInit()
    output.touch()  # what cannot be written is said now, not after the recording
    for call in ("nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion", "nvmlSystemGetCudaDriverVersion"):
        with contextlib.suppress(NVMLError, AttributeError, ValueError):  # a version that is not told stops no reading either
            getattr(recorder, call)()
    options = ReaderOptions(fast_seconds=1.0, medium_seconds=10.0)
    gpus = [GpuThread(recorder, index, options=options, emit=lambda _: None) for index in range(recorder.nvmlDeviceGetCount())]
    threads = [threading.Thread(target=_read_for, args=(gpu, seconds), daemon=True) for gpu in gpus]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 60.0)
    recording = {"format": FORMAT, "gpuwatch": __version__, "seconds": seconds, "answers": compact(recorder.answers)}
    output.write_text(json.dumps(anonymise(recording), indent=0, sort_keys=True) + "\n")


def _read_for(gpu: GpuThread, seconds: float) -> None:
    """What ``gpuwatch once`` does, then a pass a second until the time is over."""
    gpu.read_once(lambda: time.sleep(1.0))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(1.0, max(end - time.monotonic(), 0.0)))
        gpu.read_both_tiers()


def compact(answers: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """A call that always answered the same is kept once."""
    return {key: told[:1] if all(one == told[0] for one in told) else told for key, told in answers.items()}


def anonymise(recording: dict[str, Any]) -> dict[str, Any]:
    """Replace UUIDs, serial numbers and process ids, each by the same made-up one wherever it stands."""
    replaced: dict[str, str] = {}
    serials = 0
    for key, told in sorted(recording["answers"].items()):
        if key.endswith("|nvmlDeviceGetUUID|"):
            for uuid in told:
                number = sum(one.startswith(str(uuid)[:3]) for one in replaced)
                replaced.setdefault(str(uuid), f"{str(uuid)[:3]}-00000000-0000-4000-8000-{number:012d}")
        if key.endswith("|nvmlDeviceGetSerial|"):
            for serial in {one for one in told if isinstance(one, str)} - replaced.keys():
                replaced[serial] = f"{1_650_000_000_000 + serials}"
                serials += 1
    pids: dict[int, int] = {}
    return {**recording, "answers": {_renamed(key, replaced): _cleaned(told, replaced, pids) for key, told in recording["answers"].items()}}


def _renamed(key: str, replaced: dict[str, str]) -> str:
    head, _, arguments = key.rpartition("|")
    return f"{head}|{replaced.get(arguments, arguments)}"


def _cleaned(value: Any, replaced: dict[str, str], pids: dict[int, int]) -> Any:
    if isinstance(value, str):
        return replaced.get(value, value)
    if isinstance(value, list):
        return [_cleaned(one, replaced, pids) for one in value]
    if isinstance(value, dict):
        return {
            name: pids.setdefault(one, 1000 + len(pids)) if name == "pid" else _cleaned(one, replaced, pids) for name, one in value.items()
        }
    return value
