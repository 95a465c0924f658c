"""Questions of reviews to the API server: policyd's account, owners, Workloads and claims.

Owners are looked up where owner references are trusted.

Kueue does not take an owner for one whose UID is another: that one is gone, and the object that
has its name now did not create this one. Where owner references are verified, no owner is looked
up.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

import msgspec
import structlog

from policyd.admission.jobs import Requesters
from policyd.api.admission import UserInfo
from policyd.api.kueue import Workload
from policyd.api.makers import group_kind_of
from policyd.api.meta import Json, Wire
from policyd.cel import CelError
from policyd.engine.model.surroundings import CLAIM_KINDS, missing_claim
from policyd.engine.objects.workloads import value_at
from policyd.errors import PolicydError
from policyd.jobs.kinds.registry import find_kind, find_parent
from policyd.jobs.rules.imported import ImportedObject, has_quota_for
from policyd.kube.client import PartialObject, Reader, Writer
from policyd.kube.errors import ApiError, ForbiddenError, NotFoundError
from policyd.kube.resources import (
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    SELF_SUBJECT_REVIEWS,
    WORKLOADS,
    Resource,
)
from webhooks.external_data.lookups import ExternalAnswer, ExternalLookups, UnansweredError

log = structlog.get_logger(__name__)

EXISTS_SECONDS: Final = 60.0
"""How long the existence of an owner is cached: the pods of one job ask once."""
GONE_SECONDS: Final = 1.0


class ReviewStatus(Wire, frozen=True):
    """The user that asks the API server."""

    user_info: UserInfo = UserInfo()


class SelfReview(Wire, frozen=True):
    """The API server's answer: the user that asks it."""

    status: ReviewStatus = ReviewStatus()


class Owners:
    """Looks owners up.

    Args of the constructor:
        reader: The API server.
        lookups: Fetches the data of reviews.
    """

    def __init__(self, reader: Reader, lookups: ExternalLookups) -> None:
        self._reader = reader
        self._lookups = lookups

    def is_there(self, namespace: str, owner: Mapping[str, Any]) -> bool:
        """Tell whether an owner exists with its UID, or cannot be looked up.

        Raises:
            PendingError: If it is to be asked first.
        """
        kind = find_kind(*group_kind_of(owner)) or find_parent(*group_kind_of(owner))
        if kind is None:
            return True
        resource = Resource(kind.group, kind.version, kind.plural, kind.kind)
        named = (namespace, str(owner.get("name", "")), str(owner.get("uid", "")))
        key = b"owner " + msgspec.json.encode((resource.plural, resource.group, *named))
        try:
            return bool(self._lookups.answer(key, partial(self._ask, resource, *named)))
        except UnansweredError as error:
            log.warning("owner_unknown", kind=kind.kind, name=named[1], reason=str(error))
            return True

    async def _ask(self, resource: Resource, namespace: str, name: str, uid: str) -> ExternalAnswer:
        try:
            found = await self._reader.get(resource, name, namespace=namespace, into=PartialObject)
        except NotFoundError:
            return ExternalAnswer(value=False, seconds=GONE_SECONDS)
        except ForbiddenError as error:
            log.warning("owner_unknown", kind=resource.kind, name=name, reason=str(error))
            return ExternalAnswer(value=True, seconds=EXISTS_SECONDS)
        same = found.metadata.uid == uid
        return ExternalAnswer(value=same, seconds=EXISTS_SECONDS if same else GONE_SECONDS)


async def include_own_account(requesters: Requesters, writer: Writer) -> None:
    """Let the account start pending jobs that this process itself has at the API server.

    Outside of the cluster, that is the controller's as well. An API server that does not say
    changes nothing.
    """
    try:
        review = await writer.create(SELF_SUBJECT_REVIEWS, {}, into=SelfReview)
    except ApiError as error:
        log.warning("own_account_unknown", reason=str(error))
        return
    if review.status.user_info.username:
        requesters.include(review.status.user_info.username)


_AT_ONCE: Final = 0.0
"""How long an answer counts, in seconds: the Workload may get quota, or lose it, at any time."""


class ReservedQuotas:
    """Looks Workloads up.

    Args of the constructor:
        reader: The API server.
        lookups: Fetches the data of reviews.
    """

    def __init__(self, reader: Reader, lookups: ExternalLookups) -> None:
        self._reader = reader
        self._lookups = lookups

    def has_quota(self, obj: ImportedObject) -> bool:
        """Tell whether a Workload has quota for an object; not if it cannot be looked up.

        Raises:
            PendingError: If it is to be looked up first.
        """
        key = f"workload\n{obj.namespace}\n{obj.workload}".encode()
        try:
            found = self._lookups.answer(key, partial(self._ask, obj))
        except UnansweredError:
            return False
        return isinstance(found, Workload) and has_quota_for(found, obj)

    async def _ask(self, obj: ImportedObject) -> ExternalAnswer:
        try:
            found = await self._reader.get(
                WORKLOADS, obj.workload, namespace=obj.namespace, into=Workload
            )
        except NotFoundError:
            return ExternalAnswer(None, _AT_ONCE)
        return ExternalAnswer(found, _AT_ONCE)


_CLAIMS: Final = {each.kind: each for each in (RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES)}


class Claims:
    """Looks up the claims of pods and their templates, for policies that count devices.

    Each review asks anew, and reviews at the same time share the answer: a user may delete a
    template, and create a larger one of the same name, between two pods.

    Args of the constructor:
        reader: The API server.
        lookups: Fetches the data of reviews.
    """

    def __init__(self, reader: Reader, lookups: ExternalLookups) -> None:
        self._reader = reader
        self._lookups = lookups

    def spec(self, namespace: str, kind: str, name: str) -> Json:
        """Return the specification of a claim.

        Raises:
            CelError: If it does not exist, cannot be read, or is to be asked for first.
        """
        key = b"claim " + msgspec.json.encode((kind, namespace, name))
        try:
            found = self._lookups.answer(key, partial(self._ask, namespace, kind, name))
        except PolicydError as error:
            raise CelError(f"{kind} `{name}`: {error}") from error
        if found is None:
            raise missing_claim(namespace, kind, name)
        return cast("Json", found)

    async def _ask(self, namespace: str, kind: str, name: str) -> ExternalAnswer:
        try:
            found = await self._reader.get(
                _CLAIMS[kind], name, namespace=namespace, into=dict[str, Any]
            )
        except NotFoundError:
            return ExternalAnswer(None, _AT_ONCE)
        return ExternalAnswer(value_at(found, CLAIM_KINDS[kind]), _AT_ONCE)
