"""Alerts about a GPU as a whole, in the real promtool."""

from __future__ import annotations

from pathlib import Path

from rules.promtool import GPU, alert, both, fire, say

UP = 'gpuwatch_up{node="n1"}'
GPU_UP = f"gpuwatch_gpu_up{{{GPU}}}"
HELD = f'gpuwatch_job_gpu_info{{{GPU}, namespace="speech", pod="wav-0", container="c", job_kind="TFJob", job_name="wav"}}'


def test_a_lost_gpu(tmp_path: Path) -> None:
    """Fires after the two minutes in which a storm may still block the calls, not before, and once though two agents tell of it."""
    lost = {UP: "1x60", GPU_UP: "1x9 0x50"}
    moments = {"11m": [], "12m": [alert("GpuLost", "critical", GPU)]}
    fire(tmp_path, lost, moments)
    fire(tmp_path, both(lost), moments)


def test_a_lost_gpu_names_its_job(tmp_path: Path) -> None:
    """The person who is woken reads at once whom it hits."""
    (told,) = say(tmp_path, {UP: "1x60", GPU_UP: "0x60", HELD: "1x60"}, "12m", "GpuLost")
    assert "Held by TFJob speech/wav (pod wav-0)." in told["description"]
