"""Faults that come and go while the demo runs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.device.nvml import NVMLError
from gpuwatch.device.simulated import InjectionError, SimulatedDriver, load_scenario
from gpuwatch.device.simulated.fault import AnyFault, GpuLost, PowerBrake, Xid
from gpuwatch.device.simulated.injection_file import AHEAD_SECONDS, FaultsFile, Rehearsal, parse_injections

FLEET = load_scenario("mixed-fleet")
SPECS = (
    "xid=79,gpu=3",
    "fault=power-brake,gpu=0",
    "xid=31,gpu=1,every=5",
    "fault=ecc-storm,gpu=1,at=40",
    "xid=48,gpu=7,at=3",
    "fault=hang,gpu=2,for=9",
)


class Demo:
    """A file that a person edits, what becomes of it, and a reader that follows. ``t`` is the time of everything."""

    def __init__(self, folder: Path, *specs: str) -> None:
        self.t = 0.0
        self.path = folder / "faults.yaml"
        self.warnings: list[str] = []
        self.write(*specs)
        self.rehearsal = Rehearsal(self.path, folder / "told.json", FLEET, warn=self.warnings.append)
        self.faults = FaultsFile(folder / "told.json", clock=lambda: self.t)

    def write(self, *specs: str) -> None:
        """Edit the file."""
        self.path.write_text("".join(f"- {spec}\n" for spec in specs))

    def look(self, t: float, *specs: str) -> tuple[AnyFault, ...]:
        """The file holds these specs, which is seen at ``t``; what the reader knows then."""
        self.write(*specs)
        self.t = t
        self.rehearsal.look(t)
        return self.faults()


def test_added_and_struck_out(tmp_path: Path) -> None:
    """A fault that is added begins a moment later; one that is struck out ends a moment later, or never comes if it had not begun."""
    demo = Demo(tmp_path, "xid=79,gpu=3")
    assert demo.faults() == (GpuLost(gpu=3, from_=15.0),)
    both = demo.look(20.0, "xid=79,gpu=3", "fault=power-brake,gpu=0", "fault=power-brake,gpu=1,at=900")
    assert both == (GpuLost(gpu=3, from_=15.0), PowerBrake(gpu=0, from_=22.0), PowerBrake(gpu=1, from_=900.0))
    assert set(demo.look(30.0, "fault=power-brake,gpu=0")) == {GpuLost(gpu=3, from_=15.0, until=32.0), PowerBrake(gpu=0, from_=22.0)}
    assert demo.look(30.6, "fault=power-brake,gpu=0") is demo.look(31.2, "fault=power-brake,gpu=0")
    assert PowerBrake(gpu=0, from_=22.0, until=42.0) in demo.look(40.0)
    assert demo.warnings == []


def test_repetitions_end(tmp_path: Path) -> None:
    """An XID that repeats is told no more once it is struck out."""
    demo = Demo(tmp_path, "xid=31,gpu=1,at=0,every=5")
    driver = SimulatedDriver(FLEET, lambda: demo.t, injected=demo.faults)
    demo.look(11.0)
    demo.t = 100.0
    assert [record.seconds for record in driver.kernel_log(-1).read(100).records] == [0.0, 5.0, 10.0]


@pytest.mark.parametrize(
    "text",
    [b"- xid=79", b"xid=79,gpu=3", b"- {xid: 79}", b"- [", b"\xff", b"- 2026-99-99", b"- xid=79,gpu=30", b"- " * 5000, b"- x\n" * 300],
)
def test_broken_file(tmp_path: Path, text: bytes) -> None:
    """A file with a mistake changes nothing and is told once; the next good one counts again."""
    demo = Demo(tmp_path, "xid=79,gpu=3")
    before = demo.faults()
    demo.path.write_bytes(text)
    for t in (20.0, 21.0, 22.0):
        demo.t = t
        demo.rehearsal.look(t)
        assert demo.faults() is before
    assert len(demo.warnings) == 1
    assert demo.warnings[0].isprintable()
    assert demo.look(30.0, "xid=79,gpu=3", "xid=31,gpu=1") == (*before, Xid(code=31, gpu=1, from_=32.0))


def test_missing_file(tmp_path: Path) -> None:
    """A file that is gone for a moment, as editors do, keeps its faults; at the start it is a mistake, and so is a pipe."""
    demo = Demo(tmp_path, "xid=79,gpu=3")
    demo.path.unlink()
    demo.rehearsal.look(20.0)
    demo.rehearsal.look(21.0)
    assert len(demo.faults()) == 1
    assert demo.warnings == ["cannot be read: No such file or directory"]
    with pytest.raises(InjectionError, match="no regular file"):
        Rehearsal(Path("/dev/null"), tmp_path / "told.json", FLEET, warn=demo.warnings.append)


@given(st.one_of(st.binary(), st.text().map(str.encode), st.lists(st.sampled_from(SPECS)).map(lambda specs: str(list(specs)).encode())))
def test_any_file(text: bytes) -> None:
    """Any content is a list of faults or refused in one line."""
    try:
        assert len(parse_injections(text, FLEET)) <= len(SPECS)
    except InjectionError as error:
        assert str(error).isprintable()


@given(st.lists(st.tuples(st.floats(0.5, 30.0), st.lists(st.sampled_from(SPECS), unique=True)), max_size=6))
def test_the_past_stays(edits: list[tuple[float, list[str]]]) -> None:
    """However the file is edited, lines of the kernel log keep their numbers, none is told late, and a new reader finds the same log."""
    with tempfile.TemporaryDirectory() as folder:
        demo = Demo(Path(folder))
        driver = SimulatedDriver(FLEET, lambda: demo.t, injected=demo.faults)
        feed, heard = driver.kernel_log(-1), []
        for pause, specs in edits:
            demo.look(demo.t + pause, *specs)
            heard += feed.read(10_000).records
        demo.t += AHEAD_SECONDS + 1.0
        heard += feed.read(10_000).records
        again = SimulatedDriver(FLEET, lambda: demo.t, injected=FaultsFile(Path(folder, "told.json"), clock=lambda: demo.t))
        assert heard == again.kernel_log(-1).read(10_000).records


def test_a_fault_shows_in_a_driver_that_runs(tmp_path: Path) -> None:
    """The driver that a reader holds open loses the GPU, and finds it again."""
    demo = Demo(tmp_path)
    driver = SimulatedDriver(FLEET, lambda: demo.t, injected=demo.faults)
    driver.nvmlInit()
    handle = driver.nvmlDeviceGetHandleByIndex(3)
    demo.look(20.0, "fault=gpu-lost,gpu=3")
    assert driver.nvmlDeviceGetUUID(handle)
    demo.t = 20.0 + AHEAD_SECONDS
    with pytest.raises(NVMLError):
        driver.nvmlDeviceGetUUID(handle)
    demo.look(30.0)
    demo.t = 30.0 + AHEAD_SECONDS
    assert driver.nvmlDeviceGetUUID(handle)
