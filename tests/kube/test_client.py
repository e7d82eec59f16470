"""The API server as a transport: credentials, limits, and errors that a person can act on."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certificates import Authority
from gpuwatch import __version__
from gpuwatch.kube import client
from gpuwatch.kube.client import ApiError, ApiServer, api_server, by_kubeconfig, in_cluster
from kube.apiserver import PODS, ScriptedServer, body, chunks, hang, reached, server_tls, status


class Account:
    """A service account as the kubelet mounts it: files behind a link that is swapped."""

    def __init__(self, directory: Path, ca: Path, token: str) -> None:
        self.directory = directory
        self._ca = ca
        directory.mkdir()
        for name in ("token", "ca.crt"):
            (directory / name).symlink_to(Path("..data") / name)
        self.rotate(token)

    def rotate(self, token: str, ca: Path | None = None) -> None:
        """What the kubelet does."""
        made = self.directory / f"..{token.strip() or 'none'}"
        made.mkdir()
        (made / "token").write_text(token)
        (made / "ca.crt").write_bytes((ca or self._ca).read_bytes())
        (self.directory / "..new").symlink_to(made.name)
        (self.directory / "..new").replace(self.directory / "..data")


@contextmanager
def of_account(server: ScriptedServer, account: Account) -> Iterator[ApiServer]:
    """The server as a container reaches it."""
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.server_address[1])}
    api = in_cluster("node-a", token_file=account.directory / "token", ca_file=account.directory / "ca.crt", environment=environment)
    try:
        yield api
    finally:
        api.close()


def failure_of(api: ApiServer, path: str = PODS) -> ApiError:
    """The error of a get."""
    with pytest.raises(ApiError) as caught:
        api.get(path, {})
    assert caught.value.fault in client.FAULTS
    return caught.value


def test_container_is_known_by_its_token_over_tls(tmp_path: Path) -> None:
    """In a container the service account's token and authority are used, and the User-Agent tells program, version and node."""
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("api")
    with ScriptedServer(server_tls(pair.cert, pair.key)) as server:
        server.token = "first"
        with of_account(server, Account(tmp_path / "account", authority.cert, "first\n")) as api:
            assert b'"items"' in api.get(PODS, {})
        assert server.requests[0].user_agent == f"gpuwatch/{__version__} (node-a)"


def test_rotated_token_is_believed_at_once(tmp_path: Path) -> None:
    """A 401 after a swap of the mounted token costs one more request, not a minute and not an error; a revoked one is asked with once."""
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("api")
    with ScriptedServer(server_tls(pair.cert, pair.key)) as server:
        server.token = "first"
        account = Account(tmp_path / "account", authority.cert, "first")
        with of_account(server, account) as api:
            api.get(PODS, {})
            server.token = "second"
            account.rotate("second")
            assert b'"items"' in api.get(PODS, {})
            assert len(server.requests) == 3
            server.token = "third"
            assert failure_of(api).fault == "unauthorized"
            assert len(server.requests) == 5


def test_new_authority_is_believed_after_one_failure(tmp_path: Path) -> None:
    """A certificate of an unknown authority is a TLS error, never believed; the authority's file is read anew for the next request."""
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    pair = new.issue("api")
    with ScriptedServer(server_tls(pair.cert, pair.key)) as server:
        account = Account(tmp_path / "account", old.cert, "one")
        with of_account(server, account) as api:
            assert failure_of(api).fault == "tls"
            account.rotate("two", ca=new.cert)
            assert b'"items"' in api.get(PODS, {})


def test_empty_token_is_no_credential(tmp_path: Path) -> None:
    """A token file that is empty or gone is told as such, and mended without a restart."""
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("api")
    with ScriptedServer(server_tls(pair.cert, pair.key)) as server:
        account = Account(tmp_path / "account", authority.cert, "")
        with of_account(server, account) as api:
            assert failure_of(api).fault == "no_configuration"
            account.rotate("good")
            assert b'"items"' in api.get(PODS, {})


def test_illegal_token_is_not_shown(tmp_path: Path) -> None:
    """A token that makes no legal header is refused without being printed."""
    with ScriptedServer() as server, reached(server, tmp_path, token="sec\nret") as api:
        error = failure_of(api)
    assert error.fault == "no_configuration"
    assert "sec" not in str(error)


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (400, "refused"),
        (401, "unauthorized"),
        (403, "forbidden"),
        (404, "not_found"),
        (410, "expired"),
        (429, "throttled"),
        (500, "server_error"),
    ],
)
def test_status_has_a_fault(tmp_path: Path, code: int, fault: str) -> None:
    """Each refusal has its token, its status and the server's own sentence on one line."""
    with ScriptedServer() as server, reached(server, tmp_path) as api:
        server.script("list", *[status(code, "no\nand no", Retry_After="7")] * 2)
        error = failure_of(api)
    assert (error.status, error.fault, error.reason, error.retry_after) == (code, fault, "no and no", 7.0)


def test_silence_is_a_timeout(tmp_path: Path) -> None:
    """A server that hangs ends the request after the read limit, also in the midst of a stream."""
    with ScriptedServer() as server, reached(server, tmp_path, read_seconds=0.1) as api:
        server.script("list", hang)
        assert failure_of(api).fault == "timeout"
        server.held = True
        with pytest.raises(ApiError) as caught:
            list(api.stream(PODS, {"watch": "1", "resourceVersion": "100"}, 0.1))
    assert caught.value.fault == "timeout"


def test_half_open_connections_are_noticed(tmp_path: Path) -> None:
    """The kernel probes a silent connection after 30 s, three times, 15 s apart; a finished answer leaves its connection for the next."""
    with ScriptedServer() as server, reached(server, tmp_path) as api:
        api.get(PODS, {})
        pool = api._client.rest_client.pool_manager.connection_from_url(server.url)
        api.get(PODS, {})
        assert pool.num_connections == 1
        kept = pool.pool.get().sock
        assert kept.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [kept.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [30, 15, 3]
        kept.close()


def test_refused_connection_is_unreachable(tmp_path: Path) -> None:
    """Nobody listening is told without object addresses, so that it reads the same each time."""
    with ScriptedServer() as server, reached(server, tmp_path) as api:
        pass
    first, second = failure_of(api), failure_of(api)
    assert first.fault == "unreachable"
    assert str(first) == str(second)
    assert "0x" not in str(first)
    api.close()


def test_missing_configuration_is_told(tmp_path: Path) -> None:
    """Without service account and kubeconfig the fault says so, and so does a kubeconfig that is no YAML mapping."""
    assert failure_of(by_kubeconfig("node-a", tmp_path / "none")).fault == "no_configuration"
    (tmp_path / "junk").write_text("- 1\n")
    assert failure_of(by_kubeconfig("node-a", tmp_path / "junk")).fault == "no_configuration"
    assert failure_of(api_server("node-a", {"KUBECONFIG": str(tmp_path / "none")})).fault == "no_configuration"


def test_cut_body_is_closed(tmp_path: Path) -> None:
    """An answer that breaks off is never taken for whole."""
    with ScriptedServer() as server, reached(server, tmp_path) as api:
        server.script("list", chunks([b'{"items": ['], cut=True))
        assert failure_of(api).fault == "closed"


def test_five_megabytes_are_no_matter(tmp_path: Path) -> None:
    """A large answer comes whole."""
    with ScriptedServer() as server, reached(server, tmp_path) as api:
        server.script("list", body(b"x" * (5 << 20)))
        assert len(api.get(PODS, {})) == 5 << 20


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ScriptedServer, ApiServer]]:
    """One server for many examples."""
    with ScriptedServer() as server, reached(server, tmp_path_factory.mktemp("shared")) as api:
        yield server, api


@given(st.lists(st.text(alphabet="aé€😀{}", max_size=20), max_size=6), st.data())
def test_lines_survive_any_chunk_borders(shared: tuple[ScriptedServer, ApiServer], texts: list[str], data: st.DataObject) -> None:
    """Lines are the same wherever the chunks end, also inside a character; an unfinished last line is left out."""
    whole = b"".join(text.encode() + b"\n" for text in texts) + b"half"
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=8)))
    parts = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    server, api = shared
    server.script("watch", chunks(parts))
    assert list(api.stream(PODS, {"watch": "1"}, 5.0)) == [text.encode() for text in texts]


def test_client_is_not_imported_before_it_is_needed() -> None:
    """Who switches Kubernetes off does not pay for its client."""
    program = "import sys, gpuwatch.kube.pods, gpuwatch.kube.slices; sys.exit('kubernetes' in sys.modules or 'urllib3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
