"""The unknown request of a proof: which kinds policies match, and what their objects may be."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec
import z3

from policyd.api.admission import Operation, Rule
from policyd.api.kinds import BuiltinResource, resource, resources
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.objects.workloads import KINDS as WORKLOADS
from policyd.prove.schemas import (
    ANY,
    KINDS,
    Kind,
    ValueSchema,
    one_text,
    open_schema,
    perhaps,
    struct_schema,
)
from policyd.prove.values import UnencodableError
from policyd.prove.world import UnknownValue, World

Side = tuple[CompiledPolicy, ...]
"""Policies that are in force together: a request is denied if one of them denies it."""
_OPERATIONS: Final[tuple[Operation, ...]] = ("CREATE", "UPDATE", "DELETE", "CONNECT")
_MOST_KINDS: Final = 40
_OBJECT_OR_NULL: Final[frozenset[Kind]] = frozenset({"map", "null"})
_NULL: Final[frozenset[Kind]] = frozenset({"null"})
_TEXT: Final = one_text(None)
_PERHAPS: Final = replace(_TEXT, kinds=frozenset({"absent", "string"}))
_TEMPLATE: Final = "core/v1.PodTemplateSpec"
_SAME_OBJECT: Final = frozenset({"", "ephemeralcontainers", "resize", "status"})
"""Subresources whose requests have the whole object."""


class UnknownRequest(NamedTuple):
    """The unknown parts of a request.

    `kind` is that of its object; None if it may be any. `relaxed` is set if the object is a pod
    that stands for pod templates, which have less.
    """

    object: UnknownValue
    old_object: UnknownValue
    request: UnknownValue
    params: UnknownValue
    namespace: UnknownValue
    kind: BuiltinResource | None
    relaxed: bool

    def alike(self, other: "UnknownRequest", policies: Side) -> bool:
        """Whether policies mean the same for another one, of another kind."""
        kinds = self.kind, other.kind
        if None in kinds or len({tuple(places_of(kind)) for kind in kinds if kind}) > 1:
            return False
        if any(len({operations_of(policy, kind) for kind in kinds}) > 1 for policy in policies):
            return False
        return all(mine.alike(its) for mine, its in zip(self[:5], other[:5], strict=True))


def places_of(kind: BuiltinResource) -> Iterator[tuple[str, ...]]:
    """Yield where objects of a kind have pods."""
    for each in WORKLOADS:
        if (each.group, each.kind) == (kind.group, kind.kind):
            yield from (place.path for place in each.places)


def pods() -> BuiltinResource:
    """Return the kind of pods."""
    found = resource("", "v1", "pods")
    assert found is not None
    return found


def kinds_of_all(policies: Side) -> list[BuiltinResource | None]:
    """Return the kinds that one of some policies matches.

    Raises:
        UnencodableError: If they are too many, or their match rules cannot be compared.
    """
    found = {
        kind and (kind.group, kind.version, kind.plural): kind
        for policy in policies
        for kind in kinds_of(policy)
    }
    same = all(p.constraints == policies[0].constraints for p in policies)
    if None in found and not same:
        raise UnencodableError("policies of any kinds with different match rules")
    return list(found.values())


def kinds_of(policy: CompiledPolicy) -> Iterator[BuiltinResource | None]:
    """Yield the kinds that a policy matches, or None for any kind.

    Raises:
        UnencodableError: If they are too many.
    """
    names = (
        name
        for rule in policy.constraints.resource_rules
        for name in itertools.product(rule.api_groups, rule.api_versions, rule.resources)
    )
    found: list[BuiltinResource] = []
    for group, version, path in dict.fromkeys(names):
        plural, _, part = path.partition("/")
        if "*" in plural or part not in _SAME_OBJECT:
            yield None
            return
        alike = [each for each in resources() if each.plural == plural]
        alike = [each for each in alike if group in ("*", each.group)]
        of_kind = [each for each in alike if version in ("*", each.version)]
        if group == "*" or (alike and not of_kind):
            yield None
        elif not of_kind and "." in group and not _known_elsewhere(group, plural):
            of_kind = [_custom(group, version, plural)]
        found += of_kind
    kinds = list({(each.group, each.version, each.plural): each for each in found}.values())
    if len(kinds) > _MOST_KINDS:
        raise UnencodableError(f"policies for more than {_MOST_KINDS} kinds")
    yield from kinds


def _known_elsewhere(group: str, plural: str) -> bool:
    """Tell whether a resource is one of another group: rules name each group with each resource."""
    groups = {each.group for each in WORKLOADS if each.plural == plural}
    groups |= {each.group for each in resources() if each.plural == plural}
    return bool(groups) and group not in groups


def _custom(group: str, version: str, plural: str) -> BuiltinResource:
    """Return a kind that is not built in, by its resource: it may have any fields."""
    known = (each.kind for each in WORKLOADS if (each.group, each.plural) == (group, plural))
    return BuiltinResource(
        group=group,
        version="v1" if version == "*" else version,
        plural=plural,
        singular="",
        kind=next(known, plural.capitalize()),
        namespaced=True,
        type_name="",
        verbs=(),
    )


def operations_of(policy: CompiledPolicy, kind: BuiltinResource | None) -> tuple[Operation, ...]:
    """Return the operations for which a policy matches objects of a kind.

    Raises:
        UnencodableError: If it matches them as objects of another version.
    """
    rules = policy.constraints.resource_rules
    if kind is not None:
        rules = tuple(rule for rule in rules if _concerns(rule, kind))
        if not all(kind.version in rule.api_versions or "*" in rule.api_versions for rule in rules):
            raise UnencodableError(f"a policy for another version of {kind.plural}")
    return operations_in(rules)


def operations_in(rules: Iterable[Rule]) -> tuple[Operation, ...]:
    """Return the operations that rules name."""
    named = {each for rule in rules for each in rule.operations}
    return tuple(each for each in _OPERATIONS if each in named or "*" in named)


def _concerns(rule: Rule, kind: BuiltinResource) -> bool:
    return not {"*", kind.group}.isdisjoint(rule.api_groups) and any(
        path.partition("/")[0] in ("*", kind.plural) for path in rule.resources
    )


def unknown_request(
    world: World, policies: Side, kind: BuiltinResource | None, *, relaxed: bool = False
) -> UnknownRequest:
    """Return the unknown parts of a request that a policy matches, for one kind of object."""
    matched = {each for policy in policies for each in operations_of(policy, kind)}
    operations = tuple(each for each in _OPERATIONS if each in matched)
    schema = ANY
    known: tuple[str | None, ...] = (None, None, None, None)
    if relaxed:
        schema = _schema_of_templates()
    elif kind is not None:
        known = kind.group, kind.version, kind.kind, kind.plural
        schema = _schema_of(kind)
    group, version, name, plural = map(one_text, known)
    namespace = struct_schema("core/v1.Namespace")
    names = dict.fromkeys(("group", "version", "kind"), _TEXT)
    places = dict.fromkeys(("group", "version", "resource"), _TEXT)
    strings = ValueSchema(kinds=frozenset({"list"}), element=_TEXT)
    user = {
        "username": _TEXT,
        "uid": _PERHAPS,
        "groups": strings,
        "extra": ValueSchema(kinds=frozenset({"absent", "map"}), element=strings),
    }
    fields = {
        "operation": replace(_TEXT, values=operations),
        "kind": _struct({"group": group, "version": version, "kind": name}),
        "resource": _struct({"group": group, "version": version, "resource": plural}),
        "requestKind": _struct(names),
        "requestResource": _struct(places),
        "name": _TEXT,
        "namespace": _PERHAPS,
        "subResource": _PERHAPS,
        "requestSubResource": _PERHAPS,
        "options": perhaps(ANY),
        "dryRun": ValueSchema(kinds=frozenset({"bool"})),
        "userInfo": _struct(user),
    }
    asked = any(policy.policy.spec.param_kind for policy in policies)
    of_params = _OBJECT_OR_NULL if asked else _NULL
    schema = replace(schema, kinds=_OBJECT_OR_NULL)
    new, old = (
        UnknownValue(world, root, schema, children=_known_fields(world, root, kind))
        for root in ("object", "oldObject")
    )
    # The objects are fields of the request, too, where an expression may name them: the types say.
    shared = {"object": new, "oldObject": old}
    return UnknownRequest(
        object=new,
        old_object=old,
        request=UnknownValue(world, "request", _struct(fields), children=shared),
        params=UnknownValue(world, "params", replace(ANY, kinds=of_params)),
        namespace=UnknownValue(world, "namespaceObject", replace(namespace, kinds=_OBJECT_OR_NULL)),
        kind=kind,
        relaxed=relaxed,
    )


def _schema_of(kind: BuiltinResource) -> ValueSchema:
    if kind.type_name:
        return struct_schema(kind.type_name, api_version=kind.api_version, kind=kind.kind)
    places = [place for place in places_of(kind) if place]
    return open_schema(places, _TEMPLATE) if places else ANY


def _schema_of_templates() -> ValueSchema:
    """Return the schema of a pod that may have no more than a pod template."""
    whole = struct_schema(pods().type_name)
    of_pods = whole.fields or {}
    fewer = {"apiVersion": _PERHAPS, "kind": _PERHAPS, "metadata": perhaps(of_pods["metadata"])}
    return replace(whole, fields={**of_pods, **fewer})


def _known_fields(world: World, root: str, kind: BuiltinResource | None) -> dict[str, UnknownValue]:
    """Return the fields that each object of a custom kind has."""
    if kind is None or kind.type_name:
        return {}
    metadata = struct_schema("meta/v1.ObjectMeta").fields or {}
    known = {
        "apiVersion": one_text(kind.api_version),
        "kind": one_text(kind.kind),
        "metadata": _struct({**metadata, "name": replace(_TEXT, empty=False)}),
    }
    return {
        field: UnknownValue(world, f"{root}.{field}", schema) for field, schema in known.items()
    }


def _struct(fields: Mapping[str, ValueSchema]) -> ValueSchema:
    return ValueSchema(kinds=frozenset({"map"}), fields=fields)


def facts_of(request: UnknownRequest) -> Iterator[Any]:
    """Yield how the parts of a request depend on each other."""
    operation = request.request.field("operation")
    assert operation is not None
    named = operation.of("string")
    null = KINDS.index("null")
    yield (named == "DELETE") == (request.object.kind == null)
    yield z3.Or(named == "UPDATE", named == "DELETE") == (request.old_object.kind != null)


def may_be_joined(policy: CompiledPolicy, other: CompiledPolicy) -> bool:
    """Tell whether the match rules of two policies differ only in kinds and operations."""
    one, two = policy.constraints, other.constraints
    if one == two:
        return True
    rules = *one.resource_rules, *two.resource_rules
    plain = not any(rule.resource_names or rule.scope != "*" for rule in rules)
    return plain and msgspec.structs.replace(one, resource_rules=two.resource_rules) == two
