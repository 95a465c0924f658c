"""What runs in a cluster and is in no queue: jobs, pods and groups of pods, read page by page.

Of a pod, only the part is kept that the queue reads, and of the pods of jobs their nodes: a cluster
may run a hundred thousand.
"""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from policyd.api.kueue.names import MANAGED, QUEUE_NAME, ROLE_HASH
from policyd.api.meta import Json, ObjectMeta
from policyd.api.names import SYSTEM_NAMESPACES
from policyd.cli.importing.rules import ImportRule, ImportRuleSet, UndecidedError, queue_of
from policyd.controller.watch.mirrors import job_resource
from policyd.jobs.base import JobKind, JobObject, controller_of, prebuilt_name, queue_name
from policyd.jobs.kinds.registry import KINDS, kind_of_owner
from policyd.jobs.pod_groups import PodGroup
from policyd.jobs.pods import (
    NOT_ENDED,
    QueuedPod,
    by_age,
    group_name,
    has_ended,
    is_deleted,
    role_hash,
)
from policyd.jobs.workload import is_elastic
from policyd.kube.client import Reader
from policyd.kube.errors import NotFoundError
from policyd.kube.pages import pages, whole
from policyd.kube.resources import NAMESPACES, PODS, Resource

POD: Final = "Pod"
POD_GROUP: Final = "PodGroup"
IMPORTABLE: Final = (*(kind.kind for kind in KINDS), POD)
"""The kinds that rules may name."""
_LONGEST_CHAIN: Final = 8
"""Owners between a pod and its job, at most."""

BY_RULE: Final = "skipped by a rule"
NO_RULE: Final = "matched by no rule"
IN_A_QUEUE: Final = "in a queue already"
NOT_RUNNING: Final = "suspended or gated: you can add the label of a queue"
OF_OTHERS: Final = "made by an owner that is no job to import"
UNKNOWN_SHAPE: Final = "unreadable"


class ImportedPodPlace(NamedTuple):
    """A pod of a job: the names of its containers, its labels, and its node."""

    containers: frozenset[str]
    labels: Mapping[str, str]
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Something that runs and is to come into a queue.

    Attributes:
        kind: Job, Pod, PodGroup, or another kind of job.
        resource: Where the objects are served.
        metadata: Of the job, or of the oldest pod.
        rule: The rule that matches it.
        job: The job; None for pods.
        job_kind: Its kind; None for pods.
        group: The pods, if they are the job.
        left: Why it cannot be imported, if that is known already.
    """

    kind: str
    resource: Resource
    metadata: ObjectMeta
    rule: ImportRule | None
    job: JobObject | None = None
    job_kind: JobKind[Any] | None = None
    group: PodGroup | None = None
    left: str = ""

    @property
    def queue(self) -> str:
        """The LocalQueue that its rule gives it."""
        return "" if self.rule is None else queue_of(self.rule, self.metadata)

    @property
    def name(self) -> str:
        """Its name; of a group, that of the group."""
        grouped = self.group is not None and self.group.name
        return self.group.name if self.group is not None and grouped else self.metadata.name


@dataclass(slots=True)
class RunningJobs:
    """What runs in a cluster.

    Attributes:
        candidates: What a rule matches.
        skipped: How many objects are left alone, by reason.
        places: The pods of each object that makes pods, by its UID.
        parents: The UID of the owner of each job, by its own.
    """

    candidates: list[Candidate] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[ImportedPodPlace]] = field(default_factory=lambda: defaultdict(list))
    parents: dict[str, str] = field(default_factory=dict)

    def places_of(self) -> Mapping[str, Sequence[ImportedPodPlace]]:
        """Return the pods of each job by its UID, those of its jobs too."""
        found: dict[str, list[ImportedPodPlace]] = defaultdict(list)
        for uid, places in self.places.items():
            above = uid
            for _ in range(_LONGEST_CHAIN):
                found[above] += places
                if above not in self.parents:
                    break
                above = self.parents[above]
        return found


class ImportSearch(NamedTuple):
    """What is looked for.

    Attributes:
        rules: The rules.
        namespaces: The namespaces; all if there are none.
        labels: Namespaces by name, as far as they may be read.
    """

    rules: ImportRuleSet
    namespaces: tuple[str, ...]
    labels: Mapping[str, Json]


async def read_namespaces(reader: Reader) -> dict[str, Json]:
    """Return the namespaces by name.

    Raises:
        ApiError: If they may not be listed.
    """
    found: dict[str, Json] = {}
    async for page in pages(reader, NAMESPACES, into=dict):
        found |= {item["metadata"]["name"]: whole(NAMESPACES, item) for item in page.items}
    return found


async def read_jobs(
    reader: Reader, kind: JobKind[Any], search: ImportSearch, found: RunningJobs
) -> None:
    """Add the running jobs of a kind that are in no queue.

    Raises:
        ApiError: If they cannot be listed.
    """
    resource = job_resource(kind)
    async for item in _objects(reader, resource, search.namespaces):
        metadata = item["metadata"]
        owners = metadata.get("ownerReferences") or ()
        parent = next((each["uid"] for each in owners if each.get("controller")), "")
        if parent:
            found.parents[metadata["uid"]] = parent
        _take_job(kind, resource, item, search, found)


def _take_job(
    kind: JobKind[Any],
    resource: Resource,
    item: dict[str, Json],
    search: ImportSearch,
    found: RunningJobs,
) -> None:
    try:
        job: JobObject = msgspec.convert(item, kind.type)
        over = kind.outcome(job) is not None or job.metadata.deletion_timestamp is not None
        owner = controller_of(job.metadata)
        of_job = owner is not None and kind_of_owner(owner) is not None
        if over or of_job or kind.ignored(job) or job.metadata.namespace in SYSTEM_NAMESPACES:
            return
        if queue_name(job.metadata):
            found.skipped[IN_A_QUEUE] += 1
            return
        pod_sets = kind.pod_sets(job) if kind.basis(job) is None else ()
        suspended = kind.suspended(job)
    except (msgspec.ValidationError, ValueError):
        found.skipped[UNKNOWN_SHAPE] += 1
        return
    priorities = {each.template.spec.priority_class_name for each in pod_sets}
    rule, left = _rule_for(item, job.metadata, search, priorities - {""}, found)
    if rule is None and not left:
        return
    if suspended:
        found.skipped[NOT_RUNNING] += 1
        return
    left = left or _unsupported(kind, job)
    found.candidates.append(
        Candidate(
            kind=kind.kind,
            resource=resource,
            metadata=job.metadata,
            rule=rule,
            job=job,
            job_kind=kind,
            left=left,
        )
    )


def _unsupported(kind: JobKind[Any], job: JobObject) -> str:
    """Return why a running job cannot be imported; "" if it can."""
    basis = kind.basis(job)
    if prebuilt_name(job.metadata):
        return "it names a prebuilt Workload"
    if basis is not None:
        return f"its pods are those of {basis.kind} {basis.name}, which is not read"
    if kind.elastic is not None and is_elastic(job.metadata):
        return "it is elastic: its size may change while it is imported"
    return ""


def _rule_for(
    item: dict[str, Json],
    metadata: ObjectMeta,
    search: ImportSearch,
    priorities: set[str],
    found: RunningJobs,
) -> tuple[ImportRule | None, str]:
    """Return the rule of an object, or why it has none; counts what no rule is about."""
    try:
        namespace = search.labels.get(metadata.namespace)
        rule = search.rules.rule_for(item, metadata, namespace, priorities)
    except UndecidedError as error:
        return None, str(error)
    if rule is None or rule.skip:
        found.skipped[NO_RULE if rule is None else BY_RULE] += 1
        return None, ""
    return rule, ""


async def read_pods(reader: Reader, search: ImportSearch, found: RunningJobs) -> None:
    """Add the running pods that are in no queue, alone and in groups, and the nodes of all pods.

    Raises:
        ApiError: If they cannot be listed.
    """
    groups: dict[tuple[str, str], list[_Member]] = {}
    async for item in _objects(reader, PODS, search.namespaces, field_selector=NOT_ENDED):
        try:
            pod = msgspec.convert(item, QueuedPod)
        except msgspec.ValidationError:
            found.skipped[UNKNOWN_SHAPE] += 1
            continue
        owner = controller_of(pod.metadata)
        if has_ended(pod) or is_deleted(pod) or pod.metadata.namespace in SYSTEM_NAMESPACES:
            continue
        if owner is not None:
            found.places[owner.uid].append(_place(pod))
            if kind_of_owner(owner) is None and owner.kind != "Node":
                found.skipped[OF_OTHERS] += search.rules.concerns(POD)
            continue
        _take_pod(pod, item, search, found, groups)
    for (namespace, name), members in groups.items():
        # An import that was stopped has labelled some pods of a group.
        if all(each.queued for each in members):
            found.skipped[IN_A_QUEUE] += len(members)
        else:
            found.candidates.append(_group(namespace, name, members))


class _Member(NamedTuple):
    """A pod of a group: its rule, why it is left, and whether it has the label of a queue."""

    pod: QueuedPod
    rule: ImportRule | None
    left: str
    queued: bool


def _take_pod(
    pod: QueuedPod,
    item: dict[str, Json],
    search: ImportSearch,
    found: RunningJobs,
    groups: "dict[tuple[str, str], list[_Member]]",
) -> None:
    metadata = pod.metadata
    queued = bool(queue_name(metadata)) or MANAGED in metadata.labels
    if queued and not group_name(metadata):
        found.skipped[IN_A_QUEUE] += 1
        return
    priorities = {pod.spec.priority_class_name} - {""}
    rule, left = _rule_for(item, metadata, search, priorities, found)
    if rule is None and not left:
        return
    if pod.spec.scheduling_gates:
        found.skipped[NOT_RUNNING] += 1
        return
    if prebuilt_name(metadata):
        left = left or "it names a prebuilt Workload"
    if group := group_name(metadata):
        if ROLE_HASH not in metadata.annotations:
            notes = {
                **metadata.annotations,
                ROLE_HASH: role_hash(item["spec"], metadata.annotations),
            }
            metadata = msgspec.structs.replace(metadata, annotations=notes)
            pod = msgspec.structs.replace(pod, metadata=metadata)
        groups.setdefault((metadata.namespace, group), []).append(
            _Member(pod, rule, left, queued=queued)
        )
        return
    found.candidates.append(
        Candidate(
            kind=POD,
            resource=PODS,
            metadata=metadata,
            rule=rule,
            group=PodGroup(name="", pods=(pod,)),
            left=left,
        )
    )


def _group(namespace: str, name: str, members: Sequence[_Member]) -> Candidate:
    rules = {"" if each.rule is None else each.rule.name: each.rule for each in members}
    queues = {queue_of(each.rule, each.pod.metadata) for each in members if each.rule is not None}
    # The label of a queue that one of them has makes no difference: all are to have the same.
    pods = tuple(by_age(_without_queue(each.pod) for each in members))
    group = PodGroup(name=name, pods=pods)
    left = next((each.left for each in members if each.left), "")
    if len(rules) > 1 or len(queues) > 1:
        left = left or "rules give its pods different queues"
    left = left or group.contradiction()
    if not left and len(pods) != group.total:
        left = f"{len(pods)} of its {group.total} pods run"
    rule = next(iter(rules.values()))
    return Candidate(
        kind=POD_GROUP,
        resource=PODS,
        metadata=msgspec.structs.replace(pods[0].metadata, namespace=namespace),
        rule=rule,
        group=group,
        left=left,
    )


def _without_queue(pod: QueuedPod) -> QueuedPod:
    labels = {k: v for k, v in pod.metadata.labels.items() if k != QUEUE_NAME}
    metadata = msgspec.structs.replace(pod.metadata, labels=labels)
    return msgspec.structs.replace(pod, metadata=metadata)


def _place(pod: QueuedPod) -> ImportedPodPlace:
    names = frozenset(each.name for each in pod.spec.containers)
    return ImportedPodPlace(names, pod.metadata.labels, pod.spec.node_name)


async def _objects(
    reader: Reader, resource: Resource, namespaces: Iterable[str], *, field_selector: str = ""
) -> AsyncIterator[dict[str, Json]]:
    """Iterate over the objects of a kind; over none if the cluster does not serve it."""
    for namespace in namespaces or ("",):
        listed = pages(
            reader, resource, into=dict, namespace=namespace, field_selector=field_selector
        )
        try:
            async for page in listed:
                for item in page.items:
                    yield whole(resource, item)
        except NotFoundError:
            return
