"""`policyd why`: say why a job waits."""

from collections.abc import Iterator
from functools import partial
from typing import Unpack

import click

from policyd.cli.questions.question import (
    SHARED,
    Question,
    QuestionOptions,
    ask,
    show,
)
from policyd.clock import SystemClock
from policyd.kube.client import Reader
from policyd.kube.errors import ApiError
from policyd.questions.job_pods import explained
from policyd.questions.snapshots import NoSnapshotsError
from policyd.questions.unqueued_jobs import JobNotFoundError, JobQuery, kind_of
from policyd.questions.why import why, why_in
from policyd.snapshot.answers import WhyAnswer, kinds_of, summed
from policyd.snapshot.starting import start_sentence
from policyd.snapshot.values import QueueSnapshot, QuotaShortfall
from policyd.status.ages import age
from policyd.status.quantities import amounts_text, format_amount
from policyd.status.shortages import and_others
from policyd.workload.pod_obstacles import obstacle_text

_FIELD = 14
"""Columns of the names of fields."""


class _Given(QuestionOptions):
    """The arguments of the command."""

    job: str


def kind_and_name(text: str) -> tuple[str, str]:
    """Read an argument `KIND/NAME`, or `NAME`: its kind is "", to be found out.

    Raises:
        click.UsageError: If it is none.
        JobNotFoundError: If no kind that can be in a queue is called that.
    """
    word, slash, name = text.partition("/")
    if not slash and word:
        return "", word
    if not name or "/" in name:
        raise click.UsageError(f"`{text}` is not KIND/NAME, such as job/train")
    return kind_of(word), name


def with_kind(subject: JobQuery, snapshot: QueueSnapshot | None) -> JobQuery:
    """Return what is asked about; without a kind, it is the only job of the name in the queues.

    Raises:
        click.UsageError: If jobs of several kinds have the name.
    """
    if subject.kind:
        return subject
    kinds = sorted(kinds_of(snapshot, subject.namespace, subject.name)) if snapshot else []
    if len(kinds) > 1:
        named = " or ".join(f"{kind.lower()}/{subject.name}" for kind in kinds)
        raise click.UsageError(f"there are several jobs of the name `{subject.name}`: use {named}")
    return subject._replace(kind=kinds[0] if kinds else "Job")


@click.command("why")
@click.argument("job", metavar="[KIND/]NAME")
@SHARED
def command(**given: Unpack[_Given]) -> None:
    r"""Explain why a job is pending: the reason, its position, the holders of quota, and remedies.

    KIND is a kind of job, such as job, jobset or rayjob, or pod, podgroup or workload. It can be
    left out for a job in the queues. For a pod, or for a job that another job owns, the answer is
    about the owner. If a job is in no queue, the answer shows what is missing.

    For a job that has quota, or needs none, the answer says why its pods do not run: a policy
    refuses them, a scheduling gate holds them, or no node has room for them.

    Each remedy is verified by planning with it; there are remedies for users and for
    administrators. The setting `visibility.otherTeams` of the controller determines how jobs
    of other namespaces are named.

    Exits with 0, or 2 if there is no such job or the cluster cannot be asked.

    \b
    Examples:
      policyd why job/train
      policyd why pod/train-0-x7k2p -n team-a -o wide
      policyd why job/train -o json | jq .missing
    """
    kind, name = kind_and_name(given["job"])
    show(
        given,
        Question(
            of_cluster=partial(_of_cluster, kind, name),
            of_file=partial(why_of_file, JobQuery(kind, given["namespace"] or "default", name)),
            lines=partial(why_lines, wide=given["output"] == "wide"),
        ),
    )


async def _of_cluster(kind: str, name: str, reader: Reader, namespace: str) -> WhyAnswer:
    snapshot = await snapshot_for(reader, namespace)
    subject = with_kind(JobQuery(kind, namespace, name), snapshot)
    return await explained(reader, await why(reader, subject, snapshot))


def why_of_file(subject: JobQuery, snapshot: QueueSnapshot) -> WhyAnswer:
    """Explain why a job is pending, from a snapshot alone.

    Raises:
        JobNotFoundError: If it is not in there.
    """
    subject = with_kind(subject, snapshot)
    answer = why_in(snapshot, subject)
    if answer is None:
        raise JobNotFoundError(
            f"{subject} is not in the snapshot", hint="`-n` names another namespace"
        )
    return answer


async def snapshot_for(reader: Reader, namespace: str) -> QueueSnapshot | None:
    """Return the snapshot; None if there is none, after a warning: conditions say less."""
    try:
        return await ask(reader, namespace)
    except (NoSnapshotsError, ApiError) as error:
        if isinstance(error, ApiError) and error.code not in {403, 503}:
            raise
        click.secho(f"warning: {error}: numbers and positions are missing", fg="yellow", err=True)
        if error.hint:
            click.secho(f"hint: {error.hint}", fg="cyan", err=True)
        return None


def why_lines(answer: WhyAnswer, *, wide: bool) -> Iterator[str]:
    """Yield an answer as people read it."""
    state = click.style(answer.state, bold=True)
    yield f"{answer.kind} {answer.namespace}/{answer.name}: {state}, {answer.message}"
    for name, text in _fields(answer, SystemClock().now(), wide=wide):
        if text:
            yield field_line(name, text)


def field_line(name: str, text: str) -> str:
    """Return a line of a description: the name of a field, and its text."""
    return f"  {click.style(f'{name:<{_FIELD}}', dim=True)} {text}"


def _fields(answer: WhyAnswer, now: float, *, wide: bool) -> Iterator[tuple[str, str]]:
    yield from (("because", part) for part in answer.parts)
    yield "reason", answer.reason
    yield "queue", _queue(answer)
    if answer.ahead is not None:
        yield "ahead of it", _ahead(answer)
    yield from (("missing", _missing(each)) for each in answer.missing if not each.never)
    yield from (("held by", _holders(each)) for each in answer.missing if each.holders)
    yield from (("pods", obstacle_text(each, now)) for each in answer.obstacles)
    yield "forecast", start_sentence(answer.forecast, now)
    yield "you can", answer.user
    yield "admins can", answer.administrator
    if answer.since is not None:
        yield "since", f"{answer.since} ({age(answer.since, now)})"
    if answer.requests:
        yield ("requests" if answer.state == "Pending" else "holds"), amounts_text(answer.requests)
    if answer.held:
        yield "holds", f"{amounts_text(answer.held)}, by another of its Workloads"
    if wide:
        yield "priority", "" if answer.priority is None else str(answer.priority)
        yield "workload", answer.workload
    yield from (("not known", each) for each in answer.left_out)


def _queue(answer: WhyAnswer) -> str:
    local = f"LocalQueue {answer.local_queue}" if answer.local_queue else ""
    cluster = f"ClusterQueue {answer.cluster_queue}" if answer.cluster_queue else ""
    return " of ".join(filter(None, (local, cluster)))


def _ahead(answer: WhyAnswer) -> str:
    if not answer.ahead:
        return "none: it is the first in line"
    mine = f" in the ClusterQueue, {answer.ahead_in_local_queue} of them in the LocalQueue"
    behind = f"; {answer.behind} is decided about first" if answer.behind else ""
    return f"{answer.ahead}{mine}{behind}"


def _missing(each: QuotaShortfall) -> str:
    amounts = (each.missing, each.requested, each.available)
    missing, requested, available = (format_amount(each.resource, n) for n in amounts)
    return f"{missing} {each.resource} of {each.flavor}: {requested} requested, {available} free"


def _holders(each: QuotaShortfall) -> str:
    held = summed((holder.name, holder.amount) for holder in each.holders)
    named = ", ".join(f"{name} ({format_amount(each.resource, n)})" for name, n in held.items())
    return f"{named}{and_others(each.others)}"
