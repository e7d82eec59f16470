"""TF_CONFIG as operators write it and as people do."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kube.objects import Container, Pod
from gpuwatch.kube.tf_config import Task, parse_tf_config, shorten_tf_config, task_of

CLUSTER = {"ps": ["a:2222"], "worker": ["b:2222", "c:2222"]}


@pytest.mark.parametrize(
    ("text", "task"),
    [
        (json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}, "environment": "cloud"}), Task(type="worker", index="1")),
        (json.dumps({"cluster": {"worker": {"1": "b:2222"}}, "task": {"type": "worker", "index": 1}}), Task(type="worker", index="1")),
        (json.dumps({"task": {"type": "Chief", "index": "00"}}), Task(type="chief", index="0")),
        (json.dumps({"task": {"index": 7, "type": "evaluator"}, "cluster": "nonsense"}), Task(type="evaluator", index="7")),
        (json.dumps({"task": {"type": "ps"}}), Task(type="ps")),
        (json.dumps({"cluster": CLUSTER}), Task()),
        (json.dumps({"task": None}), Task()),
        (json.dumps({"task": {"type": 3, "index": True}}), Task()),
        (json.dumps({"task": {"type": ["worker"], "index": -1}}), Task()),
        (json.dumps({"task": {"type": "worker\n", "index": 1.5}}), Task()),
        (json.dumps({"task": {"type": "w" * 64, "index": 10**400}}), Task()),
        (json.dumps({"task": "worker"}), None),
        ("[]", None),
        ("null", None),
        ("", None),
        ("{", None),
        ("{'task': {'type': 'worker', 'index': 0}}", None),
        ("[" * 100_000, None),
        ('{"task":' + '{"type":' * 50_000, None),
        ('{"task": {"type": "\\ud800", "index": 1}}', None),
        (json.dumps({"cluster": {"worker": ["h:2222"] * 200_000}, "task": {"type": "worker", "index": 0}}), None),
    ],
    ids=range(21),
)
def test_only_a_well_formed_task_is_told(text: str, task: Task | None) -> None:
    """Types and indices that make sense are told, all else is left out, and text that is no TF_CONFIG gives nothing."""
    assert parse_tf_config(text) == task


@given(st.text(st.characters()))
def test_any_text_is_harmless(text: str) -> None:
    """Nothing that users write raises."""
    assert parse_tf_config(text) is None or isinstance(parse_tf_config(text), Task)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(kind=_JSON, index=_JSON)
def test_any_types_in_a_task_are_harmless(kind: object, index: object) -> None:
    """Whatever type stands for role and index, only short text and digits come out."""
    task = parse_tf_config(json.dumps({"task": {"type": kind, "index": index}}))
    assert task is None or (len(task.type) < 64 and (task.index == "" or task.index.isdecimal()))


def test_the_operators_container_counts_first() -> None:
    """Beside others, the container of TFJob tells the task; a TF_CONFIG that cannot be read is passed over."""

    def container(name: str, text: str) -> Container:
        return Container(name=name, environment={"TF_CONFIG": text})

    def pod(*containers: Container) -> Pod:
        return Pod(uid="u", namespace="n", name="p", containers=containers)

    worker, ps = '{"task": {"type": "worker", "index": 0}}', '{"task": {"type": "ps", "index": 2}}'
    assert task_of(pod(container("sidecar", ps), container("tensorflow", worker))) == Task(type="worker", index="0")
    assert task_of(pod(container("a", "junk"), container("b", ps))) == Task(type="ps", index="2")
    assert task_of(pod(Container(name="c"))) is None


@given(kind=st.sampled_from(["", "chief", "worker", "ps"]), index=st.sampled_from(["", "0", "17"]), size=st.integers(0, 50))
def test_a_shortened_one_tells_the_same_task(kind: str, index: str, size: int) -> None:
    """Without its cluster a TF_CONFIG is short and gives the same task."""
    text = json.dumps({"cluster": {"worker": ["host.namespace.svc:2222"] * size}, "task": {"type": kind, "index": index}})
    assert parse_tf_config(shorten_tf_config(text)) == parse_tf_config(text)
    assert len(shorten_tf_config(text)) < 64
    assert shorten_tf_config("junk" + text) == ""
