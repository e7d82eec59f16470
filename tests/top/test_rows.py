"""Rows from an agent's JSON: what is there, and that nothing an agent sends can break them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.snapshot import Reason, Snapshot, Verdict
from gpuwatch.top.order import SORTS, ordered
from gpuwatch.top.rows import Job, NodeView, Row, view_of
from gpuwatch.top.screen import Look, node_line, table
from gpuwatch.web.document import encode_snapshot
from snapshots import GIB, a100_mig, attributed, h100, held, hostile, judged, node, starting


def viewed(snapshot: Snapshot) -> NodeView:
    """What is seen of a real agent's JSON."""
    return view_of("http://node", encode_snapshot(snapshot))


def test_gpu_in_full() -> None:
    """A row has the use of a GPU against its own limits, its verdict and who holds it, in base units."""
    lost = Verdict(state="degraded", action="drain", reasons=(Reason(code="x", severity="page", action="drain"),))
    gpu = judged(h100(), lost)
    view = viewed(msgspec.structs.replace(attributed(held(gpu)), gpus=(gpu,)))
    assert (view.node, view.up, view.problem, view.summary) == ("gpu-node-1", True, "", "1 GPU: 1 degraded")
    assert view.rows == (
        Row(
            node="gpu-node-1",
            gpu="0",
            uuid=gpu.identity.uuid,
            model="NVIDIA H100 80GB HBM3",
            state="degraded",
            action="drain",
            utilization_ratio=0.87,
            memory_used_bytes=62 * GIB,
            memory_total_bytes=80 * GIB,
            power_watts=523.4,
            power_limit_watts=700.0,
            temperature_celsius=61.0,
            temperature_limit_celsius=87.0,
            jobs=(Job(kind="TFJob", name="resnet", replica="worker 0", namespace="vision", pod="resnet-worker-0"),),
        ),
    )


def test_instances_are_rows_of_their_own() -> None:
    """A MIG instance follows its GPU, with its own memory and holder; what belongs to the whole board is not told of it."""
    parent = a100_mig()
    view = viewed(attributed(held(parent, "bert-0", mig_uuid="MIG-1-0")))
    _, whole, first, second = view.rows
    assert (whole.gpu, first.gpu, second.gpu) == ("1", "1.0", "1.1")
    assert (whole.instances, whole.instances_held) == (2, 1)
    assert (first.model, first.memory_used_bytes, first.memory_total_bytes) == ("1g.10gb", 3 * GIB, 10 * GIB)
    assert (first.power_watts, first.temperature_celsius) == (None, None)
    assert [job.pod for job in first.jobs] == ["bert-0"]
    assert (second.memory_used_bytes, second.jobs) == (None, ())
    assert view.summary == "2 GPUs: 2 up"


def test_what_is_over_or_not_reported_is_not_told() -> None:
    """A job that has ended holds nothing; a GPU that does not answer is down and has no values; zero stays zero."""
    over = msgspec.structs.replace(held(h100()), held=False)
    lost = h100(up=False, fault="gpu_is_lost")
    (row, other) = viewed(msgspec.structs.replace(attributed(over), gpus=(lost, a100_mig()))).rows[:2]
    assert (row.state, row.fault, row.jobs, row.power_watts, row.memory_total_bytes) == ("down", "gpu_is_lost", (), None, None)
    assert (other.power_watts, other.memory_used_bytes, other.utilization_ratio) == (0.0, 0, None)


def test_node_that_reads_nothing_says_why() -> None:
    """Its reason is kept for the line of the node."""
    view = viewed(starting())
    assert (view.up, view.detail, view.rows, view.summary) == (False, "no read is complete yet", (), "0 GPUs")


def test_order_and_filter() -> None:
    """Most first, worst first, names in their order, and what is not reported last; the filter looks at job, pod and namespace."""
    snapshot = attributed(held(h100()), held(a100_mig(), "bert-0", mig_uuid="MIG-1-0", kind="Notebook"))
    views = [viewed(msgspec.structs.replace(snapshot, gpus=(judged(a100_mig(), Verdict(state="failed")), h100())))]
    assert [row.gpu for row in ordered(views)] == ["1", "1.0", "1.1", "0"]
    order = {sort: [row.gpu for row in ordered(views, sort=sort)] for sort in SORTS}
    assert order == {
        "use": ["0", "1", "1.0", "1.1"],
        "memory": ["0", "1.0", "1", "1.1"],
        "power": ["0", "1", "1.0", "1.1"],
        "heat": ["0", "1", "1.0", "1.1"],
        "state": ["1", "1.0", "1.1", "0"],
        "job": ["1.0", "0", "1", "1.1"],
    }
    assert [row.gpu for row in ordered(views, job="NOTEBOOK")] == ["1.0"]
    assert [row.gpu for row in ordered(views, job="vision/resnet-w")] == ["0"]
    assert ordered(views, job="nobody") == []


def test_what_is_no_agent_is_told_so() -> None:
    """Other JSON, no JSON, and JSON without bottom are each a line, not an error."""
    for body in (b"", b"<html>", b"[]", b"{}", b'{"gpus": 3}', b"[" * 100_000, b"\xff\xfe", b'{"gpus": [NaN]}'):
        assert view_of("x", body).problem.endswith("is this a gpuwatch agent?")


def test_newer_agents_are_understood() -> None:
    """Fields and states that are not known yet change nothing else."""
    document = json.loads(encode_snapshot(node(h100())))
    document["new"] = document["gpus"][0]["new"] = {"deep": [1, {"er": None}]}
    document["gpus"][0]["verdict"] = {"state": "resting", "action": "wait", "new": 1}
    view = view_of("x", json.dumps(document).encode())
    assert (view.rows[0].state, view.rows[0].power_watts) == ("resting", 523.4)
    assert view.summary == "1 GPU: 1 resting"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def damage(document: Any, path: list[int], value: Any, *, drop: bool) -> None:
    """Put ``value`` somewhere in the document, or take something away there."""
    for step in path:
        keys = list(document) if isinstance(document, dict) else list(range(len(document))) if isinstance(document, list) else []
        if not keys:
            return
        key = keys[step % len(keys)]
        if step % 3 == 0 or not isinstance(document[key], dict | list) or not document[key]:
            if drop:
                del document[key]
            else:
                document[key] = value
            return
        document = document[key]


@given(st.lists(st.tuples(st.lists(st.integers(0, 1000), max_size=8), _JSON, st.booleans()), max_size=6), st.sampled_from(["", *SORTS]))
def test_any_json_can_be_shown(damages: list[tuple[list[int], Any, bool]], sort: str) -> None:
    """Whatever stands where, or is missing, rows are made, ordered and drawn, and no line is wider than the terminal."""
    gpu = a100_mig()
    document = json.loads(encode_snapshot(attributed(held(h100()), held(gpu, mig_uuid="MIG-1-0"))))
    for path, value, drop in damages:
        damage(document, path, value, drop=drop)
    view = view_of("http://x", json.dumps(document).encode())
    check_lines([view], sort)


@given(_JSON, st.text())
def test_any_gpus_can_be_shown(gpu: Any, name: str) -> None:
    """The same for what has nothing of an agent's form."""
    check_lines([view_of(name, json.dumps({"gpus": [gpu], "jobs": [gpu], "node": name}).encode())], "")


def test_hostile_text_is_shown_as_text() -> None:
    """What would steer the terminal or turn the writing around is shown as its escape."""
    evil = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\u2066\r\n\x9b31m"
    document = json.loads(encode_snapshot(hostile()))
    text = json.dumps(document).replace(json.dumps(hostile().node)[1:-1], json.dumps(evil)[1:-1])
    lines = check_lines([view_of("x", text.encode())], "")
    assert "\\x1b]0;" in lines
    assert "\\u202e" in check_lines([view_of("x", json.dumps({"gpus": [], "node": "a\u202eb"}).encode())], "")


def check_lines(views: list[NodeView], sort: str) -> str:
    """Draw everything on several terminals; the text on a wide one."""
    drawn = ""
    for look in (Look(20), Look(80), Look(80, ascii_only=True), Look(300)):
        lines = [node_line(view, look) for view in views] + table(ordered(views, sort=sort), look, several=look.width == 80)
        assert all(line.cell_len <= look.width for line in lines)
        drawn = "\n".join(line.plain for line in lines)
        assert all(letter == "\n" or letter.isprintable() for letter in drawn)
        assert not look.ascii_only or drawn.isascii()
    return drawn
