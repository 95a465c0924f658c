"""What if: what a change would change, and what becomes of a manifest. Nothing is written."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from policyd.api.admission import UserInfo
from policyd.api.meta import Json
from policyd.dashboard.view import PageRequest, PageView
from policyd.dashboard.views.what_if import (
    ReadVerdict,
    WhatIfForm,
    WhatIfRead,
    form_of,
    what_if_view,
)
from policyd.errors import PolicydError
from policyd.kube.client import Client
from policyd.questions.policies import ClusterPolicies, cluster_policies
from policyd.questions.queue_objects import configuration_of, queue_objects, request_objects
from policyd.questions.unqueued_jobs import resource_of_job
from policyd.questions.what_if_changes import (
    DryRunObject,
    QueueChange,
    WhatIfChange,
    WhatIfError,
    changed_queues,
    manifests_in,
    tried,
)

AT_A_TIME: Final = 2
"""Changes that are tried at the same time; each takes a core for as long as it is simulated."""
READING_SECONDS: Final = 20.0
"""For how long the objects of the cluster are read."""


class WhatIfRuns:
    """Tries changes, a few at a time, and one of each user."""

    def __init__(self) -> None:
        self._running: set[str] = set()

    async def answer(self, request: PageRequest, fields: Mapping[str, str]) -> WhatIfRead:
        """Try what a form says; what cannot be tried is a sentence beside the form."""
        form = form_of(fields)
        user = request.session.identity.team
        if user in self._running:
            return WhatIfRead(form, problem="you are trying a change already: wait for its answer")
        if len(self._running) >= AT_A_TIME:
            return WhatIfRead(form, problem="others are trying changes: try again in a moment")
        self._running.add(user)
        try:
            return await _answer(request, form)
        except PolicydError as error:
            return WhatIfRead(form, problem=str(error), hint=error.hint or "")
        finally:
            self._running.discard(user)


async def _answer(request: PageRequest, form: WhatIfForm) -> WhatIfRead:
    given = await manifests_in(form.text) if form.text.strip() else []
    if not given and not form.deleted and not form.lost_nodes:
        raise WhatIfError("there is nothing to try", hint="paste a manifest, or name what goes")
    namespace = request.scope or "default"
    results: list[DryRunObject] = []
    if form.mode != "apply":
        results = [await tried(request.client, each, namespace) for each in given]
    verdicts = await _verdicts(request, results)
    notes: list[str] = []
    answer = None
    try:
        change = _change(form, given, results, namespace)
        answer = None if change is None else await _tried(request.client, change, notes)
    except PolicydError as error:
        if not verdicts:
            raise
        notes.append(f"the queues could not be compared: {error}")
    warnings = () if answer is None else answer.warnings
    return WhatIfRead(
        form,
        verdicts=verdicts,
        answer=None if answer is None else answer.answer,
        notes=(*notes, *warnings),
    )


def _change(
    form: WhatIfForm, given: Sequence[Json], results: Sequence[DryRunObject], namespace: str
) -> QueueChange | None:
    """Return the change of the queues; None if nothing changes for them."""
    submitted = [
        each.stored
        for each in results
        if each.stored is not None and resource_of_job(each.stored) is not None
    ]
    applied = tuple(given) if form.mode == "apply" else ()
    if not submitted and not applied and not form.deleted and not form.lost_nodes:
        return None
    return QueueChange(
        submitted=tuple(map(_plain, submitted)),
        applied=applied,
        deleted=form.deleted,
        lost_nodes=form.lost_nodes,
        namespace=namespace,
        until=form.until,
        assume=form.assume,
    )


def _plain(stored: dict[str, Json]) -> Json:
    metadata = {k: v for k, v in (stored.get("metadata") or {}).items() if k != "managedFields"}
    return {**stored, "metadata": metadata}


async def _tried(client: Client, change: QueueChange, notes: list[str]) -> WhatIfChange:
    try:
        async with asyncio.timeout(READING_SECONDS):
            objects = await queue_objects(client, notes.append)
            objects += await configuration_of(client, notes.append)
            objects += await request_objects(client, objects, notes.append)
    except TimeoutError:
        raise WhatIfError("the cluster's objects were not read in time") from None
    return await changed_queues(objects, change)


async def _verdicts(
    request: PageRequest, results: Sequence[DryRunObject]
) -> tuple[ReadVerdict, ...]:
    """Return what becomes of objects, with what policies set in them."""
    # Imported only here: the engine takes memory that no other view needs.
    from policyd.questions.policy_decisions import (  # noqa: PLC0415
        ObjectRequest,
        field_origins,
        namespace_of,
    )

    policies: ClusterPolicies | None = None
    if any(each.stored for each in results):
        try:
            policies = await cluster_policies(request.client)
        except PolicydError:
            policies = None
    identity = request.session.identity
    name = "" if identity.how == "link" else identity.name
    user = UserInfo(username=name, groups=identity.groups)
    found = []
    for each in results:
        origins = None
        if each.stored is not None:
            within = str((each.stored.get("metadata") or {}).get("namespace") or "")
            namespace = await namespace_of(request.client, within) if within else None
            origins = await field_origins(policies, ObjectRequest(each.stored, namespace, user))
        found.append(ReadVerdict(each.sent, each.refusal, each.warnings, origins))
    return tuple(found)


async def _read(request: PageRequest) -> WhatIfRead:
    return WhatIfRead(form_of(request.query))


VIEW: Final = PageView(
    path="/what-if",
    title="What if",
    template="what-if.html",
    read=_read,
    build=what_if_view,
    shared=False,
    submit=WhatIfRuns().answer,
)
