"""The settings as a JSON schema: the ``config`` of the chart's values, which becomes the configuration file.

Types, bounds, choices and names come from the structs of :mod:`gpuwatch.config`. What a schema cannot say, such as the range of a duration
or that one setting may not be shorter than another, is refused by the agent at its start.
"""

from __future__ import annotations

from typing import Any, Final

from gpuwatch.config import Settings
from gpuwatch.setting import Key, allowed, keys_of

Schema = dict[str, Any]

FROM_ELSEWHERE: Final = ("node_name", "server.web_config_file")
"""Settings that ``config`` has not: the pod knows its node, and ``web`` of the values makes the other."""
_DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
_MAX_DURATION_LENGTH: Final = 40


def config_schema() -> Schema:
    """Return the schema of the configuration file, without the settings that the chart makes itself."""
    schema = section({})
    for path, key in keys_of(Settings).items():
        if path in FROM_ELSEWHERE:
            continue
        outer, _, name = path.rpartition(".")
        place = schema["properties"].setdefault(outer, section({})) if outer else schema
        place["properties"][name] = {"description": allowed(key)} | _typed(key)
    return schema


def section(properties: Schema, **more: object) -> Schema:
    """Return the schema of a mapping with those keys and no others."""
    return {"type": "object", "additionalProperties": False, "properties": properties} | more


def _typed(key: Key) -> Schema:
    match key.kind:
        case "duration":
            return {"type": "string", "pattern": _DURATION, "maxLength": _MAX_DURATION_LENGTH}
        case "integer":
            return {"type": "integer", "minimum": int(key.low or 0), "maximum": int(key.high or 0)}
        case "switch":
            return {"type": "boolean"}
        case "choice":
            return {"enum": list(key.choices)}
        case "labels":
            return {"type": ["string", "array", "object"]}
        case "mapping":
            return {"type": "object"}
    bounds = (("minLength", key.low), ("maxLength", key.high))
    return {"type": "string"} | {name: int(bound) for name, bound in bounds if bound is not None}
