"""Every form of device id that device plugins write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kube.device_ids import DeviceId, parse_device_id

UUID = "8c5f4b4e-1a2b-4c3d-9e8f-001122334455"
GPU, MIG = f"GPU-{UUID}", f"MIG-{UUID}"


@pytest.mark.parametrize(
    ("device_id", "meaning"),
    [
        (GPU, DeviceId(kind="gpu", gpu_uuid=GPU)),
        (MIG, DeviceId(kind="mig", mig_uuid=MIG)),
        (f"MIG-{GPU}/7/0", DeviceId(kind="mig", gpu_uuid=GPU, mig_uuid=f"MIG-{GPU}/7/0", gpu_instance=7, compute_instance=0)),
        (f"{GPU}::3", DeviceId(kind="gpu", gpu_uuid=GPU, replica=3)),
        (f"{MIG}::12", DeviceId(kind="mig", mig_uuid=MIG, replica=12)),
        (f"MIG-{GPU}/1/0::2", DeviceId(kind="mig", gpu_uuid=GPU, mig_uuid=f"MIG-{GPU}/1/0", gpu_instance=1, compute_instance=0, replica=2)),
        (f"{GPU}-5", DeviceId(kind="gpu", gpu_uuid=GPU, replica=5)),
        ("nvidia0", DeviceId(kind="gpu", minor_number=0)),
        ("nvidia11/gi3", DeviceId(kind="mig", minor_number=11, gpu_instance=3)),
        ("nvidia0/vgpu2", DeviceId(kind="gpu", minor_number=0, replica=2)),
        ("nvidia0/gi1/vgpu3", DeviceId(kind="mig", minor_number=0, gpu_instance=1, replica=3)),
        ("all", DeviceId(kind="all")),
        ("tegra", DeviceId(kind="tegra")),
        ("all::1", DeviceId(kind="all", replica=1)),
    ],
)
def test_known_forms(device_id: str, meaning: DeviceId) -> None:
    """Each form tells exactly what its plugin put into it."""
    assert parse_device_id(device_id) == meaning


@pytest.mark.parametrize(
    "device_id",
    [
        "",
        "0",
        "GPU-",
        "GPU-1234",
        f"{GPU}\n",
        f" {GPU}",
        f"{GPU}::",
        f"{GPU}::x",
        f"{GPU}::1::2",
        f"{GPU}::٣",
        f"MIG-{GPU}",
        f"MIG-{GPU}/1",
        "nvidia",
        "nvidia٣",
        "nvidia0/gi",
        "nvidiactl",
        "0000:65:00.0",
        "GRID_T4-1Q",
        "nvidia" + "9" * 400,
        "::" * 100_000,
    ],
)
def test_other_strings_are_unknown(device_id: str) -> None:
    """What only resembles an id is unknown: no guess is made."""
    assert parse_device_id(device_id) == DeviceId()


@given(st.one_of(st.text(), st.from_regex(r"(MIG-|GPU-|nvidia)[0-9a-f/:givpu-]*(::[0-9]+)?")))
def test_any_string_has_an_answer(device_id: str) -> None:
    """No string raises, and every UUID in an answer stands in the string."""
    found = parse_device_id(device_id)
    assert found.gpu_uuid in device_id
    assert found.mig_uuid in device_id
    if found.kind == "unknown":
        assert found == DeviceId()


@given(st.uuids(), st.integers(0, 999_999), st.sampled_from(["GPU-", "MIG-"]))
def test_replicas_of_one_device_are_one_device(uuid: object, replica: int, prefix: str) -> None:
    """Every replica of a device names that device."""
    plain, shared = parse_device_id(f"{prefix}{uuid}"), parse_device_id(f"{prefix}{uuid}::{replica}")
    assert (shared.kind, shared.gpu_uuid, shared.mig_uuid) == (plain.kind, plain.gpu_uuid, plain.mig_uuid)
    assert shared.replica == replica
