"""Replaces webhook configurations that are registered under their former name.

Known for one release. The API server learns of writes to a kind in their order: who deletes the
former configuration after having read the new one leaves no moment without either.
"""

from collections.abc import Mapping

import structlog

from policyd.api.meta import Json
from policyd.kube.client import Client
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.resources import Resource
from policyd.registration.configurations import FORMER_NAME, NAME

HINT = f"`kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration {FORMER_NAME}`"

log = structlog.get_logger(__name__)


class FormerConfigurations:
    """The two configurations under their former name.

    Args of the constructor:
        client: The API server.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._refused = False

    async def current(self, resource: Resource) -> Json | None:
        """Return one of them; None if there is none, or the role of the account omits the name."""
        try:
            return await self._client.get(resource, FORMER_NAME, into=dict)
        except (ForbiddenError, NotFoundError):
            return None

    async def retire(self, wanted: Mapping[Resource, Json]) -> None:
        """Delete each whose successor is in the API server as it should be.

        Args:
            wanted: The successors, by their kind.

        Raises:
            ApiError: If the API server does not answer.
        """
        for resource, configuration in wanted.items():
            if await self.current(resource) is not None and await self._succeeded(
                resource, configuration
            ):
                await self._delete(resource)

    async def _succeeded(self, resource: Resource, wanted: Json) -> bool:
        """Tell whether the successor is registered with all its rules and authorities."""
        try:
            successor = await self._client.get(resource, NAME, into=dict)
        except NotFoundError:
            return False
        return bool(successor.get("webhooks", []) == wanted["webhooks"])

    async def _delete(self, resource: Resource) -> None:
        try:
            await self._client.delete(resource, FORMER_NAME)
        except NotFoundError:  # another replica was faster
            return
        except ForbiddenError as error:
            if not self._refused:
                log.warning("former_configuration_kept", reason=str(error), hint=HINT)
            self._refused = True
            return
        log.info("former_configuration_deleted", kind=resource.kind, name=FORMER_NAME)
