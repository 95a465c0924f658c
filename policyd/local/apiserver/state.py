"""The state that all handlers share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from policyd.clock import Clock
from policyd.local.apiserver.admission.chain import AdmissionChain
from policyd.local.apiserver.openapi.document import Documents
from policyd.local.apiserver.reading.watch import Watcher
from policyd.local.apiserver.registry import Registry
from policyd.local.apiserver.requests import ApiRequest
from policyd.local.apiserver.status import Object, not_found
from policyd.local.apiserver.store import Store

PodLog = Callable[[Object, str], str]
"""Gives the log of a pod's container, by the pod and the container's name."""


def no_log(_pod: Object, _container: str) -> str:
    """Return an empty log, for pods that are not run."""
    return ""


@dataclass(slots=True, kw_only=True)
class ServerState:
    """The server's parts, and the watches under way."""

    store: Store
    registry: Registry
    documents: Documents
    clock: Clock
    admission: AdmissionChain
    pod_log: PodLog = no_log
    watchers: set[Watcher] = field(default_factory=set)

    def find(self, request: ApiRequest) -> Object:
        """Return the object that a request names.

        Raises:
            StatusError: 404, if it is not there.
        """
        served, target = request.served, request.target
        found = self.store.get(served.storage, target.namespace, target.name)
        if found is None:
            raise not_found(served.resource, target.name)
        return found
