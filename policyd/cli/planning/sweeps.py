"""Sweeps: the same trace under every plan of quotas, policy, load and seed that a file names.

A scenario is one of each. It is simulated by `simulated`, which takes values and returns values, so
that it does not matter in which process, on which machine, or in which order.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from policyd.api import kueue
from policyd.api.configuration import decode_configuration
from policyd.api.yaml_texts import plain_yaml
from policyd.cli.formats.fields import unknown_fields
from policyd.cli.formats.files import text_of
from policyd.cli.formats.report import count
from policyd.cli.formats.scenarios import scenario_kind, scenario_objects
from policyd.cli.formats.tables import show_table
from policyd.cli.planning.trace_simulation import Conditions, TraceSimulation
from policyd.cli.planning.trace_tables import figures_json, percent, unstarted_text, wait_text
from policyd.cli.planning.virtual_clusters import (
    ClusterSize,
    Objects,
    changed,
    made_cluster,
    size_of_nodes,
)
from policyd.engine.documents.reading import Document, each_document
from policyd.errors import PolicydError
from policyd.simulate.trace_runs import TraceFigures
from policyd.simulate.traces import TracedJob


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the file of a sweep."""


class _Plan(_Strict, frozen=True):
    """A cluster: the objects of a file, or made of GPUs or nodes."""

    file: str = ""
    gpus: int = 0
    nodes: str = ""


class _Policy(_Strict, frozen=True):
    """Merge patches to all ClusterQueues, and to the Configuration."""

    cluster_queues: dict[str, Any] = {}
    configuration: dict[str, Any] = {}


class _SweepFile(_Strict, frozen=True):
    """The file: each list is one axis of the sweep."""

    plans: dict[str, _Plan] = {}
    policies: dict[str, _Policy] = {}
    loads: list[float] = []
    seeds: list[int] = []


class Scenario(msgspec.Struct, frozen=True):
    """One point of a sweep.

    Attributes:
        plan: The name of its cluster.
        policy: The name of its policy.
        load: As in `Conditions`.
        seed: As in `Conditions`.
    """

    plan: str
    policy: str
    load: float | None
    seed: int


class Sweep(msgspec.Struct, frozen=True):
    """All scenarios, and what they share.

    Attributes:
        jobs: The trace.
        clusters: The objects of each plan and policy.
        conditions: What is the same for all.
        scenarios: The points.
    """

    jobs: list[TracedJob]
    clusters: dict[tuple[str, str], list[dict[str, Any]]]
    conditions: Conditions
    scenarios: list[Scenario]


def read_sweep(
    file: str, jobs: Sequence[TracedJob], given: Objects | None, conditions: Conditions
) -> Sweep:
    """Read the file of a sweep.

    Args:
        file: Its path; paths in it are relative to its folder.
        jobs: The trace.
        given: The cluster of the command line, if the file names none.
        conditions: Of the command line; loads and seeds of the file go first.

    Raises:
        PolicydError: If it cannot be read, or names no cluster.
    """
    name, text = text_of(file)
    try:
        read = msgspec.convert(plain_yaml(text) or {}, _SweepFile)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
        raise PolicydError(f"{name}{place}: {getattr(error, 'problem', error)}") from error
    except msgspec.ValidationError as error:
        hint = "plans, policies, loads, seeds: see docs/guides/capacity-planning.md"
        raise PolicydError(f"{name}: {error}", hint=hint) from error
    if any(load <= 0 for load in read.loads) or any(seed < 0 for seed in read.seeds):
        raise PolicydError(f"{name}: a load is more than 0, and a seed at least 0")
    plans = {plan: _cluster(settings, plan, name, jobs) for plan, settings in read.plans.items()}
    if not plans and given is None:
        raise PolicydError(f"{name}: no plan, and no cluster: FILE, --gpus or --nodes")
    plans = plans or {"given": list(given or ())}
    policies = read.policies or {"as-is": _Policy()}
    _check_fields(policies, name, text)
    patches = {
        policy: {"clusterQueues": settings.cluster_queues, "configuration": settings.configuration}
        for policy, settings in policies.items()
    }
    loads: list[float | None] = [*read.loads] or [conditions.load]
    points = product(plans, policies, loads, read.seeds or [conditions.seed])
    return Sweep(
        jobs=list(jobs),
        clusters={
            (plan, policy): _changed(objects, patch, f"{name}: plan `{plan}`, policy `{policy}`")
            for plan, objects in plans.items()
            for policy, patch in patches.items()
        },
        conditions=conditions,
        scenarios=[Scenario(*point) for point in points],
    )


def _check_fields(policies: Mapping[str, _Policy], name: str, text: bytes) -> None:
    """Check that ClusterQueues have the fields that are patched; a Configuration is strict itself.

    Raises:
        PolicydError: If they do not.
    """
    for policy, settings in policies.items():
        for field in unknown_fields(settings.cluster_queues, kueue.ClusterQueue):
            path = ("policies", policy, "clusterQueues", *field.path)
            message = f"policy `{policy}`: {field.sentence('ClusterQueue')}"
            document = next(each_document(text, name))
            if isinstance(document, Document):
                message = str(document.finding(message, path, of_key=True))
            raise PolicydError(message, hint=field.hint)


def _changed(objects: Objects, patch: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the objects of a plan with a policy.

    Raises:
        PolicydError: If a ClusterQueue or the Configuration is invalid then.
    """
    found = changed(objects, patch)
    try:
        scenario_kind(found, kueue.ClusterQueue, "ClusterQueue")
        for each in found:
            if each["kind"] == "Configuration":
                decode_configuration(each)
    except PolicydError as error:
        raise PolicydError(f"{where}: {error}", hint=error.hint) from error
    return found


def _cluster(
    settings: _Plan, plan: str, name: str, jobs: Sequence[TracedJob]
) -> list[dict[str, Any]]:
    if sum(map(bool, (settings.file, settings.gpus, settings.nodes))) != 1:
        raise PolicydError(f"{name}: plan `{plan}` is one of `file`, `gpus` and `nodes`")
    if settings.file:
        path = Path(name).parent / settings.file
        if not path.is_file():
            raise PolicydError(f"{name}: plan `{plan}`: `{path}` is not a file")
        return scenario_objects(str(path))
    size = ClusterSize(settings.gpus) if settings.gpus else size_of_nodes(settings.nodes)
    return made_cluster(size, jobs)


def simulated(sweep: Sweep, number: int) -> TraceFigures:
    """Simulate one scenario of a sweep, and return its figures."""
    scenario = sweep.scenarios[number]
    of = sweep.conditions
    conditions = Conditions(scenario.load, scenario.seed, of.failures, of.until, of.resource)
    objects = sweep.clusters[scenario.plan, scenario.policy]
    simulation = TraceSimulation(objects, sweep.jobs, conditions)
    for _ in simulation.run():
        pass
    return simulation.figures


def show_sweep(sweep: Sweep, found: Sequence[TraceFigures]) -> None:
    """Print a line for each scenario."""
    names = [
        *("PLAN", "POLICY", "LOAD", "SEED", "GPUS", "UTILIZATION", "JOBS", "STARTED"),
        *("MEAN WAIT", "P90", "MEAN 8+", "PREEMPTED", "FAILED", "LOST GPU HOURS"),
    ]
    rows = [_row(*each) for each in zip(sweep.scenarios, found, strict=True)]
    show_table(names, rows, numbers=names[2:])
    click.echo(count(len(rows), "scenario"), err=True)


def warn_of_unstarted(sweep: Sweep, found: Sequence[TraceFigures]) -> None:
    """Say in which scenarios jobs do not start."""
    for scenario, figures in zip(sweep.scenarios, found, strict=True):
        waits = figures.waits
        if waits.waiting is not None:
            never = bool(waits.never)
            words = unstarted_text(waits.jobs - waits.started, waits.jobs, never=never)
            name = f"{scenario.plan}, {scenario.policy}, seed {scenario.seed}"
            click.secho(f"warning: {name}: {words}", fg="yellow", err=True)


def _row(scenario: Scenario, found: TraceFigures) -> list[str]:
    large = found.by_size.get("8+")
    return [
        scenario.plan,
        scenario.policy,
        percent(found.load),
        str(scenario.seed),
        f"{found.gpus:,}",
        percent(found.utilization),
        f"{found.waits.jobs:,}",
        f"{found.waits.started:,}",
        wait_text(found.waits, found.waits.mean),
        wait_text(found.waits, found.waits.p90),
        "-" if large is None else wait_text(large, large.mean),
        f"{found.preempted:,}",
        f"{found.failed:,}",
        f"{found.lost_gpu_hours:,.1f}",
    ]


def sweep_json(sweep: Sweep, found: Sequence[TraceFigures]) -> list[Mapping[str, Any]]:
    """Return all scenarios with their figures."""
    return [
        {**msgspec.to_builtins(scenario), "figures": figures_json(figures)}
        for scenario, figures in zip(sweep.scenarios, found, strict=True)
    ]
