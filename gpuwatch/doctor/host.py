"""What the driver left on this machine: its library and its device files."""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
from pathlib import Path

import msgspec

from gpuwatch.doctor.lines import line

LIBRARY = "libnvidia-ml.so.1"
"""NVML, part of the driver (not of CUDA)."""

_DEVICE_GLOBS = ("nvidiactl", "nvidia[0-9]*", "nvidia-uvm", "nvidia-caps/nvidia-cap[0-9]*")


class DeviceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A device file of the driver, as this user may use it. ``owner`` and ``mode`` as ``ls -l`` shows them."""

    path: str
    usable: bool
    owner: str = ""
    mode: str = ""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver left on this machine."""

    library_path: str = ""
    library_error: str = ""
    device_files: tuple[DeviceFile, ...] = ()


def probe_host() -> Host:
    """Look for the driver's library and device files on this machine. Opens no GPU: the library is loaded, not initialised."""
    path, error = _find_library()
    files = sorted(found for pattern in _DEVICE_GLOBS for found in Path("/dev").glob(pattern))
    return Host(library_path=path, library_error=error, device_files=tuple(map(_device_file, files)))


def _find_library() -> tuple[str, str]:
    """Where the loader finds NVML, or its complaint. Source: dlopen and ``/proc/self/maps``."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        return "", str(error)
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return next((line.split(maxsplit=5)[-1] for line in maps.splitlines() if "libnvidia-ml" in line), LIBRARY), ""


def _device_file(path: Path) -> DeviceFile:
    try:
        status = path.stat()
    except OSError as error:
        return DeviceFile(path=str(path), usable=False, owner=error.strerror or "unreadable")
    try:
        owner = f"{pwd.getpwuid(status.st_uid).pw_name}:{grp.getgrgid(status.st_gid).gr_name}"
    except KeyError:
        owner = f"{status.st_uid}:{status.st_gid}"
    return DeviceFile(path=str(path), usable=os.access(path, os.R_OK | os.W_OK), owner=owner, mode=f"{status.st_mode & 0o777:o}")


def host_lines(host: Host) -> list[str]:
    """Whether both are there and may be used."""
    library = line("library", host.library_path or f"not found: {host.library_error}", good=bool(host.library_path))
    if not host.device_files:
        return [library, line("devices", "no /dev/nvidia* here: no driver, or the container was not given the GPUs", good=False)]
    broken = [file for file in host.device_files if not file.usable]
    if not broken:
        return [library, line("devices", f"{len(host.device_files)} device files, all readable and writable", good=True)]
    return [library] + [
        line("devices", f"{file.path} ({file.owner} {file.mode}): no read and write access for user id {os.getuid()}", good=False)
        for file in broken
    ]
