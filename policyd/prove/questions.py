"""Questions about policies, answered with a proof or with an object.

A policy denies a request if its conditions match and a validation is false, or fails where its
failurePolicy is Fail. The solver looks for objects, with at most so many elements in each list and
map, that answer the question otherwise; the engine then has to confirm what it found.
"""

import ctypes
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, cast

import z3

from policyd.api.admission import Operation, UserInfo
from policyd.api.kinds import BuiltinResource, resource, resources
from policyd.api.meta import Json
from policyd.cel.environment import Environment
from policyd.cel.errors import CelCompileError
from policyd.engine.compile.load import Loaded
from policyd.engine.model.bindings import needs_binding
from policyd.engine.model.compiled import NATIVE, CompiledBinding, CompiledPolicy, environments_of
from policyd.engine.offline.requests import (
    ObjectError,
    RequestCircumstances,
    namespace_lookup,
    offline_set,
    request_for,
)
from policyd.errors import PolicydError
from policyd.prove.encoder import Encoder
from policyd.prove.values import (
    FALSE,
    Outcome,
    UnencodableError,
    all_of,
    any_of,
    negation,
    sure,
)
from policyd.prove.world import (
    ANY,
    KINDS,
    Kind,
    UnknownValue,
    ValueSchema,
    World,
    struct_schema,
    truth,
)

Question = Literal["equal", "implies", "disjoint", "never-denies", "always-denies", "never-errors"]
OF_TWO: Final = frozenset({"equal", "implies", "disjoint"})
DEFAULT_BOUND: Final = 4
"""Elements of a list or map, at most."""
DEFAULT_SECONDS: Final = 5.0
"""For the solver, for each kind of object."""
_OPERATIONS: Final[tuple[Operation, ...]] = ("CREATE", "UPDATE", "DELETE", "CONNECT")
_MOST_KINDS: Final = 20
_MOST_ROUNDS: Final = 5
_OBJECT_OR_NULL: Final[frozenset[Kind]] = frozenset({"map", "null"})
_TEXT: Final = ValueSchema(kinds=frozenset({"string"}))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to a question.

    Attributes:
        verdict: `proved`, `refuted` or `unknown`.
        bound: The number of elements that lists and maps were given at most.
        why: Why it is unknown; empty otherwise.
        object: An object that refutes it, on which the engine agrees.
        old_object: The object before an update, if the request is one.
        operation: The operation of that request.
        user: The user of that request.
    """

    verdict: Literal["proved", "refuted", "unknown"]
    bound: int
    why: str = ""
    object: Json = None
    old_object: Json = None
    operation: Operation = "CREATE"
    user: UserInfo | None = None


class Meaning(NamedTuple):
    """The formulas of a policy: that it denies a request, and that an expression of it fails."""

    denies: Any
    fails: Any


class _Request(NamedTuple):
    """The unknown parts of a request."""

    object: UnknownValue
    old_object: UnknownValue
    request: UnknownValue
    params: UnknownValue
    namespace: UnknownValue


def answer(
    question: Question,
    policies: tuple[CompiledPolicy, ...],
    *,
    bound: int = DEFAULT_BOUND,
    seconds: float = DEFAULT_SECONDS,
) -> Answer:
    """Answer a question about one or two policies.

    Args:
        question: `equal`, `implies` (the first denies all that the second denies) and `disjoint`
            (they deny nothing both) are about two policies, the others about one.
        policies: The policies.
        bound: Elements of a list or map, at most.
        seconds: For the solver, for each kind of object.
    """
    why = _not_to_be_compared(question, policies)
    if why:
        return Answer(verdict="unknown", bound=bound, why=why)
    try:
        kinds = list(kinds_of(policies[0]))
    except UnencodableError as error:
        return Answer(verdict="unknown", bound=bound, why=f"policyd prove does not know {error}")
    found = Answer(verdict="proved", bound=bound)
    for kind in kinds:
        # An example with single elements is the easiest to read.
        of_kind = _answer_for(question, policies, kind, 1, seconds)
        if of_kind.verdict != "refuted":
            of_kind = _answer_for(question, policies, kind, bound, seconds)
        if of_kind.verdict == "refuted":
            return of_kind
        if of_kind.verdict == "unknown":
            found = of_kind
    return found


def _not_to_be_compared(question: Question, policies: tuple[CompiledPolicy, ...]) -> str:
    """Return why a question about policies has no formula; empty if it may have one."""
    first, *others = policies
    if question == "disjoint" and any(policy.templates for policy in policies):
        return "each of two pod templates in one object may be denied by another policy"
    if any((policy.kind in NATIVE) != (first.kind in NATIVE) for policy in others):
        return "the API server's own policies see objects in another form than those of webhooks"
    if any(policy.constraints != first.constraints for policy in others):
        return (
            "the policies do not match the same requests: compare policies with equal match rules"
        )
    return ""


def _answer_for(
    question: Question,
    policies: tuple[CompiledPolicy, ...],
    kind: BuiltinResource | None,
    bound: int,
    seconds: float,
) -> Answer:
    world = World(bound=bound, typed=policies[0].kind in NATIVE)
    request = unknown_request(world, policies[0], kind)
    try:
        found = meanings(world, request, policies)
    except UnencodableError as error:
        return Answer(verdict="unknown", bound=bound, why=f"policyd prove does not know {error}")
    except (CelCompileError, RecursionError, ctypes.ArgumentError) as error:
        why = str(error) if isinstance(error, CelCompileError) else "the formulas are too deep"
        return Answer(verdict="unknown", bound=bound, why=why)
    solver = z3.Tactic("smt").solver()  # asked once: the incremental one decides fewer strings
    solver.set("timeout", int(seconds * 1000))
    solver.add(*world.axioms(), _against(question, found))
    result = solver.check()
    if result == z3.unsat:
        return Answer(verdict="proved", bound=bound)
    if result == z3.unknown:
        why = f"the solver found no answer within {seconds:g} s"
        return Answer(verdict="unknown", bound=bound, why=why)
    return _confirmed(question, policies, _example(world, request, solver.model(), bound), kind)


def meanings(
    world: World, request: _Request, policies: Iterable[CompiledPolicy]
) -> tuple[Meaning, ...]:
    """Return what policies mean, once all fields that they ask for are known."""
    for _ in range(_MOST_ROUNDS):
        world.facts.clear()
        found = tuple(meaning(world, request, policy) for policy in policies)
        if not world.grown:
            world.facts += _facts(request)
            return found
    raise UnencodableError("policies that ask for new fields again and again")


def meaning(world: World, request: _Request, policy: CompiledPolicy) -> Meaning:
    """Return the formulas of a policy.

    Raises:
        UnencodableError: If a part of it has no formula.
    """
    _refuse_partly_encoded(policy)
    environments = environments_of(policy)
    roots: dict[str, Outcome] = {
        "object": sure(request.object),
        "oldObject": sure(request.old_object),
        "request": sure(request.request),
        "params": sure(request.params),
        "namespaceObject": sure(request.namespace),
    }
    encoder = Encoder(world, roots)
    if environments.open_conditions:
        _define(encoder, policy, environments.expressions)
    truths = [
        _truths(encoder.expression(program.source, environments.conditions))
        for _, program in policy.conditions
    ]
    _define(encoder, policy, environments.expressions)
    skipped = any_of(false for _, false, _ in truths)
    unsure = all_of([negation(skipped), any_of(fails for _, _, fails in truths)])
    applies = all_of(true for true, _, _ in truths)
    checks = [
        _truths(encoder.expression(each.program.source, environments.expressions))
        for each in policy.validations
    ]
    false, fails = any_of(f for _, f, _ in checks), any_of(e for _, _, e in checks)
    failing = any_of([unsure, all_of([applies, fails])])
    denied = all_of([applies, false])
    if not policy.ignores_failures:
        denied = any_of([denied, failing])
    return Meaning(denied if _enforced(policy) else FALSE, failing)


def _refuse_partly_encoded(policy: CompiledPolicy) -> None:
    """Refuse a policy whose verdict depends on more than its expressions and match rules."""
    if policy.unusable:
        raise UnencodableError(f"a policy that cannot be used: {policy.unusable}")
    if policy.changes and policy.validations:
        raise UnencodableError("a policy that changes objects before it validates them")
    if policy.exceptions:
        raise UnencodableError("a policy with exceptions")
    if policy.applies is not None:
        raise UnencodableError("a policy that matches by names, users or roles")
    if policy.staged or any(b.constraints or b.actions_for for b in policy.bindings):
        raise UnencodableError("a policy whose binding narrows it, or rolls it out in steps")


def _define(encoder: Encoder, policy: CompiledPolicy, environment: Environment) -> None:
    for name, program in policy.variables.items():
        if name not in encoder.variables:
            encoder.variables[name] = encoder.expression(program.source, environment)


def _truths(outcome: Outcome) -> tuple[Any, Any, Any]:
    """Return the conditions that an outcome is true, false, or an error."""
    true, false = truth(outcome)
    return true, false, negation(any_of([true, false]))


def _enforced(policy: CompiledPolicy) -> bool:
    return needs_binding(policy) or any("Deny" in binding.actions for binding in policy.bindings)


def _against(question: Question, meanings: tuple[Meaning, ...]) -> Any:  # noqa: ANN401 - a term
    one, other = meanings[0], meanings[-1]
    match question:
        case "equal":
            return one.denies != other.denies
        case "implies":
            return z3.And(other.denies, z3.Not(one.denies))
        case "disjoint":
            return z3.And(one.denies, other.denies)
        case "never-denies":
            return one.denies
        case "always-denies":
            return z3.Not(one.denies)
        case "never-errors":
            return one.fails
    raise AssertionError(question)


# The unknown request.


def kinds_of(policy: CompiledPolicy) -> Iterator[BuiltinResource | None]:
    """Yield the built-in kinds that a policy matches, or None for any kind."""
    if policy.templates:
        # Expressions see each pod template as a pod: what holds for pods holds for templates.
        yield resource("", "v1", "pods")
        return
    names = (
        name
        for rule in policy.constraints.resource_rules
        for name in itertools.product(rule.api_groups, rule.api_versions, rule.resources)
    )
    found: list[BuiltinResource] = []
    for group, version, plural in dict.fromkeys(names):
        if "*" in plural or "/" in plural or group == "*":
            yield None
            return
        of_kind = [
            each
            for each in resources()
            if each.group == group and each.plural == plural and version in ("*", each.version)
        ]
        if not of_kind:
            yield None  # a custom kind
            return
        found += of_kind
    if len(found) > _MOST_KINDS:
        raise UnencodableError(f"policies for more than {_MOST_KINDS} kinds")
    yield from found


def unknown_request(world: World, policy: CompiledPolicy, kind: BuiltinResource | None) -> _Request:
    """Return the unknown parts of a request that a policy matches, for one kind of object."""
    named = {each for rule in policy.constraints.resource_rules for each in rule.operations}
    operations = tuple(each for each in _OPERATIONS if each in named or "*" in named)
    schema = ANY if kind is None else struct_schema(kind.type_name)
    namespace = struct_schema("core/v1.Namespace")
    names = dict.fromkeys(("group", "version", "kind"), _TEXT)
    places = dict.fromkeys(("group", "version", "resource"), _TEXT)
    perhaps = replace(_TEXT, kinds=frozenset({"absent", "string"}))
    strings = ValueSchema(kinds=frozenset({"list"}), element=_TEXT)
    user = {
        "username": _TEXT,
        "uid": perhaps,
        "groups": strings,
        "extra": ValueSchema(kinds=frozenset({"absent", "map"}), element=strings),
    }
    fields = {
        "operation": replace(_TEXT, values=operations),
        "kind": _struct(names),
        "resource": _struct(places),
        "requestKind": _struct(names),
        "requestResource": _struct(places),
        "name": _TEXT,
        "namespace": perhaps,
        "subResource": perhaps,
        "requestSubResource": perhaps,
        "options": replace(ANY, kinds=ANY.kinds | {"absent"}),
        "dryRun": ValueSchema(kinds=frozenset({"bool"})),
        "userInfo": _struct(user),
    }
    new = UnknownValue(world, "object", replace(schema, kinds=_OBJECT_OR_NULL))
    old = UnknownValue(world, "oldObject", replace(schema, kinds=_OBJECT_OR_NULL))
    # The objects are fields of the request, too, where an expression may name them: the types say.
    shared = {"object": new, "oldObject": old}
    return _Request(
        object=new,
        old_object=old,
        request=UnknownValue(world, "request", _struct(fields), children=shared),
        params=UnknownValue(world, "params", replace(ANY, kinds=_OBJECT_OR_NULL)),
        namespace=UnknownValue(world, "namespaceObject", replace(namespace, kinds=_OBJECT_OR_NULL)),
    )


def _struct(fields: Mapping[str, ValueSchema]) -> ValueSchema:
    return ValueSchema(kinds=frozenset({"map"}), fields=fields)


def _facts(request: _Request) -> Iterator[Any]:
    """Yield how the parts of a request depend on each other."""
    operation = request.request.field("operation")
    assert operation is not None
    named = operation.of("string")
    null = KINDS.index("null")
    yield (named == "DELETE") == (request.object.kind == null)
    yield z3.Or(named == "UPDATE", named == "DELETE") == (request.old_object.kind != null)


# The example.


def _example(world: World, request: _Request, model: z3.ModelRef, bound: int) -> Answer:
    world.choose(model)
    operation = request.request.field("operation")
    user = request.request.field("userInfo")
    assert operation is not None
    name = operation.json(model)
    sender = user.json(model) if user is not None else {}
    facts: dict[str, Any] = sender if isinstance(sender, dict) else {}
    return Answer(
        verdict="refuted",
        bound=bound,
        object=request.object.json(model),
        old_object=request.old_object.json(model),
        operation=cast("Operation", name),
        user=UserInfo(
            username=str(facts.get("username") or "someone"),
            groups=tuple(facts.get("groups") or ()),
        ),
    )


def _confirmed(
    question: Question,
    policies: tuple[CompiledPolicy, ...],
    found: Answer,
    kind: BuiltinResource | None,
) -> Answer:
    """Return an answer if the engine agrees with it, else that it is unknown."""
    example = replace(
        found,
        object=_named(found.object, kind, policies[0]),
        old_object=_named(found.old_object, kind, policies[0]),
    )
    try:
        verdicts = [decider(policy)(example) for policy in policies]
    except (PolicydError, ValueError) as error:
        return replace(found, verdict="unknown", why=f"the example cannot be tried: {error}")
    if _holds_against(question, verdicts):
        return example
    why = "the solver found an object on which the engine decides otherwise"
    return Answer(verdict="unknown", bound=found.bound, why=why)


class Verdict(NamedTuple):
    """What the engine says of a request: whether a policy denies it, and whether it fails."""

    denies: bool
    fails: bool


def decider(policy: CompiledPolicy) -> Callable[[Answer], Verdict]:
    """Return what the engine says of a policy for the request of an answer.

    Raises:
        ObjectError: The function does, if the object is none of Kubernetes.
    """
    own = CompiledBinding(policy=policy.name, policy_kind=policy.kind)
    loaded = Loaded(policies=(policy,), bindings=(own,) if needs_binding(policy) else ())
    policies = offline_set(loaded, namespace_lookup([], {}))
    kinds = {(group, kind): (plural, True) for group, _, plural, kind in _custom_kinds(policy)}

    def decide(example: Answer) -> Verdict:
        subject = example.old_object if example.operation == "DELETE" else example.object
        if not isinstance(subject, dict):
            raise ObjectError("the example has no object")
        user = example.user or UserInfo(username="someone")
        circumstances = RequestCircumstances(operation=example.operation, user=user, kinds=kinds)
        request = request_for(subject, circumstances, old_object=example.old_object)
        decided = policies.review(request)
        return Verdict(not decided.allowed, bool(decided.failures))

    return decide


def _custom_kinds(policy: CompiledPolicy) -> Iterator[tuple[str, str, str, str]]:
    """Yield group, version, plural and a kind for the resources that are not built in."""
    for rule in policy.constraints.resource_rules:
        for group, version in itertools.product(rule.api_groups, rule.api_versions):
            for plural in rule.resources:
                if "*" not in group + plural and "/" not in plural:
                    yield group, "v1" if version == "*" else version, plural, plural.capitalize()


def _holds_against(question: Question, verdicts: list[Verdict]) -> bool:
    one, other = verdicts[0], verdicts[-1]
    return {
        "equal": one.denies != other.denies,
        "implies": other.denies and not one.denies,
        "disjoint": one.denies and other.denies,
        "never-denies": one.denies,
        "always-denies": not one.denies,
        "never-errors": one.fails,
    }[question]


def _named(obj: Json, kind: BuiltinResource | None, policy: CompiledPolicy) -> Json:
    """Give an object the kind and name without which it is none."""
    if not isinstance(obj, dict):
        return obj
    made: dict[str, Json] = dict(obj)
    if kind is not None:
        made = {**made, "apiVersion": kind.api_version, "kind": kind.kind}
    elif not (made.get("apiVersion") and made.get("kind")):
        group, version, _, name = next(_custom_kinds(policy), ("", "v1", "pods", "Pod"))
        version = f"{group}/{version}" if group else version
        made = {"apiVersion": version, "kind": name, **made}
    metadata = made.get("metadata")
    named: dict[str, Json] = dict(metadata) if isinstance(metadata, dict) else {}
    if not named.get("name"):
        named["name"] = "example"
    first = {key: made.pop(key) for key in ("apiVersion", "kind") if key in made}
    made.pop("metadata", None)
    return {**first, "metadata": named, **made}
