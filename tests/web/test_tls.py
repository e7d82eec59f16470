"""HTTPS, client certificates and their reload, over real handshakes."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import subprocess
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from certificates import Authority, Pair
from gpuwatch.server import ServerError
from gpuwatch.web.tls import names_of
from serving import Settings, ask, serving

if TYPE_CHECKING:
    from pathlib import Path

    from serving import Running

GCM = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


@pytest.fixture(name="authority")
def _authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def write(directory: Path, authority: Authority, extra: str = "") -> Settings:
    """A web configuration with a server certificate of ``authority``."""
    authority.issue("localhost")
    file = directory / "web.yml"
    file.write_text(f"tls_server_config:\n  cert_file: localhost.crt\n  key_file: localhost.key\n{extra}")
    return Settings(web_config_file=str(file))


def test_scrape_over_tls(tmp_path: Path, authority: Authority) -> None:
    """With a certificate the port speaks TLS and only TLS."""
    with serving(write(tmp_path, authority)) as running:
        assert running.get("/metrics", context=authority.trust()).status == 200
        with pytest.raises((http.client.BadStatusLine, ConnectionError)):
            running.get("/metrics")


def test_inline_certificate(tmp_path: Path, authority: Authority) -> None:
    """Certificate and key may stand in the file itself, so one secret is enough."""
    pair = authority.issue("localhost")
    indented = ["\n".join("    " + line for line in path.read_text().splitlines()) for path in (pair.cert, pair.key)]
    file = tmp_path / "web.yml"
    file.write_text(f"tls_server_config:\n  cert: |\n{indented[0]}\n  key: |\n{indented[1]}\n")
    with serving(Settings(web_config_file=str(file))) as running:
        assert running.get("/healthz", context=authority.trust()).status == 200


def test_versions_suites_and_curve_are_kept(tmp_path: Path, authority: Authority) -> None:
    """A client is held to the configured version and suite."""
    extra = f"  max_version: TLS12\n  cipher_suites: [{GCM}]\n  curve_preferences: [CurveP384]\n"
    with serving(write(tmp_path, authority, extra)) as running:
        with contextlib.closing(running.connect(authority.trust())) as client:
            client.connect()
            assert client.sock.version() == "TLSv1.2"
            assert client.sock.cipher()[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
        modern = authority.trust()
        modern.minimum_version = ssl.TLSVersion.TLSv1_3
        with pytest.raises(ssl.SSLError):
            running.get("/healthz", context=modern)


def test_only_modern_suites_mean_tls13(tmp_path: Path, authority: Authority) -> None:
    """A list without a suite of TLS 1.2 leaves TLS 1.3 alone."""
    with serving(write(tmp_path, authority, "  cipher_suites: [TLS_AES_256_GCM_SHA384]\n")) as running:
        old = authority.trust()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError):
            running.get("/healthz", context=old)
        assert running.get("/healthz", context=authority.trust()).status == 200


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("  cipher_suites: [RC4]\n", "tls_server_config.cipher_suites: 'RC4' is unknown; allowed: TLS_"),
        ("  max_version: TLS12\n  cipher_suites: [TLS_AES_128_GCM_SHA256]\n", "no suite of TLS 1.2 is listed"),
        ("  curve_preferences: [X448]\n", "tls_server_config.curve_preferences: 'X448' is unknown; allowed: CurveP256"),
        ("  curve_preferences: [X25519, CurveP256]\n", "only one curve can be set"),
        ("  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: none.crt\n", "none.crt: No such file"),
        ("  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: localhost.key\n", "expected PEM certificates"),
    ],
)
def test_unusable_tls_is_one_line(tmp_path: Path, authority: Authority, extra: str, message: str) -> None:
    """What OpenSSL cannot do or read stops the start with one line."""
    with pytest.raises(ServerError) as caught, serving(write(tmp_path, authority, extra)):
        pass
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unusable_key_is_one_line(tmp_path: Path, authority: Authority) -> None:
    """A key of another certificate, a locked key, no key, and a directory are each told apart."""
    settings = write(tmp_path, authority)
    key = tmp_path / "localhost.key"
    other = authority.issue("other").key.read_bytes()
    locked = authority.issue("locked", password=b"secret").key.read_bytes()
    for content, message in ((other, "key values mismatch"), (locked, "the key is encrypted"), (b"nothing", "expected a PEM chain")):
        key.write_bytes(content)
        with pytest.raises(ServerError, match=message), serving(settings):
            pass
    key.unlink()
    key.mkdir()
    with pytest.raises(ServerError, match="Is a directory"), serving(settings):
        pass


def client_rules(kind: str, more: str = "") -> str:
    """Keys that ask for client certificates of the same authority."""
    return f"  client_auth_type: {kind}\n  client_ca_file: authority.crt\n{more}"


def test_required_client_certificate(tmp_path: Path, authority: Authority) -> None:
    """Scrapes need a certificate; the kubelet's probes do not."""
    with serving(write(tmp_path, authority, client_rules("RequireAndVerifyClientCert"))) as running:
        stranger, known = authority.trust(), authority.trust(authority.issue("prometheus"))
        assert [running.get(path, context=stranger).status for path in ("/healthz", "/readyz", "/metrics", "/", "/nothing")] == [
            200,
            200,
            401,
            401,
            401,
        ]
        assert running.get("/metrics", context=known).status == 200
        assert handshake_fails(running, authority.trust(Authority(tmp_path / "far", "far").issue("prometheus")))


def test_required_client_certificate_for_probes_too(tmp_path: Path, authority: Authority) -> None:
    """With closed probes a client without a certificate gets no answer at all."""
    settings = write(tmp_path, authority, client_rules("RequireAndVerifyClientCert"))
    settings.probes_without_credentials = False
    with serving(settings) as running:
        assert handshake_fails(running, authority.trust())
        assert running.get("/healthz", context=authority.trust(authority.issue("prometheus"))).status == 200


def test_optional_client_certificate(tmp_path: Path, authority: Authority) -> None:
    """A certificate that is given must be sound; none is fine."""
    with serving(write(tmp_path, authority, client_rules("VerifyClientCertIfGiven"))) as running:
        assert running.get("/metrics", context=authority.trust()).status == 200
        assert running.get("/metrics", context=authority.trust(authority.issue("prometheus"))).status == 200
        assert handshake_fails(running, authority.trust(Authority(tmp_path / "far", "far").issue("prometheus")))


@pytest.mark.parametrize("name", ["prometheus", "spiffe://cluster/prometheus", "prometheus@example.org", "127.0.0.1", "fd00::7"])
def test_allowed_names(tmp_path: Path, authority: Authority, name: str) -> None:
    """Of the authority's clients only those with an allowed name, of any kind, get in."""
    rules = client_rules("RequireAndVerifyClientCert", f"  client_allowed_sans: ['{name}']\n")
    with serving(write(tmp_path, authority, rules)) as running:
        assert running.get("/metrics", context=authority.trust(authority.issue("prometheus"))).status == 200
        other = "other" if "prometheus" in name else None
        if other is not None:
            assert running.get("/metrics", context=authority.trust(authority.issue(other))).status == 403


def test_names_of_odd_certificates() -> None:
    """A certificate without names, or with unreadable ones, carries none."""
    assert names_of({}) == frozenset()
    assert names_of({"subjectAltName": (("IP Address", "<invalid>"), ("DirName", "x"))}) == frozenset()


def serial(running: Running, authority: Authority) -> str:
    """Serial number of the certificate that a new connection is shown."""
    with contextlib.closing(running.connect(authority.trust())) as client:
        client.connect()
        return str(client.sock.getpeercert()["serialNumber"])


def test_new_certificate_is_taken_without_a_restart(tmp_path: Path, authority: Authority) -> None:
    """A renewed certificate is shown to the next connection, and old connections end after their response."""
    with serving(write(tmp_path, authority)) as running, contextlib.closing(running.connect(authority.trust())) as old:
        assert ask(old, "/healthz").status == 200
        before = serial(running, authority)
        authority.issue("localhost")
        assert serial(running, authority) != before
        assert old.sock.recv(1) == b""


def test_swapped_secret_is_taken(tmp_path: Path, authority: Authority) -> None:
    """A mounted Kubernetes secret changes by one swapped link; that is seen."""
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        pair = authority.issue("localhost")
        (folder / "tls.crt").write_bytes(pair.cert.read_bytes())
        (folder / "tls.key").write_bytes(pair.key.read_bytes())
        (folder / "web.yml").write_text("tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n")
    (tmp_path / "current").symlink_to("one")
    with serving(Settings(web_config_file=str(tmp_path / "current" / "web.yml"))) as running:
        before = serial(running, authority)
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").replace(tmp_path / "current")
        assert serial(running, authority) != before


def test_half_written_certificate_keeps_the_old_one(tmp_path: Path, authority: Authority) -> None:
    """A certificate without its key changes nothing, is warned of once, and is taken when the key follows."""
    with capture_logs() as logs, serving(write(tmp_path, authority)) as running:
        before = serial(running, authority)
        key = (tmp_path / "localhost.key").read_bytes()
        renewed = authority.issue("localhost")
        new_key = renewed.key.read_bytes()
        renewed.key.write_bytes(key)
        assert [serial(running, authority) for _ in range(5)] == [before] * 5
        renewed.key.write_bytes(new_key)
        assert serial(running, authority) != before
    warnings = [entry for entry in logs if entry["log_level"] == "warning"]
    assert len(warnings) == 1
    assert "key values mismatch" in warnings[0]["reason"]


def test_new_authority_shuts_out_the_old_ones_clients(tmp_path: Path, authority: Authority) -> None:
    """After the client CA changed, a certificate of the old one no longer gets in."""
    with serving(write(tmp_path, authority, client_rules("RequireAndVerifyClientCert"))) as running:
        trust = authority.trust(authority.issue("prometheus"))
        assert running.get("/metrics", context=trust).status == 200
        successor = Authority(tmp_path / "next", "successor")
        (tmp_path / "authority.crt").write_bytes(successor.cert.read_bytes())
        assert handshake_fails(running, trust)
        trust.load_cert_chain(*pair_files(successor.issue("prometheus")))
        assert running.get("/metrics", context=trust).status == 200


def test_tls_is_not_switched_off_by_a_file(tmp_path: Path, authority: Authority) -> None:
    """A file that no longer asks for TLS, or is gone or empty, leaves TLS on and says why."""
    with capture_logs() as logs, serving(write(tmp_path, authority)) as running:
        file = tmp_path / "web.yml"
        for content in ("http_server_config: {http2: false}\n", "", "tls_server_config: {\n"):
            file.write_text(content)
            assert running.get("/healthz", context=authority.trust()).status == 200
        file.unlink()
        assert running.get("/healthz", context=authority.trust()).status == 200
    reasons = [entry["reason"] for entry in logs if entry["log_level"] == "warning"]
    assert ["restart" in reason for reason in reasons] == [True, False, False]
    assert "No such file" in reasons[-1]


def test_silent_handshakes_meet_the_deadline(tmp_path: Path, authority: Authority) -> None:
    """A client that never finishes its handshake is cut off like one that never finishes its header."""
    settings = write(tmp_path, authority)
    settings.header_timeout_seconds = 0.2
    with serving(settings) as running, running.raw() as client:
        client.sendall(b"\x16\x03\x01")
        assert client.recv(1) == b""


def test_handshake_crowd_costs_a_scrape_nothing(tmp_path: Path, authority: Authority) -> None:
    """200 connections stuck in their handshake are open, and a scrape is answered; the stop leaves none of them."""
    with serving(write(tmp_path, authority)) as running, contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(running.raw()).sendall(b"\x16")
        assert running.get("/metrics", context=authority.trust()).status == 200


def test_openssl_itself_agrees(tmp_path: Path, authority: Authority) -> None:
    """Another TLS stack front end completes a handshake and verifies the chain."""
    with serving(write(tmp_path, authority)) as running:
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{running.port}", "-CAfile", str(authority.cert), "-verify_return_error"]
        result = subprocess.run(command, input=b"", capture_output=True, timeout=60, check=False)
    assert b"Verify return code: 0 (ok)" in result.stdout


def pair_files(pair: Pair) -> tuple[Path, Path]:
    """Certificate and key."""
    return pair.cert, pair.key


def handshake_fails(running: Running, context: ssl.SSLContext) -> bool:
    """Whether the server ends the connection because of the client's certificate (TLS 1.3 says so only after the client's part)."""
    try:
        running.get("/healthz", context=context)
    except (OSError, http.client.HTTPException):
        return True
    return False
