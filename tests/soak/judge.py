"""Judges a soak: what was refused, held too much, said no reason, grew."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from pathlib import Path
from statistics import linear_regression
from typing import Any

from policyd.api.kueue.names import (
    EVICTED,
    FINISHED,
    QUOTA_RESERVED,
    SLICE_REPLACEMENT_FOR,
)
from policyd.api.quantity import parse_quantity
from policyd.workload.obstacles import BYPASSED, PENDING
from tests.faults.history import Version
from tests.scenarios.api import condition

LATE = {404, 409, 429, 503, 504}
"""How the API server answers writes that come too late or too often, or that it has no time for;
they are made again."""

GRACE_SECONDS = 2.0
"""So long after a quota was cut may be admitted what was decided before."""

Place = tuple[str, str, str]
"""A queue or cohort, a flavor, a resource."""


def refused(lines: Iterable[str], accounts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield which writes the API server refused: account and what it said.

    Args:
        lines: Of the audit log.
        accounts: policyd's own, of which every refusal counts; of Kubernetes' own controllers
            those count that webhooks and policies refused.
    """
    own = {user: name for name, user in accounts.items()}
    for line in lines:
        event = json.loads(line)
        code, user = event["responseStatus"].get("code", 0), event["user"]["username"]
        if code < 400 or code in LATE:
            continue
        message = event["responseStatus"].get("message", "")
        asked = "admission webhook" in message or "ValidatingAdmissionPolicy" in message
        if user in own or (asked and user.startswith("system:")):
            at = event["stageTimestamp"][11:19]
            what = f"{at} {event['verb']} {event['requestURI'].partition('?')[0]}"
            yield own.get(user, user), f"{what}: {code} {message}"


@dataclass
class Quotas:
    """Goes through the history of queues and workloads, and notes where too much was held.

    Attributes:
        answered: When a change of a queue was answered, in seconds since the epoch, by its
            revision. On a slow server, that is long after it was sent.
    """

    answered: Mapping[int, float] = field(default_factory=dict)
    exceeded: list[str] = field(default_factory=list)
    admissions: int = 0
    evictions: Counter[str] = field(default_factory=Counter)
    most: Counter[Place] = field(default_factory=Counter)
    held: Counter[Place] = field(default_factory=Counter)
    _holds: dict[str, Counter[Place]] = field(default_factory=dict)
    _queues: dict[str, list[tuple[int, Mapping[str, Any]]]] = field(default_factory=dict)
    """Versions of each ClusterQueue's spec, with their revisions."""
    _last: dict[str, Version] = field(default_factory=dict)

    def go_through(self, history: Iterable[Version]) -> None:
        """Take notice of what was written, in its order."""
        for version in history:
            kind, _, name = version.key.removeprefix("/registry/kueue.x-k8s.io/").partition("/")
            if kind == "clusterqueues" and version.object is not None:
                self._note_queue(name, version.revision, version.object)
            elif kind == "workloads":
                self._note_workload(name, version)

    def _note_queue(self, name: str, revision: int, queue: Mapping[str, Any]) -> None:
        versions = self._queues.setdefault(name, [])
        if not versions or versions[-1][1] != queue["spec"]:
            versions.append((revision, queue["spec"]))

    def _note_workload(self, name: str, version: Version) -> None:
        old = self._last.get(name)
        self._count(old, version)
        self._last[name] = version
        was, now = self._holds.pop(name, Counter()), self._held_by(version)
        replaced = (version.object or {}).get("metadata", {}).get("annotations", {})
        if now and not was and SLICE_REPLACEMENT_FOR in replaced:
            self._charge(self._holds.pop(replaced[SLICE_REPLACEMENT_FOR], Counter()), -1)
        if now:
            self._holds[name] = now
        self._charge(was, -1)
        self._charge(now, 1)
        if old is not None and old.reserved is not None and not _is_active(old):
            return  # reactivated before its job had stopped: as in Kueue, it holds its quota again
        grown = {place for place in now if now[place] > was[place]}
        self.most |= Counter({place: self.held[place] for place in grown})
        for place in sorted(grown):
            self._check(version, place)

    def _count(self, old: Version | None, new: Version) -> None:
        if new.true(QUOTA_RESERVED) and not (old and old.true(QUOTA_RESERVED)):
            self.admissions += 1
        if new.true(EVICTED) and not (old and old.true(EVICTED)):
            assert new.object is not None, "what is gone has no conditions"
            self.evictions[condition(dict(new.object), EVICTED)["reason"]] += 1

    def _held_by(self, version: Version) -> Counter[Place]:
        """Return what a workload holds, of its queue and of the cohort."""
        admission = version.reserved
        if admission is None or version.object is None:
            return Counter()
        if not _is_active(version):
            return Counter()  # as in Kueue, what is deactivated holds nothing, though it may run on
        back = {p["name"]: p["count"] for p in version.object["status"].get("reclaimablePods", ())}
        wanted = {p["name"]: p["count"] for p in version.object["spec"].get("podSets", ())}
        queue = admission["clusterQueue"]
        names = (queue, *filter(None, [self._spec(queue).get("cohortName")]))
        found: Counter[Place] = Counter()
        for each in admission.get("podSetAssignments", ()):
            count = each.get("count", 1)
            name = each["name"]  # a job that shrinks needs less than it was given
            left = max(0, min(count, wanted.get(name, count)) - back.get(name, 0))
            for resource, amount in each.get("resourceUsage", {}).items():
                milli = parse_quantity(str(amount)).milli() * left // max(1, count)
                for holder in names:
                    found[holder, each["flavors"][resource], resource] += milli
        return +found

    def _spec(self, queue: str) -> Mapping[str, Any]:
        return self._queues[queue][-1][1] if queue in self._queues else {}

    def _charge(self, amounts: Counter[Place], sign: int) -> None:
        for place, amount in amounts.items():
            self.held[place] += sign * amount

    def _check(self, version: Version, place: Place) -> None:
        held, most = self.held[place], self._most(place, _moment(version))
        if held > most:
            name = version.key.rpartition("workloads/")[2]
            amounts_text = f"{held / 1000:g} of {most / 1000:g} {place[2]} of {place[1]}"
            holders = ((who, amounts[place] / 1000) for who, amounts in self._holds.items())
            by = ", ".join(f"{who} {amount:g}" for who, amount in holders if amount)
            at = f"at revision {version.revision}"
            self.exceeded.append(f"{place[0]} with {name} {at}: {amounts_text}; {by}")

    def _most(self, place: Place, at: float) -> float:
        """Return the most that a queue or cohort might hold when something was admitted."""
        name, flavor, resource = place
        if name in self._queues:
            return max(
                _limit(spec, flavor, resource, borrows=True)
                for spec in self._in_force(name, at - GRACE_SECONDS)
            )
        return sum(
            max(
                _limit(spec, flavor, resource, borrows=False)
                for spec in self._in_force(queue, at - GRACE_SECONDS)
            )
            for queue in self._queues
            if self._spec(queue).get("cohortName") == name
        )

    def _in_force(self, queue: str, since: float) -> Iterator[Mapping[str, Any]]:
        """Yield the versions of a queue that were in force at some time since a moment."""
        versions = self._queues[queue]
        for number, (_, spec) in enumerate(versions):
            if number + 1 == len(versions) or self._known_at(versions[number + 1][0]) >= since:
                yield spec

    def _known_at(self, revision: int) -> float:
        """Return when a change was known at the latest; that of the latest may not be yet."""
        latest = max([*self.answered], default=0)
        return self.answered.get(revision, inf if revision > latest else 0.0)


def _is_active(version: Version) -> bool:
    return version.object is not None and bool(version.object["spec"].get("active", True))


def _moment(version: Version) -> float:
    """Return when a workload changed last."""
    conditions = (version.object or {}).get("status", {}).get("conditions", ())
    times = [datetime.fromisoformat(c["lastTransitionTime"]).timestamp() for c in conditions]
    return max(times, default=0.0)


def _limit(spec: Mapping[str, Any], flavor: str, resource: str, *, borrows: bool) -> float:
    """Return the quota of a queue, with what it may borrow if it `borrows`."""
    for group in spec.get("resourceGroups", ()):
        for quotas in group["flavors"]:
            for quota in quotas["resources"]:
                if (quotas["name"], quota["name"]) == (flavor, resource):
                    return _with_borrowed(quota, may=borrows and bool(spec.get("cohortName")))
    return 0


def _with_borrowed(quota: Mapping[str, Any], *, may: bool) -> float:
    nominal = parse_quantity(str(quota["nominalQuota"])).milli()
    if not may:
        return nominal
    limit = quota.get("borrowingLimit")
    return float("inf") if limit is None else nominal + parse_quantity(str(limit)).milli()


@dataclass
class Reasons:
    """Notes how long pending workloads say no reason."""

    longest: dict[str, float] = field(default_factory=dict)
    """Seconds, by the workload; of those that said none at some look."""
    messages_by_job: dict[str, list[str]] = field(default_factory=dict)
    """What each workload said at which looks, as long as it was something new."""
    _since: dict[str, float] = field(default_factory=dict)
    _seen_at: float = 0.0
    """When it was looked last: who was there then, and says none now, may have said one since."""

    def look(self, workloads: Iterable[dict[str, Any]], now: float) -> None:
        """Take notice of all workloads that there are.

        Args:
            workloads: As the API server has them.
            now: In seconds since the epoch.
        """
        untold = {}
        for workload in workloads:
            metadata = workload["metadata"]
            key = f"{metadata['namespace']}/{metadata['name']}"
            self._note(key, condition(workload, QUOTA_RESERVED).get("message", "nothing"), now)
            if is_pending(workload) and not reason_of(workload):
                made = datetime.fromisoformat(metadata["creationTimestamp"]).timestamp()
                untold[key] = self._since.get(key, made if made > self._seen_at else now)
                self.longest[key] = max(self.longest.get(key, 0.0), now - untold[key])
        self._since, self._seen_at = untold, now

    def _note(self, key: str, message: str, now: float) -> None:
        lines = self.messages_by_job.setdefault(key, [])
        if not lines or lines[-1].partition(" ")[2] != message:
            lines.append(f"{clock(now)} {message}")

    def over(self, seconds: float) -> dict[str, float]:
        """Return which workloads said no reason for longer."""
        return {key: found for key, found in self.longest.items() if found > seconds}


def is_pending(workload: dict[str, Any]) -> bool:
    """Tell whether a workload waits for quota."""
    gone = workload["metadata"].get("deletionTimestamp")
    over = any(condition(workload, k).get("status") == "True" for k in (QUOTA_RESERVED, FINISHED))
    return not gone and not over


def reason_of(workload: dict[str, Any]) -> str:
    """Return why a workload waits; empty if it does not say, or only that nobody has looked."""
    message = str(condition(workload, QUOTA_RESERVED).get("message", ""))
    return "" if message in {PENDING, BYPASSED} else message


@dataclass
class Memory:
    """Samples of the memory of a process, in MB, and when they were taken."""

    samples: list[tuple[float, float]] = field(default_factory=list)

    def growth(self) -> float:
        """Return by how many MB it grew over the second half, by the line through the samples."""
        half = self.samples[len(self.samples) // 2 :]
        if len(half) < 2:
            return 0.0
        times, sizes = zip(*half, strict=True)
        return linear_regression(times, sizes).slope * (times[-1] - times[0])


def lines_about(names: Sequence[str], logs: Iterable[Path], *, most: int = 6) -> list[str]:
    """Return the last lines of logs that name one of the objects."""
    found = []
    named = re.compile("|".join(rf"(?<![a-z]){re.escape(name)}(?!\d)" for name in names))
    for log in logs:
        mine = [line for line in log.read_text(errors="replace").splitlines() if named.search(line)]
        found += [f"{log.stem}: {line[:400]}" for line in mine[-most:]]
    return found


def clock(seconds: float) -> str:
    """Write a moment as logs do."""
    return time.strftime("%H:%M:%S", time.gmtime(seconds))
