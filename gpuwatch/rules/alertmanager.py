"""What an Alertmanager should do with the alerts: which of them another one explains, who is told, and what is told together.

Inhibition and routes are data; :func:`example` writes them as a configuration that an Alertmanager starts with.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from gpuwatch.device.readings import Struct
from gpuwatch.rules.tensorflow import TENSORFLOW

_GPU: Final = ("cluster", "node", "uuid")
_INDEX: Final = ("cluster", "node", "gpu")
_NODE: Final = ("cluster", "node")
_JOB: Final = ("cluster", "namespace", "job_kind", "job_name")
_OF_A_GPU: Final = ('gpu=~".+"', 'uuid=~".+"')
_SAID_OF_LOST: Final = 'alertname!~"GpuLost|GpuRecoveryActionRequired"'
"""What the driver asks for silences XID 79 and is told itself, or the three would silence each other in a circle."""
_KNOWN_CAUSE: Final = "|".join(dict.fromkeys(one.name for one in TENSORFLOW if "Nonfinite" not in one.name))
_WASTE_SEEN: Final = "GpuJobIdle|GpuJobUnderutilized|GpuJobBusyButInefficient|GpuJobImbalance|GpuJobStraggler"
_BY_VERDICT: Final = 'alertname=~"GpuFailed|GpuDegraded"'


class Inhibition(Struct, frozen=True, kw_only=True):
    """While ``source`` fires, nobody is told of ``target`` with the same labels ``equal``. An absent label equals an empty one."""

    why: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    equal: tuple[str, ...]


def _same_fault(alert: str, xid: str) -> Inhibition:
    """The alert on the state says what the XID said, and stays for as long as it is true."""
    return Inhibition(
        why=f"{alert} is the state that XID {xid} announced.",
        source=(f'alertname="{alert}"', 'severity="critical"'),
        target=('alertname="GpuXidCritical"', f'xid="{xid}"'),
        equal=_GPU,
    )


def _follows(alert: str, xid: str) -> Inhibition:
    """The state is told minutes after the XID has woken somebody, whose alert stays until the repair."""
    return Inhibition(
        why=f"XID {xid} has told of it before {alert} can: one fault, one page.",
        source=('alertname="GpuXidCritical"', f'xid="{xid}"'),
        target=(f'alertname="{alert}"', 'severity="critical"'),
        equal=_GPU,
    )


INHIBITIONS: Final = (
    Inhibition(
        why="A lost GPU has no other fault worth a word, but for the XID that says the same.",
        source=('alertname="GpuLost"', 'uuid=~".+"'), target=(_SAID_OF_LOST, 'xid!="79"', *_OF_A_GPU), equal=_GPU,
    ),
    Inhibition(
        why="The same where the GPU was lost before its UUID was read: then its number must do.",
        source=('alertname="GpuLost"', 'uuid=""'), target=(_SAID_OF_LOST, 'xid!="79"', 'gpu=~".+"'), equal=_INDEX,
    ),
    Inhibition(
        why="The same for what is said of a number without a UUID.",
        source=('alertname="GpuLost"',), target=(_SAID_OF_LOST, 'xid!="79"', 'gpu=~".+"', 'uuid=""'), equal=_INDEX,
    ),
    Inhibition(
        why="The driver's own verdict goes before every table of ours.",
        source=('alertname="GpuRecoveryActionRequired"', 'severity="critical"'),
        target=('alertname=~"GpuXidCritical|GpuXidDrainSoon|GpuFailed|GpuDegraded"', *_OF_A_GPU), equal=_GPU,
    ),
    Inhibition(
        why="The same for an action that can wait; it hides nothing that cannot.",
        source=('alertname="GpuRecoveryActionRequired"', 'severity="warning"'),
        target=('alertname=~"GpuXidDrainSoon|GpuDegraded"', *_OF_A_GPU), equal=_GPU,
    ),
    Inhibition(
        why="An alert that names the fault says more than the verdict: a critical one.",
        source=('alertname!~"GpuFailed|GpuDegraded"', 'severity="critical"', *_OF_A_GPU), target=(_BY_VERDICT, *_OF_A_GPU), equal=_GPU,
    ),
    Inhibition(
        why="The same for a warning, which must not hide that the GPU has failed.",
        source=('alertname!~"GpuFailed|GpuDegraded"', 'severity="warning"', *_OF_A_GPU),
        target=('alertname="GpuDegraded"', *_OF_A_GPU), equal=_GPU,
    ),
    Inhibition(
        why="Drain now goes before drain soon, and a failed GPU is degraded too.",
        source=('alertname=~"GpuXidCritical|GpuFailed"',), target=('alertname=~"GpuXidDrainSoon|GpuDegraded"', *_OF_A_GPU), equal=_GPU,
    ),
    Inhibition(
        why="XID 48, 95 or 140 says the same and stays until the GPU was reset: one fault, one page.",
        source=('alertname="GpuXidCritical"', 'xid=~"48|95|140"'), target=('alertname="GpuEccUncorrectable"',), equal=_GPU,
    ),
    _same_fault("GpuRowRemapFailed", "64"),
    _follows("GpuLost", "79"),
    _follows("GpuNvlinkDown", "74"),
    Inhibition(
        why="A row that cannot be replaced is worse than one that waits, or than few that are left.",
        source=('alertname="GpuRowRemapFailed"',), target=('alertname=~"GpuRowRemapPending|GpuRowRemapSparesLow"', *_OF_A_GPU), equal=_GPU,
    ),
    Inhibition(
        why="The grave tier of a condition replaces the mild one.",
        source=('severity="critical"', 'alertname=~"Gpu.+"'), target=('severity="warning"', 'alertname=~"Gpu.+"'),
        equal=("alertname", "cluster", "node", "gpu", "uuid"),
    ),
    Inhibition(
        why="A GPU that died takes the links of its peers with it; XID 74 alone is about the links themselves.",
        source=('alertname=~"GpuLost|GpuXidCritical"', 'xid!="74"'), target=('alertname="GpuNvlinkDown"',), equal=_NODE,
    ),
    Inhibition(
        why="The echo: peers of a dead GPU report XID 74 too.",
        source=('alertname=~"GpuLost|GpuXidCritical"', 'xid!="74"'), target=('alertname="GpuXidCritical"', 'xid="74"'), equal=_NODE,
    ),
    Inhibition(
        why="What already slows down for heat is not about to.",
        source=('alertname="GpuHardwareThermalSlowdown"',),
        target=('alertname=~"GpuSoftwareThermalSlowdown|GpuNearSlowdown"', *_OF_A_GPU), equal=_GPU,
    ),
    Inhibition(
        why="The same where the driver does it.",
        source=('alertname="GpuSoftwareThermalSlowdown"',), target=('alertname="GpuNearSlowdown"', *_OF_A_GPU), equal=_GPU,
    ),
    Inhibition(
        why="GPUs that the chassis brakes are slow and sound.",
        source=('alertname="GpuPowerBrake"',),
        target=('alertname=~"GpuHardwareThermalSlowdown|GpuClocksStuckLow|GpuDegraded|GpuJobStraggler"',), equal=_NODE,
    ),
    Inhibition(
        why="When no GPU of a node can be read, the driver is at fault, and not each of them.",
        source=('alertname="GpuwatchCannotRead"',),
        target=('alertname=~"GpuwatchReadStalled|GpuXidSourceDown|GpuHealthUnknown|GpuMissing|GpuLost|GpuNvlinkDown"',), equal=_NODE,
    ),
    Inhibition(
        why="An agent that cannot be scraped tells nothing, and is there.",
        source=('alertname="GpuwatchDown"', 'node=~".+"'),
        target=('alertname=~"GpuNodeWithoutAgent|GpuwatchCannotRead|GpuwatchReadStalled|GpuwatchAttributionFailing|GpuXidSourceDown"',),
        equal=_NODE,
    ),
    Inhibition(
        why="A node that is down takes its agent with it. The names are those of kubernetes-mixin.",
        source=('alertname=~"KubeNodeNotReady|KubeNodeUnreachable|NodeNotReady"', 'node=~".+"'),
        target=('alertname=~"Gpuwatch.+|GpuNodeWithoutAgent|GpuMissing|GpuXidSourceDown"',), equal=_NODE,
    ),
    Inhibition(
        why="The worker that holds up its job is why the others differ from it.",
        source=('alertname="GpuJobStraggler"',), target=('alertname="GpuJobImbalance"',), equal=_JOB,
    ),
    Inhibition(
        why="What the job itself says of its cause says more than what is seen of its GPUs.",
        source=(f'alertname=~"{_KNOWN_CAUSE}"',), target=(f'alertname=~"{_WASTE_SEEN}"',), equal=_JOB,
    ),
)  # fmt: skip

_PAGE, _TICKET, _OWNER, _DIGEST = "gpuwatch-page", "gpuwatch-ticket", "gpuwatch-job-owner", "gpuwatch-digest"
_TEAM: Final = "gpuwatch-team-language"
ROUTE: Final[dict[str, Any]] = {
    "receiver": _TICKET,
    "matchers": ['alertname=~"(Gpu|TensorFlow).+"'],
    "group_by": ["alertname", "cluster", "node"],
    "group_wait": "5m",
    "group_interval": "15m",
    "repeat_interval": "1d",
    "routes": [
        {
            "receiver": _PAGE,
            "matchers": ['severity="critical"'],
            "group_wait": "1m",
            "group_interval": "5m",
            "repeat_interval": "4h",
            "routes": [{"receiver": _PAGE, "matchers": ['alertname="GpuPowerBrake"'], "group_by": ["alertname", "cluster"]}],
        },
        {"receiver": _TICKET, "matchers": ['severity="warning"']},
        {
            "receiver": _OWNER,
            "matchers": ['severity="info"', 'namespace=~".+"'],
            "group_by": ["cluster", "namespace", "job_name"],
            "routes": [{"receiver": _TEAM, "matchers": ['namespace=~"language|speech"']}],
        },
        {"receiver": _DIGEST, "matchers": ['severity="info"'], "repeat_interval": "7d"},
    ],
}
"""Below an organisation's own root. A page waits for one scrape and one evaluation, so that the alert which explains it is there too."""
RECEIVERS: Final = {
    _PAGE: "Wakes somebody.",
    _TICKET: "For working hours.",
    _OWNER: "Whoever owns the namespace: the receiver finds the team by groupLabels.namespace.",
    _TEAM: "Or one receiver for each team, by its namespaces.",
    _DIGEST: "About the fleet: nobody waits for an answer.",
}
"""What each is for."""
_INTRODUCTION: Final = """\
# An example for Alertmanager. Made by `gpuwatch generate` from gpuwatch/rules/alertmanager.py: change that, not this file.
#
# Take over `inhibit_rules` as they are, and the route for alertname=~"(Gpu|TensorFlow).+" below your own root. The receivers are
# webhooks that stand for yours: pagerduty_configs, slack_configs, email_configs. Inhibition must stand in the main configuration: in
# an AlertmanagerConfig the operator would add its own namespace to every matcher.
"""


def configuration(base: str = "http://alerts.example.org") -> dict[str, Any]:
    """The example as data. ``base``: where the webhooks are."""
    return {
        "route": {"receiver": "default", "routes": [ROUTE]},
        "inhibit_rules": [_entry(one) for one in INHIBITIONS],
        "receivers": [{"name": "default"}, *({"name": name, "webhook_configs": [{"url": f"{base}/{name}"}]} for name in RECEIVERS)],
    }


def example() -> str:
    """The example as a file, with the reasons."""
    made = configuration()
    rules = "".join(f"  # {one.why}\n{_listed(entry)}" for one, entry in zip(INHIBITIONS, made["inhibit_rules"], strict=True))
    default, *others = made["receivers"]
    receivers = _listed(default) + "".join(f"  # {RECEIVERS[one['name']]}\n{_listed(one)}" for one in others)
    return f"{_INTRODUCTION}{_dumped({'route': made['route']})}inhibit_rules:\n{rules}receivers:\n{receivers}"


def _entry(one: Inhibition) -> dict[str, Any]:
    return {"source_matchers": list(one.source), "target_matchers": list(one.target), "equal": list(one.equal)}


def _listed(entry: dict[str, Any]) -> str:
    return "".join(f"  {line}\n" for line in _dumped([entry]).splitlines())


def _dumped(body: object) -> str:
    return yaml.safe_dump(body, sort_keys=False, width=1 << 20)
