"""Says in the status of each Policy and PolicyBinding whether it counts, and if not, why."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NoReturn

import msgspec
import structlog

from policyd.api.meta import (
    Condition,
    find_condition,
    timestamp,
    with_condition,
)
from policyd.api.policy import BindingObject, PolicyObject, PolicyStatus
from policyd.controller.patches import merge_patch
from policyd.engine.compile.load import load_document
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.bindings import needs_binding
from policyd.errors import did_you_mean
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.client import Client, PartialObject
from policyd.kube.errors import ApiError, NotFoundError
from policyd.kube.informer import Informer
from policyd.kube.pace import Pace
from policyd.kube.resources import POLICIES, POLICY_BINDINGS
from policyd.kube.workqueue import WorkQueue

READY = "Ready"
"""The type of the condition that says whether a policy can be used."""

IN_FORCE = "InForce"
"""The type of the condition that is there while an earlier generation is used instead. It bears
that generation's number."""

LONGEST_MESSAGE = 32768
"""The longest message of a condition that the API server allows."""

BINDINGS_SECONDS = 30.0
"""How long the kind PolicyBinding is waited for, which may be missing."""

STAND_BY_SECONDS = 2.0
"""How often a stand-by looks whether it leads now."""

log = structlog.get_logger(__name__)


_Key = tuple[str, str]
"""Kind and name."""


def policy_status(policy: PolicyObject, *, now: float, bound: bool = False) -> PolicyStatus:
    """Return the status that a policy should have.

    Args:
        policy: The object, with the status it has.
        now: Seconds since the epoch, for a condition that changes.
        bound: Whether a binding names it.
    """
    loaded = load_document(Document(policy.value, policy.metadata.name))
    generation = policy.metadata.generation
    ready = _ready(loaded.findings, generation, timestamp(now))
    for compiled in loaded.policies if ready.status == "True" else ():
        if needs_binding(compiled) and not bound and not compiled.shadow_of:
            ready = msgspec.structs.replace(
                ready,
                status="False",
                reason="Unbound",
                message=f"has no effect until a PolicyBinding has `policyName: {compiled.name}`",
            )
        elif compiled.shadow_of:
            message = f"is not enforced: its differences from `{compiled.shadow_of}` is reported"
            ready = msgspec.structs.replace(ready, reason="Shadow", message=message)
    old = policy.status.conditions if policy.status else ()
    earlier = _earlier(old, ready) if ready.reason == "Invalid" else None
    kept = tuple(c for c in with_condition(old, ready) if c.type != IN_FORCE)
    conditions = kept if earlier is None else (*kept, earlier)
    return PolicyStatus(observed_generation=generation, conditions=conditions)


def binding_status(binding: BindingObject, policies: Iterable[str], *, now: float) -> PolicyStatus:
    """Return the status that a binding should have.

    Args:
        binding: The object, with the status it has.
        policies: The names of the Policy objects there are.
        now: Seconds since the epoch, for a condition that changes.
    """
    generation, name = binding.metadata.generation, binding.policy_name
    loaded = load_document(Document(binding.value, binding.metadata.name))
    ready = _ready(loaded.findings, generation, timestamp(now))
    known = sorted(policies)
    if ready.status == "True" and name in known:
        ready = msgspec.structs.replace(ready, reason="Bound")
    elif ready.status == "True":
        near = did_you_mean(name, known)
        message = (
            f"Policy object `{name}` not found: this has no effect unless the webhooks load that"
            f" policy from a file{f' ({near})' if near else ''}"
        )
        ready = msgspec.structs.replace(
            ready, status="Unknown", reason="PolicyNotFound", message=message
        )
    old = binding.status.conditions if binding.status else ()
    return PolicyStatus(observed_generation=generation, conditions=with_condition(old, ready))


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
        self._queue: WorkQueue[_Key] = WorkQueue(pace=pace)
        self.policies = Informer(
            client, POLICIES, into=PolicyObject, on_change=self._policy_changed, pace=pace
        )
        """To be run beside `run`, as `bindings` is."""
        self.bindings = Informer(
            client, POLICY_BINDINGS, into=BindingObject, on_change=self._binding_changed, pace=pace
        )

    async def run(self) -> NoReturn:
        """Write statuses until cancelled."""
        await self.policies.synced.wait()
        await self._pace.wait(self.bindings.synced, BINDINGS_SECONDS)
        while True:
            while not self._leading():
                await self._pace.sleep(STAND_BY_SECONDS)
            key = await self._queue.get()
            try:
                await self.reconcile(key)
            except ApiError as error:
                wait = self._queue.requeue(key)
                log.warning("policy_status_late", object=key, seconds=wait, reason=str(error))
            else:
                self._queue.forget(key)
            finally:
                self._queue.done(key)

    async def reconcile(self, key: _Key) -> None:
        """Write the status of one object if it is not what it should be.

        Raises:
            ApiError: If it cannot be written; an object that is gone is no error.
        """
        kind, name = key
        given = (self.policies if kind == "Policy" else self.bindings).store.get(name)
        if given is None:
            return
        if not self._leading():
            self._queue.add(key)  # for when this process leads again
            return
        status = self._status(given)
        if status == given.status:
            return
        patch = merge_patch(given.metadata, status=status)
        resource = POLICIES if kind == "Policy" else POLICY_BINDINGS
        try:
            await self._client.patch(
                resource, name, patch, subresource="status", into=PartialObject
            )
        except NotFoundError:
            return
        condition = find_condition(status.conditions, READY)
        assert condition is not None, "a status says whether its object is ready"
        said = {"ready": condition.status, "reason": condition.reason, "message": condition.message}
        log.info("policy_status_written", object=f"{kind} {name}", **said)

    def _status(self, given: PolicyObject | BindingObject) -> PolicyStatus:
        now = self._pace.clock.now()
        if isinstance(given, BindingObject):
            return binding_status(given, self.policies.store, now=now)
        name = given.metadata.name
        bound = any(binding.policy_name == name for binding in self.bindings.store.values())
        return policy_status(given, now=now, bound=bound)

    def _policy_changed(self, change: Change[PolicyObject]) -> None:
        self._queue.add(("Policy", change.object.metadata.name))
        match change:
            case Added() | Deleted():
                for binding in self.bindings.store.values():
                    self._queue.add(("PolicyBinding", binding.metadata.name))
            case Modified():
                pass

    def _binding_changed(self, change: Change[BindingObject]) -> None:
        self._queue.add(("PolicyBinding", change.object.metadata.name))
        if isinstance(change, Modified):
            self._queue.add(("Policy", change.old.policy_name))
        self._queue.add(("Policy", change.object.policy_name))
