"""Writes to the status of each Policy and PolicyBinding whether it has an effect, and if not, why.

Policies are loaded in a thread, one at a time and with rests, so that none delays the queue. No
more of them are kept in memory than the webhooks load.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from datetime import datetime
from functools import partial
from typing import Final, NoReturn, TypeVar

import msgspec
import structlog

from policyd.api.meta import (
    Condition,
    ObjectMeta,
    find_condition,
    timestamp,
    with_condition,
    without_condition,
)
from policyd.api.policy import BindingObject, PolicyObject, PolicyStatus
from policyd.clock import cpu_limit
from policyd.controller.patches import merge_patch
from policyd.engine.compile.load import Loaded, load_document
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.bindings import needs_binding
from policyd.errors import did_you_mean
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.client import Client, PartialObject
from policyd.kube.errors import ApiError, NotFoundError
from policyd.kube.informer import Informer
from policyd.kube.namespace_limits import (
    MOST_POLICIES,
    MOST_POLICY_BYTES,
    POLICIES_AT_A_TIME,
    NamespaceLimits,
)
from policyd.kube.pace import Pace
from policyd.kube.resources import POLICIES, POLICY_BINDINGS
from policyd.kube.workqueue import WorkQueue

READY = "Ready"
"""The type of the condition that says whether a policy can be used."""

IN_FORCE = "InForce"
"""The type of the condition that exists while an earlier generation is used instead. It bears
that generation's number."""

LONGEST_MESSAGE = 32768
"""Characters of a condition's message, at most: the API server's limit."""

TOO_MANY: Final = "TooMany"
"""The reason of `Ready` where a policy is not loaded, as there are too many."""

BINDINGS_SECONDS = 30.0
"""How long the kind PolicyBinding is waited for, which may be missing."""

LONGEST_REST: Final = 10.0
"""Seconds to rest after a policy, at most."""

STAND_BY_SECONDS = 2.0
"""How often a stand-by looks whether it leads now."""

log = structlog.get_logger(__name__)


_Key = tuple[str, str]
"""Kind and name."""

Stored = TypeVar("Stored", PolicyObject, BindingObject)


def policy_status(policy: PolicyObject, *, now: float, bound: bool = False) -> PolicyStatus:
    """Return the status that a policy should have.

    Args:
        policy: The object, with the status it has.
        now: Seconds since the epoch, for a condition that changes.
        bound: Whether a binding names it.
    """
    loaded = _loaded(Document(policy.value, policy.metadata.name))
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
    kept = without_condition(with_condition(old, ready), IN_FORCE)
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
    loaded = _loaded(Document(binding.value, binding.metadata.name))
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


def _loaded(document: Document) -> Loaded:
    return load_document(document, out_of_time=cpu_limit())


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


def too_many_status(
    given: PolicyObject | BindingObject, reason: str, *, now: float
) -> PolicyStatus:
    """Return the status that a policy or binding beyond the limits should have."""
    generation = given.metadata.generation
    ready = Condition(
        type=READY,
        status="False",
        reason=TOO_MANY,
        message=reason,
        last_transition_time=timestamp(now),
        observed_generation=generation,
    )
    old = given.status.conditions if given.status else ()
    kept = without_condition(with_condition(old, ready), IN_FORCE)
    return PolicyStatus(observed_generation=generation, conditions=kept)


class PolicyStatuses:
    """Keeps the statuses up to date, while it leads; writes only statuses that changed.

    Args of the constructor:
        client: The API server.
        leading: Tells whether this process may write.
        executor: Loads policies, in a thread.
        pace: Time.
        limits: Of the policies that are loaded.
    """

    def __init__(
        self,
        client: Client,
        *,
        leading: Callable[[], bool],
        executor: Executor,
        pace: Pace,
        limits: NamespaceLimits | None = None,
    ) -> None:
        self._client = client
        self._leading = leading
        self._executor = executor
        self._pace = pace
        self._limits = limits or NamespaceLimits(MOST_POLICIES, MOST_POLICY_BYTES)
        self._queue: WorkQueue[_Key] = WorkQueue(pace=pace)
        self._written: dict[str, PolicyStatus] = {}
        """The statuses of Policies that this process wrote: judging one again takes a while."""
        self.policies = Informer(
            client,
            POLICIES,
            into=PolicyObject,
            on_change=self._policy_changed,
            trim=partial(self._kept, "Policy"),
            page_limit=POLICIES_AT_A_TIME,
            pace=pace,
        )
        """To be run beside `run`, as `bindings` is."""
        self.bindings = Informer(
            client,
            POLICY_BINDINGS,
            into=BindingObject,
            on_change=self._binding_changed,
            trim=partial(self._kept, "PolicyBinding"),
            page_limit=POLICIES_AT_A_TIME,
            pace=pace,
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
            except Exception:  # a bug with one policy must not affect the others
                log.exception("policy_status_error", object=key)
                self._queue.forget(key)
            else:
                self._queue.forget(key)
            finally:
                self._queue.done(key)

    async def reconcile(self, key: _Key) -> None:
        """Write the status of one object if it changed.

        Raises:
            ApiError: If it cannot be written; a deleted object is not an error.
        """
        kind, name = key
        given = (self.policies if kind == "Policy" else self.bindings).store.get(name)
        if given is None:
            return
        if not self._leading():
            self._queue.add(key)  # for when this process leads again
            return
        status = await self._status(key, given)
        if status == given.status:
            return
        if kind == "Policy":
            self._written[name] = status
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
        fields = {
            "ready": condition.status,
            "reason": condition.reason,
            "message": condition.message,
        }
        log.info("policy_status_written", object=f"{kind} {name}", **fields)

    async def _status(self, key: _Key, given: PolicyObject | BindingObject) -> PolicyStatus:
        now, began = self._pace.clock.now(), self._pace.clock.monotonic()
        if self._limits.left_out("", key) is not None:
            return too_many_status(given, self._limits.too_many(""), now=now)
        if isinstance(given, BindingObject):
            work = partial(binding_status, given, tuple(self.policies.store), now=now)
        else:
            name = given.metadata.name
            bound = any(binding.policy_name == name for binding in self.bindings.store.values())
            work = partial(policy_status, given, now=now, bound=bound)
        status = await asyncio.get_running_loop().run_in_executor(self._executor, work)
        await self._pace.rest(began, most=LONGEST_REST)
        return status

    def _kept(self, kind: str, given: Stored) -> Stored:
        """Return an object as it is kept: without its spec if that is beyond the limits."""
        metadata = given.metadata
        kept = ObjectMeta(
            name=metadata.name,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            generation=metadata.generation,
        )
        size = len(msgspec.json.encode(given.spec))
        if self._limits.put("", (kind, metadata.name), size):
            return msgspec.structs.replace(given, metadata=kept)
        return msgspec.structs.replace(given, metadata=kept, spec=None)

    def _policy_changed(self, change: Change[PolicyObject]) -> None:
        name = change.object.metadata.name
        match change:
            case Modified(old, new) if self._is_own_write(old, new):
                return
            case Deleted():
                self._limits.drop("", ("Policy", name))
            case Added() | Modified():
                pass
        self._written.pop(name, None)
        self._queue.add(("Policy", name))
        if not isinstance(change, Modified):
            for binding in self.bindings.store.values():
                self._queue.add(("PolicyBinding", binding.metadata.name))

    def _is_own_write(self, old: PolicyObject, new: PolicyObject) -> bool:
        """Tell whether only the status changed, to the one that this process wrote."""
        before, after = old.metadata, new.metadata
        return new.status == self._written.get(new.metadata.name) and (
            (before.uid, before.generation) == (after.uid, after.generation)
        )

    def _binding_changed(self, change: Change[BindingObject]) -> None:
        name = change.object.metadata.name
        self._queue.add(("PolicyBinding", name))
        self._queue.add(("Policy", change.object.policy_name))
        match change:
            case Modified(old, _):
                self._queue.add(("Policy", old.policy_name))
            case Deleted():
                self._limits.drop("", ("PolicyBinding", name))
            case Added():
                pass
