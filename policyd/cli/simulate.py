"""`policyd simulate`: what the queue would decide, in virtual time."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, TypedDict, Unpack

import click
import msgspec
from rich.cells import cell_len

from policyd.alloc.plan import Action, Admit, Evict, Preempt, Requeue
from policyd.alloc.state import State
from policyd.cli.defragmenting import plan_lines, plans_json
from policyd.cli.files import FILE
from policyd.cli.json_values import as_json, as_number
from policyd.cli.maps import Maps
from policyd.cli.progress import progress
from policyd.cli.report import count
from policyd.cli.scenario_jobs import LeftOut
from policyd.cli.scenarios import (
    scenario_arrivals,
    scenario_nodes,
    scenario_objects,
    scenario_state,
    seconds_of,
    warn_of_gates,
)
from policyd.cli.tables import Rows
from policyd.simulate.scenario import Arrival, Simulation, Step, Waits
from policyd.status.left_out import not_counted
from policyd.status.profiles import gpus_wanted
from policyd.status.queues import queue_status
from policyd.status.remedies import nearest, remedy_text
from policyd.status.what_helps import cheapest, remedies
from policyd.status.words import message_of

_NARROWEST: Final = 24
"""Columns that the names of workloads have at least."""


class _Options(TypedDict):
    """What the command line says."""

    file: str
    output: Literal["table", "json"]
    until: str
    draw: bool
    explain: bool
    defragment: int


@click.command("simulate")
@click.argument("file", type=FILE)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A line for each decision, or all cycles as JSON.",
)
@click.option("--until", default="", metavar="DURATION", help="When to stop, such as 8h.")
@click.option("--map", "draw", is_flag=True, help="Draw the nodes whenever somebody comes or goes.")
@click.option("--explain", is_flag=True, help="Say what would help those who wait.")
@click.option(
    "--defragment",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Plan at most N moves of those who run for each who still waits.",
)
def command(**options: Unpack[_Options]) -> None:
    r"""Show what the queue would decide, cycle by cycle, in virtual time.

    FILE (- for standard input) has ResourceFlavors, ClusterQueues, Cohorts, LocalQueues, and
    Workloads or jobs, and perhaps Topologies, Nodes and a Configuration, as a cluster would. A
    Workload or job says in annotations when it comes (`policyd.io/arrives-after: 10m`), how long it
    runs (`policyd.io/run-for: 2h`), and when it loses a pod and hangs
    (`policyd.io/loses-pod-after: 1h`); what may run for some time at most ends then. What is not
    simulated, such as pods without a Workload, is told.

    What would help who waits is tried: to wait for others, fewer pods, another flavor, a policy or
    limit of its queue, more quota. The cheapest is told, as JSON all of them.

    With --defragment, the fewest moves to other places are planned that let in who waits at the
    end: who moves, from where to where, and what of its run that costs. Nothing is carried out.

    \b
    Examples:
      policyd simulate scenario.yaml --explain
      policyd simulate scenario.yaml --until 8h -o json
      policyd simulate scenario.yaml --until 8h --defragment 4 --map
      kubectl get resourceflavors,clusterqueues,localqueues,workloads -A -o yaml \
        | policyd simulate -
    """
    objects = scenario_objects(options["file"])
    warn_of_gates(objects)
    until = seconds_of(options["until"]) if options["until"] else float("inf")
    left_out = LeftOut()
    arrivals = list(scenario_arrivals(objects, left_out))
    simulation = Simulation(scenario_state(objects), arrivals)
    for sentence in left_out.sentences:
        click.secho(f"warning: {sentence}", fg="yellow", err=True)
    steps = progress(simulation.steps(until=until), "simulating")
    if options["output"] == "json":
        state = simulation.state if options["explain"] else None
        told: Any = [_as_json(step, state) for step in steps]
        if options["defragment"]:
            _until(simulation, until)
            plans = plans_json(simulation.state, options["defragment"])
            told = {"steps": told, "defragmentation": plans}
        click.echo(json.dumps(told, indent=2))
        return
    maps = Maps(simulation.state, list(scenario_nodes(objects))) if options["draw"] else None
    rows = Rows([("      TIME", 10), ("CYCLE", 5), ("WORKLOAD", _widest(arrivals))], "DECISION")
    for line in _table(steps, rows, simulation.state if options["explain"] else None, maps):
        click.echo(line)
    if options["defragment"]:
        _until(simulation, until)
        for line in plan_lines(simulation.state, options["defragment"], maps):
            click.echo(line)
    for line in _left(simulation.state):
        click.echo(line, err=True)


def _until(simulation: Simulation, until: float) -> None:
    """Let it be as late as was asked for, for what depends on how long workloads have run."""
    if until < float("inf"):
        simulation.state.now = until


def _widest(arrivals: Iterable[Arrival]) -> int:
    """Return how wide the longest name of a workload is."""
    return max([_NARROWEST, *(cell_len(each.workload.key) for each in arrivals)])


def _table(
    steps: Iterable[Step], rows: Rows, state: State | None, maps: Maps | None
) -> Iterator[str]:
    """Yield a line for each decision; that somebody waits, and what helps, only if it is new."""
    told: dict[str, str] = {}
    yield from maps.changed() if maps is not None else ()
    yield rows.head
    for step in steps:
        at, number = f"{_clock(step.at):>10}", f"{step.number:>5}"
        for key in step.ended:
            end = "stopped: it has run for as long as it may" if key in step.stopped else "ended"
            yield rows.row([at, "", key], end)
        for action in step.plan.actions:
            key, decision = action.workload.key, _decision(action)
            if told.get(key) != decision or not isinstance(action, Requeue):
                yield rows.row([at, number, key], decision)
                yield from () if state is None else _help(action, rows, state)
            told[key] = decision
        for waits in step.waiting:
            yield rows.row([at, number, waits.workload.key], f"waits: {_why(waits)}")
        yield from maps.changed() if maps is not None else ()


def _why(waits: Waits) -> str:
    """Say why a workload waits that was not looked at."""
    if waits.like is not None and waits.refusal is not None:
        return f"as {waits.like.key}, which asks for the same: {message_of(waits.refusal)}"
    if waits.workload.objection is not None:
        return waits.workload.objection.message
    return f"behind {waits.before}" if waits.before else "it is not its turn"


def _help(action: Action, rows: Rows, state: State) -> Iterator[str]:
    if isinstance(action, Requeue):
        remedy = cheapest(state, action.workload, action.refusal)
        if remedy is not None:
            yield f"{rows.indent}to help it: {remedy_text(remedy)}"


def _decision(action: Action) -> str:
    match action:
        case Admit():
            flavors = sorted({f for p in action.admission.pod_sets for f in p.flavors.values()})
            where = f"{action.admission.cluster_queue} on {', '.join(flavors)}"
            got = sum(p.count for p in action.admission.pod_sets)
            wanted = sum(p.count for p in action.workload.pod_sets)
            fewer = f", {got} of {wanted} pods" if got < wanted else ""
            gpus = gpus_wanted(action.workload)
            parts = f", {gpus} GPU" if gpus.denominator > 1 else ""
            return f"admitted to {where}{', borrowing' if action.level else ''}{fewer}{parts}"
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


def _as_json(step: Step, state: State | None) -> dict[str, Any]:
    return {
        "time": step.at,
        "cycle": step.number,
        "ended": list(step.ended),
        "stopped": list(step.stopped),
        "actions": [_action_json(action, state) for action in step.plan.actions],
        "waiting": [_waiting_json(waits) for waits in step.waiting],
    }


def _waiting_json(waits: Waits) -> dict[str, Any]:
    return {
        "workload": waits.workload.key,
        "clusterQueue": waits.workload.cluster_queue,
        "like": None if waits.like is None else waits.like.key,
        "behind": waits.before or None,
        "message": _why(waits),
    }


def _action_json(action: Action, state: State | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "workload": action.workload.key,
        "clusterQueue": action.workload.cluster_queue,
    }
    if gpus := gpus_wanted(action.workload):
        told["gpus"] = as_number(gpus)
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
            told |= {"reason": refusal.reason, "message": message_of(refusal)}
            return told | {"action": "Requeue"} | _help_json(action, state)


def _help_json(action: Requeue, state: State | None) -> dict[str, Any]:
    if state is None:
        return {}
    found = remedies(state, action.workload, action.refusal)
    return {
        "nearest": _tagged(nearest(action.refusal)),
        "remedies": [_tagged(each) | {"text": remedy_text(each)} for each in found],
    }


def _tagged(value: msgspec.Struct | None) -> dict[str, Any]:
    return {} if value is None else {"kind": type(value).__name__, **as_json(value)}


def _left(state: State) -> Iterator[str]:
    for name in sorted(state.queues):
        status = queue_status(state, name)
        if not status.active:
            yield f"ClusterQueue {name}: {status.message}"
    for flavor in sorted(state.ground.nodes.trees):
        missed = not_counted(state, flavor)
        if missed:
            yield f"ResourceFlavor {flavor}: nodes not counted: {missed}"
    waiting = sum(len(queue.pending) for queue in state.queues.values())
    holding = sum(len(queue.holdings) for queue in state.queues.values())
    if waiting or holding:
        yield f"{count(waiting, 'workload')} still waiting, {holding} still running"
