"""The judge against its own truth table, and what must hold for any evidence."""

from __future__ import annotations

import math
import re
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.health.evidence import Evidence, PeerFault, XidSeen
from gpuwatch.health.examples import EXAMPLES, SOUND, Example
from gpuwatch.health.policy import POLICY, RULES, SPANS
from gpuwatch.health.reference import health_page
from gpuwatch.health.verdict import STATES, judge, state_of
from gpuwatch.health.xid import XidPolicy, policy_of
from gpuwatch.snapshot import Action, Severity

AT = 1_760_000_000.0
RULE_EXAMPLES = [example for example in EXAMPLES if example.rule]


@pytest.mark.parametrize("example", RULE_EXAMPLES, ids=lambda example: example.title)
def test_each_rule_speaks_in_its_example(example: Example) -> None:
    """The example of a rule has its reason, with the severity, action and state of the policy."""
    rule = POLICY[example.rule]
    reason = next(reason for reason in judge(example).reasons if reason.code == example.rule)
    assert (reason.severity, reason.action) == (rule.severity, rule.action)
    assert reason.detail.startswith(rule.says)
    assert STATES.index(judge(example).state) >= STATES.index(state_of(reason))


def test_each_rule_has_an_example() -> None:
    """No rule is without a row in the truth table."""
    assert {example.rule for example in RULE_EXAMPLES} == set(POLICY)


@pytest.mark.parametrize("example", SOUND, ids=lambda example: example.title)
def test_sound_boards_are_ok(example: Example) -> None:
    """What is normal for some board raises nothing above info."""
    verdict = judge(example)
    assert verdict.state == "ok"
    assert {reason.severity for reason in verdict.reasons} <= {"info"}


def test_the_policy_is_complete() -> None:
    """Each rule and span is named once, and says what holds, why, and when to change it."""
    assert len(POLICY) == len(RULES)
    assert len({span.name for span in SPANS}) == len(SPANS)
    for rule in RULES:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", rule.name)
        assert rule.says
        assert rule.why.endswith(".")
        assert rule.change.endswith(".")
        assert (rule.value is None) or rule.unit
    for span in SPANS:
        assert span.seconds > 0
        assert span.why.endswith(".")
        assert span.change.endswith(".")


def test_the_page_has_every_rule_and_example() -> None:
    """docs/health.md names all that a verdict may give."""
    page = health_page()
    assert all(f"| `{rule.name}` |" in page for rule in RULES)
    assert all(f"| {example.title} |" in page for example in EXAMPLES)
    assert all(f"| `{action}` |" in page for action in get_args(Action))


def test_one_action_the_heaviest_of_the_gravest() -> None:
    """A page that asks for a reset is not outbid by a ticket that asks for an inspection."""
    verdict = judge(Evidence(at=AT, recovery_action=1, pcie_width=8, pcie_width_most=16))
    assert (verdict.state, verdict.action) == ("failed", "reset_gpu")
    assert [reason.code for reason in verdict.reasons] == ["recovery_reset", "pcie_width"]


def seen(*codes: int, text: str = "", ago: float = 10.0) -> tuple[XidSeen, ...]:
    """XIDs some seconds ago."""
    return tuple(XidSeen(code=code, last_at=AT - ago, text=text) for code in codes)


XIDS = [
    # XIDs, other facts, reasons with their severity
    ((45,), {}, {"xid_45": "info"}),
    ((45, 31), {}, {"xid_31": "info"}),
    ((48, 171), {}, {"xid_48": "page"}),
    ((48, 172), {}, {"xid_48": "page"}),
    ((171,), {}, {"xid_171": "page"}),
    ((63,), {"row_remap_pending": False}, {}),
    ((63,), {"retired_pages_pending": False}, {}),
    ((63,), {}, {"xid_63": "ticket"}),
    ((63,), {"row_remap_pending": True}, {"row_remap_pending": "ticket"}),
    ((162, 163), {}, {"xid_162": "info"}),
    ((163,), {}, {"xid_163": "ticket"}),
    ((154,), {"recovery_action": 0}, {}),
    ((13, 31, 43), {}, {"xid_13": "info", "xid_31": "info", "xid_43": "info"}),
    ((999, 12345), {}, {"xid_unknown": "ticket"}),
    ((0,), {}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("codes", "facts", "reasons"), XIDS)
def test_xids_among_each_other(codes: tuple[int, ...], facts: dict[str, Any], reasons: dict[str, str]) -> None:
    """What one XID says about another, and what facts say about XIDs."""
    verdict = judge(Evidence(at=AT, xids=seen(*codes), **facts))
    assert {reason.code: reason.severity for reason in verdict.reasons} == reasons


def test_details_far_from_their_fault_count_alone() -> None:
    """A 171 an hour after a 48 is another fault."""
    verdict = judge(Evidence(at=AT, xids=(*seen(48, ago=3700.0), *seen(171))))
    assert {reason.code for reason in verdict.reasons} == {"xid_48", "xid_171"}


@pytest.mark.parametrize(
    ("text", "field", "codes"),
    [
        ("changed from 0x0 (None) to 0x1 (GPU Reset Required)", None, {"recovery_reset"}),
        ("changed from 0x0 (None) to 0x2 (Node Reboot Required)", 0, {"recovery_reboot"}),
        ("changed from 0x1 (GPU Reset Required) to 0x0 (None)", None, set()),
        ("to (Drain P2P)", None, {"recovery_drain_p2p"}),
        ("to (Drain and Reset)", None, {"recovery_drain_and_reset"}),
        ("from 0x3 (Drain P2P) to 0x1 (GPU Reset Required)", 3, {"recovery_reset"}),
        ("from 0x5 (Recover IMEX) to 0x2 (Node Reboot Required)", 5, {"recovery_reboot"}),
        ("from 0x2 (Node Reboot Required) to 0x4 (Drain and Reset)", 2, {"recovery_reboot"}),
        ("nothing in brackets", None, {"xid_154"}),
    ],
)
def test_the_text_of_154_is_the_drivers_wish(text: str, field: int | None, codes: set[str]) -> None:
    """XID 154 tells at once what the recovery action field tells at the next read."""
    verdict = judge(Evidence(at=AT, xids=seen(154, text=text), recovery_action=field))
    assert {reason.code for reason in verdict.reasons} == codes


def test_a_newer_field_goes_before_an_old_text() -> None:
    """Minutes later the field is newer than the words."""
    evidence = Evidence(at=AT, xids=seen(154, text="(GPU Reset Required)", ago=300.0), recovery_action=0)
    assert judge(evidence).state == "ok"


def test_the_driver_goes_before_the_table() -> None:
    """The table wants a reboot for 79; the driver asks for a reset, and that is the action."""
    verdict = judge(Evidence(at=AT, xids=seen(79), recovery_action=1))
    assert verdict.action == "reset_gpu"
    assert {reason.action for reason in verdict.reasons} == {"reset_gpu"}


def test_the_operator_goes_before_the_table() -> None:
    """An override changes severity and action of its XID, also where the text would have."""
    own = {145: XidPolicy(code=145, name="", category="nvlink", severity="info", action="none")}
    assert judge(Evidence(at=AT, xids=seen(145, text="Fatal")), own).state == "ok"
    assert judge(Evidence(at=AT, xids=seen(145, text="Fatal"))).state == "failed"


def test_a_job_that_dies_everywhere_is_named() -> None:
    """An XID of a job that is at fault itself says so."""
    one = XidSeen(code=31, last_at=AT, job="team/TFJob/x")
    verdict = judge(Evidence(at=AT, xids=(one,), guilty_jobs=frozenset({"team/TFJob/x"})))
    assert "team/TFJob/x" in verdict.reasons[0].detail


words = st.text(alphabet="abcdefghijklmnopqrstuvwxyz_/-0123456789", max_size=8)
floats = st.floats(allow_nan=True, allow_infinity=True)
xids = st.lists(
    st.builds(XidSeen, code=st.integers(-1, 1200), last_at=floats, count=st.integers(), text=st.text(max_size=40), job=words),
    max_size=6,
)
peers = st.lists(st.builds(PeerFault, gpu=st.integers(), code=st.integers(), from_at=floats, until_at=floats), max_size=3)
anything = st.fixed_dictionaries(
    {},
    optional={
        "at": floats,
        "fault": words | st.sampled_from(["stalled", "gpu_is_lost", "starting", "unknown"]),
        "down_seconds": floats,
        "read": st.booleans(),
        "missing": st.lists(words, max_size=2).map(tuple),
        "recovery_action": st.integers(-5, 70),
        "xids": xids.map(tuple),
        "suspect_jobs": st.lists(words, max_size=3).map(tuple),
        "peers": peers.map(tuple),
        "ecc_uncorrected": st.integers(),
        "row_remap_pending": st.booleans(),
        "row_remap_failed": st.booleans(),
        "retired_pages_pending": st.booleans(),
        "throttled_ratio": st.dictionaries(st.sampled_from(sorted(POLICY)), floats, max_size=4),
        "nvlinks_most": st.integers(),
        "fabric_sound": st.booleans(),
        "pcie_width": st.integers(),
        "pcie_width_most": st.integers(),
        "pcie_generation": st.integers(),
        "pcie_generation_most": st.integers(),
    }
    | {
        name: floats
        for name in Evidence.__struct_fields__
        if name.endswith(("_grown", "_celsius", "_second", "_minute", "_ratio", "_budget", "nvlinks_down")) and name != "throttled_ratio"
    }
    | {
        name: st.integers()
        for name in (
            "sram_uncorrected_ever",
            "rows_remapped_uncorrected",
            "banks_without_spare",
            "retired_pages",
            "retired_pages_uncorrected",
        )
    },
)


@given(anything)
def test_any_evidence_gives_a_verdict(facts: dict[str, Any]) -> None:
    """Whatever the evidence, there is a verdict of known words, and its state is the worst of its reasons."""
    verdict = judge(Evidence(**facts))
    assert verdict.state in STATES
    assert verdict.action in get_args(Action)
    for reason in verdict.reasons:
        assert reason.code in POLICY or reason.code == "xid_unknown" or re.fullmatch(r"xid_[1-9][0-9]*", reason.code)
        assert reason.severity in get_args(Severity)
        assert reason.action in get_args(Action)
        assert len(reason.detail.splitlines()) == 1
    assert verdict.state == max(map(state_of, verdict.reasons), key=STATES.index, default="ok")
    assert len({reason.code for reason in verdict.reasons}) == len(verdict.reasons)


WORSE_UP = (
    "ecc_uncorrected",
    "ecc_uncorrected_grown",
    "ecc_corrected_per_second",
    "sram_uncorrected_ever",
    "rows_remapped_uncorrected",
    "banks_without_spare",
    "retired_pages",
    "retired_pages_uncorrected",
    "retired_pages_uncorrected_grown",
    "nvlinks_down",
    "nvlink_errors_per_minute",
    "nvlink_crc_per_second",
    "pcie_replays_per_minute",
)
WORSE_DOWN = ("margin_celsius", "headroom_celsius", "memory_headroom_celsius", "busy_clock_ratio", "pcie_width", "pcie_generation")
amounts = st.integers(0, 1000)


@given(st.fixed_dictionaries(dict.fromkeys((*WORSE_UP, *WORSE_DOWN), amounts)), st.data())
def test_worse_numbers_never_give_a_better_state(facts: dict[str, Any], data: st.DataObject) -> None:
    """One number that gets worse, with all others as they are, never improves the state."""
    fixed = {"pcie_width_most": 16, "pcie_generation_most": 5, "pcie_replay_budget": 15.0, "nearest_limit_celsius": 1.0}
    before = Evidence(at=AT, **facts, **fixed)
    name = data.draw(st.sampled_from((*WORSE_UP, *WORSE_DOWN)))
    step = data.draw(st.integers(1, 1000))
    worse = msgspec.structs.replace(before, **{name: facts[name] + (step if name in WORSE_UP else -step)})
    assert rank(worse) >= rank(before)


FLAWS: tuple[dict[str, Any], ...] = (
    {"recovery_action": 3},
    {"row_remap_pending": True},
    {"row_remap_failed": True},
    {"retired_pages_pending": True},
    {"fabric_sound": False},
    {"fault": "unknown"},
    {"fault": "gpu_is_lost"},
    {"missing": ("ecc_errors",)},
    {"throttled_ratio": {"hardware_thermal": 1.0}},
    {"suspect_jobs": ("a", "b")},
)


@given(st.lists(st.sampled_from(FLAWS)), st.sampled_from(FLAWS), st.lists(st.integers(1, 200).filter(lambda code: code != 154)))
def test_another_flaw_never_gives_a_better_state(flaws: list[dict[str, Any]], more: dict[str, Any], codes: list[int]) -> None:
    """A flaw on top of others, whatever they are, never improves the state."""
    facts: dict[str, Any] = {"at": AT, "xids": seen(*codes), "row_remap_pending": False, "recovery_action": 0}
    for flaw in flaws:
        facts |= flaw
    if facts.get("fault") and more.get("fault"):
        return
    assert rank(Evidence(**(facts | more))) >= rank(Evidence(**facts))


@given(st.sets(st.integers(1, 200)), st.integers(1, 176).filter(lambda code: code not in (154, 162)))
def test_another_xid_never_gives_a_better_state(codes: set[int], more: int) -> None:
    """An XID more never improves the state; it is at least as bad as its own severity unless another one explains it."""
    before, after = Evidence(at=AT, xids=seen(*codes)), Evidence(at=AT, xids=seen(*codes | {more}))
    assert rank(after) >= rank(before)
    if policy_of(more).severity == "page":
        assert judge(after).state == "failed"


def rank(evidence: Evidence) -> int:
    """How bad the state is."""
    return STATES.index(judge(evidence).state)


def test_a_number_that_is_none_accuses_nobody() -> None:
    """NaN crosses no threshold."""
    nothing = dict.fromkeys((*WORSE_UP, *WORSE_DOWN), math.nan)
    assert judge(Evidence(at=AT, pcie_width_most=16, pcie_replay_budget=1.0, **nothing)).state == "ok"  # type: ignore[arg-type]
