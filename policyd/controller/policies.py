"""Says in the status of each Policy object whether it is in force, and if not, why and where."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NoReturn

import structlog

from policyd.api.meta import (
    Condition,
    Json,
    ObjectMeta,
    Wire,
    find_condition,
    timestamp,
    with_condition,
)
from policyd.api.policy import API_VERSION, PolicyStatus
from policyd.controller.patches import merge_patch
from policyd.engine.documents import Document
from policyd.engine.findings import Finding
from policyd.engine.load import load_document
from policyd.kube.client import Client, PartialObject
from policyd.kube.errors import ApiError, NotFoundError
from policyd.kube.informer import Informer
from policyd.kube.pace import Pace
from policyd.kube.resources import POLICIES
from policyd.kube.workqueue import WorkQueue

READY = "Ready"
"""The type of the condition that says whether a policy can be used."""

IN_FORCE = "InForce"
"""The type of the condition that is there while an earlier generation is used instead. It bears
that generation's number."""

LONGEST_MESSAGE = 32768
"""What the API server allows a condition's message to have."""

STAND_BY_SECONDS = 2.0
"""How often a stand-by looks whether it leads now."""

log = structlog.get_logger(__name__)


class PolicyObject(Wire, frozen=True):
    """A Policy object as the API server keeps it: its spec is read later, mistakes and all."""

    metadata: ObjectMeta
    spec: Json = None
    status: PolicyStatus | None = None

    @property
    def document(self) -> Document:
        """The object as the engine loads it; in findings it goes by its name."""
        return _document("Policy", self.metadata.name, self.spec)


class BindingObject(Wire, frozen=True):
    """A PolicyBinding object as the API server keeps it."""

    metadata: ObjectMeta
    spec: Json = None

    @property
    def document(self) -> Document:
        """The object as the engine loads it; in findings it goes by its name."""
        return _document("PolicyBinding", self.metadata.name, self.spec)


def _document(kind: str, name: str, spec: Json) -> Document:
    value = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
    return Document(value, name)


def policy_status(policy: PolicyObject, *, now: float) -> PolicyStatus:
    """Return the status that a policy should have.

    Args:
        policy: The object, with the status it has.
        now: Seconds since the epoch, for a condition that changes.
    """
    findings = load_document(policy.document).findings
    generation = policy.metadata.generation
    ready = _ready(findings, generation, timestamp(now))
    old = policy.status.conditions if policy.status else ()
    earlier = None if ready.status == "True" else _earlier(old, ready)
    kept = tuple(c for c in with_condition(old, ready) if c.type != IN_FORCE)
    conditions = kept if earlier is None else (*kept, earlier)
    return PolicyStatus(observed_generation=generation, conditions=conditions)


def _earlier(old: tuple[Condition, ...], ready: Condition) -> Condition | None:
    """Say which generation the webhooks go on with, if the policy could be used before."""
    known, before = find_condition(old, IN_FORCE), find_condition(old, READY)
    since = ready.last_transition_time
    if known is not None:
        good, since = known.observed_generation, known.last_transition_time
    elif before is not None and before.status == "True":
        good = before.observed_generation
    else:
        return None
    return Condition(
        type=IN_FORCE,
        status="True",
        reason="EarlierGeneration",
        message=(
            f"generation {good} stays in force until the webhooks restart, since generation"
            f" {ready.observed_generation} does not load"
        ),
        last_transition_time=since,
        observed_generation=good,
    )


def _ready(findings: Sequence[Finding], generation: int, since: datetime) -> Condition:
    valid = all(finding.severity != "error" for finding in findings)
    return Condition(
        type=READY,
        status="True" if valid else "False",
        reason="Compiled" if valid else "Invalid",
        message="\n".join(map(_line, findings))[:LONGEST_MESSAGE],
        last_transition_time=since,
        observed_generation=generation,
    )


def _line(finding: Finding) -> str:
    place = f"{finding.field}: " if finding.field else ""
    hint = f" ({finding.hint})" if finding.hint else ""
    return f"{place}{finding.message}{hint}"


class PolicyStatuses:
    """Keeps the statuses up to date, while it leads; writes only what differs.

    Args of the constructor:
        client: The API server.
        leading: Tells whether this process may write.
        pace: Time.
    """

    def __init__(self, client: Client, *, leading: Callable[[], bool], pace: Pace) -> None:
        self._client = client
        self._leading = leading
        self._pace = pace
        self._queue: WorkQueue[str] = WorkQueue(pace=pace)
        self.informer = Informer(
            client, POLICIES, into=PolicyObject, on_change=self._changed, pace=pace
        )
        """To be run beside `run`."""

    async def run(self) -> NoReturn:
        """Write statuses until cancelled."""
        while True:
            while not self._leading():
                await self._pace.sleep(STAND_BY_SECONDS)
            name = await self._queue.get()
            try:
                await self.reconcile(name)
            except ApiError as error:
                wait = self._queue.requeue(name)
                log.warning("policy_status_late", policy=name, seconds=wait, reason=str(error))
            else:
                self._queue.forget(name)
            finally:
                self._queue.done(name)

    async def reconcile(self, name: str) -> None:
        """Write the status of one policy if it is not what it should be.

        Raises:
            ApiError: If it cannot be written; a policy that is gone is no error.
        """
        policy = self.informer.store.get(name)
        if policy is None:
            return
        if not self._leading():
            self._queue.add(name)  # for when this process leads again
            return
        status = policy_status(policy, now=self._pace.clock.now())
        if status == policy.status:
            return
        patch = merge_patch(policy.metadata, status=status)
        try:
            await self._client.patch(
                POLICIES, name, patch, subresource="status", into=PartialObject
            )
        except NotFoundError:
            return
        condition = find_condition(status.conditions, READY)
        assert condition is not None, "a policy's status says whether it is ready"
        log.info("policy_judged", policy=name, ready=condition.status, message=condition.message)

    def _changed(self, _old: PolicyObject | None, new: PolicyObject | None) -> None:
        if new is not None:
            self._queue.add(new.metadata.name)
