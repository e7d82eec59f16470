"""The XID table, what operators may change in it, and what the driver's words say."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.health.xid import MAX_CODE, OverrideError, parse_overrides, policy_of, recovery_of_text, said_fatal, xid_table
from gpuwatch.snapshot import Action, Severity

PAGES = {46, 48, 54, 57, 58, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 150, 151, 158, 167, 169, 171, 172, 173}
SOON = {59, 61, 63, 94, 155, 156, 166, 168, 175}
NEVER_ALONE = {13, 31, 43, 45}
INFO = {14, 23, 37, 43, 45, 66, 67, 93, 106, 107, 108, 121, 141, 152, 153, 160, 161, 162, 164, 174}


def test_every_code_has_one_row() -> None:
    """1 to 176, in order, each with a name, a category and a note in short words."""
    assert list(xid_table()) == list(range(1, MAX_CODE + 1))
    for policy in xid_table().values():
        assert policy.name
        assert policy.category
        assert 0 < len(policy.note) < 100
        assert policy.severity in get_args(Severity)
        assert policy.action in get_args(Action)


def test_severities_are_those_of_the_facts() -> None:
    """25 codes page; those that can wait are tickets; a program's own and mere information are info."""
    by_severity = {severity: {code for code, one in xid_table().items() if one.severity == severity} for severity in get_args(Severity)}
    assert by_severity["page"] == PAGES
    assert by_severity["ticket"] >= SOON
    assert by_severity["info"] >= NEVER_ALONE | INFO


def test_actions_fit_their_severity() -> None:
    """Whoever is woken is told to do something, and nobody is asked to reset a GPU for information (health report 24)."""
    for policy in xid_table().values():
        assert policy.severity != "page" or policy.action in {"reset_gpu", "reboot_node", "inspect"}
        assert policy.severity != "info" or policy.action in {"none", "watch", "restart_job"}
        assert policy.action != "none" or policy.severity == "info"


def test_an_unknown_code_is_a_ticket_for_the_platform() -> None:
    """A number of a newer driver is neither dropped nor blamed on the job."""
    policy = policy_of(999)
    assert (policy.code, policy.category, policy.severity, policy.action) == (999, "unknown", "ticket", "watch")


def test_overrides_change_what_they_name() -> None:
    """Severity and action can be changed one by one, also of unknown codes; the rest of the row stays."""
    own = parse_overrides({31: {"severity": "ticket"}, "79": {"action": "inspect"}, 999: {"severity": "page", "action": "drain"}})
    assert (policy_of(31, own).severity, policy_of(31, own).action, policy_of(31, own).category) == ("ticket", "restart_job", "user_app")
    assert (policy_of(79, own).severity, policy_of(79, own).action) == ("page", "inspect")
    assert (policy_of(999, own).severity, policy_of(999, own).category) == ("page", "unknown")
    assert policy_of(48, own) == policy_of(48)
    assert parse_overrides("{31: {severity: ticket}}") == parse_overrides({31: {"severity": "ticket"}})
    assert parse_overrides({}) == {}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "[] is not allowed; expected a mapping of XID numbers, such as {31: {severity: ticket}}"),
        ({"x": {}}, "'x' is no XID; expected a whole number from 1 to 100000"),
        ({True: {"severity": "page"}}, "True is no XID; expected a whole number from 1 to 100000"),
        ({0: {"severity": "page"}}, "0 is no XID; expected a whole number from 1 to 100000"),
        ({31: "page"}, "31: 'page' is not allowed; expected severity, action or both"),
        ({31: {}}, "31: {} is not allowed; expected severity, action or both"),
        ({31: {"level": "page"}}, "31: unknown key 'level'; expected severity or action"),
        ({31: {"severity": "critical"}}, "31: severity 'critical' is not allowed; expected one of page, ticket, info"),
        ({31: {"action": ["drain"]}}, "31: action ['drain'] is not allowed; expected one of none, watch, restart_job, drain, reset_gpu,"),
        ("{31: ", "broken YAML"),
    ],
)
def test_a_wrong_override_is_refused_in_one_line(value: object, message: str) -> None:
    """The message names the place, the value and what is allowed."""
    with pytest.raises(OverrideError) as caught:
        parse_overrides(value)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value).splitlines()) == 1


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8) | st.integers(), inner),
)


@given(junk)
def test_any_override_is_taken_or_refused_in_one_line(value: object) -> None:
    """Whatever the configuration holds, the answer is overrides or one line."""
    try:
        assert isinstance(parse_overrides(value), dict)
    except OverrideError as error:
        assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", 1),
        ("GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", 2),
        ("(Drain P2P)", 3),
        ("(None) ... ( drain  and reset )", 4),
        ("from 0x2 (Node Reboot Required) to 0x0 (None)", 0),
        ("(Recover IMEX Domain)", 5),
        ("(Something else)", None),
        ("", None),
        ("(none of your business)", None),
    ],
)
def test_the_last_brackets_of_154_tell_the_action(text: str, action: int | None) -> None:
    """The driver's words, as field 230 would number them."""
    assert recovery_of_text(text) == action


@pytest.mark.parametrize(
    ("text", "fatal"), [("RLW Nonfatal XC0", False), ("RLW non-fatal", False), ("RLW Fatal XC0", True), ("", None), ("fatality", None)]
)
def test_nvlink_words(text: str, fatal: bool | None) -> None:
    """Health report 19: nonfatal is not fatal."""
    assert said_fatal(text) is fatal


@given(st.text())
def test_any_words_are_read(text: str) -> None:
    """No text of the driver raises."""
    assert recovery_of_text(text) in {None, 0, 1, 2, 3, 4, 5}
    assert said_fatal(text) in {None, True, False}
