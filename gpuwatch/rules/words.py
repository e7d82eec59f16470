"""Pieces that many rules share: how a series is made one for each GPU, and how a notification names where it hurts and whom it hits."""

from __future__ import annotations

from typing import Final

GPU: Final = "cluster, node, gpu, uuid, model"
"""What identifies a GPU in an alert. Two agents (an old pod and a new one) may serve the same GPU for minutes: each rule merges them."""
DEVICE: Final = "cluster, node, uuid"
"""By what series of one GPU are joined: its number may change, its UUID does not."""
JOB: Final = "cluster, namespace, job_kind, job_name"
WHERE: Final = "GPU {{ $labels.gpu }} ({{ $labels.model }}) on {{ $labels.node }}"
"""For alerts about a GPU."""
HOLDERS: Final = (
    '{{ range query (printf "count by (namespace, pod, job_kind, job_name) (gpuwatch_job_gpu_info{uuid=%q})" $labels.uuid) }}'
    " Held by {{ .Labels.job_kind }} {{ .Labels.namespace }}/{{ .Labels.job_name }} (pod {{ .Labels.pod }}).{{ end }}"
)
"""Asked when the alert fires, not a label of it: an alert about hardware stays the same alert when the pod changes."""
THE_JOB: Final = "{{ $labels.job_kind }} {{ $labels.namespace }}/{{ $labels.job_name }}"
"""For alerts about a job."""


def asked(query: str, *labels: str, each: str) -> str:
    """What a query finds when the alert fires, one piece after the other. Its ``%q`` stand for those labels of the alert."""
    values = " ".join(f"$labels.{label}" for label in labels)
    return f'{{{{ range query (printf "{query}" {values}) }}}} {each}{{{{ end }}}}'


def per_gpu(vector: str, operation: str = "max") -> str:
    """One series for each GPU, whatever else its series differ in."""
    return f"{operation} by ({GPU}) ({vector})"
