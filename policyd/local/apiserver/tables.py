"""Tables: what `kubectl get` prints, one row an object."""

from policyd.local.apiserver.requests import Request
from policyd.local.apiserver.responses import Answer  # noqa: F401
from policyd.local.apiserver.status import Object


def table(request: Request, shown: list[Object], *, about: Object, now: float) -> Object:
    """Write objects as a Table."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": about,
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
            {"name": "Created At", "type": "date", "format": "", "description": "", "priority": 0},
        ],
        "rows": [
            {
                "cells": [v["metadata"]["name"], v["metadata"].get("creationTimestamp")],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": v["metadata"],
                },
            }
            for v in shown
        ],
    }
