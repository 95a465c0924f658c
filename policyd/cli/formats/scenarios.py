"""The contents of a scenario file: the queues, the nodes, and the arrivals of workloads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from policyd.alloc.queue import CohortQuotas, FlavorSpec, QueueSpec
from policyd.alloc.settings import DEFAULTS, Gates, QueueingSettings
from policyd.alloc.state import CoreState
from policyd.alloc.topology.values import TopologyNode
from policyd.alloc.workload import QueuedWorkload
from policyd.api import kueue
from policyd.api.configuration import decode_configuration
from policyd.api.configuration.duration import DurationError, duration_seconds
from policyd.api.configuration.fixed_gates import ineffective_gates
from policyd.api.configuration.kinds import Configuration, ResourcesConfiguration
from policyd.api.kueue.names import ADMITTED, FINISHED
from policyd.api.kueue.v1beta1 import KINDS, UnconvertibleError, is_known_version, upgraded
from policyd.api.meta import Json, condition_true, find_condition
from policyd.api.names import RUN_FOR
from policyd.api.nodes import Node
from policyd.cel import CelError
from policyd.cel.lib.time import parse_duration
from policyd.cli.formats.documents import read_objects
from policyd.cli.formats.fields import mistyped_fields
from policyd.cli.formats.scenario_jobs import SkippedJobs, job_workloads
from policyd.controller.queues.queue_settings import other_teams, queue_settings
from policyd.controller.watch.claimed_devices import (
    DeviceObjects,
    counts_devices,
    device_counter,
    limit_placements,
)
from policyd.controller.watch.workload_values import WorkloadContext, workload_value
from policyd.devices.mappings import DeviceMappings
from policyd.devices.objects import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from policyd.devices.on_nodes import DeviceOffer, device_offer
from policyd.engine.documents.reading import Document
from policyd.engine.objects.workloads import value_at
from policyd.errors import PolicydError, did_you_mean
from policyd.jobs.base import controller_of
from policyd.jobs.copied import EXPECTED_RUN_TIME
from policyd.jobs.pods import QueuedPod
from policyd.jobs.requests import RequestRules
from policyd.optimize.optimizer import Optimizer
from policyd.simulate.scenario import Arrival
from policyd.status.naming import OtherTeams
from policyd.workload.conversion import (
    cohort_spec,
    flavor_spec,
    queue_spec,
    sharing_flavors,
    weight_of,
)
from policyd.workload.topology_values import node_spec, put_pod

if TYPE_CHECKING:
    from policyd.devices.counting import DeviceCounter

ARRIVES_AFTER = "policyd.io/arrives-after"
"""When a workload comes, after the beginning: `90s`, `1h30m`; at once if it does not say."""

LOSES_POD_AFTER = "policyd.io/loses-pod-after"
"""How long a workload runs, the first time, until one of its pods is lost; it then hangs."""

T = TypeVar("T")


class ScenarioError(PolicydError):
    """A scenario cannot be read."""


def scenario_objects(file: str) -> list[dict[str, Json]]:
    """Return the objects of a file, those of Kueue as v1beta2 has them.

    Raises:
        ScenarioError: If something in it is none, or has fields that its kind does not have.
    """
    documents, findings = read_objects([file])
    for finding in findings:
        raise ScenarioError(str(finding), hint=finding.hint)
    return [_object(document) for document in documents]


def with_configuration(objects: Sequence[dict[str, Json]], file: str) -> list[dict[str, Json]]:
    """Return objects with the Configuration of a file in place of their own; as they are, if "".

    Raises:
        ScenarioError: If the file has an object that is none.
    """
    if not file:
        return list(objects)
    return [*(each for each in objects if each["kind"] != "Configuration"), *scenario_objects(file)]


def _object(document: Document) -> dict[str, Json]:
    value = document.value
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        message = "not a Kubernetes object: `kind` is missing"
        raise ScenarioError(str(document.finding(message)))
    if value["kind"] in KINDS and not is_known_version(value):
        message = f"version `{value['apiVersion']}` of `{value['kind']}` cannot be read"
        raise ScenarioError(str(document.finding(message)))
    try:
        found: dict[str, Json] = upgraded(value)
    except UnconvertibleError as error:
        raise ScenarioError(str(document.finding(str(error)))) from error
    # What a cluster has stored may be of a later version: only what a person wrote is a mistake.
    if not value_at(value, ("metadata", "uid")):
        for field in mistyped_fields(found):
            message = str(document.finding(field.sentence(found["kind"]), field.path, of_key=True))
            raise ScenarioError(message, hint=field.hint)
    return found


def _read(objects: Iterable[Mapping[str, Json]], into: type[T], kind: str) -> Iterator[T]:
    for each in objects:
        if each["kind"] == kind:
            metadata = each.get("metadata")
            name = metadata.get("name", "") if isinstance(metadata, dict) else ""
            try:
                yield msgspec.convert(each, into)
            except msgspec.ValidationError as error:
                raise ScenarioError(f"{kind} `{name}`: {error}") from error


def scenario_state(objects: list[dict[str, Json]], arrivals: Iterable[Arrival] = ()) -> CoreState:
    """Return the queues, the flavors and the nodes, without workloads.

    Args:
        objects: All objects of the scenario.
        arrivals: The workloads that come: devices of those that run already are not taken twice.
    """
    state = CoreState(_settings(objects), Optimizer)
    topologies = {t.metadata.name: t for t in _read(objects, kueue.Topology, "Topology")}
    flavors: list[FlavorSpec] = [
        flavor_spec(each, topologies.get(each.spec.topology_name))
        for each in _read(objects, kueue.ResourceFlavor, "ResourceFlavor")
    ]
    cohorts: list[CohortQuotas] = [
        cohort_spec(each) for each in _read(objects, kueue.Cohort, "Cohort")
    ]
    checks = {
        each.metadata.name: each for each in _read(objects, kueue.AdmissionCheck, "AdmissionCheck")
    }
    queues: list[QueueSpec] = [
        queue_spec(each, checks) for each in _read(objects, kueue.ClusterQueue, "ClusterQueue")
    ]
    if not queues:
        raise ScenarioError("the scenario has no ClusterQueue", hint="see `policyd simulate -h`")
    for flavor in flavors:
        state.put_flavor(flavor)
    for node in scenario_nodes(objects):
        state.ledger.nodes.put(node)
    for pod in _read(objects, QueuedPod, "Pod"):
        put_pod(state.ledger.nodes, pod)
    for cohort in cohorts:
        state.put_cohort(cohort)
    for queue in queues:
        state.put_queue(queue)
    for each in _read(objects, kueue.LocalQueue, "LocalQueue"):
        state.local_weights[each.metadata.key] = weight_of(each.spec.fair_sharing)
    _limit_placements(state, objects, arrivals)
    return state


def _limit_placements(
    state: CoreState, objects: Sequence[Mapping[str, Json]], arrivals: Iterable[Arrival]
) -> None:
    """Place no more pods on a node than it has devices for by their claims."""
    nodes, gates = state.ledger.nodes, state.settings.gates
    if not nodes.trees or not counts_devices(_resources(objects), gates):
        return
    pods = {
        f"{p.metadata.namespace}/{p.metadata.name}": p for p in _read(objects, QueuedPod, "Pod")
    }
    admitted = ((each.workload.key, each.workload.admission) for each in arrivals)
    held = {key: state.ledger.placements(quota) for key, quota in admitted if quota is not None}
    claims = _read(objects, ResourceClaim, "ResourceClaim")
    limit_placements(nodes, scenario_device_offer(objects).use(claims), pods.get, held)


def scenario_nodes(objects: Sequence[Mapping[str, Json]]) -> Iterator[TopologyNode]:
    """Yield the nodes."""
    fractions = bool(_resources(objects).gpu_fractions)
    for node in _read(objects, Node, "Node"):
        yield node_spec(node, fractions=fractions)


def scenario_device_offer(objects: Sequence[Mapping[str, Json]]) -> DeviceOffer:
    """Return the devices that pods get by claims."""
    return device_offer(
        [*_read(objects, ResourceSlice, "ResourceSlice")],
        [*_read(objects, DeviceClass, "DeviceClass")],
        DeviceMappings.of(_resources(objects).device_class_mappings),
    )


def scenario_workloads(objects: Iterable[Mapping[str, Json]]) -> Iterator[kueue.Workload]:
    """Yield the Workloads.

    Raises:
        ScenarioError: If one has no pod sets, which the API server asks for: without them it would
            count as one that requests nothing.
    """
    for each in _read(objects, kueue.Workload, "Workload"):
        if not each.spec.pod_sets:
            raise ScenarioError(
                f"Workload `{each.metadata.key}`: `spec.podSets` is missing",
                hint="the file may have been cut off",
            )
        yield each


def scenario_local_queues(objects: Iterable[Mapping[str, Json]]) -> dict[str, str]:
    """Return the ClusterQueue of each LocalQueue, by `namespace/name`."""
    return {
        each.metadata.key: each.spec.cluster_queue
        for each in _read(objects, kueue.LocalQueue, "LocalQueue")
    }


def _configuration(objects: Iterable[Mapping[str, Json]]) -> Configuration | None:
    found = (decode_configuration(each) for each in objects if each["kind"] == "Configuration")
    return next(found, None)


def _resources(objects: Iterable[Mapping[str, Json]]) -> ResourcesConfiguration:
    configuration = _configuration(objects)
    resources = None if configuration is None else configuration.resources
    return resources or ResourcesConfiguration()


def _settings(objects: Iterable[Mapping[str, Json]]) -> QueueingSettings:
    configuration = _configuration(objects)
    return DEFAULTS if configuration is None else queue_settings(configuration)


def scenario_other_teams(objects: Iterable[Mapping[str, Json]]) -> OtherTeams:
    """Return how far the Configuration wants jobs of other namespaces to be named."""
    configuration = _configuration(objects)
    return "names" if configuration is None else other_teams(configuration)


def _rules(objects: Sequence[Mapping[str, Json]], gates: Gates) -> RequestRules:
    resources = _resources(objects)
    flavors = _read(objects, kueue.ResourceFlavor, "ResourceFlavor")
    shared = sharing_flavors(flavors) if resources.gpu_fractions else None
    counts = counts_devices(resources, gates)
    devices = _device_counter(objects, resources, gates) if counts else None
    return RequestRules(resources=resources, shared_gpus=shared, devices=devices)


def _device_counter(
    objects: Sequence[Mapping[str, Json]], resources: ResourcesConfiguration, gates: Gates
) -> "DeviceCounter":
    """Return what counts devices of claims."""
    # Imported only here: few scenarios have claims. One that a person wrote has no defaults.
    from policyd.patch.defaults import as_sent  # noqa: PLC0415 - see above

    kinds = {"ResourceClaimTemplate", "ResourceClaim"}
    asked = [as_sent(each) for each in objects if each["kind"] in kinds]
    templates = _read(asked, ResourceClaimTemplate, "ResourceClaimTemplate")
    claims = _read(asked, ResourceClaim, "ResourceClaim")
    return device_counter(
        DeviceObjects(
            classes=_read(objects, DeviceClass, "DeviceClass"),
            templates={each.metadata.key: each for each in templates}.get,
            claims={
                each.metadata.key: each for each in claims if not controller_of(each.metadata)
            }.get,
            slices=_read(objects, ResourceSlice, "ResourceSlice"),
        ),
        resources,
        gates,
    )


def warn_of_gates(objects: Iterable[Mapping[str, Json]]) -> None:
    """Say which feature gates a Configuration sets in vain."""
    for each in objects:
        if each["kind"] == "Configuration":
            for sentence in ineffective_gates("", decode_configuration(each).feature_gates):
                click.secho(f"warning: {sentence}", fg="yellow", err=True)


def scenario_arrivals(objects: list[dict[str, Json]], left_out: SkippedJobs) -> Iterator[Arrival]:
    """Yield the workloads, with when they come and how long they run.

    Those that run already, in what was read from a cluster, have run since they got quota until the
    last that is known of any of them.

    Args:
        objects: All objects of the scenario.
        left_out: Collects the jobs that are not simulated.
    """
    local_queues = scenario_local_queues(objects)
    settings = _settings(objects)
    rules = _rules(objects, settings.gates)
    circumstances = WorkloadContext(now=0.0, settings=settings, rules=rules, movable=True)
    workloads = list(scenario_workloads(objects))
    last = max(map(_last_known, workloads), default=0.0)
    for workload in (*workloads, *job_workloads(objects, workloads, left_out)):
        metadata = workload.metadata
        if condition_true(workload.status.conditions, FINISHED):
            continue
        if not workload.spec.active and workload.status.admission is None:
            left_out.note("Workload", metadata.key, "it is deactivated (`spec.active: false`)")
            continue
        key = f"{metadata.namespace}/{workload.spec.queue_name}"
        if key not in local_queues and workload.status.admission is None:
            near = did_you_mean(key, local_queues)
            why = f"LocalQueue `{key}` not found{f', {near}' if near else ''}"
            left_out.note("Workload", metadata.key, why)
            continue
        own = circumstances.within(metadata.namespace)
        value = workload_value(workload, own, cluster_queue=local_queues.get(key, ""))
        yield _arrival(workload, value, last)


def _arrival(workload: kueue.Workload, value: QueuedWorkload, last: float) -> Arrival:
    """Return when a workload comes and how long it runs, given the last that is known of any."""
    annotations = workload.metadata.annotations
    loses = annotations.get(LOSES_POD_AFTER)
    admitted = find_condition(workload.status.conditions, ADMITTED)
    since = None if admitted is None else admitted.last_transition_time
    runs = value.admitted and since is not None
    return Arrival(
        workload=msgspec.structs.replace(
            value,
            uid=value.uid or value.key,
            reserved_at=None if value.reserved_at is None else value.reserved_at - last,
        ),
        at=seconds_of(annotations.get(ARRIVES_AFTER, "0s")),
        run_seconds=declared_seconds(workload),
        loses_pod_seconds=None if loses is None else seconds_of(loses),
        most_seconds=most_seconds(workload),
        ran_seconds=last - since.timestamp() if runs and since is not None else 0.0,
    )


def declared_seconds(workload: kueue.Workload) -> float | None:
    """Return how long a workload runs, as it or its pods declare; None if they do not."""
    texts = [workload.metadata.annotations.get(RUN_FOR)]
    texts += [each.template.metadata.annotations.get(RUN_FOR) for each in workload.spec.pod_sets]
    runs = [seconds_of(text) for text in texts if text is not None]
    if runs:
        return max(runs)
    with suppress(DurationError):  # an invalid duration counts as unset
        return duration_seconds(workload.metadata.annotations.get(EXPECTED_RUN_TIME, ""))
    return None


def most_seconds(workload: kueue.Workload) -> float | None:
    """Return how long a workload may run, less its earlier runs; None if there is no limit."""
    limit = workload.spec.maximum_execution_time_seconds
    if limit is None:
        return None
    return max(0.0, limit - (workload.status.accumulated_past_execution_time_seconds or 0.0))


def _last_known(workload: kueue.Workload) -> float:
    changes = (each.last_transition_time for each in workload.status.conditions)
    return max((each.timestamp() for each in changes if each is not None), default=0.0)


def scenario_kind(objects: Iterable[Mapping[str, Json]], into: type[T], kind: str) -> list[T]:
    """Return the objects of a kind.

    Raises:
        ScenarioError: If one of them is not as its kind has it.
    """
    return list(_read(objects, into, kind))


def scenario_context(objects: Iterable[Mapping[str, Json]], now: float) -> WorkloadContext:
    """Return what the values of workloads depend on, given seconds since the epoch."""
    objects = list(objects)
    settings = _settings(objects)
    rules = _rules(objects, settings.gates)
    return WorkloadContext(now=now, settings=settings, rules=rules, movable=True)


def seconds_of(text: str) -> float:
    """Read a duration.

    Raises:
        ScenarioError: If it is none, or negative.
    """
    try:
        seconds = parse_duration(text).nanoseconds / 1e9
    except CelError as error:
        raise ScenarioError(f"`{text}` is not a duration", hint="such as 90s or 1h30m") from error
    if seconds < 0:
        raise ScenarioError(f"`{text}` is negative", hint="such as 90s or 1h30m")
    return seconds
