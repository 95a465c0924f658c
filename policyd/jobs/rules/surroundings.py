"""The inputs of the webhooks besides the object that is created or changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from policyd.api.meta import Json
from policyd.jobs.integrations import EVERYTHING, Integrations

Requester = Literal["queue", "system", "user"]
"""The user of a change: the queue's own accounts, Kubernetes' own controllers, or any other."""


def believed(_owner: Mapping[str, Any]) -> bool:
    """Return that an owner exists, without a lookup."""
    return True


def kept(_queue: str) -> bool:
    """Return that the jobs of a queue stay in their cluster."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """The inputs besides the object.

    Attributes:
        integrations: Which kinds of jobs queue, and where.
        default_queue: Whether the namespace has a LocalQueue named `default`.
        default_class: Whether there is a WorkloadPriorityClass named `default`.
        basis: The object that it is made from, if it names one; None if not available.
        requester: The kind of user; only the queue's controller takes pending jobs out of it.
        account: The account that creates or changes the object.
        before: The old object, if it is changed.
        sent_away: Tells whether the jobs of a LocalQueue of the namespace go to other clusters.
        is_there: Tells whether an owner exists, by its UID; asked where owners are trusted.
        imported: Whether the object runs and comes into a queue where it has quota already.
    """

    integrations: Integrations = EVERYTHING
    default_queue: bool = False
    default_class: bool = False
    basis: Json = None
    requester: Requester = "queue"
    account: str = ""
    before: Json = None
    sent_away: Callable[[str], bool] = kept
    is_there: Callable[[Mapping[str, Any]], bool] = believed
    imported: bool = False


NOWHERE = JobContext()
"""Where only the queue counts that an object names itself."""
