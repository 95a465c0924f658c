"""Convert one rule of a legacy policy to a policy in CEL."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from policyd.api.kinds import resources
from policyd.api.meta import Json
from policyd.cel.syntax.literals import text_literal
from policyd.dialects.kyverno.filters import parse_kind
from policyd.migrate.cel_values import CelTerm, OutsideError, Untranslatable, all_of, outline
from policyd.migrate.jmespath import split_variables
from policyd.migrate.kyverno.actions import RuleActions, actions_of
from policyd.migrate.kyverno.conditions import block_condition, conditions_in, refusal
from policyd.migrate.kyverno.context import Named, variables_of
from policyd.migrate.kyverno.foreach import asked_applies, foreach_applies, foreach_condition
from policyd.migrate.kyverno.generating import GeneratedEntries, generated_entries
from policyd.migrate.kyverno.matching import (
    OPERATIONS,
    Matching,
    connects,
    extends_to_controllers,
    filters_of,
    kinds_of,
    matching_of,
)
from policyd.migrate.kyverno.mutations import mutations_of
from policyd.migrate.kyverno.patterns import (
    any_of,
    any_pattern,
    applies,
    grouped,
    negated,
    pattern_steps,
    verdict,
)
from policyd.migrate.kyverno.pod_security import pod_security
from policyd.migrate.kyverno.scopes import REQUEST, USER, ExpressionScope, with_images
from policyd.migrate.kyverno.targets import TARGETS_NOTE, target_fields, target_scope
from policyd.patch.operations import Path

AUTOGEN: Final = "pod-policies.kyverno.io/autogen-controllers"

_REFUSED: Final = {
    "verifyImages": (
        "signatures of images are not verified by CEL",
        "keep it as an ImageValidatingPolicy of Kyverno",
    ),
}
_VALIDATE: Final = ("pattern", "anyPattern", "deny", "foreach", "podSecurity", "cel", "manifests")
_OPERATION: Final = re.compile(
    r"\{\{\s*request\.operation\s*(?:\|\|\s*(?:'[A-Z]*'|`\"[A-Z]*\"`)\s*)?\}\}"
)


_OBJECTS: Final = re.compile(r"(?<![.\w'\"])(object|oldObject)\b")
_OF_PODS: Final = re.compile(r"(?<![.\w'\"])object(?=\.\??(?:spec|metadata)\b)")
_LONGEST_NAME: Final = 63


class UnconvertibleRuleError(Exception):
    """A part of a rule has no counterpart.

    Attributes:
        reason: Why, in a sentence.
        path: The part, from the rule.
        hint: What to do.
    """

    def __init__(self, reason: str, path: Path = (), hint: str = "") -> None:
        super().__init__(reason)
        self.reason, self.path, self.hint = reason, path, hint


@dataclass(frozen=True)
class PolicyFrame:
    """What the rules of a policy have in common.

    Attributes:
        name: The name of the policy.
        namespace: The namespace of a Policy; empty for a ClusterPolicy.
        annotation: The controllers that its annotation names.
        spec: The fields of its spec.
        kyverno: Whether the result is of Kyverno's kinds, with the functions that it adds to CEL.
        steps: Whether a policy may have a `rollout`, which policyd's own kind has.
    """

    name: str
    namespace: str
    annotation: str | None
    spec: Mapping[str, Any]
    kyverno: bool = False
    steps: bool = True


@dataclass
class ConvertedRule:
    """A rule as policies: its constraints and conditions; what it asks, changes or generates."""

    name: str
    matching: Matching
    variables: list[Named] = field(default_factory=list)
    validations: list[dict[str, str]] = field(default_factory=list)
    mutations: list[dict[str, Any]] = field(default_factory=list)
    generated: GeneratedEntries | None = None
    actions: RuleActions = field(default_factory=RuleActions)
    suffix: str = ""
    kyverno: bool = False
    controllers: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    """Further fields of a policy that validates: its params and audit annotations."""
    targets: dict[str, Any] = field(default_factory=dict)
    """Fields of a policy that mutates existing objects: what its targets are."""
    applies: str = ""
    """The condition that it applies to what it matches, for `applyRules: One`; empty if it does."""


def convert_rule(rule: Mapping[str, Any], frame: PolicyFrame) -> list[ConvertedRule]:
    """Return a rule as policies.

    Raises:
        UnconvertibleRuleError: If a part has no counterpart.
    """
    for name, (reason, hint) in _REFUSED.items():
        if name in rule:
            raise UnconvertibleRuleError(reason, (name,), hint)
    if rule.get("celPreconditions") and "cel" not in (rule.get("validate") or {}):
        raise UnconvertibleRuleError(
            "`celPreconditions` are of rules that validate by CEL",
            ("celPreconditions",),
            "write them as `preconditions`",
        )
    if "generate" in rule:
        return [_generating(rule, replace(frame, kyverno=True))]
    if "mutate" in rule or "validate" in rule:
        convert = _mutating if "mutate" in rule else _validating
        try:
            return convert(rule, frame)
        except UnconvertibleRuleError as error:
            if isinstance(error.__cause__, OutsideError) and not frame.kyverno:
                return convert(rule, replace(frame, kyverno=True))
            raise
    raise UnconvertibleRuleError("the rule has none of `validate`, `mutate` and `generate`")


@dataclass(frozen=True)
class _Common:
    """What validating and mutating rules share, for one place of the pods."""

    matching: Matching
    scope: ExpressionScope
    variables: list[Named]
    late: str


def _common(
    rule: Mapping[str, Any],
    frame: PolicyFrame,
    subject: str,
    controllers: Sequence[str],
    *,
    asks: str,
) -> _Common:
    operations, preconditions = _operations(rule, asks)
    matching = _at(
        ("match",),
        matching_of,
        rule.get("match"),
        rule.get("exclude"),
        operations,
        () if frame.kyverno else controllers,
    )
    if frame.kyverno and any("authorizer." in text for text in matching.conditions.values()):
        raise UnconvertibleRuleError(
            "policies of Kyverno's kinds cannot ask who is a cluster-admin",
            ("match",),
            "name users or groups",
        )
    own = _of_webhook(frame, controllers)
    if frame.namespace:
        own["own-namespace"] = f"request.namespace == {text_literal(frame.namespace)}"
    matching = replace(matching, conditions=_named_apart(own, matching.conditions))
    named = {
        o
        for each in filters_of(rule.get("match"))[0]
        for o in each.resources.get("operations") or ()
    }
    triggers = asks == "generate" and "DELETE" not in {*operations, *named}
    scope = scope_of(
        subject,
        rule.get("match"),
        tuple(operations),
        triggers=triggers,
        templates=frame.kyverno and bool(controllers),
    )
    if triggers:
        matching = replace(matching, conditions=_without_request(matching.conditions, scope))
    scope = replace(scope, kyverno=frame.kyverno)
    scope = with_images(scope)
    scope, variables = _at(("context",), variables_of, rule.get("context"), scope)
    conditions, late = dict(matching.conditions), ""
    named = _at(("preconditions",), _preconditions, preconditions, scope)
    for name, text in named:
        if "variables." in text and not frame.kyverno:
            late = all_of(filter(None, [late, text]))
        else:
            conditions[name] = text
    return _Common(replace(matching, conditions=conditions), scope, variables, late)


def _of_webhook(frame: PolicyFrame, controllers: Sequence[str]) -> dict[str, str]:
    """Return the conditions on requests that a policy gives to Kyverno's webhook."""
    webhook = frame.spec.get("webhookConfiguration") or {}
    conditions = {each["name"]: each["expression"] for each in webhook.get("matchConditions") or ()}
    if not frame.kyverno:
        return conditions
    for name, text in conditions.items():
        if "authorizer" in text or (controllers and _OBJECTS.search(text)):
            raise UnconvertibleRuleError(
                f"policies of Kyverno's kinds cannot ask the `matchCondition` `{name}`: they know"
                " no `authorizer`, and `object` is the pod of a controller",
                (),
                "ask for what `request` says, or keep the rule in Kyverno",
            )
    return conditions


def _named_apart(first: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """Return conditions of two sources, each under a name of its own."""
    made = dict(first)
    for name, text in others.items():
        made[free_name(name, made, _LONGEST_NAME)] = text
    return made


def _without_request(conditions: Mapping[str, str], scope: ExpressionScope) -> dict[str, str]:
    """Return conditions of `match` in which the trigger says what the request would."""
    made = dict(conditions)
    for path in ("request.namespace", "request.name"):
        text = scope.roots[path].text
        made = {name: re.sub(rf"\b{path}\b", text, each) for name, each in made.items()}
    return made


def slug(name: str) -> str:
    """Return the name of a rule as the name of an object may have it in it."""
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.") or "rule"


def free_name(name: str, taken: Collection[str], longest: int) -> str:
    """Return a name that is not taken, of so many characters at most."""
    found, number = name[:longest], 2
    while found in taken:
        found, number = f"{name[: longest - 4]}-{number}", number + 1
    return found


def as_condition(text: str) -> str:
    """Return a condition whose type is bool: a field alone may have any."""
    shown = outline(text)
    field_alone = " " not in shown and not shown.startswith("!")
    untyped = shown.endswith(".orValue()") or not shown.endswith(")")
    return f"{text} == true" if field_alone and untyped and text != "false" else text


def _at(path: Path, run: Any, *arguments: Any) -> Any:  # noqa: ANN401 - calls any function
    """Call a function, and say which part of the rule it is about if that has no counterpart."""
    try:
        return run(*arguments)
    except Untranslatable as error:
        raise UnconvertibleRuleError(error.reason, path) from error


def _preconditions(block: Json, scope: ExpressionScope) -> list[tuple[str, str]]:
    some, every = conditions_in(block)
    if len(some) > 1 or (some and every):
        return [("preconditions", block_condition(block, scope))]
    named = []
    for index, each in enumerate((*some, *every)):
        single = {"key": each.key, "operator": each.operator, "value": each.value}
        name = "precondition" if len((*some, *every)) == 1 else f"precondition-{index + 1}"
        named.append((name, block_condition([single], scope)))
    return named


def _of_trigger(kinds: Collection[str]) -> dict[str, str]:
    """Return what a trigger says itself: an object that exists is one without a request."""
    if "Namespace" in kinds and len(kinds) > 1:
        return {}
    namespace = "name" if "Namespace" in kinds else "namespace"
    return {
        "request.namespace": f"object.metadata.{namespace}",
        "request.name": "object.metadata.name",
    }


def scope_of(
    subject: str,
    match: Json,
    operations: tuple[str, ...],
    *,
    triggers: bool = False,
    templates: bool = False,
) -> ExpressionScope:
    """Return what expressions of a rule see, whose object is `object`, `pod` or a part.

    Args:
        subject: The CEL of the object.
        match: The block `match` of the rule.
        operations: The operations that the rule concerns.
        triggers: Whether objects that exist are triggers, too, which have no request.
        templates: Whether the object may be a template of pods.
    """
    kinds = {parse_kind(kind)[2] for each in filters_of(match)[0] for kind in each.kinds}
    structs = set()
    if subject not in ("object", _TRIGGER):
        kinds = {"Pod"}
    if any(connects(each.kinds) for each in filters_of(match)[0]):
        kinds = set()  # the object of CONNECT has other fields
    for kind in kinds:
        found = {r.type_name for r in resources() if r.kind == kind}
        structs |= found if len(found) == 1 else set()
    shapes = {("struct", struct) for struct in structs} if len(structs) == len(kinds) else set()
    shaped = frozenset(shapes)
    root = CelTerm(text=subject, kind="map", shapes=shaped, template=templates)
    old = CelTerm(text="oldObject", kind="map", shapes=shaped)
    requests = {
        path: CelTerm(text=path, kind=kind, element="string") for path, kind in REQUEST.items()
    }
    requests["request.userInfo.*"] = USER
    requests["serviceAccountName"] = CelTerm(
        text="request.userInfo.username.split(':')[3]", kind="string"
    )
    requests["serviceAccountNamespace"] = CelTerm(
        text="request.userInfo.username.split(':')[2]", kind="string"
    )
    roots = {"request.object": root, "request.oldObject": old, **requests}
    if triggers:
        roots |= {
            path: CelTerm(text=text, kind="string") for path, text in _of_trigger(kinds).items()
        }
    return ExpressionScope(roots=roots, subject=root, operations=operations)


def _operations(rule: Mapping[str, Any], asks: str) -> tuple[list[str], Json]:
    """Return the operations that a rule concerns, and the preconditions that remain.

    A condition on `request.operation` is a list of operations. Patterns are not asked of DELETE.
    """
    text = json.dumps([rule.get("validate"), rule.get("preconditions"), rule.get("context")])
    every = asks == "deny" and "request.object" not in text and "element" not in text
    filters = filters_of(rule.get("match"))[0]
    possible = [
        o for o in OPERATIONS if o != "CONNECT" or any(connects(each.kinds) for each in filters)
    ]
    operations = [
        o
        for o in possible
        if o in ("CREATE", "UPDATE")
        or (every and o == "DELETE")
        or (o == "CONNECT" and asks not in ("mutate", "generate"))
    ]
    if asks == "cel":
        operations = possible
    block = rule.get("preconditions")
    some, all_listed = _lists(block)
    remaining = list(all_listed)
    named = [(each, _named_operations(each)) for each in all_listed]
    if not all_listed and len(some) == 1:
        named = [(some[0], _named_operations(some[0]))]
    for each, wanted in named:
        if wanted is None:
            continue
        operations = [
            o for o in (possible if asks in ("deny", "generate") else operations) if wanted(o)
        ]
        remaining = [other for other in remaining if other is not each]
        some = [other for other in some if other is not each]
    if not operations:
        raise UnconvertibleRuleError(
            "the preconditions exclude every operation", ("preconditions",)
        )
    return operations, {"any": some or None, "all": remaining or None} if block else None


def _lists(block: Json) -> tuple[list[Any], list[Any]]:
    if isinstance(block, Mapping):
        return list(block.get("any") or ()), list(block.get("all") or ())
    return [], list(block) if isinstance(block, list) else []


def _named_operations(condition: Json) -> Any:  # noqa: ANN401 - a function, or None
    if not isinstance(condition, Mapping) or not isinstance(condition.get("key"), str):
        return None
    if not _OPERATION.fullmatch(condition["key"].strip()):
        return None
    value = condition.get("value")
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) and "{{" not in each for each in values):
        return None
    names = {str(each).upper() for each in values}
    operator = str(condition.get("operator")).lower()
    if operator in ("equals", "equal", "in", "anyin", "allin"):
        return lambda operation: operation in names
    if operator in ("notequals", "notequal", "notin", "anynotin", "allnotin"):
        return lambda operation: operation not in names
    return None


# Validation.


def _validating(rule: Mapping[str, Any], frame: PolicyFrame) -> list[ConvertedRule]:
    validate = rule["validate"]
    asks = next((name for name in _VALIDATE if name in validate), None)
    if asks is None or asks == "manifests":
        why = "`validate` is not converted: it has no pattern and no conditions"
        raise UnconvertibleRuleError(why, ("validate",))
    controllers = extends_to_controllers(rule.get("match"), rule.get("exclude"), frame.annotation)
    subject = "pod" if controllers and not frame.kyverno else "object"
    common = _common(rule, frame, subject, controllers, asks=asks)
    made = partial(
        ConvertedRule,
        name=str(rule.get("name", "")),
        actions=_at(("validate",), actions_of, validate, frame.spec, kinds_of(rule.get("match"))),
        kyverno=frame.kyverno,
        controllers=controllers,
    )
    if asks == "cel":
        return [_in_cel(rule, common, made)]
    if asks == "podSecurity":
        return [_pod_security(validate, common, made)]
    matching, expression, applies_to = _asked(validate, asks, common)
    if common.late:
        expression = f"{negated(common.late)} || {grouped(expression)}"
    validation = {"name": str(rule.get("name", "")), "expression": as_condition(expression)}
    notes: list[str] = []
    validation |= _message(str(validate.get("message") or ""), common.scope, notes)
    return [
        made(
            matching=matching,
            variables=common.variables,
            validations=[validation],
            notes=notes,
            applies=all_of(filter(None, [common.late, applies_to])),
        )
    ]


def _in_cel(
    rule: Mapping[str, Any], common: _Common, made: "partial[ConvertedRule]"
) -> ConvertedRule:
    """Return a rule that is CEL already, about the pods that it is extended to.

    Raises:
        UnconvertibleRuleError: If the kind of the result has none of what it reads.
    """
    validate, cel = rule["validate"], rule["validate"]["cel"]
    path = ("validate", "cel")
    if common.scope.kyverno and cel.get("paramKind"):
        raise UnconvertibleRuleError(
            "policies of Kyverno's kinds have no `params`",
            (*path, "paramKind"),
            "choose another kind of result with `-o`",
        )

    def fields(given: Mapping[str, Any], *computed: str) -> dict[str, Any]:
        about = partial(_about_pods, of=common.scope.subject.text)
        return {
            key: _at(path, about, value) if key in computed else value
            for key, value in given.items()
        }

    conditions, validations = dict(common.matching.conditions), []
    own = [fields(each, "expression") for each in rule.get("celPreconditions") or ()]
    for each in own:
        conditions = _named_apart(conditions, {slug(each["name"]): each["expression"]})
    shared = _message(str(validate.get("message") or ""), common.scope, [])
    for index, each in enumerate(cel.get("expressions") or (), 1):
        name = str(rule.get("name", "")) + (f"-{index}" if len(cel["expressions"]) > 1 else "")
        message = {} if each.get("message") else shared
        validations.append(
            {"name": name, **message, **fields(each, "expression", "messageExpression")}
        )
    settings = {name: cel[name] for name in ("paramKind", "paramRef") if cel.get(name)}
    if cel.get("auditAnnotations"):
        annotations = [fields(each, "valueExpression") for each in cel["auditAnnotations"]]
        settings["auditAnnotations"] = annotations
    variables = (fields(each, "expression") for each in cel.get("variables") or ())
    return made(
        matching=replace(common.matching, conditions=conditions),
        variables=[*common.variables, *(Named(v["name"], v["expression"]) for v in variables)],
        validations=validations,
        settings=settings,
    )


def _about_pods(expression: str, of: str) -> str:
    """Return an expression about the object of a request as one about `pod`, if it is.

    Raises:
        OutsideError: If only Kyverno's kinds see a template as the object of the request.
    """
    if of == "object":
        return expression
    made = _OF_PODS.sub(of, expression)
    if _OBJECTS.search(made):
        raise OutsideError("the object of a controller is no pod but in Kyverno's kinds")
    return made


def _pod_security(
    validate: Mapping[str, Any], common: _Common, made: "partial[ConvertedRule]"
) -> ConvertedRule:
    """Return a rule with a validation for each control of the Pod Security Standards."""
    subject = common.scope.subject
    variables, conditions = _at(
        ("validate", "podSecurity"), pod_security, validate["podSecurity"], subject
    )
    level = validate["podSecurity"]["level"]
    validations = []
    for name, text in conditions:
        given = validate.get("message") or f"the pod violates the {level} Pod Security Standard"
        expression = f"{negated(common.late)} || {grouped(text)}" if common.late else text
        slug = "-".join(name.lower().replace("/", "").split())
        message = _message(f"{given}: {name}", common.scope, [])
        validations.append({"name": slug, "expression": expression, **message})
    return made(
        matching=common.matching,
        variables=[*common.variables, *variables],
        validations=validations,
        applies=common.late,
    )


def _asked(validate: Mapping[str, Any], asks: str, common: _Common) -> tuple[Matching, str, str]:
    """Return the constraints of a rule, the condition that it validates, and when it applies."""
    matching, scope, asked = common.matching, common.scope, validate[asks]
    path = ("validate", asks)
    if asks == "pattern":
        steps = _at(path, pattern_steps, scope.subject, asked, scope)
        conditions = dict(matching.conditions)
        while steps and steps[0].applies and not steps[0].holds and len(steps) > 1:
            name = f"applies-{len(conditions)}" if "applies" in conditions else "applies"
            conditions[name] = steps.pop(0).applies
        return replace(matching, conditions=conditions), verdict(steps) or "true", applies(steps)
    if asks == "foreach":
        expression = all_of([_at(path, foreach_condition, each, scope) for each in asked])
        return matching, expression, any_of(foreach_applies(each, scope) for each in asked)
    if asks == "anyPattern":
        expression = _at(path, any_pattern, scope.subject, asked, scope)
        return matching, expression, asked_applies(validate, scope.subject, scope)
    return matching, _at(path, refusal, (asked or {}).get("conditions"), scope), ""


def _message(message: str, scope: ExpressionScope, notes: list[str]) -> dict[str, str]:
    """Return the fields of a message; one that CEL cannot compute stays as a text."""
    plain = " ".join(message.split())
    if "{{" not in message:
        return {"message": plain} if plain else {}
    shown = plain
    try:
        parts = enumerate(split_variables(plain))
        shown = "".join(f"<{part}>" if index % 2 else part for index, part in parts)
        computed = scope.value(plain)
    except Untranslatable as error:
        notes.append(f"the message does not show its variables: {error.reason}")
        return {"message": shown}
    text = computed.otherwise("''") if computed.needs else computed.text
    return {"message": shown, "messageExpression": text}


# Mutation.

_PLACES: Final = (
    ("object", (), ("pods",), ""),
    (
        "object.spec.template",
        ("spec", "template"),
        (
            "daemonsets",
            "deployments",
            "replicasets",
            "statefulsets",
            "jobs",
            "replicationcontrollers",
        ),
        "-controllers",
    ),
    (
        "object.spec.jobTemplate.spec.template",
        ("spec", "jobTemplate", "spec", "template"),
        ("cronjobs",),
        "-cronjobs",
    ),
)


def _without_pods(constraints: Mapping[str, Any]) -> dict[str, Any]:
    rules = [
        {**each, "resources": [plural for plural in each["resources"] if plural != "pods"]}
        for each in constraints["resourceRules"]
    ]
    return {**constraints, "resourceRules": [each for each in rules if each["resources"]]}


def _mutating(rule: Mapping[str, Any], frame: PolicyFrame) -> list[ConvertedRule]:
    if rule["mutate"].get("targets"):
        return _mutating_targets(rule, replace(frame, kyverno=True))
    controllers = extends_to_controllers(rule.get("match"), rule.get("exclude"), frame.annotation)
    places = _PLACES if controllers and not frame.kyverno else _PLACES[:1]
    made = []
    for subject, place, plurals, suffix in places:
        chosen = [plural for plural in controllers if plural in plurals]
        if place and not chosen:
            continue
        extended = controllers if frame.kyverno else chosen
        common = _common(rule, frame, subject, extended, asks="mutate")
        matching = common.matching
        if place:
            matching = replace(matching, constraints=_without_pods(matching.constraints))
        conditions, late, mutations = _at(
            ("mutate",), mutations_of, rule["mutate"], common.scope, place
        )
        late = all_of(filter(None, [common.late, late]))
        matching = replace(matching, conditions={**matching.conditions, **conditions})
        made.append(
            ConvertedRule(
                name=str(rule.get("name", "")),
                matching=matching,
                variables=common.variables,
                mutations=mutations,
                suffix=suffix if controllers else "",
                kyverno=frame.kyverno,
                controllers=controllers,
                applies=late,
            )
        )
    return made


_TRIGGER: Final = "request.object"
"""The trigger, where `object` is the target."""


def _mutating_targets(rule: Mapping[str, Any], frame: PolicyFrame) -> list[ConvertedRule]:
    """Return a policy for each kind of targets, which exist already."""
    common = _common(rule, frame, _TRIGGER, (), asks="mutate")
    scope = target_scope(common.scope)
    name = "mutateExistingOnPolicyUpdate"
    existing = rule["mutate"].get(name, frame.spec.get(name)) is True
    made = []
    for index, target in enumerate(rule["mutate"]["targets"]):
        path = ("mutate", "targets", index)
        fields, named = _at(path, partial(target_fields, existing=existing), target, scope)
        further, late, mutations = _at(("mutate",), mutations_of, rule["mutate"], scope, ())
        conditions = [
            {"name": name, "expression": as_condition(text)}
            for name, text in {**named, **further}.items()
        ]
        made.append(
            ConvertedRule(
                name=str(rule.get("name", "")),
                matching=common.matching,
                variables=common.variables,
                mutations=mutations,
                suffix=f"-{index + 1}" if len(rule["mutate"]["targets"]) > 1 else "",
                kyverno=True,
                targets={**fields, **({"targetMatchConditions": conditions} if conditions else {})},
                notes=[TARGETS_NOTE],
                applies=all_of(filter(None, [common.late, late])),
            )
        )
    return made


# Generation.


def _generating(rule: Mapping[str, Any], frame: PolicyFrame) -> ConvertedRule:
    common = _common(rule, frame, "object", (), asks="generate")
    existing = any(
        frame.spec.get(name) is True
        for name in ("generateExisting", "generateExistingOnPolicyUpdate")
    )
    generated = _at(
        ("generate",), partial(generated_entries, existing=existing), rule["generate"], common.scope
    )
    return ConvertedRule(
        name=str(rule.get("name", "")),
        matching=common.matching,
        variables=common.variables,
        generated=generated,
        kyverno=True,
    )
