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

import msgspec
import z3

from policyd.api.admission import Operation, Rule, UserInfo
from policyd.api.kinds import BuiltinResource, resource, resources
from policyd.api.meta import Json
from policyd.api.policy import MatchConstraints, ParamRef
from policyd.api.selectors import LabelSelector
from policyd.cel.environment import Environment
from policyd.cel.errors import CelCompileError
from policyd.engine.compile.load import Loaded
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.bindings import needs_binding
from policyd.engine.model.compiled import CompiledBinding, CompiledPolicy, environments_of
from policyd.engine.offline.requests import (
    DEFAULT_NAMESPACE,
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
    text_term,
)
from policyd.prove.world import (
    ANY,
    KINDS,
    Kind,
    UnknownValue,
    ValueSchema,
    World,
    one_text,
    struct_schema,
    truth,
)

Question = Literal["equal", "implies", "disjoint", "never-denies", "always-denies", "never-errors"]
Side = tuple[CompiledPolicy, ...]
"""Policies that are in force together: a request is denied if one of them denies it."""
OF_TWO: Final = frozenset({"equal", "implies", "disjoint"})
DEFAULT_BOUND: Final = 4
"""Elements of a list or map, at most."""
DEFAULT_SECONDS: Final = 5.0
"""For the solver, for each kind of object."""
_OPERATIONS: Final[tuple[Operation, ...]] = ("CREATE", "UPDATE", "DELETE", "CONNECT")
_MOST_KINDS: Final = 20
_ANY_GROUP: Final = "example.com"
"""Of the example for a policy that matches a resource of each group."""
_MOST_ROUNDS: Final = 5
_OBJECT_OR_NULL: Final[frozenset[Kind]] = frozenset({"map", "null"})
_NULL: Final[frozenset[Kind]] = frozenset({"null"})
_TEXT: Final = one_text(None)
_SAME_OBJECT: Final = frozenset({"", "ephemeralcontainers", "resize", "status"})
"""Subresources whose requests have the whole object."""


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
        params: The object of params, if expressions ask for one.
        namespace: The namespace of that request, if expressions ask for it.
    """

    verdict: Literal["proved", "refuted", "unknown"]
    bound: int
    why: str = ""
    object: Json = None
    old_object: Json = None
    operation: Operation = "CREATE"
    user: UserInfo | None = None
    params: Json = None
    namespace: Json = None


class Meaning(NamedTuple):
    """The formulas of a policy.

    Attributes:
        matches: It matches the request.
        fails: One of its expressions fails.
        reasons: For each reason to deny a request: it denies the request for this reason.
    """

    matches: Any
    fails: Any
    reasons: tuple[Any, ...] = ()

    @property
    def denies(self) -> Any:  # noqa: ANN401 - a term of z3
        """It denies the request, for whichever reason."""
        return any_of(self.reasons)


class _Request(NamedTuple):
    """The unknown parts of a request."""

    object: UnknownValue
    old_object: UnknownValue
    request: UnknownValue
    params: UnknownValue
    namespace: UnknownValue


def answer(
    question: Question,
    sides: tuple[Side, ...],
    *,
    bound: int = DEFAULT_BOUND,
    seconds: float = DEFAULT_SECONDS,
) -> Answer:
    """Answer a question about one or two sets of policies.

    Args:
        question: `equal`, `implies` (the first denies all that the second denies) and `disjoint`
            (they deny nothing both) are about two sets, the others about one.
        sides: The sets, each of at least one policy.
        bound: Elements of a list or map, at most.
        seconds: For the solver, for each kind of object.
    """
    policies = tuple(itertools.chain(*sides))
    why = _not_to_be_compared(question, policies)
    if why:
        return Answer(verdict="unknown", bound=bound, why=why)
    try:
        kinds = _kinds_of_all(policies)
    except UnencodableError as error:
        return Answer(verdict="unknown", bound=bound, why=f"policyd prove does not know {error}")
    found = Answer(verdict="proved", bound=bound)
    # An example with single elements is the easiest to find, and to read.
    for elements, kind in itertools.product(dict.fromkeys((1, bound)), kinds):
        of_kind = _answer_for(question, sides, kind, elements, seconds)
        if of_kind.verdict == "refuted":
            return of_kind
        if of_kind.verdict == "unknown" and elements == bound:
            found = of_kind
    return found


def _not_to_be_compared(question: Question, policies: Side) -> str:
    """Return why a question about policies has no formula; empty if it may have one."""
    first, *others = policies
    if question == "disjoint" and any(policy.by_template for policy in policies):
        return "each of two pod templates in one object may be denied by another policy"
    mixed = any(policy.by_template != first.by_template for policy in others)
    if mixed and not all(map(_of_pods, policies)):
        return "some of the policies are evaluated for pod templates, and others for whole objects"
    if any(policy.changes for policy in policies) and any(p.validations for p in policies):
        return "a policy that changes objects before they are validated: leave it out by --policy"
    if len({policy.policy.spec.param_kind for policy in policies} - {None}) > 1:
        return "the policies have params of different kinds"
    if any(not _may_be_joined(policy, first) for policy in others):
        return (
            "the policies do not match the same requests: they may differ in kinds and operations,"
            " and in nothing else of `matchConstraints`"
        )
    return ""


def above_standard(policies: Side, standard: Side) -> tuple[Side, Side]:
    """Return policies, and those of a standard, for pods alone: the first may imply the second.

    Args:
        policies: The policies to judge, with the same selectors each.
        standard: Policies for the namespaces to which the standard applies; here it applies where
            the others do.
    """
    everywhere = msgspec.structs.replace(policies[0].constraints, resource_rules=())
    asked = tuple(_for_pods(policy, policy.constraints) for policy in policies)
    wanted = (_for_pods(policy, everywhere, policy.constraints) for policy in standard)
    return asked, tuple(wanted)


def _for_pods(
    policy: CompiledPolicy, constraints: MatchConstraints, rules_of: MatchConstraints | None = None
) -> CompiledPolicy:
    rules = (rules_of or constraints).resource_rules
    named = _operations(rule for rule in rules if _concerns(rule, _pods()))
    rule = Rule(operations=named, api_groups=("",), api_versions=("v1",), resources=("pods",))
    pods = msgspec.structs.replace(constraints, resource_rules=(rule,) if named else ())
    return replace(policy, constraints=pods)


def _of_pods(policy: CompiledPolicy) -> bool:
    """Tell whether a policy matches nothing but pods."""
    rules = policy.constraints.resource_rules
    return all((rule.api_groups, rule.resources) == (("",), ("pods",)) for rule in rules)


def _may_be_joined(policy: CompiledPolicy, other: CompiledPolicy) -> bool:
    """Tell whether the match rules of two policies differ only in kinds and operations."""
    one, two = policy.constraints, other.constraints
    if one == two:
        return True
    rules = *one.resource_rules, *two.resource_rules
    plain = not any(rule.resource_names or rule.scope != "*" for rule in rules)
    return plain and msgspec.structs.replace(one, resource_rules=two.resource_rules) == two


def _kinds_of_all(policies: Side) -> list[BuiltinResource | None]:
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
        raise UnencodableError("policies of custom kinds with different match rules")
    return list(found.values())


def _answer_for(
    question: Question,
    sides: tuple[Side, ...],
    kind: BuiltinResource | None,
    bound: int,
    seconds: float,
) -> Answer:
    policies = tuple(itertools.chain(*sides))
    world = World(bound=bound, typed=not all(policy.own for policy in policies))
    try:
        request = unknown_request(world, policies, kind)
        each = iter(meanings(world, request, policies, kind))
        found = tuple(_together(itertools.islice(each, len(side))) for side in sides)
    except UnencodableError as error:
        return Answer(verdict="unknown", bound=bound, why=f"policyd prove does not know {error}")
    except (CelCompileError, RecursionError, ctypes.ArgumentError) as error:
        why = str(error) if isinstance(error, CelCompileError) else "the formulas are too deep"
        return Answer(verdict="unknown", bound=bound, why=why)
    answered = Answer(verdict="proved", bound=bound)
    for against in _against(question, found):
        # Each solver is asked once: the incremental one decides fewer strings.
        solver = z3.Tactic("smt").solver()
        solver.set("timeout", int(seconds * 1000))
        solver.add(*world.axioms(), against)
        result = solver.check()
        if result == z3.sat:
            example = _example(world, request, solver.model(), bound)
            return _confirmed(question, sides, example, kind)
        if result == z3.unknown:
            why = f"the solver found no answer within {seconds:g} s"
            answered = Answer(verdict="unknown", bound=bound, why=why)
    return answered


def _together(meanings: Iterable[Meaning]) -> Meaning:
    """Return what policies mean that are in force together."""
    matches, fails, reasons = zip(*meanings, strict=True)
    return Meaning(any_of(matches), any_of(fails), tuple(itertools.chain(*reasons)))


def meanings(
    world: World, request: _Request, policies: Side, kind: BuiltinResource | None
) -> tuple[Meaning, ...]:
    """Return what each policy means, once all fields that they ask for are known."""
    for _ in range(_MOST_ROUNDS):
        world.facts.clear()
        found = tuple(meaning(world, request, policy, kind) for policy in policies)
        if not world.grown:
            world.facts += _facts(request)
            return found
    raise UnencodableError("policies that ask for new fields again and again")


def meaning(
    world: World, request: _Request, policy: CompiledPolicy, kind: BuiltinResource | None
) -> Meaning:
    """Return the formulas of a policy for one kind of object.

    Raises:
        UnencodableError: If a part of it has no formula.
    """
    _refuse_partly_encoded(policy)
    matched = operations_of(policy, kind)
    if not matched:
        return Meaning(FALSE, FALSE)
    environments = environments_of(policy)
    roots: dict[str, Outcome] = {
        "object": sure(request.object),
        "oldObject": sure(request.old_object),
        "request": sure(request.request),
        "params": sure(request.params),
        "namespaceObject": sure(request.namespace),
    }
    if policy.by_template and not policy.templates:
        roots["pod"] = roots.pop("object")  # the object may be another, which has the template
        roots.pop("oldObject")
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
    failing = any_of([unsure, all_of([applies, any_of(e for _, _, e in checks)])])
    reasons = [all_of([applies, false]) for _, false, _ in checks]
    if not policy.ignores_failures:
        reasons.append(failing)
    if not _enforced(policy):
        reasons = []
    operation = request.request.field("operation")
    assert operation is not None
    named = operation.of("string")
    matches = any_of(named == text_term(each) for each in matched)
    there = tuple(all_of([matches, reason]) for reason in reasons)
    return Meaning(matches, all_of([matches, failing]), there)


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


def _against(question: Question, meanings: tuple[Meaning, ...]) -> Iterator[Any]:
    """Yield formulas of which none holds for a request if the answer is yes."""
    one, other = meanings[0], meanings[-1]
    match question:
        case "equal":
            yield one.denies != other.denies
        case "implies":  # a smaller question for each reason of the other
            yield from (z3.And(reason, z3.Not(one.denies)) for reason in other.reasons)
        case "disjoint":
            yield z3.And(one.denies, other.denies)
        case "never-denies":
            yield one.denies
        case "always-denies":
            yield z3.And(one.matches, z3.Not(one.denies))
        case "never-errors":
            yield one.fails


# The unknown request.


def _pods() -> BuiltinResource:
    found = resource("", "v1", "pods")
    assert found is not None
    return found


def kinds_of(policy: CompiledPolicy) -> Iterator[BuiltinResource | None]:
    """Yield the built-in kinds that a policy matches, or None for any kind."""
    if policy.by_template:
        # What holds for pods holds for templates.
        yield _pods()
        return
    names = (
        name
        for rule in policy.constraints.resource_rules
        for name in itertools.product(rule.api_groups, rule.api_versions, rule.resources)
    )
    found: list[BuiltinResource] = []
    custom = False
    for group, version, path in dict.fromkeys(names):
        plural, _, part = path.partition("/")
        if "*" in plural or part not in _SAME_OBJECT:
            yield None
            return
        of_kind = [
            each
            for each in resources()
            if group in ("*", each.group)
            and each.plural == plural
            and version in ("*", each.version)
        ]
        custom = custom or not of_kind or group == "*"
        found += of_kind
    found = list({(each.group, each.version, each.plural): each for each in found}.values())
    if len(found) > _MOST_KINDS:
        raise UnencodableError(f"policies for more than {_MOST_KINDS} kinds")
    yield from found
    if custom:
        yield None


def operations_of(policy: CompiledPolicy, kind: BuiltinResource | None) -> tuple[Operation, ...]:
    """Return the operations for which a policy matches objects of a kind.

    Raises:
        UnencodableError: If it matches them as objects of another version.
    """
    rules = policy.constraints.resource_rules
    if kind is not None and not policy.by_template:
        rules = tuple(rule for rule in rules if _concerns(rule, kind))
        if not all(kind.version in rule.api_versions or "*" in rule.api_versions for rule in rules):
            raise UnencodableError(f"a policy for another version of {kind.plural}")
    return _operations(rules)


def _operations(rules: Iterable[Rule]) -> tuple[Operation, ...]:
    named = {each for rule in rules for each in rule.operations}
    return tuple(each for each in _OPERATIONS if each in named or "*" in named)


def _concerns(rule: Rule, kind: BuiltinResource) -> bool:
    return not {"*", kind.group}.isdisjoint(rule.api_groups) and any(
        path.partition("/")[0] in ("*", kind.plural) for path in rule.resources
    )


def unknown_request(world: World, policies: Side, kind: BuiltinResource | None) -> _Request:
    """Return the unknown parts of a request that a policy matches, for one kind of object."""
    matched = {each for policy in policies for each in operations_of(policy, kind)}
    operations = tuple(each for each in _OPERATIONS if each in matched)
    schema = ANY if kind is None else struct_schema(kind.type_name)
    known: tuple[str | None, ...] = (None, None, None, None)
    # The object of a policy for pod templates may be another one.
    as_it_is = all(map(_of_pods, policies)) or not any(policy.by_template for policy in policies)
    if kind is not None and as_it_is:
        schema = struct_schema(kind.type_name, api_version=kind.api_version, kind=kind.kind)
        known = kind.group, kind.version, kind.kind, kind.plural
    group, version, name, plural = map(one_text, known)
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
        "kind": _struct({"group": group, "version": version, "kind": name}),
        "resource": _struct({"group": group, "version": version, "resource": plural}),
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
    asked = any(policy.policy.spec.param_kind for policy in policies)
    of_params = _OBJECT_OR_NULL if asked else _NULL
    new = UnknownValue(world, "object", replace(schema, kinds=_OBJECT_OR_NULL))
    old = UnknownValue(world, "oldObject", replace(schema, kinds=_OBJECT_OR_NULL))
    # The objects are fields of the request, too, where an expression may name them: the types say.
    shared = {"object": new, "oldObject": old}
    return _Request(
        object=new,
        old_object=old,
        request=UnknownValue(world, "request", _struct(fields), children=shared),
        params=UnknownValue(world, "params", replace(ANY, kinds=of_params)),
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
        params=request.params.json(model),
        namespace=request.namespace.json(model) if request.namespace.children else None,
    )


def _confirmed(
    question: Question,
    sides: tuple[Side, ...],
    found: Answer,
    kind: BuiltinResource | None,
) -> Answer:
    """Return an answer if the engine agrees with it, else that it is unknown."""
    first = sides[0][0]
    example = replace(
        found,
        object=_named(found.object, kind, first),
        old_object=_named(found.old_object, kind, first),
        namespace=_named_namespace(found.namespace, first),
    )
    try:
        verdicts = [_verdict(side, example) for side in sides]
    except (PolicydError, ValueError) as error:
        return replace(found, verdict="unknown", why=f"the example cannot be tried: {error}")
    if _holds_against(question, verdicts):
        return example
    why = "the solver found an object on which the engine decides otherwise"
    return Answer(verdict="unknown", bound=found.bound, why=why)


def _verdict(side: Side, example: Answer) -> "Verdict":
    """Return what the engine says of policies that are in force together."""
    found = [decider(policy)(example) for policy in side]
    return Verdict(any(each.denies for each in found), any(each.fails for each in found))


class Verdict(NamedTuple):
    """What the engine says of a request: whether a policy denies it, and whether it fails."""

    denies: bool
    fails: bool


def decider(policy: CompiledPolicy) -> Callable[[Answer], Verdict]:
    """Return what the engine says of a policy for the request of an answer.

    Raises:
        ObjectError: The function does, if the object is none of Kubernetes.
    """
    custom = tuple(_custom_kinds(policy))
    usual = _set_for(policy, None, None)

    def decide(example: Answer) -> Verdict:
        subject = example.old_object if example.operation == "DELETE" else example.object
        if not isinstance(subject, dict):
            raise ObjectError("the example has no object")
        user = example.user or UserInfo(username="someone")
        kinds = {
            (group, str(subject.get("kind"))): (plural, True) for group, _, plural, _ in custom
        }
        circumstances = RequestCircumstances(operation=example.operation, user=user, kinds=kinds)
        request = request_for(subject, circumstances, old_object=example.old_object)
        special = example.params is not None or example.namespace is not None
        policies = _set_for(policy, example.params, example.namespace) if special else usual
        decided = policies.review(request)
        return Verdict(not decided.allowed, bool(decided.failures))

    return decide


def _set_for(policy: CompiledPolicy, params: Json, namespace: Json) -> PolicySet:
    """Return a policy as a set, bound with params and in the namespace of an example."""
    objects: list[Json] = []
    if namespace is not None:
        objects = [namespace]
    reference, kind = None, policy.policy.spec.param_kind
    if kind is not None and isinstance(params, dict):
        metadata = {**_metadata_of(params), "name": "params", "namespace": DEFAULT_NAMESPACE}
        of_kind = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        objects.append({**params, **of_kind})
        reference = ParamRef(name="params", namespace=DEFAULT_NAMESPACE)
    own = CompiledBinding(policy=policy.name, policy_kind=policy.kind, param_ref=reference)
    loaded = Loaded(policies=(policy,), bindings=(own,) if needs_binding(policy) else ())
    return offline_set(loaded, namespace_lookup(objects, {}), objects=objects)


def _metadata_of(obj: Mapping[str, Json]) -> Mapping[str, Json]:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _selected(metadata: Mapping[str, Json], selector: LabelSelector) -> dict[str, Json]:
    """Return metadata with labels that a selector wants, as far as they are missing."""
    wanted = dict(selector.match_labels)
    for each in selector.match_expressions:
        if each.operator in ("In", "Exists"):
            wanted[each.key] = next(iter(each.values), "true")
    labels = metadata.get("labels")
    given = labels if isinstance(labels, dict) else {}
    return {**metadata, "labels": {**wanted, **given}} if wanted else {**metadata}


def _custom_kinds(policy: CompiledPolicy) -> Iterator[tuple[str, str, str, str]]:
    """Yield group, version, plural and a kind for the resources that are not built in."""
    for rule in policy.constraints.resource_rules:
        for group, version in itertools.product(rule.api_groups, rule.api_versions):
            for plural in rule.resources:
                if "*" not in plural and "/" not in plural:
                    named = _ANY_GROUP if group == "*" else group
                    yield named, "v1" if version == "*" else version, plural, plural.capitalize()


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


def _named_namespace(namespace: Json, policy: CompiledPolicy) -> Json:
    """Give a namespace the labels that a policy selects; None if it needs none."""
    given = namespace if isinstance(namespace, dict) else {}
    metadata = _selected(_metadata_of(given), policy.constraints.namespace_selector)
    if not metadata and namespace is None:
        return None
    metadata = {**metadata, "name": DEFAULT_NAMESPACE}
    return {**given, "apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _named(obj: Json, kind: BuiltinResource | None, policy: CompiledPolicy) -> Json:
    """Give an object the kind and name without which it is none."""
    if not isinstance(obj, dict):
        return obj
    made: dict[str, Json] = dict(obj)
    if kind is not None:
        made = {**made, "apiVersion": kind.api_version, "kind": kind.kind}
    else:
        group, version, _, name = next(_custom_kinds(policy), ("", "v1", "pods", "Pod"))
        version = f"{group}/{version}" if group else version
        made = {**made, "apiVersion": version, "kind": made.get("kind") or name}
    named: dict[str, Json] = _selected(_metadata_of(made), policy.constraints.object_selector)
    if not named.get("name"):
        named["name"] = "example"
    first = {key: made.pop(key) for key in ("apiVersion", "kind") if key in made}
    made.pop("metadata", None)
    return {**first, "metadata": named, **made}
