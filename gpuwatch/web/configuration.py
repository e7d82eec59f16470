"""The web configuration file: TLS, response headers, users and a rate limit, in the form that Prometheus exporters share.

Source: the web configuration document of Prometheus's exporter-toolkit. Everything that file may hold is accepted here or refused with
one line that says why; nothing is silently left out except what the docstrings below name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

MAX_FILE_BYTES = 1 << 20
CLIENT_AUTH_TYPES = ("NoClientCert", "RequestClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
VERIFIED_AUTH_TYPES = ("VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
TLS_VERSIONS = ("TLS12", "TLS13")
HEADERS: dict[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
"""Response headers that may be set, each with the values it may take (none listed: any)."""
MIN_BCRYPT_COST = 4
MAX_BCRYPT_COST = 16
"""Each step doubles the work; a check of 16 already takes seconds."""
_BCRYPT = re.compile(r"\$2[abxy]?\$([0-9]{2})\$[./A-Za-z0-9]{53}")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class WebConfigError(ValueError):
    """The web configuration cannot be used; the message is one line that names the key, its value and what was expected."""


class Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``tls_server_config``. Each of certificate, key and client CA comes as a file or inline as PEM text."""

    cert: str = ""
    key: str = ""
    client_ca: str = ""
    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    client_auth_type: str = "NoClientCert"
    """``RequestClientCert`` is served as ``NoClientCert``: a certificate that nobody checks would not be looked at either."""
    client_allowed_sans: tuple[str, ...] = ()
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    """Names as Go writes them; they rule TLS 1.2 only, as in Go."""
    prefer_server_cipher_suites: bool = True
    curve_preferences: tuple[str, ...] = ()

    @property
    def enabled(self) -> bool:
        """Whether the file asks for TLS: any key that makes no sense without it is set."""
        asked = (self.cert, self.key, self.client_ca, self.cert_file, self.key_file, self.client_ca_file)
        return any(asked) or self.client_auth_type != "NoClientCert"


class Http(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``http_server_config``."""

    http2: bool = True
    """Accepted and without effect: the server speaks HTTP/1.1, which every scraper does."""
    headers: dict[str, str] = {}


class RateLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``rate_limit``: a token bucket over all requests but the probes; ``interval`` of 0 switches it off."""

    interval: str = "0"
    burst: int = 1

    @property
    def interval_seconds(self) -> float:
        """Seconds until the bucket gains one request."""
        return _seconds("rate_limit.interval", self.interval)


class WebConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file, checked."""

    tls_server_config: Tls = Tls()
    http_server_config: Http = Http()
    basic_auth_users: dict[str, str] = {}
    """User name → bcrypt hash; empty: no password is asked for."""
    rate_limit: RateLimit = RateLimit()

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that this configuration reads besides itself."""
        tls = self.tls_server_config
        return tuple(Path(name) for name in (tls.cert_file, tls.key_file, tls.client_ca_file) if name)


class _Loader(yaml.BaseLoader):
    """Every scalar stays text, so ``0123``, ``no`` and dates keep their spelling; a key given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise WebConfigError(f"line {key_node.start_mark.line + 1}: a key must be plain text")
            if key in mapping:
                raise WebConfigError(f"line {key_node.start_mark.line + 1}: key {key!r} is given twice")
            mapping[key] = self.construct_object(value_node, deep=deep)
        return mapping


def read_web_config(path: Path) -> WebConfig:
    """Read and check the file; relative paths in it start at its own directory.

    Raises:
        WebConfigError: the file cannot be read, is no YAML, or holds something that cannot be served; one line.
    """
    text = read_file("web configuration", path).decode("utf-8", errors="replace")
    try:
        return parse_web_config(text, path.parent)
    except WebConfigError as error:
        raise WebConfigError(f"web configuration {path}: {error}") from error


def read_file(what: str, path: Path) -> bytes:
    """Bytes of a small file; raises :class:`WebConfigError` that names ``what`` and the path."""
    try:
        if path.is_fifo():
            raise WebConfigError(f"{what} {path}: a pipe; reading it could wait for ever")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise WebConfigError(f"{what} {path}: {reason}") from error
    if len(content) > MAX_FILE_BYTES:
        raise WebConfigError(f"{what} {path}: larger than {MAX_FILE_BYTES} bytes")
    return content


def parse_web_config(text: str, directory: Path) -> WebConfig:
    """Check the text of a web configuration; ``directory`` is where its relative paths start.

    Raises:
        WebConfigError: one line that names the key, its value and what is allowed.
    """
    try:
        # The loader builds text, lists and mappings only; it is derived from the one PyYAML calls the base of its safe ones.
        tree = yaml.load(text, Loader=_Loader)  # noqa: S506
    except yaml.YAMLError as error:
        raise WebConfigError(f"not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise WebConfigError("not valid YAML: nested too deeply") from error
    config = _convert(tree or {})
    _check_tls(config.tls_server_config)
    _check_headers(config.http_server_config.headers)
    _check_users(config.basic_auth_users)
    _check_rate(config.rate_limit)
    return msgspec.structs.replace(config, tls_server_config=_resolve(config.tls_server_config, directory))


def _convert(tree: object) -> WebConfig:
    sections: dict[str, type[msgspec.Struct]] = {"tls_server_config": Tls, "http_server_config": Http, "rate_limit": RateLimit}
    present = _known("", tree, WebConfig)
    for name, kind in sections.items():
        if name in present:
            present[name] = _known(f"{name}.", present[name], kind)
    try:
        return msgspec.convert(present, WebConfig, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        problem, _, place = str(error).partition(" - at `")
        raise WebConfigError(f"{place.strip('`').removeprefix('$.') or 'file'}: {problem}") from error


def _known(prefix: str, tree: object, kind: type[msgspec.Struct]) -> dict[str, object]:
    """The mapping without its empty values (a key with nothing behind it counts as not given), all keys known."""
    allowed = kind.__struct_fields__
    if not isinstance(tree, dict):
        raise WebConfigError(f"{prefix.rstrip('.') or 'file'}: expected a mapping with the keys {', '.join(allowed)}")
    for key in tree:
        if key not in allowed:
            shown = key[:80] if key[:80].isprintable() else repr(key[:80])
            raise WebConfigError(f"{prefix}{shown}: unknown key; allowed: {', '.join(allowed)}")
    return {key: value for key, value in tree.items() if value != ""}


def _check_tls(tls: Tls) -> None:
    for name in ("cert", "key", "client_ca"):
        inline, file = getattr(tls, name), getattr(tls, f"{name}_file")
        if inline and file:
            raise WebConfigError(f"tls_server_config.{name}: given both inline and as {name}_file; expected one of them")
        if tls.enabled and name != "client_ca" and not inline and not file:
            raise WebConfigError(f"tls_server_config.{name}_file: missing; TLS needs {name}_file or {name}")
    for name in ("min_version", "max_version"):
        if getattr(tls, name) not in TLS_VERSIONS:
            raise WebConfigError(f"tls_server_config.{name}: {getattr(tls, name)!r} is not offered; allowed: {', '.join(TLS_VERSIONS)}")
    if tls.min_version > tls.max_version:
        raise WebConfigError(f"tls_server_config.min_version: {tls.min_version} is above max_version {tls.max_version}")
    _check_client_auth(tls)


def _check_client_auth(tls: Tls) -> None:
    kind = tls.client_auth_type
    if kind in {"RequireAnyClientCert", "RequireClientCert"}:
        raise WebConfigError(
            f"tls_server_config.client_auth_type: {kind} takes certificates that nobody has checked, which this server cannot do; "
            "use RequireAndVerifyClientCert with client_ca_file",
        )
    if kind not in CLIENT_AUTH_TYPES:
        raise WebConfigError(f"tls_server_config.client_auth_type: {kind!r} is unknown; allowed: {', '.join(CLIENT_AUTH_TYPES)}")
    has_ca = bool(tls.client_ca or tls.client_ca_file)
    if kind in VERIFIED_AUTH_TYPES and not has_ca:
        raise WebConfigError(f"tls_server_config.client_ca_file: missing; {kind} needs client_ca_file or client_ca")
    if has_ca and kind == "NoClientCert":
        raise WebConfigError(
            "tls_server_config.client_auth_type: missing or NoClientCert, but a client CA is given; expected a policy for it"
        )
    if tls.client_allowed_sans and kind != "RequireAndVerifyClientCert":
        raise WebConfigError(f"tls_server_config.client_allowed_sans: needs client_auth_type RequireAndVerifyClientCert, not {kind}")


def _check_headers(headers: dict[str, str]) -> None:
    for name, value in headers.items():
        if name not in HEADERS:
            raise WebConfigError(f"http_server_config.headers.{name!r}: cannot be set; allowed: {', '.join(HEADERS)}")
        if not value.isascii() or (value and not value.isprintable()):
            raise WebConfigError(f"http_server_config.headers.{name}: {value!r} is not printable ASCII on one line")
        if value and HEADERS[name] and value.lower() not in HEADERS[name]:
            raise WebConfigError(f"http_server_config.headers.{name}: {value!r} is unknown; allowed: {', '.join(HEADERS[name])}")


def _check_users(users: dict[str, str]) -> None:
    for user, stored in users.items():
        # The value is a secret and never shown, even where it is wrong: it may well be the password itself.
        found = _BCRYPT.fullmatch(stored)
        if not user or ":" in user or not user.isprintable():
            raise WebConfigError(f"basic_auth_users.{user!r}: not a user name; expected printable text without a colon")
        if found is None:
            raise WebConfigError(f"basic_auth_users.{user}: the value is not a bcrypt hash; expected one that starts with $2y$ or $2b$")
        if not MIN_BCRYPT_COST <= int(found[1]) <= MAX_BCRYPT_COST:
            raise WebConfigError(f"basic_auth_users.{user}: bcrypt cost {int(found[1])} is outside {MIN_BCRYPT_COST} to {MAX_BCRYPT_COST}")


def _check_rate(rate: RateLimit) -> None:
    if rate.interval_seconds and rate.burst < 1:
        raise WebConfigError(f"rate_limit.burst: {rate.burst} would refuse every request; expected 1 or more")


def _seconds(key: str, text: str) -> float:
    """Seconds of a duration as Go writes it (``1s``, ``1m30s``, ``250ms``); a bare 0 needs no unit."""
    parts = _DURATION.findall(text)
    if text != "0" and "".join(number + unit for number, unit in parts) != text:
        raise WebConfigError(f"{key}: {text!r} is not a duration; expected for example 1s, 250ms or 0")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if seconds > 86400:  # noqa: PLR2004 (a day: anything longer is a slip, and infinity ends here too)
        raise WebConfigError(f"{key}: {text!r} is longer than a day")
    return seconds


def _resolve(tls: Tls, directory: Path) -> Tls:
    names = ("cert_file", "key_file", "client_ca_file")
    return msgspec.structs.replace(tls, **{name: str(directory / getattr(tls, name)) for name in names if getattr(tls, name)})
