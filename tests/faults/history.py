"""The whole history of the queue, as etcd has it, and what must hold at every moment of it.

etcd keeps every version of every object in one order. Looking on through the API server would miss
what is written while it is down, or lag behind.
"""

import base64
import json
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

PREFIX = "/registry/kueue.x-k8s.io/workloads/"
MARK = "/registry/kueue.x-k8s.io/workloads0"
"""The first key after those of all workloads."""

READ_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Version:
    """A workload as it was from a revision on; `object` is None once it is deleted."""

    revision: int
    key: str
    object: Mapping[str, Any] | None

    def true(self, condition: str) -> bool:
        """Tell whether a condition is true."""
        status = (self.object or {}).get("status") or {}
        return any(
            c["type"] == condition and c["status"] == "True" for c in status.get("conditions", ())
        )

    @property
    def reserved(self) -> Mapping[str, Any] | None:
        """The admission, if the workload holds quota."""
        if self.object is None or not self.true("QuotaReserved") or self.true("Finished"):
            return None
        return self.object["status"].get("admission")

    @property
    def owner(self) -> str:
        """The uid of the job that the workload is for."""
        owners = (self.object or {}).get("metadata", {}).get("ownerReferences") or ({"uid": ""},)
        return str(owners[0]["uid"])


def read_history(etcd: str, *, since: int = 1, first: str = PREFIX) -> list[Version]:
    """Read all versions of all workloads since a revision.

    Args:
        etcd: etcd's address.
        since: The first revision.
        first: The first key; what comes between it and the workloads is read as well.
    """
    last = _mark(etcd)
    span = {"key": _encoded(first), "range_end": _encoded(MARK + "0"), "start_revision": since}
    found: list[Version] = []
    body = json.dumps({"create_request": span}).encode()
    with urllib.request.urlopen(f"{etcd}/v3/watch", data=body, timeout=READ_SECONDS) as answer:
        for line in answer:
            events = json.loads(line)["result"].get("events", ())
            if any(int(event["kv"]["mod_revision"]) == last for event in events):
                return found + [_version(event) for event in events if not _is_mark(event)]
            found += [_version(event) for event in events if not _is_mark(event)]
    raise AssertionError("etcd ended the history before its end")


def _mark(etcd: str) -> int:
    """Write a mark behind all workloads, where nobody looks; return its revision."""
    body = json.dumps({"key": _encoded(MARK), "value": _encoded("mark")}).encode()
    with urllib.request.urlopen(f"{etcd}/v3/kv/put", data=body, timeout=READ_SECONDS) as answer:
        return int(json.load(answer)["header"]["revision"])


def _is_mark(event: Any) -> bool:
    return base64.b64decode(event["kv"]["key"]).decode() == MARK


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _version(event: Any) -> Version:
    pair = event["kv"]
    deleted = event.get("type") == "DELETE"
    obj = None if deleted else json.loads(base64.b64decode(pair["value"]))
    return Version(int(pair["mod_revision"]), base64.b64decode(pair["key"]).decode(), obj)


@dataclass
class Judge:
    """Goes through a history, part by part, and notes what must not be.

    Attributes:
        limits: The most that each ClusterQueue and each cohort may hold, in GPUs.
        cohorts: The cohort of each ClusterQueue.
        revision: Up to where it went.
        held: GPUs that are held there.
        most: The most that were held at a time, in the last part.
        admissions: How often each workload was admitted in the last part.
        evictions: How many there were in the last part.
    """

    limits: Mapping[str, int]
    cohorts: Mapping[str, str]
    revision: int = 0
    held: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    admissions: Counter[str] = field(default_factory=Counter)
    evictions: int = 0
    _owners: dict[tuple[str, str], None] = field(default_factory=dict)
    """By whom quota is held: a job's uid and its workload."""
    _last: dict[str, Version] = field(default_factory=dict)

    def faults(self, history: Iterable[Version]) -> Iterator[str]:
        """Iterate over what must not be."""
        self.admissions.clear()
        self.most.clear()
        self.evictions = 0
        for version in history:
            yield from self._step(self._last.get(version.key), version)
            self._last[version.key] = version
            self.revision = version.revision

    def _step(self, old: Version | None, new: Version) -> Iterator[str]:
        was, now = old.reserved if old else None, new.reserved
        if was is not None and now is not None and _place(was) != _place(now):
            yield f"{new.key} at {new.revision}: admitted again without a release"
        if was is None and now is not None:
            self.admissions[new.key] += 1
            others = self._other_of(new)
            if others:
                yield f"{new.key} at {new.revision}: its job holds quota by {others} already"
            self._owners[new.owner, new.key] = None
        if was is not None and now is None:
            self._owners.pop((old.owner if old else "", new.key), None)
        self.evictions += new.true("Evicted") and not (old is not None and old.true("Evicted"))
        yield from self._charge(new, was, -1)
        yield from self._charge(new, now, 1)

    def _other_of(self, version: Version) -> str:
        found = (key for owner, key in self._owners if owner == version.owner)
        return next((key for key in found if key != version.key), "")

    def _charge(
        self, version: Version, admission: Mapping[str, Any] | None, sign: int
    ) -> Iterator[str]:
        if admission is None:
            return
        queue = admission["clusterQueue"]
        for name in (queue, self.cohorts[queue]):
            self.held[name] += sign * _gpus(admission)
            self.most[name] = max(self.most[name], self.held[name])
            if self.held[name] > self.limits[name]:
                yield f"{name} at {version.revision}: {self.held[name]} of {self.limits[name]} GPUs"


def _place(admission: Mapping[str, Any]) -> Any:
    assignments = admission.get("podSetAssignments") or ()
    return admission["clusterQueue"], [a.get("flavors") for a in assignments]


def _gpus(admission: Mapping[str, Any]) -> int:
    usages = (a.get("resourceUsage") or {} for a in admission.get("podSetAssignments") or ())
    return sum(int(usage.get("nvidia.com/gpu", 0)) for usage in usages)
