"""Two sources, one stream: each fault once, under the GPU it belongs to."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.device.readings import FaultEvent, Identity
from gpuwatch.health.stream import FaultStream

ADDRESS = "00000000:3b:00.0"
GPU = Identity(index=0, uuid="GPU-0", pci_bus_id="00000000:3B:00.0")


def logged(code: int, at: float, *, address: str = ADDRESS, uuid: str = "") -> FaultEvent:
    """A line of the kernel log."""
    return FaultEvent(kind="xid", code=code, pci_bus_id=address, uuid=uuid, source="kernel_log", at=at, text="words")


def heard(code: int, at: float, *, uuid: str = "GPU-0") -> FaultEvent:
    """An event of NVML."""
    return FaultEvent(kind="xid", code=code, uuid=uuid, source="nvml", at=at)


def counted(events: Iterable[FaultEvent]) -> int:
    """How many faults they tell of."""
    return sum(not event.completes for event in events)


def stream() -> FaultStream:
    """One that knows the GPU."""
    made = FaultStream()
    made.learn(GPU)
    return made


def test_both_accounts_of_a_fault_are_one() -> None:
    """NVML and the kernel log tell of the same XID within seconds: it is counted once, in either order."""
    assert counted(stream().merge([heard(31, 0.0), logged(31, 9.0)])) == 1
    assert counted(stream().merge([logged(31, 0.0), heard(31, 9.0)])) == 1


def test_the_drivers_words_are_never_lost() -> None:
    """NVML has no words: where it was first, the log's account still comes, and counts no more. The other way round there is no need."""
    assert [(event.text, event.completes) for event in stream().merge([heard(145, 0.0), logged(145, 1.0)])] == [
        ("", False),
        ("words", True),
    ]
    assert [(event.text, event.completes) for event in stream().merge([logged(145, 0.0), heard(145, 1.0)])] == [("words", False)]


def test_each_source_alone_is_enough() -> None:
    """79, 119 and 62 often come in the kernel log only, others by NVML only (row 4)."""
    assert [event.uuid for event in stream().merge([logged(79, 0.0), heard(62, 1.0)])] == ["GPU-0", "GPU-0"]


def test_a_fault_that_happens_twice_is_told_twice() -> None:
    """Two accounts of each of two faults are two faults (row 3)."""
    told = [heard(31, 0.0), logged(31, 0.1), heard(31, 2.0), logged(31, 2.1)]
    assert [event.at for event in stream().merge(told) if not event.completes] == [0.0, 2.0]


def test_what_lies_apart_is_not_the_same() -> None:
    """Another number, another GPU, or more than ten seconds: another fault."""
    assert len(stream().merge([heard(31, 0.0), logged(32, 0.0)])) == 2
    assert len(stream().merge([heard(31, 0.0), logged(31, 0.0, address="00000000:3c:00.0")])) == 2
    assert len(stream().merge([heard(31, 0.0), logged(31, 10.5)])) == 2


def test_an_exchanged_board_takes_its_place() -> None:
    """After an exchange the address belongs to the new board (row 13)."""
    made = stream()
    made.learn(Identity(index=0, uuid="GPU-1", pci_bus_id="00000000:3B:00.0"))
    assert [event.uuid for event in made.merge([logged(48, 0.0, uuid="GPU-0")])] == ["GPU-1"]


def test_a_switch_is_no_gpu() -> None:
    """An SXid never gets a GPU's UUID, whatever its address."""
    event = FaultEvent(kind="sxid", code=20034, pci_bus_id=ADDRESS, source="kernel_log", at=0.0)
    assert [one.uuid for one in stream().merge([event])] == [""]


@given(st.lists(st.tuples(st.sampled_from(["nvml", "kernel_log"]), st.sampled_from([13, 31]), st.floats(0, 100)), max_size=60))
def test_no_fault_is_lost(told: list[tuple[str, int, float]]) -> None:
    """However the accounts are mixed, at least as many faults come out as the more talkative source has told of each number."""
    made = stream()
    found = [event for source, code, at in told for event in made.merge([heard(code, at) if source == "nvml" else logged(code, at)])]
    for code in (13, 31):
        most = max(sum(one[:2] == (source, code) for one in told) for source in ("nvml", "kernel_log"))
        assert most <= counted(event for event in found if event.code == code) <= sum(one[1] == code for one in told)
