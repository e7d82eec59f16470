"""Asking agents over real sockets and TLS: what answers, and what is said of those that do not."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import bcrypt
import pytest

from certificates import Authority
from gpuwatch.top.agents import Access, AccessError, NoAnswerError, Source, http_source, read_credentials, tls_context
from gpuwatch.top.watching import Watching, ask
from serving import Settings, serving

QUICK = Access(timeout_seconds=1.0)


@contextlib.contextmanager
def speaking(*parts: bytes, pause: threading.Event | None = None) -> Iterator[tuple[str, list[bytes]]]:
    """A server that says these parts to every client whatever it asks, waiting for ``pause`` before the last; and what it was asked."""
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client, contextlib.suppress(OSError):
                    heard.append(client.recv(65536))
                    for number, part in enumerate(parts):
                        if pause is not None and number == len(parts) - 1:
                            pause.wait(30)
                        client.sendall(part)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def problem(url: str, access: Access = QUICK) -> str:
    """Why this agent does not answer."""
    view = ask(http_source(url, access))
    assert view.rows == ()
    return view.problem


def answer(body: bytes, status: str = "200 OK", extra: str = "") -> bytes:
    """A whole HTTP answer."""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body


def test_agent_answers_by_any_form_of_its_address() -> None:
    """With and without a scheme, with a path, with a slash at the end."""
    with serving() as running:
        for url in (running.url, f"127.0.0.1:{running.port}", f"http://localhost:{running.port}"):
            assert ask(http_source(url, QUICK)).node == "gpu-node-1"
    with speaking(answer(b'{"gpus": []}')) as (url, heard):
        assert problem(f"{url}/api/v1/namespaces/x/pods/y:9838/proxy/") == ""
    assert heard[0].startswith(b"GET /api/v1/namespaces/x/pods/y:9838/proxy/api/v1/snapshot HTTP/1.1\r\n")


def test_silence_and_nonsense_have_their_words() -> None:
    """Nobody there, no answer in time, another server, an answer without end: each is one line."""
    assert problem("http://127.0.0.1:1") == "connection refused"
    assert problem("http://nowhere.invalid")
    with speaking(answer(b"no", "404 Not Found")) as (url, _):
        assert problem(url) == "it answers with 404: there is no gpuwatch agent at this address"
    with speaking(b"SSH-2.0-OpenSSH\r\n") as (url, _):
        assert problem(url).startswith("it does not speak HTTP")
    with speaking(answer(b"<html>")) as (url, _):
        assert problem(url) == "what it sends is no JSON: is this a gpuwatch agent?"
    with speaking(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort") as (url, _):
        assert problem(url)
    with speaking(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * (17 << 20)) as (url, _):
        assert "more than 16 MiB" in problem(url)
    for part in (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"):
        pause = threading.Event()
        with speaking(part, b"late", pause=pause) as (url, _):
            assert problem(url) == "no answer within 1 s"
            pause.set()


def test_password_goes_nowhere_else() -> None:
    """A redirect is not followed: the credentials stay with the agent that was named."""
    with speaking(answer(b"")) as (other, heard), speaking(answer(b"", "302 Found", f"Location: {other}/\r\n")) as (url, asked):
        assert problem(url, Access(credentials="me:secret", timeout_seconds=5.0)) == "it answers with 302"
    assert base64.b64encode(b"me:secret") in asked[0]
    assert heard == []


def test_users_and_client_certificates(tmp_path: Path) -> None:
    """An agent with TLS, a user and client certificates answers him who has all three; else it is told what is missing."""
    authority = Authority(tmp_path)
    authority.issue("localhost")
    client = authority.issue("client")
    word = bcrypt.hashpw(b"sec:ret", bcrypt.gensalt(4)).decode()
    (tmp_path / "web.yml").write_text(
        "tls_server_config: {cert_file: localhost.crt, key_file: localhost.key, client_ca_file: authority.crt, "
        f"client_auth_type: RequireAndVerifyClientCert}}\nbasic_auth_users: {{me: {word}}}\n"
    )
    (tmp_path / "auth").write_text("me:sec:ret\n")
    shown = tls_context(ca=authority.cert, cert=client.cert, key=client.key)
    credentials = read_credentials(tmp_path / "auth")
    with serving(Settings(web_config_file=str(tmp_path / "web.yml"))) as running:
        url = f"https://localhost:{running.port}"
        assert ask(http_source(url, Access(context=shown, credentials=credentials))).node == "gpu-node-1"
        assert "it asks for a user and a password (--auth-file)" in problem(url, Access(context=shown))
        assert "401" in problem(url, Access(context=shown, credentials="me:wrong"))
        assert "401" in problem(url, Access(context=tls_context(ca=authority.cert, cert=None, key=None), credentials=credentials))
        assert problem(url, Access()).startswith("its certificate is not accepted: ")
        assert problem(f"http://localhost:{running.port}")


@pytest.mark.parametrize("text", ["", "\n", "me\n", ":secret\n"])
def test_credentials_of_another_form_are_refused_without_telling_them(tmp_path: Path, text: str) -> None:
    """The file is named, never what is in it."""
    path = tmp_path / "auth"
    path.write_text(text)
    with pytest.raises(AccessError, match=r"auth: expected USER:PASSWORD$"):
        read_credentials(path)


def test_key_with_a_passphrase_is_refused_not_asked_for(tmp_path: Path) -> None:
    """A question on the terminal would hang a script."""
    client = Authority(tmp_path).issue("client", password=b"x")
    with pytest.raises(AccessError, match=r"--cert .*without a passphrase"):
        tls_context(ca=None, cert=client.cert, key=client.key)


def raising(problem: str) -> Callable[[], bytes]:
    """A source that does not answer."""

    def fetch() -> bytes:
        raise NoAnswerError(problem)

    return fetch


def test_one_that_hangs_holds_nobody_up() -> None:
    """The others are shown at once; the one that hangs is told of when its time is over, also where only one answer is wanted."""
    release, now = threading.Event(), [0.0]

    def hang() -> bytes:
        release.wait(30)
        return b'{"gpus": [], "node": "slow"}'

    sources = [Source("a", lambda: b'{"gpus": [], "node": "a"}'), Source("slow", hang), Source("dead", raising("why not"))]
    watching = Watching(sources, interval_seconds=100.0, timeout_seconds=5.0, monotonic=lambda: now[0])
    watching.start()
    for seat in (watching._seats[0], watching._seats[2]):
        while seat.waiting:
            threading.Event().wait(0.01)
    assert [(view.source, view.problem) for view in watching.views()] == [("a", ""), ("dead", "why not")]
    now[0] = 8.0
    assert [view.problem for view in watching.views()] == ["", "no answer for 8 s", "why not"]
    release.set()
    while watching._seats[1].waiting:
        threading.Event().wait(0.01)
    assert [view.node for view in watching.views()] == ["a", "slow", ""]
    watching.stop()
    for seat in watching._seats:
        assert seat.thread is not None
        seat.thread.join(30)
        assert not seat.thread.is_alive()
