"""Makes a PNG of few colours small: a palette of 256 in place of three bytes a pixel."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = 256
_CHANNELS = {2: 3, 6: 4}
"""By the colour type of the file: RGB, and RGB with alpha."""


def shrink(path: Path) -> None:
    """Write the picture anew, each pixel in the nearest of its most frequent colours.

    Raises:
        ValueError: it is no PNG of eight bits with three or four channels.
    """
    chunks = list(_chunks(path.read_bytes()))
    width, height, depth, kind, *_ = struct.unpack(">IIBBBBB", chunks[0][1])
    if depth != 8 or kind not in _CHANNELS:  # noqa: PLR2004
        raise ValueError(f"{path}: depth {depth} and colour type {kind}; expected 8 and 2 or 6")
    channels = _CHANNELS[kind]
    raw = zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT"))
    rows = [[bytes(line[at : at + 3]) for at in range(0, len(line), channels)] for line in _lines(raw, width * channels, channels)]
    found = Counter(pixel for row in rows for pixel in row)
    palette = [colour for colour, _ in found.most_common(_COLOURS)]
    places = {colour: _nearest(colour, palette) for colour in found}
    packed = zlib.compress(b"".join(b"\0" + bytes(places[pixel] for pixel in row) for row in rows), 9)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", header), (b"PLTE", b"".join(palette)), (b"IDAT", packed), (b"IEND", b""))
    path.write_bytes(_SIGNATURE + b"".join(_chunk(name, body) for name, body in parts))


def _nearest(colour: bytes, palette: list[bytes]) -> int:
    return min(range(len(palette)), key=lambda place: sum((one - other) ** 2 for one, other in zip(colour, palette[place], strict=True)))


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        at += size + 12


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _lines(raw: bytes, size: int, step: int) -> Iterator[bytearray]:
    """The lines without the filters of the format, by which a byte is told from those beside and above it."""
    above = bytearray(size)
    for start in range(0, len(raw), size + 1):
        kind, line = raw[start], bytearray(raw[start + 1 : start + 1 + size])
        if kind:
            for at in range(size):
                left, corner = (line[at - step], above[at - step]) if at >= step else (0, 0)
                line[at] = (line[at] + _told(kind, left, above[at], corner)) & 0xFF
        above = line
        yield line


def _told(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 1:
        return left
    if kind == 2:  # noqa: PLR2004
        return up
    if kind == 3:  # noqa: PLR2004
        return (left + up) // 2
    guess = left + up - corner
    return min((left, up, corner), key=lambda one: abs(guess - one))
