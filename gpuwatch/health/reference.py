"""The page ``docs/health.md``, made from the rules, the XID table and the verdicts of the examples."""

from __future__ import annotations

from gpuwatch.duration import format_duration
from gpuwatch.health.actions import sentence_of
from gpuwatch.health.examples import EXAMPLES
from gpuwatch.health.policy import NONSENSE_MARGIN_CELSIUS, PCIE_REPLAYS_PER_LANE_MINUTE, RULES, SPANS, Rule
from gpuwatch.health.telling_reference import telling_section
from gpuwatch.health.verdict import ACTIONS, judge
from gpuwatch.health.xid import XidPolicy, xid_table
from gpuwatch.snapshot import Verdict

_INTRODUCTION = """\
# Health

<!-- Made by `gpuwatch generate` from gpuwatch/health/: change that, not this page. -->

Each GPU has one verdict: a state, the reasons for it, and one thing to do. It is in `gpuwatch_gpu_health_state` and
`gpuwatch_gpu_health_reason`, on the page, in the JSON and in `gpuwatch check`.

| state | what it means |
|---|---|
| `ok` | Nothing is wrong. Errors that are a program's own leave the state as it is. |
| `degraded` | It works with a flaw. Repair it when convenient. |
| `unknown` | It cannot be read, or facts about its health cannot. What cannot be seen is not called sound. |
| `failed` | Take it out of service now: what runs on it is dead, wrong or held up. |

| action | what to do |
|---|---|
{actions}
The state is the worst that any reason brings, in the order of the table above. The action is the heaviest, in the order of its table,
among the reasons of the highest severity: `page` (wake somebody), `ticket` (in working hours), `info` (the owner of the job).

What is true of all rules:

- A restart of the agent raises nothing: counters are compared with their own earlier values, and links and lanes with what the board has
  had. Nor does it forget what the driver still knows (errors since it was loaded, rows that wait, the action it asks for).
- A verdict clears by itself when the GPU is reset, the driver loaded anew, the node rebooted or the board exchanged.
- What the driver asks for goes before the XID table, and an XID 154 tells it at once.
- A start of the driver or the agent, an upgrade, and a change of MIG instances say nothing about a board.
- The power cap is never a fault. The power brake is one of the rack: the GPU is shown as degraded, however long it lasts.
"""

_ABOUT_XIDS = """\
## XIDs

The whole table is `gpuwatch/health/xid.csv`. `health.xid_overrides` changes the severity or the action of any number.
45 alone is noise. 171 and 172 are details of a 48. 63 is judged by the flag that something waits for a reset. 74 within five
minutes of a peer's 48, 62, 79 or 119 is taken for its echo. 144 to 150 are judged by whether their text says fatal. A number that
is not in the table is a ticket: watch. An XID stops to count when the GPU was reset, or after the times above.
One of severity page from before the agent started counts no more when the driver shows that a reset came since: it asks for
nothing, or its count of uncorrected errors began anew.

"""


def health_page() -> str:
    """The whole page, in Markdown."""
    return f"{_introduction()}\n{_truth_table()}\n{_rules()}\n{_spans()}\n{_xids()}\n{telling_section()}"


def _introduction() -> str:
    rows = (f"| `{action}` | {sentence_of(action)} |\n" for action in ACTIONS)
    return _INTRODUCTION.format(actions="".join(rows))


def _truth_table() -> str:
    rows = "".join(f"| {example.title} | {_verdict(judge(example))} |\n" for example in EXAMPLES)
    return (
        "## Truth table\n\nEach row is evidence and the verdict that the code gives on it.\n\n"
        f"| evidence | state | action | reasons |\n|---|---|---|---|\n{rows}"
    )


def _verdict(verdict: Verdict) -> str:
    reasons = ", ".join(f"`{reason.code}`" for reason in verdict.reasons) or "-"
    return f"`{verdict.state}` | `{verdict.action}` | {reasons}"


def _rules() -> str:
    budget = ", ".join(f"{generation}: {allowed:g}" for generation, allowed in PCIE_REPLAYS_PER_LANE_MINUTE.items())
    return (
        "## Reasons and thresholds\n\nThey stand in `gpuwatch/health/policy.py` and are no settings: who needs another one\n"
        "changes it there.\n\n"
        "| reason | when | threshold | over | severity | state | action | why | when to change it |\n"
        f"|---|---|---|---|---|---|---|---|---|\n{''.join(map(_rule, RULES))}\n"
        f"PCIe replays allowed a minute and lane, by generation: {budget}. A margin near zero is believed only while a sensor is within\n"
        f"{NONSENSE_MARGIN_CELSIUS:g} °C of its own limit or the GPU slows down for heat.\n"
    )


def _rule(rule: Rule) -> str:
    threshold = "-" if rule.value is None else f"{rule.value:g} {rule.unit}"
    over = "-" if rule.window_seconds is None else _time(rule.window_seconds)
    state = rule.state or {"page": "failed", "ticket": "degraded", "info": "ok"}[rule.severity]
    cells = (f"`{rule.name}`", rule.says, threshold, over, rule.severity, f"`{state}`", f"`{rule.action}`", rule.why, rule.change)
    return f"| {' | '.join(cells)} |\n"


def _spans() -> str:
    rows = "".join(f"| `{span.name}` | {_time(span.seconds)} | {span.why} | {span.change} |\n" for span in SPANS)
    return f"## Times for XIDs\n\n| name | time | why | when to change it |\n|---|---|---|---|\n{rows}"


def _xids() -> str:
    grave = [policy for policy in xid_table().values() if policy.severity != "info"]
    known = [policy for policy in grave if policy.note not in {"not in use", "old meaning"}]
    program = _codes([policy for policy in xid_table().values() if policy.severity == "info"])
    old = _codes([policy for policy in grave if policy not in known])
    rows = "".join(f"| {one.code} | {one.name} | {one.category} | {one.severity} | `{one.action}` | {one.note} |\n" for one in known)
    return (
        f"{_ABOUT_XIDS}"
        f"| XID | name | category | severity | action | note |\n|---|---|---|---|---|---|\n{rows}\n"
        f"Info: {program}.\n\nNot in use on today's boards, and tickets if they ever come: {old}.\n"
    )


def _codes(policies: list[XidPolicy]) -> str:
    """Numbers as ranges: 1 to 4, 6."""
    ranges: list[list[int]] = []
    for code in sorted(policy.code for policy in policies):
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in ranges)


def _time(seconds: float) -> str:
    days = seconds / 86_400
    return f"{days:.0f} days" if days > 1 else format_duration(seconds)
