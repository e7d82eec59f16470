"""The snapshot as JSON: nothing left out, nothing invented."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import get_args

import msgspec

from gpuwatch.device.readings import EccCount, Fast, FaultEvent, Health, Identity, SourceHealth
from gpuwatch.snapshot import Action, Gpu, Listening, Reason, Severity, Snapshot, State, Verdict, XidCount
from gpuwatch.web.document import encode_snapshot
from snapshots import a100_mig, attributed, h100, held, hostile, node, starting

ROOT = Path(__file__).parents[2]


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
    switch = Listening(sxid_errors={("20034", "fatal"): 3})
    document = json.loads(encode_snapshot(msgspec.structs.replace(node(), listening=switch)))
    assert document["listening"]["sxid_errors"] == [{"sxid": "20034", "severity": "fatal", "count": 3}]


def test_document_reads_back_as_the_snapshot() -> None:
    """Apart from those counters the document is the snapshot: decoding it gives an equal one."""
    for snapshot in (node(h100(), a100_mig(), h100(2, up=False, fault="stalled")), starting(), hostile(), attributed(held(h100()))):
        document = json.loads(encode_snapshot(snapshot))
        errors, sxids = document["agent"].pop("nvml_errors"), document["listening"].pop("sxid_errors")
        agent = msgspec.structs.replace(snapshot.agent, nvml_errors={})
        listening = msgspec.structs.replace(snapshot.listening, sxid_errors={})
        read = msgspec.convert(document, Snapshot, strict=False)
        assert read == msgspec.structs.replace(snapshot, agent=agent, listening=listening)
        assert (len(errors), len(sxids)) == (len(snapshot.agent.nvml_errors), len(snapshot.listening.sxid_errors))


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


HEALTH_PARTS: dict[str, type[msgspec.Struct]] = {
    "": Verdict,
    "reasons[].": Reason,
    "ecc_errors[].": EccCount,
    "sources[].": SourceHealth,
    "events[].": FaultEvent,
}


def test_every_field_about_health_is_documented() -> None:
    """Who reads the JSON finds each field in docs/api.md, and no field there that does not exist."""
    rows = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "api.md").read_text(), flags=re.MULTILINE)
    documented = Counter(rows)
    expected = Counter(f"{prefix}{name}" for prefix, kind in HEALTH_PARTS.items() for name in kind.__struct_fields__)
    for kind in (XidCount, Health, Listening):
        expected += Counter(kind.__struct_fields__)
    expected += Counter(f"sxid_errors[].{name}" for name in ("sxid", "severity", "count"))
    expected += Counter(("timestamp_seconds", "up", "ready", "fault", "detail"))  # of the node
    expected += Counter(("identity.index", "identity.uuid", "up", "fault", "verdict", "xids", "medium.health"))  # of a GPU
    assert documented == expected


def test_documented_words_are_those_of_the_code() -> None:
    """States, actions and severities are listed whole."""
    page = (ROOT / "docs" / "api.md").read_text()
    for word in (*get_args(State), *get_args(Action), *get_args(Severity)):
        assert f"`{word}`" in page


def test_no_value_breaks_the_format() -> None:
    """A number that JSON cannot hold becomes null instead of a document that no parser takes."""
    gpu = Gpu(identity=Identity(index=0), up=True, fast=Fast(utilization_ratio=math.nan))
    assert json.loads(encode_snapshot(node(gpu)))["gpus"][0]["fast"]["utilization_ratio"] is None
