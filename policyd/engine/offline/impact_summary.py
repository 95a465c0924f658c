"""Write the impact of a roll-out as counts: by kind, team, owner, policy, rule and field."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from policyd.engine.offline.impact import AffectedObject, Impact, RuleKey

MOST_LISTED: Final = 10_000
"""Objects that a summary lists of each verdict."""

MOST_NAMED: Final = 10
"""Objects that a rule names."""

_MOST_FIELDS_NAMED: Final = 5


class ImpactGroup(msgspec.Struct, frozen=True, rename="camel"):
    """The affected objects of a team, owner or policy.

    Attributes:
        name: Its name.
        refused: Objects that would be refused.
        running: Those of them that exist still, pods that have ended left out.
        retrying: Those of them that a controller creates again and again.
        warned: Objects that rules object to without refusing them.
        changed: Objects that would be changed.
    """

    name: str
    refused: int = 0
    running: int = 0
    retrying: int = 0
    warned: int = 0
    changed: int = 0


class ImpactRule(msgspec.Struct, frozen=True, rename="camel"):
    """The objects that a rule objects to.

    Attributes:
        policy: The policy.
        rule: Its validation; empty if the policy could not be evaluated.
        enforcement: `Deny`, or what it does instead of refusing.
        objects: How many there are.
        running: Those of them that exist still, pods that have ended left out.
        message: The first message.
        first: The first objects, as `KIND NAMESPACE/NAME`.
    """

    policy: str
    rule: str
    enforcement: str
    objects: int
    running: int
    message: str
    first: tuple[str, ...]


class ImpactField(msgspec.Struct, frozen=True, rename="camel"):
    """A field that would be changed, and of how many objects of a kind."""

    kind: str
    field: str
    objects: int


class ListedObject(msgspec.Struct, frozen=True, rename="camel"):
    """An affected object."""

    kind: str
    namespace: str
    name: str
    team: str
    owner: str
    operations: dict[str, int]
    running: bool = False
    retrying: bool = False
    rules: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


class ImpactSummary(msgspec.Struct, frozen=True, rename="camel"):
    """The impact of a roll-out.

    Attributes:
        sentence: All of it in one sentence.
        judged: Requests with a verdict.
        refused: Objects that would be refused.
        running: Those of them that exist still, pods that have ended left out.
        retrying: Those of them that a controller creates again and again.
        controllers: These controllers.
        warned: Objects that rules object to without refusing them.
        changed: Objects that would be changed.
        requests: The requests for these objects, by verdict.
        refused_then: Requests that the API server refused then; they count nowhere else.
        refused_again: Those of them that would be refused by the policies.
        dry_runs: Requests that were dry runs; they count nowhere else.
        kinds: Objects that would be refused, by their plural.
        teams: The teams, those with most refused objects first.
        owners: The topmost controllers.
        policies: The policies.
        rules: The rules.
        fields: The fields that would be changed.
        refused_objects: The objects that would be refused, at most `MOST_LISTED`.
        changed_objects: The objects that would be changed, at most `MOST_LISTED`.
        left_out: Requests for more objects than are kept by name.
    """

    sentence: str
    judged: int
    refused: int
    running: int
    retrying: int
    controllers: int
    warned: int
    changed: int
    requests: dict[str, int]
    refused_then: int
    refused_again: int
    dry_runs: int
    kinds: dict[str, int]
    teams: tuple[ImpactGroup, ...]
    owners: tuple[ImpactGroup, ...]
    policies: tuple[ImpactGroup, ...]
    rules: tuple[ImpactRule, ...]
    fields: tuple[ImpactField, ...]
    refused_objects: tuple[ListedObject, ...]
    changed_objects: tuple[ListedObject, ...]
    left_out: int


def summarize(impact: Impact) -> ImpactSummary:
    """Return the counts of what was gathered."""
    refused = list(impact.refused.values())
    changed = list(impact.changed.values())
    retried = [each for each in refused if impact.is_retried(each)]
    kinds: dict[str, int] = {}
    for each in refused:
        kinds[each.subject.plural] = kinds.get(each.subject.plural, 0) + 1
    kinds = dict(sorted(kinds.items(), key=lambda pair: (-pair[1], pair[0])))
    fields = _fields(changed)
    counts = _Counts(
        kinds=kinds,
        names={each.subject.plural: each.subject.kind for each in refused},
        teams=len({each.subject.team for each in refused}),
        running=sum(each.exists for each in refused),
        retrying=len(retried),
        controllers=len({(each.subject.namespace, each.subject.owner) for each in retried}),
        changed=len(changed),
        fields=[f"{each.kind} {each.field}" for each in fields],
        judged=impact.judged,
    )
    return ImpactSummary(
        sentence=_sentence(counts),
        judged=impact.judged,
        refused=len(refused),
        running=counts.running,
        retrying=counts.retrying,
        controllers=counts.controllers,
        warned=len(impact.warned),
        changed=counts.changed,
        requests=dict(impact.requests),
        refused_then=impact.refused_then,
        refused_again=impact.refused_again,
        dry_runs=impact.dry_runs,
        kinds=kinds,
        teams=_groups(impact, lambda each: [each.subject.team]),
        owners=_groups(impact, _owner),
        policies=_groups(impact, _policies),
        rules=_rules(impact),
        fields=fields,
        refused_objects=tuple(_listed(each, impact) for each in refused[:MOST_LISTED]),
        changed_objects=tuple(_listed(each, impact) for each in changed[:MOST_LISTED]),
        left_out=impact.left_out,
    )


class _Counts(msgspec.Struct, frozen=True, kw_only=True):
    kinds: dict[str, int]
    names: dict[str, str]
    teams: int
    running: int
    retrying: int
    controllers: int
    changed: int
    fields: list[str]
    judged: int


def _sentence(counts: _Counts) -> str:
    """Write the impact as one sentence."""
    parts = []
    if counts.kinds:
        parts.append(_refusal(counts))
    if counts.changed:
        named = counts.fields[:_MOST_FIELDS_NAMED]
        more = len(counts.fields) - len(named)
        fields = ", ".join(named) + (f" and {_count(more, 'more field')}" if more else "")
        parts.append(f"would change {_count(counts.changed, 'object')}: {fields}")
    if not parts:
        return f"Would refuse and change nothing of {_count(counts.judged, 'request')}"
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def _refusal(counts: _Counts) -> str:
    kinds = list(counts.kinds.items())
    shown = [_of_kind(plural, number, counts.names[plural]) for plural, number in kinds[:3]]
    rest = sum(number for _, number in kinds[3:])
    if rest:
        shown.append(_count(rest, "other"))
    text = f"would refuse {_listing(shown)} of {_count(counts.teams, 'team')}"
    running = "run" if list(counts.kinds) == ["pods"] else "exist"
    if counts.running:
        one = counts.running == 1
        text += f", {counts.running:,} that {f'{running}s' if one else running} now"
    if counts.retrying:
        keeps = "keeps" if counts.controllers == 1 else "keep"
        who = "a controller" if counts.controllers == 1 else f"{counts.controllers:,} controllers"
        text += f", {counts.retrying:,} of {who} that {keeps} retrying"
    return text


def _of_kind(plural: str, number: int, kind: str) -> str:
    return f"{number:,} {kind.lower() if number == 1 and '/' not in plural else plural}"


def _listing(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def subject_text(found: AffectedObject) -> str:
    """Write an object as `KIND NAMESPACE/NAME`."""
    subject = found.subject
    name = f"{subject.namespace}/{subject.name}" if subject.namespace else subject.name
    return f"{subject.kind} {name}"


def _owner(each: AffectedObject) -> Iterable[str]:
    subject = each.subject
    yield f"{subject.namespace}: {subject.owner}" if subject.namespace else subject.owner


def _policies(each: AffectedObject) -> Iterable[str]:
    return {*(key.policy for key in each.messages), *each.policies}


def _groups(
    impact: Impact, names: Callable[[AffectedObject], Iterable[str]]
) -> tuple[ImpactGroup, ...]:
    counted: dict[str, Counter[str]] = {}
    for each in impact.refused.values():
        what = ["refused"]
        what += ["running"] if each.exists else []
        what += ["retrying"] if impact.is_retried(each) else []
        for name in names(each):
            counted.setdefault(name, Counter()).update(what)
    for verdict, objects in (("warned", impact.warned), ("changed", impact.changed)):
        for each in objects.values():
            for name in names(each):
                counted.setdefault(name, Counter())[verdict] += 1
    groups = (ImpactGroup(name=name, **counts) for name, counts in counted.items())
    return tuple(
        sorted(groups, key=lambda each: (-each.refused, -each.warned, -each.changed, each.name))
    )


def _rules(impact: Impact) -> tuple[ImpactRule, ...]:
    found: dict[RuleKey, list[AffectedObject]] = {}
    for objects in (impact.refused, impact.warned):
        for each in objects.values():
            for key in each.messages:
                found.setdefault(key, []).append(each)
    rules = (
        ImpactRule(
            policy=key.policy,
            rule=key.rule,
            enforcement=key.enforcement,
            objects=len(objects),
            running=sum(each.exists for each in objects),
            message=objects[0].messages[key],
            first=tuple(map(subject_text, objects[:MOST_NAMED])),
        )
        for key, objects in found.items()
    )
    return tuple(sorted(rules, key=lambda each: (-each.objects, each.policy, each.rule)))


def _fields(changed: Iterable[AffectedObject]) -> tuple[ImpactField, ...]:
    counts: dict[tuple[str, str], int] = {}
    for each in changed:
        for name in each.fields:
            key = each.subject.kind, name
            counts[key] = counts.get(key, 0) + 1
    found = (ImpactField(kind, name, number) for (kind, name), number in counts.items())
    return tuple(sorted(found, key=lambda each: (-each.objects, each.kind, each.field)))


def _listed(each: AffectedObject, impact: Impact) -> ListedObject:
    subject = each.subject
    return ListedObject(
        kind=subject.kind,
        namespace=subject.namespace,
        name=subject.name,
        team=subject.team,
        owner=subject.owner,
        operations={str(name): number for name, number in each.operations.items()},
        running=each.exists,
        retrying=impact.is_retried(each),
        rules=tuple(_rule_texts(each)),
        fields=tuple(each.fields),
    )


def _rule_texts(each: AffectedObject) -> Iterator[str]:
    for key in each.messages:
        yield f"{key.policy}: {key.rule}" if key.rule else key.policy
