"""What is remembered between snapshots: jobs, resets, restarts, exchanged boards, and the reports of users (health facts, row by row)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuwatch.device.readings import EccCount, Fast, FaultEvent, Health, Identity, Links, Medium, MigInstance
from gpuwatch.health.board import HealthBoard
from gpuwatch.kube.objects import JobRef
from gpuwatch.snapshot import Gpu, Holder, JobUse, Listening, Snapshot, Verdict
from health.watched import EPOCH, Watched

OK: tuple[str, set[str]] = ("ok", set())


def shape(verdict: Verdict | None) -> tuple[str, set[str]]:
    """State, and reasons above info."""
    assert verdict is not None
    return verdict.state, {reason.code for reason in verdict.reasons if reason.severity != "info"}


REFUSED = dict.fromkeys(
    ("nvmlDeviceGetEccMode", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetRetiredPagesPendingStatus", "field 230"), "NOT_SUPPORTED"
)


class Desk:
    """A node made by hand: GPUs, holders and events as a test wants them, judged at a time of its own."""

    def __init__(self, gpus: int = 1, *, health: Health | None = None, address: str = "") -> None:
        self.board = HealthBoard(read_seconds=10.0)
        self.now = 0.0
        self.events: list[FaultEvent] = []
        self.jobs: list[JobUse] = []
        self.driver = "580.1"
        self.fault = ""
        self.gpus = [
            Gpu(
                identity=Identity(index=n, uuid=f"GPU-{n}", pci_bus_id=address or f"00000000:{n:02x}:00.0"),
                up=True,
                fast=Fast(),
                unsupported=REFUSED,
            )
            for n in range(gpus)
        ]
        for n in range(gpus):
            self.change(n, health=health or Health(ecc_enabled=False))
        self.read()

    def change(self, gpu: int = 0, **medium: Any) -> None:
        """New values of the medium tier; the others stay."""
        before = self.gpus[gpu].medium or Medium(energy_joules=1000.0)
        self.gpus[gpu] = msgspec.structs.replace(self.gpus[gpu], medium=msgspec.structs.replace(before, **medium))

    def read(self, seconds: float = 0.0) -> Snapshot:
        """Whole reads every ten seconds, and what the board says of the last."""
        end = self.now + seconds
        while True:
            for n, gpu in enumerate(self.gpus):
                if gpu.medium is not None:
                    energy = (gpu.medium.energy_joules or 0.0) + 100.0
                    self.change(n, energy_joules=energy)
            snapshot = self.judge()
            if self.now >= end:
                return snapshot
            self.now = min(end, self.now + 10.0)

    def judge(self) -> Snapshot:
        """What the board says now."""
        snapshot = Snapshot(
            node="n",
            timestamp_seconds=EPOCH + self.now,
            version="0",
            up=not self.fault,
            fault=self.fault,
            driver_version=self.driver,
            gpus=tuple(self.gpus),
            jobs=tuple(self.jobs),
            listening=Listening(events=tuple(self.events[-256:]), event_count=len(self.events)),
        )
        return self.board.judge(snapshot, self.now)

    def down(self, fault: str, gpu: int = 0) -> None:
        """The GPU does not answer."""
        self.gpus[gpu] = msgspec.structs.replace(self.gpus[gpu], up=False, fault=fault, fast=None, medium=None)

    def up(self, gpu: int = 0, **medium: Any) -> None:
        """It answers again."""
        self.gpus[gpu] = msgspec.structs.replace(self.gpus[gpu], up=True, fault="", fast=Fast())
        self.change(gpu, **medium)

    def tell(self, kind: str = "xid", code: int = 0, gpu: int = 0, **others: Any) -> tuple[str, set[str]]:
        """The driver tells of something; returns the verdict on that GPU."""
        facts = {"uuid": f"GPU-{gpu}", "source": "kernel_log", "at": EPOCH + self.now} | others
        self.events.append(FaultEvent(kind=kind, code=code, **facts))
        return shape(self.judge().gpus[gpu].verdict)

    def hold(self, job: str, *gpus: int, mig: str = "", held: bool = True, pids: tuple[int, ...] = ()) -> None:
        """That job holds these GPUs."""
        for gpu in gpus:
            ref = JobRef(kind="TFJob", name=job)
            holder = Holder(gpu_uuid=f"GPU-{gpu}", mig_uuid=mig, namespace="team", pod=f"{job}-0", container="c", job=ref, pids=pids)
            self.jobs.append(JobUse(holder=holder, held=held))


def ecc(count: int, scope: str = "volatile", location: str = "dram") -> Health:
    """Uncorrected errors of one place."""
    one = EccCount(severity="uncorrected", scope=scope, location=location, count=count)
    return Health(ecc_enabled=True, recovery_action=0, row_remap_pending=False, ecc_errors=(one,))


# What the jobs tell


def test_two_jobs_that_die_on_one_gpu_accuse_the_gpu() -> None:
    """XID 31 of one job is the job's; of another job on the same GPU within a day it is the board's."""
    desk = Desk(2)
    desk.hold("a", 0)
    assert desk.tell(code=31) == OK
    desk.jobs.clear()
    desk.read(3600)
    desk.hold("b", 0)
    assert desk.tell(code=13) == ("degraded", {"suspect_hardware"})
    assert shape(desk.judge().gpus[1].verdict) == OK
    desk.jobs.clear()
    assert shape(desk.read(2 * 86_400).gpus[0].verdict) == OK


def test_one_job_that_dies_on_many_gpus_is_at_fault_itself() -> None:
    """The same job on every GPU of the node: its owner is told, nobody else; another job that dies there adds nothing by itself."""
    desk = Desk(4)
    desk.hold("bad", 0, 1, 2, 3)
    for gpu in range(4):
        assert desk.tell(code=31, gpu=gpu) == OK
    verdict = desk.judge().gpus[2].verdict
    assert verdict is not None
    assert verdict.action == "restart_job"
    assert "team/TFJob/bad died" in verdict.reasons[0].detail
    desk.jobs.clear()
    desk.hold("other", 2)
    assert desk.tell(code=31, gpu=2) == OK
    desk.jobs.clear()
    desk.hold("third", 2)
    assert desk.tell(code=31, gpu=2) == ("degraded", {"suspect_hardware"})


def test_the_same_job_again_and_again_is_one_job() -> None:
    """A job that is started again after each XID 31 does not make two."""
    desk = Desk()
    desk.hold("a", 0)
    for _ in range(50):
        assert desk.tell(code=31) == OK


def test_errors_without_a_job_accuse_nobody() -> None:
    """Whose process it was is unknown: no conclusion. So it is for what is read again after a start of the agent."""
    desk = Desk()
    desk.tell(code=31)
    desk.hold("a", 0)
    desk.tell(code=31, replayed=True)
    assert desk.tell(code=31) == OK


def test_the_process_tells_the_job_on_a_shared_gpu() -> None:
    """Two holders: the one whose process it was; without a process nobody is named."""
    desk = Desk()
    desk.hold("a", 0, pids=(7,))
    desk.hold("b", 0, pids=(8,))
    desk.tell(code=31)
    desk.tell(code=31, pid=7)
    assert desk.tell(code=31, pid=7) == OK
    assert desk.tell(code=31, pid=8) == ("degraded", {"suspect_hardware"})


def test_the_mig_instance_tells_the_job() -> None:
    """Row 15: an error of one instance is of its holder; the verdict is on the whole GPU."""
    desk = Desk()
    desk.change(mig_enabled=True, mig_instances=tuple(MigInstance(uuid=f"MIG-{n}", gpu_instance=n, compute_instance=0) for n in (1, 2)))
    desk.hold("a", 0, mig="MIG-1")
    desk.hold("b", 0, mig="MIG-2")
    assert desk.tell(code=31, gpu_instance=1) == OK
    assert desk.tell(code=31, gpu_instance=1) == OK
    assert desk.tell(code=31, gpu_instance=2) == ("degraded", {"suspect_hardware"})


def test_a_job_that_just_ended_is_the_one() -> None:
    """The process is gone when the kernel writes its line: the last holder counts while nobody holds the GPU."""
    desk = Desk()
    desk.hold("a", 0, held=False)
    desk.tell(code=13)
    desk.jobs.clear()
    desk.hold("b", 0)
    assert desk.tell(code=13) == ("degraded", {"suspect_hardware"})


# Reports of users, by the row of the facts


def test_row_1_five_45_a_day_and_45_everywhere() -> None:
    """Follow-on errors never call anybody."""
    desk = Desk(8)
    for _ in range(5):
        for gpu in range(8):
            assert desk.tell(code=45, gpu=gpu) == OK
        desk.read(3600)


def test_row_2_a_storm_is_one_reason() -> None:
    """800,000 lines of XID 95: one reason, and nothing that grows."""
    desk = Desk()
    for number in range(800):
        for other in range(100):
            desk.events.append(FaultEvent(kind="xid", code=95, uuid="GPU-0", source="kernel_log", at=EPOCH + number + other / 1000))
        desk.now += 1.0
        verdict = desk.judge().gpus[0].verdict
        desk.events = desk.events[-256:] if number == 799 else desk.events
    assert shape(verdict) == ("failed", {"xid_95"})


def test_row_3_the_same_again_is_one_reason_with_its_count() -> None:
    """Nothing is sticky: the newest time counts, and a day without a reset lets go."""
    desk = Desk()
    assert desk.tell(code=94) == ("degraded", {"xid_94"})
    desk.read(3600)
    desk.tell(code=94)
    verdict = desk.read(23 * 3600).gpus[0].verdict
    assert verdict is not None
    assert "2 times" in verdict.reasons[0].detail
    assert shape(desk.read(2 * 3600).gpus[0].verdict) == OK


@pytest.mark.parametrize("code", [79, 119, 62])
def test_row_4_what_only_the_kernel_log_tells_counts(code: int) -> None:
    """Not every driver sends these as events."""
    assert Desk().tell(code=code, source="kernel_log") == ("failed", {f"xid_{code}"})


def test_row_5_off_the_bus_without_a_number() -> None:
    """The simulated driver also writes the line without a number; the GPU is failed and the fault is one."""
    verdict = Watched("gpu-lost").run_to(65).verdict(2)
    assert shape(verdict) == ("failed", {"gpu_lost", "xid_79"})
    assert verdict.action == "reboot_node"


def test_row_6_a_lost_gpu_leaves_the_others_alone() -> None:
    """One verdict is failed, the others stay."""
    desk = Desk(3)
    desk.down("gpu_is_lost", 1)
    states = [shape(gpu.verdict)[0] for gpu in desk.judge().gpus]
    assert states == ["ok", "failed", "ok"]


def test_row_7_a_call_of_45_seconds_is_no_failure() -> None:
    """A GPU that answers slowly is unknown meanwhile, and ok afterwards."""
    desk = Desk()
    desk.down("stalled")
    assert shape(desk.read(45).gpus[0].verdict) == ("unknown", {"unreadable"})
    desk.up()
    assert shape(desk.read(10).gpus[0].verdict) == OK


def test_row_8_power_brake_is_not_heat() -> None:
    """Three reads under the brake: the reason is the brake, the state is degraded however long it lasts."""
    watched = Watched("power-brake").run_to(150)
    assert shape(watched.verdict()) == ("degraded", {"power_brake"})
    assert shape(watched.run_to(3600).verdict()) == ("degraded", {"power_brake"})


@pytest.mark.parametrize(("kind", "over"), [("power-brake", 200), ("thermal-throttle, slowdown: hardware", 920)])
def test_row_8_a_slowdown_that_is_over_had_its_reason(kind: str, over: float) -> None:
    """The windows of brake and heat end at another time than that of the slowdown bit, which comes with both: no reason is left over."""
    text = f"gpus: [{{board: h100-sxm, loads: [{{kind: training}}]}}]\nfaults: [{{kind: {kind}, from: 120, until: 1320}}]"
    watched = Watched(text).run_to(1320 + over)
    assert not any("hardware_slowdown" in reason for reason in watched.worst())
    assert shape(watched.verdict()) == OK


@pytest.mark.parametrize(("margin", "core"), [(0.0, 60.0), (-5.0, 60.0)])
def test_row_9_a_nonsense_margin(margin: float, core: float) -> None:
    """A margin at or below zero on a cool GPU is not believed."""
    desk = Desk()
    hot = hot_board(desk, margin=margin, core=core)
    assert shape(hot.read(3600).gpus[0].verdict) == OK


def test_a_margin_that_fits_the_sensors_is_believed() -> None:
    """The same margin on a GPU that is hot."""
    desk = hot_board(Desk(), margin=0.0, core=87.0)
    assert shape(desk.read(200).gpus[0].verdict) == OK
    assert shape(desk.read(200).gpus[0].verdict) == ("degraded", {"temperature_margin"})


def hot_board(desk: Desk, *, margin: float | None, core: float, memory: float = 50.0) -> Desk:
    """GPU 0 of the desk as an H100 at these temperatures."""
    gpu = desk.gpus[0]
    identity = msgspec.structs.replace(
        gpu.identity,
        temperature_limit_celsius={"slowdown": 89.0, "memory_max": 95.0},
        temperature_limit_offset_celsius={"slowdown": -2.0},
    )
    fast = Fast(temperature_celsius={"gpu": core, "memory": memory})
    desk.gpus[0] = msgspec.structs.replace(gpu, identity=identity, fast=fast)
    desk.change(temperature_margin_celsius=margin)
    return desk


def test_absolute_limits_serve_boards_without_a_margin() -> None:
    """86.5 of 89 °C for five minutes; and memory near its own limit."""
    assert shape(hot_board(Desk(), margin=None, core=86.5).read(400).gpus[0].verdict) == ("degraded", {"temperature"})
    assert shape(hot_board(Desk(), margin=None, core=60.0, memory=94.0).read(400).gpus[0].verdict) == ("degraded", {"memory_temperature"})


def test_rows_11_and_12_what_is_not_supported_is_no_fault() -> None:
    """No fabric, no NVLink, no remapping, no ECC, no margin: a board that refuses everything is ok."""
    desk = Desk(health=Health())
    assert shape(desk.read(1200).gpus[0].verdict) == OK


def test_facts_that_fail_instead_are_unknown() -> None:
    """The same silence without a refusal is not called sound."""
    desk = Desk(health=Health())
    desk.gpus[0] = msgspec.structs.replace(desk.gpus[0], unsupported={})
    assert shape(desk.read(1200).gpus[0].verdict) == ("unknown", {"not_reported"})


def test_row_13_a_reset_line_clears() -> None:
    """The kernel says the GPU was reset: its XIDs are over, those of others are not."""
    desk = Desk(2)
    desk.tell(code=48)
    desk.tell(code=119, gpu=1)
    desk.read(60)
    desk.now += 1.0
    assert desk.tell(kind="reset") == ("unknown", set())  # until it is read again
    snapshot = desk.read(10)
    assert [shape(gpu.verdict)[0] for gpu in snapshot.gpus] == ["ok", "failed"]


def test_row_13_counters_that_begin_again_clear() -> None:
    """No line tells of it, but the energy counter has started from zero."""
    desk = Desk()
    desk.tell(code=48)
    desk.read(60)
    desk.change(energy_joules=5.0)
    assert shape(desk.read(10).gpus[0].verdict) == OK


def test_row_13_a_lost_gpu_that_answers_again_is_clear() -> None:
    """A reboot of it, or a reset: how it came back does not matter."""
    desk = Desk()
    desk.tell(code=79)
    desk.down("gpu_is_lost")
    assert shape(desk.read(30).gpus[0].verdict) == ("failed", {"gpu_lost", "xid_79"})
    desk.up()
    assert shape(desk.read(10).gpus[0].verdict) == OK


@pytest.mark.parametrize("read_first", [True, False])
def test_row_13_a_gpu_that_was_lost_before_the_start_and_answers_is_clear(*, read_first: bool) -> None:
    """The log still tells of an XID 79 and of no reset: that the GPU is read says that there was one. Its peer's 62 still counts."""
    desk = Desk(2)
    desk.board = HealthBoard(read_seconds=10.0)
    if read_first:
        desk.read()
    desk.tell(code=62, gpu=1, at=EPOCH - 600, replayed=True)
    desk.tell(code=48, at=EPOCH - 650, replayed=True)
    desk.tell(code=79, at=EPOCH - 600, replayed=True)
    assert [shape(gpu.verdict) for gpu in desk.read(10).gpus] == [OK, ("failed", {"xid_62"})]
    assert desk.tell(code=79) == ("failed", {"xid_79"})


def test_row_13_a_gpu_that_was_lost_before_the_start_and_still_is() -> None:
    """Without a reading the log's word stands."""
    desk = Desk()
    desk.board = HealthBoard(read_seconds=10.0)
    desk.down("unknown")
    desk.tell(code=79, at=EPOCH - 600, replayed=True)
    assert shape(desk.read(60).gpus[0].verdict) == ("failed", {"unreadable", "xid_79"})


def test_row_13_a_driver_that_was_loaded_anew_clears() -> None:
    """While it is down the state of a failed GPU stays; then all is new."""
    desk = Desk()
    desk.tell(code=62)
    desk.down("reader_down")
    desk.fault = "driver_not_loaded"
    assert shape(desk.read(30).gpus[0].verdict)[0] == "failed"
    desk.fault, desk.driver = "", "590.1"
    desk.up()
    assert shape(desk.read(10).gpus[0].verdict) == OK


def test_row_13_another_board_in_the_slot() -> None:
    """The new one is ok, the old one is no longer judged."""
    desk = Desk(2, address="00000000:3b:00.0")
    desk.down("missing", 0)
    snapshot = desk.read(10)
    assert snapshot.gpus[0].verdict is None
    assert shape(snapshot.gpus[1].verdict) == OK


def test_row_13_a_restarted_agent_neither_alarms_nor_forgets() -> None:
    """Facts the driver still knows are found again; counters of before are no news; old XIDs come with their own time."""
    desk = Desk(health=ecc(2))
    assert shape(desk.read(600).gpus[0].verdict) == ("degraded", {"ecc_uncorrected_before"})
    assert desk.tell(code=48, at=EPOCH - 3600, replayed=True) == ("failed", {"ecc_uncorrected_before", "xid_48"})
    assert desk.tell(kind="reset", uuid="", at=EPOCH - 1800, replayed=True) == ("degraded", {"ecc_uncorrected_before"})


@pytest.mark.parametrize(
    ("health", "code", "expected"),
    [
        (ecc(0), 48, OK),
        (ecc(2), 48, ("failed", {"ecc_uncorrected_before", "xid_48"})),
        (Health(ecc_enabled=False, recovery_action=0), 119, OK),
        (Health(ecc_enabled=False, recovery_action=1), 119, ("failed", {"recovery_reset", "xid_119"})),
        (Health(ecc_enabled=False), 119, ("failed", {"xid_119"})),
    ],
)
def test_a_reset_that_nobody_saw_is_believed(health: Health, code: int, expected: tuple[str, set[str]]) -> None:
    """An agent is stopped for a reset. What the driver knows now goes before what its log told of before; without that the log counts."""
    desk = Desk(health=health)
    assert desk.tell(code=code, at=EPOCH - 3600, replayed=True) == expected
    assert desk.tell(code=code)[0] == "failed"


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        (ecc(7, scope="aggregate"), OK),
        (ecc(1), ("degraded", {"ecc_uncorrected_before"})),
        (Health(ecc_enabled=True, recovery_action=0, row_remap_pending=True), ("degraded", {"row_remap_pending"})),
        (Health(ecc_enabled=False, recovery_action=0, remapped_rows={"uncorrected": 4}, row_remap_pending=False), OK),
        (ecc(5, scope="aggregate", location="sram"), ("degraded", {"sram_worn"})),
        (ecc(4, scope="aggregate", location="sram"), OK),
    ],
)
def test_row_14_aggregate_counts_are_no_fault(health: Health, expected: tuple[str, set[str]]) -> None:
    """What was replaced is sound; what waits, and what is uncorrected since the driver was loaded, is not."""
    assert shape(Desk(health=health).judge().gpus[0].verdict) == expected


def test_an_uncorrected_error_pages_and_then_waits_for_its_reset() -> None:
    """New: failed. Ten minutes later it is a ticket until the counter starts again."""
    desk = Desk(health=ecc(0))
    desk.change(health=ecc(1))
    assert shape(desk.read(10).gpus[0].verdict) == ("failed", {"ecc_uncorrected"})
    assert shape(desk.read(700).gpus[0].verdict) == ("degraded", {"ecc_uncorrected_before"})
    desk.change(health=ecc(0))
    assert shape(desk.read(10).gpus[0].verdict) == OK
    desk.change(health=ecc(1))
    assert shape(desk.read(10).gpus[0].verdict) == ("failed", {"ecc_uncorrected"})


def test_an_error_that_comes_with_the_reset_is_new() -> None:
    """The counter began at zero, so all it says is news."""
    desk = Desk(health=ecc(5))
    desk.change(health=ecc(2))
    assert shape(desk.read(10).gpus[0].verdict) == ("failed", {"ecc_uncorrected"})


def test_an_event_is_faster_than_the_counter() -> None:
    """A double bit error is in the verdict before the counters are read."""
    assert Desk(health=ecc(0)).tell(kind="ecc_double") == ("failed", {"ecc_uncorrected"})


def test_an_event_and_its_counter_are_one_error() -> None:
    """What NVML tells twice happened once."""
    desk = Desk(health=ecc(0))
    desk.tell(kind="ecc_double")
    desk.change(health=ecc(1))
    verdict = desk.read(10).gpus[0].verdict
    assert verdict is not None
    assert verdict.reasons[0].detail.endswith(": 1 new")


@pytest.mark.parametrize("fault", ["gpu_is_lost", "missing", "not_found"])
def test_a_peer_that_is_lost_by_any_name_is_to_blame_for_links(fault: str) -> None:
    """Whatever makes it lost in its own verdict makes the links of the others an echo."""
    desk = Desk(2)
    desk.change(links=Links(nvlink_up={0: True, 1: True}))
    desk.read(20)
    desk.down(fault, 1)
    desk.change(links=Links(nvlink_up={0: True, 1: False}))
    assert [shape(gpu.verdict)[1] for gpu in desk.read(400).gpus] == [{"nvlink_down_echo"}, {"gpu_lost"}]


def test_row_17_generation_counts_under_load_only() -> None:
    """Generation 1 at rest is sleep; generation 1 in use, where 4 was had, is a fault."""
    desk = Desk()
    desk.change(links=Links(pcie_generation=4, pcie_width=16))
    desk.read(60)
    desk.change(links=Links(pcie_generation=1, pcie_width=16))
    assert shape(desk.read(3600).gpus[0].verdict) == OK
    desk.gpus[0] = msgspec.structs.replace(desk.gpus[0], fast=Fast(utilization_ratio=0.9))
    assert shape(desk.read(1000).gpus[0].verdict) == ("degraded", {"pcie_generation"})


def test_one_wrong_width_accuses_nobody_for_ever() -> None:
    """A width that was read once is not what the board has had."""
    desk = Desk()
    for width in (8, 8, 16, 8):
        desk.change(links=Links(pcie_width=width))
        desk.read(10) if width == 8 else desk.judge()
    desk.now += 10
    assert shape(desk.read(3600).gpus[0].verdict) == OK


def test_row_19_nonfatal_145_is_a_ticket() -> None:
    """The kernel's own word counts."""
    assert Desk().tell(code=145, text="RLW_REMAP Nonfatal XC0 i0 Link 05") == ("degraded", {"xid_145"})
    assert Desk().tell(code=145, text="RLW_REMAP Fatal XC0 i0 Link 05") == ("failed", {"xid_145"})


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (145, "RLW_REMAP Fatal XC0 i0 Link 05", ("failed", "reset_gpu", 1)),
        (154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", ("failed", "reboot_node", 1)),
    ],
)
def test_the_drivers_words_count_though_nvml_was_first(code: int, text: str, expected: tuple[str, str, int]) -> None:
    """The log line of an XID that NVML told of a moment later than it was written changes the verdict, and is not another XID."""
    watched = Watched("single-h200").run_to(20)
    line = watched.xid(code, text=text)
    watched.tell(msgspec.structs.replace(line, source="nvml", text="", at=line.at + 0.2))
    watched.tell(line)
    verdict = watched.verdict()
    assert (verdict.state, verdict.action, watched.snapshot.gpus[0].xids[0].count) == expected
    assert not any("times" in reason.detail for reason in verdict.reasons)


def test_what_the_driver_asked_for_stays_when_the_gpu_goes_silent() -> None:
    """A value that was read before the XID 154 is no answer to it, however long ago that was."""
    desk = Desk(health=Health(ecc_enabled=False, recovery_action=0))
    desk.read(30)
    desk.tell(code=154, text="GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
    desk.gpus[0] = msgspec.structs.replace(desk.gpus[0], medium=None)
    assert "recovery_reset" in shape(desk.read(300).gpus[0].verdict)[1]


def test_all_is_clear_though_nvml_told_it_first() -> None:
    """NVML's account of the 154 that ends all has no words and a later time; the log line ends it too."""
    watched = Watched("single-h200").run_to(20)
    line = watched.xid(154, text="GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    watched.tell(watched.xid(95))
    watched.tell(msgspec.structs.replace(line, source="nvml", text="", at=line.at + 0.2))
    watched.tell(line)
    assert shape(watched.verdict()) == OK


def test_row_20_unknown_and_new_codes() -> None:
    """999 is a ticket; 143 is known."""
    assert Desk().tell(code=999) == ("degraded", {"xid_unknown"})
    assert Desk().tell(code=143) == ("failed", {"xid_143"})


def test_row_22_one_43_is_the_jobs() -> None:
    """Info, with the job to be started again."""
    desk = Desk()
    assert desk.tell(code=43) == OK
    verdict = desk.judge().gpus[0].verdict
    assert verdict is not None
    assert verdict.action == "restart_job"


def test_row_23_a_fabric_that_does_not_come_up() -> None:
    """Minutes after a boot are normal, ten are not, and one good moment begins anew."""
    desk = Desk()
    desk.change(links=Links(fabric_healthy=False))
    assert shape(desk.read(500).gpus[0].verdict) == OK
    assert shape(desk.read(200).gpus[0].verdict) == ("failed", {"fabric"})
    desk.change(links=Links(fabric_healthy=True))
    assert shape(desk.read(10).gpus[0].verdict) == OK


def test_row_25_blank_values_are_no_silence() -> None:
    """After an XID 31 the GPU answers nothing any more: there is a verdict, and it is not ok."""
    desk = Desk()
    desk.tell(code=31)
    desk.down("unknown")
    assert shape(desk.read(60).gpus[0].verdict) == ("unknown", {"unreadable"})
    desk.up()
    desk.gpus[0] = msgspec.structs.replace(desk.gpus[0], medium=None)
    assert shape(desk.read(60).gpus[0].verdict) == ("unknown", {"not_reported"})


def test_row_26_a_gpu_that_nobody_holds_is_judged() -> None:
    """Every GPU of the snapshot has a verdict, held or not."""
    desk = Desk(3)
    desk.hold("a", 1)
    assert all(gpu.verdict is not None for gpu in desk.judge().gpus)


def test_clocks_that_stick() -> None:
    """Busy at 40 % of its clock with power to spare and no reason: a ticket. With a reason, near the limit or idle: not."""
    for fast, expected in (
        (busy(), ("degraded", {"clocks_stuck_low"})),
        (busy(throttle_reasons=("software_power_cap",)), OK),
        (busy(throttle_reasons=("application_clocks",)), OK),
        (busy(power_watts=405.0), OK),
        (busy(utilization_ratio=0.3), OK),
        (busy(utilization_ratio=None), OK),
    ):
        desk = Desk()
        identity = msgspec.structs.replace(desk.gpus[0].identity, clock_max_hertz={"sm": 2e9})
        desk.gpus[0] = msgspec.structs.replace(desk.gpus[0], identity=identity, fast=fast)
        desk.change(power_limit_watts={"enforced": 450.0})
        assert shape(desk.read(1000).gpus[0].verdict) == expected


def busy(**others: Any) -> Fast:
    """A pass of a GPU at 40 % of its clock."""
    facts: dict[str, Any] = {"utilization_ratio": 1.0, "power_watts": 150.0, "clock_hertz": {"sm": 0.8e9}, "throttle_reasons": ()}
    return Fast(**(facts | others))


def test_a_failed_gpu_that_goes_silent_stays_failed() -> None:
    """Worse evidence is no better state: what was known last still counts."""
    desk = Desk(health=Health(ecc_enabled=True, recovery_action=0, row_remap_failed=True, row_remap_pending=False))
    assert shape(desk.judge().gpus[0].verdict) == ("failed", {"row_remap_failed"})
    desk.down("unknown")
    assert shape(desk.read(60).gpus[0].verdict) == ("failed", {"row_remap_failed", "unreadable"})


def test_a_verdict_is_not_made_anew_without_news() -> None:
    """Between reads the same verdict is used again, so that frames cost nothing."""
    desk = Desk()
    first = desk.judge().gpus[0].verdict
    desk.now += 1.0
    assert desk.judge().gpus[0].verdict is first
