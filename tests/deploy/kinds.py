"""Objects against their types: those of Kubernetes by its own OpenAPI schemas, those of the Prometheus operator by the fields used here."""

from __future__ import annotations

from typing import Any

import jsonschema
import kubernetes_validate

OLDEST, NEWEST = "1.25", "1.37"
"""The first release that the chart allows, and the newest whose types are known."""

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 1}
_TEXTS: Schema = {"type": "object", "additionalProperties": _TEXT}


def shape(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """A mapping with these keys and no others."""
    properties = {**required, **(optional or {})}
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": list(required)}


_KEY = shape({"name": _TEXT, "key": _TEXT})
_RELABELING = shape(
    {},
    {
        "sourceLabels": {"type": "array", "items": _TEXT},
        "separator": _TEXT,
        "targetLabel": _TEXT,
        "regex": _TEXT,
        "replacement": _TEXT,
        "action": {"enum": ["replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep", "lowercase", "uppercase"]},
    },
)
_SECRET_OR_CONFIG = shape({}, {"secret": _KEY, "configMap": _KEY})
_TLS = shape(
    {},
    {"ca": _SECRET_OR_CONFIG, "cert": _SECRET_OR_CONFIG, "keySecret": _KEY, "serverName": _TEXT, "insecureSkipVerify": {"type": "boolean"}},
)
_DURATION = {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h|d|w|y))+$"}
_ENDPOINT = shape(
    {"port": _TEXT, "path": _TEXT, "scheme": {"enum": ["http", "https"]}, "honorLabels": {"const": True}},
    {
        "interval": _DURATION,
        "scrapeTimeout": _DURATION,
        "basicAuth": shape({"username": _KEY, "password": _KEY}),
        "tlsConfig": _TLS,
        "relabelings": {"type": "array", "items": _RELABELING},
        "metricRelabelings": {"type": "array", "items": _RELABELING},
    },
)
# Of training jobs: no port of the pod is named, and their labels do not win.
_JOB_ENDPOINT = shape(
    {"path": _TEXT, "scheme": {"const": "http"}, "followRedirects": {"const": False}},
    {
        "interval": _DURATION,
        "scrapeTimeout": _DURATION,
        "relabelings": {"type": "array", "items": _RELABELING},
        "metricRelabelings": {"type": "array", "items": _RELABELING},
    },
)
_SELECTOR = shape({"matchLabels": _TEXTS})
_LIMITS = {"sampleLimit": _COUNT, "labelLimit": _COUNT, "jobLabel": _TEXT}
_METADATA = shape({"name": _TEXT, "namespace": _TEXT, "labels": _TEXTS}, {"annotations": _TEXTS})
_RULE = shape(
    {"expr": _TEXT},
    {"alert": _TEXT, "record": _TEXT, "for": _DURATION, "keep_firing_for": _DURATION, "labels": _TEXTS, "annotations": _TEXTS},
)


def _monitor(endpoints: str) -> Schema:
    namespaces = shape({}, {"matchNames": {"type": "array", "items": _TEXT, "minItems": 1}, "any": {"const": True}}) | {"minProperties": 1}
    endpoint = {"if": {"required": ["port"]}, "then": _ENDPOINT, "else": _JOB_ENDPOINT}
    selection = {"selector": _SELECTOR, "namespaceSelector": namespaces}
    return shape({**selection, endpoints: {"type": "array", "items": endpoint, "minItems": 1}}, _LIMITS)


_SPECIFICATIONS = {
    "PodMonitor": _monitor("podMetricsEndpoints"),
    "ServiceMonitor": _monitor("endpoints"),
    "PrometheusRule": shape(
        {"groups": {"type": "array", "items": shape({"name": _TEXT, "rules": {"type": "array", "items": _RULE, "minItems": 1}})}}
    ),
}


def validate(body: dict[str, Any], version: str) -> None:
    """Fails unless the object has exactly fields and types that its kind has in this release of Kubernetes."""
    if body["apiVersion"] == "monitoring.coreos.com/v1":
        exact = {"apiVersion": {"const": "monitoring.coreos.com/v1"}, "kind": {"const": body["kind"]}}
        jsonschema.validate(body, shape({**exact, "metadata": _METADATA, "spec": _SPECIFICATIONS[body["kind"]]}))
    else:
        kubernetes_validate.validate(body, version, strict=True)
