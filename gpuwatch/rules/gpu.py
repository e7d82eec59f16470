"""Alerts about a GPU as a whole: gone, refused, or judged by gpuwatch itself."""

from __future__ import annotations

from typing import Final

from gpuwatch.rules.alert import Alert
from gpuwatch.rules.words import HOLDERS, WHERE, asked, per_gpu

_GROUP: Final = "gpuwatch-gpu"
_READABLE: Final = "on (cluster, node) max by (cluster, node) (gpuwatch_up) == 1"
_THIS: Final = ("node", "gpu", "uuid")
_REASONS: Final = asked(
    "count by (reason, action) (gpuwatch_gpu_health_reason{node=%q, gpu=%q, uuid=%q})",
    *_THIS,
    each="{{ .Labels.reason }}: {{ .Labels.action }}.",
)
_FAULT: Final = asked("count by (reason) (gpuwatch_gpu_fault{node=%q, gpu=%q, uuid=%q})", *_THIS, each="({{ .Labels.reason }})")
_ACTION: Final = per_gpu("gpuwatch_gpu_recovery_action")
_COUNT: Final = "max by (cluster, node) (count by (cluster, node, instance) (gpuwatch_gpu_info))"
"""By what one agent sees: an old one and a new one see the same GPUs. An agent keeps a GPU that it has lost, whatever number others get."""

WHOLE_GPU: Final = (
    Alert(
        name="GpuLost", group=_GROUP, severity="critical", for_="${gpu_hung_window}", subject="gpu", board="node",
        expression=f"{per_gpu('gpuwatch_gpu_up')} == 0 and {_READABLE}",
        summary="A GPU no longer answers.",
        description=f"{WHERE} does not answer{_FAULT}, while others there do.{HOLDERS} "
        "First: drain the node and reboot it; if it comes again, have the board looked at.",
    ),
    Alert(
        name="GpuMissing", group=_GROUP, severity="critical", for_="5m", subject="node", board="node",
        expression=f"{_COUNT} < max_over_time({_COUNT}[${{missing_window}}:5m]) and {_READABLE}",
        summary="A node has fewer GPUs than before.",
        description="{{ $labels.node }} shows {{ $value }} GPUs, fewer than within the last ${missing_window}. "
        "First: let no new job start there and look for the missing one with lspci and in the kernel log; if it was taken out on purpose, "
        "this ends by itself.",
    ),
    Alert(
        name="GpuRecoveryActionRequired", group=_GROUP, severity="critical", subject="gpu", board="node",
        expression=f"{_ACTION} == 1 or {_ACTION} == 2 or {_ACTION} == 4",
        summary="The driver asks for a reset or a reboot.",
        description=f"The driver asks for {{{{ if eq $value 2.0 }}}}a reboot of the node{{{{ else }}}}a reset{{{{ end }}}} of {WHERE}"
        f" (action {{{{ $value }}}}).{HOLDERS} First: drain the GPU, then do what the driver asks.",
    ),
    Alert(
        name="GpuRecoveryActionRequired", group=_GROUP, severity="warning", subject="gpu", board="node",
        expression=f"{_ACTION} == 3 or {_ACTION} > 4",
        summary="The driver asks for an action that can wait.",
        description=f"The driver asks for action {{{{ $value }}}} (3 drain P2P, 5 recover the IMEX domain) on {WHERE}.{HOLDERS} "
        "First: let no new job over several GPUs start there.",
    ),
    Alert(
        # It must not outlast the alert that silences it: a repair, or a new start of the agent, would wake somebody.
        name="GpuFailed", group=_GROUP, severity="critical", for_="1m", subject="gpu", board="node",
        expression=per_gpu('gpuwatch_gpu_health_state{state="failed"}') + " == 1",
        summary="A GPU has failed.",
        description=f"{WHERE} cannot be relied on.{_REASONS}{HOLDERS} First: drain it, then take the action named.",
    ),
    Alert(
        # Later than every ticket that names the flaw: both begin anew with the agent, and the one that says less must not be told first.
        name="GpuDegraded", group=_GROUP, severity="warning", for_="20m", subject="gpu", board="node",
        expression=per_gpu('gpuwatch_gpu_health_state{state="degraded"}') + " == 1",
        summary="A GPU works with a flaw.",
        description=f"{WHERE} works, and something is wrong with it.{_REASONS}{HOLDERS} "
        "First: plan the action named for the end of the job.",
    ),
    Alert(
        name="GpuHealthUnknown", group=_GROUP, severity="warning", for_="15m", subject="gpu", board="node",
        expression=per_gpu('gpuwatch_gpu_health_state{state="unknown"}') + f" == 1 and {_READABLE}",
        summary="The health of a GPU cannot be told.",
        description=f"{WHERE} answers not enough to be judged.{_REASONS}{HOLDERS} "
        "First: run gpuwatch check on the node and look at the errors of its calls.",
    ),
)  # fmt: skip
