"""The node's DRA devices: ResourceSlices of NVIDIA's driver, and the claims whose access is administrative.

Dynamic Resource Allocation gives a pod a device by driver, pool and name; only the slice tells which GPU that is. A cluster without the
API, or with the older versions of it only, is normal.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import msgspec

from gpuwatch.device.readings import Struct
from gpuwatch.kube.client import ApiError, ApiServer, one_line
from gpuwatch.kube.objects import DraDevice, DraDevices, SourceState
from gpuwatch.kube.pods import node_name
from gpuwatch.kube.watch import FAULTS, Resource, Watcher

__all__ = ["FAULTS", "DraSource", "devices_of", "discover"]

_GROUP = "/apis/resource.k8s.io"
_VERSIONS = ("v1", "v1beta2", "v1beta1")
"""Newest first: from Kubernetes 1.34 on only the first is served by default."""
_DRIVER = "gpu.nvidia.com"


class _Value(Struct, frozen=True, kw_only=True):
    string: str | None = None


class _Attributes(Struct, frozen=True, kw_only=True):
    attributes: dict[str, _Value] | None = None


class _Device(Struct, frozen=True, kw_only=True):
    name: str
    attributes: dict[str, _Value] | None = None
    basic: _Attributes | None = None
    """Where v1beta1 has the attributes."""


class _Pool(Struct, frozen=True, kw_only=True):
    name: str


class _SliceSpec(Struct, frozen=True, kw_only=True):
    driver: str
    pool: _Pool
    devices: list[_Device] | None = None


class _Slice(Struct, frozen=True, kw_only=True):
    spec: _SliceSpec


class _Result(Struct, frozen=True, kw_only=True):
    driver: str = ""
    admin_access: bool | None = msgspec.field(default=None, name="adminAccess")


class _Results(Struct, frozen=True, kw_only=True):
    results: list[_Result] | None = None


class _ClaimAllocation(Struct, frozen=True, kw_only=True):
    devices: _Results | None = None


class _ClaimStatus(Struct, frozen=True, kw_only=True):
    allocation: _ClaimAllocation | None = None


class _Named(Struct, frozen=True, kw_only=True):
    name: str
    namespace: str = ""


class _Claim(Struct, frozen=True, kw_only=True):
    metadata: _Named
    status: _ClaimStatus | None = None


class _Version(Struct, frozen=True, kw_only=True):
    version: str = ""


class _Group(Struct, frozen=True, kw_only=True):
    versions: list[_Version] | None = None


_decode_slice = msgspec.json.Decoder(_Slice).decode
_decode_claim = msgspec.json.Decoder(_Claim).decode
_decode_group = msgspec.json.Decoder(_Group).decode


def devices_of(text: bytes | msgspec.Raw) -> tuple[DraDevice, ...] | None:
    """The devices in the JSON of a ``ResourceSlice`` of any version; ``None`` for a slice of another driver.

    Raises:
        msgspec.DecodeError: It is no such text.
    """
    spec = _decode_slice(text).spec
    if spec.driver != _DRIVER:
        return None
    return tuple(_device(device, spec) for device in spec.devices or ())


def _device(device: _Device, spec: _SliceSpec) -> DraDevice:
    attributes = device.attributes or (device.basic.attributes if device.basic else None) or {}

    def text(name: str) -> str:
        # A name without a domain belongs to the driver's own, which may also be written out.
        value = attributes.get(name) or attributes.get(f"{_DRIVER}/{name}")
        return (value.string if value else None) or ""

    return DraDevice(
        driver=spec.driver,
        pool=spec.pool.name,
        device=device.name,
        kind=text("type") or "gpu",
        uuid=text("uuid"),
        parent_uuid=text("parentUUID"),
        profile=text("profile"),
    )


def _admin_claim(text: bytes | msgspec.Raw) -> tuple[str, str] | None:
    """(namespace, name) of a claim that was given only administrative access to GPUs; its holders watch them, they do not use them."""
    claim = _decode_claim(text)
    devices = claim.status.allocation.devices if claim.status and claim.status.allocation else None
    results = [result for result in (devices.results if devices else None) or () if result.driver == _DRIVER]
    if results and all(result.admin_access for result in results):
        return claim.metadata.namespace, claim.metadata.name
    return None


def discover(api: ApiServer, plural: str) -> str | None:
    """The path of a resource of ``resource.k8s.io`` in the newest version that is served; ``None`` if none is.

    Raises:
        ApiError: The server did not tell.
    """
    try:
        group = _decode_group(api.get(_GROUP, {}))
    except ApiError as error:
        if error.fault == "not_found":
            return None
        raise
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError(0, f"{_GROUP} not understood: {one_line(str(error))}", fault="junk") from None
    served = {version.version for version in group.versions or ()}
    return next((f"{_GROUP}/{version}/{plural}" for version in _VERSIONS if version in served), None)


class DraSource:
    """Follows the node's slices; rights: ``list`` and ``watch`` on ``resourceslices``.

    With a second server object it also follows the claims, which needs the same verbs on ``resourceclaims`` of the whole cluster, since
    claims do not name their node. It is a watch with a thread of its own; where it is refused, or is not wanted, an administrative
    claim counts as a holder like any other, and the state of this source does not suffer.

    Args:
        api: The server, for the slices.
        node: The node's name in Kubernetes.
        claims_api: The server, for the claims; ``None``: do not follow them.
        clock: CLOCK_MONOTONIC in seconds.
        sleep: Waits so many seconds, or until stopped.
        chance: Spreads pauses.

    Raises:
        ValueError: See :func:`gpuwatch.kube.pods.node_name`.
    """

    def __init__(
        self,
        api: ApiServer,
        node: str,
        *,
        claims_api: ApiServer | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
        chance: random.Random | None = None,
    ) -> None:
        slices = Resource(
            name="resourceslices",
            locate=lambda server: discover(server, "resourceslices"),
            parse=devices_of,
            field_selector=f"spec.nodeName={node_name(node)}",
        )
        claims = Resource(name="resourceclaims", locate=lambda server: discover(server, "resourceclaims"), parse=_admin_claim)
        self.slices = Watcher(api, slices, publish=self._publish, clock=clock, sleep=sleep, chance=chance)
        self.claims = claims_api and Watcher(claims_api, claims, publish=self._publish, clock=clock, sleep=sleep, chance=chance)
        self._publishing = threading.Lock()
        self._view = DraDevices(state=SourceState())

    @property
    def view(self) -> DraDevices:
        """The newest facts; may be read from any thread."""
        return self._view

    @property
    def rejected(self) -> int:
        """Answers, lines and objects that could not be understood, since the start."""
        return self.slices.rejected + (self.claims.rejected if self.claims else 0)

    def start(self) -> None:
        """Begin, in threads of its own."""
        self.slices.start()
        if self.claims:
            self.claims.start()

    def stop(self) -> None:
        """End after the present requests; does not wait."""
        self.slices.stop()
        if self.claims:
            self.claims.stop()

    def _publish(self) -> None:
        # Both threads come here: without the lock the slower one could put an older view in place of a newer one.
        with self._publishing:
            self._view = DraDevices(
                state=self.slices.state,
                devices=tuple(device for slice_devices in self.slices.objects.values() for device in slice_devices),
                admin_claims=frozenset(self.claims.objects.values()) if self.claims else frozenset(),
            )
