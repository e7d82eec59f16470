"""The verdicts in the report: what is on top, what is said of it, and that no value can spoil a terminal."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.doctor.health import health_lines
from gpuwatch.doctor.lines import WIDTH
from gpuwatch.doctor.report import report_of
from gpuwatch.doctor.xids import xid_lines
from gpuwatch.kube.objects import JobRef
from gpuwatch.snapshot import Gpu, Holder, JobUse, Kubernetes, Reason, Snapshot, Verdict, XidCount
from snapshots import a100_mig, attributed, h100, held, judged, node

LOST = Verdict(
    state="failed",
    action="reboot_node",
    reasons=(Reason(code="gpu_lost", severity="page", action="reboot_node", detail="the GPU fell off the bus"),),
)
FLAWED = Verdict(state="degraded", action="inspect", reasons=(Reason(code="pcie_width", severity="ticket", action="inspect"),))
OK = Verdict(state="ok")
HOSTILE = "\x1b[31m\n\r\x07\u202e\u2028" + "x" * 5000


def test_sound_node_is_one_line() -> None:
    """Nothing is listed where nothing is wrong; what one look cannot judge is said."""
    (line,) = health_lines(node(judged(h100(), OK), judged(h100(1), OK)))
    assert line.startswith("Health: all 2 GPUs are ok at one look")


def test_worst_gpu_is_on_top() -> None:
    """Failed before flawed before sound, whatever the index; the summary counts them in that order."""
    lines = health_lines(node(judged(h100(), OK), judged(h100(1), FLAWED), judged(h100(2), LOST)))
    assert lines[0] == "Health: 1 of 3 GPUs failed, 1 degraded, 1 ok"
    assert lines[2].split()[:3] == ["2", "FAILED", "reboot_node"]
    assert lines[3].split()[0] == "do"
    assert next(line for line in lines[3:] if "degraded" in line).split()[:3] == ["1", "degraded", "inspect"]
    assert lines[-1].startswith("  ok           GPU 0 (at one look")


def test_who_is_hit_is_named() -> None:
    """Holders of the GPU, or of its MIG instances, stand beside the errand."""
    gpu, parent = judged(h100(), LOST), judged(a100_mig(), FLAWED)
    text = "\n".join(
        health_lines(msgspec.structs.replace(attributed(held(gpu), held(parent, "b", mig_uuid="MIG-1-0")), gpus=(gpu, parent)))
    )
    assert "held by   TFJob resnet, worker 0 (vision/resnet-worker-0)" in text
    assert "held by   TFJob resnet, worker 0 (vision/b)" in text


def test_gpu_without_a_verdict_is_not_called_ok() -> None:
    """A board that was exchanged has no verdict, and that is said."""
    lines = health_lines(node(judged(h100(), OK), h100(1)))
    assert lines[0] == "Health: 1 of 2 GPUs ok, 1 not judged"
    assert lines[-1] == "  not judged   GPU 1"
    assert health_lines(node(h100())) == []


@given(text=st.one_of(st.text(), st.just(HOSTILE)), number=st.floats(), count=st.integers(0, 1 << 70))
def test_any_text_stays_in_its_lines(text: str, number: float, count: int) -> None:
    """Whatever a driver or a pod is called: no line is wider than the terminal, and nothing steers it."""
    reason = Reason(code=text, severity="page", action="inspect", detail=text)
    verdict = Verdict(state="failed", action="inspect", reasons=(reason, reason))
    xid = XidCount(xid=text, category=text, severity=text, count=count, last_seen_seconds=number)
    gpu = judged(h100(), verdict)
    gpu = msgspec.structs.replace(gpu, identity=msgspec.structs.replace(gpu.identity, model=text), xids=(xid,))
    holder = Holder(gpu_uuid=gpu.identity.uuid, namespace=text, pod=text, container=text, job=JobRef(kind=text, name=text))
    kubernetes = Kubernetes(unknown_devices=(text,))
    for shown in (gpu, _anonymous(gpu)):
        snapshot = msgspec.structs.replace(node(shown), jobs=(JobUse(holder=holder),), kubernetes=kubernetes, timestamp_seconds=number)
        lines = [*health_lines(snapshot), *xid_lines(snapshot)]
        assert lines
        assert max(map(len, lines)) <= WIDTH
        assert all(line.isprintable() for line in lines)
        assert all(line.isprintable() for line in report_of(snapshot, None).lines)


def _anonymous(gpu: Gpu) -> Gpu:
    return msgspec.structs.replace(gpu, identity=msgspec.structs.replace(gpu.identity, uuid=""))


def test_failed_gpu_shows_in_the_result() -> None:
    """The last line and the report itself say that a GPU failed although all can be read."""
    report = report_of(node(judged(h100(), LOST)), None)
    assert (report.healthy, report.failed) == (True, True)
    assert report.lines[-1] == "Result: 1 of 1 GPUs can be read, 1 failed"
    assert not report_of(Snapshot(node="n", timestamp_seconds=0.0, version="0"), None).failed
