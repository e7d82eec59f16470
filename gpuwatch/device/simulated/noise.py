"""Noise without randomness: the same second of the same GPU always reads the same, in any process."""

from __future__ import annotations

import hashlib
import uuid
from math import floor

_MASK = 0xFFFFFFFFFFFFFFFF


def noise(key: int, t: float) -> float:
    """A value in -1..1 that holds for one second. Seconds come in pairs of opposite sign, so that it integrates to zero."""
    second = floor(t)
    sign = 1.0 if second % 2 == 0 else -1.0
    return sign * _scatter(key, second // 2)


def noise_integral(key: int, t: float) -> float:
    """Integral of :func:`noise` from 0 to ``t``: between -1 and 1 for ever, exact, at constant cost."""
    second = floor(t)
    held = _scatter(key, second // 2)
    within = t - second
    return held * within if second % 2 == 0 else held * (1.0 - within)


def stable_key(text: str) -> int:
    """64-bit number of a name."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def stable_uuid(text: str) -> str:
    """UUID of a name, in the form NVML prints after ``GPU-`` and ``MIG-``."""
    return str(uuid.UUID(bytes=hashlib.blake2b(text.encode(), digest_size=16).digest(), version=4))


def _scatter(key: int, number: int) -> float:
    """A value in -1..1 by splitmix64, which is enough to look like noise."""
    mixed = (key + number * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((mixed ^ (mixed >> 31)) / _MASK) * 2.0 - 1.0
