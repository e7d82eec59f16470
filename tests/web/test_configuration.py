"""The web configuration file: what is taken, what is refused, and in which words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.web.configuration import Http, RateLimit, Tls, WebConfig, WebConfigError, parse_web_config, read_web_config

HERE = Path("/etc/gpuwatch")
HASH = "$2y$10$" + "a" * 53
TLS = "tls_server_config:\n  cert_file: tls.crt\n  key_file: tls.key\n"


def test_everything_at_once() -> None:
    """Every key that can be served is read, and paths start at the file's directory."""
    text = TLS + (
        "  client_ca_file: /abs/ca.crt\n  client_auth_type: RequireAndVerifyClientCert\n  client_allowed_sans: [prometheus]\n"
        "  min_version: TLS13\n  max_version: TLS13\n  cipher_suites: [TLS_AES_128_GCM_SHA256]\n"
        "  prefer_server_cipher_suites: false\n  curve_preferences: [X25519]\n"
        "http_server_config:\n  http2: false\n  headers:\n    X-Frame-Options: deny\n    Strict-Transport-Security: max-age=1\n"
        f"basic_auth_users:\n  alice: {HASH}\n  007: {HASH}\nrate_limit:\n  interval: 1m30s\n  burst: 20\n"
    )
    config = parse_web_config(text, HERE)
    assert config == WebConfig(
        tls_server_config=Tls(
            cert_file="/etc/gpuwatch/tls.crt",
            key_file="/etc/gpuwatch/tls.key",
            client_ca_file="/abs/ca.crt",
            client_auth_type="RequireAndVerifyClientCert",
            client_allowed_sans=("prometheus",),
            min_version="TLS13",
            cipher_suites=("TLS_AES_128_GCM_SHA256",),
            prefer_server_cipher_suites=False,
            curve_preferences=("X25519",),
        ),
        http_server_config=Http(http2=False, headers={"X-Frame-Options": "deny", "Strict-Transport-Security": "max-age=1"}),
        basic_auth_users={"alice": HASH, "007": HASH},
        rate_limit=RateLimit(interval="1m30s", burst=20),
    )
    assert config.rate_limit.interval_seconds == 90.0
    assert config.files == (Path("/etc/gpuwatch/tls.crt"), Path("/etc/gpuwatch/tls.key"), Path("/abs/ca.crt"))


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "{}", "tls_server_config:\n", "tls_server_config: {}\nbasic_auth_users:\n", "rate_limit: {interval: 0}"]
)
def test_empty_means_plain_http(text: str) -> None:
    """A file without content asks for no TLS and no users."""
    config = parse_web_config(text, HERE)
    assert not config.tls_server_config.enabled
    assert not config.basic_auth_users


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "file: expected a mapping with the keys tls_server_config, http_server_config, basic_auth_users, rate_limit"),
        ("[1]", "file: expected a mapping"),
        ("tls: {}", "tls: unknown key; allowed: tls_server_config, http_server_config, basic_auth_users, rate_limit"),
        ("tls_server_config: {certfile: x}", "tls_server_config.certfile: unknown key; allowed: cert, key, client_ca, cert_file"),
        ("tls_server_config: []", "tls_server_config: expected a mapping"),
        ("tls_server_config: {cert_file: x}", "tls_server_config.key_file: missing"),
        ("tls_server_config: {key_file: x}", "tls_server_config.cert_file: missing"),
        (TLS + "  cert: inline\n", "tls_server_config.cert: given both inline and as cert_file"),
        (TLS + "  min_version: TLS10\n", "tls_server_config.min_version: 'TLS10' is not offered; allowed: TLS12, TLS13"),
        (TLS + "  min_version: TLS13\n  max_version: TLS12\n", "tls_server_config.min_version: TLS13 is above max_version TLS12"),
        (TLS + "  client_auth_type: Maybe\n", "tls_server_config.client_auth_type: 'Maybe' is unknown; allowed: NoClientCert"),
        (TLS + "  client_auth_type: RequireAnyClientCert\n", "takes certificates that nobody has checked"),
        (TLS + "  client_auth_type: RequireAndVerifyClientCert\n", "tls_server_config.client_ca_file: missing"),
        (TLS + "  client_ca_file: ca.crt\n", "tls_server_config.client_auth_type: missing or NoClientCert, but a client CA is given"),
        (TLS + "  client_allowed_sans: [a]\n", "tls_server_config.client_allowed_sans: needs client_auth_type"),
        (TLS + "  prefer_server_cipher_suites: maybe\n", "tls_server_config.prefer_server_cipher_suites: "),
        (TLS + "  cipher_suites: TLS_AES_128_GCM_SHA256\n", "tls_server_config.cipher_suites: "),
        (TLS + "  cert_file: again\n", "line 4: key 'cert_file' is given twice"),
        ("http_server_config: {headers: {Set-Cookie: x}}", "http_server_config.headers.'Set-Cookie': cannot be set; allowed: "),
        ('http_server_config: {headers: {Content-Security-Policy: "a\\r\\nb"}}', "is not printable ASCII on one line"),
        ("http_server_config: {headers: {X-Frame-Options: allow}}", "'allow' is unknown; allowed: deny, sameorigin"),
        ("basic_auth_users: {alice: secret}", "basic_auth_users.alice: the value is not a bcrypt hash"),
        ("basic_auth_users: {alice: }", "basic_auth_users.alice: the value is not a bcrypt hash"),
        (f"basic_auth_users: {{alice: {HASH.replace('10', '31')}}}", "basic_auth_users.alice: bcrypt cost 31 is outside 4 to 16"),
        (f"basic_auth_users: {{'a:b': {HASH}}}", "basic_auth_users.'a:b': not a user name"),
        ("basic_auth_users: [alice]", "basic_auth_users: "),
        ("rate_limit: {interval: soon}", "rate_limit.interval: 'soon' is not a duration"),
        ("rate_limit: {interval: 9999h}", "rate_limit.interval: '9999h' is longer than a day"),
        ("rate_limit: {interval: 1s, burst: 0}", "rate_limit.burst: 0 would refuse every request"),
        ("rate_limit: {interval: 1s, burst: many}", "rate_limit.burst: "),
        ("tls_server_config: {", "not valid YAML"),
        ("a: !!python/object/apply:os.system [id]", "a: unknown key"),
        ("? [a]\n: b", "a key must be plain text"),
        ("\x00", "not valid YAML"),
        ("[" * 5000, "not valid YAML"),
    ],
)
def test_refusals_name_the_key_and_what_is_allowed(text: str, message: str) -> None:
    """What cannot be served is refused in one line that names the key, its value and what is expected."""
    with pytest.raises(WebConfigError) as caught:
        parse_web_config(text, HERE)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_password_value_is_not_shown() -> None:
    """A plain password where a hash belongs does not reach the log."""
    with pytest.raises(WebConfigError) as caught:
        parse_web_config("basic_auth_users: {alice: hunter2}", HERE)
    assert "hunter2" not in str(caught.value)


def test_file_errors_name_the_file(tmp_path: Path) -> None:
    """A missing file, a directory, a pipe and a file beyond reason are named with the reason."""
    huge, pipe = tmp_path / "huge.yml", tmp_path / "pipe.yml"
    huge.write_bytes(b"#" * (1 << 21))
    os.mkfifo(pipe)
    for path, reason in ((tmp_path / "none.yml", "No such file"), (tmp_path, "Is a directory"), (huge, "larger than"), (pipe, "a pipe")):
        with pytest.raises(WebConfigError, match=reason) as caught:
            read_web_config(path)
        assert str(path) in str(caught.value)


_KEYS = st.sampled_from(
    [*WebConfig.__struct_fields__, *Tls.__struct_fields__, *Http.__struct_fields__, "interval", "burst", "X-Frame-Options", "alice"]
)
_TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS | st.text(max_size=5), inner, max_size=5),
    max_leaves=12,
)


@given(st.dictionaries(_KEYS, _TREES, max_size=4))
def test_any_tree_is_taken_or_refused_in_one_line(tree: object) -> None:
    """Whatever mapping the file holds, the reader returns a configuration or raises its one-line error."""
    _read_any(yaml.safe_dump(tree))


@given(st.text())
def test_any_text_is_taken_or_refused_in_one_line(text: str) -> None:
    """Whatever text the file holds, the same."""
    _read_any(text)


def _read_any(text: str) -> None:
    try:
        assert isinstance(parse_web_config(text, HERE), WebConfig)
    except WebConfigError as error:
        assert "\n" not in str(error)
