"""Convert a legacy ClusterPolicy or Policy of Kyverno, rule by rule.

Rules that concern the same requests become one policy with a validation each. A rule that has
no counterpart is refused with its place, a reason and a remedy; the policy is then partial.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from policyd.api.meta import Json
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_document
from policyd.engine.documents.reading import Document
from policyd.errors import PolicydError
from policyd.migrate.cel_values import Untranslatable
from policyd.migrate.kyverno.actions import AUDIT, DENY, RuleActions
from policyd.migrate.kyverno.fields import refused_fields
from policyd.migrate.kyverno.first_rule import IndexedRule, first_only
from policyd.migrate.kyverno.mutations import chosen_of
from policyd.migrate.kyverno.references import written_out
from policyd.migrate.kyverno.rules import (
    AUTOGEN,
    ConvertedRule,
    PolicyFrame,
    UnconvertibleRuleError,
    as_condition,
    convert_rule,
    free_name,
    slug,
)
from policyd.patch.operations import Path

KINDS: Final = frozenset({"ClusterPolicy", "Policy"})
GROUP: Final = "kyverno.io"
_DESCRIPTION: Final = "policies.kyverno.io/description"
_TITLE: Final = "policies.kyverno.io/title"
_LONGEST_NAME: Final = 253
_ACTING: Final = {DENY: "enforced", AUDIT: "audited"}
_MOST_RULES: Final = 500
_ALL_CONTROLLERS: Final = 7
_WHOLE: Final = re.compile(r"\s*#\s?(?P<text>.*)")
_TRAILING: Final = re.compile(r"[^'\"#]*[^'\"#\s][^'\"#]*\s#\s?(?P<text>.*)")
_MISSHAPEN: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""The errors of a document whose parts are of other types than Kyverno's."""


@dataclass(frozen=True)
class UnconvertedPart:
    """A part of a policy that is not converted: its place, why, and what to do."""

    path: Path
    rule: str
    reason: str
    hint: str = ""


@dataclass(frozen=True)
class Conversion:
    """A policy of Kyverno as policies of policyd.

    Attributes:
        policies: The policies, as documents.
        places: For each policy, the indexes of the rules that it is of.
        refusals: Parts that are not converted.
        notes: What differs and decides nothing, by the index of the rule.
    """

    policies: tuple[dict[str, Any], ...]
    places: tuple[tuple[int, ...], ...]
    refusals: tuple[UnconvertedPart, ...]
    notes: tuple[tuple[int, str], ...]

    @property
    def whole(self) -> bool:
        """Whether nothing of the policy is left out."""
        return bool(self.policies) and not self.refusals


def is_legacy(document: Json) -> bool:
    """Tell whether a document is a legacy policy of Kyverno."""
    if not isinstance(document, Mapping):
        return False
    version = str(document.get("apiVersion") or "")
    return str(document.get("kind")) in KINDS and version.partition("/")[0] == GROUP


def convert(
    document: Mapping[str, Any], *, kyverno: bool = False, steps: bool = True
) -> Conversion:
    """Convert a legacy policy.

    Args:
        document: The policy.
        kyverno: Whether the result is of Kyverno's own kinds. Rules that read what is outside of
            the request are so in any case, for only these kinds can read it.
        steps: Whether policyd's own kind may have a `rollout`, which it cannot be exported with.

    Raises:
        PolicydError: If the document is not shaped like one.
    """
    metadata, spec = document.get("metadata"), document.get("spec")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
        raise PolicydError("the policy has no `metadata.name`")
    rules = spec.get("rules") if isinstance(spec, Mapping) else None
    if not isinstance(rules, list) or not rules:
        raise PolicydError("the policy has no `spec.rules`")
    if len(rules) > _MOST_RULES:
        raise PolicydError(f"the policy has more than {_MOST_RULES} rules")
    assert isinstance(spec, Mapping), "it has rules"
    annotations = metadata.get("annotations")
    annotation = annotations.get(AUTOGEN) if isinstance(annotations, Mapping) else None
    namespace = ""
    if document["kind"] == "Policy":
        namespace = str(metadata.get("namespace") or "default")
    frame = PolicyFrame(metadata["name"], namespace, annotation, spec, kyverno, steps)
    try:
        return _converted(document, frame, rules)
    except _MISSHAPEN as error:
        raise PolicydError(f"the policy is not shaped as Kyverno's are: {error}") from error


def _converted(document: Mapping[str, Any], frame: PolicyFrame, rules: list[Any]) -> Conversion:
    refusals, notes = [*_refused_settings(frame.spec)], []
    made: list[IndexedRule] = []
    found, failures = _each_alone(document, frame, rules)
    if frame.spec.get("applyRules") == "One" and len(rules) > 1:
        if any(rule.kyverno and not rule.generated for _, rule in found):
            found, failures = _each_alone(document, replace(frame, kyverno=True), rules)
        first = first_only(found, {index: _does(rules[index]) for index, _ in failures})
        found, failures = [], failures + first.failures
        notes += first.notes
        for indexes, rule in first.rules:
            try:
                _check(document, frame, rule)
                found.append((indexes, rule))
            except UnconvertibleRuleError as error:
                failures += [(index, error) for index in indexes]
    for index, why in failures:
        name = str(rules[index].get("name", "")) if isinstance(rules[index], Mapping) else ""
        path = ("spec", "rules", index, *why.path)
        refusals.append(UnconvertedPart(path, name, why.reason, why.hint))
    for indexes, rule in found:
        notes += [(indexes[0], note) for note in rule.notes]
        for each in _by_action(rule, frame):
            _add(made, indexes, each)
    documents = tuple(_documents(document, frame, made, len(rules)))
    places = tuple(indexes for indexes, _ in made)
    return Conversion(documents, places, tuple(refusals), tuple(notes))


def _each_alone(
    document: Mapping[str, Any], frame: PolicyFrame, rules: list[Any]
) -> tuple[list[IndexedRule], list[tuple[int, UnconvertibleRuleError]]]:
    """Return what each rule becomes by itself, and the rules that have no counterpart."""
    found: list[IndexedRule] = []
    failures = []
    for index, rule in enumerate(rules):
        try:
            parts = _rule(rule, frame)
            for each in parts:
                _check(document, frame, each)
        except UnconvertibleRuleError as error:
            failures.append((index, error))
            continue
        found += [((index,), each) for each in parts]
    return found, failures


def _does(rule: Json) -> str:
    """Return what a rule does, as `first_only` calls it."""
    work = ("generate", "mutate", "validate")
    return next((name for name in work if isinstance(rule, Mapping) and name in rule), "")


def _check(document: Mapping[str, Any], frame: PolicyFrame, rule: ConvertedRule) -> None:
    """Check that what is made of a rule can be used.

    Raises:
        UnconvertibleRuleError: If it cannot be.
    """
    alone: list[IndexedRule] = [((0,), each) for each in _by_action(rule, frame)]
    for policy in _documents(document, frame, alone, 1):
        for finding in load_document(Document(policy, "converted"), EVERY_FORMAT).findings:
            if finding.severity == "error":
                raise UnconvertibleRuleError(f"the result is no valid policy: {finding.message}")


def _rule(rule: Json, frame: PolicyFrame) -> list[ConvertedRule]:
    if not isinstance(rule, Mapping):
        raise UnconvertibleRuleError("the rule is not a map")
    try:
        for each in refused_fields(rule, "rule"):
            raise UnconvertibleRuleError(each.reason, each.path, each.hint)
        plain, notes = written_out(rule)
        made = convert_rule(plain, frame)
    except Untranslatable as error:
        raise UnconvertibleRuleError(error.reason) from error
    except RecursionError as error:
        raise UnconvertibleRuleError("the rule is nested too deeply") from error
    except _MISSHAPEN as error:
        raise UnconvertibleRuleError(f"the rule is not shaped as Kyverno's are: {error}") from error
    made[0].notes[:0] = notes
    return made


def _refused_settings(spec: Mapping[str, Any]) -> Iterator[UnconvertedPart]:
    for refused in refused_fields(spec, "spec", ("spec",)):
        yield UnconvertedPart(refused.path, "", refused.reason, refused.hint)


def _by_action(rule: ConvertedRule, frame: PolicyFrame) -> Iterator[ConvertedRule]:
    """Yield a rule for each of its actions, unless one with steps can have them all."""
    if frame.steps and not rule.kyverno and rule.actions.steps() is not None:
        yield rule
        return
    for action, condition in rule.actions.conditions().items():
        conditions = dict(rule.matching.conditions)
        if condition:
            conditions[free_name(_ACTING[action], conditions, _LONGEST_NAME)] = condition
        usual = action == rule.actions.enforcement or not condition
        yield replace(
            rule,
            matching=replace(rule.matching, conditions=conditions),
            actions=RuleActions(action),
            suffix=rule.suffix if usual else f"{rule.suffix}-{_ACTING[action]}",
        )


def _add(made: list[IndexedRule], added: tuple[int, ...], rule: ConvertedRule) -> None:
    """Add a rule, to a policy that concerns the same requests if there is one."""
    for position, (indexes, other) in enumerate(made):
        if _alike(other, rule) and _joined(other, rule):
            made[position] = ((*indexes, *added), other)
            return
    made.append((added, rule))


def _joined(one: ConvertedRule, other: ConvertedRule) -> bool:
    """Add what a rule asks or generates to one for the same requests, if it may be added."""
    if one.validations and other.validations:
        one.validations += other.validations
        return True
    mine, more = one.generated, other.generated
    if mine is None or more is None or mine.evaluation != more.evaluation:
        return False
    mine.entries.extend(more.entries)
    return True


def _alike(one: ConvertedRule, other: ConvertedRule) -> bool:
    return (
        (one.kyverno, one.controllers) == (other.kyverno, other.controllers)
        and one.matching == other.matching
        and one.variables == other.variables
        and one.actions == other.actions
        and one.settings == other.settings
    )


def _documents(
    document: Mapping[str, Any],
    frame: PolicyFrame,
    made: list[IndexedRule],
    rules: int,
) -> Iterator[dict[str, Any]]:
    mutating = sum(bool(rule.mutations) for _, rule in made)
    names = _names(frame, made, rules)
    for position, ((_, rule), name) in enumerate(zip(made, names, strict=True)):
        first_metadata = document["metadata"]
        spec = _spec(rule, frame, first_metadata.get("annotations") or {})
        if mutating > 1 and rule.mutations:
            spec["priority"] = len(made) - position
        if rule.kyverno:
            yield _of_kyverno(rule, name, spec)
            continue
        yield {
            "apiVersion": "policyd.io/v1alpha1",
            "kind": "Policy",
            "metadata": {"name": name},
            "spec": spec,
        }


def _names(frame: PolicyFrame, made: list[IndexedRule], rules: int) -> list[str]:
    """Return the names of policies.

    Kyverno's kinds have no priority, and mutate in the order of their names: these are numbered if
    that is not the order of the rules.
    """
    if len(made) == 1:
        return [frame.name]
    width = len(str(len(made)))
    names: dict[str, None] = {}
    for numbered in (False, True):
        names = {}
        for position, (indexes, rule) in enumerate(made, 1):
            number = f"-{position:0{width}}" if numbered else ""
            of_rule = f"-{slug(rule.name or str(indexes[0]))}" if len(indexes) < rules else ""
            name = f"{frame.name}{number}{of_rule}{rule.suffix}"
            names[free_name(name, names, _LONGEST_NAME)] = None
        in_turn = [n for n, (_, r) in zip(names, made, strict=True) if r.kyverno and r.mutations]
        if in_turn == sorted(in_turn):
            break
    return [*names]


def _of_kyverno(rule: ConvertedRule, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a policy of Kyverno's own kinds, which see a pod template as a pod."""
    kind = "MutatingPolicy" if rule.mutations else "ValidatingPolicy"
    kind = "GeneratingPolicy" if rule.generated else kind
    metadata: dict[str, Any] = {"name": name}
    description = spec.pop("description", None)
    if description:
        metadata["annotations"] = {_DESCRIPTION: description}
    enforcement = spec.pop("enforcement", None)
    spec.pop("priority", None)
    if enforcement:
        spec["validationActions"] = [enforcement]
        spec["validations"] = [
            {key: value for key, value in each.items() if key != "name"}
            for each in spec["validations"]
        ]
    pods = [each["resources"] for each in spec["matchConstraints"]["resourceRules"]] == [["pods"]]
    if pods and not (rule.generated or rule.targets) and len(rule.controllers) < _ALL_CONTROLLERS:
        spec["autogen"] = {"podControllers": {"controllers": list(rule.controllers)}}
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


def _spec(
    rule: ConvertedRule, frame: PolicyFrame, annotations: Mapping[str, Any]
) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    description = " ".join(str(annotations.get(_DESCRIPTION) or "").split())
    if description:
        spec["description"] = description
    spec["matchConstraints"] = rule.matching.constraints
    if rule.matching.conditions:
        spec["matchConditions"] = [
            {"name": name, "expression": as_condition(text)}
            for name, text in rule.matching.conditions.items()
        ]
    if rule.variables:
        spec["variables"] = [
            {"name": each.name, "expression": each.expression} for each in rule.variables
        ]
    if rule.generated:
        evaluation = {"evaluation": rule.generated.evaluation} if rule.generated.evaluation else {}
        return {**evaluation, **spec, "generate": rule.generated.entries}
    if rule.validations:
        spec["validations"] = rule.validations
        spec["enforcement"] = rule.actions.enforcement
        spec |= {"rollout": rule.actions.steps()} if rule.actions.overrides else {}
    spec |= rule.settings | rule.targets
    if rule.mutations:
        spec["mutations"] = [chosen_of([(rule.applies, each)]) for each in rule.mutations]
        spec["reinvocationPolicy"] = "Never"
    spec["failurePolicy"] = _failure_policy(frame.spec)
    return spec


def _failure_policy(spec: Mapping[str, Any]) -> str:
    webhook = spec.get("webhookConfiguration")
    given = webhook.get("failurePolicy") if isinstance(webhook, Mapping) else None
    return str(given or spec.get("failurePolicy") or "Fail")


# Comments, so that what is made of rules keeps them.


def comments_of(text: str, starts: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """Return the comments before the rules of a policy, and those of each rule.

    Args:
        text: The text of the document.
        starts: The lines on which its rules begin, from 1.
    """
    before: list[str] = []
    of_rules: list[list[str]] = [[] for _ in starts]
    lines = text.splitlines()
    firsts = [_first_line(lines, start) for start in starts]
    for number, line in enumerate(lines, start=1):
        found = _WHOLE.fullmatch(line) or _TRAILING.fullmatch(line)
        if found is None:
            continue
        rule = sum(first <= number for first in firsts) - 1
        (of_rules[rule] if rule >= 0 else before).append(found["text"].rstrip())
    return before, of_rules


def _first_line(lines: Sequence[str], start: int) -> int:
    """Return the first line of the comments directly above a line; they belong to it."""
    while start > 1 and start - 2 < len(lines) and _WHOLE.fullmatch(lines[start - 2]):
        start -= 1
    return start
