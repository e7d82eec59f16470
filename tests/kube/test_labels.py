"""The operator's choice of pod labels: legal, distinct names, or a refusal of one line."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kube.labels import MAX_VALUE_LENGTH, RESERVED_NAMES, LabelMap, clean_text
from gpuwatch.kube.objects import Pod
from gpuwatch.metrics.catalog import METRICS, MIG_LABELS

LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def pod(**labels: str) -> Pod:
    """A pod with these labels."""
    return Pod(uid="u", namespace="n", name="p", labels=labels)


@pytest.mark.parametrize(
    ("setting", "keys", "names"),
    [
        (None, (), ()),
        ([], (), ()),
        ({}, (), ()),
        ("", (), ()),
        (["team", "app.kubernetes.io/part-of"], ("team", "app.kubernetes.io/part-of"), ("label_team", "label_app_kubernetes_io_part_of")),
        ({"a-b": "first", "a.b": "second", "a/b": "third"}, ("a-b", "a.b", "a/b"), ("first", "second", "third")),
        ("team, app.kubernetes.io/part-of = project", ("team", "app.kubernetes.io/part-of"), ("label_team", "project")),
        (["2fa"], ("2fa",), ("label_2fa",)),
    ],
)
def test_each_form_of_the_setting(setting: object, keys: tuple[str, ...], names: tuple[str, ...]) -> None:
    """A mapping gives names, a list and plain text make them, nothing chooses nothing; the order is kept."""
    assert LabelMap.parse(setting) == LabelMap(keys=keys, names=names)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (["a-b", "a.b", "a/b"], "pod labels 'a-b' and 'a.b' would both become 'label_a_b'; expected a name of its own for each"),
        ({"a-b": "x", "a.b": "x"}, "pod labels 'a-b' and 'a.b' would both become 'x'"),
        (["team", "team"], "pod label 'team' is named twice"),
        ({"team": "namespace"}, "pod label 'team': the name 'namespace' is taken"),
        ({"team": "job"}, "the name 'job' is taken"),
        ({"team": "instance"}, "the name 'instance' is taken"),
        ({"team": "__team"}, "the name '__team' is taken"),
        ({"team": "my-team"}, "'my-team' is no name for a metric label"),
        ({"team": ""}, "'' is no name"),
        ({"team": 3}, "3 is no name"),
        ({"team": "téam"}, "'téam' is no name"),
        ("team=", "'' is no name"),
        (["*"], "'*' is no pod label"),
        ([""], "'' is no pod label"),
        ([7], "7 is no pod label"),
        ({True: "x"}, "True is no pod label"),
        (["a b"], "'a b' is no pod label"),
        (["team\n"], "'team\\n' is no pod label"),
        (["UPPER.example/x"], "is no pod label"),
        (["a/b/c"], "is no pod label"),
        (["x" * 64], "is no pod label"),
        (["y" * 254 + "/x"], "is no pod label"),
        ([f"l{number}" for number in range(17)], "17 pod labels are named; expected at most 16"),
        (5, "5 is not allowed; expected a mapping"),
        (10**5000, "a huge int is not allowed"),
    ],
    ids=range(25),
)
def test_a_mistake_is_refused_in_one_line(setting: object, said: str) -> None:
    """What would break or blur the exposition is refused with the label, the name and what is expected."""
    with pytest.raises(ValueError, match=re.escape(said)) as refusal:
        LabelMap.parse(setting)
    assert "\n" not in str(refusal.value)


def test_longest_legal_keys_are_taken() -> None:
    """A key of 253 + 1 + 63 characters is legal in Kubernetes and gets a legal name."""
    (name,) = LabelMap.parse(["p" * 253 + "/" + "n" * 63]).names
    assert LEGAL.fullmatch(name)


def test_values_come_in_the_order_of_the_names() -> None:
    """Each name has its value; a pod without the label, or without any, gives an empty one."""
    chosen = LabelMap.parse(["team", "owner", "tier"])
    assert chosen.labels_of(pod(tier="gold", team="vision", other="x")) == ("vision", "", "gold")
    assert chosen.labels_of(pod()) == ("", "", "")
    assert chosen.labels_of(None) == ("", "", "")
    assert LabelMap().labels_of(pod(team="vision")) == ()


def test_values_at_the_limit_pass_unchanged() -> None:
    """Quotes, backslashes, newlines and 63 letters beyond ASCII reach the encoder as they are."""
    values = {"a": 'quote " backslash \\ newline \n', "b": "é" * 63}
    assert LabelMap.parse(["a", "b"]).labels_of(pod(**values)) == tuple(values.values())


def test_our_own_labels_cannot_be_taken() -> None:
    """Every label of a device, and every label of the metrics of a job, is reserved."""
    jobs = {label for metric in METRICS if metric.name.startswith("gpuwatch_job_") for label in metric.labels}
    assert {*MIG_LABELS, *jobs} <= RESERVED_NAMES


_KEY = st.one_of(st.sampled_from(["a-b", "a.b", "a/b", "team", "gpu"]), st.text(st.characters(), max_size=20))
_ANYTHING: Any = st.one_of(
    st.none(), st.integers(), st.text(), st.lists(_KEY | st.integers()), st.dictionaries(_KEY, _KEY | st.none()), st.binary()
)


@given(_ANYTHING)
def test_any_setting_gives_legal_distinct_names_or_a_refusal(setting: object) -> None:
    """Whatever is configured, names are legal, distinct and none of ours, or one line says why not."""
    try:
        chosen = LabelMap.parse(setting)
    except ValueError as refusal:
        assert "\n" not in str(refusal)
        return
    assert len(set(chosen.names)) == len(chosen.names) == len(chosen.keys)
    assert all(LEGAL.fullmatch(name) and name not in RESERVED_NAMES and not name.startswith("__") for name in chosen.names)


@given(st.text(st.characters()))
def test_clean_text_is_bounded_and_can_be_written(text: str) -> None:
    """Any text becomes one that UTF-8 can write, and what is fine already stays as it is."""
    clean = clean_text(text)
    assert len(clean.encode().decode()) <= MAX_VALUE_LENGTH
    assert clean_text(clean) == clean
