"""The reads of changes in a pod: the values they merge with, and those at the paths they name."""

from collections.abc import Iterator, Mapping
from typing import Final

from policyd.api.kueue.names import (
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PRIORITY_CLASS,
    QUEUE_NAME,
)
from policyd.cel import Program
from policyd.cel.recursion import deep_recursion
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.engine.inject.merging import TOPOLOGY
from policyd.engine.inject.operations import InjectedField
from policyd.engine.inject.templates import set_fields
from policyd.engine.model.compiled import MUTATING, CompiledMutation, CompiledPolicy
from policyd.engine.objects.pods import ASKED_FOR
from policyd.engine.remember.footprint_tree import ANNOTATIONS, LABELS, UnboundedError

Path = tuple[str, ...]

Text = tuple[str, bool]
"""The beginning of a text, and whether that is all of it."""

_UNKNOWN: Final = frozenset({("", False)})
_VERBS: Final = frozenset((verb, True) for verb in ("add", "replace", "remove"))
_MOST_TEXTS: Final = 64
_LONGEST_TEXT: Final = 1024

_MERGED: Final[Mapping[str, tuple[Path, ...]]] = {
    "queueName": ((*LABELS, QUEUE_NAME),),
    "workloadPriorityClassName": ((*LABELS, PRIORITY_CLASS),),
    "gang": (
        (*LABELS, POD_GROUP_NAME),
        (*ANNOTATIONS, POD_GROUP_NAME),
        (*ANNOTATIONS, POD_GROUP_TOTAL_COUNT),
    ),
    "topology": tuple((*ANNOTATIONS, key) for key in TOPOLOGY.values()),
    "resources": ASKED_FOR,
}
"""The reads of merging an injected field, unless they are the fields of the spec that it sets."""

_KEYED: Final[Mapping[str, Path]] = {
    "objectLabels": LABELS,
    "labels": LABELS,
    "objectAnnotations": ANNOTATIONS,
    "annotations": ANNOTATIONS,
}
"""Fields whose entries are merged one by one, and their keys."""


def changed(policy: CompiledPolicy) -> Iterator[Path]:
    """Yield the paths that a policy's changes read, besides its expressions.

    Raises:
        UnboundedError: If they cannot be determined.
    """
    for step in policy.steps:
        yield from _injected(policy, step)
    for mutation in policy.mutations:
        yield from _mutated(policy, mutation)


def _injected(policy: CompiledPolicy, step: InjectedField) -> Iterator[Path]:
    if step.field in _MERGED:
        yield from _MERGED[step.field]
    elif step.field in _KEYED:
        assert policy.policy.spec.inject is not None, "there are steps"
        entries = set_fields(policy.policy.spec.inject)[step.field]
        yield from ((*_KEYED[step.field], key) for key in entries)
    else:
        yield from (("spec", field) for field in step.writes)


def _mutated(policy: CompiledPolicy, mutation: CompiledMutation) -> Iterator[Path]:
    """Yield the paths that a mutation by CEL is applied to."""
    if policy.kind == MUTATING:  # the API server checks the whole pod before it applies anything
        yield ("spec",)
    with deep_recursion():
        yield from _made(parse(mutation.program.source), _Texts(policy.variables))


class _Texts:
    """The possible texts of expressions, as far as an expression or variables spell them out."""

    def __init__(self, variables: Mapping[str, Program]) -> None:
        self._programs = variables
        self._variables: dict[str, frozenset[Text]] = {}

    def of(self, node: ast.ExpressionNode) -> frozenset[Text]:
        """Return the possible texts, or their beginnings.

        Raises:
            UnboundedError: If that is too much to follow.
        """
        found = _UNKNOWN
        match node:
            case ast.Literal(value=str() as text):
                found = frozenset({(text, True)})
            case ast.Conditional(then=then, otherwise=otherwise):
                found = self.of(then) | self.of(otherwise)
            case ast.Call(function="_+_", arguments=(left, right)):
                found = _sums(self.of(left), self.of(right))
            case ast.Select(operand=ast.Identifier(name="variables"), field=name):
                found = self._variable(name)
            case _:
                pass
        if len(found) > _MOST_TEXTS or any(len(text) > _LONGEST_TEXT for text, _ in found):
            raise UnboundedError
        return found

    def _variable(self, name: str) -> frozenset[Text]:
        if name not in self._variables and name in self._programs:
            self._variables[name] = self.of(parse(self._programs[name].source))
        return self._variables.get(name, _UNKNOWN)


def _sums(left: frozenset[Text], right: frozenset[Text]) -> frozenset[Text]:
    whole = [text for text, complete in left if complete]
    sums = {(text + more, complete) for text in whole for more, complete in right}
    return frozenset(sums.union((text, False) for text, complete in left if not complete))


def _made(node: ast.ExpressionNode, texts: _Texts) -> Iterator[Path]:
    """Yield where the objects go that an expression makes."""
    if isinstance(node, ast.StructLiteral):
        fields = {field.name: field.value for field in node.fields}
        if node.name == "JSONPatch":
            yield from _patched(fields, texts)
        else:
            yield from _applied(node.name, fields)
    for part in ast.children(node):
        yield from _made(part, texts)


def _applied(name: str, fields: Mapping[str, ast.ExpressionNode]) -> Iterator[Path]:
    """Yield the paths that `Object{…}` and `Object.spec{…}` merge with; the rest is in these."""
    if name == "Object":
        whole = (f for f, value in fields.items() if not isinstance(value, ast.StructLiteral))
        yield from map(_two_levels, ((field,) for field in whole))
    elif name.count(".") == 1:
        yield from (_two_levels((name.partition(".")[2], field)) for field in fields)


def _patched(fields: Mapping[str, ast.ExpressionNode], texts: _Texts) -> Iterator[Path]:
    """Yield the paths of an operation that does not test existing values."""
    nothing = ast.Literal(0, None)
    if not texts.of(fields.get("op", nothing)) <= _VERBS:
        raise UnboundedError
    for path, complete in texts.of(fields.get("path", nothing)):
        steps = path.split("/")[1:]
        yield _two_levels(tuple(steps if complete else steps[:-1]))


def _two_levels(path: Path) -> Path:
    """Return the path of the value that is read whole because of a path.

    Of the metadata, that must be more than all of it: there, every pod is its own.
    """
    if not path or path == ("metadata",) or path[:2] == ("metadata", "managedFields"):
        raise UnboundedError
    return path[:2]
