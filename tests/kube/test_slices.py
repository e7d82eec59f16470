"""The node's DRA devices in every version of the API, without the API, and without the right to see claims."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kube.client import ApiServer
from gpuwatch.kube.objects import DraDevice
from gpuwatch.kube.slices import DraSource, devices_of
from kube.apiserver import GROUP, RECORDINGS, Clock, ScriptedServer, body, reached, status

_UUID = "GPU-33333333-3333-3333-3333-333333333333"


def recorded_slice() -> dict[str, Any]:
    """The recorded slice, of the newest version."""
    (item,) = json.loads((RECORDINGS / "resourceslices-v1.json").read_text())["items"]
    return {**item, "resource": f"{GROUP}/v1/resourceslices"}


def claim(name: str, *access: bool | None, driver: str = "gpu.nvidia.com") -> dict[str, Any]:
    """A claim whose devices were given with this access."""
    results = [{"driver": driver, "device": "gpu-0", **({} if admin is None else {"adminAccess": admin})} for admin in access]
    return {
        "metadata": {"uid": name, "name": name, "namespace": "monitoring"},
        "status": {"allocation": {"devices": {"results": results}}},
        "resource": f"{GROUP}/v1/resourceclaims",
    }


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A server with the recorded slice."""
    with ScriptedServer() as scripted:
        scripted.cluster.put(recorded_slice())
        yield scripted


@pytest.fixture
def api(server: ScriptedServer, tmp_path: Path) -> Iterator[ApiServer]:
    """The way there."""
    with reached(server, tmp_path) as reaching:
        yield reaching


def source_of(api: ApiServer, *, claims: bool = False) -> DraSource:
    """A source that is moved by hand."""
    clock = Clock()
    chance = random.Random(1)  # noqa: S311 - a seed
    return DraSource(api, "private-node", claims_api=api if claims else None, clock=clock, sleep=clock.sleep, chance=chance)


def test_recorded_slice_tells_the_devices(server: ScriptedServer, api: ApiServer) -> None:
    """Full GPUs have their UUID; a MIG device has its own, its parent's and its profile. Only slices of this node are asked for."""
    source = source_of(api)
    source.slices.follow()
    assert source.view.state.up
    assert source.view.devices[0] == DraDevice(driver="gpu.nvidia.com", pool="private-node", device="gpu-0", uuid=_UUID)
    assert source.view.devices[2] == DraDevice(
        driver="gpu.nvidia.com",
        pool="private-node",
        device="gpu-2-mig-1g18gb-19-0",
        kind="mig",
        uuid="MIG-55555555-5555-5555-5555-555555555555",
        parent_uuid="GPU-66666666-6666-6666-6666-666666666666",
        profile="1g.18gb",
    )
    assert server.requests[1].query["fieldSelector"] == "spec.nodeName=private-node"
    assert [request.path for request in server.requests] == [GROUP, *[f"{GROUP}/v1/resourceslices"] * 2]


@pytest.mark.parametrize(
    ("served", "chosen"),
    [(["v1alpha3", "v1beta1", "v1"], "v1"), (["v1beta1", "v1beta2"], "v1beta2"), (["v1beta1"], "v1beta1")],
)
def test_newest_served_version_is_used(server: ScriptedServer, api: ApiServer, served: list[str], chosen: str) -> None:
    """Discovery decides, since newer clusters serve only v1 and older ones do not know it."""
    server.versions = served
    server.cluster.objects.clear()
    item = recorded_slice()
    if chosen == "v1beta1":
        item["spec"]["devices"] = [{"name": each["name"], "basic": {"attributes": each["attributes"]}} for each in item["spec"]["devices"]]
    server.cluster.put({**item, "resource": f"{GROUP}/{chosen}/resourceslices"})
    source = source_of(api)
    source.slices.follow()
    assert next(device.uuid for device in source.view.devices) == _UUID
    assert len(source.view.devices) == 3


@pytest.mark.parametrize("versions", [None, [], ["v1alpha2"]])
def test_cluster_without_the_api_is_sound(server: ScriptedServer, api: ApiServer, versions: list[str] | None) -> None:
    """A cluster that has no such API, or only an alpha one, has no devices and no fault; it is asked again after minutes."""
    server.versions = versions
    source = source_of(api)
    assert source.slices.follow() >= 300
    assert source.view.state.up
    assert source.view.devices == ()
    server.versions = ["v1"]
    source.slices.follow()
    assert len(source.view.devices) == 3


def test_version_that_goes_away_is_looked_for_again(server: ScriptedServer, api: ApiServer) -> None:
    """When an upgrade takes the served version away, the next one is found and the devices stay known meanwhile."""
    source = source_of(api)
    source.slices.follow()
    server.script("watch", status(404, "the server could not find the requested resource"))
    source.slices.follow()
    assert source.view.state.fault == "not_found"
    assert len(source.view.devices) == 3
    source.slices.follow()
    assert source.view.state.up
    assert server.count("discovery") == 2


def test_junk_discovery_is_a_fault(server: ScriptedServer, api: ApiServer) -> None:
    """A garbled discovery is told and asked again."""
    server.script("discovery", body(b"<html>"), status(403, "no"))
    source = source_of(api)
    source.slices.follow()
    assert source.view.state.fault == "junk"
    assert source.rejected == 1
    source.slices.follow()
    assert source.view.state.fault == "forbidden"
    source.slices.follow()
    assert source.view.state.up


def test_slice_without_uuid_and_other_drivers() -> None:
    """A MIG device made on demand has parent and profile only; another driver's slice is of no interest; full attribute names count."""
    spec = {"driver": "gpu.nvidia.com", "pool": {"name": "p"}}
    attributes = {
        "type": {"string": "mig"},
        "gpu.nvidia.com/parentUUID": {"string": _UUID},
        "profile": {"string": "1g.18gb"},
        "index": {"int": 3},
        "driverVersion": {"version": "580.1.0"},
    }
    on_demand = json.dumps({"spec": {**spec, "devices": [{"name": "d", "attributes": attributes}]}}).encode()
    (device,) = devices_of(on_demand) or ()
    assert (device.kind, device.uuid, device.parent_uuid, device.profile) == ("mig", "", _UUID, "1g.18gb")
    assert devices_of(json.dumps({"spec": {**spec, "driver": "compute-domain.nvidia.com"}}).encode()) is None
    assert devices_of(json.dumps({"spec": {**spec, "devices": None}}).encode()) == ()


def test_administrative_claims_are_known(server: ScriptedServer, api: ApiServer) -> None:
    """A claim whose GPUs were all given for administration is told; a user's claim, one of another driver and one not yet given are not."""
    for item in (
        claim("watcher", True),
        claim("user", None),
        claim("mixed", True, False),
        claim("fpga", True, driver="fpga"),
        claim("new"),
    ):
        server.cluster.put(item)
    source = source_of(api, claims=True)
    assert source.claims is not None
    source.slices.follow()
    source.claims.follow()
    assert source.view.admin_claims == {("monitoring", "watcher")}
    server.cluster.delete("watcher")
    source.claims.follow()
    assert source.view.admin_claims == frozenset()


def test_recorded_claims_are_users_claims(server: ScriptedServer, api: ApiServer) -> None:
    """The recorded claims are held by pods that use their devices."""
    server.script("list", body((RECORDINGS / "resourceclaims-v1.json").read_bytes()))
    source = source_of(api, claims=True)
    assert source.claims is not None
    source.claims.follow()
    assert source.view.admin_claims == frozenset()
    assert source.rejected == 0


def test_claims_may_be_forbidden(server: ScriptedServer, api: ApiServer) -> None:
    """Without the right to see claims the devices are known all the same, and the source is up."""
    source = source_of(api, claims=True)
    assert source.claims is not None
    source.slices.follow()
    server.script("list", status(403, "resourceclaims is forbidden"))
    assert source.claims.follow() >= 120
    assert source.view.state.up
    assert len(source.view.devices) == 3


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["spec", "driver", "pool", "name", "devices", "attributes", "basic", "uuid", "string"]), inner
            )
        ),
        max_leaves=15,
    )
)
def test_any_json_is_a_slice_or_refused(item: object) -> None:
    """Any JSON is decoded or refused with the one expected error."""
    with contextlib.suppress(msgspec.DecodeError):
        devices_of(json.dumps(item).encode())
