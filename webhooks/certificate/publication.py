"""Keeps the webhook configurations in the API server as they should be."""

import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

import structlog

from policyd.api.meta import Json
from policyd.certificates import split_bundle
from policyd.errors import ConfigurationError
from policyd.kube.client import Client
from policyd.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from policyd.kube.resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Resource,
)
from policyd.registration.configurations import (
    FORMER_NAME,
    NAME,
    Registration,
    mutating_configuration,
    validating_configuration,
)
from policyd.registration.exclusions import LEFT_OUT, named_in_vain
from webhooks.certificate.old_versions import OldVersions

CONFIGURATIONS = (MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS)

REMEDY = "`helm upgrade` brings them back"
"""The hint if the configurations are missing, and policyd may not create them."""

LEFT_OUT_REMEDY = "`--leave-out` says so; of the chart, `selfRestriction.secrets`"
"""The hint if policies name resources that are not sent."""

FORMER_HINT = (
    f"`kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration {FORMER_NAME}`"
)
"""The hint if the configurations under their former name cannot be deleted."""

log = structlog.get_logger(__name__)


class _NotOursError(Exception):
    """A configuration is missing, and part of the installation."""


class Publication:
    """The two configurations: created and kept if set to, else only given the certificate to trust.

    Args of the constructor:
        client: The API server.
        wanted: Returns the wanted configurations, given the authorities to trust; None changes
            only these authorities.
        old_versions: The conversion of v1beta1, if it is served.
    """

    def __init__(
        self,
        client: Client,
        wanted: Callable[[bytes], Awaitable[Registration]] | None,
        old_versions: OldVersions | None = None,
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._old_versions = old_versions
        self._former = FormerConfigurations(client)
        self._left_out: set[str] = set()
        self.missing: tuple[str, ...] = ()
        """Kinds of the configurations that were not there last, and that we may not make."""

    async def publish(self, ca_bundle_pem: bytes) -> frozenset[bytes]:
        """Bring all up to date, and return the authorities that all of them trust now.

        A conflict with another replica is not a failure: both write the same, and check later.

        Raises:
            ApiError: If the API server does not answer, or does not allow it.
        """
        if self._wanted is not None:
            await self._register(await self._wanted(ca_bundle_pem))
        elif ca_bundle_pem:
            for resource in CONFIGURATIONS:
                await self._trust(resource, await self._current(resource), ca_bundle_pem)
        if ca_bundle_pem:
            for resource in CONFIGURATIONS:
                await self._trust(resource, await self._former.current(resource), ca_bundle_pem)
        converting = await self._old_versions.publish(ca_bundle_pem) if self._old_versions else ()
        return await self._trusted(ca_bundle_pem, converting)

    def _log_left_out(self, wanted: Registration) -> None:
        """Log once that policies name resources that are not sent."""
        sent = (("mutate", wanted.rules.mutate), ("validate", wanted.rules.validate))
        found = set().union(*(named_in_vain(c, verb, wanted.left_out) for verb, c in sent))
        if found - self._left_out:
            log.warning("policies_excluded", about=sorted(found), hint=LEFT_OUT_REMEDY)
        self._left_out = found

    async def _register(self, wanted: Registration) -> None:
        """Register the wanted configurations; without conditions, if the API server refuses these.

        It may be older, or know other functions, than the policies were written for. More calls
        than needed are better than none.
        A policy of the API server may forbid calls for some resources: then all others are
        registered, so that one policy that names these does not keep the others from their calls.

        Raises:
            InvalidError: If the API server refuses even these.
        """
        try:
            await self._keep_both(wanted)
        except InvalidError as error:
            wanted = await self._register_less(wanted, error)
        self._log_left_out(wanted)

    async def _register_less(self, wanted: Registration, refused: InvalidError) -> Registration:
        """Register the most that the API server takes, and return it."""
        both = tuple(LEFT_OUT)
        excluding = [
            replace(wanted, left_out=tuple({*wanted.left_out, *names}))
            for names in (*((name,) for name in both), both)
        ]
        for less in (wanted.unconditional, *excluding):
            with suppress(InvalidError):
                await self._keep_both(less)
                hint = None if less.left_out == wanted.left_out else LEFT_OUT_REMEDY
                log.warning("registered_in_part", reason=str(refused), hint=hint)
                return less
        raise refused

    async def _keep_both(self, wanted: Registration) -> None:
        configurations = {
            MUTATING_WEBHOOK_CONFIGURATIONS: mutating_configuration(wanted),
            VALIDATING_WEBHOOK_CONFIGURATIONS: validating_configuration(wanted),
        }
        missing = [
            resource.kind
            for resource, configuration in configurations.items()
            if not await self._keep(resource, configuration)
        ]
        await self._former.retire(configurations)
        if missing and tuple(missing) != self.missing:
            log.error("configurations_missing", name=NAME, kinds=missing, hint=REMEDY)
        self.missing = tuple(missing)

    async def _keep(self, resource: Resource, wanted: Json) -> bool:
        """Bring one up to date; tell whether it exists."""
        try:
            current = await self._current(resource)
            if current is None:
                await self._create(resource, wanted)
            elif current.get("webhooks", []) != wanted["webhooks"]:
                await self._write(resource, current, wanted["webhooks"])
            else:
                return True
        except (AlreadyExistsError, ConflictError):
            return True
        except _NotOursError:
            return False
        log.info("webhooks_registered", kind=resource.kind, webhooks=len(wanted["webhooks"]))
        return True

    async def _create(self, resource: Resource, wanted: Json) -> None:
        try:
            await self._client.create(resource, wanted, into=dict)
        except ForbiddenError as error:
            raise _NotOursError from error

    async def _trust(self, resource: Resource, current: Json | None, ca_bundle_pem: bytes) -> None:
        """Have a configuration, if there is one, trust these authorities."""
        if current is None:
            return
        text = base64.b64encode(ca_bundle_pem).decode()
        webhooks = [
            {**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": text}}
            for webhook in current.get("webhooks", [])
        ]
        if webhooks == current.get("webhooks", []):
            return
        try:
            await self._write(resource, current, webhooks)
        except (ConflictError, NotFoundError):
            return
        log.info("authorities_published", kind=resource.kind, name=current["metadata"]["name"])

    async def _write(self, resource: Resource, current: Json, webhooks: list[Json]) -> None:
        metadata = current["metadata"]
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "webhooks": webhooks,
        }
        await self._client.patch(resource, metadata["name"], patch, into=dict)

    async def _current(self, resource: Resource) -> Json | None:
        try:
            return await self._client.get(resource, NAME, into=dict)
        except NotFoundError:
            return None

    async def _trusted(self, ca_bundle_pem: bytes, others: Iterable[Json]) -> frozenset[bytes]:
        trusted = frozenset(split_bundle(ca_bundle_pem))
        configs = list(others)
        for resource in CONFIGURATIONS:
            for current in (await self._current(resource), await self._former.current(resource)):
                configs += [w.get("clientConfig", {}) for w in (current or {}).get("webhooks", [])]
        for bundle in _bundles(configs):
            trusted &= bundle
        return trusted


def _bundles(configs: Iterable[Json]) -> Iterable[frozenset[bytes]]:
    for config in configs:
        text = config.get("caBundle", "")
        try:
            yield frozenset(split_bundle(base64.b64decode(text)))
        except (ConfigurationError, binascii.Error):
            yield frozenset()  # another text is set: no authority of policyd is trusted


class FormerConfigurations:
    """The two configurations under their former name, which is known for one release.

    The API server learns of writes to a kind in their order: deleting the former configuration
    after the new one was read leaves no moment without either.

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
                log.warning("former_configuration_kept", reason=str(error), hint=FORMER_HINT)
            self._refused = True
            return
        log.info("former_configuration_deleted", kind=resource.kind, name=FORMER_NAME)
