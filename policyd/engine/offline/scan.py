"""Policies on existing objects: the resources to list, and the policies to evaluate for an object.

An object is taken as if it were created now. A policy that matches updates only is evaluated as if
it were sent again unchanged; one that matches neither, or reads the user or the queues, is left
out.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from policyd.api import kinds
from policyd.api.admission import (
    NO_OBJECT,
    AdmissionRequest,
    GroupVersionKind,
    GroupVersionResource,
    Operation,
    Rule,
)
from policyd.api.meta import Json
from policyd.cel import Program
from policyd.engine.evaluate.conditions import is_for_namespace, named_by, sees_as_sent
from policyd.engine.evaluate.kept_values import KeptValues
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.evaluate.validation import Concerns, all_true, concerns, validate
from policyd.engine.evaluate.verdict import VerdictBuilder
from policyd.engine.model.compiled import CompiledPolicy, CompiledValidation
from policyd.engine.model.facts import Facts
from policyd.engine.model.surroundings import ClaimLookup
from policyd.engine.objects.match import resource_matches
from policyd.engine.objects.workloads import WorkloadKind, find_kind
from policyd.engine.offline.report import (
    ReportBook,
    ReportSubject,
    ResultCount,
    ResultKey,
    results_of,
)
from policyd.engine.offline.requests import BELIEVING
from policyd.engine.remember.alike import Parts, PolicyReads, comparable_reads
from policyd.errors import PolicydError
from policyd.patch.defaults import as_sent

NOT_ASKED: Final = "reads the request's user, which an existing object does not have"
QUEUES_NOT_ASKED: Final = "reads the queues, which were others when the object was created"
"""Why a policy is left out of a scan."""

_USER: Final = re.compile(r"\buserInfo\b")

_NEVER: Final = frozenset({"events", "leases", "endpoints", "endpointslices"})
"""Resources that change by the second; a rule must name these to have them scanned."""


MOST_ALIKE: Final = 20_000
"""The number of objects whose verdicts are cached, by the parts that some policies see."""

MOST_PLANS: Final = 10_000
"""Resources in namespaces of which it is kept which policies concern them."""

TRIES: Final = 5_000
RARELY: Final = 8
"""After so many tries it is given up to compare objects of which fewer than one in so many is like
an earlier one."""


class Listed(NamedTuple):
    """A resource that a policy concerns."""

    group: str
    version: str
    plural: str


class ScannedObject(msgspec.Struct, frozen=True, kw_only=True):  # made for each object
    """An existing object: its identity, and its JSON with apiVersion and kind."""

    resource: Listed
    kind: str
    namespace: str
    name: str
    value: Json

    @property
    def within(self) -> str:
        """The namespace that it is in, or is; empty for other cluster objects."""
        own = self.kind == "Namespace" and not self.resource.group
        return self.name if own else self.namespace

    @property
    def subject(self) -> ReportSubject:
        """The object, as results name it."""
        group, version, _ = self.resource
        api_version = f"{group}/{version}" if group else version
        return ReportSubject(api_version, self.kind, self.namespace, self.name)


_Results = tuple[tuple[ResultKey, str], ...]
"""The results of policies for an object."""

_Choose = Callable[[Sequence[Any]], Any]
"""Picks parts of an object."""


class _Passed:
    """Validations that see the same parts of objects, and of which parts they are all true."""

    __slots__ = ("_known", "_rare", "_seen", "_tries", "choose", "validations")

    def __init__(self, choose: _Choose, validations: Sequence[CompiledValidation]) -> None:
        self.choose = choose
        self.validations = validations
        self._seen: set[Any] = set()
        self._tries = self._known = 0
        self._rare = False

    def is_known(self, parts: Sequence[Any]) -> bool:
        """Tell whether they are true of an object of these parts, as far as that is known."""
        if self._rare:
            return False
        self._tries += 1
        if self.choose(parts) in self._seen:
            self._known += 1
            return True
        if self._tries >= TRIES and self._known * RARELY < self._tries:
            self._rare = True
            self._seen.clear()  # hardly any two are alike: to keep them is lost memory
        return False

    def remember(self, parts: Sequence[Any]) -> None:
        """Keep that they are true."""
        if not self._rare and len(self._seen) < MOST_ALIKE:
            self._seen.add(self.choose(parts))


class _Asked:
    """A policy that is evaluated for objects of a kind, with its earlier results.

    It sees some parts of an object. If two objects are equal in the parts that its conditions
    read, it matches both or neither; if also in those of a validation, that is true of both or
    of neither.
    """

    __slots__ = (
        *("_choose", "_concerned", "_objected", "_whole"),
        *("before", "kept", "operation", "passed", "policy", "validations"),
    )

    def __init__(
        self,
        policy: CompiledPolicy,
        operation: Operation,
        before: Sequence[int],
        whole: Iterable[tuple[CompiledValidation, Sequence[int]]],
    ) -> None:
        """Take the policy, and which parts of an object its conditions and validations see."""
        self.policy = policy
        self.operation = operation
        self.kept = KeptValues(policy)
        self.before = before
        """The parts that its conditions see."""
        self._choose = _choose(before)
        self._concerned: dict[Any, Concerns] = {}
        by_parts: dict[tuple[int, ...], list[CompiledValidation]] = {}
        for validation, parts in whole:
            by_parts.setdefault(tuple(sorted({*before, *parts})), []).append(validation)
        self.validations = [_Passed(_choose(parts), own) for parts, own in by_parts.items()]
        self._whole = self.validations[0]
        if len(self.validations) > 1:
            self._whole = _Passed(_choose(frozenset(before).union(*by_parts)), policy.validations)
        self._objected: dict[Any, _Results] = {}
        self.passed = ResultKey(policy.name, "", "pass", "", policy.shadow_of)

    def unknown(self, parts: Sequence[Any]) -> Sequence[_Passed]:
        """Return the validations that may be false of an object of these parts."""
        whole = self._whole
        if whole.is_known(parts):
            return ()
        if whole is self.validations[0]:
            return self.validations
        unknown = [each for each in self.validations if not each.is_known(parts)]
        if not unknown:
            whole.remember(parts)
        return unknown

    def is_silent(self, parts: Sequence[Any]) -> bool:
        """Tell whether it does not concern an object of these parts, as far as that is known."""
        known = self._concerned.get(self._choose(parts))
        return known is not None and not known

    def concerns(self, parts: Sequence[Any] | None, facts: Facts) -> Concerns | None:
        """Return what it has to do with an object of these parts; None if that is not known."""
        if parts is None:
            return concerns(self.policy, facts)
        key = self._choose(parts)
        known = self._concerned.get(key)
        if known is None:
            known = concerns(self.policy, facts)
            if known is not None and len(self._concerned) < MOST_ALIKE:
                self._concerned[key] = known
        return known

    def objected(self, parts: Sequence[Any], namespace: str) -> _Results | None:
        """Return its objections to an object of these parts; None if there was no such object.

        The message may name the object: that of the first counts in each namespace.
        """
        if not self._objected:
            return None
        return self._objected.get((self._whole.choose(parts), namespace))

    def object_to(self, parts: Sequence[Any], namespace: str, results: _Results) -> None:
        """Cache its objections to an object of these parts."""
        if len(self._objected) < MOST_ALIKE:
            self._objected[self._whole.choose(parts), namespace] = results


class _Concerned:
    """The policies that concern objects, by the parts that the conditions of any of them see.

    Policies are many, and most have nothing to do with most objects. Of an object whose conditions
    see what an earlier one's did, only those are asked that the earlier one concerned.
    """

    __slots__ = ("_choose", "_known", "asked")

    def __init__(self, asked: Sequence[_Asked]) -> None:
        self.asked = tuple(asked)
        """All the policies."""
        self._choose = _choose({number for each in asked for number in each.before} or {0})
        self._known: dict[Any, tuple[_Asked, ...]] = {}

    def of(self, parts: Sequence[Any] | None) -> tuple[Sequence[_Asked], bool]:
        """Return the policies to ask about an object of these parts.

        Args:
            parts: The parts; None if they are not compared.

        Returns:
            The policies, and whether which of them an object concerns is still to be remembered.
        """
        if parts is None:
            return self.asked, False
        concerned = self._known.get(self._choose(parts))
        if concerned is not None:
            return concerned, False
        return [each for each in self.asked if not each.is_silent(parts)], True

    def remember(self, parts: Sequence[Any]) -> None:
        """Keep which policies concern an object of these parts, about which each was asked."""
        if len(self._known) < MOST_ALIKE:
            concerned = tuple(each for each in self.asked if not each.is_silent(parts))
            self._known[self._choose(parts)] = concerned


def _choose(numbers: Iterable[int]) -> _Choose:
    return itemgetter(*sorted(numbers))


_PlanKey = tuple[Listed, str, str]
"""A resource, the kind of its objects, and a namespace, or whether there is one."""


class _Plan(NamedTuple):
    """The policies that concern objects of a resource in a namespace, as far as these tell."""

    kind: WorkloadKind | None
    alike: _Concerned
    always: tuple[tuple[Operation, PolicySet], ...]
    passed: dict[_Asked, ResultCount]
    """The counts of the objects that pass policies, as far as one did."""


class PolicyScan:
    """One pass over existing objects, with the policies of its beginning."""

    def __init__(self, policies: PolicySet, *, claims: ClaimLookup | None = None) -> None:
        """Take the policies; shadows are asked too.

        Args:
            policies: The policies.
            claims: Returns specifications of claims, if others than those of reviews.
        """
        known = [*policies.policies, *policies.shadows]
        self.shadows = {policy.name: policy.shadow_of for policy in policies.shadows}
        """For each shadow, the policy that it may replace."""
        given = policies.surroundings
        self._surroundings = replace(given, makers=BELIEVING, claims=claims or given.claims)
        left_out: list[CompiledPolicy] = []
        chosen: dict[Operation, list[CompiledPolicy]] = {"CREATE": [], "UPDATE": []}
        for policy in known:
            wanted = policy.validations and policy.background
            operation = _operation(policy) if wanted else None
            if operation is not None:
                (left_out if why_left_out(policy) else chosen[operation]).append(policy)
        self.left_out = tuple(left_out)
        """Policies that cannot be evaluated for existing objects."""
        self.policies = tuple(p for each in chosen.values() for p in each)
        """Policies that are asked."""
        self.book = ReportBook()
        """The results so far."""
        self._chosen = {
            (operation, is_shadow): PolicySet.of(
                [p for p in each if bool(p.shadow_of) is is_shadow], self._surroundings
            )
            for operation, each in chosen.items()
            for is_shadow in (False, True)
        }
        self._kinds: dict[_PlanKey, _Plan] = {}
        self._plans: dict[_PlanKey, _Plan] = {}
        for policy in self.left_out:
            key = ResultKey(policy.name, "", "skip", "", policy.shadow_of)
            self.book.note("", key, message=why_left_out(policy), subject=None)

    @cached_property
    def _reads(self) -> Mapping[str, PolicyReads]:
        """The reads of policies that decide equally on equal parts, by their ids.

        Policies of one name are asked about each object, as those that decide alike on nothing.
        """
        names = Counter((policy.name, policy.shadow_of) for policy in self.policies)
        ids = Counter(policy.id for policy in self.policies)
        found = {}
        for (operation, _), policies in self._chosen.items():
            for policy in policies.policies:
                reads = comparable_reads(policy, operation)
                alone = names[policy.name, policy.shadow_of] == ids[policy.id] == 1
                if reads is not None and alone:
                    found[policy.id] = reads
        return found

    @cached_property
    def _parts(self) -> Parts:
        reads = self._reads.values()
        return Parts(tree for each in reads for tree in (each.before, *each.validations))

    def evaluate(self, found: ScannedObject) -> None:
        """Evaluate all policies for an object, and note the results.

        The results of another object with the same parts are reused.
        """
        plan = self._plan(found)
        book, alike = self.book, plan.alike
        parts = self._parts_of(found, plan.kind) if alike.asked else None
        facts: dict[Operation, Facts] = {}
        concerned, is_new = alike.of(parts)
        for asked in concerned:
            unknown = asked.validations if parts is None else asked.unknown(parts)
            if not unknown:
                count = plan.passed.get(asked)
                if count is None:
                    count = plan.passed[asked] = book.row(found.namespace, asked.passed)
                count.count += 1
                continue
            own = facts.get(asked.operation)
            if own is None:
                own = facts[asked.operation] = self._facts(found, asked.operation, plan.kind)
            for key, message in self._ask(asked, own, unknown, parts):
                book.note(found.namespace, key, message=message, subject=found.subject)
        if parts and is_new:
            alike.remember(parts)
        for operation, policies in plan.always:
            decision = policies.validate(_request(found, operation))
            book.take(found.subject, decision, shadows=self.shadows)

    def _parts_of(self, found: ScannedObject, kind: WorkloadKind | None) -> list[Any] | None:
        """Return the parts of an object as it is, and as it is sent if a policy sees it so.

        None if they are too much to compare.
        """
        parts = self._parts.of(found.value, kind, found.within)
        if parts is not None and self._sends:
            sent = self._parts.of(as_sent(found.value), kind, found.within)
            return None if sent is None else [*parts, *sent]
        return parts

    def _ask(
        self, asked: _Asked, facts: Facts, unknown: Sequence[_Passed], parts: Sequence[Any] | None
    ) -> _Results:
        """Return the results of a policy for an object, of which some validations are true."""
        results = None if parts is None else asked.objected(parts, facts.request.namespace)
        if results is not None:
            return results
        concerned = asked.concerns(parts, facts)
        if concerned is not None and not concerned:
            return ()
        validations = [validation for each in unknown for validation in each.validations]
        if concerned and all_true(concerned, validations, facts, asked.kept):
            if parts is not None:
                for each in unknown:
                    each.remember(parts)
            return ((asked.passed, ""),)
        verdict = VerdictBuilder()
        validate((asked.policy,), facts, verdict)
        results = tuple(results_of(verdict.decision(), self.shadows))
        if parts is not None:
            asked.object_to(parts, facts.request.namespace, results)
        return results

    def _facts(
        self, found: ScannedObject, operation: Operation, kind: WorkloadKind | None
    ) -> Facts:
        request = _request(found, operation, NO_OBJECT)
        facts = Facts(request, self._surroundings, asked=len(self.policies))
        facts.object = found.value
        facts.kind = kind
        before: Json = found.value if operation == "UPDATE" else None
        facts.old_object = before
        return facts

    def _plan(self, found: ScannedObject) -> _Plan:
        key = found.resource, found.kind, found.within
        plan = self._plans.get(key)
        if plan is None:
            plan = self._made(found)
            if len(self._plans) < MOST_PLANS:
                self._plans[key] = plan
        return plan

    def _made(self, found: ScannedObject) -> _Plan:
        """Return the policies of a resource that are for a namespace."""
        facts = Facts(_request(found, "CREATE"), self._surroundings)
        key = found.resource, found.kind, "namespaced" if facts.attributes.namespaced else ""
        known = self._kinds.get(key)
        if known is None:
            known = self._kinds[key] = self._of_kind(found)
        unknown: list[_Asked] = []
        alike: list[_Asked] = []
        for asked in known.alike.asked:
            try:
                if is_for_namespace(asked.policy, facts):
                    alike.append(asked)
            except PolicydError:
                unknown.append(asked)
        always = (*known.always, *self._sets((each.operation, each.policy) for each in unknown))
        return _Plan(known.kind, _Concerned(alike), always, {})

    def _of_kind(self, found: ScannedObject) -> _Plan:
        """Return the policies that name a resource."""
        kind = find_kind(found.value)
        alike: list[_Asked] = []
        always: list[tuple[Operation, CompiledPolicy]] = []
        own = found.kind == "Namespace"
        for (operation, _), policies in self._chosen.items():
            request = _request(found, operation)
            facts = Facts(request, self._surroundings)
            for policy in policies.concerned(request, "validate"):
                reads = None if own else self._reads.get(policy.id)
                named = facts.attributes if own else named_by(policy.constraints, facts)
                if reads is None or (named is not None and named is not facts.attributes):
                    always.append((operation, policy))
                elif named is not None:
                    alike.append(self._remembering(policy, operation, reads, kind))
        return _Plan(kind, _Concerned(alike), tuple(self._sets(always)), {})

    def _remembering(
        self,
        policy: CompiledPolicy,
        operation: Operation,
        reads: PolicyReads,
        kind: WorkloadKind | None,
    ) -> _Asked:
        parts = self._parts
        more = [parts.labelled]
        if reads.namespace:
            more.append(parts.namespace)
        first = parts.count if sees_as_sent(policy, self._surroundings) else 0
        before = [first + number for number in parts.numbers(reads.before, kind)]
        validations = zip(policy.validations, reads.validations, strict=True)
        whole = [
            (validation, [first + number for number in parts.numbers(tree, kind)])
            for validation, tree in validations
        ]
        return _Asked(policy, operation, (*before, *more), whole)

    @cached_property
    def _sends(self) -> bool:
        """Whether a policy sees objects as the API server would send them."""
        return any(sees_as_sent(policy, self._surroundings) for policy in self.policies)

    def _sets(
        self, chosen: Iterable[tuple[Operation, CompiledPolicy]]
    ) -> Iterator[tuple[Operation, PolicySet]]:
        """Yield sets of the policies that are asked together."""
        sets: dict[tuple[Operation, bool], list[CompiledPolicy]] = {}
        for operation, policy in chosen:
            sets.setdefault((operation, bool(policy.shadow_of)), []).append(policy)
        for (operation, _), policies in sets.items():
            yield operation, PolicySet.of(policies, self._surroundings)


def resources_to_list(
    policies: Iterable[CompiledPolicy], others: Iterable[Listed] = ()
) -> list[Listed]:
    """Return the resources that policies concern, one version of each.

    Args:
        policies: The policies.
        others: Resources that are not built in, for rules that name no version.
    """
    known = [*_built_in(), *others]
    chosen: dict[tuple[str, str], Listed] = {}
    for policy in policies:
        exact = policy.constraints.match_policy == "Exact"
        for rule in policy.constraints.resource_rules:
            for listed in _listed(rule, known, exact=exact):
                chosen.setdefault((listed.group, listed.plural), listed)
    return sorted(chosen.values())


def why_left_out(policy: CompiledPolicy) -> str:
    """Return why a policy says nothing about existing objects; empty if it does."""
    if policy.reads_queues:
        return QUEUES_NOT_ASKED
    asks = any(name.startswith("authorizer") for name in policy.uses)
    if asks or any(_USER.search(program.source) for program in _programs(policy)):
        return NOT_ASKED
    return ""


def _programs(policy: CompiledPolicy) -> Iterator[Program]:
    yield from (program for _, program in policy.conditions)
    yield from policy.variables.values()
    for validation in policy.validations:
        yield validation.program
        if validation.message_program is not None:
            yield validation.message_program


def _operation(policy: CompiledPolicy) -> Operation | None:
    named = {o for rule in policy.constraints.resource_rules for o in rule.operations}
    if named & {"CREATE", "*"}:
        return "CREATE"
    return "UPDATE" if "UPDATE" in named else None


def _built_in() -> Iterator[Listed]:
    for found in kinds.resources():
        if {"list", "create"} <= set(found.verbs):
            yield Listed(found.group, found.version, found.plural)


def _listed(rule: Rule, known: Iterable[Listed], *, exact: bool) -> Iterator[Listed]:
    """Yield the resources that a rule names: known ones, and those that it spells out.

    Unless versions are taken exactly, one that is known stands for all others.
    """
    for listed in known:
        if (
            {listed.group, "*"} & set(rule.api_groups)
            and (not exact or {listed.version, "*"} & set(rule.api_versions))
            and resource_matches(rule.resources, listed.plural)
            and (listed.plural in rule.resources or listed.plural not in _NEVER)
        ):
            yield listed
    for group in rule.api_groups:
        for version in rule.api_versions:
            for plural in rule.resources:
                if "*" not in {group, version, plural} and "/" not in plural:
                    yield Listed(group, version, plural)


def _request(
    found: ScannedObject, operation: Operation, raw: msgspec.Raw | None = None
) -> AdmissionRequest:
    if raw is None:
        raw = msgspec.Raw(msgspec.json.encode(found.value))
    group, version, plural = found.resource
    return AdmissionRequest(
        uid="scan",
        kind=GroupVersionKind(group=group, version=version, kind=found.kind),
        resource=GroupVersionResource(group=group, version=version, resource=plural),
        operation=operation,
        name=found.name,
        namespace=found.within,
        object=raw,
        old_object=raw if operation == "UPDATE" else NO_OBJECT,
        dry_run=True,
    )
