"""The schema of the settings against the loader of the settings: neither may drift from the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.chart.config_schema import FROM_ELSEWHERE, config_schema
from gpuwatch.config import ConfigError, Settings, load
from gpuwatch.setting import keys_of

KEYS = keys_of(Settings)
CONFIG = jsonschema.Draft7Validator(config_schema())
MANY: tuple[object, ...] = (
    -1,
    0,
    1,
    7,
    8,
    1024,
    65535,
    65536,
    65537,
    1.5,
    True,
    False,
    "",
    "x",
    "auto",
    "never",
    "info",
    "json",
    "true",
    "/x",
)
MANY += (
    [],
    ["a"],
    {},
    {"a": "b"},
    "1s",
    "1m30s",
    "1.5h",
    "10",
    "1 s",
    "-1s",
    "s",
    "1d",
    254 * "x",
    4097 * "x",
    39 * "1" + "s",
    40 * "1" + "s",
)


def is_taken(config: dict[str, Any], folder: Path) -> str:
    """Why the agent refuses this configuration; empty when it takes it."""
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    try:
        load(file, environment={})
    except ConfigError as error:
        return str(error)
    return ""


def test_every_setting_is_there_but_those_of_the_chart() -> None:
    """Settings that the chart makes itself cannot be given twice; all others can be given."""
    schema = config_schema()["properties"]
    given_keys = {f"{outer}.{name}" for outer, section in schema.items() for name in section["properties"]}
    assert given_keys == set(KEYS) - set(FROM_ELSEWHERE)
    assert set(FROM_ELSEWHERE) <= set(KEYS)


@pytest.mark.parametrize("path", sorted(set(KEYS) - set(FROM_ELSEWHERE)))
def test_schema_and_loader_agree(path: str, tmp_path: Path) -> None:
    """What the loader takes the schema takes; what the schema takes the loader refuses only for a range or for another setting."""
    section, _, name = path.partition(".")
    for value in MANY:
        config = {section: {name: value}}
        refused = is_taken(config, tmp_path)
        if CONFIG.is_valid(config):
            only_agent = KEYS[path].kind == "duration" and "expected a duration with a unit" in refused
            assert not refused or only_agent or "not to be shorter" in refused or "is true and" in refused, (value, refused)
        else:
            assert refused, f"the schema refuses {value!r} for {path}, and the agent takes it"


@given(st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,2})?(ms|s|m|h)([0-9]{1,2}(ms|s))?", fullmatch=True))
def test_durations(text: str) -> None:
    """The schema takes every duration that can be written."""
    assert CONFIG.is_valid({"read": {"static_interval": text}})
