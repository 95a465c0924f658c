"""Match requests with rules and selectors, as the API server does.

Rules look at the envelope alone. Selectors look at labels, of the namespace or of the object, and
are asked last. Nothing here evaluates CEL.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from policyd.api.admission import AdmissionRequest, Operation, Rule
from policyd.api.meta import Json
from policyd.api.selectors import LabelSelector
from policyd.errors import PolicydError

NamespaceLookup = Callable[[str], Mapping[str, Json] | None]
"""Returns the Namespace object of a name, as decoded JSON; None if it is not known (yet)."""


class UnknownNamespaceError(PolicydError):
    """A namespace selector has to be decided, and the namespace is not known."""

    def __init__(self, name: str) -> None:
        super().__init__(f"namespace `{name}` is not known yet", hint="try again in a moment")


class RequestAttributes(msgspec.Struct, frozen=True, kw_only=True):  # made for each request
    """The envelope of a request, as far as rules look at it.

    As in the API server, a request for a Namespace object carries that namespace's own name in
    `namespace`, and is cluster-scoped all the same.
    """

    group: str
    version: str
    resource: str
    subresource: str = ""
    operation: Operation
    namespace: str = ""
    name: str = ""

    @property
    def for_namespace(self) -> bool:
        """Whether the object itself is a Namespace."""
        return self.resource == "namespaces" and not self.group

    @property
    def namespaced(self) -> bool:
        """Whether the object lives in a namespace."""
        return bool(self.namespace) and not self.for_namespace


def attributes_of(request: AdmissionRequest) -> RequestAttributes:
    """Return the attributes of `request`, in the version that the API server converted to."""
    return RequestAttributes(
        group=request.resource.group,
        version=request.resource.version,
        resource=request.resource.resource,
        subresource=request.sub_resource,
        operation=request.operation,
        namespace=request.namespace,
        name=request.name,
    )


def original_attributes_of(request: AdmissionRequest) -> RequestAttributes:
    """Return the attributes for rules with `matchPolicy: Exact`: the request as it was sent."""
    resource = request.request_resource
    if resource is None:
        return attributes_of(request)
    return RequestAttributes(
        group=resource.group,
        version=resource.version,
        resource=resource.resource,
        subresource=request.request_sub_resource or request.sub_resource,
        operation=request.operation,
        namespace=request.namespace,
        name=request.name,
    )


def rules_match(
    rules: Iterable[Rule], exclude: Iterable[Rule], attributes: RequestAttributes
) -> bool:
    """Tell whether any of `rules` concerns the request and none of `exclude` does."""
    return any(rule_matches(rule, attributes) for rule in rules) and not any(
        rule_matches(rule, attributes) for rule in exclude
    )


def rule_matches(rule: Rule, attributes: RequestAttributes) -> bool:
    """Tell whether one rule concerns the request."""
    return (
        rule_names(rule, attributes)
        and _in_scope(rule.scope, attributes)
        and (not rule.resource_names or attributes.name in rule.resource_names)
    )


def rule_names(rule: Rule, attributes: RequestAttributes) -> bool:
    """Tell whether a rule has the resource and operation, regardless of the name and scope.

    The answer is the same for all requests of a resource, version and operation.
    """
    return (
        _named(rule.operations, attributes.operation)
        and _named(rule.api_groups, attributes.group)
        and resource_matches(rule.resources, attributes.resource, attributes.subresource)
        and _named(rule.api_versions, attributes.version)
    )


def is_named_only(rule: Rule) -> bool:
    """Tell whether a rule that names a request's resource and operation concerns it for sure."""
    return rule.scope == "*" and not rule.resource_names


def resource_matches(patterns: Iterable[str], resource: str, subresource: str = "") -> bool:
    """Tell whether any of `patterns` (`pods`, `pods/log`, `*/scale`, `*`, `*/*`) names it."""
    for pattern in patterns:
        wanted, _, wanted_sub = pattern.partition("/")
        if wanted in ("*", resource) and wanted_sub in ("*", subresource):
            return True
    return False


def selects_namespace(
    selector: LabelSelector,
    attributes: RequestAttributes,
    obj: Json,
    *,
    namespaces: NamespaceLookup,
) -> bool:
    """Tell whether the namespace of the request has the labels that `selector` asks for.

    Cluster objects are never filtered. A Namespace that is created or changed is selected
    by its own labels, `obj` being that object.

    Raises:
        UnknownNamespaceError: If `namespaces` does not know the namespace.
    """
    if not attributes.namespace and attributes.resource != "namespaces":
        return True
    if not selector.match_labels and not selector.match_expressions:
        return True
    if obj is not None and attributes.for_namespace and not attributes.subresource:
        return selector.matches(labels_of(obj))
    namespace = namespaces(attributes.namespace)
    if namespace is None:
        raise UnknownNamespaceError(attributes.namespace)
    return selector.matches(labels_of(namespace))


def selects_object(selector: LabelSelector, obj: Json, old_obj: Json) -> bool:
    """Tell whether the object, or the object as it was before, has the labels asked for.

    An object that cannot have labels, such as the options of `kubectl exec`, is not selected.
    """
    if not selector.match_labels and not selector.match_expressions:
        return True
    if _has_metadata(obj) and selector.matches(labels_of(obj)):
        return True
    return old_obj is not None and _has_metadata(old_obj) and selector.matches(labels_of(old_obj))


def selects_all(selector: LabelSelector) -> bool:
    """Tell whether `selector` asks for nothing."""
    return not selector.match_labels and not selector.match_expressions


_TEXTS: Final = frozenset({str})


def labels_of(obj: Json) -> Mapping[str, str]:
    """Return the labels of an object, empty when it has none or any of them is misshapen."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels if isinstance(labels, dict) and set(map(type, labels.values())) <= _TEXTS else {}


def _has_metadata(obj: Json) -> bool:
    if not isinstance(obj, dict):
        return False
    return "metadata" in obj or not str(obj.get("kind", "")).endswith("Options")


def _named(patterns: tuple[str, ...], word: str) -> bool:
    return word in patterns or "*" in patterns


def _in_scope(scope: str, attributes: RequestAttributes) -> bool:
    if scope == "*":
        return True
    return attributes.namespaced == (scope == "Namespaced")
