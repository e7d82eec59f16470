"""The error policy: what is remembered, counted, rejected or taken for a lost GPU."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faulty import FaultyDriver
from gpuwatch.device import nvml
from gpuwatch.device.calls import Calls, GpuLost
from gpuwatch.device.nvml import NVMLError
from gpuwatch.device.readings import NvmlError
from nodes import Node

MODE = "nvmlDeviceGetPersistenceMode"


def calls_of(text: str = "gpus: [{board: h200-sxm}]\n") -> tuple[Calls, FaultyDriver]:
    """Calls to GPU 0 of a simulated node, and its driver to break."""
    node = Node(text)
    driver = FaultyDriver(node.driver)
    return Calls(driver, node.handle()), driver


def test_a_refusal_is_remembered_and_not_asked_again() -> None:
    """A call that is not supported is asked once, named with its arguments, and counted as no error."""
    calls, driver = calls_of()
    driver.log = log = []
    assert [calls.ask("nvmlDeviceGetTemperatureThreshold", 4) for _ in range(3)] == [None, None, None]
    assert len(log) == 1
    assert calls.unsupported == {"nvmlDeviceGetTemperatureThreshold(4)": "NOT_SUPPORTED"}
    assert calls.take_errors() == ()


def test_a_refusal_of_one_argument_is_none_of_another() -> None:
    """What is refused for one clock, field or handle is still asked for the next."""
    calls, _ = calls_of()
    calls.ask("nvmlDeviceGetTemperatureThreshold", 4)
    assert calls.ask("nvmlDeviceGetTemperatureThreshold", 0) == 95
    assert calls.refuses("nvmlDeviceGetTemperatureThreshold", 4)
    assert not calls.refuses("nvmlDeviceGetTemperatureThreshold", 0)


def test_forgotten_refusals_are_asked_anew() -> None:
    """After forget a call gets its chance again."""
    calls, driver = calls_of()
    driver.fail(MODE, nvml.NOT_SUPPORTED)
    assert calls.ask(MODE) is None
    driver.mend()
    assert calls.ask(MODE) is None
    calls.forget()
    assert calls.ask(MODE) is not None


def test_errors_are_counted_until_taken() -> None:
    """Each failure counts once, by call and error, and each count is handed out once."""
    calls, driver = calls_of()
    driver.fail(MODE, nvml.UNKNOWN)
    for _ in range(3):
        calls.ask(MODE)
    assert calls.take_errors() == (NvmlError(call=MODE, error="UNKNOWN", count=3),)
    assert calls.take_errors() == ()


@pytest.mark.parametrize("code", [nvml.INVALID_ARGUMENT, nvml.NO_PERMISSION])
def test_standing_errors_are_counted_once(code: int) -> None:
    """A first answer of "invalid argument" or "no permission" will not change: counted, then left alone; a later one is transient."""
    calls, driver = calls_of()
    driver.fail(MODE, code)
    for _ in range(3):
        calls.ask(MODE)
    assert [error.count for error in calls.take_errors()] == [1]
    driver.mend()
    calls.forget()
    calls.ask(MODE)
    driver.fail(MODE, code)
    for _ in range(3):
        calls.ask(MODE)
    assert [error.count for error in calls.take_errors()] == [3]


def test_an_instance_that_went_away_says_nothing_about_the_board() -> None:
    """M1: "invalid argument" about a MIG instance is never remembered: the next instance with that number may answer."""
    calls, driver = calls_of("gpus: [{board: h200-sxm, mig: [3g.71gb, 3g.71gb]}]\n")
    handle = driver.nvmlDeviceGetMigDeviceHandleByIndex(calls.handle, 0)
    questions = (
        lambda: calls.ask("nvmlGpmMigSampleGet", 1, driver.nvmlGpmSampleAlloc()),
        lambda: calls.ask("nvmlDeviceGetMemoryInfo", on=handle),
    )
    for question in questions:
        for call in ("nvmlGpmMigSampleGet", "nvmlDeviceGetMemoryInfo"):
            driver.fail(call, nvml.INVALID_ARGUMENT)
        assert question() is None
        driver.mend()
        assert question() is not None
    assert calls.unsupported == {}


def test_text_that_is_no_utf8() -> None:
    """A name with a broken byte is shown with a mark in its place; pynvml raises where NVML has answered."""
    calls, driver = calls_of()

    def stumble(_: object) -> str:
        return b"NVIDIA \xff100".decode()

    driver.answer("nvmlDeviceGetName", stumble)
    assert calls.ask("nvmlDeviceGetName") == "NVIDIA \N{REPLACEMENT CHARACTER}100"
    assert calls.take_errors() == ()


@pytest.mark.parametrize("error", [TypeError, ValueError, KeyError, AttributeError])
def test_a_binding_that_stumbles_costs_one_call(error: type[Exception]) -> None:
    """An exception that is not NVML's is an error of that call, counted under its type, and asked again."""
    calls, driver = calls_of()

    def stumble(_: object) -> None:
        raise error

    driver.answer(MODE, stumble)
    driver.answer("nvmlGpmSampleAlloc", stumble)
    assert (calls.ask(MODE), calls.ask_driver("nvmlGpmSampleAlloc"), calls.complete) == (None, None, False)
    assert {each.error for each in calls.take_errors()} == {error.__name__}
    driver.mend()
    assert calls.ask(MODE) is not None


def test_codes_newer_than_the_binding_have_a_name() -> None:
    """An error code that nobody knows yet is counted under its number."""
    calls, driver = calls_of()
    driver.fail(MODE, 777)
    calls.ask(MODE)
    assert calls.take_errors() == (NvmlError(call=MODE, error="CODE_777"),)


def test_nothing_is_no_error() -> None:
    """A code that means "there is none" is neither counted nor remembered."""
    calls, driver = calls_of()
    driver.fail(MODE, nvml.NOT_FOUND)
    assert calls.ask(MODE, nothing=(nvml.NOT_FOUND,)) is None
    assert (calls.take_errors(), calls.unsupported, calls.complete) == ((), {}, True)


def test_a_pass_without_one_answer_is_a_fault() -> None:
    """A pass in which every call failed names the commonest error; one answer is enough to be there."""
    calls, driver = calls_of()
    driver.fail(MODE, nvml.UNKNOWN)
    driver.fail("nvmlDeviceGetName", nvml.RESET_REQUIRED)
    calls.begin_pass()
    for call in (MODE, MODE, "nvmlDeviceGetName"):
        calls.ask(call)
    assert calls.end_pass() == "unknown"
    calls.ask("nvmlDeviceGetUUID")
    assert calls.end_pass() == ""
    calls.begin_pass()
    assert calls.end_pass() == ""


def test_only_two_different_calls_lose_a_gpu() -> None:
    """GPU_IS_LOST from one call, whatever its arguments, is an error; from a second call the GPU is gone."""
    calls, driver = calls_of()
    driver.fail("nvmlDeviceGetClockInfo", nvml.GPU_IS_LOST)
    driver.fail(MODE, nvml.GPU_IS_LOST)
    calls.begin_pass()
    assert [calls.ask("nvmlDeviceGetClockInfo", clock) for clock in range(4)] == [None] * 4
    with pytest.raises(GpuLost):
        calls.ask(MODE)


def test_a_lost_call_of_another_pass_does_not_count() -> None:
    """Two passes with one lost call each are two errors, no lost GPU."""
    calls, driver = calls_of()
    for call in ("nvmlDeviceGetName", MODE):
        driver.fail(call, nvml.GPU_IS_LOST)
        calls.begin_pass()
        assert calls.ask(call) is None


def test_fields_are_judged_one_by_one() -> None:
    """A field that fails or is newer than the driver leaves the others; unknown ones are asked once."""
    calls, driver = calls_of()
    driver.fail("field 82", nvml.UNKNOWN)
    driver.fail("field 230", nvml.INVALID_ARGUMENT)
    values = calls.fields(82, 94, 230, 9999)
    assert set(values) == {94}
    assert set(calls.unsupported) == {"field 230", "field 9999"}
    assert calls.take_errors() == (NvmlError(call="nvmlDeviceGetFieldValues", error="UNKNOWN"),)


@pytest.mark.parametrize(
    ("field", "text", "expected"),
    [(193, "h200-sxm", -8), (82, "h200-sxm", 36), (74, "h200-sxm", 0), (138, "h200-sxm", 0)],
)
def test_fields_are_read_by_their_type(field: int, text: str, expected: int) -> None:
    """A field is read from the member that its valueType names: a negative offset is not four billion."""
    calls, _ = calls_of(f"gpus: [{{board: {text}}}]\n")
    request = (field, nvml.ALL_LINKS) if field == 138 else field
    assert calls.fields(request) == {request: expected}


def test_a_type_newer_than_the_binding_is_no_value() -> None:
    """A field whose type is not known is left out, never guessed."""
    calls, driver = calls_of()
    driver.answer("nvmlDeviceGetFieldValues", lambda fields: [retyped(field) for field in fields])
    assert calls.fields(94) == {}


def retyped(field: object) -> object:
    """The field with a type of the future."""
    field.valueType = 42  # type: ignore[attr-defined]
    return field


@given(
    value=st.one_of(st.none(), st.integers(-(1 << 70), 1 << 70), st.floats(allow_nan=False)),
    low=st.integers(-5, 5),
    high=st.integers(6, 500),
)
def test_checked_values_lie_in_range(value: float | None, low: int, high: int) -> None:
    """What comes out of a check is the value itself within its range, or nothing and counted."""
    calls, _ = calls_of()
    checked = calls.check("thing", value, low, high)
    assert checked is None or (checked == value and low <= checked <= high)
    assert calls.take_rejected() == ({"thing": 1} if checked is None and value is not None else {})


@given(st.one_of(st.none(), st.integers(-(1 << 70), 1 << 70)))
def test_checked_counts_are_counts(value: int | None) -> None:
    """A count is never negative, nor all ones of 32 or 64 bits, which mean "not available"."""
    calls, _ = calls_of()
    checked = calls.check_count("thing", value)
    assert checked is None or (checked == value and checked >= 0 and checked not in {0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})


def test_not_a_number_is_rejected() -> None:
    """NaN is in no range."""
    calls, _ = calls_of()
    assert calls.check("thing", float("nan"), 0, 1) is None
    assert calls.take_rejected() == {"thing": 1}


def test_counts_of_another_thread_are_added() -> None:
    """What the PCIe thread has counted is told with the rest."""
    calls, _ = calls_of()
    calls.count_error("nvmlDeviceGetHandleByIndex", NVMLError(nvml.UNKNOWN))
    calls.add_counts([NvmlError(call="x", error="TIMEOUT", count=2)], {"pcie_throughput": 3})
    assert {(error.call, error.count) for error in calls.take_errors()} == {("nvmlDeviceGetHandleByIndex", 1), ("x", 2)}
    assert calls.take_rejected() == {"pcie_throughput": 3}
