"""What becomes of each running job: its flavors, by the nodes of its pods, and whether it fits.

The most important jobs come first, so that the others are left if the quota does not suffice for
all. A job may borrow what its cohort has free, as any job; nothing is preempted for it.
"""

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from policyd.alloc.flavors.assignment import FlavorOption, GroupRequests, Requests
from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.state import CoreState
from policyd.alloc.workload import PodSetFlavors, QueuedWorkload, ReservedQuota
from policyd.api.configuration import decode_configuration
from policyd.api.configuration.kinds import ResourcesConfiguration
from policyd.api.kueue import ClusterQueue, LocalQueue, Workload
from policyd.api.kueue.names import EVICTED, PRIORITY_CLASS, QUEUE_NAME
from policyd.api.meta import Json, OwnerReference, condition_true
from policyd.cli.formats.scenarios import (
    scenario_context,
    scenario_kind,
    scenario_state,
    scenario_workloads,
)
from policyd.cli.importing.reading import Candidate, ImportedPodPlace
from policyd.controller.watch.cache import RulesByNamespace
from policyd.controller.watch.mirror import Mirror
from policyd.controller.watch.mirrors import Mirrors
from policyd.controller.watch.priorities import PriorityClassMissingError, priority_of
from policyd.controller.watch.workload_values import workload_value
from policyd.engine.objects.match import labels_of
from policyd.errors import did_you_mean
from policyd.jobs.base import JobKind, JobObject
from policyd.jobs.frameworks import reported_integrations
from policyd.jobs.integrations import EVERYTHING, Integrations
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.jobs.pod_groups import new_group_workload
from policyd.jobs.pods import owner_reference, role_of
from policyd.jobs.workload import new_workload
from policyd.status.quantities import format_amount
from policyd.workload.conversion import admission_object


class PlannedImport(NamedTuple):
    """A job with its Workload as it will be, or the reason why it is left.

    Attributes:
        candidate: The job.
        cluster_queue: Where its quota is.
        workload: Its Workload with quota; None if it is left.
        left: Why it is left; "" if it is not.
        hint: What can be done about that.
        over: What exceeds the quota, if it is imported all the same; "" if nothing does.
        exists: The Workload that an earlier import has made.
    """

    candidate: Candidate
    cluster_queue: str = ""
    workload: Workload | None = None
    left: str = ""
    hint: str = ""
    over: str = ""
    exists: Workload | None = None

    @property
    def flavors(self) -> list[str]:
        """The flavors of its pod sets, each once."""
        admission = None if self.workload is None else self.workload.status.admission
        assigned = () if admission is None else admission.pod_set_assignments
        return sorted({flavor for each in assigned for flavor in each.flavors.values()})


class _LeftError(Exception):
    """A job is left."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.hint = hint


class QueuesAsTheyAre:
    """The queues of a cluster, with what holds quota there."""

    def __init__(
        self,
        objects: Sequence[dict[str, Json]],
        mirrors: Mirrors,
        *,
        namespaces: Mapping[str, Json],
        now: float,
    ) -> None:
        """Take the queues.

        Args:
            objects: Queues, flavors, Workloads, nodes, classes and the Configuration.
            mirrors: Empty mirrors, which get the classes and limits among the objects.
            namespaces: Namespaces by name.
            now: Seconds since the epoch.
        """
        self.state: CoreState = scenario_state([*objects])
        self.mirrors, self.namespaces = mirrors, namespaces
        self.local_queues = {
            each.metadata.key: each for each in scenario_kind(objects, LocalQueue, "LocalQueue")
        }
        self.cluster_queues = {
            each.metadata.name: each
            for each in scenario_kind(objects, ClusterQueue, "ClusterQueue")
        }
        self.nodes = {
            each["metadata"]["name"]: labels_of(each) for each in objects if each["kind"] == "Node"
        }
        configuration = next((each for each in objects if each["kind"] == "Configuration"), None)
        self.integrations: Integrations = EVERYTHING
        resources = ResourcesConfiguration()
        if configuration is not None:
            self.integrations = reported_integrations(configuration) or EVERYTHING
            resources = decode_configuration(configuration).resources or resources
        self._context = scenario_context(objects, now)
        _fill(mirrors, objects)
        self._rules = RulesByNamespace(mirrors, resources)
        self.owned: dict[str, list[Workload]] = {}
        for workload in scenario_workloads(objects):
            if is_finished(workload):
                continue
            for owner in workload.metadata.owner_references:
                self.owned.setdefault(owner.uid, []).append(workload)
            if workload.status.admission is not None:
                self.put(workload)
        self.state.settle()

    def value(self, workload: Workload, cluster_queue: str) -> QueuedWorkload:
        """Return a workload as the allocator sees it."""
        rules = self._rules.of(workload.metadata.namespace)
        rules = dataclasses.replace(rules, devices=self._context.rules.devices)
        context = dataclasses.replace(self._context, rules=rules)
        return workload_value(workload, context, cluster_queue=cluster_queue)

    def put(self, workload: Workload) -> None:
        """Charge what a workload holds."""
        admission = workload.status.admission
        queue = "" if admission is None else admission.cluster_queue
        self.state.put_workload(self.value(workload, queue))


def _fill(mirrors: Mirrors, objects: Iterable[Mapping[str, Json]]) -> None:
    by_kind: dict[str, Mirror[Any]] = {
        each.resource.kind: each
        for each in (
            mirrors.priorities,
            mirrors.priority_classes,
            mirrors.limit_ranges,
            mirrors.runtime_classes,
        )
    }
    for each in objects:
        mirror = by_kind.get(each["kind"])
        if mirror is not None:
            mirror.wrote(msgspec.convert(each, mirror.into))


def planned(
    candidates: Iterable[Candidate],
    queues: QueuesAsTheyAre,
    places: Mapping[str, Sequence[ImportedPodPlace]],
    *,
    over_quota: bool,
) -> Iterator[PlannedImport]:
    """Yield what becomes of each job, the most important first.

    Args:
        candidates: The jobs.
        queues: The queues; the quota of the jobs is charged to them.
        places: The pods of each job, by its UID.
        over_quota: Whether jobs are imported that do not fit in the quota.
    """
    ranked = sorted(
        ((_priority(each, queues), each) for each in candidates),
        key=lambda pair: (-pair[0], _age(pair[1]), pair[1].metadata.key),
    )
    for _, candidate in ranked:
        planner = _Planner(candidate, queues, places.get(candidate.metadata.uid, ()))
        try:
            yield planner.plan(over_quota=over_quota)
        except _LeftError as error:
            yield PlannedImport(candidate, planner.cluster_queue, left=str(error), hint=error.hint)


def _age(candidate: Candidate) -> float:
    made = candidate.metadata.creation_timestamp
    return 0.0 if made is None else made.timestamp()


def _priority(candidate: Candidate, queues: QueuesAsTheyAre) -> int:
    """Return the priority of a job; 0 if its class does not exist, as it is left then."""
    try:
        return _with_class(candidate, queues).spec.priority or 0
    except _LeftError:
        return 0


def _with_class(candidate: Candidate, queues: QueuesAsTheyAre) -> Workload:
    """Return the Workload of a job, without quota."""
    metadata, kind = candidate.metadata, candidate.job_kind
    labels = {**metadata.labels, QUEUE_NAME: candidate.queue}
    if candidate.rule is not None and candidate.rule.priority_class:
        labels |= {PRIORITY_CLASS: candidate.rule.priority_class}
    metadata = replace(metadata, labels=labels)
    try:
        pod_sets = _pod_sets(candidate)
        named = "" if kind is None else kind.priority_class(candidate.job)
        priority = priority_of(metadata, pod_sets, queues.mirrors, named=named)
    except PriorityClassMissingError as error:
        raise _LeftError(str(error), f"create the {error.kind}, or name another one") from error
    except (msgspec.ValidationError, ValueError) as error:
        raise _LeftError(f"its pods cannot be read: {error}") from error
    group = candidate.group
    if group is not None and group.name:
        first = replace(group.first, metadata=metadata)
        renamed = type(group)(name=group.name, pods=(first, *group.pods[1:]))
        return new_group_workload(renamed, pod_sets=pod_sets, priority=priority)
    return new_workload(metadata, owner=owner_of(candidate), pod_sets=pod_sets, priority=priority)


def owner_of(candidate: Candidate) -> OwnerReference:
    """Return a job as the owner of its Workload."""
    if candidate.group is not None:
        return owner_reference(candidate.group.first, controller=True)
    return OwnerReference(
        api_version=candidate.resource.api_version,
        kind=candidate.kind,
        name=candidate.metadata.name,
        uid=candidate.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def _pod_sets(candidate: Candidate) -> tuple[Any, ...]:
    if candidate.group is not None:
        return candidate.group.pod_sets()
    kind: JobKind[Any] | None = candidate.job_kind
    job: JobObject | None = candidate.job
    assert kind is not None, "a candidate is a pod or a job of a kind"
    return kind.pod_sets(job)


class _Planner:
    """Plans one job."""

    def __init__(
        self, candidate: Candidate, queues: QueuesAsTheyAre, places: Sequence[ImportedPodPlace]
    ) -> None:
        self.cluster_queue = ""
        self._candidate, self._queues = candidate, queues
        self._places = places

    def plan(self, *, over_quota: bool) -> PlannedImport:
        candidate = self._candidate
        if candidate.left:
            raise _LeftError(candidate.left)
        self._check_kind()
        self._check_queue()
        options = self._options()
        workload = _with_class(candidate, self._queues)
        if candidate.job_kind is not None:
            reclaimable = candidate.job_kind.reclaimable(candidate.job)
            workload = replace(
                workload, status=replace(workload.status, reclaimable_pods=reclaimable)
            )
        exists = self._existing(workload.metadata.name)
        if exists is not None and has_quota(exists):
            return PlannedImport(candidate, self.cluster_queue, exists, exists=exists)
        value = self._queues.value(workload, self.cluster_queue)
        if value.objection is not None:
            raise _LeftError(value.objection.message)
        chosen, over = self._chosen(options, options.trial_requests(value), over=over_quota)
        admitted = replace(
            workload, status=replace(workload.status, admission=admission_object(chosen))
        )
        self._queues.state.put_workload(replace(value, admission=chosen, admitted=True))
        return PlannedImport(candidate, self.cluster_queue, admitted, over=over, exists=exists)

    def _check_kind(self) -> None:
        candidate, integrations = self._candidate, self._queues.integrations
        resource = candidate.resource
        on = integrations.has(resource.group, resource.kind)
        if not on or (candidate.group is not None and not integrations.plain_pods):
            raise _LeftError(
                f"{candidate.kind} is not among the kinds that queue",
                "name it in `integrations.frameworks` of the controller's Configuration",
            )
        namespace = self._queues.namespaces.get(candidate.metadata.namespace)
        if namespace is not None and not integrations.covers(labels_of(namespace)):
            raise _LeftError(
                f"namespace {candidate.metadata.namespace} does not queue",
                "`managedJobsNamespaceSelector` of the controller's Configuration selects others",
            )

    def _check_queue(self) -> None:
        namespace, name = self._candidate.metadata.namespace, self._candidate.queue
        local = self._queues.local_queues.get(f"{namespace}/{name}")
        if local is None:
            known = [
                each.metadata.name
                for each in self._queues.local_queues.values()
                if each.metadata.namespace == namespace
            ]
            near = did_you_mean(name, known)
            there = ", ".join(sorted(known)[:10]) or "none"
            raise _LeftError(
                f"LocalQueue `{name}` doesn't exist; namespace {namespace} has {there}",
                near or "create it, or change the rule",
            )
        self.cluster_queue = local.spec.cluster_queue
        queue = self._queues.cluster_queues.get(self.cluster_queue)
        if queue is None:
            raise _LeftError(
                f"ClusterQueue {self.cluster_queue} of LocalQueue {name} doesn't exist",
                "create it, or use another LocalQueue",
            )
        for stopped in (local, queue):
            if stopped.spec.stop_policy == "HoldAndDrain":
                kind = "LocalQueue" if stopped is local else "ClusterQueue"
                raise _LeftError(
                    f"{kind} {stopped.metadata.name} evicts all workloads (HoldAndDrain)",
                    f"`policyd resume {kind.lower()}/{stopped.metadata.name}`",
                )
        self._check_selector(queue)

    def _check_selector(self, queue: ClusterQueue) -> None:
        namespace = self._candidate.metadata.namespace
        selector, found = queue.spec.namespace_selector, self._queues.namespaces.get(namespace)
        if selector is None or (found is not None and not selector.matches(labels_of(found))):
            raise _LeftError(
                f"ClusterQueue {self.cluster_queue} does not admit namespace {namespace}",
                "change its `namespaceSelector`, or the labels of the namespace",
            )

    def _options(self) -> QueueOptions:
        """Return the flavors of the ClusterQueue."""
        found = self._queues.state.queues.get(self.cluster_queue)
        options = None if found is None else found.options
        if options is None or options.missing:
            flavors = ", ".join(() if options is None else options.missing)
            raise _LeftError(
                f"ClusterQueue {self.cluster_queue} is inactive: ResourceFlavors {flavors} don't"
                " exist",
                "create them",
            )
        spec = options.spec
        checks = (*spec.missing_checks, *spec.inactive_checks)
        if checks or spec.clashes:
            why = f"AdmissionChecks {', '.join(checks)}" if checks else spec.clashes[0][1]
            raise _LeftError(f"ClusterQueue {self.cluster_queue} is inactive: {why}")
        if spec.elsewhere:
            raise _LeftError(
                f"jobs of ClusterQueue {self.cluster_queue} run in other clusters (MultiKueue)"
            )
        return options

    def _existing(self, name: str) -> Workload | None:
        """Return the Workload that an earlier import has made; it has the name for the job."""
        for workload in self._queues.owned.get(self._candidate.metadata.uid, ()):
            if workload.metadata.name != name:
                raise _LeftError(
                    f"it has a Workload already, {workload.metadata.name}",
                    "delete that Workload if it is not needed",
                )
            if condition_true(workload.status.conditions, EVICTED):
                raise _LeftError(f"its Workload {workload.metadata.name} was evicted")
            if workload.spec.queue_name != self._candidate.queue:
                raise _LeftError(
                    f"its Workload {workload.metadata.name} is in LocalQueue"
                    f" `{workload.spec.queue_name}`",
                    "delete that Workload, or change the rule",
                )
            return workload
        return None

    def _chosen(
        self, options: QueueOptions, requests: Requests, *, over: bool
    ) -> tuple[ReservedQuota, str]:
        """Return the flavors, by nodes and quota; and what exceeds the quota, if that may be."""
        charges: Counter[int] = Counter()
        assigned: dict[str, PodSetFlavors] = {}
        missing = ""
        for group in requests.groups:
            if group.uncovered:
                raise _LeftError(
                    f"ClusterQueue {self.cluster_queue} has no quota for `{group.uncovered}`",
                    "add it to the ClusterQueue, or leave it out of quota by"
                    " `resources.excludeResourcePrefixes` of the controller's Configuration",
                )
            taken: list[FlavorOption] = []
            for search in group.searches:
                suitable = self._suitable(search, group)
                fitting = next((o for o in suitable if self._fits(charges, o)), None)
                if fitting is None:
                    missing = missing or self._missing(charges, suitable[0])
                    if not over:
                        raise _LeftError(missing, "raise its quota, or use --over-quota")
                    fitting = suitable[0]
                self._check_topology(options, fitting)
                charges.update(fitting.charges)
                taken.append(fitting)
            assigned |= {each.name: each.assignment(tuple(taken)) for each in group.pod_sets}
        order = [each for group in requests.groups for each in group.pod_sets]
        return (
            ReservedQuota(self.cluster_queue, tuple(assigned[each.name] for each in order)),
            missing,
        )

    def _suitable(self, search: Iterable[FlavorOption], group: GroupRequests) -> list[FlavorOption]:
        """Return the flavors that the nodes of the pods have, in the order of the queue."""
        nodes = self._nodes([each.name for each in group.pod_sets])
        known = {name: self._queues.nodes[name] for name in nodes if name in self._queues.nodes}
        flavors, found, why = self._queues.state.flavors, [], ""
        for option in search:
            labels = flavors[option.name].labels.items()
            other = next((n for n, has in known.items() if not labels <= has.items()), "")
            if not (other or option.obstacles):
                found.append(option)
            why = why or (f"pods run on node {other}" if other else "")
        if not found:
            raise _LeftError(
                f"no flavor of ClusterQueue {self.cluster_queue} suits it"
                + (f": its {why}" if why else ": its node selector or tolerations differ"),
                "use a queue that has a flavor for these nodes",
            )
        return found

    def _nodes(self, pod_sets: Sequence[str]) -> set[str]:
        """Return the nodes of the pods of pod sets."""
        candidate = self._candidate
        sets = {each.name: each for each in _pod_sets(candidate)}
        if candidate.group is not None:
            group = candidate.group
            pods = (each for each in group.pods if len(sets) == 1 or role_of(each) in pod_sets)
            return {pod.spec.node_name for pod in pods} - {""}
        labelled = _pod_sets_by_label(self._places, sets.keys())
        found = set()
        for place in self._places:
            fitting = {
                name
                for name, each in sets.items()
                if {c.name for c in each.template.spec.containers} <= place.containers
            }
            named = fitting & _pod_set_of(place, labelled)
            if place.node and not (named or fitting).isdisjoint(pod_sets):
                found.add(place.node)
        return found

    def _fits(self, charges: Counter[int], option: FlavorOption) -> bool:
        asked = {cell: charges[cell] + amount for cell, amount in option.charges.items()}
        return self._queues.state.tree.fits(asked)

    def _missing(self, charges: Counter[int], option: FlavorOption) -> str:
        """Say what does not fit."""
        tree, parts = self._queues.state.tree, []
        for cell, amount in option.charges.items():
            resource, free = option.resource(cell), tree.available(cell) - charges[cell]
            if amount > free:
                needs, has = (format_amount(resource, n) for n in (amount, max(0, free)))
                parts.append(f"it needs {needs} {resource}, and {has} is free")
        return f"flavor {option.name} of ClusterQueue {self.cluster_queue}: {'; '.join(parts)}"

    def _check_topology(self, options: QueueOptions, option: FlavorOption) -> None:
        if option.name in options.topologies:
            raise _LeftError(
                f"flavor {option.name} places pods by a topology, where running pods have no place",
                "use a queue with a flavor that has no `topologyName`",
            )


def _pod_sets_by_label(
    places: Iterable[ImportedPodPlace], names: Collection[str]
) -> Mapping[str, set[str]]:
    """Return the names of pod sets that are values of each label of the pods of a job."""
    labelled: dict[str, set[str]] = {}
    for place in places:
        for key, value in place.labels.items():
            if value.lower() in names:
                labelled.setdefault(key, set()).add(value.lower())
    return labelled


def _pod_set_of(place: ImportedPodPlace, labelled: Mapping[str, set[str]]) -> set[str]:
    """Return the pod sets that a pod may be of, by the label that tells most of them apart.

    A JobSet may have the name of one of its replicated jobs, and all its pods have that in a label.
    """
    naming = [key for key, value in place.labels.items() if value.lower() in labelled.get(key, ())]
    most = max((len(labelled[key]) for key in naming), default=0)
    return {place.labels[key].lower() for key in naming if len(labelled[key]) == most}
