"""The schema of the chart's values as a text."""

from __future__ import annotations

import json

import jsonschema

from gpuwatch.chart.config_schema import config_schema
from gpuwatch.chart.values_schema import values_schema


def test_it_is_made_alike_each_time() -> None:
    """The text is valid JSON schema of the draft that both helms read, and the same at each call."""
    assert values_schema() == values_schema()
    schema = json.loads(values_schema())
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    jsonschema.Draft7Validator.check_schema(schema)
    assert schema["properties"]["config"] == config_schema()


def test_parent_charts_may_say_anything_globally() -> None:
    """``global`` is shared with other charts, so unknown keys are no mistake there, and only there."""
    schema = json.loads(values_schema())
    jsonschema.validate({"storageClass": "fast", "imageRegistry": "mirror.example.com"}, schema["properties"]["global"])
    assert schema["additionalProperties"] is False
