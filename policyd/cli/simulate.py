"""`policyd simulate`: what the queue would decide, in virtual time."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack

import click
import msgspec
import yaml

from policyd.alloc.flavor import FlavorSpec
from policyd.alloc.plan import Action, Admit, Evict, Preempt, Requeue
from policyd.alloc.queue import CohortSpec, QueueSpec
from policyd.alloc.settings import DEFAULTS, Settings
from policyd.alloc.state import State
from policyd.api import kueue
from policyd.api.configuration import decode_configuration
from policyd.api.configuration.left_out import gates_in_vain
from policyd.api.meta import Json
from policyd.cel import CelError
from policyd.cel.lib.time import parse_duration
from policyd.cli.files import content
from policyd.cli.report import count
from policyd.controller.conversion import cohort_spec, flavor_spec, queue_spec, weight_of
from policyd.controller.queue_settings import queue_settings
from policyd.controller.workload_values import Circumstances, workload_value
from policyd.errors import PolicydError
from policyd.local.kubelet import RUN_FOR
from policyd.simulate.scenario import Arrival, Simulation, Step
from policyd.status.queues import queue_status
from policyd.status.words import message_of

ARRIVES_AFTER = "policyd.io/arrives-after"
"""When a workload comes, after the beginning: `90s`, `1h30m`; at once if it does not say."""

LOSES_POD_AFTER = "policyd.io/loses-pod-after"
"""How long a workload runs, the first time, until one of its pods is lost; it then hangs."""

T = TypeVar("T")


class ScenarioError(PolicydError):
    """A scenario cannot be read."""


class _Options(TypedDict):
    """What the command line says."""

    file: Path
    output: Literal["table", "json"]
    until: str


@click.command("simulate")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A line for each decision, or all cycles as JSON.",
)
@click.option("--until", default="", metavar="DURATION", help="When to stop, such as 8h.")
def command(**options: Unpack[_Options]) -> None:
    r"""Show what the queue would decide, cycle by cycle, in virtual time.

    FILE has ResourceFlavors, ClusterQueues, Cohorts, LocalQueues and Workloads, and perhaps a
    Configuration, as a cluster would. A Workload says in annotations when it comes
    (`policyd.io/arrives-after: 10m`) and how long it runs (`policyd.io/run-for: 2h`).

    \b
    Examples:
      policyd simulate scenario.yaml
      policyd simulate scenario.yaml --until 8h -o json
    """
    try:
        _simulate(**options)
    except PolicydError as error:
        click.secho(f"error: {error}", fg="red", err=True)
        if error.hint:
            click.secho(f"hint: {error.hint}", fg="cyan", err=True)
        sys.exit(2)


def _simulate(**options: Unpack[_Options]) -> None:
    objects = list(_objects(options["file"]))
    _warn(objects)
    until = _seconds(options["until"]) if options["until"] else float("inf")
    simulation = Simulation(_state(objects), list(_arrivals(objects)))
    steps = simulation.steps(until=until)
    if options["output"] == "json":
        click.echo(json.dumps([_as_json(step) for step in steps], indent=2))
        return
    for line in _table(steps):
        click.echo(line)
    for line in _left(simulation.state):
        click.echo(line, err=True)


# What is in the file.


def _objects(file: Path) -> Iterator[dict[str, Json]]:
    try:
        documents = list(yaml.safe_load_all(content(file)))
    except yaml.YAMLError as error:
        raise ScenarioError(f"{file} is not YAML: {error}") from error
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            raise ScenarioError(f"{file} has something in it that is no Kubernetes object")
        yield document


def _read(objects: Iterable[Mapping[str, Json]], into: type[T], kind: str) -> Iterator[T]:
    for each in objects:
        if each["kind"] == kind:
            name = (each.get("metadata") or {}).get("name", "")
            try:
                yield msgspec.convert(each, into)
            except msgspec.ValidationError as error:
                raise ScenarioError(f"{kind} `{name}`: {error}") from error


def _state(objects: list[dict[str, Json]]) -> State:
    state = State(_settings(objects))
    flavors: list[FlavorSpec] = [
        flavor_spec(each) for each in _read(objects, kueue.ResourceFlavor, "ResourceFlavor")
    ]
    cohorts: list[CohortSpec] = [
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
    for cohort in cohorts:
        state.put_cohort(cohort)
    for queue in queues:
        state.put_queue(queue)
    for each in _read(objects, kueue.LocalQueue, "LocalQueue"):
        state.local_weights[each.metadata.key] = weight_of(each.spec.fair_sharing)
    return state


def _settings(objects: Iterable[Mapping[str, Json]]) -> Settings:
    for each in objects:
        if each["kind"] == "Configuration":
            return queue_settings(decode_configuration(each))
    return DEFAULTS


def _warn(objects: Iterable[Mapping[str, Json]]) -> None:
    """Say which feature gates a Configuration sets in vain."""
    for each in objects:
        if each["kind"] == "Configuration":
            for sentence in gates_in_vain("", decode_configuration(each).feature_gates):
                click.secho(f"warning: {sentence}", fg="yellow", err=True)


def _arrivals(objects: list[dict[str, Json]]) -> Iterator[Arrival]:
    local_queues = {
        each.metadata.key: each.spec.cluster_queue
        for each in _read(objects, kueue.LocalQueue, "LocalQueue")
    }
    circumstances = Circumstances(now=0.0, settings=_settings(objects))
    for workload in _read(objects, kueue.Workload, "Workload"):
        metadata = workload.metadata
        key = f"{metadata.namespace}/{workload.spec.queue_name}"
        if key not in local_queues:
            known = ", ".join(sorted(local_queues)) or "none"
            raise ScenarioError(
                f"Workload `{metadata.key}` names LocalQueue `{key}`, which is not there",
                hint=f"known: {known}",
            )
        value = workload_value(workload, circumstances, cluster_queue=local_queues[key])
        stamped = msgspec.structs.replace(value, uid=value.uid or value.key)
        said = metadata.annotations
        run_for, loses = said.get(RUN_FOR), said.get(LOSES_POD_AFTER)
        yield Arrival(
            workload=stamped,
            at=_seconds(said.get(ARRIVES_AFTER, "0s")),
            run_seconds=None if run_for is None else _seconds(run_for),
            loses_pod_seconds=None if loses is None else _seconds(loses),
        )


def _seconds(text: str) -> float:
    try:
        return parse_duration(text).nanoseconds / 1e9
    except CelError as error:
        raise ScenarioError(f"`{text}` is no duration", hint="such as 90s or 1h30m") from error


# What is shown.


def _table(steps: Iterable[Step]) -> Iterator[str]:
    """Yield a line for each decision; that somebody waits, only when the reason is new."""
    told: dict[str, str] = {}
    yield f"{'TIME':>10}  {'CYCLE':>5}  {'WORKLOAD':<24}  DECISION"
    for step in steps:
        for key in step.ended:
            yield f"{_clock(step.at):>10}  {'':>5}  {key:<24}  ended"
        for action in step.plan.actions:
            key, decision = action.workload.key, _decision(action)
            if told.get(key) != decision or not isinstance(action, Requeue):
                yield f"{_clock(step.at):>10}  {step.number:>5}  {key:<24}  {decision}"
            told[key] = decision


def _decision(action: Action) -> str:
    match action:
        case Admit():
            flavors = sorted({f for p in action.admission.pod_sets for f in p.flavors.values()})
            where = f"{action.admission.cluster_queue} on {', '.join(flavors)}"
            got = sum(p.count for p in action.admission.pod_sets)
            wanted = sum(p.count for p in action.workload.pod_sets)
            fewer = f", {got} of {wanted} pods" if got < wanted else ""
            return f"admitted to {where}{', borrowing' if action.level else ''}{fewer}"
        case Preempt():
            return f"preempted for {action.preemptor.key} ({action.reason})"
        case Evict():
            return f"evicted: it ran short of pods since {_clock(action.since)} ({action.reason})"
        case Requeue():
            return f"waits: {message_of(action.refusal)}"


def _clock(seconds: float) -> str:
    """Write a time of the scenario: `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def _as_json(step: Step) -> dict[str, Any]:
    return {
        "time": step.at,
        "cycle": step.number,
        "ended": list(step.ended),
        "actions": [_action_json(action) for action in step.plan.actions],
    }


def _action_json(action: Action) -> dict[str, Any]:
    told = {"workload": action.workload.key, "clusterQueue": action.workload.cluster_queue}
    match action:
        case Admit():
            flavors = {p.name: dict(p.flavors) for p in action.admission.pod_sets}
            counts = {p.name: p.count for p in action.admission.pod_sets}
            level = action.level
            return told | {
                "action": "Admit",
                "flavors": flavors,
                "counts": counts,
                "borrowing": level,
            }
        case Preempt():
            preemptor = action.preemptor.key
            return told | {"action": "Preempt", "reason": action.reason, "preemptor": preemptor}
        case Evict():
            return told | {"action": "Evict", "reason": action.reason, "since": action.since}
        case Requeue():
            refusal = action.refusal
            return told | {
                "action": "Requeue",
                "reason": refusal.reason,
                "message": message_of(refusal),
            }


def _left(state: State) -> Iterator[str]:
    for name in sorted(state.queues):
        status = queue_status(state, name)
        if not status.active:
            yield f"ClusterQueue {name}: {status.message}"
    waiting = sum(len(queue.pending) for queue in state.queues.values())
    holding = sum(len(queue.holdings) for queue in state.queues.values())
    if waiting or holding:
        yield f"{count(waiting, 'workload')} still waiting, {holding} still running"
