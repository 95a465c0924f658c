"""`policyd usage`: what GPUs are used for, and what of them is wasted."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Final, TypeVar, Unpack

import click

from policyd.alloc.value import Value
from policyd.api.meta import rfc3339
from policyd.cli.clusters import connection_for
from policyd.cli.formats.json_values import as_json
from policyd.cli.formats.tables import table_lines
from policyd.cli.options import CONTEXT, KUBECONFIG, ContextOptions
from policyd.cli.planning.charts import ChartFile
from policyd.cli.questions.pages import Output, show_values
from policyd.cli.usage.cluster import (
    ClusterProfiles,
    StrandedNow,
    profiles_of_cluster,
    stranded_now,
)
from policyd.cli.usage.gathering import DeviceUseRead
from policyd.cli.usage.hours import command as hours
from policyd.cli.usage.notebooks import NotebookLine, StopResult, result_lines, stop_idle
from policyd.cli.usage.options import PROMETHEUS, DeviceUseOptions, ask_prometheus
from policyd.kube.http_client import HttpClient
from policyd.program import FINDINGS
from policyd.status.ages import duration
from policyd.usage.idle import (
    GpusAt,
    PodUse,
    StrandedAt,
    TeamUse,
    gpus_over_time,
    pod_uses,
    team_uses,
)
from policyd.usage.rightsize import Margins, Suggestion, suggestions

T = TypeVar("T")

MOST_FLAVORS: Final = 6
"""Flavors with the most stranded devices, each with one resource, that a table has."""
_POD_HEAD: Final = ("TEAM", "POD", "GPUS", "IDLE", "BUSY", "IDLE SINCE", "FOR")
_POD_WIDE: Final = ("NODE", "MODEL", "DEVICES")
_NUMBERS: Final = ("GPUS", "IDLE", "BUSY", "FOR", "PODS", "DEVICES")


class IdleAnswer(Value, frozen=True, rename="camel"):
    """Allocated GPUs and their use.

    Attributes:
        begin: Since when samples were asked for, in seconds since the epoch.
        end: Up to when.
        step_seconds: How exact moments are.
        notes: What is not known.
        notebooks: What became of idle notebooks, if they were to be stopped.
    """

    begin: float
    end: float
    step_seconds: int
    teams: tuple[TeamUse, ...]
    pods: tuple[PodUse, ...]
    notes: tuple[str, ...]
    notebooks: tuple[NotebookLine, ...] = ()


class RightsizeAnswer(Value, frozen=True, rename="camel"):
    """Suggestions for pods; the other fields are those of idle GPUs."""

    begin: float
    end: float
    step_seconds: int
    pods: tuple[Suggestion, ...]
    notes: tuple[str, ...]


class FragmentationAnswer(Value, frozen=True, rename="camel"):
    """GPUs over time, and those that are stranded now.

    Attributes:
        over_time: All GPUs in each step.
        stranded: Stranded devices in each step, of flavors whose topology names nodes, as the
            controller counted them.
        now: The nodes with stranded devices; None if that is not known.
    """

    begin: float
    end: float
    step_seconds: int
    over_time: tuple[GpusAt, ...]
    stranded: tuple[StrandedAt, ...]
    now: StrandedNow | None
    notes: tuple[str, ...]


class _IdleOptions(DeviceUseOptions, ContextOptions):
    stop: bool
    dry_run: bool
    namespaces: tuple[str, ...]


class _ClusterAsked(DeviceUseOptions, ContextOptions):
    no_cluster: bool


class _RightsizeOptions(_ClusterAsked):
    headroom: float


@click.group("usage")
def command() -> None:
    """Show what GPUs are used for: idle ones, too large requests, fragments, hours and money."""


@command.command("idle")
@PROMETHEUS
@click.option("--stop", is_flag=True, help="Stop notebooks that are idle for longer than allowed.")
@click.option("--dry-run", is_flag=True, help="With --stop: say only what would be stopped.")
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    help="With --stop: only notebooks here; may be repeated.  [everywhere]",
)
@KUBECONFIG
@CONTEXT
def idle(**given: Unpack[_IdleOptions]) -> None:
    r"""Show the busy share of GPUs by pod, and allocated ones that are idle, with since when.

    \b
    GPUS        allocated now; parts (MIG) and shared ones count as fractions
    IDLE        those of them that are idle
    BUSY        the share of time in which they were busy since the pod has them
    IDLE SINCE  since when all GPUs of the pod are idle; `before` if they were from the first
                sample on

    A GPU is idle while no sample of its graphics engine, or else of its utilization, is above
    --busy-above. Time without samples counts as busy. A team is a namespace.

    With --stop, notebooks are stopped that are idle for longer than their annotation
    policyd.io/idle-after says, which the library's policy `notebook-idle` sets: Deployments and
    StatefulSets with the label policyd.io/notebook=true are scaled to 0, Kubeflow's Notebooks get
    the annotation kubeflow-resource-stopped. Each gets an Event that says why, and how to start it.

    Exits with 0, 1 if a notebook could not be stopped, or 2 if Prometheus or the cluster cannot be
    asked.

    \b
    Examples:
      policyd usage idle --prometheus http://localhost:9090
      policyd usage idle --prometheus http://localhost:9090 --since 7d -o json
      policyd usage idle --prometheus http://localhost:9090 --stop --dry-run
    """
    for name in ("dry_run", "namespaces"):
        if given[name] and not given["stop"]:
            raise click.UsageError(f"--{name.rstrip('s').replace('_', '-')} needs --stop")
    chart = ChartFile(given["chart"]) if given["chart"] else None

    async def stopped(gathered: DeviceUseRead) -> list[StopResult]:
        if not given["stop"]:
            return []
        async with HttpClient(connection_for(given)) as client:
            end, chosen = gathered.use.windows.end, given["namespaces"]
            uses = [e for e in pod_uses(gathered.use) if not chosen or e.team in chosen]
            return await stop_idle(client, uses, end=end, dry_run=given["dry_run"])

    gathered, results = ask_prometheus(given, also=stopped)
    windows, pods = gathered.use.windows, pod_uses(gathered.use)
    answer = IdleAnswer(
        begin=windows.begin,
        end=windows.end,
        step_seconds=windows.seconds,
        teams=tuple(team_uses(pods)),
        pods=tuple(pods),
        notes=gathered.notes,
        notebooks=result_lines(results, dry_run=given["dry_run"]),
    )
    _show(answer, _idle_lines(answer, wide=given["output"] == "wide"), given["output"])
    if chart is not None:
        _draw_held(chart, [*gpus_over_time(gathered.use)], fragments=False)
    if any(each.failure for each in results):
        sys.exit(FINDINGS)


@command.command("rightsize")
@PROMETHEUS
@click.option(
    "--headroom",
    type=click.FloatRange(min=0, max=500),
    default=20.0,
    show_default=True,
    metavar="PERCENT",
    help="What is left to pods beyond the most that they used.",
)
@click.option(
    "--no-cluster", is_flag=True, help="Do not read which MIG profiles nodes and queues have."
)
@KUBECONFIG
@CONTEXT
def rightsize(**given: Unpack[_RightsizeOptions]) -> None:
    r"""Suggest smaller requests for pods that use less than they have, with the evidence.

    A pod is suggested fewer GPUs if some were idle all the time; a pod with one GPU a MIG profile,
    if its memory and its share of busy time fit into that with the headroom. Only profiles are
    suggested that nodes have, of which one is free, and for which a ClusterQueue gives quota.

    Nothing is suggested for pods that were seen for less than an hour, or with too few samples.

    Exits with 0, or 2 if Prometheus or the cluster cannot be asked.

    \b
    Examples:
      policyd usage rightsize --prometheus http://localhost:9090 --since 7d
      policyd usage rightsize --prometheus http://localhost:9090 --no-cluster -o json
    """
    chart = ChartFile(given["chart"]) if given["chart"] else None

    async def profiles(_gathered: DeviceUseRead) -> ClusterProfiles:
        if given["no_cluster"]:
            return ClusterProfiles(None, ("MIG profiles: the cluster was not asked",))
        async with HttpClient(connection_for(given)) as client:
            return await profiles_of_cluster(client)

    gathered, found = ask_prometheus(given, memory=True, also=profiles)
    windows = gathered.use.windows
    needs = Margins(headroom=given["headroom"] / 100, threshold=given["busy_above"] / 100)
    answer = RightsizeAnswer(
        begin=windows.begin,
        end=windows.end,
        step_seconds=windows.seconds,
        pods=tuple(suggestions(gathered.use, found.rooms, needs)),
        notes=(*gathered.notes, *found.notes),
    )
    _show(answer, _rightsize_lines(answer), given["output"])
    if chart is not None:
        _draw_memory(chart, answer.pods)


@command.command("fragmentation")
@PROMETHEUS
@click.option(
    "--no-cluster", is_flag=True, help="Do not read which devices are stranded on nodes now."
)
@KUBECONFIG
@CONTEXT
def fragmentation(**given: Unpack[_ClusterAsked]) -> None:
    r"""Show how many GPUs were in fragments and stranded over time, and which are stranded now.

    \b
    FRAGMENTS  GPUs that no pod has, on nodes of which pods have others
    STRANDED   free devices that no pending pod can use, as `policyd nodes` finds them

    Fragments over time are those of the exporter's samples. Stranded devices over time are those
    that the controller counts once a minute, as the metric policyd_stranded_devices: for flavors
    whose topology names nodes, and if this Prometheus scrapes the controller.

    Exits with 0, or 2 if Prometheus or the cluster cannot be asked.

    \b
    Examples:
      policyd usage fragmentation --prometheus http://localhost:9090 --since 7d
      policyd usage fragmentation --prometheus http://localhost:9090 --chart gpus.svg
    """
    chart = ChartFile(given["chart"]) if given["chart"] else None

    async def stranded(_gathered: DeviceUseRead) -> StrandedNow | None:
        if given["no_cluster"]:
            return None
        async with HttpClient(connection_for(given)) as client:
            return await stranded_now(client)

    gathered, now = ask_prometheus(given, stranded=True, also=stranded)
    windows = gathered.use.windows
    answer = FragmentationAnswer(
        begin=windows.begin,
        end=windows.end,
        step_seconds=windows.seconds,
        over_time=tuple(gpus_over_time(gathered.use)),
        stranded=gathered.stranded.points,
        now=now,
        notes=(*gathered.notes, *(() if now is None else now.left_out)),
    )
    _show(answer, _fragmentation_lines(answer), given["output"])
    if chart is not None:
        _draw_held(chart, answer.over_time, fragments=True, stranded=answer.stranded)


command.add_command(hours)


# Output.


def _show(answer: Value, lines: Iterable[str], output: Output) -> None:
    if output in {"json", "yaml"}:
        show_values(as_json(answer), output)
        return
    click.echo("\n".join(lines))


def _idle_lines(answer: IdleAnswer, *, wide: bool) -> Iterator[str]:
    if answer.teams:
        yield from table_lines(
            ("TEAM", "PODS", "GPUS", "IDLE", "BUSY"),
            [
                (each.team, str(each.pods), number(each.gpus), number(each.idle), share(each.busy))
                for each in answer.teams
            ],
            numbers=_NUMBERS,
        )
        yield ""
        head = (*_POD_HEAD, *(_POD_WIDE if wide else ()))
        pods = [_pod_row(each, answer.end, wide=wide) for each in answer.pods]
        yield from table_lines(head, pods, numbers=_NUMBERS)
    else:
        yield "no pod has a GPU now"
    if answer.notebooks:
        yield ""
        rows = [(each.team, each.notebook, each.done, each.why) for each in answer.notebooks]
        yield from table_lines(("TEAM", "NOTEBOOK", "DONE", "WHY"), rows)
    yield from _foot(answer.begin, answer.end, answer.step_seconds, answer.notes)


def _pod_row(pod: PodUse, end: float, *, wide: bool) -> tuple[str, ...]:
    since = "-" if pod.since is None else rfc3339(pod.since)
    if pod.at_least:
        since = f"before {since}"
    if not pod.known:
        since = "not known"
    row = (
        pod.team, pod.pod, number(pod.gpus), number(pod.idle), share(pod.busy), since,
        "-" if pod.since is None else duration(end - pod.since),
    )  # fmt: skip
    if not wide:
        return row
    nodes = ", ".join(dict.fromkeys(each.node for each in pod.devices if each.node))
    models = ", ".join(dict.fromkeys(each.model for each in pod.devices if each.model))
    return (*row, nodes or "-", models or "-", ", ".join(each.device for each in pod.devices))


def _rightsize_lines(answer: RightsizeAnswer) -> Iterator[str]:
    if answer.pods:
        rows = [
            (
                each.team,
                each.pod,
                str(each.devices),
                number(each.freed),
                each.suggestion,
                each.evidence,
            )
            for each in answer.pods
        ]
        head = ("TEAM", "POD", "DEVICES", "FREES", "SUGGESTION", "EVIDENCE")
        yield from table_lines(head, rows, numbers=("DEVICES", "FREES"))
    else:
        yield "no pod has a GPU now"
    yield from _foot(answer.begin, answer.end, answer.step_seconds, answer.notes)


def _fragmentation_lines(answer: FragmentationAnswer) -> Iterator[str]:
    """Yield a line for each part of the time: the mean, and the most in fragments."""
    rows = []
    for part in _parts(answer.over_time, 12):
        count = len(part)
        means = (
            sum((getattr(each, name) for each in part), Fraction(0)) / count
            for name in ("total", "held", "busy", "fragments")
        )
        most = max(each.fragments for each in part)
        rows.append((rfc3339(part[-1].at), *map(number, means), number(most)))
    head = ("UNTIL", "GPUS", "HELD", "BUSY", "FRAGMENTS", "AT MOST")
    yield from table_lines(head, rows, numbers=head[1:])
    if answer.stranded:
        yield ""
        yield from _stranded_lines(answer)
    if answer.now is not None:
        yield ""
        if answer.now.nodes:
            yield from table_lines(
                ("NODE", "DEVICE", "STRANDED", "STRANDED BY"),
                [
                    (each.node, each.device, str(each.stranded), ", ".join(each.by) or "-")
                    for each in answer.now.nodes
                ],
                numbers=("STRANDED",),
            )
        else:
            yield "no device is stranded now"
    yield from _foot(answer.begin, answer.end, answer.step_seconds, answer.notes)


def _stranded_lines(answer: FragmentationAnswer) -> Iterator[str]:
    """Yield a line for each part of the time: the mean of the stranded devices of each flavor."""
    kinds = _by_flavor(answer.stranded)
    shown = sorted(kinds, key=lambda kind: (-max(kinds[kind].values()), kind))[:MOST_FLAVORS]
    rows = []
    for part in _parts(sorted({each.at for each in answer.stranded}), 12):
        means = []
        for kind in shown:
            known = [kinds[kind][at] for at in part if at in kinds[kind]]
            means.append(number(sum(known) / len(known)) if known else "-")
        rows.append((rfc3339(part[-1]), *means))
    names = tuple(f"{resource} OF {flavor}" for flavor, resource in shown)
    yield from table_lines(("STRANDED UNTIL", *names), rows, numbers=names)
    if len(kinds) > len(shown):
        yield f"({len(kinds) - len(shown)} more with -o json)"


def _by_flavor(stranded: Iterable[StrandedAt]) -> dict[tuple[str, str], dict[float, float]]:
    """Return the stranded devices by flavor and resource, and then by time."""
    kinds: dict[tuple[str, str], dict[float, float]] = {}
    for each in stranded:
        kinds.setdefault((each.flavor, each.resource), {})[each.at] = each.devices
    return kinds


def _parts(over_time: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    size = max(1, -(-len(over_time) // count))
    for first in range(0, len(over_time), size):
        yield over_time[first : first + size]


def _foot(begin: float, end: float, step: int, notes: Iterable[str]) -> Iterator[str]:
    yield ""
    yield f"From {rfc3339(begin)} to {rfc3339(end)}, in steps of {duration(step)}."
    for each in notes:
        yield f"not known: {each}" if not each.startswith("left out") else each


def number(value: Fraction | float) -> str:
    """Write a number of GPUs: at most three digits behind the point."""
    return f"{float(value):.3f}".rstrip("0").rstrip(".")


def share(value: float) -> str:
    """Write a share of time in percent."""
    return f"{100 * value:.1f} %"


def _draw_held(
    chart: ChartFile,
    over_time: Sequence[GpusAt],
    *,
    fragments: bool,
    stranded: Sequence[StrandedAt] = (),
) -> None:
    figure = chart.blank(11, 5)
    axes: Any = figure.subplots()
    times = [datetime.fromtimestamp(each.at, UTC) for each in over_time]
    curves: Mapping[str, list[float]] = {
        "all": [float(each.total) for each in over_time],
        "held by pods": [float(each.held) for each in over_time],
        "busy": [float(each.busy) for each in over_time],
    }
    if fragments:
        curves = {**curves, "in fragments": [float(each.fragments) for each in over_time]}
    for name, values in curves.items():
        axes.step(times, values, where="pre", label=name)
    for (flavor, resource), points in sorted(_by_flavor(stranded).items())[:MOST_FLAVORS]:
        axes.step(
            [datetime.fromtimestamp(at, UTC) for at in points],
            [*points.values()],
            where="pre",
            label=f"stranded, {resource} of {flavor}",
        )
    axes.set(title="GPUs over time (UTC)", ylabel="GPUs", ylim=(0, None))
    axes.legend(loc="upper left")
    figure.autofmt_xdate()
    chart.write(figure)


def _draw_memory(chart: ChartFile, pods: Sequence[Suggestion]) -> None:
    shown = [each for each in pods if each.memory is not None and each.memory_total][:40]
    figure = chart.blank(11, 2 + 0.3 * len(shown))
    axes: Any = figure.subplots()
    names = [f"{each.team}/{each.pod}" for each in shown]
    axes.barh(names, [each.memory_total for each in shown], color="lightgray", label="of its GPU")
    axes.barh(names, [each.memory for each in shown], height=0.4, label="most used")
    axes.set(title="memory of the first pods", xlabel="MiB")
    axes.invert_yaxis()
    axes.legend(loc="lower right")
    chart.write(figure)
