"""Every call that the reader makes, failing in every way: what is lost is what that call feeds, and nothing else."""

from __future__ import annotations

from functools import cache

import pytest
from structlog.testing import capture_logs

from gpuwatch.device import nvml
from gpuwatch.device.reader import hello, read_until_down
from gpuwatch.device.readings import Frame, Goodbye
from gpuwatch.device.wire import ReaderOptions
from gpuwatch.journal import Journal
from gpuwatch.snapshot import Snapshot
from pipeline import Pipeline, check_text, families, of_gpu, series

_T4 = "{board: t4, loads: [{kind: tiny}]}"
NODES = {
    "rtx4090": f"gpus: [{{board: rtx4090, loads: [{{kind: matmul}}]}}, {_T4}]\n",
    "t4-driver-450": f"driver: 450.80.02\ngpus: [{_T4}, {_T4}]\n",
    "t4-driver-460": f"driver: 460.91.03\ngpus: [{_T4}, {_T4}]\n",
    "t4-shared": """
gpus:
  - {board: t4, loads: [{kind: tiny}], holders: [{pid: 7, memory_share: 0.1}, {pid: 8, memory_share: 0.1}]}
  - {board: l40s}
""",
    "v100": f"gpus: [{{board: v100-sxm2, loads: [{{kind: training}}]}}, {_T4}]\n",
    "h100-mig": f"gpus: [{{board: h100-sxm, mig: [3g.40gb, 1g.10gb], loads: [{{kind: matmul, mig: 0}}]}}, {_T4}]\n",
    "h200": f"gpus: [{{board: h200-sxm, loads: [{{kind: training}}]}}, {_T4}]\n",
    "h200-every-link": f"gpus: [{{board: h200-sxm}}, {_T4}]\n",
}
"""Between them they answer every call; the GPU under test is GPU 0."""

REFUSED = {"t4-driver-450": ("field 74", "field 94", "nvmlDeviceGetMemoryErrorCounter")}
"""So that the older calls are asked in their place."""

GPM = frozenset({"sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio", "pipe_active_ratio", "dram_active_ratio"})
MIG_ACTIVITY = frozenset({f"mig_{part}_active_ratio" for part in ("graphics", "sm", "tensor", "dram")})
MIG = MIG_ACTIVITY | {"mig_info", "mig_memory_total_bytes", "mig_memory_used_bytes", "mig_multiprocessors"}
NVLINK = frozenset({"nvlink_up", "nvlink_bytes_total", "nvlink_errors_total", "nvlink_speed_bytes_per_second"})
MEMORY = frozenset({f"memory_{part}_bytes" for part in ("total", "used", "free", "reserved")})
PCIE_RATE = frozenset({"pcie_throughput_bytes_per_second"})
PROCESSES = frozenset({"processes"})

FEEDS: dict[str, frozenset[str]] = {
    "nvmlDeviceGetUtilizationRates": frozenset({"utilization_ratio", "memory_activity_ratio", "busy_seconds_total"}),
    **dict.fromkeys(
        (f"nvmlDeviceGet{one}Utilization" for one in ("Encoder", "Decoder", "Jpg", "Ofa")), frozenset({"engine_utilization_ratio"})
    ),
    "nvmlDeviceGetMemoryInfo": MEMORY | {"mig_memory_used_bytes"},
    "nvmlDeviceGetTemperature": frozenset({"temperature_celsius"}),
    "nvmlDeviceGetPowerUsage": frozenset({"power_watts"}),
    "nvmlDeviceGetClockInfo": frozenset({"clock_hertz"}),
    "nvmlDeviceGetPerformanceState": frozenset({"performance_state"}),
    **dict.fromkeys(
        (f"nvmlDeviceGetCurrentClocks{one}Reasons" for one in ("Event", "Throttle")),
        frozenset({"throttle_active", "throttled_seconds_total"}),
    ),
    **dict.fromkeys(
        (f"nvmlDeviceGet{kind}RunningProcesses_v{n}" for kind in ("Compute", "Graphics", "MPSCompute") for n in (1, 2, 3)), PROCESSES
    ),
    "nvmlDeviceGetProcessUtilization": frozenset(),
    "nvmlDeviceGetTotalEnergyConsumption": frozenset({"energy_joules_total"}),
    "nvmlDeviceGetMarginTemperature": frozenset({"temperature_margin_celsius"}),
    "nvmlDeviceGetEnforcedPowerLimit": frozenset({"power_limit_watts"}),
    "nvmlDeviceGetPowerManagementDefaultLimit": frozenset({"power_limit_watts"}),
    "nvmlDeviceGetPowerManagementLimitConstraints": frozenset({"power_limit_watts"}),
    "nvmlDeviceGetNumFans": frozenset({"fan_speed_ratio"}),
    "nvmlDeviceGetFanSpeed_v2": frozenset({"fan_speed_ratio"}),
    "nvmlDeviceGetViolationStatus": frozenset({"throttled_seconds_total"}),
    "nvmlDeviceGetEccMode": frozenset({"info", "ecc_errors_total"}),
    "nvmlDeviceGetMemoryErrorCounter": frozenset({"ecc_errors_total"}),
    "nvmlDeviceGetTotalEccErrors": frozenset({"ecc_errors_total"}),
    "nvmlDeviceGetRemappedRows": frozenset({"remapped_rows", "row_remap_pending", "row_remap_failed"}),
    "nvmlDeviceGetRowRemapperHistogram": frozenset({"row_remap_banks"}),
    "nvmlDeviceGetRetiredPages": frozenset({"retired_pages"}),
    "nvmlDeviceGetRetiredPagesPendingStatus": frozenset({"retired_pages_pending"}),
    "nvmlDeviceGetCurrPcieLinkGeneration": frozenset({"pcie_link_generation"}),
    "nvmlDeviceGetCurrPcieLinkWidth": frozenset({"pcie_link_width"}),
    "nvmlDeviceGetPcieReplayCounter": frozenset({"pcie_replays_total"}),
    "nvmlDeviceGetNvLinkState": NVLINK,
    "fabric_info": frozenset({"fabric_healthy"}),
    "nvmlDeviceGetBAR1MemoryInfo": frozenset({"bar1_used_bytes"}),
    "nvmlDeviceGetPersistenceMode": frozenset({"info"}),
    "nvmlDeviceGetComputeMode": frozenset({"info"}),
    "nvmlDeviceGetMigMode": MIG | {"info"},
    "nvmlDeviceGetMaxMigDeviceCount": MIG,
    "nvmlDeviceGetMigDeviceHandleByIndex": MIG,
    "nvmlDeviceGetGpuInstanceId": MIG,
    "nvmlDeviceGetComputeInstanceId": MIG,
    "nvmlDeviceGetAttributes_v2": frozenset({"mig_multiprocessors", "mig_memory_total_bytes"}),
    "nvmlGpmSampleAlloc": GPM | MIG_ACTIVITY | PCIE_RATE,
    "nvmlGpmSampleGet": GPM | PCIE_RATE,
    "nvmlGpmMigSampleGet": MIG_ACTIVITY,
    "gpm_metrics": GPM | MIG_ACTIVITY | PCIE_RATE,
    "nvmlDeviceGetFieldValues": NVLINK
    | {"power_instant_watts", "temperature_celsius", "recovery_action", "throttled_seconds_total", "pcie_replays_total"},
    "field 82": frozenset({"temperature_celsius"}),
    "field 185": frozenset({"power_watts"}),
    "field 186": frozenset({"power_instant_watts"}),
    "field 230": frozenset({"recovery_action"}),
    "field 91": NVLINK,
    "field 94": frozenset({"pcie_replays_total"}),
    **dict.fromkeys(("field 138", "field 139"), frozenset({"nvlink_bytes_total"})),
    **dict.fromkeys((f"field {one}" for one in (38, 45, 52, 59, 161, 162, 163)), frozenset({"nvlink_errors_total"})),
    **dict.fromkeys(("field 90", "field 164"), frozenset({"nvlink_speed_bytes_per_second"})),
    **dict.fromkeys((f"field {one}" for one in (74, 75, 76, 77, 79, 269, 270, 271)), frozenset({"throttled_seconds_total"})),
    **dict.fromkeys((f"field {one}" for one in (193, 194, 195, 196)), frozenset[str]()),
    "nvmlDeviceGetTemperatureThreshold": frozenset({"temperature_limit_celsius"}),
    "nvmlDeviceGetMaxClockInfo": frozenset({"clock_max_hertz"}),
    "nvmlDeviceGetMaxPcieLinkGeneration": frozenset({"pcie_link_generation_max"}),
    "nvmlDeviceGetMaxPcieLinkWidth": frozenset({"pcie_link_width_max"}),
    **dict.fromkeys(
        (
            f"nvmlDeviceGet{fact}"
            for fact in ("Architecture", "BoardPartNumber", "CudaComputeCapability", "MinorNumber", "PciInfo", "Serial", "VbiosVersion")
        ),
        frozenset({"info"}),
    ),
}
"""Call → metrics of GPU 0 (without prefix) that it feeds: the most that may be missing when it fails."""

LABELS = {"nvmlDeviceGetUUID", "nvmlDeviceGetName"}
"""What is in every series' labels: read again until known, and kept."""
OPENING = {"nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID"}
FREEING = {"nvmlGpmSampleFree"}
_NO_SLOT = frozenset({nvml.NOT_FOUND, nvml.INVALID_ARGUMENT})
NOTHING_THERE = {
    "nvmlDeviceGetRetiredPages": frozenset({nvml.NOT_FOUND}),
    "nvmlDeviceGetProcessUtilization": frozenset({nvml.NOT_FOUND}),
    "nvmlDeviceGetNvLinkState": frozenset({nvml.INVALID_ARGUMENT}),
    "nvmlDeviceGetMigDeviceHandleByIndex": _NO_SLOT,
    "nvmlDeviceGetGpuInstanceId": _NO_SLOT,
    "nvmlDeviceGetComputeInstanceId": _NO_SLOT,
    "nvmlDeviceGetAttributes_v2": _NO_SLOT,
}
"""Codes that mean "there is none" and are no errors."""
REFUSALS = {
    nvml.NOT_SUPPORTED,
    nvml.FUNCTION_NOT_FOUND,
    nvml.ARGUMENT_VERSION_MISMATCH,
    nvml.DEPRECATED,
    nvml.VGPU_ECC_NOT_SUPPORTED,
}
CODES = sorted(code for code in nvml.ERROR_NAMES if code)


def pipeline_of(name: str, *, always_static: bool = False) -> Pipeline:
    """One of the nodes above, not read yet. ``always_static``: the static tier in every pass, so that it fails in each."""
    static_seconds = 0.5 if always_static else 3600.0
    options = ReaderOptions(pcie_throughput=False, nvlink_errors_per_link=name == "h200-every-link", static_seconds=static_seconds)
    return Pipeline(NODES[name], options=options, refused=REFUSED.get(name, ()))


@cache
def calls() -> dict[str, str]:
    """Every call and field that the reader was seen to make and to get an answer from → a node that answers it."""
    found: dict[str, str] = {}
    for name in NODES:
        pipeline = pipeline_of(name, always_static=True)
        pipeline.driver.log = []
        pipeline.read(2)
        for thread in pipeline.threads:
            thread._go_down("test")
        pipeline.read()
        theirs = {call for call, arguments in pipeline.driver.log if getattr(arguments[0] if arguments else None, "index", 0) == 0}
        found |= {call: name for call in theirs & pipeline.driver.answered if call not in found}
    return found


FAILING = sorted(set(calls()) - OPENING - FREEING - {"nvmlGpmSampleAlloc"})


def gpu_of(call: str) -> int | None:
    """GPU 0, except for calls that name no GPU."""
    return None if call == "gpm_metrics" else 0


def allowed(call: str) -> set[str]:
    """Names of the metrics that may be missing."""
    return {f"gpuwatch_{name}" if name.startswith("mig_") else f"gpuwatch_gpu_{name}" for name in FEEDS.get(call, ())}


def test_every_call_is_known() -> None:
    """The table above names what the reader asks, no more and no less, so that no call escapes these tests."""
    assert set(calls()) - LABELS - OPENING - FREEING == set(FEEDS)


@pytest.mark.parametrize("call", FAILING)
def test_every_error_of_every_call(call: str) -> None:
    """D9: any single call may answer any error: valid text, the error counted, only what the call feeds is gone, all back after."""
    pipeline = pipeline_of(calls()[call], always_static=True)
    pipeline.read(3)
    sound = pipeline.lines()
    for code in CODES:
        before = pipeline.agent.snapshot(pipeline.node.t, 0.0).agent.nvml_errors
        pipeline.driver.fail(call, code, gpu=gpu_of(call))
        # The neighbour has calls of its own: once is enough for it.
        snapshot = pipeline.read(gpus=1 if code != CODES[-1] else 2)
        pipeline.driver.mend()
        lines = pipeline.lines(snapshot)
        assert_only_lost(call, sound, lines)
        assert_counted(call, code, before, snapshot)
    check_text(pipeline.text())
    assert series(of_gpu(pipeline.lines(pipeline.read(2)), 0)) == series(of_gpu(sound, 0))


def assert_only_lost(call: str, sound: list[str], lines: list[str]) -> None:
    """GPU 1 is complete, GPU 0 lacks at most what the call feeds and shows nothing it did not show before."""
    assert series(of_gpu(lines, 1)) == series(of_gpu(sound, 1))
    lost = series(of_gpu(sound, 0)) - series(of_gpu(lines, 0))
    assert families(sorted(lost)) <= allowed(call)
    new = series(of_gpu(lines, 0)) - series(of_gpu(sound, 0))
    assert families(sorted(new)) <= allowed(call) & {"gpuwatch_gpu_info", "gpuwatch_mig_info", "gpuwatch_gpu_ecc_errors_total"}


def assert_counted(call: str, code: int, before: dict[tuple[str, str], int], snapshot: Snapshot) -> None:
    """By call and error; a refusal is remembered instead, and "there is none" is neither."""
    if code in NOTHING_THERE.get(call, set()):
        return
    if code in REFUSALS or (call.startswith("field") and code == nvml.INVALID_ARGUMENT):
        assert [key for key in snapshot.gpus[0].unsupported if key.startswith(call)]
        return
    key = ("nvmlDeviceGetFieldValues" if call.startswith("field") else call, nvml.ERROR_NAMES[code])
    assert snapshot.agent.nvml_errors[key] > before.get(key, 0)


@pytest.mark.parametrize("call", ["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetEccMode", "field 82"])
@pytest.mark.parametrize("code", sorted(REFUSALS))
def test_a_call_that_answered_before_is_counted_once_it_refuses(call: str, code: int) -> None:
    """D9: a refusal by a call that worked is a surprise and counted; when it stays it is taken for a fact and asked no more."""
    pipeline = Pipeline(NODES["h200"])
    pipeline.read(3)
    pipeline.driver.fail(call, code, gpu=0)
    snapshot = pipeline.read(5)
    key = ("nvmlDeviceGetFieldValues" if call.startswith("field") else call, nvml.ERROR_NAMES[code])
    assert snapshot.agent.nvml_errors[key] == 1
    assert [one for one in snapshot.gpus[0].unsupported if one.startswith(call)]


@pytest.mark.parametrize("code", CODES)
def test_samples_that_cannot_be_had(code: int) -> None:
    """D9: without room for samples a board has no activity, and all else."""
    pipeline = pipeline_of("h200")
    pipeline.read(3)
    sound = pipeline.lines()
    broken = pipeline_of("h200")
    broken.driver.fail("nvmlGpmSampleAlloc", code)
    snapshot = broken.read(3)
    assert_only_lost("nvmlGpmSampleAlloc", sound, broken.lines())
    assert_counted("nvmlGpmSampleAlloc", code, {}, snapshot)


@pytest.mark.parametrize("symbol", sorted(call for call in FAILING if not call.startswith("field") and call not in LABELS))
def test_every_missing_symbol(symbol: str) -> None:
    """D8: a library without one of the symbols costs only what that call feeds, and one log line a model."""
    sound, pipeline = pipeline_of(calls()[symbol]), pipeline_of(calls()[symbol])
    sound.read(3)
    pipeline.driver.remove(symbol)
    journal = Journal()
    with capture_logs() as logs:
        for _ in range(3):
            journal.note(pipeline.read())
    check_text(pipeline.text())
    for gpu in range(2):
        lost = series(of_gpu(sound.lines(), gpu)) - series(of_gpu(pipeline.lines(), gpu))
        assert families(sorted(lost)) <= allowed(symbol)
    refusals = [line for line in logs if line["event"] == "not supported by this board or driver"]
    late = int(symbol == "gpm_metrics")  # asked only once there are two samples
    assert len(refusals) == len({line["model"] for line in refusals}) + late
    assert any(call.startswith(symbol) for line in refusals for call in line["calls"])
    assert pipeline.agent.snapshot(pipeline.node.t, 0.0).agent.nvml_errors == {}


def test_a_binding_without_the_function() -> None:
    """D8: a binding too old to have a function at all is the same as a library without it."""
    pipeline = Pipeline(NODES["h200"])
    assert pipeline.threads[0]._calls.ask("nvmlDeviceGetSomethingOfTheFuture") is None
    assert pipeline.threads[0]._calls.unsupported == {"nvmlDeviceGetSomethingOfTheFuture": "FUNCTION_NOT_FOUND"}


@pytest.mark.parametrize("call", sorted(LABELS))
def test_labels_stay(call: str) -> None:
    """D9: a UUID or a name that cannot be read again stays as it was; one not read yet is asked for until it is known."""
    pipeline = Pipeline(NODES["h200"])
    pipeline.driver.fail(call, nvml.UNKNOWN, gpu=0)
    assert pipeline.read(2).gpus[0].up
    pipeline.driver.mend()
    pipeline.read_fast(4)
    labels = pipeline.read(2).gpus[0].identity
    assert labels.uuid.startswith("GPU-")
    assert labels.model == "NVIDIA H200"
    assert len(pipeline.agent.snapshot(pipeline.node.t, 0.0).gpus) == 2


@pytest.mark.parametrize("code", CODES)
def test_a_handle_that_cannot_be_had(code: int) -> None:
    """D9: a GPU without a handle is down with the error as its reason, the other is complete, and it comes when it answers."""
    pipeline = Pipeline(NODES["h200"])
    pipeline.driver.fail("nvmlDeviceGetHandleByIndex", code, gpu=0)
    snapshot = pipeline.read(2)
    check_text(pipeline.text())
    error = nvml.ERROR_NAMES[code]
    assert [(gpu.up, gpu.fault) for gpu in snapshot.gpus] == [(False, error.lower()), (True, "")]
    assert snapshot.agent.nvml_errors["nvmlDeviceGetHandleByIndex", error] == 2
    pipeline.driver.mend()
    assert [gpu.up for gpu in pipeline.read().gpus] == [True, True]


@pytest.mark.parametrize("code", CODES)
def test_the_library_as_a_whole(code: int) -> None:
    """D9: an error of the first calls ends the reader with that error as its reason; a version that is refused is just absent."""
    for call in ("nvmlInit", "nvmlDeviceGetCount"):
        pipeline = Pipeline(NODES["h200"])
        pipeline.driver.fail(call, code)
        frames: list[Frame] = []
        goodbye = read_until_down(pipeline.driver, pipeline.options, frames.append)
        assert isinstance(goodbye, Goodbye)
        assert (goodbye.reason, frames) == (nvml.ERROR_NAMES[code].lower(), [])
    for call in ("nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion", "nvmlSystemGetCudaDriverVersion"):
        pipeline = Pipeline(NODES["h200"])
        pipeline.driver.fail(call, code)
        told = hello(pipeline.driver, 2)
        assert [told.driver_version, told.nvml_version, told.cuda_version].count(None) == 1
