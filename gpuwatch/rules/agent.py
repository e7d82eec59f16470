"""Alerts about gpuwatch itself: without it no other alert can fire."""

from __future__ import annotations

from typing import Final

from gpuwatch.rules.alert import Alert
from gpuwatch.rules.words import asked

_GROUP: Final = "gpuwatch-agent"
_NODE: Final = "cluster, node"
_READABLE: Final = f"on ({_NODE}) max by ({_NODE}) (gpuwatch_up) == 1"
_DEAF: Final = (
    f"(max by ({_NODE}, source) (gpuwatch_xid_source_up) == 0 "
    f'unless on ({_NODE}, source) gpuwatch_xid_source_fault{{reason=~"not_supported|not_found|gpu_is_lost"}})'
)
"""Sources that could listen and do not. A board or driver without events is as it is; a lost GPU has an alert of its own."""
_ALL_DEAF: Final = f'label_replace(max by ({_NODE}) (gpuwatch_xid_source_up) == 0, "source", "any", "", "")'

_REASON: Final = "({{ .Labels.reason }})"
_FAULT: Final = asked("count by (reason) (gpuwatch_fault{node=%q})", "node", each=_REASON)
_NO_FACTS: Final = asked("count by (reason) (gpuwatch_attribution_fault{node=%q, source=%q})", "node", "source", each=_REASON)
_NO_EAR: Final = asked("count by (reason) (gpuwatch_xid_source_fault{node=%q, source=%q})", "node", "source", each=_REASON)

AGENT: Final = (
    Alert(
        name="GpuwatchDown", group=_GROUP, severity="warning", for_="10m", subject="node", board="agent",
        # Without a label node on the targets each of them must do for itself.
        expression=f'max by ({_NODE}) (up{{job="${{job}}", node!=""}}) == 0 '
        'or max by (cluster, instance) (up{job="${job}", node=""}) == 0',
        summary="gpuwatch cannot be scraped.",
        description="The agent {{ if $labels.node }}on {{ $labels.node }}{{ else }}at {{ $labels.instance }}{{ end }} has not answered "
        "for ten minutes: nothing is known of the GPUs there. First: look at the pod's state and its last log lines.",
    ),
    Alert(
        name="GpuNodeWithoutAgent", group=_GROUP, severity="warning", for_="15m", subject="node", board="agent",
        expression=f'max by ({_NODE}) (kube_node_status_allocatable{{resource=~"nvidia_com_(gpu(_.+)?|mig_.+)"}}) > 0 '
        f'unless on ({_NODE}) gpuwatch_build_info unless on ({_NODE}) up{{job="${{job}}"}}',
        summary="A node with GPUs runs no gpuwatch.",
        description="{{ $labels.node }} offers {{ $value }} GPUs or MIG instances and no agent there is scraped. "
        "First: compare its taints and labels with the DaemonSet's.",
    ),
    Alert(
        name="GpuwatchCannotRead", group=_GROUP, severity="critical", for_="10m", subject="node", board="agent",
        expression=f"max by ({_NODE}) (gpuwatch_up) == 0",
        summary="No GPU of the node can be read.",
        description=f"gpuwatch on {{{{ $labels.node }}}} runs and cannot read any GPU{_FAULT}. "
        "First: run nvidia-smi on the node; then gpuwatch check in the pod.",
    ),
    Alert(
        name="GpuwatchReadStalled", group=_GROUP, severity="warning", for_="5m", subject="node", board="agent",
        expression=f'time() - max by ({_NODE}) (gpuwatch_last_read_timestamp_seconds{{tier="fast"}}) > ${{read_age}} and {_READABLE}',
        summary="The readings of the node are old, or its clock is behind.",
        description="The last read on {{ $labels.node }} was {{ $value | humanizeDuration }} ago by the clock of Prometheus, and the agent "
        "says that it reads. First: look whether the node's clock is right, since it tells the age of XIDs; then restart the agent.",
    ),
    Alert(
        name="GpuwatchAttributionFailing", group=_GROUP, severity="warning", for_="15m", subject="node", board="agent",
        expression=f"max by ({_NODE}, source) (gpuwatch_attribution_up) == 0",
        summary="gpuwatch cannot tell which job holds which GPU.",
        description="Source {{ $labels.source }} on {{ $labels.node }} does not answer"
        f"{_NO_FACTS}: job metrics there grow old or are missing, or nobody is told of a fault. "
        "First: read the reason and the advice in gpuwatch check.",
    ),
    Alert(
        name="GpuXidSourceDown", group=_GROUP, severity="warning", for_="15m", subject="node", board="agent",
        expression=f"({_DEAF} or {_ALL_DEAF} unless on ({_NODE}) {_DEAF}) and {_READABLE}",
        summary="Faults that the driver tells of may go unseen.",
        description='On {{ $labels.node }} gpuwatch listens {{ if eq $labels.source "any" }}to no source of XIDs{{ else }}'
        f"not to source {{{{ $labels.source }}}}{_NO_EAR}{{{{ end }}}}: XIDs may be missed. "
        "First: give the agent the right to read the kernel log (CAP_SYSLOG and /dev/kmsg); if nvml is named, restart its pod.",
    ),
)  # fmt: skip
