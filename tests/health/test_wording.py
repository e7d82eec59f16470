"""The words of an event: short, with the action, and without what is not the reader's business."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.health.telling import Notice
from gpuwatch.health.wording import node_message, pod_message
from gpuwatch.snapshot import Holder, Reason
from snapshots import h100, held

LOST = Reason(code="gpu_lost", severity="page", action="reboot_node", detail="the GPU fell off the bus: gpu_is_lost")


def notice(*reasons: Reason, holders: tuple[Holder, ...] = (), **more: object) -> Notice:
    """Of GPU 2."""
    facts = {"kind": "GpuFailed", "state": "failed", "action": "reboot_node", "before": "ok"} | more
    return Notice(gpu=2, uuid="GPU-2", model="NVIDIA H200", reasons=reasons, holders=holders, at=0.0, **facts)  # type: ignore[arg-type]


def test_the_node_is_told_everything() -> None:
    """Which GPU, the first action, what is wrong, and who held it."""
    assert node_message(notice(LOST, holders=(held(h100()).holder,))) == (
        "GPU 2 (NVIDIA H200, GPU-2) has failed. First action: drain the node and reboot it; power it off and on if that does not help. "
        "What is wrong: the GPU fell off the bus: gpu_is_lost. Held by vision/resnet-worker-0 (tensorflow) of TFJob resnet."
    )


def test_the_pod_is_told_what_its_owner_can_do() -> None:
    """Which GPU, that it is this pod's, and an action that needs no right on the node."""
    assert pod_message(notice(LOST, holders=(held(h100()).holder,))) == (
        "GPU 2 (NVIDIA H200, GPU-2), which this pod holds or just held, has failed. First action: save what can be saved and start again "
        "on another node; the node's administrator must repair the GPU. What is wrong: the GPU fell off the bus: gpu_is_lost."
    )


def test_a_recovery_is_short() -> None:
    """Nothing is left to say."""
    one = notice(kind="GpuRecovered", state="ok", action="none")
    assert node_message(one) == pod_message(one) == "GPU 2 (NVIDIA H200, GPU-2) is sound again."


def test_the_scope_of_a_mig_fault_is_said() -> None:
    """To the holder of an instance it is not obvious."""
    assert "so of all its MIG instances" in pod_message(notice(LOST, scope="all_instances"))
    assert "names the MIG instance" in pod_message(notice(LOST, scope="instance"))
    assert "MIG" not in pod_message(notice(LOST))


def test_no_pod_reads_of_other_teams_jobs() -> None:
    """The jobs that died on the GPU before are for the node's administrator only."""
    suspect = Reason(code="suspect_hardware", severity="ticket", action="inspect", detail="it is the board: secret/TFJob/plan")
    guilty = Reason(code="xid_31", severity="ticket", action="watch", detail="XID 31, page fault; secret/TFJob/plan died of it")
    one = notice(suspect, guilty)
    assert node_message(one).count("secret") == 2
    assert "secret" not in pod_message(one)
    assert "XID 31, page fault" in pod_message(one)


@given(st.lists(st.text(max_size=400), max_size=30), st.integers(0, 60))
def test_any_message_is_one_line_of_a_bounded_length(details: list[str], pods: int) -> None:
    """However many reasons and whatever the driver wrote, the action is there, and reasons are left out as a whole."""
    reasons = tuple(Reason(code=f"xid_{number}", severity="page", action="drain", detail=one) for number, one in enumerate(details))
    holders = tuple(held(h100(), f"pod-{number}").holder for number in range(pods))
    for message in (node_message(notice(*reasons, holders=holders[:8])), pod_message(notice(*reasons, holders=holders))):
        assert len(message.encode()) <= 1024
        assert "First action: " in message
        assert message.isprintable()
