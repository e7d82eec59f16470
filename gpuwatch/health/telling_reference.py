"""The part of ``docs/health.md`` about who is told of a verdict, with the limits that the code has."""

from __future__ import annotations

from typing import Final

from gpuwatch.duration import format_duration
from gpuwatch.health.standing import UNKNOWN_SECONDS
from gpuwatch.health.telling import AGAIN_SECONDS, JUST_ENDED_SECONDS, MOST_NOTICES, Notice
from gpuwatch.health.wording import pod_message
from gpuwatch.snapshot import Reason

_EXAMPLE: Final = Notice(
    kind="GpuFailed",
    gpu=2,
    uuid="GPU-5c0e3a52-6c9b-4a63-9d5a-0d0f6c1b7e21",
    model="NVIDIA A100-SXM4-40GB",
    before="ok",
    state="failed",
    action="reboot_node",
    reasons=(Reason(code="xid_79", severity="page", action="reboot_node", detail="XID 79, GPU has fallen off the bus"),),
    at=0.0,
)
_SECTION: Final = f"""\
## Who is told

A change of the verdict is a line of the log, always: `GPU has failed` and `GPU is degraded` as warnings, `GPU is sound again` as
information, with the GPU, the state before, the action, the reasons, and the jobs and pods that hold it. Two switches tell the cluster
too:

| setting | what it does | right that it needs |
|---|---|---|
| `kubernetes.events: true` | events about the node and about each pod that holds the GPU | `create` on `events` (API group `""`) |
| `kubernetes.node_condition: true` | the condition `GpuHealthy` of the node | `patch` on `nodes/status` (API group `""`) |

The rights are for a ClusterRole: pods live in any namespace, and nodes in none. Both also need what attribution by the API server needs
([attribution.md](attribution.md)). They are refused together with `kubernetes.attribution: never` or `kubernetes.api_server: never`, are
off where no cluster is found, and never tell of simulated GPUs. RBAC cannot narrow `nodes/status` to the agent's own node; gpuwatch
patches no other, and nothing there but its one condition.

```yaml
rules:
  # kubernetes.events
  - apiGroups: [""]
    resources: [events]
    verbs: [create]
  # kubernetes.node_condition
  - apiGroups: [""]
    resources: [nodes/status]
    verbs: [patch]
```

Whether they work is in `gpuwatch_attribution_up{{source="events"}}` and `{{source="node_condition"}}`, on the page and in the JSON, from
the start on: the right to post events is asked for by a dry run, before it is needed. `gpuwatch_kubernetes_events_total` counts what
became of the events. A role that reaches some namespaces only is enough for events there.

### Events

| reason | type | when | about |
|---|---|---|---|
| `GpuFailed` | Warning | the state becomes `failed` | the node, and the pods that hold the GPU |
| `GpuDegraded` | Warning | the state becomes `degraded`, also from `failed` | the same |
| `GpuRecovered` | Normal | the state becomes `ok` after one of these | the node, and those of the pods that still hold it |

A failure is told once. It is told again when the action becomes heavier, or for a reason that was not told yet; values that change, and
reasons that go while others stay, are no news. `unknown` is never told: it neither fails a GPU nor makes it well. A GPU that is bad when
the agent starts is told of as soon as its holders are known; a second event in the same ten minutes of the clock has the same name, which
the API server refuses, so that a restart of the agent within them does not repeat it. Another board in the same slot starts clean.

The pods are those that hold the GPU then, and those that ended at most {JUST_ENDED_SECONDS:.0f} s before: a fault mostly kills its pod
before the next read shows it. With MIG a fault of the board is told to the holders of all its instances, and the event says so; where the
verdict has no reason but XIDs that name their GPU instance, only its holders are told. A pod that the API server has not told of gets no
event.

For one GPU, each reason in the first column comes at most once in {format_duration(AGAIN_SECONDS)} unless the action is heavier; for the
node there are at most {MOST_NOTICES} such pieces of news in that time. What is held back is told later, if it is still true. An event
that cannot be posted is tried again for ten minutes, with back-off; 256 may wait. A log line of the same kind comes at most once a
minute.

The owner of a pod sees, for a GPU that fell off the bus:

```text
$ kubectl describe pod mnist-worker-0
Events:
  Type     Reason     Age  From      Message
  ----     ------     ---  ----      -------
  Warning  GpuFailed  12s  gpuwatch  {pod_message(_EXAMPLE)}
```

The event about the node has the action for its administrator and names the pods and jobs. The one about a pod names nobody else's.

### The node condition

| status | reason | when |
|---|---|---|
| `True` | `AllGpusOk` | every GPU is `ok` |
| `True` | `GpuDegraded` | a GPU is `degraded`, none worse |
| `False` | `GpuFailed` | a GPU is `failed` |
| `Unknown` | `GpuUnreadable` | a GPU is `unknown` for {format_duration(UNKNOWN_SECONDS)}, none is `failed` |

Only `failed` makes the status False. What drains nodes by a condition would take seven sound GPUs out of service for the flaw of the
eighth, which still computes right and can wait until its job ends; the reason tells of it. A start of the agent or an upgrade of the
driver that takes no longer than that does not change the condition. A change is sent at once, at most six times a minute; without one the
time of the last heartbeat is renewed every five minutes. `lastTransitionTime` moves with the status alone, also over restarts of the
agent. Where gpuwatch is removed the condition stays, with an old heartbeat.
"""


def telling_section() -> str:
    """The section, in Markdown."""
    return _SECTION
