"""Match conditions that the API server can ask in our place, with exactly our answer.

A match condition of a webhook that fails leads to the webhook's failurePolicy, not to that of the
policy it came from. So only conditions are handed over that cannot fail: comparisons of fields that
surely exist, or were tested by `has`, `in` or `?` before. None that uses later additions than match
conditions of webhooks is. Loops are handed over only for pods, whose types the API server has
checked: few pods request a GPU, or have what a condition on `pod` asks for, so that this spares
most calls, and others can be created while no webhook answers. A condition that can be handed over
in parts only is: the webhooks evaluate all of it in any case.
"""

from collections.abc import Iterable
from typing import Final

from policyd.api.admission import Rule
from policyd.api.gpus import GPU_PREFIXES, GPU_RESOURCES, PARTS
from policyd.api.selectors import Requirement
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.cel.syntax.unparse import unparse
from policyd.registration.atoms import RuleAtom
from policyd.registration.pod_conditions import PLAIN_KINDS, WHOLE, is_sure_of_pods, of_pod

_Path = tuple[str, ...]
_Known = frozenset[_Path]

_REQUEST: Final[_Known] = frozenset(
    {("request",), ("request", "operation")}
    | {("request", "userInfo"), ("request", "userInfo", "username")}
    | {("request", what) for what in ("kind", "resource")}
    | {("request", "kind", part) for part in ("group", "version", "kind")}
    | {("request", "resource", part) for part in ("group", "version", "resource")}
)
"""Fields of every request; an empty field may be left out."""

_OBJECTS: Final[_Known] = frozenset({("object",), ("oldObject",)})
"""Either of which is null where there is none, and has metadata where there is one."""

_CONNECTING: Final = frozenset({"CONNECT", "*"})
"""Operations whose object is none that is stored, and has no metadata."""

_PRESENCE: Final = {
    "object": frozenset({"CREATE", "UPDATE"}),
    "oldObject": frozenset({"UPDATE", "DELETE"}),
}
"""The operations that have an object, with its metadata, for sure."""

_TEXTS: Final = frozenset({"startsWith", "endsWith", "contains"})

_CONTAINERS: Final = frozenset({"labels", "annotations", "groups", "finalizers"})

_NOTHING: Final[_Known] = frozenset()


def exported(expressions: Iterable[str], rule: Rule) -> tuple[str, ...]:
    """Return those of a policy's match conditions that the API server can ask itself.

    The webhooks evaluate conditions that are left out: that only means more calls.

    Args:
        expressions: CEL that compiles, and that is asked of the request as a whole.
        rule: The requests that they are asked about.
    """
    known = _REQUEST if _CONNECTING.intersection(rule.operations) else _REQUEST | _OBJECTS
    there = {
        (name, "metadata")
        for name, operations in _PRESENCE.items()
        if operations.issuperset(rule.operations)
    }
    return tuple(
        asked
        for text in expressions
        if (asked := _asked(text, parse(text), rule, known | there)) is not None
    )


def _asked(text: str, node: ast.ExpressionNode, rule: Rule, known: _Known) -> str | None:
    """Return CEL that the API server can evaluate, true wherever a condition is; None if none is.

    Of conditions that must all hold, those are left out that only the webhooks can evaluate.
    """
    if not isinstance(node, ast.Logic) or not node.conjunction or _is_sure(node, known):
        return _asked_whole(text, node, rule, known)
    whole = _asked_whole(text, node, rule, known)
    parts = [_asked(unparse(part), part, rule, known) for part in node.operands if whole is None]
    found = [part for part in dict.fromkeys(parts) if part is not None]
    return whole or (all_of(found) if found[1:] else next(iter(found), None))


def _asked_whole(text: str, node: ast.ExpressionNode, rule: Rule, known: _Known) -> str | None:
    """Return CEL for a condition of which nothing is left out."""
    if _is_sure(node, known):
        return text
    if not _PRESENCE["object"].issuperset(rule.operations):
        return None
    subresources = _subresources(rule)
    if _wants_devices(node, subresources):
        return MAY_ASK_FOR_DEVICES
    if subresources <= WHOLE and is_sure_of_pods(node):
        return of_pod(text)
    parts = [
        _asked_whole(unparse(part), part, rule, known)
        for part in (node.operands if isinstance(node, ast.Logic) else ())
    ]
    found = [part for part in dict.fromkeys(parts) if part is not None]
    if None in parts or len(found) < 2:
        return None if None in parts else next(iter(found), None)
    joined = all_of if isinstance(node, ast.Logic) and node.conjunction else any_of
    return joined(found)


def _subresources(rule: Rule) -> frozenset[str]:
    """Return the subresources that a rule names: an empty name for the objects themselves."""
    return frozenset(resource.partition("/")[2] for resource in rule.resources)


def _wants_devices(node: ast.ExpressionNode, subresources: frozenset[str]) -> bool:
    """Tell whether an expression is true only of pods that may request a GPU or claim devices.

    That is `workload.gpus() > 0`, `workload.claims() > 0`, and these or a kind that has no plain
    pod, or a subresource that the rule does not name.
    """
    match node:
        case ast.Logic(conjunction=False, operands=operands):
            return all(_wants_devices(operand, subresources) for operand in operands)
        case ast.Call(
            function="_==_",
            arguments=(
                ast.Call(
                    function="orValue",
                    target=ast.Select(
                        operand=ast.Identifier(name="request"), field="subResource", optional=True
                    ),
                    arguments=(ast.Literal(value=""),),
                ),
                ast.Literal(value=str(named)),
            ),
        ):
            return bool(named) and subresources.isdisjoint((named, "*"))
        case ast.Call(
            function="_==_",
            arguments=(
                ast.Select(operand=ast.Identifier(name="object"), field="kind"),
                ast.Literal(value=str(kind)),
            ),
        ):
            return kind not in PLAIN_KINDS
        case ast.Call(
            function="@in",
            arguments=(
                ast.Select(operand=ast.Identifier(name="object"), field="kind"),
                ast.ListLiteral(elements=named_kinds),
            ),
        ):
            return all(
                isinstance(each, ast.Literal) and each.value not in PLAIN_KINDS
                for each in named_kinds
            )
        case ast.Call(
            function="_>_",
            arguments=(
                ast.Call(
                    function="gpus" | "claims" | "devices",
                    target=ast.Identifier(name="pod" | "workload"),
                ),
                ast.Literal(value=int(least)),
            ),
        ):
            return least >= 0
        case _:
            return False


def _may_ask_for_devices() -> str:
    """Write as CEL whether an object may ask for GPUs or claim devices.

    It is true of kinds without a plain pod, and never fails: a missing field requests nothing.
    """
    names = ", ".join(map(_quoted, sorted(GPU_RESOURCES)))
    begins = "".join(f" || r.startsWith({_quoted(prefix)})" for prefix in GPU_PREFIXES)
    of_map = f"m.exists(r, r in [{names}]{begins})"
    sides = "{0}.?resources.?limits.orValue({{}}), {0}.?resources.?requests.orValue({{}})"
    spec = "pod.?spec"
    lists = f"{spec}.?containers.orValue([]), {spec}.?initContainers.orValue([])"
    of_list = f"l.exists(c, [{sides.format('c')}].exists(m, {of_map}))"
    of_whole = f"[{sides.format(spec)}, {spec}.?overhead.orValue({{}})].exists(m, {of_map})"
    claims = f"{spec}.?resourceClaims.orValue([]).size() > 0"
    annotated = "pod.?metadata.?annotations.orValue({})"
    part = " || ".join(f"{_quoted(name)} in {annotated}" for name in PARTS)
    return of_pod(f"[{lists}].exists(l, {of_list}) || {of_whole} || {claims} || {part}")


def label_condition(requirements: Iterable[Requirement]) -> str:
    """Write an object selector as CEL: the object, or the one before, must meet all of it."""
    tests = tuple(requirements)
    return " || ".join(_labels_of(name, tests) for name in ("object", "oldObject"))


def name_condition(names: Iterable[str]) -> str:
    """Write the `resourceNames` of a policy's rule as CEL; webhooks' rules have none."""
    return f"has(request.name) && request.name in [{', '.join(map(_quoted, names))}]"


def namespace_condition(requirement: Requirement) -> str:
    """Write a requirement on the names of namespaces as CEL; what is in none is always meant."""
    here = "(has(request.namespace) ? request.namespace : '')"
    names = ", ".join(map(_quoted, requirement.values))
    if requirement.operator == "NotIn":
        return f"!({here} in [{names}])"
    return f"{here} in ['', {names}]"


def atom_condition(atom: RuleAtom) -> str:
    """Write as CEL which requests are of an atom, in any version: one version stands for others."""
    resource, _, part = atom.resource.partition("/")
    named = (("group", atom.group), ("resource", resource))
    tests = [f"request.resource.{n} == {_quoted(value)}" for n, value in named if value != "*"]
    if part != "*":
        tests.append(f"(has(request.subResource) ? request.subResource : '') == {_quoted(part)}")
    if atom.scope != "*":
        sign = "!=" if atom.scope == "Namespaced" else "=="
        tests.append(f"(has(request.namespace) ? request.namespace : '') {sign} ''")
    if atom.operation != "*":
        tests.append(f"request.operation == {_quoted(atom.operation)}")
    return " && ".join(tests) or "true"


def all_of(conditions: Iterable[str]) -> str:
    """Join conditions that must all be true; a comment at the end of one ends with its line."""
    return " && ".join(f"({condition}\n)" for condition in conditions)


def any_of(conditions: Iterable[str]) -> str:
    """Join conditions of which one must be true."""
    return " || ".join(f"({condition}\n)" for condition in conditions)


def _labels_of(name: str, tests: tuple[Requirement, ...]) -> str:
    there = f"{name} != null && has({name}.metadata)"
    return f"({' && '.join([there, *(_label(name, test) for test in tests)])})"


def _label(name: str, test: Requirement) -> str:
    labels, key = f"{name}.metadata.labels", _quoted(test.key)
    there = f"has({labels}) && {key} in {labels}"
    if test.operator == "Exists":
        return there
    if test.operator == "DoesNotExist":
        return f"!({there})"
    one_of = f"{there} && {labels}[{key}] in [{', '.join(map(_quoted, test.values))}]"
    return one_of if test.operator == "In" else f"!({one_of})"


def _quoted(text: str) -> str:
    escaped = text.encode("unicode_escape").decode().replace("'", "\\'")
    return f"'{escaped}'"


def _is_sure(node: ast.ExpressionNode, known: _Known) -> bool:
    """Tell whether an expression is true or false of every request, and never fails."""
    match node:
        case ast.Literal(value=value):
            return isinstance(value, bool)
        case ast.Has(operand=operand):
            return _is_there(operand, known)
        case ast.Logic(conjunction=conjunction, operands=operands):
            return _chain_is_sure(operands, known, conjunction=conjunction)
        case ast.Call(target=ast.ExpressionNode() as text, function=name, arguments=(part,)):
            return name in _TEXTS and _is_text(text, known) and _is_text(part, known)
        case ast.Call(function=operator, arguments=arguments):
            return _operator_is_sure(operator, arguments, known)
        case _:
            return False


def _operator_is_sure(
    operator: str, operands: tuple[ast.ExpressionNode, ...], known: _Known
) -> bool:
    if operator == "!_":
        return _is_sure(operands[0], known)
    if operator in {"_==_", "_!=_"}:
        return all(_is_value(operand, known) for operand in operands)
    return operator == "@in" and _is_value(operands[0], known) and _is_filled(operands[1], known)


def _chain_is_sure(operands: list[ast.ExpressionNode], known: _Known, *, conjunction: bool) -> bool:
    for operand in operands:
        if not _is_sure(operand, known):
            return False
        known |= _learned(operand, holds=conjunction)
    return True


def _learned(node: ast.ExpressionNode, *, holds: bool) -> _Known:
    """Return the paths that exist if `node` is true, or if it is false."""
    match node:
        case ast.Call(function="!_", arguments=(inner,)):
            return _learned(inner, holds=not holds)
        case ast.Logic(conjunction=conjunction, operands=operands) if conjunction is holds:
            return _NOTHING.union(*(_learned(operand, holds=holds) for operand in operands))
        case ast.Has(operand=inner, field=key) if holds:
            return _known_path(inner, key)
        case ast.Call(function="@in", arguments=(ast.Literal(value=str() as key), inner)) if holds:
            return _known_path(inner, key)
        case ast.Call(function="_!=_" | "_==_" as operator, arguments=operands):
            return _learned_of_null(operands) if holds is (operator == "_!=_") else _NOTHING
        case _:
            return _NOTHING


def _learned_of_null(operands: tuple[ast.ExpressionNode, ...]) -> _Known:
    """Return the paths that exist if `object != null`."""
    match operands:
        case (ast.Identifier(name=name), ast.Literal(value=None)):
            return frozenset({(name, "metadata")})
        case _:
            return _NOTHING


def _known_path(operand: ast.ExpressionNode, field: str) -> _Known:
    path = _path(operand)
    return _NOTHING if path is None else frozenset({(*path, field)})


def _is_value(node: ast.ExpressionNode, known: _Known) -> bool:
    match node:
        case ast.Literal():
            return True
        case ast.ListLiteral(elements=elements, optionals=optionals):
            return not optionals and all(_is_value(element, known) for element in elements)
        case ast.MapLiteral(entries=()):
            return True
        case ast.Call(
            function="orValue", target=ast.ExpressionNode() as optional, arguments=(other,)
        ):
            return _is_optional(optional, known) and _is_value(other, known)
        case _:
            return _path(node) in known


def _is_optional(node: ast.ExpressionNode, known: _Known) -> bool:
    """Tell whether `a.?b.?c` or `a[?'b']` never fails."""
    match node:
        case ast.Select(operand=operand, optional=True):
            return _is_optional(operand, known) or _is_there(operand, known)
        case ast.Index(operand=operand, index=ast.Literal(value=str()), optional=True):
            return _is_optional(operand, known) or _is_there(operand, known)
        case _:
            return False


def _is_there(node: ast.ExpressionNode, known: _Known) -> bool:
    """Tell whether `node` is an object for sure, so that its fields can be asked for."""
    path = _path(node)
    if path is None:
        return False
    return (*path, "metadata") in known or path in known - _OBJECTS


def _is_filled(node: ast.ExpressionNode, known: _Known) -> bool:
    """Tell whether `x in node` never fails: a list, or the items of such fields."""
    match node:
        case ast.ListLiteral():
            return _is_value(node, known)
        case ast.Call(function="orValue", arguments=(ast.ListLiteral() | ast.MapLiteral(),)):
            return _is_value(node, known)
        case _:
            path = _path(node) or ()
            return path in known and path[-1] in _CONTAINERS


def _is_text(node: ast.ExpressionNode, known: _Known) -> bool:
    if isinstance(node, ast.Literal):
        return isinstance(node.value, str)
    path = _path(node) or ()
    return path in known and (path[0] == "request" or path[1:2] == ("metadata",))


def _path(node: ast.ExpressionNode) -> _Path | None:
    match node:
        case ast.Identifier(name=name):
            return (name,)
        case (
            ast.Select(operand=operand, field=field, optional=False)
            | ast.Index(operand=operand, index=ast.Literal(value=str() as field), optional=False)
        ):
            inner = _path(operand)
            return None if inner is None else (*inner, field)
        case _:
            return None


MAY_ASK_FOR_DEVICES: Final = _may_ask_for_devices()
"""CEL for all pods for which a condition for devices may be true: an outage stops no other pods."""
