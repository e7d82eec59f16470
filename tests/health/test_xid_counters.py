"""Counters of XIDs: they begin with the first, only grow, and cannot fill the memory."""

from __future__ import annotations

from gpuwatch.device.readings import FaultEvent
from gpuwatch.health.hearing import classified
from gpuwatch.health.xid_counters import MAX_CODES, XidCounters, sxid_severity


def xid(code: int, at: float = 0.0, *, uuid: str = "GPU-0") -> FaultEvent:
    """An XID."""
    return FaultEvent(kind="xid", code=code, uuid=uuid, source="nvml", at=at)


def counters(*events: FaultEvent) -> XidCounters:
    """Counters with the table that ships."""
    made = XidCounters(classified)
    for event in events:
        made.add(event)
    return made


def test_counts_and_times() -> None:
    """XID 31, 31, 79: counters 2 and 1 with their last times, and nothing for any other number (case O5)."""
    told = counters(xid(31, 10.0), xid(31, 20.0), xid(79, 30.0)).of_gpu("GPU-0")
    assert [(one.xid, one.count, one.last_seen_seconds) for one in told] == [("31", 2, 20.0), ("79", 1, 30.0)]
    assert counters().of_gpu("GPU-0") == ()


def test_a_late_line_does_not_set_the_time_back() -> None:
    """The last time is the latest, whichever came first."""
    (one,) = counters(xid(31, 20.0), xid(31, 10.0)).of_gpu("GPU-0")
    assert (one.count, one.last_seen_seconds) == (2, 20.0)


def test_unknown_numbers_are_counted_as_unknown() -> None:
    """XID 999 is a ticket of category unknown; 143 is known (row 20)."""
    told = counters(xid(999), xid(143)).of_gpu("GPU-0")
    assert (told[0].category, told[0].severity) == ("unknown", "ticket")
    assert told[1].category != "unknown"


def test_a_gpu_has_a_bounded_number_of_series() -> None:
    """Beyond the first 64 numbers everything is counted under one name."""
    told = counters(*(xid(code) for code in range(1, MAX_CODES + 11))).of_gpu("GPU-0")
    assert len(told) == MAX_CODES + 1
    assert (told[-1].xid, told[-1].count) == ("other", 10)


def test_events_without_a_gpu_are_not_counted_for_one() -> None:
    """What belongs to no known GPU, and what is no XID, makes no series."""
    made = counters(xid(31, uuid=""), FaultEvent(kind="ecc_double", uuid="GPU-0", source="nvml", at=0.0))
    assert made.of_gpu("GPU-0") == made.of_gpu("") == ()


def test_errors_of_switches() -> None:
    """SXids are counted by number and by what the switch's driver says of them."""
    texts = ("Fatal, Link 30", "Non-fatal, Link 04", "Nonfatal", "Link 3")
    assert [sxid_severity(text) for text in texts] == ["fatal", "non_fatal", "non_fatal", "unknown"]
    made = counters(*(FaultEvent(kind="sxid", code=20034, source="kernel_log", at=0.0, text=texts[0]) for _ in range(2)))
    assert made.sxids() == {("20034", "fatal"): 2}
