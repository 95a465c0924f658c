"""Questions of reviews of running jobs to the API server: whether their Workloads have quota."""

from functools import partial
from typing import Final

from policyd.api.kueue import Workload
from policyd.jobs.rules.imported import ImportedObject, has_quota_for
from policyd.kube.client import Reader
from policyd.kube.errors import NotFoundError
from policyd.kube.resources import WORKLOADS
from webhooks.external_data.lookups import ExternalAnswer, ExternalLookups, UnansweredError

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
