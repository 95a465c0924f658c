"""`policyd simulate`: show the decisions of the queue in virtual time."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal, Unpack

import click
import msgspec
from rich.cells import cell_len

from policyd.alloc.plan import Action, Admit, Evict, Preempt, Requeue
from policyd.alloc.state import CoreState
from policyd.alloc.topology.values import HOSTNAME, Placement, TopologyNode
from policyd.alloc.workload import QueuedWorkload
from policyd.api.meta import Json
from policyd.cli.configuring import CONFIG
from policyd.cli.formats.json_values import as_json, as_number
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import count
from policyd.cli.formats.scenario_jobs import SkippedJobs
from policyd.cli.formats.scenarios import (
    scenario_arrivals,
    scenario_nodes,
    scenario_objects,
    scenario_other_teams,
    scenario_state,
    warn_of_gates,
    with_configuration,
)
from policyd.cli.formats.tables import StreamedTable
from policyd.cli.formats.times import read_duration
from policyd.cli.options import ClusterOptions, from_cluster, one_source
from policyd.cli.planning.optimum import Optimum
from policyd.cli.planning.trace_command import PLANNING, Planning, plan
from policyd.optimize.fragmentation import fragmentation, fragments_of
from policyd.optimize.moves import Moves
from policyd.simulate.defragmentation import (
    Defragmentation,
    PlannedMove,
    Where,
    carried_out,
    described,
    plan_moves,
)
from policyd.simulate.scenario import SimulatedCycle, Simulation, Waits
from policyd.simulate.topology_map import TopologyMap, scarce_resource
from policyd.standard_input import FILE
from policyd.status.excluded_nodes import not_counted
from policyd.status.messages import message_of
from policyd.status.naming import Names, Naming, OtherTeams
from policyd.status.pending_reasons import ahead_of
from policyd.status.profiles import gpus_wanted
from policyd.status.queues import inactive_queues
from policyd.status.remedies import nearest, remedy_text
from policyd.status.remedy_search import cheapest, remedies

_NARROWEST: Final = 24
"""Columns that the names of workloads have at least."""


class _Options(ClusterOptions, Planning):
    """The arguments of the command."""

    file: str | None
    config: str
    output: Literal["table", "json"]
    until: str
    draw: bool
    other_teams: OtherTeams | None
    namespace: str
    explain: bool
    defragment: int


@click.command("simulate")
@click.argument("file", type=FILE, required=False)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A line for each decision, or all cycles as JSON.",
)
@click.option("--until", default="", metavar="DURATION", help="When to stop, such as 8h or 7d.")
@click.option(
    "--map", "draw", is_flag=True, help="Draw the nodes whenever a workload starts or ends."
)
@click.option(
    "--other-teams",
    type=click.Choice(["names", "team", "hidden"]),
    help="How jobs of other namespaces are named.  [visibility.otherTeams of FILE]",
)
@click.option(
    "--namespace",
    default="",
    help="Namespace whose jobs are always named.  [in each line those of its workload's]",
)
@click.option("--explain", is_flag=True, help="Show remedies for pending workloads.")
@click.option(
    "--defragment",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Plan at most N moves of running workloads for each pending workload.",
)
@CONFIG
@from_cluster("queues, workloads and the controller's Configuration")
@PLANNING
def command(**options: Unpack[_Options]) -> None:
    r"""Simulate the decisions of the queue, cycle by cycle, in virtual time.

    FILE (- for standard input) contains ResourceFlavors, ClusterQueues, Cohorts, LocalQueues,
    and Workloads or jobs, and optionally Topologies, Nodes and a Configuration. With
    --cluster, the command reads them from the cluster and simulates from its current state; it
    does not read jobs without a Workload. --config replaces the Configuration of FILE or of the
    cluster's controller. Annotations of a
    Workload or job set its arrival (`policyd.io/arrives-after: 10m`), its run time
    (`policyd.io/run-for: 2h`), and when it loses a pod and hangs (`policyd.io/loses-pod-after:
    1h`); a maximum execution time is enforced. The output lists objects that are not
    simulated, such as pods without a Workload.

    For each pending workload, the command tries remedies: waiting for others, fewer pods,
    another flavor, a policy or limit of its queue, more quota. It shows the cheapest one; JSON
    output has all of them.

    With --trace, the jobs of a trace are submitted to the queues of FILE, or of a cluster that
    --gpus or --nodes makes: a ClusterQueue for each queue of the trace, in one Cohort, with a
    quota in proportion to the GPU time of its jobs. The cluster is empty at first, and each
    job runs as long as it did in the trace. A trace is a table of jobs (CSV, `sacct -X -P`, or
    the Standard Workload Format, whose processors are read as GPUs), or a dump of a cluster's
    jobs and Workloads. The output shows utilization, waits by size and team, and lost work.

    With --sweep, the command simulates a trace under every combination of the plans, policies,
    loads and seeds of a file.

    With --defragment, the command plans the fewest moves that let the pending workloads at the
    end start: which workloads move, from where to where, and how much of their run is lost. It
    carries out no move.

    \b
    Examples:
      policyd simulate scenario.yaml --explain
      policyd simulate scenario.yaml --until 8h -o json
      policyd simulate scenario.yaml --until 8h --defragment 4 --map
      policyd simulate --cluster --explain
      policyd simulate --trace jobs.csv --nodes 90x8 --span 7d --failures 30d/4h
      policyd simulate queues.yaml --trace jobs.csv --load 1.1 -o json
      policyd simulate --trace jobs.csv --sweep sweep.yaml
      kubectl get resourceflavors,clusterqueues,localqueues,workloads -A -o yaml \
        | policyd simulate -
    """
    if options["trace"] is not None or options["sweep"] is not None:
        if options["cluster"]:
            raise click.UsageError("--trace and --cluster cannot be used together")
        if options["config"]:
            raise click.UsageError("--trace takes the Configuration from FILE, not from --config")
        plan(options["file"], options, until=options["until"], output=options["output"])
        return
    _show(_objects(options), options)


def _show(objects: list[dict[str, Json]], options: _Options) -> None:
    """Show the decisions about the workloads of a file or a cluster."""
    warn_of_gates(objects)
    until = read_duration(options["until"]) if options["until"] else float("inf")
    names = Names(
        others=options["other_teams"] or scenario_other_teams(objects), reader=options["namespace"]
    )
    left_out = SkippedJobs(names)
    arrivals = list(scenario_arrivals(objects, left_out))
    optimum = Optimum(options["optimum"]) if options["optimum"] else None
    simulation = Simulation(scenario_state(objects, arrivals), arrivals)
    for sentence in left_out.sentences:
        click.secho(f"warning: {sentence}", fg="yellow", err=True)
    steps = progress(simulation.steps(until=until), "simulating")
    after = _After(simulation, names, until, options, optimum)
    if options["output"] == "json":
        state = simulation.state if options["explain"] else None
        reports = [_as_json(step, names, state) for step in steps]
        click.echo(json.dumps(after.as_json(reports), indent=2))
        return
    nodes = list(scenario_nodes(objects))
    maps = TopologyMaps(simulation.state, nodes, names) if options["draw"] else None
    widest = max([_NARROWEST, *(cell_len(names.of(each.workload.key)) for each in arrivals)])
    rows = StreamedTable([("      TIME", 10), ("CYCLE", 5), ("WORKLOAD", widest)], "DECISION")
    table = _Table(rows, names, simulation.state if options["explain"] else None, maps)
    for line in chain(table.lines(steps), after.lines(maps)):
        click.echo(line)
    for line in _left(simulation.state):
        click.echo(line, err=True)


def _objects(options: _Options) -> list[dict[str, Json]]:
    one_source(options, options["file"], "FILE", others="--trace")
    if options["file"]:
        return with_configuration(scenario_objects(options["file"]), options["config"])
    # Imported only where a cluster is read: it takes as long as a small command.
    from policyd.cli.planning.cluster_scenario import cluster_scenario  # noqa: PLC0415

    configured = with_configuration([], options["config"])
    return cluster_scenario(options, nodes=options["draw"], configured=configured)


class TopologyMaps:
    """The maps of all topologies of a state; those of flavors with the same levels are one."""

    def __init__(self, state: CoreState, nodes: list[TopologyNode], names: Names) -> None:
        self._state = state
        self._nodes = nodes
        self._resource = resource = scarce_resource(nodes)
        self._maps = {
            flavor.levels: TopologyMap(flavor.levels, nodes, resource=resource, name=names.of)
            for flavor in state.flavors.values()
            if flavor.levels
        }
        self._drawn: dict[str, tuple[Placement, ...]] | None = None

    def changed(self) -> Iterator[str]:
        """Yield the lines of all maps, if placements changed since they were drawn last."""
        held = dict(self._state.ledger.nodes.held)
        if held == self._drawn:
            return
        self._drawn = held
        others = self._state.ledger.nodes.taken
        for levels, each in self._maps.items():
            mine = {key: _of(levels, placements) for key, placements in held.items()}
            yield from each.draw({key: found for key, found in mine.items() if found}, others)
            yield from self._pieces(levels)

    def _pieces(self, levels: tuple[str, ...]) -> Iterator[str]:
        """Yield where free devices are in pieces, if any are."""
        free = fragments = 0
        where: Counter[str] = Counter()
        for tree in self._state.ledger.nodes.trees.values():
            if tree.levels != levels or "/" not in self._resource:
                continue
            found = fragmentation(tree, self._resource)
            free, fragments = free + found.free, fragments + found.fragments
            inside = fragments_of(tree, self._resource)
            racks = tree.at[max(0, len(levels) - 2)]
            where.update({"/".join(tree.values[d]): inside[d] for d in racks if inside[d]})
        if fragments:
            named = ", ".join(f"{name} {count}" for name, count in sorted(where.items()))
            yield f"in pieces: {fragments} of {free} free {self._resource}: {named}"


def _of(levels: tuple[str, ...], placements: tuple[Placement, ...]) -> tuple[Placement, ...]:
    """Return those of the placements that a map of these levels shows."""
    shown = (HOSTNAME,) if levels[-1] == HOSTNAME else levels
    return tuple(each for each in placements if each.assignment.levels == shown)


@dataclass(frozen=True, slots=True)
class _After:
    """What is worked out of the state at the end, if it was asked for.

    Attributes:
        simulation: At its end.
        names: The names of workloads.
        until: When it was to stop, in seconds.
        options: What was asked for.
        optimum: Certifies the packing; None not to.
    """

    simulation: Simulation
    names: Names
    until: float
    options: _Options
    optimum: Optimum | None

    def lines(self, maps: TopologyMaps | None) -> Iterator[str]:
        """Yield it for people."""
        state, most = self.simulation.state, self.options["defragment"]
        if most:
            _until(self.simulation, self.until)
            yield from plan_lines(state, most, self.names, maps)
        if self.optimum is not None:
            yield self.optimum.certify(state, self.options["resource"]).sentence

    def as_json(self, steps: list[dict[str, Any]]) -> list[dict[str, Any]] | dict[str, Any]:
        """Return the steps, and beside them what was worked out."""
        state, most = self.simulation.state, self.options["defragment"]
        report: dict[str, Any] = {}
        if most:
            _until(self.simulation, self.until)
            report["defragmentation"] = plans_json(state, most, self.names)
        if self.optimum is not None:
            report["packing"] = self.optimum.certify(state, self.options["resource"]).as_json()
        return {"steps": steps, **report} if report else steps


def _until(simulation: Simulation, until: float) -> None:
    """Let it be as late as was asked for, for what depends on how long workloads have run."""
    if until < float("inf"):
        simulation.state.now = until


@dataclass(frozen=True, slots=True)
class _Table:
    """A line for each decision; pending workloads and their remedies only if they are new.

    Attributes:
        rows: How a line is laid out.
        names: The names of workloads.
        state: To find remedies; None to omit them.
        maps: To draw with; None not to.
    """

    rows: StreamedTable
    names: Names
    state: CoreState | None
    maps: TopologyMaps | None

    def lines(self, steps: Iterable[SimulatedCycle]) -> Iterator[str]:
        """Yield all lines."""
        reported: dict[str, str] = {}
        yield from self._changed()
        yield self.rows.head
        for step in steps:
            at, number = f"{_clock(step.at):>10}", f"{step.number:>5}"
            for key in step.ended:
                end = (
                    "stopped: it has run for as long as it may" if key in step.stopped else "ended"
                )
                yield self.rows.row([at, "", self.names.of(key)], end)
            for action in step.plan.actions:
                key, decision = action.workload.key, _decision(action, self.names)
                if reported.get(key) != decision or not isinstance(action, Requeue):
                    yield self.rows.row([at, number, self.names.of(key)], decision)
                    yield from self._help(action)
                reported[key] = decision
            for waits in step.waiting:
                name = self.names.of(waits.workload.key)
                yield self.rows.row([at, number, name], f"waits: {_why(waits, self.names)}")
            yield from self._changed()

    def _changed(self) -> Iterator[str]:
        return self.maps.changed() if self.maps is not None else iter(())

    def _help(self, action: Action) -> Iterator[str]:
        if isinstance(action, Requeue) and self.state is not None:
            ahead = ahead_of(self.state, action.workload)
            remedy = cheapest(self.state, action.workload, action.refusal, ahead)
            if remedy is not None:
                text = remedy_text(remedy, self.names.to(action.workload.key))
                yield f"{self.rows.indent}to help it: {text}"


def _why(waits: Waits, names: Names) -> str:
    """Say why a workload waits that was not looked at."""
    naming = names.to(waits.workload.key)
    if waits.like is not None and waits.refusal is not None:
        reason = message_of(waits.refusal, naming)
        return f"as {naming.one(waits.like.key)}, which asks for the same: {reason}"
    if waits.workload.objection is not None:
        return waits.workload.objection.message
    return f"behind {naming.one(waits.before)}" if waits.before else "it is not its turn"


def _decision(action: Action, names: Names) -> str:
    naming = names.to(action.workload.key)
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
            return f"preempted for {naming.one(action.preemptor.key)} ({action.reason})"
        case Evict(reason="FlavorMigration"):
            return "evicted: another variant with a better flavor takes its place"
        case Evict():
            return f"evicted: it ran short of pods since {_clock(action.since)} ({action.reason})"
        case Requeue():
            return f"waits: {message_of(action.refusal, naming)}"


def _clock(seconds: float) -> str:
    """Write a time of the scenario: `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def _as_json(step: SimulatedCycle, names: Names, state: CoreState | None) -> dict[str, Any]:
    return {
        "time": step.at,
        "cycle": step.number,
        "ended": list(map(names.of, step.ended)),
        "stopped": list(map(names.of, step.stopped)),
        "actions": [_action_json(action, names, state) for action in step.plan.actions],
        "waiting": [_waiting_json(waits, names) for waits in step.waiting],
    }


def _waiting_json(waits: Waits, names: Names) -> dict[str, Any]:
    naming = names.to(waits.workload.key)
    return {
        "workload": naming.one(waits.workload.key),
        "clusterQueue": waits.workload.cluster_queue,
        "like": None if waits.like is None else naming.one(waits.like.key),
        "behind": naming.one(waits.before) if waits.before else None,
        "message": _why(waits, names),
    }


def _action_json(action: Action, names: Names, state: CoreState | None) -> dict[str, Any]:
    naming = names.to(action.workload.key)
    report: dict[str, Any] = {
        "workload": naming.one(action.workload.key),
        "clusterQueue": action.workload.cluster_queue,
    }
    if gpus := gpus_wanted(action.workload):
        report["gpus"] = as_number(gpus)
    match action:
        case Admit():
            flavors = {p.name: dict(p.flavors) for p in action.admission.pod_sets}
            counts = {p.name: p.count for p in action.admission.pod_sets}
            level = action.level
            return report | {
                "action": "Admit",
                "flavors": flavors,
                "counts": counts,
                "borrowing": level,
            }
        case Preempt():
            preemptor = naming.one(action.preemptor.key)
            return report | {"action": "Preempt", "reason": action.reason, "preemptor": preemptor}
        case Evict():
            return report | {"action": "Evict", "reason": action.reason, "since": action.since}
        case Requeue():
            refusal = action.refusal
            report |= {"reason": refusal.reason, "message": message_of(refusal, naming)}
            return report | {"action": "Requeue"} | _help_json(action, naming, state)


def _help_json(action: Requeue, naming: Naming, state: CoreState | None) -> dict[str, Any]:
    if state is None:
        return {}
    ahead = ahead_of(state, action.workload)
    found = remedies(state, action.workload, action.refusal, ahead)
    return {
        "nearest": _tagged(nearest(action.refusal), naming),
        "remedies": [_tagged(each, naming) | {"text": remedy_text(each, naming)} for each in found],
    }


def _tagged(value: msgspec.Struct | None, naming: Naming) -> dict[str, Any]:
    return {} if value is None else {"kind": type(value).__name__, **as_json(value, naming)}


def _left(state: CoreState) -> Iterator[str]:
    yield from inactive_queues(state)
    for flavor in sorted(state.ledger.nodes.trees):
        missed = not_counted(state, flavor)
        if missed:
            yield f"ResourceFlavor {flavor}: nodes not counted: {missed}"
    waiting = sum(len(queue.pending) for queue in state.queues.values())
    holding = sum(len(queue.holdings) for queue in state.queues.values())
    if waiting or holding:
        yield f"{count(waiting, 'workload')} still waiting, {holding} still running"


_HOUR = 3600


def plan_lines(
    state: CoreState, most: int, names: Names, maps: TopologyMaps | None
) -> Iterator[str]:
    """Yield a plan for each workload that waits, with the map of what would be if there are maps.

    Args:
        state: Left as it was.
        most: How many moves a plan has at most.
        names: The names of workloads.
        maps: To draw with; None not to.
    """
    for workload, moves in _plans(state, most):
        if moves is None:
            yield f"{names.of(workload.key)}: no plan of at most {count(most, 'move')} starts it"
            continue
        yield from _describe_plan(described(state, moves), names.to(workload.key))
        with carried_out(state, moves):
            yield from maps.changed() if maps is not None else ()


def plans_json(state: CoreState, most: int, names: Names) -> list[dict[str, Any]]:
    """Return the plan for each workload that waits; without moves if none would let it in."""
    return [
        {"workload": names.of(workload.key), "moves": None}
        if moves is None
        else {
            **as_json(plan := described(state, moves), names.to(workload.key)),
            "cost": plan.cost,
        }
        for workload, moves in _plans(state, most)
    ]


def _plans(state: CoreState, most: int) -> Iterator[tuple[QueuedWorkload, Moves | None]]:
    waiting = (
        ticket.workload for name in sorted(state.queues) for ticket in state.queues[name].pending
    )
    found = sorted(waiting, key=lambda each: (-each.priority, each.queued_at, each.key))
    for workload in progress(found, "planning", len(found)):
        yield workload, plan_moves(state, workload, most=most)


def _describe_plan(plan: Defragmentation, naming: Naming) -> Iterator[str]:
    name = naming.one(plan.workload)
    doubt = "" if plan.fewest else "; fewer may suffice"
    costs = f"{plan.cost / _HOUR:.1f} device-hours of work lost"
    yield f"{name}: {count(len(plan.moves), 'move')} would start it, {costs}{doubt}"
    for move in plan.moves:
        where = f"{_written(move.source)} -> {_written(move.target)}"
        yield f"  move {naming.one(move.workload)}: {where}{_lost(move)}"
    yield f"  start {name}: {_written(plan.target)}"


def _lost(move: PlannedMove) -> str:
    minutes = round(move.lost_seconds / 60)
    return f" ({count(move.pods, 'pod')}, {minutes}m lost: {move.cost / _HOUR:.1f} device-hours)"


def _written(where: Where) -> str:
    return ", ".join(f"{name} {pods}" for name, pods in where.items())
