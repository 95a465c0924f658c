"""Declare the types of the variables that the API server passes at admission."""

from collections.abc import Mapping
from typing import Final

from policyd.cel.environment import Fields
from policyd.cel.types import BOOL, DYN, INT, STRING, TIMESTAMP, Type, list_of, map_of

_STRINGS = list_of(STRING)
_LABELS = map_of(STRING, STRING)
REQUEST: Final[Mapping[str, Fields]] = {
    "kubernetes.AdmissionRequest": {
        "kind": Type("kubernetes.GroupVersionKind"),
        "resource": Type("kubernetes.GroupVersionResource"),
        "subResource": STRING,
        "requestKind": Type("kubernetes.GroupVersionKind"),
        "requestResource": Type("kubernetes.GroupVersionResource"),
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": Type("kubernetes.UserInfo"),
        "dryRun": BOOL,
        "options": DYN,
    },
    "kubernetes.GroupVersionKind": {"group": STRING, "version": STRING, "kind": STRING},
    "kubernetes.GroupVersionResource": {"group": STRING, "version": STRING, "resource": STRING},
    "kubernetes.UserInfo": {
        "username": STRING,
        "uid": STRING,
        "groups": _STRINGS,
        "extra": map_of(STRING, _STRINGS),
    },
}
"""The types `request` is made of."""
NAMESPACE: Final[Mapping[str, Fields]] = {
    "kubernetes.Namespace": {
        "metadata": Type("kubernetes.NamespaceMetadata"),
        "spec": Type("kubernetes.NamespaceSpec"),
        "status": Type("kubernetes.NamespaceStatus"),
    },
    "kubernetes.NamespaceMetadata": {
        "name": STRING,
        "generateName": STRING,
        "namespace": STRING,
        "labels": _LABELS,
        "annotations": _LABELS,
        "UID": STRING,
        "creationTimestamp": TIMESTAMP,
        "deletionGracePeriodSeconds": INT,
        "deletionTimestamp": TIMESTAMP,
        "generation": INT,
        "resourceVersion": STRING,
        "finalizers": _STRINGS,
    },
    "kubernetes.NamespaceSpec": {"finalizers": _STRINGS},
    "kubernetes.NamespaceStatus": {"phase": STRING},
}
"""The types `namespaceObject` is made of."""
JSON_PATCH: Final[Mapping[str, Fields]] = {
    "JSONPatch": {"op": STRING, "path": STRING, "from": STRING, "value": DYN}
}
"""The type of one operation of a JSON patch."""
