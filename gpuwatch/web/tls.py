"""The TLS side of the web configuration: from checked keys to an ``ssl.SSLContext``, and what a client certificate says.

Source: Python's ``ssl`` over OpenSSL; names of versions, suites and curves are Go's, as exporters' web configurations use them.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpuwatch.web.configuration import VERIFIED_AUTH_TYPES, Tls, WebConfigError, read_file

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_SUITES_TLS13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
}
"""TLS 1.2 suites that Go still offers, in OpenSSL's names."""
_CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}


def build_context(tls: Tls, *, certificate_optional: bool) -> ssl.SSLContext:
    """A server context for ``tls``.

    Args:
        tls: checked keys of ``tls_server_config``.
        certificate_optional: let the handshake pass without a client certificate even where one is required; the caller then refuses
            what is not a probe (a kubelet has no certificate to show).

    Raises:
        WebConfigError: a file cannot be read, or OpenSSL refuses it; one line.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.minimum_version, context.maximum_version = _VERSIONS[tls.min_version], _VERSIONS[tls.max_version]
    context.set_alpn_protocols(["http/1.1"])
    _set_suites(context, tls)
    _set_curve(context, tls)
    _load_certificate(context, tls)
    if tls.client_auth_type in VERIFIED_AUTH_TYPES:
        required = tls.client_auth_type == "RequireAndVerifyClientCert" and not certificate_optional
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        _load_client_ca(context, tls)
    return context


def names_of(certificate: Mapping[str, object]) -> frozenset[str]:
    """Subject alternative names of a peer certificate, as ``getpeercert`` gives it: DNS, e-mail, URI, and IP addresses in short form."""
    entries = certificate.get("subjectAltName", ())
    names: set[str] = set()
    for kind, value in entries if isinstance(entries, tuple) else ():
        if kind in {"DNS", "email", "URI"}:
            names.add(value)
        elif kind == "IP Address":
            with contextlib.suppress(ValueError):
                names.add(str(ipaddress.ip_address(value.strip())))
    return frozenset(names)


def _set_suites(context: ssl.SSLContext, tls: Tls) -> None:
    # OpenSSL's default is the client's order; Go's old switch says whose order counts.
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    for name in tls.cipher_suites:
        if name not in _SUITES and name not in _SUITES_TLS13:
            allowed = ", ".join((*_SUITES, *_SUITES_TLS13))
            raise WebConfigError(f"tls_server_config.cipher_suites: {name!r} is unknown; allowed: {allowed}")
    suites = [_SUITES[name] for name in tls.cipher_suites if name in _SUITES]
    if suites:
        context.set_ciphers(":".join(suites))
    elif tls.cipher_suites:
        if tls.max_version == "TLS12":
            raise WebConfigError("tls_server_config.cipher_suites: no suite of TLS 1.2 is listed, but max_version is TLS12")
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def _set_curve(context: ssl.SSLContext, tls: Tls) -> None:
    if not tls.curve_preferences:
        return
    for name in tls.curve_preferences:
        if name not in _CURVES:
            raise WebConfigError(f"tls_server_config.curve_preferences: {name!r} is unknown; allowed: {', '.join(_CURVES)}")
    if len(tls.curve_preferences) > 1:
        given = ", ".join(tls.curve_preferences)
        raise WebConfigError(f"tls_server_config.curve_preferences: {given}: only one curve can be set; leave the key out to offer all")
    context.set_ecdh_curve(_CURVES[tls.curve_preferences[0]])


def _load_certificate(context: ssl.SSLContext, tls: Tls) -> None:
    certificate = tls.cert.encode() or read_file("tls_server_config.cert_file", Path(tls.cert_file))
    key = tls.key.encode() or read_file("tls_server_config.key_file", Path(tls.key_file))
    what = f"tls_server_config: certificate {tls.cert_file or '(inline)'} and key {tls.key_file or '(inline)'}"

    def refuse() -> str:
        # Without this OpenSSL would ask for the password on the terminal.
        raise WebConfigError(f"{what}: the key is encrypted; expected one without a password")

    with _memory_file(certificate) as certificate_path, _memory_file(key) as key_path:
        try:
            context.load_cert_chain(certificate_path, key_path, password=refuse)
        except (OSError, ValueError) as error:
            if isinstance(error, WebConfigError):
                raise
            raise WebConfigError(f"{what}: {_reason(error)}; expected a PEM chain and its own PEM key") from error


def _load_client_ca(context: ssl.SSLContext, tls: Tls) -> None:
    content = tls.client_ca.encode() or read_file("tls_server_config.client_ca_file", Path(tls.client_ca_file))
    what = f"tls_server_config.client_ca_file {tls.client_ca_file or '(inline)'}"
    with _memory_file(content) as path:
        try:
            context.load_verify_locations(cafile=path)
        except (OSError, ValueError) as error:
            raise WebConfigError(f"{what}: {_reason(error)}; expected PEM certificates") from error
    if not context.get_ca_certs():
        raise WebConfigError(f"{what}: holds no CA certificate")


def _reason(error: Exception) -> str:
    text = (error.reason or "not PEM") if isinstance(error, ssl.SSLError) else str(error)
    return text.replace("_", " ").lower()


@contextlib.contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    """A path that OpenSSL can open, with the bytes already read: the same for files and inline text, and no key touches a disk."""
    descriptor = os.memfd_create("gpuwatch-pem")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
