"""Basic authentication against bcrypt hashes, without ever holding up the event loop.

A bcrypt check takes tens of milliseconds by design. It runs in a thread of its own pool, a success is remembered, and the queue before
it is short, so a flood of wrong passwords costs its senders an error and leaves everybody else's scrape alone.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import os
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import bcrypt

MAX_REMEMBERED = 256
MAX_WAITING = 32
_BCRYPT_BYTES = 72
"""bcrypt reads no further; longer passwords are cut as ``htpasswd`` cuts them."""


class BusyError(RuntimeError):
    """Too many passwords wait to be checked; the request may be sent again later."""


class Credentials:
    """Checks ``Authorization`` headers. Owned by the event loop; only bcrypt itself runs in other threads."""

    def __init__(self) -> None:
        self._secret = os.urandom(32)
        self._verdicts: OrderedDict[bytes, bool] = OrderedDict()
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bcrypt")
        self._waiting = 0

    async def accept(self, header: bytes, users: Mapping[str, str]) -> bool:
        """Whether the header carries a user of ``users`` (name → bcrypt hash) and their password.

        An unknown user costs one bcrypt check like a known one, so the time of an answer does not tell which names exist.

        Raises:
            BusyError: the queue of checks is full.
        """
        pair = _parse(header)
        if pair is None or not users:
            return False
        user, password = pair
        stored = users.get(user.decode("utf-8", errors="replace"))
        hashed = (stored or _decoy(users)).encode()
        # The stored hash is part of the key: a changed password forgets the old verdict at once.
        key = self._digest(user, hashed, password)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = await self._check(password, hashed)
            self._remember(key, verdict)
        else:
            self._verdicts.move_to_end(key)
        return verdict and stored is not None

    def close(self) -> None:
        """Stop the thread; a check under way is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _check(self, password: bytes, hashed: bytes) -> bool:
        if self._waiting >= MAX_WAITING:
            raise BusyError(f"{self._waiting} passwords wait to be checked")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, _matches, password, hashed)
        finally:
            self._waiting -= 1

    def _digest(self, *parts: bytes) -> bytes:
        framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._secret, framed, "sha256")

    def _remember(self, key: bytes, verdict: bool) -> None:
        self._verdicts[key] = verdict
        while len(self._verdicts) > MAX_REMEMBERED:
            # Refusals go first: guesses must not push out the scraper's own password.
            refused = next((old for old, good in self._verdicts.items() if not good), None)
            self._verdicts.pop(refused if refused is not None else next(iter(self._verdicts)))


def _parse(header: bytes) -> tuple[bytes, bytes] | None:
    scheme, _, token = header.strip().partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        user, colon, password = base64.b64decode(token.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None


def _decoy(users: Mapping[str, str]) -> str:
    """The dearest stored hash: what an unknown name is checked against, with the answer thrown away."""
    return max(users.values(), key=lambda stored: stored.split("$")[2])


def _matches(password: bytes, hashed: bytes) -> bool:
    try:
        return bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed)
    except ValueError:
        # bcrypt refuses NUL bytes: no stored password holds one.
        return False
