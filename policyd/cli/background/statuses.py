"""The statuses that `policyd background` writes on policies: whether they are acted on.

The rights of the account are asked for, as the API server knows them. An answer holds for a while.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog

from policyd.api.meta import Wire, rfc3339
from policyd.cli.background.bounds import LeftOutError, PassOptions
from policyd.cli.background.policies import ROLLOUT, MatchedObjects, ReadPolicy
from policyd.dialects.kyverno.statuses import background_status, conditions_in
from policyd.engine.background.record import name_of
from policyd.engine.model.background import BackgroundPolicy, Deletion, ExistingMutation
from policyd.engine.objects.workloads import value_at
from policyd.kube.client import Client, PartialObject
from policyd.kube.errors import ApiError, NotFoundError
from policyd.kube.resources import Resource

ANSWER_SECONDS: Final = 60.0
"""How long an answer about a right holds."""

_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
_DRY_RUN: Final = (
    f"Dry run: the annotation {ROLLOUT} sets the percentage for which the policy acts."
)

log = structlog.get_logger()


class _Reviewed(Wire, frozen=True):
    allowed: bool = False


class _Review(Wire, frozen=True):
    """The answer to a question about a right."""

    status: _Reviewed = _Reviewed()


class Right(NamedTuple):
    """One verb on one resource; in all namespaces if there is none."""

    verb: str
    resource: Resource
    namespace: str = ""

    def __str__(self) -> str:
        group = f".{self.resource.group}" if self.resource.group else ""
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource.plural}{group}{where}"


@dataclass(slots=True)
class AccountRights:
    """Asks what the account may do."""

    client: Client
    _answers: dict[Right, tuple[bool, float]] = field(default_factory=dict)

    async def missing(self, needed: Iterable[Right], now: float) -> list[str]:
        """Return those of some rights that the account lacks, in words.

        Raises:
            ApiError: If the API server does not say.
        """
        lacking = []
        for each in dict.fromkeys(needed):
            known, until = self._answers.get(each, (False, 0.0))
            if until <= now:
                known = await self._ask(each)
                self._answers[each] = known, now + ANSWER_SECONDS
            if not known:
                lacking.append(str(each))
        return lacking

    async def _ask(self, right: Right) -> bool:
        attributes = {
            "verb": right.verb,
            "group": right.resource.group,
            "version": right.resource.version,
            "resource": right.resource.plural,
            "namespace": right.namespace,
        }
        body = {"spec": {"resourceAttributes": attributes}}
        try:
            return (await self.client.create(_REVIEWS, body, into=_Review)).status.allowed
        except NotFoundError:  # an API server without authorization
            return True


@dataclass(slots=True)
class BackgroundStatuses:
    """Writes the statuses that have changed."""

    client: Client
    rights: AccountRights
    matched: MatchedObjects
    options: PassOptions

    async def write(
        self, policies: Sequence[ReadPolicy], executed: Collection[str], *, now: float
    ) -> None:
        """Write the statuses of policies; what cannot be written is logged.

        Args:
            policies: All policies; of those that decide on requests, the webhooks write it.
            executed: Ids of those whose schedule was carried out.
            now: Seconds since the epoch.
        """
        for each in policies:
            if each.at_requests:
                continue
            try:
                await self._write(each, executed=each.id in executed, now=now)
            except ApiError as error:
                log.warning("background_status_late", policy=each.id, reason=str(error))

    async def _write(self, read: ReadPolicy, *, executed: bool, now: float) -> None:
        before = value_at(read.value, ("status",))
        status = background_status(
            read.value,
            conditions_in(before),
            now=now,
            fault=read.fault,
            missing=await self.rights.missing(await self._needed(read.policy), now),
            note="" if read.percent else _DRY_RUN,
        )
        if executed:
            status["lastExecutionTime"] = rfc3339(now)
        elif value_at(before, ("conditionStatus",)) == status["conditionStatus"]:
            return
        if not self.options.leading():
            return
        name = name_of(read.value)
        await self.client.patch(
            read.resource,
            name.name,
            {"status": status},
            namespace=name.namespace,
            subresource="status",
            into=PartialObject,
        )

    async def _needed(self, policy: BackgroundPolicy | None) -> list[Right]:
        """Return the rights that a policy needs, as far as it says what it is about."""
        if policy is None:
            return []
        namespace = policy.policy.namespace
        try:
            matched = await self.matched.resources(policy)
        except LeftOutError:
            return []
        if isinstance(policy.action, Deletion):
            return [Right(verb, each, namespace) for each in matched for verb in ("list", "delete")]
        rights = [Right(verb, each, namespace) for each in matched for verb in ("list", "watch")]
        if isinstance(policy.action, ExistingMutation):
            return rights + [
                Right(verb, each, namespace)
                for each in await self._mutated(policy, policy.action)
                for verb in ("get", "list", "watch", "update")
            ]
        generated = [each for each in self.options.generates if each.namespaced or not namespace]
        verbs = ("get", "list", "watch", "create", "update", "delete")
        return rights + [Right(verb, each, namespace) for each in generated for verb in verbs]

    async def _mutated(
        self, policy: BackgroundPolicy, action: ExistingMutation
    ) -> Sequence[Resource]:
        """Return the resources that a policy may mutate: all that are listed, if it names them."""
        if action.named is not None:
            return self.options.mutates
        try:
            return await self.matched.resources(policy, action.targets.constraints)
        except LeftOutError:
            return ()
