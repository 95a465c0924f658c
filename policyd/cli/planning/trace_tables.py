"""The figures of a trace as tables and as JSON, and its jobs as a Gantt chart of characters."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click
import msgspec

from policyd.cli.formats.report import count
from policyd.cli.formats.tables import show_table
from policyd.cli.planning.trace_simulation import TraceSimulation
from policyd.simulate.trace_runs import JobRun, TraceFigures, TraceRuns, WaitFigures
from policyd.status.messages import message_of
from policyd.status.naming import PLAIN

MOST_LINES: Final = 50
"""Jobs that a Gantt chart of characters shows."""

_WIDTH: Final = 60
_COUNTS: Final = ("jobs", "started", "never")


def show_figures(found: TraceFigures) -> None:
    """Print the figures of one simulation."""
    waits = found.waits
    lines = {
        "GPUs": f"{found.gpus:,}",
        "time": written(found.seconds),
        "load": percent(found.load),
        "utilization": percent(found.utilization),
        "jobs": f"{waits.jobs:,}: {waits.started:,} started, {found.ended:,} ended",
        "preempted": count(found.preempted, "time"),
        "failed": count(found.failed, "time"),
        "lost work": f"{found.lost_gpu_hours:,.1f} GPU hours",
    }
    for name, text in lines.items():
        click.echo(f"{name:<12} {text}")
    for title, parts in (("GPUS", found.by_size), ("TEAM", found.by_team)):
        click.echo()
        _show_waits(title, parts)


def unstarted_sentence(runs: TraceRuns) -> str:
    """Say how many jobs do not start, and why the first of them waits; "" if all do."""
    come = runs.come
    waiting = [run for run in come if not run.runs]
    if not waiting:
        return ""
    known = next(((run.job.key, run.refusal) for run in waiting if run.refusal is not None), None)
    why = "" if known is None else f": `{known[0]}`: {message_of(known[1], PLAIN)}"
    return unstarted_text(len(waiting), len(come), never=runs.over) + why


def unstarted_text(unstarted: int, jobs: int, *, never: bool) -> str:
    """Write how many of the jobs do not start."""
    until = "never start" if never else "have not started when the simulation stops"
    return f"{unstarted:,} of {count(jobs, 'job')} {until}, and count in no wait"


def _show_waits(title: str, parts: Mapping[str, WaitFigures]) -> None:
    names = (title, "JOBS", "STARTED", "MEAN WAIT", "MEDIAN", "P90", "LONGEST")
    rows = [[name, *_texts(waits)] for name, waits in parts.items()]
    show_table(names, rows, numbers=names[1:])


def _texts(waits: WaitFigures) -> Sequence[str]:
    times = (waits.mean, waits.median, waits.p90, waits.longest)
    texts = [wait_text(waits, seconds) for seconds in times]
    return [f"{waits.jobs:,}", f"{waits.started:,}", *texts]


def wait_text(waits: WaitFigures, seconds: float | None) -> str:
    """Write one of the figures of waits, or what is known instead if no job has started."""
    if seconds is not None:
        return written(seconds)
    if waits.waiting is None:
        return "-"
    return "never" if waits.never else f"> {written(waits.waiting)}"


def written(seconds: float) -> str:
    """Write a duration: `3d 02:15`, `02:15:30`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours:02}:{minutes:02}:{rest:02}"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours:02}:{minutes:02}"


def percent(part: float) -> str:
    """Write a part of a whole."""
    return f"{100 * part:.1f} %"


def run_json(simulation: TraceSimulation, *, gantt: bool) -> dict[str, Any]:
    """Return the figures of a simulation, and with `gantt` when each job ran."""
    report: dict[str, Any] = {"figures": figures_json(simulation.figures)}
    if gantt:
        report["jobs"] = [_job_json(run) for run in simulation.runs.runs.values()]
    return report


def figures_json(found: TraceFigures) -> dict[str, Any]:
    """Return figures with the names of JSON."""
    return {_camel(name): _renamed(value) for name, value in msgspec.to_builtins(found).items()}


def _renamed(value: object) -> object:
    """Return waits with the unit in the names; names of teams and sizes stay."""
    if not isinstance(value, dict):
        return value
    if "jobs" in value and not isinstance(value["jobs"], dict):
        return {n if n in _COUNTS else f"{n}Seconds": v for n, v in value.items()}
    return {name: _renamed(each) for name, each in value.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return "".join([first, *map(str.capitalize, rest)])


def _job_json(run: JobRun) -> dict[str, Any]:
    return {
        "job": run.job.key,
        "team": run.job.team,
        "queue": run.job.queue,
        "gpus": run.job.gpus,
        "submitted": run.job.at,
        "runs": [{"from": begin, "to": end} for begin, end in run.runs],
        "preempted": run.preempted,
        "failed": run.failed,
        "ended": run.ended,
    }


def gantt_lines(runs: TraceRuns) -> Iterator[str]:
    """Yield a line for each of the first jobs: `·` while it waits, `█` while it runs."""
    shown = list(runs.runs.values())[:MOST_LINES]
    until = max((_last(run, runs.now) for run in shown), default=0.0)
    begin = min((run.job.at for run in shown), default=0.0)
    width = max((len(run.job.key) for run in shown), default=0)
    part = max(1.0, until - begin) / _WIDTH
    yield ""
    yield f"{'JOB':<{width}}  {'GPUS':>4}  {written(part)} for each character"
    for run in shown:
        line = [" "] * _WIDTH
        _draw(line, "·", run.job.at - begin, _last(run, runs.now) - begin, part)
        for start, end in run.runs:
            _draw(line, "█", start - begin, (runs.now if end is None else end) - begin, part)
        yield f"{run.job.key:<{width}}  {run.job.gpus:>4}  {''.join(line).rstrip()}"
    if (more := len(runs.runs) - len(shown)) > 0:
        yield f"{count(more, 'more job')}: -o json has all"


def _last(run: JobRun, now: float) -> float:
    end = run.runs[-1][1] if run.runs else None
    return now if end is None else end


def _draw(line: list[str], sign: str, begin: float, end: float, part: float) -> None:
    first = min(len(line) - 1, int(begin / part))
    last = min(len(line), max(first + 1, round(end / part)))
    line[first:last] = sign * (last - first)
