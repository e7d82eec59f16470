"""What the kernel's files about a process say: in which pod and container it runs, and when it started.

The path of a pod's cgroup differs with the container runtime, the cgroup driver and version, and the kind of cluster, but all forms have
the pod's UID behind ``pod`` and the container's id of 64 hex digits behind that. So both are searched for, never expected at a place.
"""

from __future__ import annotations

import re

from gpuwatch.device.readings import Struct

_POD = re.compile(
    r"(?<![0-9A-Za-z])pod"
    # A UUID, with underscores where systemd made the path; or the 32 digits of a static pod, which are the hash of its manifest.
    r"([0-9a-f]{8}([-_])[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{12}|[0-9a-f]{32})"
    r"(?![0-9A-Za-z])"
)
_CONTAINER = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_TICKS = re.compile(r"[0-9]{1,20}")
_LINE_PARTS = 3
_STATE, _START = 0, 19
"""``state`` and ``starttime`` among the fields of ``/proc/PID/stat`` behind the name (fields 3 and 22 of proc(5))."""
_ENDED = ("Z", "X", "x")
"""Zombie and dead: such a process has left its cgroup already."""


class ProcFileError(Exception):
    """A file of the kernel is cut off, or makes no sense. The text says how."""


class Place(Struct, frozen=True, kw_only=True):
    """Where a process runs: both empty for one outside every container."""

    pod_uid: str = ""
    """With dashes, as the API server writes it; a static pod's is the hash in its annotation ``kubernetes.io/config.hash``."""
    container_id: str = ""
    """64 hex digits."""


def read_place(text: str) -> Place:
    """Find pod and container in a ``/proc/PID/cgroup``.

    A line of cgroup v2 is ``0::PATH``, one of v1 is ``N:CONTROLLERS:PATH``; a host may have both. In nested clusters a path names an outer
    pod and an inner one: the last is the process's own. Without a pod in it, a path may still tell the container: so it is for a neighbour
    container seen from a private cgroup namespace.

    Raises:
        ProcFileError: Half a file, no such file, or lines that name different pods.
    """
    if not text.endswith("\n"):
        raise ProcFileError("cgroup file ends within a line")
    places = []
    for line in text[:-1].split("\n"):
        parts = line.split(":", 2)  # the path may have colons of its own
        if len(parts) != _LINE_PARTS or not parts[2].startswith("/"):
            raise ProcFileError(f"line of cgroup file is {line[:80]!r}, expected NUMBER:CONTROLLERS:/PATH")
        places.append(_place_of(parts[2]))
    uids = {place.pod_uid for place in places if place.pod_uid}
    if len(uids) > 1:
        raise ProcFileError(f"lines of cgroup file name {len(uids)} pods: {', '.join(sorted(uids))}")
    # Controllers that are not split by container stay at the pod or the root, so the line that tells most counts.
    return max(places, key=lambda place: (bool(place.pod_uid), bool(place.container_id)))


def read_start(text: str) -> int | None:
    """Start time of a process in clock ticks since boot, from ``/proc/PID/stat``; ``None`` when it has ended and only waits to be reaped.

    Raises:
        ProcFileError: Half a file, or no such file.
    """
    # The name, in parentheses, may hold spaces and parentheses itself.
    _, closed, rest = text.rpartition(")")
    fields = rest.split(" ")[1:]
    # The field behind it proves that the start time is not cut off.
    if not closed or len(fields) <= _START + 1 or not _TICKS.fullmatch(fields[_START]):
        raise ProcFileError(f"stat file is {text[:80]!r}, expected a start time in field 22")
    return None if fields[_STATE] in _ENDED else int(fields[_START])


def _place_of(path: str) -> Place:
    pods = list(_POD.finditer(path))
    containers = _CONTAINER.findall(path, pods[-1].end() if pods else 0)
    return Place(pod_uid=pods[-1][1].replace("_", "-") if pods else "", container_id=containers[-1] if containers else "")
