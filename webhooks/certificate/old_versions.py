"""Has the API server serve v1beta1 of Kueue's kinds too, which it asks `/convert` for."""

import structlog

from policyd.admission.conversion import PATH
from policyd.api.crd_v1beta1 import OLD_VERSION, old_versions
from policyd.api.meta import Json
from policyd.field_descriptions import field_descriptions
from policyd.kube.client import Client
from policyd.kube.errors import ConflictError, NotFoundError
from policyd.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from policyd.registration.configurations import Endpoint, client_config

log = structlog.get_logger(__name__)


class OldVersions:
    """The definitions of Kueue's kinds, kept such that v1beta1 is served.

    Definitions that have a v1beta1, as Kueue's own do, keep it; the conversion becomes policyd's.
    """

    def __init__(self, client: Client, endpoint: Endpoint) -> None:
        self._client = client
        self._endpoint = endpoint
        self._versions = old_versions(notes=field_descriptions)

    async def publish(self, ca_bundle_pem: bytes) -> tuple[Json, ...]:
        """Bring all existing definitions up to date; return their clientConfigs.

        Raises:
            ApiError: If the API server does not answer, or does not allow it.
        """
        kept = [await self._keep(name, ca_bundle_pem) for name in self._versions]
        return tuple(config for config in kept if config is not None)

    async def _keep(self, name: str, ca_bundle_pem: bytes) -> Json | None:
        try:
            current = await self._client.get(CUSTOM_RESOURCE_DEFINITIONS, name, into=dict)
        except NotFoundError:
            return None
        spec = current["spec"]
        config = client_config(self._endpoint, PATH, ca_bundle_pem)
        webhook = {"clientConfig": config, "conversionReviewVersions": ["v1"]}
        wanted = {
            "conversion": {"strategy": "Webhook", "webhook": webhook},
            "versions": _with_old(spec["versions"], self._versions[name]),
        }
        if all(spec.get(field) == value for field, value in wanted.items()):
            return config
        version = current["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "spec": wanted}
        try:
            await self._client.patch(CUSTOM_RESOURCE_DEFINITIONS, name, patch, into=dict)
        except ConflictError:  # another replica wants the same
            return {}
        log.info("old_version_served", kind=spec["names"]["kind"], version=OLD_VERSION)
        return config


def _with_old(versions: list[Json], ours: Json) -> list[Json]:
    """Return v1beta1 as others defined it, or `ours` if none or policyd did."""
    theirs = next((v for v in versions if v["name"] == OLD_VERSION), ours)
    mine = theirs.get("deprecationWarning") == ours["deprecationWarning"]
    old = ours if mine else {**theirs, "served": True}
    return [version for version in versions if version["name"] != OLD_VERSION] + [old]
