"""The schema of the chart's values (``values.schema.json``): an unknown key or a wrong type is refused before anything is made.

What is handed on to Kubernetes as it is (tolerations, resources, volumes) is typed only as far as a list or a mapping; the API server
checks the rest. What the templates cannot do without is required: a key with nothing behind it takes away its default, and a message that
names it is better than one of a template.
"""

from __future__ import annotations

import json
from typing import Final

from gpuwatch.chart.config_schema import Schema, config_schema, section

_TEXT: Final[Schema] = {"type": "string"}
_SWITCH: Final[Schema] = {"type": "boolean"}
_AUTO: Final[Schema] = {"enum": ["auto", True, False]}
_OBJECTS: Final[Schema] = {"type": "array", "items": {"type": "object"}}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_OPEN: Final[Schema] = {"type": "object"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_PORT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 65535}
_TEXT_MAP: Final[Schema] = {"type": "object", "additionalProperties": _TEXT}
# The chart's own labels come once.
_LABELS: Final[Schema] = _TEXT_MAP | {
    "propertyNames": {"not": {"pattern": r"^(app\.kubernetes\.io/(name|instance|component|version|part-of|managed-by)|helm\.sh/chart)$"}}
}
# Parts of the names of objects, a Service's among them.
_NAME: Final[Schema] = {"type": "string", "pattern": r"^([a-z]([-a-z0-9]*[a-z0-9])?)?$"}
_NAMESPACE: Final[Schema] = {"type": "string", "pattern": r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$"}
# What says which alert it is, and what has a value of its own here.
_ALERT_LABELS: Final[Schema] = _TEXT_MAP | {
    "propertyNames": {"pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$", "not": {"enum": ["alertname", "severity"]}}
}
# Of what the chart makes pods anew by, there is one.
_POD_ANNOTATIONS: Final[Schema] = _TEXT_MAP | {"propertyNames": {"not": {"enum": ["checksum/config"]}}}
_PULL_SECRETS: Final[Schema] = {"type": "array", "items": {"anyOf": [_TEXT, section({"name": _TEXT}, required=["name"])]}}
_PROMETHEUS_DURATION: Final[Schema] = {"type": "string", "pattern": r"^(|([0-9]+(ms|s|m|h|d|w|y))+)$"}
_ABSOLUTE: Final[Schema] = {"type": "string", "pattern": r"^(|/.*)$"}
_BCRYPT: Final[Schema] = {"type": "string", "pattern": r"^\$2[abxy]?\$[0-9]{2}\$[./A-Za-z0-9]{53}$"}
_PROBE: Final[Schema] = section(
    {
        name: {"type": "integer", "minimum": 1}
        for name in ("periodSeconds", "failureThreshold", "timeoutSeconds", "initialDelaySeconds", "successThreshold")
    }
)
_NEEDED: Final = (
    *("config", "image", "driver", "kernelLog", "web", "gpuNodes", "probes", "serviceAccount", "rbac", "service", "monitor"),
    *("tensorflowMonitor", "prometheusRule", "dashboards", "networkPolicy"),
)
_PROBES: Final = ("startup", "liveness", "readiness")
_NODE_LABEL: Final[Schema] = section(
    {"key": _TEXT, "operator": {"enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]}, "values": _TEXTS},
    required=["key", "operator"],
)


def values_schema() -> str:
    """Return the text of ``values.schema.json`` (JSON schema, draft 7)."""
    values = {
        **_naming(),
        **_placing(),
        **_running(),
        **_watching(),
        "config": config_schema(),
        "global": {"type": "object", "properties": {"imageRegistry": _TEXT, "imagePullSecrets": _PULL_SECRETS}},
    }
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "Made by `gpuwatch generate` from gpuwatch/chart and the settings: change those, not this file.",
        "title": "Values of the chart gpuwatch",
        **section(values, required=_NEEDED),
    }
    return json.dumps(schema, indent=2) + "\n"


def _naming() -> Schema:
    return {
        "nameOverride": _NAME,
        "fullnameOverride": _NAME,
        "namespaceOverride": _NAMESPACE,
        "commonLabels": _LABELS,
        "image": section(
            {
                "registry": _TEXT,
                "repository": _TEXT | {"minLength": 1},
                "tag": _TEXT,
                "digest": {"type": "string", "pattern": "^(|sha256:[0-9a-f]{64})$"},
                "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
            }
        ),
        "imagePullSecrets": _PULL_SECRETS,
    }


def _placing() -> Schema:
    return {
        "gpuNodes": section({"anyOf": {"type": "array", "items": _NODE_LABEL}}),
        "nodeSelector": _TEXT_MAP,
        "affinity": section({"nodeAffinity": _OPEN, "podAffinity": _OPEN, "podAntiAffinity": _OPEN}),
        "tolerations": _OBJECTS,
        "priorityClassName": _TEXT,
        "updateStrategy": section({"type": {"enum": ["RollingUpdate", "OnDelete"]}, "rollingUpdate": _OPEN}),
        "revisionHistoryLimit": _COUNT,
        "terminationGracePeriodSeconds": _COUNT,
        "minReadySeconds": _COUNT,
        "resources": section({"requests": _OPEN, "limits": _OPEN, "claims": _OBJECTS}),
        "probes": section(dict.fromkeys(_PROBES, _PROBE), required=_PROBES),
    }


def _running() -> Schema:
    return {
        "runtimeClassName": _TEXT,
        "driver": section({"runtime": _SWITCH, "hostPath": _ABSOLUTE, "libraryPath": _TEXT}),
        "hostPID": _SWITCH,
        "hostProc": _SWITCH,
        "kernelLog": section({"enabled": _SWITCH}, required=["enabled"]),
        "privileged": _SWITCH,
        "hostNetwork": _SWITCH,
        "web": section(
            {"tls": _web_tls(), "basicAuth": section({"users": _OPEN | {"additionalProperties": _BCRYPT}}), "existingSecret": _TEXT},
            required=["tls", "basicAuth"],
        ),
        "serviceAccount": section({"create": _SWITCH, "name": _TEXT, "annotations": _TEXT_MAP}, required=["create"]),
        "rbac": section({"create": _SWITCH}),
        "podLabels": _LABELS,
        "podAnnotations": _POD_ANNOTATIONS,
        "podSecurityContext": _OPEN,
        "securityContext": _OPEN,
        "extraArgs": _TEXTS,
        "extraEnv": _OBJECTS,
        "extraVolumes": _OBJECTS,
        "extraVolumeMounts": _OBJECTS,
    }


def _web_tls() -> Schema:
    return section(
        {
            "enabled": _SWITCH,
            "secretName": _TEXT,
            "clientAuthType": {"enum": ["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"]},
            "minVersion": {"enum": ["TLS12", "TLS13"]},
        },
        required=["enabled", "clientAuthType"],
    )


def _watching() -> Schema:
    return {
        "service": section({"enabled": _SWITCH, "annotations": _TEXT_MAP, "nodeLocal": _SWITCH}),
        "monitor": _monitor(),
        "tensorflowMonitor": _tensorflow_monitor(),
        "prometheusRule": section(
            {
                "enabled": _AUTO,
                "labels": _LABELS,
                "annotations": _TEXT_MAP,
                "thresholds": {"type": "object", "additionalProperties": {"type": ["string", "number"]}},
                "disabled": _TEXTS,
                "severity": {"type": "object", "additionalProperties": {"enum": ["critical", "warning", "info"]}},
                "alertLabels": _ALERT_LABELS,
                "pricesPerHour": {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}},
            }
        ),
        "dashboards": section(
            {"enabled": _SWITCH, "labels": _LABELS, "annotations": _TEXT_MAP}
            | dict.fromkeys(("namespace", "label", "labelValue", "folder", "folderAnnotation"), _TEXT),
            required=["label", "folderAnnotation"],
        ),
        "networkPolicy": section(
            {"enabled": _SWITCH, "from": _OBJECTS, "egress": section({"enabled": _SWITCH, "ports": {"type": "array", "items": _PORT}})},
            required=["egress"],
        ),
    }


def _monitor() -> Schema:
    return section(
        {
            "enabled": _AUTO,
            "kind": {"enum": ["PodMonitor", "ServiceMonitor"]},
            "labels": _LABELS,
            "annotations": _TEXT_MAP,
            "interval": _PROMETHEUS_DURATION,
            "scrapeTimeout": _PROMETHEUS_DURATION,
            "sampleLimit": _COUNT,
            "labelLimit": _COUNT,
            "relabelings": _OBJECTS,
            "metricRelabelings": _OBJECTS,
            "basicAuth": section({"secretName": _TEXT, "usernameKey": _TEXT, "passwordKey": _TEXT}),
            "tls": section({"caSecretName": _TEXT, "serverName": _TEXT, "insecureSkipVerify": _SWITCH, "clientSecretName": _TEXT}),
        }
    )


def _tensorflow_monitor() -> Schema:
    return section(
        {
            "enabled": _SWITCH,
            "labels": _LABELS,
            "annotations": _TEXT_MAP,
            "podLabel": _TEXT | {"minLength": 1},
            "podLabelValue": _TEXT,
            "port": _PORT,
            "namespaces": {"type": "array", "items": _NAMESPACE | {"minLength": 1}},
            "interval": _PROMETHEUS_DURATION,
            "scrapeTimeout": _PROMETHEUS_DURATION,
            "sampleLimit": _COUNT,
            "relabelings": _OBJECTS,
            "metricRelabelings": _OBJECTS,
        },
        required=["podLabel"],
    )
