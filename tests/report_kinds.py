"""The kinds of reports as their projects define them: what is not in the schema is pruned."""

from typing import Any

from policyd.engine.offline.report import ReportApi
from policyd.kube.reports import resource_of

TEXT = {"type": "string"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
NUMBER = {"type": "integer"}
REFERENCE = {
    "type": "object",
    "properties": dict.fromkeys(
        ("apiVersion", "kind", "name", "namespace", "uid", "resourceVersion", "fieldPath"), TEXT
    ),
}
RESULTS = ("pass", "fail", "warn", "error", "skip")
TIMESTAMP = {
    "type": "object",
    "required": ["seconds", "nanos"],
    "properties": {
        "seconds": {"type": "integer", "format": "int64"},
        "nanos": {"type": "integer", "format": "int32"},
    },
}
RESULT = {
    "type": "object",
    "required": ["policy"],
    "properties": {
        **dict.fromkeys(("source", "policy", "rule", "message", "category"), TEXT),
        "severity": {"type": "string", "enum": ["critical", "high", "low", "medium", "info"]},
        "result": {"type": "string", "enum": list(RESULTS)},
        "scored": {"type": "boolean"},
        "resources": {"type": "array", "items": REFERENCE},
        "properties": TEXTS,
        "timestamp": TIMESTAMP,
    },
}
SCHEMA = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("apiVersion", "kind"), TEXT),
        "metadata": {"type": "object"},
        "scope": REFERENCE,
        "summary": {"type": "object", "properties": dict.fromkeys(RESULTS, NUMBER)},
        "results": {"type": "array", "items": RESULT},
    },
}


def definitions(api: ReportApi) -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of an API of reports."""
    return [_definition(api, namespaced=namespaced) for namespaced in (True, False)]


def _definition(api: ReportApi, *, namespaced: bool) -> dict[str, Any]:
    resource = resource_of(api, namespaced=namespaced)
    columns = [
        {"name": name.capitalize(), "type": "integer", "jsonPath": f".summary.{name}"}
        for name in RESULTS
    ]
    version = {
        "name": api.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
        "additionalPrinterColumns": columns,
    }
    names = {"plural": resource.plural, "kind": resource.kind, "listKind": f"{resource.kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{api.group}"},
        "spec": {
            "group": api.group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {**names, "singular": resource.kind.lower()},
            "versions": [version],
        },
    }
