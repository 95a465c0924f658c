"""`policyd simulate` with a trace: the steps from its files to its figures."""

import json
from collections.abc import Sequence
from math import inf
from typing import Literal, TypedDict

import click

from policyd.cli.formats.progress import progress
from policyd.cli.formats.scenarios import scenario_objects
from policyd.cli.formats.times import read_duration
from policyd.cli.options import together
from policyd.cli.planning.charts import Chart
from policyd.cli.planning.executors import Scenarios, cores, run_here, run_on_ray
from policyd.cli.planning.optimum import Certificate, Optimum
from policyd.cli.planning.sweeps import (
    read_sweep,
    show_sweep,
    simulated,
    sweep_json,
    warn_of_unstarted,
)
from policyd.cli.planning.trace_files import TraceFormat, read_trace
from policyd.cli.planning.trace_simulation import Conditions, TraceSimulation
from policyd.cli.planning.trace_tables import (
    gantt_lines,
    run_json,
    show_figures,
    unstarted_sentence,
)
from policyd.cli.planning.virtual_clusters import ClusterSize, Objects, made_cluster, size_of_nodes
from policyd.errors import PolicydError
from policyd.program import uncollected
from policyd.simulate.failures import FailureRates
from policyd.simulate.trace_columns import NAMES, TableLayout, columns_of, time_of
from policyd.simulate.traces import GPU, TracedJob, TraceError, in_window
from policyd.standard_input import FILE, STORED_FILE
from policyd.status.queues import inactive_queues


class Planning(TypedDict):
    """The options of traces."""

    trace: str | None
    form: TraceFormat
    columns: str
    gpus: int | None
    nodes: str | None
    resource: str
    begin: str
    span: str
    load: float | None
    seed: int
    failures: str
    gantt: bool
    chart: str | None
    optimum: float | None
    sweep: str | None
    workers: int | None
    ray: str


PLANNING = together(
    click.option("--trace", type=STORED_FILE, metavar="FILE", help="Recorded jobs to simulate."),
    click.option(
        "--trace-format",
        "form",
        type=click.Choice(["auto", "csv", "sacct", "swf", "kubernetes"]),
        default="auto",
        help="The format of the trace.  [by its first line]",
    ),
    click.option(
        "--columns",
        default="",
        metavar="FIELD=COLUMN,...",
        help=f"Columns of the trace by name. Fields: {', '.join(NAMES)}.",
    ),
    click.option(
        "--gpus",
        type=click.IntRange(min=1),
        help="Make a cluster with a quota of this number of GPUs.",
    ),
    click.option("--nodes", metavar="NxM", help="Make a cluster of N nodes with M GPUs each."),
    click.option("--resource", default=GPU, show_default=True, help="The resource of the figures."),
    click.option(
        "--from",
        "begin",
        default="",
        metavar="TIME",
        help="Skip the trace before a time, or its first part, such as 30d.",
    ),
    click.option(
        "--span",
        default="",
        metavar="DURATION",
        help="Length of the simulated part of the trace, such as 7d.",
    ),
    click.option(
        "--load",
        type=click.FloatRange(min=0, min_open=True),
        help="Fraction of the GPU time that jobs request, such as 0.9.  [as recorded]",
    ),
    click.option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Seed of failures, and of the order of jobs within a day; 0 keeps the recorded order.",
    ),
    click.option(
        "--failures",
        default="",
        metavar="MTBF/MTTR",
        help="Mean time between failures of a node, and time to repair, such as 30d/4h.",
    ),
    click.option("--gantt", is_flag=True, help="Show when each job ran."),
    click.option(
        "--chart",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Draw the simulation of a trace: FILE.svg or FILE.png. Needs the extra `plots`.",
    ),
    click.option(
        "--optimum",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Prove how near the packing at the end is to the optimum. Needs the extra `optimum`.",
    ),
    click.option(
        "--sweep",
        type=FILE,
        metavar="FILE",
        help="Simulate the trace under each plan, policy, load and seed of a file.",
    ),
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        help="Processes that simulate a sweep.  [one for each core]",
    ),
    click.option(
        "--ray",
        default="",
        metavar="ADDRESS",
        help="Simulate a sweep on a Ray cluster. Needs the extra `ray`.",
    ),
)
"""The options."""


def plan(
    file: str | None, options: Planning, *, until: str, output: Literal["table", "json"]
) -> None:
    """Simulate a trace, and print its figures.

    Args:
        file: Queues and nodes; None for a cluster that is made.
        options: Of the trace.
        until: When to stop; "" for when all jobs have ended.
        output: The format.

    Raises:
        PolicydError: If something cannot be read, or does not fit together.
    """
    if options["sweep"] is not None:
        _sweep(file, options["sweep"], options, conditions_of(options, until), output)
        return
    chart = Chart(options["chart"]) if options["chart"] else None
    optimum = Optimum(options["optimum"]) if options["optimum"] else None
    jobs = trace_jobs(options)
    simulation = TraceSimulation(
        cluster_objects(file, options, jobs), jobs, conditions_of(options, until)
    )
    with uncollected():
        for _ in progress(simulation.run(), "simulating", len(jobs)):
            pass
    if chart is not None:
        chart.draw(simulation.runs, simulation.figures)
    if sentence := unstarted_sentence(simulation.runs):
        for each in (sentence, *inactive_queues(simulation.cluster.state)):
            click.secho(f"warning: {each}", fg="yellow", err=True)
    packing = None
    if optimum is not None:
        packing = optimum.certify(simulation.cluster.state, options["resource"])
    if output == "json":
        report = run_json(simulation, gantt=options["gantt"])
        report |= {} if packing is None else {"packing": packing.as_json()}
        click.echo(json.dumps(report, indent=2))
        return
    _show(simulation, packing, gantt=options["gantt"])


def _show(simulation: TraceSimulation, packing: Certificate | None, *, gantt: bool) -> None:
    show_figures(simulation.figures)
    if packing is not None:
        click.echo(f"\n{packing.sentence}")
    if gantt:
        for line in gantt_lines(simulation.runs):
            click.echo(line)


def _sweep(
    file: str | None,
    sweep_file: str,
    options: Planning,
    conditions: Conditions,
    output: Literal["table", "json"],
) -> None:
    """Simulate all scenarios of a sweep, and print their figures."""
    if options["chart"] or options["gantt"]:
        raise PolicydError("a sweep has no chart", hint="simulate one scenario with --chart")
    if options["optimum"]:
        raise PolicydError("a sweep has no --optimum", hint="simulate one scenario with it")
    jobs = trace_jobs(options)
    given = any((file, options["gpus"], options["nodes"]))
    objects = cluster_objects(file, options, jobs) if given else None
    sweep = read_sweep(sweep_file, jobs, objects, conditions)
    scenarios = Scenarios(sweep, len(sweep.scenarios), simulated)
    if options["ray"]:
        found = run_on_ray(scenarios, options["ray"])
    else:
        found = run_here(scenarios, options["workers"] or cores())
    warn_of_unstarted(sweep, found)
    if output == "json":
        click.echo(json.dumps(sweep_json(sweep, found), indent=2))
    else:
        show_sweep(sweep, found)


def trace_jobs(options: Planning) -> list[TracedJob]:
    """Return the jobs of the part of the trace that is asked for.

    Raises:
        TraceError: If there are none.
    """
    trace = options["trace"]
    if trace is None:
        raise TraceError("no trace is given", hint="name it by --trace FILE")
    nodes = size_of_nodes(options["nodes"]) if options["nodes"] else None
    layout = TableLayout(columns_of(options["columns"]), nodes.gpus // nodes.nodes if nodes else 8)
    jobs = read_trace(trace, options["form"], layout, options["resource"])
    first = min(job.at for job in jobs)
    begin, span = options["begin"], options["span"]
    found = in_window(jobs, _begin(begin, first), read_duration(span) if span else inf)
    if not found:
        raise TraceError(f"no job of the trace comes in that time: `{begin}`, `{span}`")
    return found


def _begin(text: str, first: float) -> float:
    if not text:
        return first
    try:
        return time_of(text)
    except ValueError:
        return first + read_duration(text)


def cluster_objects(file: str | None, options: Planning, jobs: Sequence[TracedJob]) -> Objects:
    """Return the objects of a file, or of the cluster that is to be made.

    Raises:
        PolicydError: If neither is given.
    """
    sizes = [ClusterSize(gpus=options["gpus"])] if options["gpus"] else []
    sizes += [size_of_nodes(options["nodes"])] if options["nodes"] else []
    if len(sizes) + (file is not None) != 1:
        raise PolicydError(
            "a trace needs one cluster: FILE, --gpus or --nodes", hint="such as --nodes 90x8"
        )
    return scenario_objects(file) if file is not None else made_cluster(sizes[0], jobs)


def conditions_of(options: Planning, until: str) -> Conditions:
    """Return what jobs meet, as the options say.

    Raises:
        PolicydError: If a duration cannot be read.
    """
    return Conditions(
        load=options["load"],
        seed=options["seed"],
        failures=_rates(options["failures"]) if options["failures"] else None,
        until=read_duration(until) if until else inf,
        resource=options["resource"],
    )


def _rates(text: str) -> FailureRates:
    between, _, repair = text.partition("/")
    rates = FailureRates(read_duration(between), read_duration(repair)) if repair else None
    if rates is None or not rates.between_seconds:
        raise PolicydError(f"`{text}` does not say how often nodes fail", hint="such as 30d/4h")
    return rates
