"""One job: its life as a time line, its pods' places, and what policies set in it."""

from typing import Any, Final, NamedTuple

from policyd.api.admission import UserInfo
from policyd.api.meta import Json
from policyd.dashboard.view import PageRequest, PageView
from policyd.dashboard.views.job import ReadJob, job_view
from policyd.errors import PolicydError
from policyd.kube.client import Reader
from policyd.kube.errors import ApiError, ForbiddenError, NotFoundError
from policyd.patch.recorded import ObjectOrigins
from policyd.questions import snapshots
from policyd.questions.core_events import CoreEvent, events_about
from policyd.questions.job import job_answer
from policyd.questions.policies import cluster_policies
from policyd.questions.snapshots import NoSnapshotsError
from policyd.questions.unqueued_jobs import (
    JOBS,
    POD_GROUP,
    JobNotFoundError,
    JobQuery,
    kind_in_objects,
    kind_of,
)
from policyd.snapshot.values import QueueSnapshot
from policyd.workload.timeline import TimelineEvent

_UNKNOWN_USER: Final = UserInfo(username="")


class _Unknown(NamedTuple):
    """Sentences on what could not be found out."""

    sentences: list[str]

    def note(self, what: str, error: PolicydError) -> None:
        self.sentences.append(f"{what}: {error}")


async def _read(request: PageRequest) -> ReadJob:
    try:
        return await _job(request)
    except JobNotFoundError as error:
        raise NotFoundError(str(error), hint=error.hint) from error


async def _job(request: PageRequest) -> ReadJob:
    path = request.path
    subject = JobQuery(kind_of(path["kind"]), path["namespace"], path["name"])
    unknown = _Unknown([])
    snapshot = await _snapshot(request, subject.namespace, unknown)
    answer = await job_answer(request.client, subject, snapshot, now=request.now)
    subject = JobQuery(answer.why.kind, subject.namespace, answer.why.name)
    events = await _events(request.client, subject, answer.why.workload, unknown)
    found = None
    if not request.live:
        found = await _origins(request.client, subject, unknown)
    return ReadJob(answer, events, found, tuple(unknown.sentences))


async def _snapshot(
    request: PageRequest, namespace: str, unknown: _Unknown
) -> QueueSnapshot | None:
    try:
        if request.scope in {"", namespace}:
            return await request.snapshot()
        return await snapshots.ask(request.client, namespace)
    except (NoSnapshotsError, ApiError) as error:
        if isinstance(error, ApiError) and error.code not in {403, 503}:
            raise
        unknown.note("numbers and positions", error)
        return None


async def _events(
    reader: Reader, subject: JobQuery, workload: str, unknown: _Unknown
) -> tuple[TimelineEvent, ...]:
    asked = [] if subject.kind == POD_GROUP else [(kind_in_objects(subject.kind), subject.name)]
    asked += [("Workload", workload)] if workload else []
    found: dict[tuple[str, str], TimelineEvent] = {}
    try:
        for kind, name in asked:
            for event in await events_about(reader, subject.namespace, kind, name):
                made = _event(event)
                # A controller records some events on both.
                found.setdefault((f"{made.reason} {int(made.at)}", made.message), made)
    except ForbiddenError as error:
        unknown.note("earlier events", error)
    return tuple(found.values())


def _event(event: CoreEvent) -> TimelineEvent:
    return TimelineEvent(
        event.last_at, event.reason, event.message, event.type == "Warning", event.times
    )


async def _origins(reader: Reader, subject: JobQuery, unknown: _Unknown) -> ObjectOrigins | None:
    """Tell which policies set fields of a job, with the rights of who looks."""
    resource = JOBS.get(subject.kind)
    if resource is None:
        return None
    try:
        obj: dict[str, Json] = await reader.get(
            resource, subject.name, namespace=subject.namespace, into=dict
        )
    except ApiError as error:
        unknown.note("changes of policies", error)
        return None
    policies = None
    try:
        policies = await cluster_policies(reader)
    except PolicydError as error:
        unknown.note("which policy set a field", error)
    # Imported only here: the engine takes memory that no other view needs.
    from policyd.questions.policy_decisions import (  # noqa: PLC0415
        ObjectRequest,
        field_origins,
        namespace_of,
    )

    about: dict[str, Any] = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
    namespace = await namespace_of(reader, subject.namespace)
    return await field_origins(policies, ObjectRequest(about, namespace, _UNKNOWN_USER))


VIEW: Final = PageView(
    path="/jobs/{namespace}/{kind}/{name}",
    title="Job",
    template="job.html",
    read=_read,
    build=job_view,
    live=("summary", "timeline", "pods"),
    shared=False,
    in_menu=False,
)
