"""Kueue's tables: files, cases and their objects, put into the cache that the controller runs on.

A case's objects are decoded into our API Structs and taken in by the product's own mirrors, cache
and conversion, so that what an adapter drives is `cluster.state` as the controller would have it.
"""

import json
from dataclasses import dataclass
from datetime import datetime

import msgspec
from msgspec import inspect

from policyd.alloc.settings import FairSharingRules, Gates, QueueingSettings
from policyd.api.makers import Makers
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.mirrors import open_mirrors, without_annotated_names
from policyd.controller.watch.queue_changes import QueueChanges
from policyd.controller.watch.workload_values import WorkloadContext, workload_value
from policyd.jobs.integrations import Integrations
from policyd.jobs.kinds.registry import PARENTS
from policyd.jobs.rules.surroundings import JobContext
from policyd.testing import FakeClient, FakeClock, ObjectStore
from tests.conformance.outcome import Outcome, judge

DEFAULT_UID = "uid"

TRUSTING = Makers(trusted=True)
"""Kueue believes whatever an object says of its owner."""

TRUSTED = JobContext(integrations=Integrations(makers=TRUSTING))


ZEROS = {
    **dict.fromkeys(("int", "int32", "int64", "uint", "uint64", "float64"), 0),
    "bool": False,
    "string": "",
    "time.Duration": "0s",
}
"""What Go has in a column of a scalar type that a row leaves out."""

MAPS = ("map[", "sets.Set", "MapRequests", "Requests", "corev1.ResourceList", "resources.Flavor")


class Columns(dict):
    """The columns of a row by name; what it leaves out of the table's `types` is as in Go.

    No scalar is nil, and slices and maps that are nil are as good as empty. All else is None.
    """

    def __init__(self, row, types):
        given = {name: value for name, value in (row or {}).items() if value is not None}
        zeros = {name: _zero(kind) for name, kind in types.items() if not is_wanted(name)}
        super().__init__({n: zero for n, zero in zeros.items() if zero is not None} | given)
        self._types = types

    def __missing__(self, name):
        if name not in self._types:
            raise KeyError(name)


class WantedColumns(dict):
    """The expected columns of a row; those that are nil are None by `get`: some tests skip them."""

    def __init__(self, row, types):
        super().__init__(row or {})
        self._types = types

    def __getitem__(self, name):
        value = self.get(name)
        if value is None and name not in self and name not in self._types:
            raise KeyError(name)
        return _zero(self._types.get(name, "")) if value is None else value


def _zero(kind):
    if kind.startswith("[]"):
        return []
    return {} if kind.startswith(MAPS) else ZEROS.get(kind)


def is_wanted(column):
    return column.lower().startswith(("want", "expect"))


@dataclass(frozen=True)
class Case:
    """One run of a row of a table: the main one, or a variant under other gates.

    Attributes:
        name: The row's name, with the gates of a variant.
        gates: What is set explicitly, by Kueue's names.
        input: Input columns.
        want: Expected columns.
        env: Objects, clients and operations.
        data: All there is in the file about the row.
    """

    name: str
    gates: dict
    input: dict
    want: dict
    env: dict
    data: dict

    @property
    def objects(self):
        return self.env.get("objects", {})

    def resolve(self, value):
        """Replace references to objects by the objects, at any depth."""
        match value:
            case {"$obj": key}:
                return self.objects[key]
            case dict():
                return {name: self.resolve(each) for name, each in value.items()}
            case list():
                return [self.resolve(each) for each in value]
        return value

    def operations(self, *names):
        """Yield operation, resolved arguments and result of the test's calls, those named only."""
        for each in self.env.get("ops", ()):
            if not names or each["op"] in names:
                yield each["op"], self.resolve(each.get("args") or {}), each.get("result")


def read_table(path):
    return json.loads(path.read_text())


def cases_of(table, *, variants=True):
    """Yield every run of every row of a table."""
    types = table.get("fields") or {}
    for row in table["cases"]:
        name = str(row["name"])
        main = Case(
            name=name,
            gates=row.get("gates") or {},
            input=Columns(row.get("input"), types),
            want=WantedColumns(row.get("want"), types),
            env=row.get("env") or {},
            data=row,
        )
        yield main
        for variant in (row.get("variants") or ()) if variants else ():
            if variant.get("skipped"):
                continue  # by Kueue's own test, so nobody knows what is wanted
            gates = variant.get("gates") or {}
            yield Case(
                name=f"{name} {json.dumps(gates)}",
                gates=gates,
                input=main.input,
                want=WantedColumns({**main.want, **(variant.get("want") or {})}, types),
                env=main.env,
                data={**row, **variant},
            )


def run_table(path, failure, *, rule=lambda _case: "", variants=True):
    """Yield what becomes of each run: `failure(case)` says why it fails, "" if it does not.

    `rule(case)` names the feature that puts a case out of scope, "" if it is in scope.
    """
    table = read_table(path)
    for case in cases_of(table, variants=variants):
        out = rule(case)
        yield Outcome(case.name, rule=out) if out else judge(case.name, lambda c=case: failure(c))


def settings_of(case, *, fair_sharing=None, **others):
    """Return the settings of a case: its gates, and whether cohorts share fairly."""
    enabled = case.input.get("enableFairSharing") if fair_sharing is None else fair_sharing
    return QueueingSettings(
        gates=Gates.of(case.gates), fair_sharing=FairSharingRules() if enabled else None, **others
    )


def seconds(text):
    """Turn a time of the tables into seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


NOW = seconds("2026-01-02T03:04:05Z")
"""The clock of all tables."""


class Cluster:
    """The mirrors, cache and state of a controller, filled with a case's objects."""

    def __init__(self, settings=None, *, now=NOW, integrations=TRUSTED.integrations):
        self.clock = FakeClock(now)
        self.client = FakeClient(store=ObjectStore(clock=self.clock))
        pace, settings = self.clock.pace(), settings or QueueingSettings()
        self.annotated = settings.gates.workload_identifier_annotations
        self.mirrors = open_mirrors(self.client, pace, annotated=self.annotated)
        self.cache = Cache(
            self.mirrors,
            pace=pace,
            settings=settings,
            integrations=integrations,
        )
        self.mirrors.workloads.listen(self.cache.take)
        self.changes = QueueChanges(self.cache)
        # The tables name objects by their kind; Volcano's jobs are not in them.
        others = {kind.alias for kind in PARENTS if kind.alias}
        hidden = {id(self.mirrors.jobs[alias]) for alias in others if alias in self.mirrors.jobs}
        self._mirror = {m.resource.kind: m for m in self.mirrors.all() if id(m) not in hidden}
        self._version = 0

    @property
    def state(self):
        return self.cache.state

    def put(self, *bodies):
        """Take objects in as the watch would; what has no uid gets one from its name."""
        for body in bodies:
            mirror = self._mirror.get(body.get("kind"))
            if mirror is not None:
                self._version += 1
                stored = self.stored(body)
                self.see(mirror, decode(stored, mirror.into, version=self._version))

    def see(self, mirror, obj):
        """Have a mirror take an object in as its informer does, cut down where it is."""
        named = not self.annotated and mirror in (*self.mirrors.jobs.values(), self.mirrors.pods)
        mirror.wrote(without_annotated_names(obj) if named else obj)

    def stored(self, body):
        """Return an object as an API server would store it that means the same.

        The tables' queues have passed no defaulting. Where shares decide, Kueue takes an absent
        `reclaimWithinCohort` for a reason to look for victims while borrowing, though nobody may
        be reclaimed from; what says so of a whole object is `borrowWithinCohort`, which shares do
        not heed otherwise.
        """
        policy = body.get("spec", {}).get("preemption") or {}
        shares = self.state.settings.fair_sharing is not None
        if not shares or body["kind"] != "ClusterQueue" or "reclaimWithinCohort" in policy:
            return body
        policy = {"borrowWithinCohort": {"policy": "LowerPriority"}, **policy}
        return {**body, "spec": {**body["spec"], "preemption": policy}}

    def put_all(self, case, *kinds):
        """Take in a case's objects, of some kinds or of all, but for later versions of one."""
        for key, body in case.objects.items():
            if "#" not in key and (not kinds or body.get("kind") in kinds):
                self.put(body)

    def mirror_of(self, kind):
        """Return the mirror of a kind; None if it is not watched."""
        return self._mirror.get(kind)

    def remove(self, kind, key):
        self._mirror[kind].forget(key)

    def value(self, body, cluster_queue):
        """Convert a Workload as if it were in `cluster_queue`; it is not put anywhere."""
        workload = decode(body, self.mirrors.workloads.into)
        circumstances = WorkloadContext(now=self.clock.now(), settings=self.state.settings)
        return workload_value(workload, circumstances, cluster_queue=cluster_queue)


def decode(body, into, *, version=0):
    """Decode an object as the watch would: with a version, and with a uid."""
    metadata = body.get("metadata") or {}
    key = "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))
    stamped = {**metadata, "uid": metadata.get("uid") or f"{DEFAULT_UID}-{key}"}
    if version:
        stamped["resourceVersion"] = str(version)
    return convert({**body, "metadata": stamped}, into)


def convert(value, into):
    """Read a value of a table; Go leaves out what is zero, also of what the API server demands."""
    text = json.dumps(value)
    try:
        return msgspec.json.decode(text, type=into)
    except msgspec.ValidationError as error:
        if "missing required field" not in str(error):
            raise
    return msgspec.convert(_completed(json.loads(text), inspect.type_info(into)), into)


def _completed(value, kind):
    """Give a value the fields that it must have, as Go has them: zero."""
    match kind, value:
        case inspect.Metadata(), _:
            return _completed(value, kind.type)
        case inspect.StructType(), dict():
            names = {f.encode_name for f in kind.fields if f.required or f.encode_name in value}
            fields = {f.encode_name: f.type for f in kind.fields if f.encode_name in names}
            return value | {n: _completed(value.get(n), each) for n, each in fields.items()}
        case inspect.ListType() | inspect.VarTupleType(), list():
            return [_completed(each, kind.item_type) for each in value]
        case inspect.DictType(), dict():
            return {name: _completed(each, kind.value_type) for name, each in value.items()}
        case inspect.UnionType(), list() | dict():
            for each in kind.types:
                value = _completed(value, each)
        case _, None:
            return _zero_of(kind)
    return value


def _zero_of(kind):
    """Return what Go has in a field of a type; the first of words that the API server knows."""
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    if isinstance(kind, inspect.StructType):
        return _completed({}, kind)
    return {inspect.StrType: "", inspect.IntType: 0, inspect.BoolType: False}.get(type(kind))


def keys_of(pending, *, parked):
    """Return the keys of those in a queue that are parked, or that are not."""
    active = {ticket.workload.key for ticket in pending.active}
    return {ticket.workload.key for ticket in pending} - active if parked else active
