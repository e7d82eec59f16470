"""Lines of the kernel log in all the forms in which drivers of the last ten years print them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.device.kernel_line import MAX_TEXT, Line, normalise_address, opens_lost_message, parse_line, parse_record

UUID = "GPU-44ec53bd-277c-984f-fa9f-cded30fbfd5d"


@pytest.mark.parametrize(
    ("text", "code", "address", "pid", "instance"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.", 79, "00000000:3b:00.0", 1234, None),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen", 79, "00000000:3b:00.0", None, None),
        ("NVRM: Xid (PCI:0000:3b:00): 43, pid='4321', name=\"my app\", Ch 00000010", 43, "00000000:3b:00.0", 4321, None),
        ("NVRM: Xid (PCI:0000:3b:00): 48, An uncorrectable double bit error", 48, "00000000:3b:00.0", None, None),
        ("NVRM: Xid (PCI:0000:3B:00): 62, 023f0f30 00000000", 62, "00000000:3b:00.0", None, None),
        ("NVRM: Xid (PCI:0000:3b:00.0): 94, pid=7, Contained", 94, "00000000:3b:00.0", 7, None),
        ("NVRM: Xid (PCI:00010000:01:00): 119, pid=7, name=a, Timeout", 119, "00010000:01:00.0", 7, None),
        ("NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None)", 154, "00000008:01:00.0", None, None),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9).", 94, "00000000:01:00.0", 7194, 5),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:02): 13, pid=9, name=a, Graphics Exception", 13, "00000000:01:00.0", 9, 5),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", 14, "00000000:03:00.0", None, None),
        ("NVRM: Xid (PCI:0000:00:06): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU Fault", 31, "00000000:00:06.0", 79749, None),
        ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Nonfatal XC1 i0 Link 05", 149, "00000018:01:00.0", None, None),
        ("NVRM: Xid (PCI:0000:03:00): 143", 143, "00000000:03:00.0", None, None),
        ("kernel: NVRM: Xid (PCI:0000:03:00): 999, from an injection by hand", 999, "00000000:03:00.0", None, None),
        ("[  123.456789] NVRM: Xid (PCI:0000:03:00): 8, Channel 00000001", 8, "00000000:03:00.0", None, None),
    ],
)  # fmt: skip
def test_xid(text: str, code: int, address: str, pid: int | None, instance: int | None) -> None:
    """Number, address, process and MIG instance are read from every form of an XID line (rows 4 and 20)."""
    line = parse_line(text)
    assert line is not None
    assert (line.kind, line.code, line.pci_bus_id, line.pid, line.gpu_instance) == ("xid", code, address, pid, instance)
    assert not line.text.startswith("pid=")


def test_the_text_of_154_stays_whole() -> None:
    """The last brackets say what the driver asks for."""
    line = parse_line("NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
    assert line is not None
    assert line.text.endswith("(Node Reboot Required)")


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        "NVRM: GPU at 0000:3b:00.0 has fallen off the bus.",
        "NVRM: GPU at PCI:0000:3b:00.0 has fallen off the bus.",
        "NVRM: The NVIDIA GPU 0000:3b:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\nNVRM: fallen off the bus and is",
    ],
)
def test_a_lost_gpu_without_a_number_is_79(text: str) -> None:
    """The driver says that a GPU fell off the bus also without an XID (row 5)."""
    line = parse_line(text)
    assert line is not None
    assert (line.kind, line.code, line.pci_bus_id) == ("lost", 79, "00000000:3b:00.0")


def test_a_lost_gpu_over_several_records() -> None:
    """The address stands in the first record, the news in the last."""
    assert opens_lost_message("NVRM: The NVIDIA GPU 0000:B3:00.0") == "00000000:b3:00.0"
    line = parse_line("NVRM: fallen off the bus and is not responding to commands.")
    assert line is not None
    assert (line.kind, line.pci_bus_id) == ("lost", "")


@pytest.mark.parametrize(
    ("text", "kind", "code"),
    [
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "sxid", 20034),
        ("nvidia-nvswitch1 SXid (PCI:0000:06:00.0): 20009, Non-fatal, Link 04 RX Short Error Rate", "sxid", 20009),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0 Engine instance 28 Sub-engine instance 00", "detail", 28006),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Data {0x00140004, 0x00100000}", "detail", 28006),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): garbled, Fatal", "unparsed", 0),
        ("NVRM: Xid (PCI:0000:66:00): abc, pid=2280636", "unparsed", 0),
        ("NVRM: Xid (PCI:0000:66:00): 13abc", "unparsed", 0),
        ("NVRM: Xid (PCI:0000:66:00): 99999999999999999999", "unparsed", 0),
        ("NVRM: Xid 79", "unparsed", 0),
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0x1c:1436)", "init_failed", 0),
    ],
)
def test_other_lines_about_faults(text: str, kind: str, code: int) -> None:
    """Errors of switches count once, whatever details follow; what cannot be read is known as such."""
    line = parse_line(text)
    assert line is not None
    assert (line.kind, line.code) == (kind, code)


@pytest.mark.parametrize(
    ("text", "address", "uuid"),
    [
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05", "", ""),
        (f"gpu-reset: GPU reset executed: {UUID}, success: true", "", UUID),
        ("NVRM: GPU 0000:3b:00.0: reset completed", "00000000:3b:00.0", ""),
    ],
)
def test_resets(text: str, address: str, uuid: str) -> None:
    """A GPU that was reset, or a driver that was loaded, starts anew (row 13)."""
    line = parse_line(text)
    assert line is not None
    assert (line.kind, line.pci_bus_id, line.uuid) == ("reset", address, uuid)


def test_which_gpu_is_where() -> None:
    """The driver names the GPU at an address before its first XID."""
    expected = Line("identity", pci_bus_id="00000000:03:00.0", uuid=UUID)
    assert parse_line(f"NVRM: GPU at PCI:0000:03:00: {UUID}") == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "eth0: link up",
        "monitor[12]: saw NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED]",
        f"GPU reset executed: {UUID}, success: false",
        "usb 1-1: device has fallen off the bus",
    ],
)
def test_what_is_no_news_of_a_gpu(text: str) -> None:
    """A program that quotes an XID, a reset that failed and other devices are not taken for a GPU's fault."""
    assert parse_line(text) is None


def test_addresses_are_written_alike() -> None:
    """The kernel's short form and NVML's long one are the same GPU."""
    assert normalise_address("0000:3B:00") == normalise_address("00000000:3B:00.0") == "00000000:3b:00.0"


def test_record() -> None:
    """Number, time and text of a record; its keys are left out, its line breaks are real again."""
    record = parse_record(b"4,1234,5678901,-,caller=T1;NVRM: one\\x0aNVRM: two\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n")
    assert record is not None
    assert (record.sequence, record.seconds, record.text) == (1234, 5.678901, "NVRM: one\nNVRM: two")


@pytest.mark.parametrize("raw", [b"", b";", b"4,1;x", b"a,b,c;x", b"4,-1,2,-;x", b" SUBSYSTEM=pci", b"4,1,99999999999999999999999,-;x"])
def test_what_is_no_record(raw: bytes) -> None:
    """Garbage is no record."""
    assert parse_record(raw) is None


@given(st.binary(max_size=2000))
def test_no_bytes_are_too_strange(raw: bytes) -> None:
    """Whatever the kernel hands out, nothing is raised, and what comes of it is bounded."""
    record = parse_record(raw)
    for text in (
        raw.decode(errors="replace"),
        f"NVRM: Xid (PCI:0000:3b:00): 13, {raw.decode(errors='replace')}",
        record.text if record else "",
    ):
        line = parse_line(text)
        opens_lost_message(text)
        assert line is None or len(line.text) <= MAX_TEXT
