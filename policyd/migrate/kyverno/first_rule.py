"""`applyRules: One`: of the rules that validate, and of those that mutate, the first one applies.

A rule applies if it matches, its preconditions hold, and its patterns are about the object; whether
it passes or fails. So a rule that validates gets a condition for each rule before it. Rules that
mutate become one policy, whose expression chooses among them: conditions of a policy of its own
would look at the object as the rules before have changed it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from policyd.migrate.cel_values import all_of
from policyd.migrate.kyverno.context import Named
from policyd.migrate.kyverno.matching import Matching, namespace_selected, one_of, selected
from policyd.migrate.kyverno.mutations import chosen_of
from policyd.migrate.kyverno.patterns import any_of, negated
from policyd.migrate.kyverno.rules import ConvertedRule, UnconvertibleRuleError, free_name, slug

IndexedRule = tuple[tuple[int, ...], ConvertedRule]
"""A converted rule with the indexes of the rules that it is made of."""
_CHANGES_NOTHING: Final = (
    "of the rules that match, the first one is applied, also if it changes nothing; Kyverno goes on"
    " to the next rule then"
)
_NOT_CONVERTED: Final = "a rule before this one is not converted"
_LONGEST_NAME: Final = 63
_MOST: Final = 40
"""Rules; a policy has at most 64 conditions."""
_HINT: Final = "exclude in each rule what the rules before it match"


@dataclass
class FirstRules:
    """The rules of a policy of which the first one applies.

    Attributes:
        rules: The rules, as far as they are converted.
        failures: Rules that cannot be converted, by their indexes.
        notes: What differs, by the index of the rule.
    """

    rules: list[IndexedRule] = field(default_factory=list)
    failures: list[tuple[int, UnconvertibleRuleError]] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)

    def refuse(self, index: int, why: str, hint: str = _HINT) -> None:
        """Refuse a rule."""
        reason = f"`applyRules: One` applies the first rule only, and {why}"
        self.failures.append((index, UnconvertibleRuleError(reason, (), hint)))

    def refuse_all(self, rules: Sequence[IndexedRule], why: str, *, after: int) -> None:
        """Refuse the rules after one."""
        for index in dict.fromkeys(indexes[0] for indexes, _ in rules):
            if index > after:
                self.refuse(index, why)


def first_only(rules: Sequence[IndexedRule], failed: Mapping[int, str]) -> FirstRules:
    """Return rules that apply only where none before them does.

    Args:
        rules: The rules as they are alone, each of one index.
        failed: What rules do that are not converted, by their indexes: `validate`, `mutate` or
            `generate`.
    """
    made = FirstRules()
    for does, (name, choose) in _WORK.items():
        own = [each for each in rules if getattr(each[1], name)]
        first_failed = min((i for i, what in failed.items() if what == does), default=None)
        if first_failed is not None:
            made.refuse_all(own, _NOT_CONVERTED, after=first_failed)
            own = [each for each in own if each[0][0] < first_failed]
        if (several := sorted({indexes[0] for indexes, _ in own}))[_MOST:]:
            last = several[_MOST - 1]
            made.refuse_all(own, f"more than {_MOST} rules have too many conditions", after=last)
            own = [each for each in own if each[0][0] <= last]
        if len(several) > 1:
            choose(made, own)
        else:
            made.rules += own
    made.rules.sort(key=lambda each: each[0])
    return made


def _generating(made: FirstRules, rules: Sequence[IndexedRule]) -> None:
    made.rules.append(rules[0])
    why = "policies that generate do not depend on each other"
    made.refuse_all(rules, why, after=rules[0][0][0])


def _validating(made: FirstRules, rules: Sequence[IndexedRule]) -> None:
    for number, (indexes, rule) in enumerate(rules):
        try:
            excluded = _excluded(rule, [each for _, each in rules[:number]])
        except UnconvertibleRuleError as error:
            made.refuse(indexes[0], error.reason, error.hint)
            continue
        if excluded is None:
            made.notes.append((indexes[0], "it never applies: a rule before it always does"))
        else:
            made.rules.append((indexes, excluded))


def _excluded(rule: ConvertedRule, earlier: Sequence[ConvertedRule]) -> ConvertedRule | None:
    """Return a rule that applies where none of others does; None if one of them always does."""
    conditions, late = dict(rule.matching.conditions), []
    variables = [rule.variables]
    for each in earlier:
        text = _applied(each, rule.matching, rule)
        if text == "false":
            continue
        if not text:
            return None
        named = "variables." in text
        variables += [each.variables] if named else []
        if named and not rule.kyverno:
            late.append(text)
        else:
            name = free_name(f"not-{slug(each.name)}", conditions, _LONGEST_NAME)
            conditions[name] = negated(text)
    excluded = replace(
        rule,
        matching=replace(rule.matching, conditions=conditions),
        variables=_joined(*variables),
    )
    if late:
        excluded.validations = [
            {**each, "expression": any_of([*late, each["expression"]])} for each in rule.validations
        ]
    return excluded


def _mutating(made: FirstRules, rules: Sequence[IndexedRule]) -> None:
    """Make one policy of the rules for each place in which a pod template may be."""
    for indexes, rule in rules:
        earlier = [each for each in rules if each[0] < indexes]
        if why := _not_chosen(rule, [each for _, each in earlier]):
            made.refuse(indexes[0], why)
            made.refuse_all(rules, _NOT_CONVERTED, after=indexes[0])
            rules = earlier
            break
    try:
        chosen = [
            _chosen([each for each in rules if each[1].suffix == suffix])
            for suffix in dict.fromkeys(rule.suffix for _, rule in rules)
        ]
    except UnconvertibleRuleError as error:
        made.refuse_all(rules, error.reason, after=-1)
        return
    made.rules += chosen
    if any(len(indexes) > 1 for indexes, _ in chosen):
        made.notes.append((rules[0][0][0], _CHANGES_NOTHING))


def _not_chosen(rule: ConvertedRule, earlier: Sequence[ConvertedRule]) -> str:
    """Return why a rule cannot be in one policy with those before it; empty if it can be."""
    own = [each for each in earlier if each.suffix == rule.suffix]
    if any(_overlap(each, rule) for each in earlier if each.suffix != rule.suffix):
        return "this one is for controllers, and one before it for the pods in them"
    if not own:
        return ""
    if rule.targets or own[0].targets:
        return "existing objects are mutated by each rule"
    mutations = [each for one in (*own, rule) for each in one.mutations]
    types = {each["patchType"] for each in mutations}
    if len(mutations) > len(own) + 1 or len(types) > 1:
        return "one that needs an overlay and patches, or several, cannot be chosen as a whole"
    return _other_templates(own[0], rule)


def _chosen(rules: Sequence[IndexedRule]) -> IndexedRule:
    """Return the rule that does what the first of several does that applies."""
    if len(rules) == 1:
        return rules[0]
    first, found = rules[0][1], [rule for _, rule in rules]
    constraints = [rule.matching.constraints for rule in found]
    shared = {
        name: text
        for name, text in first.matching.conditions.items()
        if all(text in rule.matching.conditions.values() for rule in found)
    }
    matching = Matching(constraints[0], shared)
    if any(each != constraints[0] for each in constraints):
        listed = [each for one in constraints for each in one["resourceRules"]]
        unique = [each for number, each in enumerate(listed) if each not in listed[:number]]
        matching = Matching({"resourceRules": unique}, shared)
    ways = [(_applied(rule, matching, first), rule.mutations[0]) for rule in found]
    chosen = replace(
        first,
        matching=matching,
        variables=_joined(*(rule.variables for rule in found)),
        mutations=[chosen_of(ways)],
        applies="",
    )
    return tuple(index for indexes, _ in rules for index in indexes), chosen


def _applied(rule: ConvertedRule, within: Matching, other: ConvertedRule) -> str:
    """Return the condition that a rule applies to what is matched already; empty if it does.

    It is `false` if nothing that is matched concerns the rule.

    Raises:
        UnconvertibleRuleError: If it cannot be asked in a policy that is made of the other rule.
    """
    if why := _other_templates(rule, other):
        raise UnconvertibleRuleError(why, (), _HINT)
    constraints, shared = rule.matching.constraints, within.conditions.values()
    where = "" if constraints == within.constraints else _where(constraints, within.constraints)
    if where == "false":
        return where
    own = [text for text in rule.matching.conditions.values() if text not in shared]
    return all_of(filter(None, [where, *own, rule.applies]))


def _other_templates(one: ConvertedRule, other: ConvertedRule) -> str:
    if one.kyverno and one.controllers != other.controllers:
        return "policies of Kyverno's kinds see other pod templates here than in the one before"
    return ""


def _overlap(one: ConvertedRule, other: ConvertedRule) -> bool:
    named = [
        {
            each
            for listed in rule.matching.constraints["resourceRules"]
            for each in listed["resources"]
        }
        for rule in (one, other)
    ]
    return "*" in named[0] | named[1] or not named[0].isdisjoint(named[1])


def _joined(*variables: Iterable[Named]) -> list[Named]:
    """Return the variables of several rules.

    Raises:
        UnconvertibleRuleError: If two of a name differ.
    """
    made: dict[str, Named] = {}
    for each in (named for of_rule in variables for named in of_rule):
        if made.setdefault(each.name, each) != each:
            raise UnconvertibleRuleError(
                f"the variable `{each.name}` is another one in a rule before this one",
                (),
                "give it another name",
            )
    return list(made.values())


def _where(constraints: Mapping[str, Any], within: Mapping[str, Any]) -> str:
    """Return the condition that constraints are met by what other ones match."""
    rules, parts = within["resourceRules"], []
    if constraints["resourceRules"] != rules:
        listed = [*_requests(constraints["resourceRules"], rules)]
        if not listed:
            return "false"
        parts += [any_of(listed)] if all(listed) else []
    left_out = [*_requests(constraints.get("excludeResourceRules", ()), rules)]
    if left_out:
        parts.append(negated(any_of(left_out)) if all(left_out) else "false")
    labels, of_namespace = (constraints.get(f"{name}Selector") for name in ("object", "namespace"))
    if labels and labels != within.get("objectSelector"):
        parts.append(selected("object.metadata.?labels", labels))
    if of_namespace and of_namespace != within.get("namespaceSelector"):
        parts.append(namespace_selected(of_namespace))
    return all_of(filter(None, parts))


def _requests(
    rules: Sequence[Mapping[str, Any]], within: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Yield the condition of each rule of constraints, as far as others do not say it already."""
    plurals = {each for rule in within for each in rule["resources"]}
    if any("/" in each for rule in (*rules, *within) for each in rule["resources"]):
        raise UnconvertibleRuleError("a rule before this one is for a subresource", (), _HINT)
    for rule in rules:
        if "*" in {*plurals, *rule["resources"]}:
            common = rule["resources"]
        else:
            common = [each for each in rule["resources"] if each in plurals]
        if common:
            (group,), (version,) = rule["apiGroups"], rule["apiVersions"]
            asked = {
                "request.resource.group": [group],
                "request.resource.version": [version] if group else ["*"],
                "request.resource.resource": common,
                "request.operation": rule["operations"],
            }
            if all({*each["operations"]} <= {*rule["operations"]} for each in within):
                del asked["request.operation"]
            yield all_of(
                one_of(path, values) for path, values in asked.items() if "*" not in values
            )


_WORK: Final[Mapping[str, tuple[str, Callable[[FirstRules, Sequence[IndexedRule]], None]]]] = {
    "validate": ("validations", _validating),
    "mutate": ("mutations", _mutating),
    "generate": ("generated", _generating),
}
"""What rules do: the field that says so, and how the first of several is chosen."""
