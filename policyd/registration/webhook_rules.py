"""Which requests are sent to the webhooks: derived from the policies, as narrow as possible.

Every call is decided by all policies, whichever webhook sent it: so mutations keep their order, no
answer omits another webhook's policy, and replicas that know different
policies for a moment can answer each other's calls. A webhook only states the requests to send, and
the effect on them if no webhook answers. Namespaces are cut into disjoint pieces:
a request to change is sent once, so that a policy that is not idempotent runs once, and
a request to check once for each failurePolicy, or twice with the same answer if that would make
too many pieces. Of requests to change, webhooks that may be left out take those that others do not.

A webhook has one namespace selector and one failurePolicy. Within these, the requirements of
policies on labels, names, and match conditions become the object selector if they are all the same,
and else one match condition: that one of the policies may want the request. A part that prevents
this is dropped, not guessed: a condition that only the webhooks can evaluate is evaluated there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from policyd.api.admission import FailurePolicy, Rule
from policyd.api.kueue.names import GROUP
from policyd.api.names import NAME_LABEL
from policyd.engine.model.compiled import CompiledPolicy
from policyd.jobs.integrations import POD, Integrations
from policyd.registration.atoms import (
    ALL_OPERATIONS,
    RuleAtom,
    connected,
    left_of,
    rules_of,
    uncovered,
)
from policyd.registration.conditions import (
    all_of,
    any_of,
    atom_condition,
    label_condition,
    namespace_condition,
)
from policyd.registration.interest import (
    Given,
    Interest,
    Interests,
    checks_of,
    named_too_much,
    queue_interests,
)
from policyd.registration.queue_atoms import (
    CHANGED_PODS,
    GATED,
    IN_A_QUEUE,
    IN_NO_QUEUE,
    MANAGED_POD,
    OF_A_JOB,
    PART_CHANGED,
    RESIZED_PODS,
    UNMANAGED_POD,
    checked_jobs,
    namespaces_of_jobs,
)
from policyd.registration.requirements import (
    Requirements,
    apart,
    common,
    in_order,
    rejoined,
    text_of,
)

MOST_WEBHOOKS: Final = 16
"""Webhooks in one configuration. The API server looks at the selectors of all for each request, so
that beyond this many, needless calls are cheaper: first those that may pass unanswered, then for
all objects that one of the conditions means, then for everything of the kinds in the selected
namespaces, then in all namespaces with a label in common with these."""

MOST_DISTINGUISHED: Final = 3
"""Object selectors of required requests that others are cut by."""

MOST_ALTERNATIVES: Final = 16
"""Policies whose conditions are joined into one."""

LONGEST_CONDITION: Final = 8192
"""Characters of such a condition, so that a configuration stays one that people can read."""

MUTATING_OPERATIONS: Final = frozenset({"CREATE", "UPDATE"})
"""Operations with an object that can be changed: neither deletion nor connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedWebhook:
    """One webhook: the requests it is sent, and whether an outage denies them."""

    failure_policy: FailurePolicy
    rules: tuple[Rule, ...]
    namespaces: Requirements = frozenset()
    objects: Requirements = frozenset()
    condition: str = ""
    """CEL that is true of the requests that are sent; empty for all."""
    left_out: tuple[str, ...] = ()
    """Names of resources that a wildcard covers and that are not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRules:
    """Which requests are sent to the webhooks."""

    mutate: tuple[DerivedWebhook, ...] = ()
    validate: tuple[DerivedWebhook, ...] = ()


def derive_webhook_rules(
    policies: Iterable[CompiledPolicy],
    defaulted: frozenset[str] = frozenset(),
    *,
    queue: Integrations | None,
    failure_policy: FailurePolicy = "Fail",
    besides: tuple[DerivedWebhook, ...] = (),
) -> WebhookRules:
    """Derive the requests to send from the policies: those that one of them needs, and few others.

    Requests that must not pass unanswered follow from policies that refuse: those that only warn or
    audit stop nothing. Exclude rules are left to the engine.

    Args:
        policies: Those in force.
        queue: Which jobs are held for their queue, while Kueue's objects are checked; None if
            nothing is done for the queue.
        defaulted: Namespaces with a queue for jobs that name none.
        failure_policy: The failurePolicy for jobs that queue, and for queues.
        besides: Webhooks that are registered in any case.
    """
    mutate: list[Given] = []
    validate: list[Given] = []
    policies = tuple(policies)
    greedy = named_too_much(policies)
    applied = [(policy, binding) for policy in policies for binding in policy.bindings]
    for policy, binding in applied:
        asked = list(checks_of(policy, binding, coarse=policy.namespace in greedy))
        mutate += asked if policy.changes else ()
        validate += asked if policy.checks else ()
    if queue is not None:
        held, checked = queue_interests(queue, defaulted=defaulted, failure_policy=failure_policy)
        mutate += held
        validate += checked
    changeable = [
        (interest, [atom for atom in atoms if atom.operation in MUTATING_OPERATIONS])
        for interest, atoms in mutate
    ]
    if queue is not None:
        besides = (*guarding_calls(queue, failure_policy), hidden_call(queue), *besides)
    return WebhookRules(
        mutate=_bounded(changeable, once=True), validate=(*_bounded(validate), *besides)
    )


def guarding_calls(queue: Integrations, failure_policy: FailurePolicy) -> Iterable[DerivedWebhook]:
    """Yield webhooks for pods, so that no pod leaves its queue, or grows, unchecked.

    Pods that name their queue are sent as it is. A selector is asked of the pod as it was, too: an
    update that takes away the label is sent. They are webhooks of their own, so that pods that
    have nothing to do with a queue cost no condition.

    Args:
        queue: Which jobs are held for their queue.
        failure_policy: Whether an outage denies such changes.
    """
    if not queue.has(*POD):
        return
    call = DerivedWebhook(
        failure_policy=failure_policy,
        rules=rules_of(CHANGED_PODS),
        namespaces=namespaces_of_jobs(queue),
    )
    resized = replace(call, rules=rules_of(RESIZED_PODS))
    if queue.manages_all:
        yield resized
        return
    yield replace(call, objects=frozenset({IN_NO_QUEUE, MANAGED_POD}))
    of_jobs = frozenset({IN_NO_QUEUE, UNMANAGED_POD, OF_A_JOB})
    grows = any_of([GATED, PART_CHANGED]) if queue.gpu_fractions else GATED
    yield replace(call, objects=of_jobs, condition=grows)
    held = (label_condition([label]) for label in (IN_A_QUEUE, MANAGED_POD, OF_A_JOB))
    yield replace(resized, condition=any_of(held))


def hidden_call(queue: Integrations) -> DerivedWebhook:
    """Return the webhook for objects that name a queue, but whose kind is not queued: to warn.

    The API server compares labels only, for all but a few objects. Pods that are held are marked,
    so that not even the condition is asked about them.

    Args:
        queue: Which jobs are held for their queue.
    """
    kinds = {f"{atom.group}/{atom.resource}" for atom in checked_jobs(queue)}
    named = ", ".join(f"'{name}'" for name in sorted(kinds))
    anything = Rule(
        api_groups=("*",),
        api_versions=("*",),
        operations=("CREATE", "UPDATE"),
        resources=("*",),
        scope="Namespaced",
    )
    return DerivedWebhook(
        failure_policy="Ignore",
        rules=(anything,),
        namespaces=namespaces_of_jobs(queue),
        objects=frozenset({IN_A_QUEUE, UNMANAGED_POD}),
        condition=f"request.resource.group != '{GROUP}'"
        f" && !((request.resource.group + '/' + request.resource.resource) in [{named}])",
    )


def _bounded(given: Iterable[Given], *, once: bool = False) -> tuple[DerivedWebhook, ...]:
    """Return the calls, widened until they are few enough.

    Args:
        given: The interests.
        once: Whether no request may be sent by two of them, at any price.
    """
    split = [
        (interest, operation, frozenset(atom for atom in atoms if atom.operation == operation))
        for interest, given_atoms in given
        for atoms in (frozenset(given_atoms),)
        for operation in ALL_OPERATIONS
    ]
    interests, operations, sets = map(list, zip(*split, strict=True)) if split else ([], [], [])
    calls: tuple[DerivedWebhook, ...] = ()
    for widen in _WIDENINGS:
        interests = widen(interests, operations)
        calls = _calls(_needed(zip(interests, sets, strict=True)), once=once)
        if len(calls) <= MOST_WEBHOOKS:
            break
    return calls


_Operations = list[str]
"""The operation that each of some interests is of."""


def _as_they_are(interests: list[Interest], _operations: _Operations) -> list[Interest]:
    return interests


def _all_that_may_pass(interests: list[Interest], _operations: _Operations) -> list[Interest]:
    return [d if d.failure_policy == "Fail" else _widened(d) for d in interests]


def _names_as_conditions(interests: list[Interest], _operations: _Operations) -> list[Interest]:
    """Ask for the names of namespaces where a condition is asked anyway: fewer selectors remain."""
    return [_named_by_condition(d) if _may_be_joined(d) else d for d in interests]


def _named_by_condition(interest: Interest) -> Interest:
    names = frozenset(each for each in interest.namespaces if each.key == NAME_LABEL)
    asked = {namespace_condition(each) for each in names if each.operator in {"In", "NotIn"}}
    if len(asked) < len(names):
        return interest
    rest = interest.namespaces - names
    return replace(interest, namespaces=rest, conditions=interest.conditions | asked)


def _joined_conditions(interests: list[Interest], operations: _Operations) -> list[Interest]:
    """Ask for all kinds of objects what is asked for any of them: an outage still stops few.

    Conditions for one operation may name what another one does not have.
    """
    kinds = [
        (operation, replace(interest, conditions=frozenset()))
        for interest, operation in zip(interests, operations, strict=True)
    ]
    found: dict[tuple[str, Interest], set[str]] = {}
    for kind, interest in zip(kinds, interests, strict=True):
        if _may_be_joined(interest):
            found.setdefault(kind, set()).add(all_of(sorted(interest.conditions)))
    joined = {kind: any_of(sorted(conditions)) for kind, conditions in found.items()}
    return [
        replace(interest, conditions=frozenset({joined[kind]}))
        if _may_be_joined(interest)
        and len(found[kind]) > 1
        and len(joined[kind]) <= LONGEST_CONDITION
        else interest
        for kind, interest in zip(kinds, interests, strict=True)
    ]


def _may_be_joined(interest: Interest) -> bool:
    return bool(interest.conditions) and not interest.narrow and not interest.objects


def _all_objects(interests: list[Interest], _operations: _Operations) -> list[Interest]:
    return [d if d.narrow else _widened(d) for d in interests]


def _widened(interest: Interest) -> Interest:
    return replace(interest, objects=frozenset(), conditions=frozenset())


def _all_namespaces(interests: list[Interest], _operations: _Operations) -> list[Interest]:
    selected: dict[FailurePolicy, list[Requirements]] = {}
    wide = [interest for interest in interests if not interest.narrow]
    for interest in wide:
        selected.setdefault(interest.failure_policy, []).append(interest.namespaces)
    unions = {failure_policy: common(selectors) for failure_policy, selectors in selected.items()}
    return [d if d.narrow else replace(d, namespaces=unions[d.failure_policy]) for d in interests]


_WIDENINGS: Final = (
    _as_they_are,
    _all_that_may_pass,
    _names_as_conditions,
    _joined_conditions,
    _all_objects,
    _all_namespaces,
)
"""What makes the calls fewer, in turn, until there are few enough."""


def _needed(given: Iterable[tuple[Interest, frozenset[RuleAtom]]]) -> Interests:
    """Leave out interests that another one includes; the widest come first."""
    together: dict[Interest, frozenset[RuleAtom]] = {}
    for interest, atoms in given:
        together[interest] = together.get(interest, frozenset()) | atoms
    needed: dict[Interest, frozenset[RuleAtom]] = {}
    for interest in sorted(together, key=lambda d: d.rank):
        sent = [atom for other in needed if other.includes(interest) for atom in needed[other]]
        needed[interest] = frozenset(uncovered(together[interest], sent))
    return needed


def _apart(interests: Interests, *, once: bool) -> Interests:
    """Cut namespaces into pieces that have nothing in common, wherever the same may be sent.

    Args:
        interests: The interests.
        once: The fallback for too many pieces: send more, but once, or else some requests
            twice, but no more.
    """
    cut: dict[Interest, frozenset[RuleAtom]] = {}
    for atoms in connected(frozenset().union(*interests.values())):
        asking = {interest: its & atoms for interest, its in interests.items() if its & atoms}
        pieces = apart(interest.namespaces for interest in asking)
        wide = [d.namespaces for d in asking if once and not d.narrow]
        together = common(wide) if pieces is None and wide else None
        for interest, its in asking.items():
            whole = interest.namespaces if together is None or interest.narrow else together
            for piece in (whole,) if pieces is None else pieces[interest.namespaces]:
                there = replace(interest, namespaces=piece)
                cut[there] = cut.get(there, frozenset()) | its
    return cut


def _calls(interests: Interests, *, once: bool) -> tuple[DerivedWebhook, ...]:
    """Return the calls, one or more for each failurePolicy and namespace selector.

    Args:
        interests: The interests.
        once: Whether each request is sent by one webhook only, for any failurePolicy.
    """
    groups: dict[tuple[str, Requirements], dict[Interest, frozenset[RuleAtom]]] = {}
    for choice in ({"Fail", "Ignore"},) if once else ({"Fail"}, {"Ignore"}):
        chosen = {d: atoms for d, atoms in interests.items() if d.failure_policy in choice}
        cut = _apart(chosen, once=once)
        for interest in sorted(cut, key=lambda d: d.rank):
            key = min(choice), interest.namespaces
            groups.setdefault(key, {})[interest] = cut[interest]
    calls = [call for group in groups.values() for call in _group_calls(group)]
    return tuple(sorted(calls, key=lambda call: call.failure_policy))


def _group_calls(interests: Interests) -> Iterable[DerivedWebhook]:
    """Split the requests of the same namespaces by their interests; none is sent twice."""
    interests = _needed(interests.items())
    split: dict[tuple[Interest, ...], frozenset[RuleAtom]] = {}
    for atoms in connected(frozenset().union(*interests.values())):
        asking = tuple(interest for interest, its in interests.items() if its & atoms)
        split[asking] = split.get(asking, frozenset()) | atoms
    joined = _joined(
        sent
        for asking, atoms in split.items()
        for sent in _sent_of({interest: interests[interest] & atoms for interest in asking})
    )
    first = next(iter(interests))
    for sent in sorted(joined, key=lambda s: (s[0], s[2], text_of(s[1]))):
        failure_policy, objects, condition = sent
        yield DerivedWebhook(
            failure_policy=failure_policy,
            rules=rules_of(joined[sent]),
            namespaces=first.namespaces,
            objects=objects,
            condition=condition,
        )


_Sent = tuple[FailurePolicy, Requirements, str]
"""Whether an answer is required, the object selector, and the condition."""


def _joined(sent: Iterable[tuple[_Sent, frozenset[RuleAtom]]]) -> dict[_Sent, frozenset[RuleAtom]]:
    joined: dict[_Sent, frozenset[RuleAtom]] = {}
    for how, atoms in sent:
        joined[how] = joined.get(how, frozenset()) | atoms
    return joined


def _sent_of(asking: Interests) -> Iterable[tuple[_Sent, frozenset[RuleAtom]]]:
    """Yield the selectors and conditions of the same atoms.

    New objects are distinguished by their labels if some must be sent and others not, and
    if only the requests that the queue needs may be sent for it. Those that change have two sets of
    labels, and a condition is to tell them apart.
    """
    pieces = _pieces(asking)
    cut: dict[Requirements, dict[Interest, frozenset[RuleAtom]]] = {}
    for interest, its in asking.items():
        inside = replace(interest, objects=frozenset()) if interest.objects in pieces else interest
        for piece in pieces.get(interest.objects, pieces[_ALL]):
            cut.setdefault(piece, {})[inside] = its
    found = {piece: _joined(_sides(interests)) for piece, interests in cut.items()}
    for piece, sides in rejoined(found).items():
        for (failure_policy, objects, condition), its in sides.items():
            yield (failure_policy, piece | objects, condition), its


_ALL: Final[Requirements] = frozenset()


def _pieces(asking: Interests) -> Mapping[Requirements, tuple[Requirements, ...]]:
    """Return the labels that tell objects apart, by the object selectors that use them."""
    whole = {_ALL: (_ALL,)}
    must = {interest.objects for interest in asking if interest.failure_policy == "Fail"}
    mixed = any(interest.failure_policy == "Ignore" for interest in asking) and must
    narrow = {interest.objects for interest in asking if interest.narrow}
    if not (mixed or narrow) or any(
        c.operation != "CREATE" for its in asking.values() for c in its
    ):
        return whole
    return apart({*(must if len(must) <= MOST_DISTINGUISHED else narrow), _ALL}) or whole


def _sides(asking: Interests) -> Iterable[tuple[_Sent, frozenset[RuleAtom]]]:
    """Yield the required interests, and of the others those that an outage lets pass."""
    must = {interest: its for interest, its in asking.items() if interest.failure_policy == "Fail"}
    may = {interest: its for interest, its in asking.items() if interest.failure_policy == "Ignore"}
    sent = []
    for atoms in connected(frozenset().union(*must.values())):
        here = {interest: its & atoms for interest, its in must.items() if its & atoms}
        alone = (
            _joined(_sent_of(here)) if here != asking else {("Fail", *_narrowed([*here])): atoms}
        )
        sent += [(its, objects, condition) for (_, objects, condition), its in alone.items()]
        yield from alone.items()
    free = [c for atoms, objects, condition in sent if not (objects or condition) for c in atoms]
    for atoms in connected(left_of(frozenset().union(*may.values()), free)):
        objects, condition = _narrowed([d for d, its in may.items() if _overlap(its, atoms)])
        taken = [_condition_of(other, besides=atoms) for other in sent if _overlap(other[0], atoms)]
        yield ("Ignore", objects, _untaken(condition, taken)), atoms


def _overlap(some: Iterable[RuleAtom], others: Iterable[RuleAtom]) -> bool:
    return any(one.overlaps(other) for one, other in product(some, tuple(others)))


def _condition_of(
    sent: tuple[frozenset[RuleAtom], Requirements, str], *, besides: Iterable[RuleAtom]
) -> str:
    """Return the condition of a webhook whose atoms other webhooks share."""
    atoms, objects, condition = sent
    parts = [condition] if condition else []
    if objects:
        parts.append(label_condition(in_order(objects)))
    if uncovered(besides, (atom.of_any_version for atom in atoms)):
        parts.append(any_of(atom_condition(atom) for atom in sorted(atoms)))
    return all_of(parts)


def _untaken(condition: str, taken: Sequence[str]) -> str:
    """Add to a condition that none of others is met, if that is not too long."""
    if not taken:
        return condition
    untaken = f"!({' || '.join(taken)})"
    both = f"{untaken} && ({condition}\n)" if condition else untaken
    return both if len(both) <= LONGEST_CONDITION else condition


def _narrowed(asking: Sequence[Interest]) -> tuple[Requirements, str]:
    """Return the object selector and the condition under which one of the interests is met."""
    objects = frozenset.intersection(*(interest.objects for interest in asking))
    alternatives = list(
        dict.fromkeys(_alternative(interest, besides=objects) for interest in asking)
    )
    if not all(alternatives) or len(alternatives) > MOST_ALTERNATIVES:
        return objects, ""
    condition = alternatives[0] if len(alternatives) == 1 else any_of(alternatives)
    return objects, condition if len(condition) <= LONGEST_CONDITION else ""


def _alternative(interest: Interest, *, besides: Requirements) -> str:
    """Return an interest as CEL, without the part that the object selector checks."""
    parts = sorted(interest.conditions)
    if interest.objects != besides:
        parts = [label_condition(in_order(interest.objects)), *parts]
    return all_of(parts)
