"""Policies on what exists already: which resources to list, and what to ask of an object.

An object is taken as if it were created now. A policy that concerns updates only is asked as if it
were sent again as it is; one that concerns neither, or asks who sent the request, is left out.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple

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
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.objects.match import resource_matches
from policyd.engine.offline.report import ReportBook, ReportSubject, ResultKey, results_of
from policyd.engine.offline.requests import BELIEVING
from policyd.engine.remember.alike import Alike, looked_at_alike
from policyd.engine.remember.footprint_tree import Footprint

NOT_ASKED: Final = "reads the request's user, which an existing object does not have"
"""Why a policy is left out of a scan."""

_USER: Final = re.compile(r"\buserInfo\b")

_NEVER: Final = frozenset({"events", "leases", "endpoints", "endpointslices"})
"""What changes by the second; a rule must name these to have them scanned."""


MOST_ALIKE: Final = 20_000
"""Objects of which it is remembered what was said, by what some policies see of them."""

MOST_SETS: Final = 500
"""Sets of policies that are kept, for what is known of an object from earlier ones."""

TRIES: Final = 500
RARELY: Final = 8
"""After so many tries it is given up to compare objects of which fewer than one in so many is like
an earlier one."""


class Listed(NamedTuple):
    """A resource that a policy concerns."""

    group: str
    version: str
    plural: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedObject:
    """An object that exists: what it is, and its JSON with apiVersion and kind."""

    resource: Listed
    kind: str
    namespace: str
    name: str
    value: Json

    @property
    def within(self) -> str:
        """The namespace that it is in, or is; empty for what else belongs to the cluster."""
        own = self.kind == "Namespace" and not self.resource.group
        return self.name if own else self.namespace

    @property
    def subject(self) -> ReportSubject:
        """The object, as results name it."""
        group, version, _ = self.resource
        api_version = f"{group}/{version}" if group else version
        return ReportSubject(api_version, self.kind, self.namespace, self.name)


_Asked = tuple[Operation, PolicySet]
"""Policies, and the operation that they are asked about."""

_Choice = tuple[Operation, CompiledPolicy]

_Said = tuple[tuple[ResultKey, str], ...]
"""What policies say of an object."""


class _Group:
    """Policies that see the same of objects, and what they said of those that they saw."""

    def __init__(self, alike: Alike, choices: Iterable[_Choice] = ()) -> None:
        self.choices = tuple(choices)
        self.speakers = {(p.name, p.shadow_of) for _, p in self.choices}
        self._alike = alike
        self._said: dict[bytes, _Said] = {}
        self._seen: bytes | None = None
        self._tries = 0
        self._known = 0

    def known(self, found: ScannedObject) -> _Said | None:
        """Return what was said of an object that is the same to them; None if none was."""
        self._seen = None
        if self._tries >= TRIES and self._known * RARELY < self._tries:
            return None  # hardly any two are alike: comparing them is lost time
        self._tries += 1
        self._seen = self._alike.seen(found.value, found.within)
        said = None if self._seen is None else self._said.get(self._seen)
        self._known += said is not None
        return said

    def remember(self, said: Iterable[tuple[ResultKey, str]]) -> None:
        """Keep what its policies say of the object that was not known."""
        if self._seen is not None and len(self._said) < MOST_ALIKE:
            self._said[self._seen] = tuple(said)


class PolicyScan:
    """One look at what exists, with the policies there were when it began."""

    def __init__(self, policies: PolicySet) -> None:
        """Take the policies; shadows are asked too."""
        self._policies = policies
        known = [*policies.policies, *policies.shadows]
        self.shadows = {policy.name: policy.shadow_of for policy in policies.shadows}
        """For each shadow, the policy that it may replace."""
        self._by_operation: dict[Operation, list[CompiledPolicy]] = {"CREATE": [], "UPDATE": []}
        left_out: list[CompiledPolicy] = []
        for policy in known:
            wanted = policy.validations and policy.background
            operation = _operation(policy) if wanted else None
            if operation is not None:
                asks = asks_for_a_user(policy)
                (left_out if asks else self._by_operation[operation]).append(policy)
        self.left_out = tuple(left_out)
        """Policies that cannot be asked of what exists."""
        self.policies = tuple(p for chosen in self._by_operation.values() for p in chosen)
        """Policies that are asked."""
        self.book = ReportBook()
        """What they said so far."""
        self._always: list[_Choice] = []
        self._sets: dict[tuple[_Group, ...], tuple[_Asked, ...]] = {}
        for policy in self.left_out:
            key = ResultKey(policy.name, "", "skip", "", policy.shadow_of)
            self.book.note("", key, message=NOT_ASKED, subject=None)

    @cached_property
    def _groups(self) -> tuple[_Group, tuple[_Group, ...]]:
        """All policies that decide alike on what is alike, and these by what they see.

        Policies of one name are asked about each object, as those that decide alike on nothing.
        """
        seen: dict[str, Footprint] = {}
        chosen: dict[str, list[_Choice]] = {}
        names = Counter((policy.name, policy.shadow_of) for policy in self.policies)
        for operation, policies in self._by_operation.items():
            for policy in policies:
                looked_at = looked_at_alike(policy)
                if looked_at is None or names[policy.name, policy.shadow_of] > 1:
                    self._always.append((operation, policy))
                else:
                    seen.setdefault(looked_at.text, looked_at)
                    chosen.setdefault(looked_at.text, []).append((operation, policy))
        groups = (_Group(Alike([looked_at]), chosen[text]) for text, looked_at in seen.items())
        return _Group(Alike(seen.values())), tuple(groups)

    def _asked(self, missed: tuple[_Group, ...]) -> tuple[_Asked, ...]:
        """Return the policies of groups, and those always asked: once for the same groups."""
        known = self._sets.get(missed)
        if known is not None:
            return known
        around = replace(self._policies.surroundings, makers=BELIEVING)
        sets: dict[tuple[Operation, bool], list[CompiledPolicy]] = {}
        for operation, policy in chain(self._always, *(group.choices for group in missed)):
            sets.setdefault((operation, bool(policy.shadow_of)), []).append(policy)
        made = tuple((key[0], PolicySet.of(chosen, around)) for key, chosen in sets.items())
        if len(self._sets) < MOST_SETS:
            self._sets[missed] = made
        return made

    def look_at(self, found: ScannedObject) -> None:
        """Ask all policies about an object, and note what they say.

        What they said of another that is the same to them, they say of this one.
        """
        together, groups = self._groups
        subject, known = found.subject, together.known(found) if groups else ()
        if known is None:
            known, said = self._asked_apart(found, groups)
            together.remember(known)
        else:
            said = self._ask(found, self._asked(()))
        for key, message in (*known, *said):
            self.book.note(subject.namespace, key, message=message, subject=subject)

    def _asked_apart(self, found: ScannedObject, groups: Iterable[_Group]) -> tuple[_Said, _Said]:
        """Return what groups say of an object, and what those say that are always asked."""
        known: list[tuple[ResultKey, str]] = []
        missed: list[_Group] = []
        for group in groups:
            said = group.known(found)
            if said is None:
                missed.append(group)
            else:
                known += said
        fresh = self._ask(found, self._asked(tuple(missed)))
        rest = list(fresh)
        for group in missed:
            own = [each for each in fresh if (each[0].policy, each[0].shadow_of) in group.speakers]
            group.remember(own)
            known += own
            rest = [each for each in rest if each not in own]
        return tuple(known), tuple(rest)

    def _ask(self, found: ScannedObject, asked: Iterable[_Asked]) -> _Said:
        """Return what policies say of an object."""
        said: list[tuple[ResultKey, str]] = []
        for operation, policies in asked:
            request = _request(found, operation)
            if policies.concerned(request, "validate"):
                said += results_of(policies.validate(request), self.shadows)
        return tuple(said)


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


def asks_for_a_user(policy: CompiledPolicy) -> bool:
    """Tell whether an expression looks at who sends the request."""
    if any(name.startswith("authorizer") for name in policy.uses):
        return True
    return any(_USER.search(program.source) for program in _programs(policy))


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
    """Yield what a rule names: what is known, and what it spells out itself.

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


def _request(found: ScannedObject, operation: Operation) -> AdmissionRequest:
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
