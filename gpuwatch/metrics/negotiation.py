"""What a scraper can read: format, escaping of names, compression. The choice of the format is prometheus_client's own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

_OPENMETRICS = "application/openmetrics-text"
_UNDERSCORES = "underscores"
_SOUND = re.compile(r"[a-z/-]+; version=[0-9.]{1,16}; charset=utf-8(?:; escaping=([a-z0-9-]+))?", re.ASCII)


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
    sound = _SOUND.fullmatch(content_type)
    if sound is None:
        # The library repeats a version as the client wrote it, whatever it is: neither our header nor what we keep may grow with it.
        return Format(CONTENT_TYPE_PLAIN_0_0_4, openmetrics=False, escaping=_UNDERSCORES, generate=generate_latest)
    return Format(content_type, content_type.startswith(_OPENMETRICS), sound.group(1) or _UNDERSCORES, generate)


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
