"""Pod sets of workloads as the allocator sees them: their requests, and their assignments."""

from collections.abc import Mapping
from contextlib import suppress

from msgspec.structs import replace

from policyd.alloc.topology.values import CLAIMED
from policyd.alloc.workload import Objection, PodSetFlavors, QueuedPodSet
from policyd.api import kueue
from policyd.api.kueue.names import IS_GROUP_WORKLOAD
from policyd.api.pod_requests import amount
from policyd.api.pods import PodSpec, PodTemplate
from policyd.api.quantity import QuantityError
from policyd.devices.amounts import CountedLaterError
from policyd.jobs.requests import (
    InvalidRequestsError,
    RequestRules,
    UncountedDevicesError,
    as_counted,
    check_requests,
    claimed_of_node,
    part_flavors,
    prepared,
    requests_of,
    shared_devices,
    with_part,
)
from policyd.node_rules import LabelRequirement, Term
from policyd.snapshot.rules import QueueRules
from policyd.workload.conversion import tolerations
from policyd.workload.topology_values import (
    asks_for_place,
    is_single_pod,
    taken_by,
    topology_assignment,
    topology_request,
)


def pod_set_values(
    workload: kueue.Workload, given_back: Mapping[str, int], rules: RequestRules
) -> tuple[tuple[QueuedPodSet, ...], Objection | None]:
    """Convert the pod sets of a workload, and return the error in their requests.

    Args:
        workload: The workload.
        given_back: How many pods of each pod set no longer need their quota.
        rules: Other objects that change or limit the pods' requests.
    """
    pod_sets = []
    objection = None
    shared: Mapping[str, Mapping[str, int]] = {}
    try:
        check_requests(workload, rules)
        shared = shared_devices(workload, rules)
    except (CountedLaterError, InvalidRequestsError) as error:
        objection = _objection(error)
    grouped = workload.metadata.annotations.get(IS_GROUP_WORKLOAD) == "true"
    pinned = not grouped and is_single_pod(workload.metadata.owner_references)
    for index, pod_set in enumerate(workload.spec.pod_sets):
        requests: dict[str, int] = {}
        each = _adjusted(workload, pod_set, rules)
        try:
            counted = with_part(each.template, rules, pod_set.name)
            each = replace(each, template=replace(each.template, spec=counted))
            path = f"spec.podSets[{index}].template.spec"
            requests = requests_of(each.template.spec, rules, path=path, pod_set=pod_set.name)
            for resource, total in shared.get(pod_set.name, {}).items():
                requests[resource] = requests.get(resource, 0) + total
        except (CountedLaterError, InvalidRequestsError) as error:
            objection = objection or _objection(error)
        count = max(0, pod_set.count - given_back.get(pod_set.name, 0))
        value = _pod_set(each, count, requests)
        place = topology_request(
            each, count=count, requests=_taken(each.template.spec, rules), pinned=pinned
        )
        limited = part_flavors(pod_set.template, rules)
        pod_sets.append(replace(value, place=place, limited=limited))
    return tuple(pod_sets), objection


def _objection(error: CountedLaterError | InvalidRequestsError) -> Objection:
    """Return why a workload cannot be considered; none waits behind one for its devices."""
    devices = isinstance(error, CountedLaterError | UncountedDevicesError)
    return Objection(
        reason="Misconfigured", message=str(error), misplaced=devices, uncounted=devices
    )


def _adjusted(workload: kueue.Workload, pod_set: kueue.PodSet, rules: RequestRules) -> kueue.PodSet:
    """Return a pod set with the requests that its pods will have once they are made."""
    spec = prepared(pod_set.template.spec, rules)
    for check in workload.status.admission_checks:
        for update in check.pod_set_updates:
            if check.state == "Ready" and update.name == pod_set.name:
                spec = replace(
                    spec,
                    node_selector={**spec.node_selector, **update.node_selector},
                    tolerations=(*spec.tolerations, *update.tolerations),
                )
    return replace(pod_set, template=replace(pod_set.template, spec=spec))


def _taken(spec: PodSpec, rules: RequestRules) -> dict[str, int]:
    """Return a pod's requests to its node; invalid quantities count as 0."""
    try:
        taken = taken_by(spec)
    except QuantityError:
        return {}
    devices, replaced = claimed_of_node(spec, rules)
    claimed = {CLAIMED + name: amount for name, amount in devices.items()}
    return {name: n for name, n in taken.items() if name not in replaced} | claimed


def _pod_set(pod_set: kueue.PodSet, count: int, requests: Mapping[str, int]) -> QueuedPodSet:
    spec, asked = pod_set.template.spec, pod_set.topology_request
    return QueuedPodSet(
        name=pod_set.name,
        count=count,
        requests=requests,
        tolerations=tolerations(spec.tolerations),
        node_selector=spec.node_selector,
        affinity=_terms(spec),
        minimum=pod_set.min_count,
        group="" if asked is None else asked.pod_set_group_name,
        placed=asks_for_place(pod_set),
    )


def _terms(spec: PodSpec) -> tuple[Term, ...]:
    node = spec.affinity.node_affinity if spec.affinity else None
    required = node.required_during_scheduling_ignored_during_execution if node else None
    if required is None:
        return ()
    return tuple(
        tuple(
            LabelRequirement(key=r.key, operator=r.operator, values=r.values)
            for r in term.match_expressions
        )
        for term in required.node_selector_terms
    )


def assignment_value(
    assignment: kueue.PodSetAssignment,
    *,
    left: int,
    template: PodTemplate | None,
    rules: RequestRules,
) -> PodSetFlavors:
    """Convert a pod set's assignment; quota is held only for its remaining pods.

    Args:
        assignment: Of a workload's status.
        left: How many pods of the pod set still need their quota.
        template: Of its pods; None if the pod set does not exist.
        rules: Other objects that change or limit the pods' requests.
    """
    count = left if assignment.count is None else assignment.count
    usage, most = {}, {}
    for resource, quantity in assignment.resource_usage.items():
        try:
            total = amount(resource, str(quantity))
        except QuantityError:
            total = 0
        usage[resource] = total // count * left if left < count else total
        most[CLAIMED + resource] = total // count if count else 0
    value = PodSetFlavors(
        name=assignment.name,
        count=min(left, count),
        flavors=assignment.flavors,
        usage=usage,
        delay=assignment.delayed_topology_request or "",
    )
    placed = assignment.topology_assignment
    if placed is None or template is None:
        return value
    spec = prepared(template.spec, rules)
    with suppress(InvalidRequestsError):  # its flavor no longer shares GPUs
        spec = as_counted(template, rules)
    # The template of a claim may be another one by now, but quota is as it was.
    taken = {name: min(n, most.get(name, n)) for name, n in _taken(spec, rules).items()}
    return replace(value, placement=topology_assignment(placed), pod_requests=taken)


def rules_of_snapshot(rules: QueueRules, namespace: str) -> RequestRules:
    """Return the rules about requests that a snapshot knows; devices of claims are unknown."""
    return RequestRules(
        limits=rules.limits.get(namespace, {}),
        overheads=rules.overheads,
        resources=rules.resources,
        namespace=namespace,
        shared_gpus=rules.shared_gpus,
    )
