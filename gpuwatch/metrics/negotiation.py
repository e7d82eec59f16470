"""What a scraper can read: format, escaping of names, compression. The choice of the format is prometheus_client's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

_OPENMETRICS = "application/openmetrics-text"
_UNDERSCORES = "underscores"


class Format(NamedTuple):
    """One way to write the exposition."""

    content_type: str
    openmetrics: bool
    escaping: str
    """How names are written that older scrapers cannot read. It shows in ours only for ``dots``, which doubles each underscore."""
    generate: Callable[[CollectorRegistry], bytes]
    """prometheus_client's writer of the same format."""


def format_of(accept: str) -> Format:
    """The format for an ``Accept`` header; text 0.0.4 where it asks for nothing that we know, or makes no sense."""
    try:
        generate, content_type = choose_encoder(accept)
    except TypeError:  # a version that is no number, such as "latest", is compared with one
        generate, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
    escaping = content_type.partition("escaping=")[2] or _UNDERSCORES
    return Format(content_type, content_type.startswith(_OPENMETRICS), escaping, generate)


def gzip_allowed(accept_encoding: str) -> bool:
    """Whether an ``Accept-Encoding`` header takes gzip, by name or by ``*``; ``q=0`` refuses (RFC 9110, section 12.5.3)."""
    allowed = {}
    for part in accept_encoding.split(","):
        coding, *parameters = (token.strip().lower() for token in part.split(";"))
        allowed[coding] = not any(_is_zero_weight(parameter) for parameter in parameters)
    return allowed.get("gzip", allowed.get("*", False))


def _is_zero_weight(parameter: str) -> bool:
    name, _, weight = parameter.partition("=")
    return name.strip() == "q" and weight.strip() in {"0", "0.", "0.0", "0.00", "0.000"}
