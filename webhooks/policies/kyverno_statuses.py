"""The statuses of Kyverno's policies: whether they are in force, as Kyverno writes it.

A status is written once the API server is configured to send the policy's requests: tools that
wait for it can rely on the policy from then on. It is written for each version of a policy that is
loaded, and not again when another client changes it, so that two versions of policyd that disagree
about a policy do not overwrite each other. All replicas write the same.
"""

import asyncio
from typing import Final, NamedTuple, NoReturn

import msgspec
import structlog

from policyd.api.meta import Json
from policyd.dialects.kyverno.load import is_kyverno_group
from policyd.dialects.kyverno.statuses import conditions_in, policy_status
from policyd.engine.compile.load import Loaded
from policyd.engine.objects.equivalents import plural_of
from policyd.kube.client import Client, PartialObject
from policyd.kube.errors import ApiError, ForbiddenError, InvalidError, NotFoundError
from policyd.kube.pace import Pace
from policyd.kube.resources import Resource
from webhooks.policies.stored import PolicyKey, StoredPolicy

RETRY_SECONDS: Final = 30.0
"""How soon statuses that could not be written are tried again."""

LONGEST_REST: Final = 1.0
"""Seconds to rest after a status, at most."""

LONGEST_MESSAGE: Final = 4096
"""Characters of a status' message, at most."""

log = structlog.get_logger(__name__)


class _Judgement(NamedTuple):
    policy: StoredPolicy
    fault: str
    at_admission: bool
    loads: int


class KyvernoStatuses:
    """Writes the statuses of Kyverno's policies.

    Args of the constructor:
        client: The API server.
        pace: Time.
    """

    def __init__(self, client: Client, *, pace: Pace) -> None:
        self._client = client
        self._pace = pace
        self._waiting: dict[PolicyKey, _Judgement] = {}
        self._woken = asyncio.Event()
        self._registered = 0

    def judge(self, policy: StoredPolicy, loaded: Loaded, loads: int) -> None:
        """Take what came of a policy, to be written once that is registered; any thread may."""
        if not is_kyverno_group(policy.api_version.rpartition("/")[0]):
            return
        if loaded.background and not loaded.policies:
            return  # `policyd background` acts on it, and says so
        errors = [each for each in loaded.findings if each.severity == "error"]
        lines = [f"{e.field}: {e.message}" if e.field else e.message for e in errors]
        fault = policy.unusable or "\n".join(lines)[:LONGEST_MESSAGE]
        admitted = bool(loaded.policies or loaded.placeholders)
        self._waiting[policy.key] = _Judgement(policy, fault, admitted, loads)

    def registered(self, loads: int) -> None:
        """Take how many of the loads the API server is configured to call for."""
        self._registered = max(self._registered, loads)
        self._woken.set()

    async def run(self) -> NoReturn:
        """Write statuses until cancelled."""
        while True:
            self._woken.clear()
            late = [await self._write(key) for key in tuple(self._waiting)]
            await self._pace.wait(self._woken, RETRY_SECONDS if any(late) else None)

    async def _write(self, key: PolicyKey) -> bool:
        """Write a status if it is time; return whether to try again."""
        judged = self._waiting.pop(key)
        if judged.loads > self._registered:
            self._waiting.setdefault(key, judged)  # unless it was loaded again meanwhile
            return False
        began = self._pace.clock.monotonic()
        policy = judged.policy
        try:
            await self._client.patch(
                _resource(policy),
                policy.metadata.name,
                self._patch(judged),
                into=PartialObject,
                kind="json",
                namespace=policy.metadata.namespace,
                subresource="status",
            )
        except (NotFoundError, ForbiddenError, InvalidError) as error:
            log.info("kyverno_status_not_written", object=key, reason=str(error), hint=error.hint)
            return False
        except ApiError as error:
            log.warning("kyverno_status_late", object=key, reason=str(error))
            self._waiting.setdefault(key, judged)
            return True
        log.info("kyverno_status_written", object=key, ready=not judged.fault)
        await self._pace.rest(began, most=LONGEST_REST)
        return False

    def _patch(self, judged: _Judgement) -> Json:
        policy = judged.policy
        status = policy_status(
            policy.document.value,
            conditions_in(msgspec.json.decode(policy.status)),
            now=self._pace.clock.now(),
            fault=judged.fault,
            at_admission=judged.at_admission,
        )
        return [
            {"op": "test", "path": "/metadata/uid", "value": policy.metadata.uid},
            {"op": "add", "path": "/status", "value": status},
        ]


def _resource(policy: StoredPolicy) -> Resource:
    group, _, version = policy.api_version.rpartition("/")
    plural, namespaced = plural_of(policy.kind), bool(policy.metadata.namespace)
    return Resource(group, version, plural, policy.kind, namespaced=namespaced)
