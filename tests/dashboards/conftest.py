"""The store of the demo fleet, filled once for all tests of the boards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.store import Store, filled_store


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A real Prometheus with what the fleet did, and what the shipped rules made of it."""
    with filled_store(tmp_path_factory.mktemp("store")) as filled:
        yield filled
