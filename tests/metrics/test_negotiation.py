"""What a scraper asks for and what it gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder

from gpuwatch.metrics.negotiation import format_of, gzip_allowed

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/html", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain;version=1.0.0;escaping=allow-utf-8", "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8"),
        ("application/openmetrics-text", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        ("application/openmetrics-text;version=2.0.0", "application/openmetrics-text; version=2.0.0; charset=utf-8; escaping=underscores"),
        (PROMETHEUS_3, "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8"),
    ],
)
def test_the_format_follows_the_accept_header(accept: str, content_type: str) -> None:
    """Each known Accept header gets the content type that prometheus_client would answer."""
    assert format_of(accept).content_type == content_type
    assert choose_encoder(accept)[1] == content_type


@given(st.one_of(st.text(), st.text().map(lambda version: f"application/openmetrics-text; version={version}")))
def test_a_senseless_accept_header_still_gets_metrics(accept: str) -> None:
    """No Accept header can make a scrape fail."""
    assert format_of(accept).content_type.startswith(("text/plain", "application/openmetrics-text"))


@given(st.text(alphabet="ab01.=; escaping"), st.sampled_from(["escaping=allow-utf-8", "escaping=x", "=1", ""]))
def test_no_client_can_make_up_a_format(version: str, tail: str) -> None:
    """Whatever a client asks for, the escaping is one of four and the content type holds nothing of the client's own."""
    answer = format_of(f"application/openmetrics-text; version=2.0.0{version}{tail}")
    assert answer.escaping in {"underscores", "dots", "values", "allow-utf-8"}
    assert answer.content_type.count("=") == (3 if "escaping" in answer.content_type else 2)


@pytest.mark.parametrize(
    ("accept_encoding", "allowed"),
    [
        ("", False),
        ("identity", False),
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("*", True),
        ("*;q=0", False),
        (";;,,q=", False),
    ],
)
def test_gzip_is_used_only_where_it_is_welcome(accept_encoding: str, allowed: bool) -> None:
    """By name or by star, and never against a weight of zero."""
    assert gzip_allowed(accept_encoding) is allowed
