"""Who asks for a change: one of the queue's own accounts, of Kubernetes' own, or anybody else."""

from collections.abc import Iterable
from typing import Final

import structlog

from policyd.api.admission import UserInfo
from policyd.api.meta import Wire
from policyd.jobs.rules.surroundings import Author
from policyd.kube.client import Writer
from policyd.kube.errors import ApiError
from policyd.kube.resources import SELF_SUBJECT_REVIEWS

_ACCOUNTS: Final = "system:serviceaccount"
_SYSTEM: Final = f"{_ACCOUNTS}:kube-system:"
_SYSTEM_USERS: Final = frozenset({"system:kube-controller-manager", "system:kube-scheduler"})
"""What Kubernetes' own processes are called where they have no service accounts."""

log = structlog.get_logger(__name__)


class ReviewStatus(Wire, frozen=True):
    """Who asks the API server."""

    user_info: UserInfo = UserInfo()


class SelfReview(Wire, frozen=True):
    """What the API server says of who asks it."""

    status: ReviewStatus = ReviewStatus()


class Authors:
    """Tells who asks for a change.

    Args:
        own_namespace: The namespace of policyd's own accounts.
        starters: Users and groups who may start what waits, besides.
    """

    def __init__(self, own_namespace: str, starters: Iterable[str] = ()) -> None:
        self._own = f"{_ACCOUNTS}:{own_namespace}:"
        self._starters = {f"{_ACCOUNTS}s:{own_namespace}", *starters}

    def author_of(self, user: UserInfo) -> Author:
        """Return who asks for what a review is about."""
        groups, name = user.groups, user.username
        if (
            name.startswith(self._own)
            or name in self._starters
            or not self._starters.isdisjoint(groups)
        ):
            return "queue"
        return "system" if name in _SYSTEM_USERS or name.startswith(_SYSTEM) else "user"

    async def include_own(self, writer: Writer) -> None:
        """Count in the account that this process itself has at the API server.

        Outside of the cluster, that is the controller's as well. An API server that does not say
        changes nothing.
        """
        try:
            review = await writer.create(SELF_SUBJECT_REVIEWS, {}, into=SelfReview)
        except ApiError as error:
            log.warning("own_account_unknown", reason=str(error))
            return
        if review.status.user_info.username:
            self._starters.add(review.status.user_info.username)


NOBODY_KNOWN: Final = Authors("policyd")
"""Where nobody said who may start what waits."""
