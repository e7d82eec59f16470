"""Passwords: who gets in, what a refusal looks like, and that neither holds anybody up."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from typing import TYPE_CHECKING

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from gpuwatch.web import credentials
from gpuwatch.web.credentials import BusyError, Credentials
from gpuwatch.web.gate import Bucket
from serving import Settings, serving

if TYPE_CHECKING:
    from pathlib import Path


def stored(password: str) -> str:
    """The cheapest bcrypt hash of a password."""
    return bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(4)).decode()


USERS = {"alice": stored("rabbit"), "bøb": stored("pässword:with:colons"), "long": stored("x" * 100)}


def header(user: str, password: str) -> str:
    """An Authorization header."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def accept(value: bytes, users: dict[str, str] | None = None) -> bool:
    """One check with a checker of its own."""

    async def check() -> bool:
        checker = Credentials()
        try:
            return await checker.accept(value, USERS if users is None else users)
        finally:
            checker.close()

    return asyncio.run(check())


@pytest.mark.parametrize(
    ("user", "password", "good"),
    [
        ("alice", "rabbit", True),
        ("alice", "Rabbit", False),
        ("alice", "", False),
        ("alice", "rabbit\0", False),
        ("nobody", "rabbit", False),
        ("", "", False),
        ("bøb", "pässword:with:colons", True),
        ("long", "x" * 100, True),
    ],
)
def test_only_the_right_password_gets_in(user: str, password: str, good: bool) -> None:
    """A user gets in with their own password and nothing else."""
    assert accept(header(user, password).encode()) is good


@pytest.mark.parametrize("value", ["", "Basic", "Basic !!!", "Basic YWxpY2U=", "Bearer x", "basic " + header("alice", "x")[6:]])
def test_malformed_headers_are_refused(value: str) -> None:
    """What is no Basic header is a refusal, not an error."""
    assert accept(value.encode()) is False


@given(st.binary(max_size=200))
def test_any_header_is_refused(value: bytes) -> None:
    """No header but the right one gets in or raises."""
    assert accept(b"Basic " + value, {"alice": USERS["alice"]}) is False


def test_scheme_is_not_case_sensitive() -> None:
    """``basic`` is ``Basic``."""
    assert accept(header("alice", "rabbit").replace("Basic", "bAsIc").encode())


def test_memory_of_verdicts_is_bounded_and_keeps_the_good() -> None:
    """Guesses neither fill the memory nor push out the password that is in use."""

    async def guess() -> tuple[int, bool]:
        checker = Credentials()
        await checker.accept(header("alice", "rabbit").encode(), USERS)
        for number in range(credentials.MAX_REMEMBERED + 20):
            await checker.accept(header("alice", f"guess {number}").encode(), USERS)
        remembered = dict(checker._verdicts)
        checker.close()
        return len(remembered), any(remembered.values())

    assert asyncio.run(guess()) == (credentials.MAX_REMEMBERED, True)


def test_changed_password_is_forgotten() -> None:
    """A remembered success does not outlive the hash it was checked against."""

    async def change() -> list[bool]:
        checker = Credentials()
        value = header("alice", "rabbit").encode()
        verdicts = [await checker.accept(value, users) for users in (USERS, {"alice": stored("hare")}, {}, USERS)]
        checker.close()
        return verdicts

    assert asyncio.run(change()) == [True, False, False, True]


def test_flood_of_guesses_is_turned_away() -> None:
    """More guesses than the queue holds are refused at once, and the queue drains."""

    async def flood() -> tuple[int, bool]:
        checker = Credentials()
        guesses = [checker.accept(header("alice", str(number)).encode(), USERS) for number in range(credentials.MAX_WAITING + 10)]
        results = await asyncio.gather(*guesses, return_exceptions=True)
        after = await checker.accept(header("alice", "rabbit").encode(), USERS)
        checker.close()
        return sum(isinstance(result, BusyError) for result in results), after

    assert asyncio.run(flood()) == (10, True)


def write(directory: Path, text: str) -> Settings:
    """A web configuration file and the settings that name it."""
    file = directory / "web.yml"
    file.write_text(text)
    return Settings(web_config_file=str(file))


def users_text(**passwords: str) -> str:
    """A web configuration with these users."""
    return "basic_auth_users:\n" + "".join(f"  {user}: {stored(password)}\n" for user, password in passwords.items())


def test_pages_need_a_password_and_probes_do_not(tmp_path: Path) -> None:
    """With users every page asks for a password; the kubelet's probes stay open."""
    with serving(write(tmp_path, users_text(alice="rabbit"))) as running:
        refused = running.get("/metrics")
        paths = ("/healthz", "/readyz", "/", "/api/v1/snapshot", "/nothing")
        assert [running.get(path).status for path in paths] == [200, 200, 401, 401, 401]
        assert running.get("/metrics", Authorization=header("alice", "rabbit")).status == 200
        assert running.get("/metrics", Authorization=header("alice", "wrong")).status == 401
    assert refused.status == 401
    assert refused.headers["WWW-Authenticate"].startswith("Basic realm=")


def test_probes_can_be_closed(tmp_path: Path) -> None:
    """Where probes are not open they need the password too."""
    settings = write(tmp_path, users_text(alice="rabbit"))
    settings.probes_without_credentials = False
    with serving(settings) as running:
        assert running.get("/healthz").status == 401
        assert running.get("/healthz", Authorization=header("alice", "rabbit")).status == 200


def test_users_change_at_once(tmp_path: Path) -> None:
    """A changed file counts from the next request; a broken one leaves the old users and is warned of once."""
    with capture_logs() as logs, serving(write(tmp_path, users_text(alice="rabbit"))) as running:
        file = tmp_path / "web.yml"
        assert running.get("/metrics", Authorization=header("alice", "rabbit")).status == 200
        file.write_text(users_text(bob="hare"))
        assert running.get("/metrics", Authorization=header("alice", "rabbit")).status == 401
        assert running.get("/metrics", Authorization=header("bob", "hare")).status == 200
        file.write_text("basic_auth_users: {bob: plain}")
        assert [running.get("/metrics", Authorization=header("bob", "hare")).status for _ in range(3)] == [200] * 3
        file.write_text("")
        assert running.get("/metrics").status == 401
    assert [entry["log_level"] for entry in logs if entry["log_level"] == "warning"] == ["warning"] * 2


def test_stop_does_not_wait_for_passwords(tmp_path: Path) -> None:
    """A server that is told to stop while passwords wait to be checked leaves nothing behind."""
    users = "basic_auth_users:\n  alice: " + bcrypt.hashpw(b"rabbit", bcrypt.gensalt(12)).decode()
    with contextlib.ExitStack() as clients, serving(write(tmp_path, users)) as running:
        for number in range(10):
            guess = f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: {header('alice', str(number))}\r\n\r\n"
            clients.enter_context(running.raw()).sendall(guess.encode())
        assert running.get("/healthz").status == 200


def test_configured_headers_are_sent(tmp_path: Path) -> None:
    """Headers of the web configuration are on every answer and win over ours; a blank one is not set."""
    headers = "{X-Frame-Options: deny, Content-Security-Policy: default-src 'self', X-XSS-Protection: }"
    text = f"http_server_config:\n  headers: {headers}\n"
    with serving(write(tmp_path, text)) as running:
        for path in ("/", "/metrics", "/nothing"):
            answer = running.get(path)
            assert answer.headers["X-Frame-Options"] == "deny"
            assert answer.headers.get_all("Content-Security-Policy") == ["default-src 'self'"]
            assert "X-XSS-Protection" not in answer.headers


def test_rate_limit_spares_the_probes(tmp_path: Path) -> None:
    """Beyond the burst requests are 429, but the kubelet is always answered."""
    with serving(write(tmp_path, "rate_limit: {interval: 1h, burst: 2}")) as running:
        assert [running.get("/metrics").status for _ in range(4)] == [200, 200, 429, 429]
        assert running.get("/healthz").status == 200


@given(st.lists(st.floats(0, 10), max_size=50), st.floats(0.01, 5), st.integers(1, 20))
def test_bucket_never_gives_more_than_it_gains(waits: list[float], interval: float, burst: int) -> None:
    """Over any run of requests no more pass than the burst and what time has added."""
    bucket, now, passed = Bucket(), 100.0, 0
    for wait in waits:
        now += wait
        passed += bucket.take(now, interval_seconds=interval, burst=burst)
    assert passed <= burst + (now - 100.0) / interval + 1e-6
