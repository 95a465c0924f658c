"""The annotation of client-side apply, and the way from it to server-side apply.

`kubectl apply` without `--server-side` keeps what it applied in an annotation. When the same user
turns to server-side apply, what that annotation says is kubectl's already, and is no conflict.
"""

import json

from policyd.api.meta import Json
from policyd.patch.comparison import compare
from policyd.patch.fields_v1 import EMPTY, FieldSet
from policyd.patch.schema import Schema
from policyd.patch.typed import SchemaError, check, fields_of

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"

KUBECTL = "kubectl"
"""The manager that may turn from client-side to server-side apply."""


def fields_of_last_applied(live: Json, schema: Schema, *, api_version: str) -> FieldSet:
    """Return what client-side apply set and nobody changed since; empty if it was not used."""
    text = _annotations(live).get(ANNOTATION)
    try:
        last_applied = json.loads(text) if text else None
    except ValueError:
        return EMPTY
    if not isinstance(last_applied, dict) or last_applied.get("apiVersion") != api_version:
        return EMPTY
    try:
        check(last_applied, schema, what="")
    except SchemaError:
        return EMPTY
    changes = compare(last_applied, live, schema)
    return fields_of(last_applied, schema) - changes.written - changes.removed


def with_last_applied(obj: dict[str, Json], applied: dict[str, Json]) -> dict[str, Json]:
    """Keep the annotation true, if there is one, when kubectl applies on the server."""
    annotations = _annotations(obj)
    if not annotations.get(ANNOTATION):
        return obj
    own = {**_annotations(applied)}
    own.pop(ANNOTATION, None)
    metadata = {**applied.get("metadata", {})}
    metadata.pop("annotations", None)
    if own:
        metadata["annotations"] = own
    text = json.dumps({**applied, "metadata": metadata}, separators=(",", ":"), sort_keys=True)
    updated = {**annotations, ANNOTATION: f"{text}\n"}
    return {**obj, "metadata": {**obj["metadata"], "annotations": updated}}


def _annotations(obj: Json) -> dict[str, Json]:
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    return (metadata.get("annotations") if isinstance(metadata, dict) else None) or {}
