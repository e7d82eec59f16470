"""What attribution found, in a person's words: for the page and for ``gpuwatch check``. Pure text; nothing here is escaped."""

from __future__ import annotations

from typing import Final

from gpuwatch.snapshot import Holder

REASONS: Final = {
    "not_allocated": "free: given to nobody",
    "unknown_device": "given out under an id that NVML does not know",
    "pod_unknown": "given to a pod that the API server has not told of yet",
    "pod_ended": "free: its last pod is over",
    "source_down": "not known: the kubelet does not answer",
    "process_outside_pod": "used by a process in no pod",
}
"""Why a GPU or a MIG instance has no holder, by :data:`gpuwatch.attribution.REASONS`."""

SOURCES: Final = {
    "podresources": "kubelet",
    "pods": "pods",
    "dra": "DRA",
    "processes": "processes",
    "events": "events",
    "node_condition": "node condition",
}
"""What a person calls a source."""

_RULES: Final = {
    "pods": 'list and watch on "pods" (API group "")',
    "dra": 'list and watch on "resourceslices" (API group "resource.k8s.io")',
    "events": 'create on "events" (API group "")',
    "node_condition": 'patch on "nodes/status" (API group "")',
}
_SOURCE_ADVICE: Final = {
    ("podresources", "no_directory"): "Mount the kubelet's directory pod-resources read-only (hostPath /var/lib/kubelet/pod-resources); "
    "set kubernetes.kubelet_root where the kubelet has another root.",
    (
        "podresources",
        "no_socket",
    ): "Is the kubelet running? Mount the directory pod-resources, not the socket, which each kubelet makes anew; "
    "set kubernetes.kubelet_root where the kubelet has another root.",
    ("podresources", "permission"): "Run as uid 0 (runAsUser: 0, no capability needed) and mount the kubelet's directory pod-resources "
    "read-only: the kubelet lets nobody else in, whatever the group.",
    ("podresources", "not_listening"): "Is the kubelet running? 'systemctl status kubelet' on the node.",
    ("podresources", "timeout"): "The kubelet is overloaded or hangs: look at its log on the node.",
    (
        "podresources",
        "rate_limited",
    ): "Something else on the node asks the kubelet very often: look for other agents that read pod-resources.",
    ("podresources", "unimplemented"): "Is the right directory mounted? Kubelets before 1.20 do not serve this.",
    ("processes", "no_host_pid"): "Set hostPID: true in the pod, or mount the node's /proc read-only and set kubernetes.proc_root; "
    "set kubernetes.processes: false to do without.",
    ("processes", "no_proc"): "kubernetes.proc_root must name the node's /proc.",
    ("processes", "permission"): "Run as uid 0; a /proc that was mounted with hidepid hides other users' processes.",
}
_API_ADVICE: Final = {
    "forbidden": "Grant the service account {rule} by a ClusterRole and a ClusterRoleBinding; it is tried again every few minutes.",
    "unauthorized": "The token is refused: is the service account still there, and automountServiceAccountToken not false?",
    "no_configuration": "Give the pod a service account token, or set kubernetes.api_server: never to do without job names.",
    "unreachable": "Does a network policy or a proxy stand between this pod and the API server?",
    "timeout": "The API server is slow or cut off: look for network policies and its load.",
    "tls": "The API server's certificate is not accepted: is the cluster's CA in the mounted service account?",
    "throttled": "The API server sheds load; it is asked again later.",
}


def title_of(holder: Holder) -> str:
    """The job of a holder with its replica: ``TFJob resnet, worker 0``."""
    job = holder.job
    replica = " ".join(part for part in (job.replica_type, job.replica_index) if part)
    return f"{job.kind} {job.name}" + (f", {replica}" if replica else "")


def marks_of(holder: Holder) -> tuple[str, ...]:
    """What is special about how it holds the device."""
    return (("shared",) if holder.shared else ()) + (() if holder.requested else ("not requested",))


def reason_of(token: str) -> str:
    """Why nobody holds the device; a reason without words stands for itself."""
    return REASONS.get(token, token.replace("_", " "))


def advice_on(source: str, fault: str) -> str:
    """What to do about a source's fault; empty when there is nothing to do but wait."""
    if source in _RULES:
        return _API_ADVICE.get(fault, "").format(rule=_RULES[source])
    return _SOURCE_ADVICE.get((source, fault), "")
