"""Policies and bindings as the API server stores them, and how many of them are kept in memory.

A spec stays JSON text until it is loaded: decoded, it takes ten times as much. Beyond the limits of
a namespace, a policy is not loaded and denies the requests that it matches, as one with errors
does. As many again are kept for that. Of any further policy only the name is kept, and one policy
denies everything that it might have guarded.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec

from policyd.api.meta import Json, Wire
from policyd.api.names import NAME_LABEL
from policyd.api.policy import API_VERSION, GROUP
from policyd.dialects.kyverno import entries, exceptions
from policyd.dialects.kyverno.load import is_kyverno_group
from policyd.dialects.kyverno.statuses import conditions_in
from policyd.engine.compile.load import load_document
from policyd.engine.documents.reading import Document
from policyd.engine.model.compiled import CompiledPolicy
from policyd.kube.namespace_limits import MOST_POLICIES, MOST_POLICY_BYTES, NamespaceLimits
from policyd.kube.resources import Resource

ADDITIONS: Final = frozenset({exceptions.KIND, entries.KIND})
"""Kinds of Kyverno's that are no policies: what is not read of them denies nothing."""

_NO_SPEC: Final = msgspec.Raw(b"null")


class PolicyKey(NamedTuple):
    """Identifies a policy or binding of the API server, or a file of policies."""

    kind: str
    namespace: str
    name: str


class PolicyMetadata(Wire, frozen=True):
    """The metadata of a policy that its meaning depends on, and fields for an informer."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class StoredPolicy(Wire, frozen=True):
    """A policy or binding, of policyd's kinds or Kyverno's."""

    metadata: PolicyMetadata
    api_version: str = ""
    kind: str = ""
    spec: msgspec.Raw = _NO_SPEC
    status: msgspec.Raw = _NO_SPEC
    """Of a policy of Kyverno's, the conditions that it has."""
    unusable: str = ""
    """Why it is not to be loaded, if its namespace has too many policies."""
    name_only: bool = False
    """Whether the rest of it is not kept."""
    may_deny: bool = True
    """Whether it denies the requests that it matches if it cannot be evaluated."""

    @property
    def key(self) -> PolicyKey:
        """Its kind, namespace and name."""
        return PolicyKey(self.kind, self.metadata.namespace, self.metadata.name)

    @property
    def is_own(self) -> bool:
        """Whether it is of one of policyd's kinds."""
        return self.api_version.startswith(f"{GROUP}/")

    @property
    def document(self) -> Document:
        """The object as it would be written: without status, and without its history.

        Raises:
            RecursionError: If it is nested too deep.
        """
        given = self.metadata
        metadata: dict[str, Json] = {"name": given.name}
        if not self.is_own:
            fields = ("namespace", "labels", "annotations")
            metadata |= {name: value for name in fields if (value := getattr(given, name))}
        value = {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata}
        return Document({**value, "spec": msgspec.json.decode(self.spec)}, given.name)

    def only_named(self, reason: str) -> "StoredPolicy":
        """Return its name, and why the rest is not kept."""
        return msgspec.structs.replace(
            self,
            metadata=msgspec.structs.replace(self.metadata, labels={}, annotations={}),
            spec=_NO_SPEC,
            unusable=reason,
            name_only=True,
            may_deny=_may_deny(self.spec),
        )

    def means_the_same(self, other: "StoredPolicy") -> bool:
        """Tell whether another version of the object differs in nothing that is loaded."""
        mine, others = self.metadata, other.metadata
        return (self.spec, self.unusable, mine.labels, mine.annotations) == (
            other.spec,
            other.unusable,
            others.labels,
            others.annotations,
        )


class _Failing(Wire, frozen=True):
    """The field of a spec with the behavior if the policy cannot be evaluated."""

    failure_policy: Any = "Fail"


class PolicyLimits:
    """The limits of the policies in memory, of each namespace and of the cluster.

    Args of the constructor:
        most: Policies that are loaded, and as many again that deny the requests that they match.
        most_bytes: Their length, likewise.
    """

    def __init__(self, most: int = MOST_POLICIES, most_bytes: int = MOST_POLICY_BYTES) -> None:
        self._loaded = NamespaceLimits(most, most_bytes)
        self._guarding = NamespaceLimits(most, most_bytes)

    def keep(self, policy: StoredPolicy, resource: Resource) -> StoredPolicy:
        """Return a policy as it is kept: with a copy of its text, or less beyond the limits."""
        stored = StoredPolicy(
            metadata=policy.metadata,
            api_version=resource.api_version,
            kind=resource.kind,
            spec=policy.spec.copy(),
            status=_conditions(policy.status) if is_kyverno_group(resource.group) else _NO_SPEC,
        )
        key = stored.key
        size = len(memoryview(policy.spec)) + _length(policy.metadata)
        self._guarding.drop(key.namespace, key)
        if self._loaded.put(key.namespace, key, size):
            return stored
        reason = self._loaded.too_many(key.namespace)
        if self._guarding.put(key.namespace, key, size):
            return msgspec.structs.replace(stored, unusable=reason)
        return stored.only_named(reason)

    def drop(self, key: PolicyKey) -> None:
        """Count a policy no longer."""
        self._loaded.drop(key.namespace, key)
        self._guarding.drop(key.namespace, key)

    def no_room_reason(self, document: Document) -> str:
        """Say why a policy would not be loaded; return nothing if it would be."""
        metadata = document.value["metadata"]
        namespace = metadata.get("namespace", "")
        key = PolicyKey(document.value["kind"], namespace, metadata["name"])
        size = len(msgspec.json.encode(document.value.get("spec")))
        has_room = self._loaded.has_room(namespace, key, size)
        return "" if has_room else self._loaded.too_many(namespace)


def guards(policies: Iterable[StoredPolicy]) -> tuple[CompiledPolicy, ...]:
    """Return the placeholders for policies of which only the name is kept, one a namespace."""
    reasons = {p.metadata.namespace: p.unusable for p in policies if p.may_deny}
    return tuple(_guard(namespace, reasons[namespace]) for namespace in sorted(reasons))


def _guard(namespace: str, reason: str) -> CompiledPolicy:
    """Return a policy that denies each write in a namespace, or in all of them if it is empty."""
    every = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": "Namespaced"}
    constraints: dict[str, Json] = {
        "resourceRules": [{**every, "operations": ["CREATE", "UPDATE"]}]
    }
    if namespace:
        constraints["namespaceSelector"] = {"matchLabels": {NAME_LABEL: namespace}}
    spec = {"matchConstraints": constraints, "validations": [{"expression": "false"}]}
    value = {"apiVersion": API_VERSION, "kind": "Policy", "metadata": {"name": "g"}, "spec": spec}
    (compiled,) = load_document(Document(value, "")).policies
    # No object can have this name.
    name = f"policies of namespace {namespace}" if namespace else "policies of the cluster"
    return replace(compiled, name=name, unusable=reason)


def _conditions(status: msgspec.Raw) -> msgspec.Raw:
    """Return the conditions of a status, which may be anything."""
    try:
        found = conditions_in(msgspec.json.decode(status))
    except (msgspec.DecodeError, RecursionError):
        found = []
    return msgspec.Raw(msgspec.json.encode({"conditions": found})) if found else _NO_SPEC


def _length(metadata: PolicyMetadata) -> int:
    texts = (metadata.labels, metadata.annotations)
    return sum(len(key) + len(text) for each in texts for key, text in each.items())


def _may_deny(spec: msgspec.Raw) -> bool:
    try:
        return bool(msgspec.json.decode(spec, type=_Failing).failure_policy != "Ignore")
    except (msgspec.DecodeError, RecursionError):
        return True
