"""Every kind of fault shows where and when the scenario says, and nowhere else."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpuwatch.device import nvml
from gpuwatch.device.nvml import NVMLError
from gpuwatch.device.simulated import SimulatedDriver, load_scenario
from gpuwatch.device.simulated.driver import ANSWERS
from nodes import Node

TWO = "gpus: [{board: h100-sxm, count: 2, loads: [{kind: training}]}]\n"
A100 = "gpus: [{board: a100-80gb-sxm, count: 2, loads: [{kind: training}]}]\n"


def codes(node: Node, call: str, *arguments: object, gpu: int = 1, times: tuple[float, ...] = (9.0, 10.0, 19.0, 20.0)) -> list[int]:
    """Error codes of a call before, at the start of, at the end of and after a fault from 10 to 20."""
    found = []
    for t in times:
        node.t = t
        found.append(node.code(call, *arguments, gpu=gpu))
    return found


def init_code(node: Node) -> int:
    """Error code of nvmlInit in a new process; 0 when it works."""
    try:
        node.load().nvmlInit()
    except NVMLError as error:
        return int(error.value)
    return 0


def test_lost_gpu() -> None:
    """A lost GPU answers GPU_IS_LOST to everything and comes back; its neighbour never notices (case D1)."""
    node = Node(TWO + "faults: [{kind: gpu-lost, gpu: 1, from: 10, until: 20}]")
    assert codes(node, "UUID") == [0, 15, 15, 0]
    assert codes(node, "UUID", gpu=0) == [0, 0, 0, 0]


def test_error_on_all_calls() -> None:
    """One GPU can answer UNKNOWN to everything (case D2)."""
    node = Node(TWO + "faults: [{kind: call-error, gpu: 1, code: 999, from: 10, until: 20}]")
    assert codes(node, "PowerUsage") == [0, 999, 999, 0]


@pytest.mark.parametrize("code", [1, 2, 3, 4, 6, 15, 16, 999])
def test_error_on_one_call(code: int) -> None:
    """Any NVML error can be put on any single call (case D9), under pynvml's own exception class."""
    node = Node(TWO + f"faults: [{{kind: call-error, calls: [nvmlDeviceGetPowerUsage], code: {code}}}]")
    assert node.code("PowerUsage") == code
    assert node.code("UtilizationRates") == 0
    with pytest.raises(type(NVMLError(code))):
        node.ask("PowerUsage")


def test_missing_symbol() -> None:
    """A function that the library lacks answers FUNCTION_NOT_FOUND (case D8)."""
    node = Node(TWO + "faults: [{kind: missing-symbols, calls: [nvmlDeviceGetFieldValues]}]")
    assert node.code("FieldValues", [83]) == nvml.FUNCTION_NOT_FOUND


@pytest.mark.parametrize("call", sorted(ANSWERS))
def test_any_symbol_can_be_missing(call: str) -> None:
    """Each function can be taken away alone, and the others still answer (case D8)."""
    node = Node(TWO + f"faults: [{{kind: missing-symbols, calls: [{call}]}}]")
    with pytest.raises(NVMLError) as error:
        getattr(node.driver, call)(node.handle())
    assert error.value.value == nvml.FUNCTION_NOT_FOUND
    others = {"Name", "TotalEnergyConsumption"} - {call.removeprefix("nvmlDeviceGet")}
    assert all(node.code(other) == 0 for other in others)


def test_hang_waits_and_then_answers() -> None:
    """A hanging call blocks for the stated time on that GPU only (case D3)."""
    node = Node(TWO + "faults: [{kind: hang, gpu: 1, calls: [nvmlDeviceGetTemperature], seconds: 60, from: 10}]", t=10.0)
    node.ask("Temperature", 0, gpu=0)
    assert node.waited == []
    node.ask("Temperature", 0, gpu=1)
    assert node.waited == [60.0]


_CRASH = """
from gpuwatch.device.simulated import SimulatedDriver, load_scenario
from gpuwatch.device.simulated.driver import ANSWERS
now = [float({born})]
driver = SimulatedDriver(load_scenario("crash"), lambda: now[0])
driver.nvmlInit()
now[0] = {t}
driver.nvmlDeviceGetCount()
"""


@pytest.mark.parametrize(
    ("born", "t", "killed"), [(0, 59.0, False), (0, 60.0, True), (60, 299.0, False), (60, 301.0, True), (301, 9e9, False)]
)
def test_crash_kills_the_process_once(born: float, t: float, killed: bool) -> None:
    """A crash is a real segmentation fault of a process that is older than it; the next process lives (case D4)."""
    ended = subprocess.run([sys.executable, "-c", _CRASH.format(born=born, t=t)], check=False)
    assert ended.returncode == (-signal.SIGSEGV if killed else 0)


def test_driver_that_comes_late() -> None:
    """NvmlInit fails without a library, then without a kernel module, then works in the same process (case D5)."""
    now = [0.0]
    driver, found = SimulatedDriver(load_scenario("driver-late"), lambda: now[0]), []
    for now[0] in (0.0, 21.0, 46.0):
        try:
            driver.nvmlInit()
        except NVMLError as error:
            found.append(error.value)
    assert found == [12, 9]
    assert driver.nvmlDeviceGetCount() == 2


def test_driver_upgrade_needs_a_new_process() -> None:
    """Old processes mismatch for ever; one that starts after the upgrade works, on the new version (case D6)."""
    node = Node("driver-upgrade")
    assert codes(node, "Name", gpu=0, times=(59.0,)) == [0]
    assert node.driver.nvmlSystemGetDriverVersion() == "570.124.06"
    for t in (60.0, 500.0):
        node.t = t
        with pytest.raises(NVMLError) as error:
            node.driver.nvmlDeviceGetCount()
        assert error.value.value == nvml.LIB_RM_VERSION_MISMATCH
    node.t = 75.0
    assert init_code(node) == nvml.LIB_RM_VERSION_MISMATCH
    node.t = 90.0
    fresh = node.load()
    fresh.nvmlInit()
    assert fresh.nvmlSystemGetDriverVersion() == "580.159.04"
    assert fresh.nvmlSystemGetCudaDriverVersion() == 13000


def test_lost_cgroup_has_no_way_back() -> None:
    """Every call, in old and new processes, answers UNKNOWN (case D7)."""
    node = Node("cgroup-lost")
    node.t = 61.0
    assert init_code(node) == nvml.UNKNOWN
    with pytest.raises(NVMLError):
        node.handle()


def test_no_gpu() -> None:
    """A driver without a GPU counts none until one appears."""
    node = Node("no-gpu")
    assert node.driver.nvmlDeviceGetCount() == 0
    node.t = 300.0
    assert node.driver.nvmlDeviceGetCount() == 1


def test_ecc_storm() -> None:
    """Corrected errors grow at the stated rate, of one GPU, in DRAM and in the total."""
    node = Node("ecc-storm", t=160.0)
    assert node.ask("TotalEccErrors", 0, 0, gpu=1) == 1_770_000
    assert node.ask("MemoryErrorCounter", 0, 1, 2, gpu=1) == 1_770_000
    assert node.ask("TotalEccErrors", 0, 0, gpu=0) == 0


def test_uncorrected_error_waits_for_a_reset() -> None:
    """An uncorrected error marks a row: counted, pending, one bank lower, and the driver recommends a reset."""
    node = Node("ecc-storm", t=100.0)
    assert node.ask("TotalEccErrors", 1, 0, gpu=2) == 1
    assert node.ask("RemappedRows", gpu=2) == (0, 1, 1, 0)
    assert (node.ask("RowRemapperHistogram", gpu=2).max, node.ask("RowRemapperHistogram", gpu=2).high) == (639, 1)
    assert [node.field(field, gpu=2).value.ullVal for field in (142, 143, 144, 145)] == [0, 1, 1, 0]


def test_remap_on_gddr_leaves_the_histogram() -> None:
    """On a GDDR board remapped rows leave all banks at their maximum, as captured on an A40."""
    node = Node("gpus: [{board: l40s}]\nfaults: [{kind: remapped-rows, corrected: 2, failed: true}]")
    assert node.ask("RemappedRows") == (2, 0, 0, 1)
    assert node.ask("RowRemapperHistogram").max == 192


def test_retired_pages() -> None:
    """Old boards retire pages: by cause, with one that waits for a reload."""
    node = Node("gpus: [{board: v100-sxm2}]\nfaults: [{kind: retired-pages, single_bit: 3, double_bit: 2, pending: true, from: 5}]")
    assert node.ask("RetiredPages", 0) == []
    node.t = 5.0
    assert (len(node.ask("RetiredPages", 0)), len(node.ask("RetiredPages", 1)), node.ask("RetiredPagesPendingStatus")) == (3, 2, 1)


@pytest.mark.parametrize(("slowdown", "reasons", "field", "limit"), [("software", 0x20, 269, 87), ("hardware", 0x48, 270, 89)])
def test_thermal_throttle(slowdown: str, reasons: int, field: int, limit: int) -> None:
    """The GPU heats to its limit first; then the reason shows, the clocks fall and the counter runs."""
    node = Node(TWO + f"faults: [{{kind: thermal-throttle, gpu: 1, from: 10, slowdown: {slowdown}}}]", t=12.0)
    assert node.ask("CurrentClocksEventReasons", gpu=1) == 4
    clock = node.ask("ClockInfo", 1, gpu=1)
    node.t = 400.0
    assert node.ask("CurrentClocksEventReasons", gpu=1) == reasons
    assert node.ask("Temperature", 0, gpu=1) >= limit
    assert node.ask("ClockInfo", 1, gpu=1) < 0.7 * clock
    assert node.field(field, gpu=1).value.ullVal > 100e9
    assert node.ask("ViolationStatus", 1, gpu=1).violationTime == node.field(field, gpu=1).value.ullVal
    assert node.field(field, gpu=0).value.ullVal == 0


def test_power_brake() -> None:
    """All GPUs of the node fall to 86 MHz and 68 W, with the two reasons of the real capture."""
    node = Node("power-brake", t=121.0)
    for gpu in range(8):
        assert node.ask("ClockInfo", 0, gpu=gpu) == 86
        assert node.ask("PowerUsage", gpu=gpu) == pytest.approx(68_000, rel=0.02)
        assert node.ask("CurrentClocksEventReasons", gpu=gpu) == 0x88
        assert node.field(271, gpu=gpu).value.ullVal == 1_000_000_000
    assert node.ask("PcieReplayCounter") == 67


def test_nvlink_faults() -> None:
    """A link that is down says so and has no speed; errors count on their link and in the sum."""
    faults = "faults: [{kind: nvlink-down, gpu: 1, link: 3, from: 10}, {kind: nvlink-errors, gpu: 1, link: 5, per_second: 2, from: 10}]"
    node = Node(TWO + faults, t=20.0)
    assert [node.ask("NvLinkState", link, gpu=1) for link in (2, 3)] == [1, 0]
    assert [node.field(164, link, gpu=1).value.uiVal for link in (2, 3)] == [26562, 0]
    assert [node.field(163, scope, gpu=1).value.ullVal for scope in (5, 4, nvml.ALL_LINKS)] == [20, 0, 20]
    assert node.ask("NvLinkErrorCounter", 5, 2, gpu=1) == 20


def test_old_nvlink_totals() -> None:
    """Ampere boards count the same errors in the old total fields."""
    node = Node(A100 + "faults: [{kind: nvlink-errors, gpu: 1, link: 5, counter: replay, per_second: 3}]", t=10.0)
    assert node.field(52, gpu=1).value.ullVal == 30
    assert node.field(161, 5, gpu=1).nvmlReturn == nvml.NOT_SUPPORTED


def test_pcie_faults() -> None:
    """Fewer lanes and replays show within their window."""
    node = Node(
        TWO + "faults: [{kind: pcie-width, gpu: 1, width: 4, from: 10, until: 20}, {kind: pcie-replays, gpu: 1, per_second: 5}]", t=15.0
    )
    assert (node.ask("CurrPcieLinkWidth", gpu=1), node.ask("CurrPcieLinkWidth", gpu=0)) == (4, 16)
    assert node.ask("PcieReplayCounter", gpu=1) == node.field(94, gpu=1).value.uiVal == 75


def test_garbage() -> None:
    """Sensors answer what cannot be, raw (case D13)."""
    node = Node("garbage-values")
    assert node.ask("UtilizationRates", gpu=0).gpu == 4294967295
    assert node.ask("Temperature", 0, gpu=0) == 255
    assert node.ask("Temperature", 0, gpu=1) == -1
    assert node.ask("PowerUsage", gpu=1) == 0


def test_recovery_action() -> None:
    """The driver's own recommendation is field 230."""
    node = Node(TWO + "faults: [{kind: recovery-action, gpu: 1, action: 2, from: 10, until: 20}]", t=10.0)
    assert [node.field(230, gpu=gpu).value.uiVal for gpu in (0, 1)] == [0, 2]


def test_calls_before_init_are_refused() -> None:
    """Without nvmlInit, and after the last nvmlShutdown, every call answers UNINITIALIZED."""
    node = Node("idle")
    handle = node.handle()
    node.driver.nvmlShutdown()
    with pytest.raises(NVMLError) as error:
        node.driver.nvmlDeviceGetName(handle)
    assert error.value.value == nvml.UNINITIALIZED


def test_threads_read_in_parallel() -> None:
    """A thread per GPU reads what one thread alone would read."""
    node = Node("mixed-fleet", t=77.0)
    alone = [node.ask("PowerUsage", gpu=gpu) for gpu in range(8)]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda gpu: [node.ask("PowerUsage", gpu=gpu) for _ in range(50)], range(8)))
    assert together == [[power] * 50 for power in alone]


def test_unknown_function_is_an_attribute_error() -> None:
    """A function the simulator does not have is missing as it would be in pynvml."""
    assert not hasattr(Node("idle").driver, "nvmlDeviceGetWeather")
