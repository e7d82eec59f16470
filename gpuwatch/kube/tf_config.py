"""The task that TensorFlow's ``TF_CONFIG`` gives a container.

Source: the environment in the pod's spec. TFJob and Volcano write it, and so do people by hand. Only the task is read: the cluster beside
it may be dense (lists of addresses), sparse (index to address, with dynamic workers) or absent, and says nothing about this pod.
"""

from __future__ import annotations

import re

import msgspec

from gpuwatch.device.readings import Struct
from gpuwatch.kube.objects import Pod

VARIABLE = "TF_CONFIG"
_MAX_LENGTH = 1 << 20
"""A cluster of ten thousand addresses stays below it; the API server allows a pod 1.5 MiB in all."""
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
_INDEX = re.compile(r"[0-9]{1,9}")


class Task(Struct, frozen=True, kw_only=True):
    """What one container does in its cluster. ``type``: ``chief``, ``master``, ``worker``, ``ps``, ``evaluator``; ``index``: digits.

    Either is empty where it is not told.
    """

    type: str = ""
    index: str = ""


class _Written(msgspec.Struct, frozen=True):
    """The part of the document that is read; what else stands in it is skipped without being built."""

    task: msgspec.Raw = msgspec.Raw(b"null")


_DECODER = msgspec.json.Decoder(_Written)


def task_of(pod: Pod) -> Task | None:
    """Return the task of ``pod``, or ``None`` when no container has a ``TF_CONFIG`` that can be read.

    With several, that of the container named ``tensorflow`` counts (TFJob's own), else the first.
    """
    for container in sorted(pod.containers, key=lambda container: container.name != "tensorflow"):
        task = parse_tf_config(container.environment.get(VARIABLE, ""))
        if task is not None:
            return task
    return None


def parse_tf_config(text: str) -> Task | None:
    """Return the task in ``text``, or ``None`` when it is no TF_CONFIG. Never raises: users write this text by hand."""
    if not text or len(text) > _MAX_LENGTH:
        return None
    try:
        task = msgspec.json.decode(_DECODER.decode(text).task)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    if task is None:
        return Task()
    if not isinstance(task, dict):
        return None
    return Task(type=_type(task.get("type")), index=_index(task.get("index")))


def shorten_tf_config(text: str) -> str:
    """Return a TF_CONFIG with the task of ``text`` alone, so that a cluster of thousands of addresses need not be kept.

    A text that is no TF_CONFIG becomes empty: that the variable was there still tells TensorFlow.
    """
    task = parse_tf_config(text)
    if task is None:
        return ""
    written = {key: value for key, value in (("type", task.type), ("index", task.index)) if value}
    return msgspec.json.encode({"task": written} if written else {}).decode()


def _type(value: object) -> str:
    return value.lower() if isinstance(value, str) and _TYPE.fullmatch(value) else ""


def _index(value: object) -> str:
    """Digits; some write the index as text."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**9 else value
    return str(int(text)) if isinstance(text, str) and _INDEX.fullmatch(text) else ""
