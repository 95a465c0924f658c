"""`policyd priority`: show what makes up the place of each pending workload."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Unpack

import click

from policyd.cli.formats.tables import table_lines
from policyd.cli.questions.question import (
    ALL_NAMESPACES,
    SHARED,
    QuestionOptions,
    of_snapshot,
    show,
)
from policyd.clock import SystemClock
from policyd.questions.known_names import NameFilter, of_queue, of_team
from policyd.snapshot.priorities import (
    PriorityAnswer,
    PriorityLine,
    ShareLine,
    UsageLine,
    priorities,
)
from policyd.snapshot.values import QueueSnapshot
from policyd.status.ages import age, duration
from policyd.status.quantities import rounded_text

_HEAD = ("QUEUE", "AHEAD", "NAMESPACE", "JOB", "BY", "PRIORITY", "CLASS", "WAITS")
_WIDE = ("BOOST", "LOCAL QUEUE", "WORKLOAD", "SINCE")
_SHARES = ("NAME", "KIND", "PARENT", "SHARE", "WEIGHT", "DOMINANT")
_USAGES = ("LOCAL QUEUE", "NAMESPACE", "USAGE", "WEIGHT", "CONSUMED", "PENALTY", "UPDATED")
_NUMBERS = ("AHEAD", "PRIORITY", "USAGE", "SHARE", "WEIGHT", "BOOST")
_WITHOUT_LIMIT = "last"
"""In the place of the infinite share or usage of weight 0."""


class _Given(QuestionOptions):
    """The arguments of the command."""

    everywhere: bool
    queue: str
    team: str


@click.command("priority")
@SHARED
@ALL_NAMESPACES
@click.option("--queue", default="", help="Only those of this ClusterQueue or LocalQueue.")
@click.option("--team", default="", help="Only those of this namespace.")
def command(**given: Unpack[_Given]) -> None:
    r"""Show the position of each pending workload in its ClusterQueue, and the reason for it.

    \b
    BY is the reason why a workload is behind the previous one:
    usage       its LocalQueue used more (admission fair sharing)
    preemption  other workloads were preempted for the previous one
    priority    its priority is lower
    time        it has been pending for a shorter time
    uid         all of these are equal
    first       there is no previous one

    If cohorts share fairly, a second table shows the shares of ClusterQueues and Cohorts: the
    lowest share goes first. If past usage orders LocalQueues, a third table shows the usage of
    each, and how fast it decays.

    Exits with 0, or 2 if a name does not exist or the cluster cannot be asked.

    \b
    Examples:
      policyd priority
      policyd priority --queue team-a -o wide
      policyd priority -A -o json | jq .shares
    """
    question = of_snapshot(
        partial(_answer, given),
        partial(_lines, wide=given["output"] == "wide"),
        everywhere=given["everywhere"],
        filters=partial(_filters, given),
        empty="no pending workloads",
    )
    show(given, question)


def _filters(given: _Given, snapshot: QueueSnapshot) -> Iterator[NameFilter]:
    yield of_queue(given["queue"], snapshot)
    yield of_team(given["team"], snapshot)


def _answer(given: _Given, snapshot: QueueSnapshot) -> PriorityAnswer:
    return priorities(snapshot, queue=given["queue"], team=given["team"])


def _lines(answer: PriorityAnswer, *, wide: bool) -> Iterator[str]:
    if answer.workloads:
        yield from _places(answer, wide=wide)
    if answer.shares:
        yield from ("", "Shares of the Cohorts' quota, in thousandths by weight:")
        yield from table_lines(_SHARES, map(_share, answer.shares), numbers=_NUMBERS)
    if answer.usages:
        half_life = answer.half_life_seconds or 0
        counts = f"counts half after {duration(half_life)}" if half_life else "is not kept"
        yield from ("", f"Usage of LocalQueues; past usage {counts}{_weights(answer)}:")
        yield from table_lines(_USAGES, map(_usage, answer.usages), numbers=_NUMBERS)


def _places(answer: PriorityAnswer, *, wide: bool) -> list[str]:
    usage = ("USAGE",) if answer.half_life_seconds is not None else ()
    share = ("SHARE",) if answer.shares else ()
    infinite = {each.name for each in answer.shares if each.share is None}
    last = {(each.namespace, each.local_queue) for each in answer.usages if each.usage is None}
    now = SystemClock().now()

    def cells(line: PriorityLine) -> Iterator[str]:
        yield from (line.cluster_queue, str(line.ahead), line.namespace or "-", line.job or "-")
        yield "backs off" if line.backs_off else line.decided_by or "-"
        yield from (str(line.priority), line.priority_class or "-", age(line.since, now))
        if usage:
            always = (line.namespace, line.local_queue) in last
            yield _number(line.usage, _WITHOUT_LIMIT if always else "-")
        if share:
            yield _number(line.share, _WITHOUT_LIMIT if line.cluster_queue in infinite else "-")
        if wide:
            yield from (str(line.boost), line.local_queue or "-", line.workload or "-", line.since)

    head = (*_HEAD, *usage, *share, *(_WIDE if wide else ()))
    return table_lines(head, (tuple(cells(line)) for line in answer.workloads), numbers=_NUMBERS)


def _share(line: ShareLine) -> tuple[str, ...]:
    share = _number(line.share, _WITHOUT_LIMIT)
    weight = _number(line.weight, "-")
    return line.name, line.kind, line.parent or "-", share, weight, line.dominant or "-"


def _usage(line: UsageLine) -> tuple[str, ...]:
    return (
        line.local_queue,
        line.namespace,
        _number(line.usage, _WITHOUT_LIMIT),
        _number(line.weight, "-"),
        _units(line.consumed),
        _units(line.penalty),
        line.updated,
    )


def _number(number: float | None, without: str) -> str:
    return without if number is None else f"{number:.4g}"


def _units(amounts: Mapping[str, float]) -> str:
    return (
        ", ".join(f"{rounded_text(name, n)} {name}" for name, n in sorted(amounts.items())) or "-"
    )


def _weights(answer: PriorityAnswer) -> str:
    weights = [f"{name} {_number(n, '-')}" for name, n in sorted(answer.resource_weights.items())]
    return f"; weights of resources: {', '.join(weights)}" if weights else ""
