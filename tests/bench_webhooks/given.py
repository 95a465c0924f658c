"""What the webhooks are measured with: a pod, and published policies that it passes."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import gather, load_document
from policyd.engine.documents.reading import Document
from policyd.engine.offline.requests import (
    RequestCircumstances,
    namespace_lookup,
    offline_set,
    request_for,
)
from policyd.errors import PolicydError

POD_BYTES = 12_500
VALIDATING, MUTATING = 14, 5


@dataclass(frozen=True)
class Published:
    """A policy of Kyverno's, and the same in the API server's kinds."""

    name: str
    policy: Any
    native: tuple[Any, ...]


_NUMBERS = itertools.count()


def pod(namespace: str = "bench", size: int = POD_BYTES, *, unlike: bool = False) -> Any:
    """Make a pod that is as secure as policies ask for, padded to about `size` bytes.

    Each has another name, and if they are to be `unlike`, a setting of its own.
    """
    number = f"{next(_NUMBERS):06}"
    amounts = {"cpu": "1", "memory": "1Gi"}
    probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 10}
    secure = {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 3000,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "main",
        "image": "registry.example/main:1.0",
        "imagePullPolicy": "Always",
        "ports": [{"containerPort": 8080}],
        "env": [{"name": "NUMBER", "value": number if unlike else "000000"}],
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": secure,
        "livenessProbe": probe,
        "readinessProbe": {**probe, "periodSeconds": 5},
    }
    spec = {
        "containers": [container, {**container, "name": "side", "ports": [], "env": []}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 2000},
        "hostNetwork": False,
    }
    labels = {"app.kubernetes.io/name": "bench", "app": "bench"}
    metadata = {
        "name": f"bench-{number}",
        "namespace": namespace,
        "labels": labels,
        "annotations": {},
    }
    made: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    while len(json.dumps(made)) < size:
        place = len(container["env"])
        container["env"].append({"name": f"SETTING_{place:03}", "value": "x" * 60})
        metadata["annotations"][f"example.com/note-{place}"] = "y" * 60
    return made


def choose(folder: Path, given: Any) -> tuple[list[Published], list[Published]]:
    """Choose published policies, in the order of their names, that the pod passes.

    Args:
        folder: Where the cases are.
        given: The pod as the API server has it.
    """
    validating = _passing(folder / "kyverno-policies-vpol.json", given, changing=False)
    mutating = _passing(folder / "kyverno-policies-mpol.json", given, changing=True)
    return validating[:VALIDATING], mutating[:MUTATING]


def changes_of(published: list[Published], given: Any) -> list[Any]:
    """Return the JSON patch that policies change the pod by."""
    loaded = gather(
        load_document(Document(policy.policy, "bench"), EVERY_FORMAT) for policy in published
    )
    request = request_for(given, RequestCircumstances(namespace="bench"))
    decision = offline_set(loaded, namespace_lookup((), {})).review(request)
    changes: list[Any] = msgspec.to_builtins(decision.operations)
    return changes


def _passing(file: Path, given: Any, *, changing: bool) -> list[Published]:
    chosen: dict[str, Published] = {}
    for case in json.loads(file.read_text()):
        name = case["policy"]["metadata"]["name"]
        if case["requires"] or not case.get("native") or name in chosen:
            continue
        native = (case["native"]["policy"], *case["native"]["bindings"])
        published = Published(name, case["policy"], native)
        if all(_passes(documents, given, changing=changing) for documents in _forms(published)):
            chosen[name] = published
    return [chosen[name] for name in sorted(chosen)]


def _forms(published: Published) -> Iterator[tuple[Any, ...]]:
    yield (published.policy,)
    yield published.native


def _passes(documents: tuple[Any, ...], given: Any, *, changing: bool) -> bool:
    """Tell whether policies concern the pod and let it pass, and change it if they are to."""
    loaded = gather(
        load_document(Document(document, "bench"), EVERY_FORMAT) for document in documents
    )
    if any(finding.severity == "error" for finding in loaded.findings):
        return False
    request = request_for(given, RequestCircumstances(namespace="bench"))
    try:
        decision = offline_set(loaded, namespace_lookup((), {})).review(request)
    except PolicydError:
        return False
    clean = decision.allowed and not decision.failures and not decision.warnings
    return clean and bool(decision.matched) and (bool(decision.operations) or not changing)
