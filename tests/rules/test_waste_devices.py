"""Alerts about GPUs that nobody can use, or that are held by what does no work, in the real promtool."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.jobs import Worker, of_job
from rules.promtool import GPU, Moments, alert, both, fire, moved, say

USED = f"gpuwatch_gpu_memory_used_bytes{{{GPU}}}"
HELD = f'gpuwatch_job_gpu_info{{{GPU}, namespace="speech", pod="wav-0", container="c", job_kind="TFJob", job_name="wav"}}'
MIG_INFO = f'gpuwatch_mig_info{{{GPU}, mig_uuid="MIG-0", profile="1g.18gb"}}'
MIG_GPU = f'gpuwatch_gpu_info{{{GPU}, mig_mode="enabled"}}'
UP = f"gpuwatch_gpu_up{{{GPU}}}"
KEPT = alert("GpuMemoryHeldWithoutPod", "warning", GPU)
BARE = alert("GpuMigWithoutInstances", "info", GPU)


def unheld(reason: str) -> dict[str, str]:
    """No pod holds the GPU."""
    return {f'gpuwatch_gpu_unattributed{{{GPU}, reason="{reason}"}}': "1x120"}


def phase(name: str, pod: str = "wav-0", uid: str = "u1") -> dict[str, str]:
    """What kube-state-metrics says of the pod."""
    phases = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
    return {
        f'kube_pod_status_phase{{namespace="speech", pod="{pod}", uid="{uid}", phase="{one}"}}': f"{int(one == name)}x120" for one in phases
    }


def test_memory_without_a_pod(tmp_path: Path) -> None:
    """More than contexts need, for half an hour, and nobody holds the GPU; not where nobody knows, and not a GPU that is cut."""
    much = {USED: "3000000000x120"}
    kept = much | unheld("process_outside_pod")
    series = kept | both(moved(kept, "n2")) | moved({USED: "2147483648x120"} | unheld("not_allocated"), "n3")
    series |= moved(much | unheld("source_down"), "n4") | moved(much | {HELD: "1x120"}, "n5") | moved(much | {MIG_INFO: "1x120"}, "n6")
    series |= moved(unheld("not_allocated"), "n7")
    found = [KEPT, KEPT | {"node": "n2"}]
    fire(tmp_path, series, {"29m": [], "30m": found, "100m": found})
    fire(tmp_path, kept, {"30m": []}, thresholds={"memory_held_bytes": "4e9"})


@pytest.mark.parametrize("name", ["Pending", "Succeeded", "Failed", "Unknown"])
def test_a_pod_that_does_not_run(tmp_path: Path, name: str) -> None:
    """Holds a GPU for half an hour; one that runs may, one without a GPU may wait, and without kube-state-metrics nothing is said."""
    pod = 'namespace="speech", pod="wav-0", job_kind="TFJob", job_name="wav"'
    running = HELD.replace("wav-0", "wav-1").replace('"GPU-0"', '"GPU-1"')
    unseen = HELD.replace("wav-0", "wav-2").replace('"GPU-0"', '"GPU-2"')
    series = both({HELD: "1x120"} | phase(name)) | {running: "1x120", unseen: "1x120"} | phase("Running", "wav-1") | phase(name, "none-0")
    found = [alert("GpuHeldByInactivePod", "warning", pod)]
    fire(tmp_path, series, {"29m": [], "30m": found, "100m": found})


def test_two_pods_of_one_name_break_no_rule(tmp_path: Path) -> None:
    """While a pod is made anew both are told of, in different phases."""
    fire(tmp_path, {HELD: "1x120"} | phase("Pending") | phase("Failed", uid="u2"), {"30m": [
        alert("GpuHeldByInactivePod", "warning", 'namespace="speech", pod="wav-0", job_kind="TFJob", job_name="wav"')
    ]})  # fmt: skip


def test_a_cut_gpu_without_a_cut(tmp_path: Path) -> None:
    """MIG mode without an instance for an hour; not while it is cut anew, and not of a GPU that does not answer."""
    bare = {MIG_GPU: "1x120", UP: "1x120"}
    series = bare | both(moved(bare, "n2")) | moved(bare | {MIG_INFO: "1x20 stale _x39 1x60"}, "n3")
    series |= moved({MIG_GPU: "1x120", UP: "0x120"}, "n4") | moved({MIG_GPU.replace("enabled", "disabled"): "1x120", UP: "1x120"}, "n5")
    found = [BARE, BARE | {"node": "n2"}]
    fire(tmp_path, series, {"59m": [], "60m": found, "100m": found})


WAITING = 'kueue_pending_workloads{cluster_queue="%s", status="%s"}'
FREE = alert("GpuFreeWhileJobsQueue", "info")
CASES: list[tuple[str, dict[str, str], Moments]] = [
    ("free and wanted", unheld("not_allocated"), {"29m": [], "30m": [FREE], "100m": [FREE]}),
    ("told by two agents", both(unheld("not_allocated")), {"30m": [FREE]}),
    ("an instance", {f'gpuwatch_mig_unattributed{{{GPU}, mig_uuid="MIG-0", reason="not_allocated"}}': "1x120"}, {"30m": [FREE]}),
    ("nobody knows", unheld("source_down"), {"100m": []}),
    ("used by a process outside of pods", unheld("process_outside_pod"), {"100m": []}),
    ("cannot be read", unheld("not_allocated") | {f'gpuwatch_gpu_health_state{{{GPU}, state="unknown"}}': "1x120"}, {"100m": []}),
    ("sound", unheld("not_allocated") | {f'gpuwatch_gpu_health_state{{{GPU}, state="unknown"}}': "0x120"}, {"30m": [FREE]}),
    ("on a node that takes no pods", unheld("not_allocated") | {'kube_node_spec_unschedulable{node="n1"}': "1x120"}, {"100m": []}),
    ("on a node that does", unheld("not_allocated") | {'kube_node_spec_unschedulable{node="n1"}': "0x120"}, {"30m": [FREE]}),
    ("held", {HELD: "1x120"}, {"100m": []}),
]


@pytest.mark.parametrize(("series", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_free_gpus_and_a_queue(tmp_path: Path, series: dict[str, str], expected: Moments) -> None:
    """A job waits, and a sound GPU that a job could get is free, for half an hour."""
    fire(tmp_path, series | {WAITING % ("a", "active"): "0x120", WAITING % ("b", "inadmissible"): "2x120"}, expected)


def test_free_gpus_without_a_queue(tmp_path: Path) -> None:
    """Nobody waits, or there is no Kueue: free GPUs are no matter. One that is in MIG mode without instances is not free."""
    free = unheld("not_allocated")
    fire(tmp_path, free | {WAITING % ("a", "active"): "0x120"}, {"100m": []})
    fire(tmp_path, free, {"100m": []})
    fire(tmp_path, free | {MIG_GPU: "1x120", WAITING % ("a", "active"): "1x120"}, {"31m": []})


def test_says_where_whom_and_what_to_do(tmp_path: Path) -> None:
    """The GPU or the pod, its node, and a first thing to do."""
    kept = {USED: "3221225472x120", MIG_GPU: "1x120", UP: "1x120"} | unheld("process_outside_pod")
    held = {HELD: "1x120"} | phase("Pending")
    free = unheld("not_allocated") | moved(unheld("not_allocated"), "n2") | {WAITING % ("a", "active"): "1x120"}
    cases = {
        "GpuMemoryHeldWithoutPod": (kept, ("3GiB are in use on GPU 0 (H100) on n1", "nvidia-smi")),
        "GpuMigWithoutInstances": (kept, ("GPU 0 (H100) on n1", "create instances")),
        "GpuHeldByInactivePod": (
            held,
            ("Pod speech/wav-0 of TFJob speech/wav holds a GPU of n1 and does not run (Pending).", "look at its events"),
        ),
        "GpuFreeWhileJobsQueue": (free, ("2 GPUs or MIG instances are free", "quota")),
    }
    for name, (series, words) in cases.items():
        (one,) = say(tmp_path, series, "100m", name)
        assert all(word in one["description"] for word in (*words, "First: ")), one


def test_no_alert_about_full_memory(tmp_path: Path) -> None:
    """TensorFlow maps nearly all memory of a GPU; a job that does so and works is told of by nothing."""
    worker = Worker(job="full")
    full = {f"gpuwatch_{name}_memory_used_bytes{{{worker.labels}}}": "84000000000x180" for name in ("job_gpu", "gpu")}
    assert of_job(worker)["job_name"] == "full"
    fire(tmp_path, worker.series() | full, {"60m": [], "170m": []})
