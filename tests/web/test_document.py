"""The snapshot as JSON: nothing left out, nothing invented."""

from __future__ import annotations

import json
import math

import msgspec

from gpuwatch.device.readings import Fast, Identity
from gpuwatch.snapshot import Gpu, Snapshot
from gpuwatch.web.document import encode_snapshot
from snapshots import a100_mig, attributed, h100, held, hostile, node, starting


def test_defaults_are_spelled_out() -> None:
    """False, empty and unknown are said, so a reader needs no table of defaults."""
    document = json.loads(encode_snapshot(starting()))
    assert document["up"] is False
    assert document["ready"] is False
    assert document["gpus"] == []
    assert document["driver_version"] is None
    assert list(document) == list(Snapshot.__struct_fields__)


def test_counts_by_call_and_error_are_objects() -> None:
    """Counters with two keys become a list that jq can select from."""
    errors = json.loads(encode_snapshot(node()))["agent"]["nvml_errors"]
    assert errors == [{"call": "nvmlDeviceGetTemperature", "error": "UNKNOWN", "count": 2}]
    assert json.loads(encode_snapshot(starting()))["agent"]["nvml_errors"] == []


def test_document_reads_back_as_the_snapshot() -> None:
    """Apart from those counters the document is the snapshot: decoding it gives an equal one."""
    for snapshot in (node(h100(), a100_mig(), h100(2, up=False, fault="stalled")), starting(), hostile(), attributed(held(h100()))):
        document = json.loads(encode_snapshot(snapshot))
        errors = document["agent"].pop("nvml_errors")
        agent = msgspec.structs.replace(snapshot.agent, nvml_errors={})
        assert msgspec.convert(document, Snapshot, strict=False) == msgspec.structs.replace(snapshot, agent=agent)
        assert len(errors) == len(snapshot.agent.nvml_errors)


def test_holders_and_sources_are_in_it() -> None:
    """A script finds who holds a GPU, what the holder gets, and how far that can be believed."""
    document = json.loads(encode_snapshot(attributed(held(h100(), shared=True))))
    (use,) = document["jobs"]
    assert use["holder"]["gpu_uuid"] == document["gpus"][0]["identity"]["uuid"]
    assert use["holder"]["job"] == {
        "kind": "TFJob",
        "name": "resnet",
        "replica_type": "worker",
        "replica_index": "0",
        "framework": "tensorflow",
        "framework_reason": "owner",
        "queue": "",
    }
    assert (use["holder"]["pod"], use["holder"]["shared"], use["held"], use["power_watts"]) == ("resnet-worker-0", True, True, None)
    assert document["kubernetes"]["sources"]["podresources"] == {"up": True, "fault": "", "detail": "", "updated_at": 100.0}
    assert json.loads(encode_snapshot(node()))["kubernetes"] is None


def test_no_value_breaks_the_format() -> None:
    """A number that JSON cannot hold becomes null instead of a document that no parser takes."""
    gpu = Gpu(identity=Identity(index=0), up=True, fast=Fast(utilization_ratio=math.nan))
    assert json.loads(encode_snapshot(node(gpu)))["gpus"][0]["fast"]["utilization_ratio"] is None
