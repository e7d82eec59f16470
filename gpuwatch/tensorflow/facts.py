"""What TensorFlow was told to do in this process: facts that explain a slow training and cost nothing to read.

Where a fact cannot be read its label is empty: none of this may fail a training.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import tensorflow as tf

_MOST_DATASETS: Final = 100
_SOURCES: Final = {
    "TFRecord": "files",
    "TextLine": "files",
    "FixedLengthRecord": "files",
    "Csv": "files",
    "DataService": "service",
    "Interleave": "other",
    "ParallelInterleave": "other",
    "FlatMap": "other",
    "Tensor": "memory",
    "SparseTensor": "memory",
    "Range": "memory",
}
"""By how the name of a class begins, the first that any of them has. What is within an interleave is not seen: its names are in memory."""


def process_facts(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Labels of ``gpuwatch_tensorflow_info`` that hold for the whole process."""
    task = _task(environment.get("TF_CONFIG", ""))
    return {
        "tensorflow": tf.__version__,
        "keras": str(getattr(tf.keras, "__version__", "")),
        "tf32": _yes(tf.config.experimental.tensor_float_32_execution_enabled()),
        "memory_growth": _memory_growth(),
        "task_type": str(task.get("type", "")),
        "task_index": str(task.get("index", "")),
    }


def model_facts(model: Any) -> dict[str, str]:  # noqa: ANN401
    """Those of a Keras model: how it is compiled and distributed."""
    strategy = type(getattr(model, "distribute_strategy", None)).__name__
    policy = getattr(getattr(model, "dtype_policy", None) or getattr(model, "_dtype_policy", None), "name", "")
    return {
        "strategy": "" if strategy == "NoneType" else "none" if "Default" in strategy else strategy,
        "precision_policy": str(policy),
        "jit_compile": _yes(getattr(model, "jit_compile", None)),
        "run_eagerly": _yes(getattr(model, "run_eagerly", None)),
        "steps_per_execution": str(steps_per_execution(model)),
    }


def steps_per_execution(model: Any) -> int:  # noqa: ANN401
    """How many steps one call of the train function makes; 1 where it cannot be read."""
    with contextlib.suppress(AttributeError, TypeError, ValueError):
        # With Keras 2 it is a variable, and one of several parts under a strategy.
        told = getattr(model, "steps_per_execution", None) or model._steps_per_execution  # noqa: SLF001
        return max(int(tf.convert_to_tensor(told)), 1)
    return 1


def replicas_in_sync(model: Any) -> int | None:  # noqa: ANN401
    """Over all processes."""
    return getattr(getattr(model, "distribute_strategy", None), "num_replicas_in_sync", None)


def visible_gpus() -> int:
    """GPUs that TensorFlow may use here."""
    return len(tf.config.get_visible_devices("GPU"))


def gpu_memory(gpus: int) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes that TensorFlow has given out on each GPU, now and at most (source: ``get_memory_info``)."""
    now, peak = {}, {}
    for number in range(gpus):
        with contextlib.suppress(ValueError, RuntimeError, tf.errors.OpError):
            found = tf.config.experimental.get_memory_info(f"GPU:{number}")
            now[f"GPU:{number}"], peak[f"GPU:{number}"] = int(found["current"]), int(found["peak"])
    return now, peak


def dataset_facts(dataset: object) -> dict[str, str]:
    """Labels of ``gpuwatch_tensorflow_dataset_info`` for a dataset or an iterator of one; empty where it cannot be looked into.

    A dataset has no public description of itself: the names of the classes that it is made of are the one trace.
    """
    found = list(_datasets(dataset))
    if not found:
        return {}
    names = [type(one).__name__.lstrip("_") for one in found]
    return {
        "source": _source(names, found),
        "map": _mode(names, "Map"),
        "interleave": _mode(names, "Interleave"),
        "prefetch": _yes(any(name.startswith("Prefetch") for name in names)),
        "cache": _yes(any(name.startswith("Cache") for name in names)),
        "shuffle": _yes(any(name.startswith("Shuffle") for name in names)),
    }


def _datasets(dataset: Any) -> Iterator[Any]:  # noqa: ANN401
    """From what the training takes back to the sources."""
    for name in ("_dataset", "_original_dataset"):
        dataset = getattr(dataset, name, dataset)
    waiting = [dataset] if isinstance(dataset, tf.data.Dataset) else []
    for _ in range(_MOST_DATASETS):
        if not waiting:
            return
        yield (one := waiting.pop())
        with contextlib.suppress(AttributeError, TypeError):
            waiting.extend(one._inputs())  # noqa: SLF001


def _source(names: list[str], found: list[Any]) -> str:
    if any("flat_map_fn" in _function(one) for one in found):
        return "generator"
    for beginning, kind in _SOURCES.items():
        if any(name.startswith(beginning) for name in names):
            return kind
    return "other"


def _function(dataset: Any) -> str:  # noqa: ANN401
    """Name of what a dataset maps with: ``from_generator`` is a dataset of one element, mapped with a function of its own."""
    return str(getattr(getattr(getattr(dataset, "_map_func", None), "function", None), "name", ""))


def _mode(names: list[str], kind: str) -> str:
    """The slowest way in which a pipeline does one kind of thing."""
    ways = [name for name in names if name.removeprefix("Parallel").startswith(kind)]
    if not ways:
        return "none"
    return "parallel" if all(name.startswith("Parallel") for name in ways) else "sequential"


def _memory_growth() -> str:
    """For all GPUs, or nothing where they differ or there are none."""
    ways = {tf.config.experimental.get_memory_growth(gpu) for gpu in tf.config.get_visible_devices("GPU")}
    return _yes(ways.pop()) if len(ways) == 1 else ""


def _task(text: str) -> Mapping[str, object]:
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        task = json.loads(text).get("task", {})
        return task if isinstance(task, dict) else {}
    return {}


def _yes(value: bool | None) -> str:
    return "" if value is None else "true" if value else "false"
