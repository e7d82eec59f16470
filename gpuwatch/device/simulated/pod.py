"""Pods of a scenario: what the kubelet, the API server and /proc would say of a simulated node."""

from __future__ import annotations

import math
import re
from typing import Literal

import msgspec

DEVICE = re.compile(r"(?P<gpu>[0-9]{1,2})(?:/(?P<mig>[0-9]))?(?:::(?P<replica>[0-9]{1,3}))?")
"""``3``: GPU 3. ``0/1``: MIG device 1 of GPU 0. ``3::0``: time-sliced share 0 of GPU 3."""


class PodOwner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The controlling owner."""

    group: str = ""
    kind: str
    name: str


class ReplicaOf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Short for a replica of a TFJob: labels, owner, container and TF_CONFIG as the training operator writes them.

    ``cluster``: how many replicas of each type the job has.
    """

    name: str
    type: Literal["chief", "worker", "ps", "evaluator"]
    index: int = 0
    cluster: dict[str, int] = {}


class ScenarioPod(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pod from ``from`` to ``until`` (seconds of the scenario); left out: always."""

    name: str
    namespace: str = "default"
    devices: tuple[str, ...] = ()
    """In the form of :data:`DEVICE`; empty: it asked for none."""
    pids: tuple[int, ...] | None = None
    """Its processes; left out: every process on the devices it has for itself."""
    container: str = "main"
    image: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    environment: dict[str, str] = {}
    owner: PodOwner | None = None
    tfjob: ReplicaOf | None = None
    phase: str = "Running"
    from_: float = msgspec.field(name="from", default=0.0)
    until: float | None = None

    def covers(self, t: float) -> bool:
        """True while the pod exists."""
        return self.from_ <= t < (math.inf if self.until is None else self.until)


def check_pods(pods: tuple[ScenarioPod, ...], gpu_count: int, *, where: str) -> str:
    """What is wrong with the pods, as one line; empty when nothing is."""
    seen: set[tuple[str, str, float]] = set()
    for number, pod in enumerate(pods):
        key = (pod.namespace, pod.name, pod.from_)
        if key in seen:
            return f"{where}[{number}]: {pod.namespace}/{pod.name} stands twice"
        seen.add(key)
        if not 0.0 <= pod.from_ < (math.inf if pod.until is None else pod.until):
            return f"{where}[{number}]: from is {pod.from_} and until is {pod.until}; expected 0 <= from < until"
        for device in pod.devices:
            match = DEVICE.fullmatch(device)
            if match is None or int(match["gpu"]) >= gpu_count:
                return f'{where}[{number}].devices: {device!r}; expected a GPU from 0 to {gpu_count - 1}, such as "0", "0/1" or "0::1"'
    return ""
