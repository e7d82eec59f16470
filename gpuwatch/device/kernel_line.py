"""What a record of the kernel log says about a GPU. Pure; takes any text and never raises.

Only lines that begin as the driver writes them count: a program that quotes an XID in its own message is not taken for the driver.
A line that an administrator writes to ``/dev/kmsg`` by hand counts, because that is how alert routing is tried out.
Source: the print formats of NVIDIA's open kernel module, and the lines of public reports.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["xid", "sxid", "reset", "lost", "init_failed", "identity", "detail", "unparsed"]
"""``lost``: fell off the bus, without an XID; ``identity``: only names the GPU at an address; ``detail``: more about the SXid before."""

MAX_TEXT: Final = 256
_MAX_RECORD_PARTS: Final = 4
_HEAD = r"(?:kernel: )?(?:\[ *\d+\.\d+\] ?)?"
_ADDRESS = r"(?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
_ANY_ADDRESS = re.compile(rf"(?<![0-9a-fA-F:]){_ADDRESS}")
_XID = re.compile(
    rf"{_HEAD}NVRM: Xid \({_ADDRESS}(?: GPU-I:(?P<instance>\d{{1,4}}))?(?: GPU-CI:\d{{1,4}})? ?\): "
    r"(?P<code>\d{1,4})(?![\w.])[,:]? ?(?P<rest>.*)",
    re.IGNORECASE,
)
_SXID = re.compile(rf"{_HEAD}nvidia-nvswitch\d+:? SXid \({_ADDRESS}\): (?P<code>\d{{1,5}})(?![\w.])[,:]? ?(?P<rest>.*)", re.IGNORECASE)
_XID_START = re.compile(rf"{_HEAD}(?:NVRM: Xid |nvidia-nvswitch\d+:? SXid )", re.IGNORECASE)
_PID = re.compile(r"pid=(?:'<[^>]*>'|\"[^\"]*\"|'?(?P<pid>\d{1,10})'?|[^,]*)(?:, |,|$)")
_SXID_DETAIL = re.compile(r"Severity \d|Data ?\{", re.IGNORECASE)
_NVRM = re.compile(rf"{_HEAD}NVRM: ", re.IGNORECASE)
_LOST = re.compile(r"fallen off the bus", re.IGNORECASE)
_LOST_BEGINS = re.compile(rf"{_HEAD}NVRM: The NVIDIA GPU {_ADDRESS}", re.IGNORECASE)
_INIT_FAILED = re.compile(r"RmInitAdapter failed", re.IGNORECASE)
_IDENTITY = re.compile(rf"{_HEAD}NVRM: GPU at {_ADDRESS}: (?P<uuid>GPU-[0-9a-fA-F-]{{36}})", re.IGNORECASE)
_LOADED = re.compile(rf"{_HEAD}NVRM: loading NVIDIA UNIX ", re.IGNORECASE)
_RESET_DONE = re.compile(r"\breset (?:is )?(?:complete|completed|done|successful|succeeded)\b", re.IGNORECASE)
_RESET_BY_TOOL = re.compile(r"(?:[\w.-]{1,64}: )?GPU reset executed: (?P<uuid>GPU-[0-9a-fA-F-]{36})(?P<rest>.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Line:
    """One message about a GPU or an NVSwitch."""

    kind: Kind
    code: int = 0
    pci_bus_id: str = ""
    uuid: str = ""
    text: str = ""
    pid: int | None = None
    gpu_instance: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One record of ``/dev/kmsg``: its number, its time in seconds of the kernel's clock, its text."""

    sequence: int
    seconds: float
    text: str


def normalise_address(pci: str) -> str:
    """The address as NVML writes it, in lower case, with eight digits of domain and the function: ``00000000:3b:00.0``."""
    domain, _, rest = pci.lower().partition(":")
    return f"{domain.zfill(8)}:{rest if '.' in rest else f'{rest}.0'}"


def parse_record(raw: bytes) -> Record | None:
    r"""The record, without its ``KEY=value`` lines, or ``None`` when it is none.

    Source: the kernel's ``Documentation/ABI/testing/dev-kmsg``. Line breaks within a message come as ``\x0a``.
    """
    head, found, text = raw.partition(b";")
    fields = head.split(b",")
    if not found or len(fields) < _MAX_RECORD_PARTS - 1 or not all(field.isdigit() and len(field) <= 20 for field in fields[:3]):  # noqa: PLR2004
        return None
    message = text.split(b"\n", 1)[0].decode(errors="replace")
    return Record(int(fields[1]), int(fields[2]) / 1e6, message.replace("\\x0a", "\n"))


def parse_line(text: str) -> Line | None:
    """What the message says, or ``None`` when it is not about a GPU. Of several lines in one message the first numbered one counts."""
    parts = text.split("\n")
    for part in parts:
        if (line := _parse_numbered(part)) is not None:
            return line
    if _NVRM.match(text) and (about := _parse_driver(text)) is not None:
        return about
    tool = _RESET_BY_TOOL.match(text)
    if tool is not None and "false" not in tool["rest"].lower():
        return Line("reset", uuid=_canonical(tool["uuid"]), text=_bounded(text))
    return None


def opens_lost_message(text: str) -> str:
    """Address of the GPU that a message of several records begins with, whose last says that it fell off the bus; else empty."""
    found = _LOST_BEGINS.match(text)
    return normalise_address(found["pci"]) if found else ""


def _parse_numbered(text: str) -> Line | None:
    if (found := _XID.match(text)) is not None:
        rest = found["rest"]
        process = _PID.match(rest)
        pid = int(process["pid"]) if process is not None and process["pid"] else None
        return Line(
            "xid",
            code=int(found["code"]),
            pci_bus_id=normalise_address(found["pci"]),
            text=_bounded(rest[process.end() :] if process is not None else rest),
            pid=pid,
            gpu_instance=int(found["instance"]) if found["instance"] else None,
        )
    if (found := _SXID.match(text)) is not None:
        kind: Kind = "detail" if _SXID_DETAIL.match(found["rest"]) else "sxid"
        return Line(kind, code=int(found["code"]), pci_bus_id=normalise_address(found["pci"]), text=_bounded(found["rest"]))
    return Line("unparsed", text=_bounded(text)) if _XID_START.match(text) else None


def _parse_driver(text: str) -> Line | None:
    """A message of the driver that carries no number."""
    if (identity := _IDENTITY.match(text)) is not None:
        return Line("identity", pci_bus_id=normalise_address(identity["pci"]), uuid=_canonical(identity["uuid"]))
    if _LOADED.match(text):
        return Line("reset", text=_bounded(text))
    address = _ANY_ADDRESS.search(text)
    pci = normalise_address(address["pci"]) if address else ""
    if _LOST.search(text):
        return Line("lost", code=79, pci_bus_id=pci, text=_bounded(text))
    if _INIT_FAILED.search(text):
        return Line("init_failed", pci_bus_id=pci, text=_bounded(text))
    if pci and _RESET_DONE.search(text):
        return Line("reset", pci_bus_id=pci, text=_bounded(text))
    return None


def _canonical(uuid: str) -> str:
    return f"GPU-{uuid[4:].lower()}"


def _bounded(text: str) -> str:
    """On one line, at most :data:`MAX_TEXT` characters."""
    return " ".join(text[: 2 * MAX_TEXT].split())[:MAX_TEXT]
