"""Alerts about gpuwatch itself: without it no other alert can fire."""

from __future__ import annotations

from typing import Final

from gpuwatch.rules.alert import Alert

_GROUP: Final = "gpuwatch-agent"
_NODE: Final = "cluster, node"

AGENT: Final = (
    Alert(
        name="GpuwatchDown", group=_GROUP, severity="warning", for_="10m", subject="node", board="agent",
        expression='up{job="${job}"} == 0',
        summary="gpuwatch cannot be scraped.",
        description="The agent at {{ $labels.instance }} has not answered for ten minutes: nothing is known of the GPUs there. "
        "First: look at the pod's state and its last log lines.",
    ),
    Alert(
        name="GpuNodeWithoutAgent", group=_GROUP, severity="warning", for_="15m", subject="node", board="agent",
        expression=f'max by ({_NODE}) (kube_node_status_allocatable{{resource=~"nvidia_com_(gpu.*|mig_.+)"}}) > 0 '
        f"unless on (node) gpuwatch_build_info",
        summary="A node with GPUs runs no gpuwatch.",
        description="{{ $labels.node }} offers GPUs and no agent there is scraped. First: compare its taints and labels with the DaemonSet's.",
    ),
    Alert(
        name="GpuwatchCannotRead", group=_GROUP, severity="critical", for_="10m", subject="node", board="agent",
        expression=f"max by ({_NODE}) (gpuwatch_up) == 0",
        summary="No GPU of the node can be read.",
        description="gpuwatch on {{ $labels.node }} runs and cannot read any GPU"
        '{{ range query (printf "gpuwatch_fault{node=%q}" $labels.node) }} ({{ .Labels.reason }}){{ end }}. '
        "First: run nvidia-smi on the node; then gpuwatch check in the pod.",
    ),
    Alert(
        name="GpuwatchReadStalled", group=_GROUP, severity="warning", for_="5m", subject="node", board="agent",
        expression=f'time() - max by ({_NODE}) (gpuwatch_last_read_timestamp_seconds{{tier="fast"}}) > ${{read_age}} '
        f"and on (cluster, node) max by ({_NODE}) (gpuwatch_up) == 1",
        summary="The GPUs of the node are read no more.",
        description="The last complete read on {{ $labels.node }} was {{ $value | humanizeDuration }} ago. "
        "First: look for GPUs with gpuwatch_gpu_up 0 on the node, and for hung processes (state D).",
    ),
    Alert(
        name="GpuwatchAttributionFailing", group=_GROUP, severity="warning", for_="15m", subject="node", board="agent",
        expression=f"max by ({_NODE}, source) (gpuwatch_attribution_up) == 0",
        summary="gpuwatch cannot tell which job holds which GPU.",
        description="Source {{ $labels.source }} on {{ $labels.node }} does not answer"
        '{{ range query (printf "gpuwatch_attribution_fault{node=%q, source=%q}" $labels.node $labels.source) }} ({{ .Labels.reason }}){{ end }}: '
        "job metrics there grow old or are missing. First: look at the reason in gpuwatch check.",
    ),
    Alert(
        name="GpuXidSourceDown", group=_GROUP, severity="warning", for_="15m", subject="node", board="agent",
        expression=f"(max by ({_NODE}, source) (gpuwatch_xid_source_up) == 0 "
        f'unless on (cluster, node, source) gpuwatch_xid_source_fault{{reason=~"not_supported|not_found|gpu_is_lost"}}) '
        f'or label_replace(max by ({_NODE}) (gpuwatch_xid_source_up) == 0, "source", "any", "", "")',
        summary="Faults that the driver tells of may go unseen.",
        description="{{ $labels.node }} does not listen to source {{ $labels.source }}"
        '{{ range query (printf "gpuwatch_xid_source_fault{node=%q, source=%q}" $labels.node $labels.source) }} ({{ .Labels.reason }}){{ end }}: '
        "XIDs may be missed. First: give the agent the right to read the kernel log, or switch that source off.",
    ),
)  # fmt: skip
