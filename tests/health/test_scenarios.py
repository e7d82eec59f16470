"""Every fault of the simulated driver reaches its state, reason and action, and goes away by itself when the fault does."""

from __future__ import annotations

import msgspec
import pytest

from gpuwatch.snapshot import Verdict
from health.watched import Watched


def codes(verdict: Verdict) -> set[str]:
    """Tokens of its reasons above info."""
    return {reason.code for reason in verdict.reasons if reason.severity != "info"}


SHIPPED = [
    # scenario, second, GPU, state, action, reasons
    ("hang", 60, 5, "unknown", "inspect", {"unreadable"}),
    ("hang", 200, 5, "failed", "reboot_node", {"gpu_hung"}),
    ("hang", 200, 4, "ok", "none", set()),
    ("gpu-lost", 60, 2, "failed", "reboot_node", {"gpu_lost", "xid_79"}),
    ("gpu-lost", 350, 1, "ok", "none", set()),
    ("gpu-lost", 370, 2, "ok", "none", set()),
    ("ecc-storm", 100, 1, "degraded", "inspect", {"ecc_corrected_storm"}),
    ("ecc-storm", 100, 2, "failed", "reset_gpu", {"xid_48", "recovery_reset", "ecc_uncorrected", "row_remap_pending"}),
    ("ecc-storm", 100, 3, "ok", "none", set()),
    ("ecc-storm", 1000, 2, "failed", "reset_gpu", {"xid_48", "recovery_reset", "ecc_uncorrected_before", "row_remap_pending"}),
    ("thermal-throttle", 320, 1, "degraded", "inspect", {"software_thermal"}),
    ("thermal-throttle", 320, 2, "degraded", "inspect", {"hardware_thermal"}),
    ("thermal-throttle", 880, 2, "failed", "drain", {"hardware_thermal_lasting", "temperature_margin"}),
    ("thermal-throttle", 880, 3, "ok", "none", set()),
    ("thermal-throttle", 1700, 1, "ok", "none", set()),
    ("thermal-throttle", 1700, 2, "ok", "none", set()),
    ("power-brake", 140, 7, "degraded", "inspect", {"power_brake"}),
    ("cgroup-lost", 70, 0, "unknown", "inspect", {"unreadable"}),
    ("driver-upgrade", 80, 0, "unknown", "none", set()),
    ("driver-upgrade", 100, 0, "ok", "none", set()),
    ("driver-late", 60, 0, "ok", "none", set()),
    ("no-gpu", 310, 0, "ok", "none", set()),
    ("crash", 400, 1, "ok", "none", set()),
]


@pytest.mark.parametrize(("scenario", "t", "gpu", "state", "action", "reasons"), SHIPPED)
def test_shipped_scenario(*, scenario: str, t: float, gpu: int, state: str, action: str, reasons: set[str]) -> None:
    """At that second of the scenario, the GPU has this verdict and no other reason."""
    verdict = Watched(scenario).run_to(t).verdict(gpu)
    assert (verdict.state, verdict.action, codes(verdict)) == (state, action, reasons)


FAULTS = [
    # board, fault, second, state, action, reasons; second at which all is well again (0: it stays)
    ("h100-sxm", "{kind: nvlink-down, link: 3, from: 60, until: 400}", 300, "failed", "reset_gpu", {"nvlink_down", "xid_74"}, 0),
    ("h100-sxm", "{kind: nvlink-errors, link: 3, counter: replay, per_second: 0.1, from: 60, until: 300}", 200, *("degraded", "inspect"),
     {"nvlink_errors"}, 700),
    ("h100-sxm", "{kind: nvlink-errors, link: 3, counter: crc, per_second: 500, from: 60, until: 300}", 200, *("failed", "inspect"),
     {"nvlink_crc_storm"}, 700),
    ("a100-80gb-sxm", "{kind: nvlink-errors, link: 3, counter: crc, per_second: 50, from: 60}", 600, "ok", "none", set(), 0),
    ("l40s", "{kind: pcie-width, width: 4, from: 60, until: 1200}", 1100, "degraded", "inspect", {"pcie_width"}, 1300),
    ("l40s", "{kind: pcie-width, width: 4}", 1100, "ok", "none", set(), 0),
    ("l40s", "{kind: pcie-replays, per_second: 1, from: 60, until: 600}", 400, "degraded", "inspect", {"pcie_replays"}, 1300),
    ("h100-sxm", "{kind: pcie-replays, count: 82, from: 60}", 100, "ok", "none", set(), 0),
    ("v100-sxm2", "{kind: retired-pages, double_bit: 1, pending: true, from: 60}", 100, "degraded", "reset_gpu",
     {"retired_pages_pending"}, 0),
    ("v100-sxm2", "{kind: retired-pages, single_bit: 5, double_bit: 2}", 100, "ok", "none", set(), 0),
    ("t4", "{kind: retired-pages, single_bit: 60}", 100, "degraded", "inspect", {"retired_pages_many"}, 0),
    ("t4", "{kind: retired-pages, single_bit: 63}", 100, "failed", "inspect", {"retired_pages_full"}, 0),
    ("v100-pcie", "{kind: retired-pages, double_bit: 16, from: 60}", 100, "failed", "inspect", {"retired_pages_growing"}, 0),
    ("v100-pcie", "{kind: retired-pages, double_bit: 16}", 100, "degraded", "inspect", {"retired_pages_uncorrected"}, 0),
    ("t4", "{kind: ecc-uncorrected, from: 60}", 80, "failed", "reset_gpu", {"xid_48", "ecc_uncorrected", "retired_pages_pending"}, 0),
    ("a100-40gb-sxm", "{kind: remapped-rows, uncorrected: 4}", 100, "ok", "none", set(), 0),
    ("a100-40gb-sxm", "{kind: remapped-rows, uncorrected: 1, pending: true, from: 60, until: 200}", 100, "degraded", "reset_gpu",
     {"row_remap_pending"}, 210),
    ("h200-sxm", "{kind: remapped-rows, uncorrected: 1, failed: true, from: 60}", 100, "failed", "inspect",
     {"row_remap_failed", "row_remap_spares_low", "xid_64"}, 0),
    ("a100-40gb-sxm", "{kind: remapped-rows, uncorrected: 400}", 100, "degraded", "inspect", {"row_remaps_many"}, 0),
    ("h100-sxm", "{kind: recovery-action, action: 1, from: 60, until: 200}", 100, "failed", "reset_gpu", {"recovery_reset"}, 210),
    ("h100-sxm", "{kind: recovery-action, action: 2, from: 60}", 100, "failed", "reboot_node", {"recovery_reboot"}, 0),
    ("h100-sxm", "{kind: recovery-action, action: 3, from: 60}", 100, "degraded", "drain", {"recovery_drain_p2p"}, 0),
    ("h100-sxm", "{kind: recovery-action, action: 4, from: 60}", 100, "failed", "reset_gpu", {"recovery_drain_and_reset"}, 0),
    ("h100-sxm", "{kind: recovery-action, action: 5, from: 60}", 100, "degraded", "inspect", {"recovery_other"}, 0),
    ("h100-sxm", "{kind: xid, code: 119, from: 60}", 70, "failed", "reset_gpu", {"xid_119"}, 0),
    ("h100-sxm", "{kind: xid, code: 94, from: 60}", 70, "degraded", "restart_job", {"xid_94"}, 86_500),
    ("h100-sxm", "{kind: xid, code: 43, from: 60}", 70, "ok", "restart_job", set(), 3_700),
    ("h100-sxm", "{kind: call-error, calls: all, code: 16, from: 60, until: 200}", 100, "failed", "reset_gpu", {"gpu_reset_required"}, 230),
    ("h100-sxm", "{kind: call-error, calls: [nvmlDeviceGetRemappedRows], code: 999, from: 60, until: 600}", 500, "unknown", "inspect",
     {"not_reported"}, 620),
]  # fmt: skip


@pytest.mark.parametrize(("board", "fault", "t", "state", "action", "reasons", "over"), FAULTS)
def test_fault(*, board: str, fault: str, t: float, state: str, action: str, reasons: set[str], over: float) -> None:
    """A board under load with this one fault has this verdict, and is sound again after it."""
    watched = Watched(f"gpus: [{{board: {board}, loads: [{{kind: fp32}}]}}]\nfaults: [{fault}]", read_seconds=10 if over < 10_000 else 600)
    verdict = watched.run_to(t).verdict()
    assert (verdict.state, verdict.action, codes(verdict)) == (state, action, reasons)
    if over:
        verdict = watched.run_to(over).verdict()
        assert (verdict.state, codes(verdict)) == ("ok", set())


def test_the_fault_shows_in_the_read_that_brings_it() -> None:
    """What the driver says as a fact needs no window: the first whole read after it changes the verdict."""
    watched = Watched("gpus: [{board: h100-sxm}]\nfaults: [{kind: remapped-rows, pending: true, from: 55}]").run_to(50)
    assert watched.verdict().state == "ok"
    assert watched.run_to(60).verdict().state == "degraded"


def test_the_echo_of_a_lost_peer_blames_the_peer() -> None:
    """XID 74 and links that went down on one GPU while another fell off the bus: the other one is failed, this one is to be watched."""
    watched = Watched(
        "gpus: [{board: a100-80gb-sxm, count: 2}]\n"
        "faults: [{kind: gpu-lost, gpu: 1, from: 60}, {kind: nvlink-down, gpu: 0, link: 1, from: 61}]"
    ).run_to(3600)
    echo = watched.verdict(0)
    assert (echo.state, echo.action, codes(echo)) == ("degraded", "watch", {"nvlink_down_echo"})
    assert watched.verdict(1).state == "failed"


def test_links_that_a_peer_took_down_are_its_fault_until_it_is_repaired() -> None:
    """The driver of GPU 1 no longer answers and its links stay down: GPU 0 is not called failed by and by, but after the reset of GPU 1."""
    watched = Watched("gpus: [{board: h100-sxm, count: 2}]\nfaults: [{kind: nvlink-down, gpu: 0, link: 1, from: 61}]").run_to(60)
    watched.tell(watched.xid(119, gpu=1))
    echo = watched.run_to(3600).verdict(0)
    assert (echo.state, echo.action, codes(echo)) == ("degraded", "watch", {"nvlink_down_echo"})
    watched.tell(msgspec.structs.replace(watched.xid(0, gpu=1), kind="reset"))
    assert codes(watched.run_to(3700).verdict(0)) == {"nvlink_down"}


def test_links_that_go_down_long_after_a_peers_fault_are_no_echo() -> None:
    """The peer is still broken, and so are these links."""
    watched = Watched("gpus: [{board: h100-sxm, count: 2}]\nfaults: [{kind: nvlink-down, gpu: 0, link: 1, from: 1000}]").run_to(60)
    watched.tell(watched.xid(119, gpu=1))
    assert watched.run_to(1300).verdict(0).state == "failed"
