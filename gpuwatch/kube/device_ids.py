"""What a device id says: each device plugin writes its own strings, and the shape of a string tells what it means.

The id goes before the resource name, because operators rename resources (``nvidia.com/gpu.shared``, or anything else) and never ids.
"""

from __future__ import annotations

import re
from typing import Literal

from gpuwatch.device.readings import Struct

DeviceKind = Literal["gpu", "mig", "all", "tegra", "unknown"]

_MAX_LENGTH = 256
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NUMBER = r"[0-9]{1,6}"
_REPLICA = re.compile(rf"(?P<id>.*)::(?P<replica>{_NUMBER})")
_GPU = re.compile(rf"(?P<gpu>GPU-{_UUID})(?:-(?P<replica>{_NUMBER}))?")
_MIG = re.compile(rf"MIG-{_UUID}")
_OLD_MIG = re.compile(rf"MIG-(?P<gpu>GPU-{_UUID})/(?P<gi>{_NUMBER})/(?P<ci>{_NUMBER})")
_MINOR = re.compile(rf"nvidia(?P<minor>{_NUMBER})(?:/gi(?P<gi>{_NUMBER}))?(?:/vgpu(?P<replica>{_NUMBER}))?")


class DeviceId(Struct, frozen=True, kw_only=True):
    """A device id taken apart. Of ``gpu_uuid``, ``mig_uuid`` and ``minor_number`` those are set that the id tells."""

    kind: DeviceKind = "unknown"
    """``all``: every GPU of the node (WSL). ``tegra``: the GPU inside a Jetson. ``unknown``: no NVIDIA device that NVML could know."""
    gpu_uuid: str = ""
    """UUID of the physical GPU, as NVML writes it."""
    mig_uuid: str = ""
    """UUID of a MIG instance, as NVML writes it: drivers before R470 use ``MIG-GPU-<uuid>/<gi>/<ci>`` themselves."""
    minor_number: int | None = None
    """N of ``/dev/nvidiaN``. It is not NVML's index."""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    replica: int | None = None
    """Which share of a device that is given out several times; shares of one device are the same device."""


def parse_device_id(device_id: str) -> DeviceId:
    """Take a device id apart by its shape; never raises.

    Knows NVIDIA's device plugin (``GPU-…``, ``MIG-…``, ``…::n`` of time-slicing and MPS, ``all``, ``tegra``), GKE's
    (``nvidia0/gi1/vgpu2``) and HAMi's (``GPU-…-n``).
    """
    if len(device_id) > _MAX_LENGTH:
        return DeviceId()
    replica = None
    if match := _REPLICA.fullmatch(device_id):
        device_id, replica = match["id"], int(match["replica"])
    if device_id == "all":
        return DeviceId(kind="all", replica=replica)
    if device_id == "tegra":
        return DeviceId(kind="tegra", replica=replica)
    if _MIG.fullmatch(device_id):
        return DeviceId(kind="mig", mig_uuid=device_id, replica=replica)
    if match := _OLD_MIG.fullmatch(device_id):
        gi, ci = int(match["gi"]), int(match["ci"])
        return DeviceId(kind="mig", gpu_uuid=match["gpu"], mig_uuid=device_id, gpu_instance=gi, compute_instance=ci, replica=replica)
    if match := _GPU.fullmatch(device_id):
        return DeviceId(kind="gpu", gpu_uuid=match["gpu"], replica=_number(match["replica"], replica))
    if match := _MINOR.fullmatch(device_id):
        gi_or_none = _number(match["gi"])
        return DeviceId(
            kind="gpu" if gi_or_none is None else "mig",
            minor_number=int(match["minor"]),
            gpu_instance=gi_or_none,
            replica=_number(match["replica"], replica),
        )
    return DeviceId()


def _number(digits: str | None, otherwise: int | None = None) -> int | None:
    return otherwise if digits is None else int(digits)
