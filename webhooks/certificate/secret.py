"""An authority of our own, kept in a Secret that all replicas share."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import structlog

from policyd.api.meta import ObjectMeta, Wire
from policyd.certificates import CertificatePair
from policyd.errors import PolicydError
from policyd.kube.client import Client
from policyd.kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from policyd.kube.pace import Pace
from policyd.kube.resources import SECRETS
from webhooks.certificate.rotation import (
    KeptCertificates,
    RotationStep,
    next_step,
    read_secret,
    take_step,
    write_secret,
)

ROUND_SECONDS = 60.0
"""How often the Secret is looked at. Nothing in it is due to the minute."""

STEPS_AT_ONCE = 10
"""More steps in one round than a rotation has mean that two sides undo each other's work."""

log = structlog.get_logger(__name__)


class Secret(Wire, frozen=True):
    """A Secret; its data come and go as base64."""

    metadata: ObjectMeta
    type: str = "Opaque"
    data: dict[str, bytes] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretName:
    """Where a Secret is."""

    namespace: str
    name: str


class KeptCertificate:
    """The certificate to serve, as the Secret has it, renewed in time.

    Every replica does the same work. The Secret's version decides which was first; the others read
    again.

    Args of the constructor:
        client: The API server.
        where: The Secret; it is made if there is none.
        names: The names that the certificate must have.
        publish: Has given authorities trusted by the webhook configurations, and returns those
            that all of them trust.
        use: Is given each new certificate to serve.
        pace: Time.
    """

    def __init__(  # noqa: PLR0913 - the edge where everything meets
        self,
        client: Client,
        where: SecretName,
        *,
        names: Sequence[str],
        publish: Callable[[bytes], Awaitable[frozenset[bytes]]],
        use: Callable[[CertificatePair], None],
        pace: Pace,
    ) -> None:
        self._client = client
        self._where = where
        self._names = names
        self._publish = publish
        self._use = use
        self._pace = pace
        self._in_use: CertificatePair | None = None
        self.bundle_pem = b""
        """The authorities to trust, as the Secret had them last."""

    async def run(self) -> NoReturn:
        """Look at the Secret every minute; failures are logged, and tried again."""
        while True:
            await self._pace.sleep(ROUND_SECONDS)
            try:
                await self.refresh()
            except PolicydError as error:
                log.warning("certificate_not_refreshed", reason=str(error), hint=error.hint)

    async def refresh(self) -> None:
        """Take the next step, and use the certificate that is kept then.

        Raises:
            ApiError: If the API server does not answer, or does not allow it.
            ConfigurationError: If the Secret keeps something else.
        """
        kept = KeptCertificates()
        for _ in range(STEPS_AT_ONCE):
            secret = await self._read()
            kept = read_secret(secret.data) if secret else KeptCertificates()
            step = await self._due(kept)
            if step is RotationStep.NOTHING:
                break
            taken = take_step(kept, step, now=self._pace.clock.now(), names=self._names)
            if await self._write(secret, taken):
                log.info("certificates_rotated", step=step.value)
        self.bundle_pem = kept.bundle_pem
        if kept.leaf is not None and kept.leaf != self._in_use:
            self._use(kept.leaf)
            self._in_use = kept.leaf

    async def _due(self, kept: KeptCertificates) -> RotationStep:
        published = await self._publish(kept.bundle_pem) if kept.authority else frozenset()
        now = self._pace.clock.now()
        return next_step(kept, now=now, names=self._names, published=published)

    async def _read(self) -> Secret | None:
        try:
            return await self._client.get(
                SECRETS, self._where.name, namespace=self._where.namespace, into=Secret
            )
        except NotFoundError:
            return None

    async def _write(self, old: Secret | None, kept: KeptCertificates) -> bool:
        """Write the Secret; tell whether no other replica was faster."""
        data = write_secret(kept)
        try:
            if old is None:
                await self._create(data)
            else:
                await self._change(old, data)
        except (AlreadyExistsError, ConflictError):
            return False
        return True

    async def _create(self, data: dict[str, bytes]) -> None:
        metadata = ObjectMeta(name=self._where.name, namespace=self._where.namespace)
        secret = Secret(metadata=metadata, data=data)
        await self._client.create(SECRETS, secret, namespace=self._where.namespace, into=Secret)

    async def _change(self, old: Secret, data: dict[str, bytes]) -> None:
        gone = dict.fromkeys(old.data.keys() - data.keys())  # null removes, in a merge patch
        patch = {
            "metadata": {"resourceVersion": old.metadata.resource_version},
            "data": {**data, **gone},
        }
        await self._client.patch(
            SECRETS, self._where.name, patch, namespace=self._where.namespace, into=Secret
        )
