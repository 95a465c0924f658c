"""`policyd stop` and `policyd resume`: queues, and the workloads of jobs."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Literal, TypeVar, Unpack

import click
import msgspec

from policyd.api.kueue import ClusterQueue, LocalQueue, Workload
from policyd.api.kueue.names import DEACTIVATION_TARGET
from policyd.api.kueue.queues import StopPolicy
from policyd.api.meta import Condition, timestamp, with_condition
from policyd.cli.clusters import connection_for
from policyd.cli.formats.report import count
from policyd.cli.formats.tables import table_lines
from policyd.cli.options import CONTEXT, KUBECONFIG, ContextOptions, together
from policyd.cli.questions.pages import OUTPUT, Output, Page
from policyd.clock import SystemClock
from policyd.errors import PolicydError, did_you_mean
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.jobs.pods import group_name
from policyd.kube.client import Client, PartialObject, Reader
from policyd.kube.errors import ConflictError, ForbiddenError, NotFoundError
from policyd.kube.http_client import HttpClient
from policyd.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, Resource
from policyd.process import run
from policyd.questions.known_names import UnknownNameError, near_names
from policyd.questions.unqueued_jobs import (
    POD_GROUP,
    JobNotFoundError,
    JobQuery,
    kind_of,
    newest_workload,
    owners,
)

REASON: Final = "UserRequest"
"""The reason of the condition that has a user's words."""
_TRIES: Final = 5
"""Times that a status is written again which has changed meanwhile."""


class NotStoppableError(PolicydError):
    """What is named cannot be stopped or resumed."""


class Changed(msgspec.Struct, frozen=True, rename="camel"):
    """What a command has changed.

    Attributes:
        kind: ClusterQueue, LocalQueue or Workload.
        namespace: Its namespace; "" for a ClusterQueue.
        name: Its name.
        field: The field.
        before: Its value.
        after: The value that it has now.
        effect: What that does, for people.
        job: `Kind/name` of the job whose Workload it is; "" if it was named itself.
        dry_run: Whether nothing was written.
    """

    kind: str
    namespace: str
    name: str
    field: Literal["stopPolicy", "active"]
    before: StopPolicy | bool
    after: StopPolicy | bool
    effect: str
    job: str = ""
    dry_run: bool = False


class StopRequest(msgspec.Struct, frozen=True):
    """What is to be done with each object that is named.

    Attributes:
        stop: Whether to stop or to resume.
        drain: Whether queues that are stopped evict what is admitted.
        reason: The user's words; "" for none.
        dry_run: Whether to let the API server check everything, and store nothing.
    """

    stop: bool
    drain: bool = False
    reason: str = ""
    dry_run: bool = False


async def change(client: Client, subject: JobQuery, wish: StopRequest) -> Changed:
    """Stop or resume a queue, or the Workload of a job.

    Raises:
        NotStoppableError: If it cannot be stopped or resumed.
        UnknownNameError: If there is no such queue or Workload.
        JobNotFoundError: If there is no such job.
        ApiError: If the API server refuses, or does not answer.
    """
    if subject.kind in QUEUES:
        return await _change_queue(client, subject, wish)
    workload = await _workload(client, subject)
    changed = await _change_workload(client, workload, wish)
    job = "" if subject.kind == "Workload" else f"{subject.kind}/{subject.name}"
    return msgspec.structs.replace(changed, job=job)


async def _change_queue(client: Client, subject: JobQuery, wish: StopRequest) -> Changed:
    if wish.reason:
        raise NotStoppableError(
            f"a {subject.kind} has no field for a reason",
            hint="leave `--reason` out: only Workloads and jobs can have one",
        )
    resource, name = QUEUES[subject.kind], subject.name
    namespace = subject.namespace if resource.namespaced else ""
    into: type[ClusterQueue | LocalQueue] = LocalQueue if resource.namespaced else ClusterQueue
    queue = await named(client, resource, name, into=into, namespace=namespace)
    after: StopPolicy = "None" if not wish.stop else "HoldAndDrain" if wish.drain else "Hold"
    before = queue.spec.stop_policy
    if before != after:
        await client.patch(
            resource,
            name,
            {"spec": {"stopPolicy": after}},
            into=PartialObject,
            namespace=namespace,
            dry_run=wish.dry_run,
        )
    return Changed(
        kind=subject.kind,
        namespace=namespace,
        name=name,
        field="stopPolicy",
        before=before,
        after=after,
        effect=_effect_on_queue(after, queue.status.reserving_workloads),
        dry_run=wish.dry_run,
    )


def _effect_on_queue(policy: StopPolicy, holding: int) -> str:
    held = f"{count(holding, 'workload')} with quota"
    one = holding == 1
    match policy:
        case "None":
            return "workloads are admitted again"
        case "Hold" if not holding:
            return "no workload is admitted"
        case "Hold":
            keep = (
                "continues, `--drain` would evict it"
                if one
                else ("continue, `--drain` would evict them")
            )
            return f"no workload is admitted; {held} {keep}"
        case "HoldAndDrain":
            return f"no workload is admitted; {held} {'is' if one else 'are'} evicted"


async def _workload(client: Client, subject: JobQuery) -> Workload:
    """Return the Workload that is named, or that of a job, pod or group that is named."""
    namespace = subject.namespace
    if subject.kind in {"Workload", POD_GROUP}:
        return await named(client, WORKLOADS, subject.name, into=Workload, namespace=namespace)
    chain = await owners(client, subject)
    for part, metadata in reversed(chain):
        if part.kind == "Pod" and (group := group_name(metadata)):
            return await named(client, WORKLOADS, group, into=Workload, namespace=namespace)
        if (found := await newest_workload(client, part, metadata)) is not None:
            return found
    raise NotStoppableError(
        f"{subject} has no Workload, so there is nothing to stop or resume",
        hint=f"`policyd why {subject.kind.lower()}/{subject.name} -n {namespace}` says what keeps"
        " it out of the queues",
    )


async def _change_workload(client: Client, workload: Workload, wish: StopRequest) -> Changed:
    name, namespace = workload.metadata.name, workload.metadata.namespace
    if is_finished(workload):
        raise NotStoppableError(f"Workload {namespace}/{name} has finished")
    before, after = workload.spec.active, not wish.stop
    if before != after:
        if wish.reason:
            await _give_reason(client, workload, wish)
        await client.patch(
            WORKLOADS,
            name,
            {"spec": {"active": after}},
            into=PartialObject,
            namespace=namespace,
            dry_run=wish.dry_run,
        )
    return Changed(
        kind="Workload",
        namespace=namespace,
        name=name,
        field="active",
        before=before,
        after=after,
        effect=_effect_on_workload(workload, stop=wish.stop),
        dry_run=wish.dry_run,
    )


def _effect_on_workload(workload: Workload, *, stop: bool) -> str:
    if not stop:
        return "it is pending again"
    if has_quota(workload):
        return "it is evicted: its pods are stopped, and its quota becomes free"
    return "it gets no quota until it is resumed"


async def _give_reason(client: Client, workload: Workload, wish: StopRequest) -> None:
    """Write why a Workload is deactivated, as the condition that Kueue has for it.

    The condition `Evicted` takes the words over.
    """
    name, namespace = workload.metadata.name, workload.metadata.namespace
    condition = Condition(
        DEACTIVATION_TARGET, "True", REASON, wish.reason, timestamp(SystemClock().now())
    )
    for left in reversed(range(_TRIES)):
        conditions = with_condition(workload.status.conditions, condition)
        version = workload.metadata.resource_version
        try:
            await client.patch(
                WORKLOADS,
                name,
                {"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}},
                into=PartialObject,
                namespace=namespace,
                subresource="status",
                dry_run=wish.dry_run,
            )
        except ConflictError:
            if not left:
                raise
            workload = await client.get(WORKLOADS, name, into=Workload, namespace=namespace)
        except ForbiddenError as error:
            raise ForbiddenError(
                str(error), hint="`--reason` needs the right to `patch` `workloads/status`"
            ) from error
        else:
            return


class _Given(ContextOptions):
    """The arguments of both commands."""

    names: tuple[str, ...]
    namespace: str
    output: Output
    dry_run: bool


_OPTIONS = together(
    click.argument("names", metavar="KIND/NAME...", nargs=-1, required=True),
    KUBECONFIG,
    CONTEXT,
    click.option("-n", "--namespace", default="", help="Their namespace.  [the context's]"),
    click.option(
        "--dry-run", is_flag=True, help="Let the API server check the change, but do not store it."
    ),
    OUTPUT,
)


@click.command("stop")
@_OPTIONS
@click.option("--drain", is_flag=True, help="For queues: also evict the workloads that have quota.")
@click.option(
    "--reason",
    default="",
    metavar="TEXT",
    help="For jobs and Workloads: the reason, shown to their users.",
)
def stop(*, drain: bool, reason: str, **given: Unpack[_Given]) -> None:
    r"""Stop queues, or the workloads of jobs, until they are resumed.

    KIND is clusterqueue, localqueue, workload, or a kind of job, whose Workload is looked up.

    A queue that is stopped admits no workloads. Those that have quota continue (stopPolicy
    Hold), so that the queue becomes empty in time. With --drain (stopPolicy HoldAndDrain), they
    are evicted at once and pending again: what their pods have not saved is lost.

    A Workload that is stopped is deactivated (spec.active: false). If it has quota, it is
    evicted. --reason is shown in its condition Evicted and in an event of its job.

    If one of several cannot be stopped, none is. `policyd events --watch` shows what follows.

    Exits with 0, or 2 if something is not found or the API server refuses.

    \b
    Examples:
      policyd stop clusterqueue/team-a
      policyd stop localqueue/train -n team-a --drain --dry-run
      policyd stop job/train -n team-a --reason "its data set is being replaced"
    """
    _run_all(given, StopRequest(stop=True, drain=drain, reason=reason, dry_run=given["dry_run"]))


@click.command("resume")
@_OPTIONS
def resume(**given: Unpack[_Given]) -> None:
    r"""Resume queues, or the workloads of jobs, that were stopped.

    KIND is clusterqueue, localqueue, workload, or a kind of job, whose Workload is looked up.
    A resumed queue admits workloads again (stopPolicy None), and a resumed Workload is pending
    (spec.active: true).

    Exits with 0, or 2 if something is not found or the API server refuses.

    \b
    Examples:
      policyd resume clusterqueue/team-a
      policyd resume job/train -n team-a
    """
    _run_all(given, StopRequest(stop=False, dry_run=given["dry_run"]))


def _run_all(given: _Given, wish: StopRequest) -> None:
    run(partial(_run, given, list(map(_split, given["names"])), wish))


def _split(text: str) -> tuple[str, str]:
    word, slash, name = text.partition("/")
    if not slash or not name or "/" in name:
        raise click.UsageError(f"`{text}` is not KIND/NAME, such as clusterqueue/team-a")
    return queue_or_job_kind(word), name


async def _run(
    given: _Given, named_by: list[tuple[str, str]], wish: StopRequest, _stop: asyncio.Event
) -> None:
    connection = connection_for(given)
    namespace = given["namespace"] or connection.namespace
    async with HttpClient(connection) as client:
        subjects = [JobQuery(kind, namespace, name) for kind, name in named_by]
        changes = await change_all(client, subjects, wish)
    Page(given["output"], partial(lines, wide=given["output"] == "wide")).show(changes)


async def change_all(
    client: Client, subjects: Sequence[JobQuery], wish: StopRequest
) -> list[Changed]:
    """Stop or resume several queues and Workloads; none of them if one of them cannot be.

    Raises:
        PolicydError: As `change`.
    """
    if len(subjects) > 1 and not wish.dry_run:
        trial = msgspec.structs.replace(wish, dry_run=True)
        for subject in subjects:
            await change(client, subject, trial)
    return [await change(client, subject, wish) for subject in subjects]


def lines(changes: Iterable[Changed], *, wide: bool) -> Iterable[str]:
    """Write what was changed for people: a sentence each, or a table."""
    if not wide:
        return map(sentence, changes)
    head = ("KIND", "NAMESPACE", "NAME", "JOB", "FIELD", "BEFORE", "AFTER", "STORED", "EFFECT")
    rows = (
        (
            *(each.kind, each.namespace or "-", each.name, each.job or "-", each.field),
            *_values(each),
            "no" if each.dry_run else "yes",
            each.effect,
        )
        for each in changes
    )
    return table_lines(head, rows)


def sentence(changed: Changed) -> str:
    """Say what was changed, and what that does."""
    place = f"{changed.namespace}/{changed.name}" if changed.namespace else changed.name
    of = f" of {changed.job}" if changed.job else ""
    subject = f"{changed.kind} {place}{of}"
    before, after = _values(changed)
    if changed.before == changed.after:
        return f"{subject}: {changed.field} is {after} already"
    note = " (dry run)" if changed.dry_run else ""
    return f"{subject}: {changed.field} {before} -> {after}{note}: {changed.effect}"


def _values(changed: Changed) -> tuple[str, ...]:
    """Return the values before and after, as a manifest has them."""
    values = (changed.before, changed.after)
    return tuple(str(each).lower() if isinstance(each, bool) else each for each in values)


T = TypeVar("T")

QUEUES: Mapping[str, Resource] = {"ClusterQueue": CLUSTER_QUEUES, "LocalQueue": LOCAL_QUEUES}
_SHORT: Mapping[str, str] = {"cq": "clusterqueue", "lq": "localqueue"}


def queue_or_job_kind(word: str) -> str:
    """Return the kind that a word means: of a queue, or of a job that can be in one.

    Raises:
        JobNotFoundError: If it is no such kind.
    """
    asked, _, group = word.lower().partition(".")
    asked = _SHORT.get(asked, asked)
    for kind, resource in QUEUES.items():
        if asked in {kind.lower(), resource.plural} and group in {"", resource.group}:
            return kind
    try:
        return kind_of(word)
    except JobNotFoundError as error:
        near = did_you_mean(asked, map(str.lower, QUEUES))
        raise JobNotFoundError(
            f"`{word}` is not a kind of queue or job", hint=near or error.hint
        ) from error


async def named(
    reader: Reader, resource: Resource, name: str, *, into: type[T], namespace: str = ""
) -> T:
    """Return an object.

    Raises:
        UnknownNameError: If there is none; the hint has what there is.
        ApiError: If the API server refuses, or does not answer.
    """
    try:
        return await reader.get(resource, name, into=into, namespace=namespace)
    except NotFoundError as error:
        where = f" in namespace {namespace}" if resource.namespaced else ""
        raise UnknownNameError(
            f"there is no {resource.kind} `{name}`{where}",
            hint=await _what_there_is(reader, resource, name, namespace),
        ) from error


async def _what_there_is(
    reader: Reader, resource: Resource, name: str, namespace: str
) -> str | None:
    try:
        page = await reader.page(resource, into=PartialObject, namespace=namespace)
    except (ForbiddenError, NotFoundError):
        return None
    names = [each.metadata.name for each in page.items]
    if not names:
        return "there are none: `-n` names another namespace" if resource.namespaced else None
    return near_names(name, names, more=bool(page.continue_))
