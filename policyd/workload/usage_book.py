"""Usage of running pods, against the quota that their workloads were admitted with."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from policyd.api.meta import ObjectMeta
from policyd.api.pods import PodSpec, PodTemplate
from policyd.jobs.requests import (
    InvalidRequestsError,
    RequestRules,
    UncountedDevicesError,
    as_counted,
    requests_of,
)

Amounts = Mapping[str, int]

_SPARE: Mapping[str, int] = {"cpu": 1_000, "memory": 2 * 1024**3, "ephemeral-storage": 2 * 1024**3}
"""Usage of a pod that is allowed beyond its share: other webhooks add containers that its workload
does not include. They do not add devices."""


class Taken(NamedTuple):
    """What a pod takes, whether or not a queue could count it.

    Attributes:
        amounts: In the units of the quota, by resource.
        claims: The number of its claims that `amounts` does not include: those that pods share,
            and those whose devices cannot be counted.
    """

    amounts: dict[str, int]
    claims: int


def usage_of(pod: PodTemplate, rules: RequestRules) -> Taken:
    """Return what a pod takes, counted as for admission as far as it can be.

    A part of a GPU that no flavor has is the replica by which the pod gets it; claims that cannot
    be counted are a number of claims.
    """
    try:
        spec = as_counted(pod, rules)
    except UncountedDevicesError:
        spec = as_counted(msgspec.structs.replace(pod, metadata=ObjectMeta()), rules)
    for counted, known, left in _attempts(spec, rules):
        try:
            return Taken(requests_of(counted, known), left)
        except UncountedDevicesError:  # a template may be gone while its pods run
            continue
        except InvalidRequestsError:
            break
    return Taken({}, len(spec.resource_claims))


def _attempts(spec: PodSpec, rules: RequestRules) -> Iterator[tuple[PodSpec, RequestRules, int]]:
    """Yield what may be counted of a pod, by which rules, and the number of claims left out."""
    claims = spec.resource_claims
    if rules.devices is not None:
        yield spec, rules, sum(not each.resource_claim_template_name for each in claims)
    if claims:
        spec = msgspec.structs.replace(spec, resource_claims=())
    if rules.devices is not None:
        yield spec, rules, len(claims)
        rules = replace(rules, devices=None)
    yield spec, rules, len(claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUsage:
    """A pod that runs, or may.

    Attributes:
        since: When it was created, in seconds since the epoch; or when it has to be gone, so that
            one that is deleted gives way to its replacement.
        amounts: Its usage of resources that queues give, in canonical units.
        claims: The same of each claim that it has, by name. Pods may share it: it counts once.
    """

    since: float
    amounts: Amounts
    claims: Mapping[str, Amounts] = field(default_factory=dict)

    def total(self) -> dict[str, int]:
        """Return its usage with all of its claims."""
        return dict(sum(map(Counter, self.claims.values()), Counter(self.amounts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedUsage:
    """The quota that a workload was admitted with, for all its pods."""

    count: int
    amounts: Amounts

    def holds(self, count: int, totals: Amounts) -> bool:
        """Tell whether a number of pods, with their total usage, are within it."""
        return count <= self.count and all(
            total <= self._most(name, count) for name, total in totals.items()
        )

    def _most(self, name: str, count: int) -> int:
        given = self.amounts.get(name, 0)
        spare = _SPARE.get(name)
        return given if spare is None else 2 * given + spare * count


_Member = tuple[float, str, PodUsage]
"""A pod of a workload, in the order in which pods have its share."""


@dataclass(slots=True)
class _Division:
    """A share, divided among pods: the oldest have it first."""

    share: AdmittedUsage
    within: list[_Member] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    claims: set[str] = field(default_factory=set)

    def add(self, member: _Member) -> bool:
        """Give the next pod its part; False if it does not fit, and gets none."""
        taker = member[2]
        own = Counter(taker.amounts)
        for name in taker.claims.keys() - self.claims:
            own.update(taker.claims[name])
        sums = {name: self.totals.get(name, 0) + amount for name, amount in own.items()}
        if not self.share.holds(len(self.within) + 1, sums):
            return False
        self.within.append(member)
        self.totals.update(sums)
        self.claims.update(taker.claims)
        return True

    def fits(self, member: _Member) -> bool:
        """Tell whether a further pod gets a part, so that the share is to be divided anew."""
        division = self
        if self.within and member[:2] < self.within[-1][:2]:
            division, _ = _divide(
                (each for each in self.within if each[:2] < member[:2]), self.share
            )
        return division.add(member)


@dataclass(slots=True)
class _Group:
    """The pods of one workload."""

    members: dict[str, PodUsage] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    claims: dict[str, tuple[Amounts, set[str]]] = field(default_factory=dict)
    """By name: what each is charged, and the pods that have it. It is in the totals."""
    beyond: set[str] = field(default_factory=set)
    """Pods without a part of the share."""
    division: _Division | None = None
    """None if the share is to be divided anew."""

    def add(self, amounts: Amounts, sign: int = 1) -> None:
        """Add amounts to the totals, or take them off."""
        for name, amount in amounts.items():
            self.totals[name] += sign * amount

    def put_claim(self, name: str, amounts: Amounts, pod: str) -> None:
        """Take in that a pod has a claim; another of its name may be there by now."""
        before, pods = self.claims.get(name, ({}, set[str]()))
        self.add(before, -1)
        self.add(amounts)
        pods.add(pod)
        self.claims[name] = amounts, pods

    def forget_claim(self, name: str, pod: str) -> None:
        """Leave out that a pod has a claim."""
        amounts, pods = self.claims[name]
        pods.discard(pod)
        if not pods:
            self.add(amounts, -1)
            del self.claims[name]


class UsageBook:
    """Pods by workload, and their total usage."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._group_of: dict[str, str] = {}

    def put(self, pod: str, taker: PodUsage, workload: str) -> None:
        """Take in that a pod is of a workload, or of none for an empty name."""
        known = self._groups.get(self._group_of.get(pod, ""))
        if known is not None and self._group_of[pod] == workload and known.members[pod] == taker:
            return
        self.forget(pod)
        if not workload:
            return
        group = self._groups.setdefault(workload, _Group())
        if group.division is not None:
            if group.division.fits((taker.since, pod, taker)):
                group.division = None
            else:
                group.beyond.add(pod)
        self._group_of[pod] = workload
        group.members[pod] = taker
        group.add(taker.amounts)
        for name, amounts in taker.claims.items():
            group.put_claim(name, amounts, pod)

    def forget(self, pod: str) -> str:
        """Leave a pod out; return its workload if other pods may have its part now, else ""."""
        workload = self._group_of.pop(pod, "")
        if not workload:
            return ""
        group = self._groups[workload]
        taker = group.members.pop(pod)
        group.add(taker.amounts, -1)
        for name in taker.claims:
            group.forget_claim(name, pod)
        if not group.members:
            del self._groups[workload]
        if pod in group.beyond:
            group.beyond.remove(pod)
            return ""
        group.division = None
        return workload if group.beyond else ""

    def members(self, workload: str) -> tuple[str, ...]:
        """Return the pods of a workload."""
        group = self._groups.get(workload)
        return () if group is None else tuple(group.members)

    def is_within(self, workload: str, share: AdmittedUsage) -> bool:
        """Tell whether all pods of a workload are within its share."""
        group = self._groups.get(workload)
        return group is None or share.holds(len(group.members), group.totals)

    def beyond(self, workload: str, share: AdmittedUsage) -> "Beyond":
        """Return the pods that are more than a workload's share: the oldest have it first.

        The share is divided anew only where a pod that had a part goes, or another one gets a part:
        pods beyond the share come and go without a look at the others.
        """
        group = self._groups.get(workload)
        if group is None:
            return Beyond(frozenset(), frozenset())
        if share.holds(len(group.members), group.totals):
            before, group.beyond, group.division = group.beyond, set(), None
            return Beyond(group.beyond, before)
        if group.division is not None and group.division.share == share:
            return Beyond(group.beyond, frozenset())
        members = ((taker.since, pod, taker) for pod, taker in group.members.items())
        before = group.beyond
        group.division, group.beyond = _divide(sorted(members, key=lambda each: each[:2]), share)
        return Beyond(group.beyond, before ^ group.beyond)


class Beyond(NamedTuple):
    """Pods beyond a share.

    Attributes:
        pods: Their names.
        changed: The pods that are beyond it and were not, or the other way round.
    """

    pods: Set[str]
    changed: Set[str]


class OutsideUsage:
    """Usage outside of quota, added up by namespace and resource."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, Amounts]] = {}
        self.totals: dict[tuple[str, str], int] = {}
        self.pods = Counter[str]()
        """How many there are in each namespace."""

    def __contains__(self, pod: object) -> bool:
        return pod in self._pods

    def __len__(self) -> int:
        return len(self._pods)

    def of(self, namespace: str) -> dict[str, Amounts]:
        """Return the usage of each pod of a namespace."""
        return {pod: amounts for pod, (where, amounts) in self._pods.items() if where == namespace}

    def total(self, namespace: str) -> Amounts:
        """Return the usage of all pods of a namespace."""
        return {name: amount for (where, name), amount in self.totals.items() if where == namespace}

    def put(self, pod: str, namespace: str, amounts: Amounts) -> None:
        """Add the usage of a pod."""
        self.forget(pod)
        self._pods[pod] = (namespace, amounts)
        self._add(namespace, amounts, 1)

    def forget(self, pod: str) -> bool:
        """Leave a pod out; tell whether it was in."""
        known = self._pods.pop(pod, None)
        if known is not None:
            self._add(*known, -1)
        return known is not None

    def _add(self, namespace: str, amounts: Amounts, sign: int) -> None:
        self.pods[namespace] += sign
        if not self.pods[namespace]:
            del self.pods[namespace]
        for name, amount in amounts.items():
            place = namespace, name
            total = self.totals.get(place, 0) + sign * amount
            if total:
                self.totals[place] = total
            else:
                self.totals.pop(place, None)


def _divide(members: Iterable[_Member], share: AdmittedUsage) -> tuple[_Division, set[str]]:
    """Divide a share among pods in their order. Returns as well the pods that get no part."""
    division = _Division(share)
    return division, {pod for since, pod, taker in members if not division.add((since, pod, taker))}
