"""The certificate in use, and the webhook configurations by which the API server calls.

The certificate is in use before the API server is configured to call. The configurations follow the
policies, and are compared with the API server's from time to time, as others may change them there.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import structlog

from policyd.engine.model.compiled import CompiledPolicy
from policyd.errors import PolicydError
from policyd.registration.configurations import NAME, Registration
from policyd.registration.webhook_rules import (
    DerivedWebhook,
    WebhookRules,
    derive_webhook_rules,
)
from webhooks.certificate.files import fingerprint, follow, read_file
from webhooks.certificate.old_versions import OldVersions
from webhooks.certificate.publication import REMEDY, Publication
from webhooks.certificate.secret import KeptCertificate
from webhooks.certificate.tls import CertificateFiles
from webhooks.policies.in_force import PoliciesInForce
from webhooks.policies.own_policies import OWN_CALL
from webhooks.settings_checks import (
    certificate_files,
    endpoint,
    names_to_serve,
    secret_name,
    serves_old_versions,
)
from webhooks.shared import Start, WebhookServer

REGISTRATION_SECONDS = 60.0
"""How often the webhook configurations are compared if no policy changes."""

RETRY_SECONDS = 5.0
"""How soon a write that the API server refused is tried again."""

NOT_REGISTERED = (
    f"the webhook configurations `{NAME}` are gone, and not to be made from here: {REMEDY}"
)
"""Why a server that starts is not ready, while the API server has no configuration to call it."""

log = structlog.get_logger(__name__)

Policies = tuple[CompiledPolicy, ...]
Namespaces = frozenset[str]


async def use_certificate(server: WebhookServer, policies: PoliciesInForce, start: Start) -> None:
    """Put the certificate in use and, with `register`, tell the API server to call."""
    called, settings = endpoint(server.settings), server.settings
    _follow_callers(server, start)
    queue = server.integrations if settings.queue else None
    own = (*([OWN_CALL] if settings.from_cluster else ()), *_kyverno_calls(server))
    rules = Rules(
        partial(
            derive_webhook_rules, queue=queue, failure_policy=settings.failure_policy, besides=own
        )
    )

    async def wanted(ca_bundle_pem: bytes) -> Registration:
        return Registration(
            endpoint=called,
            rules=await rules.of(policies.loaded, defaulted=server.default_queues.namespaces),
            own_namespace=settings.namespace,
            timeout_seconds=settings.timeout_seconds,
            ca_bundle_pem=ca_bundle_pem,
            left_out=settings.leave_out,
        )

    files = certificate_files(settings)
    if server.client is None and files is not None:
        _use_files(server, files, start)
        return
    old = OldVersions(server.api_server, called) if serves_old_versions(settings) else None
    publication = Publication(server.api_server, wanted if settings.register else None, old)
    if files is None:
        trusted = await _use_secret(server, publication, start)
    else:
        trusted = _use_files(server, files, start)
    if settings.register:
        _note_missing(server, publication)
        start(_keep_registered(server, policies, publication, trusted))


def _kyverno_calls(server: WebhookServer) -> tuple[DerivedWebhook, ...]:
    """Return the webhook rule that sends Kyverno's policies themselves, if these are read."""
    if not server.settings.kyverno:
        return ()
    from webhooks.policies.kyverno_reviews import KYVERNO_CALL  # noqa: PLC0415 - seldom needed

    return (KYVERNO_CALL,)


async def _use_secret(
    server: WebhookServer, publication: Publication, start: Start
) -> Callable[[], bytes]:
    """Serve the certificate of a Secret; return a function that returns its authorities."""
    kept = KeptCertificate(
        server.api_server,
        secret_name(server.settings),
        names=names_to_serve(endpoint(server.settings)),
        publish=publication.publish,
        use=server.use,
        pace=server.pace,
    )
    await kept.refresh()
    start(kept.run())
    return lambda: kept.bundle_pem


def _use_files(server: WebhookServer, files: CertificateFiles, start: Start) -> Callable[[], bytes]:
    """Serve the certificate of files; return a function that returns its authorities."""
    authority = server.settings.authority
    paths = (*files.paths, *([Path(authority)] if authority else []))

    def use() -> None:
        pair, _ = files.read(now=server.pace.clock.now())
        server.use(pair)
        server.policies_changed.set()  # its authority may be another, which is registered too

    def trusted() -> bytes:
        return read_file(Path(authority)) if authority else b""

    since = fingerprint(paths)
    use()
    trusted()
    start(follow(paths, since=since, changed=use, every=server.settings.reload_seconds))
    return trusted


def _follow_callers(server: WebhookServer, start: Start) -> None:
    """Read the authority of the callers' certificates, and follow its file."""
    if not server.settings.client_ca:
        return
    path = Path(server.settings.client_ca)
    since = fingerprint([path])

    def trust() -> None:
        server.trust(read_file(path))

    trust()
    start(follow([path], since=since, changed=trust, every=server.settings.reload_seconds))


async def _keep_registered(
    server: WebhookServer,
    policies: PoliciesInForce,
    publication: Publication,
    trusted: Callable[[], bytes],
) -> NoReturn:
    while True:
        server.policies_changed.clear()
        pause, loads = REGISTRATION_SECONDS, policies.loads
        try:
            await publication.publish(trusted())
        except PolicydError as error:
            log.warning("registration_failed", reason=str(error), hint=error.hint)
            pause = RETRY_SECONDS
        else:
            _note_missing(server, publication)
            if server.kyverno_statuses is not None and not publication.missing:
                server.kyverno_statuses.registered(loads)
            pause = RETRY_SECONDS if publication.missing else REGISTRATION_SECONDS
        await server.pace.wait(server.policies_changed, pause)


def _note_missing(server: WebhookServer, publication: Publication) -> None:
    """Set metric and readiness by the configurations that policyd may not create.

    A server that was registered before stays ready, to answer as soon as they are back.
    """
    server.metrics.missing_configurations.set(len(publication.missing))
    if not publication.missing:
        server.registered = True
        server.readiness.unblock(NOT_REGISTERED)
    elif not server.registered:
        server.readiness.block(NOT_REGISTERED)


class Rules:
    """The webhook rules for the policies, and the namespaces with a default queue.

    They are derived in a thread: with a thousand policies that select by labels of their own it
    takes a second, in which no review must wait.
    """

    def __init__(self, derive: Callable[[Policies, Namespaces], WebhookRules]) -> None:
        """Begin with no policies; `derive` is called in a thread."""
        self._derive = derive
        self._last: tuple[Policies, Namespaces, WebhookRules] | None = None
        self._deriving = asyncio.Lock()

    async def of(self, policies: Policies, *, defaulted: Namespaces = frozenset()) -> WebhookRules:
        """Return the rules, derived anew if the policies or namespaces changed."""
        async with self._deriving:  # a second caller mostly wants the same rules
            last = self._last
            if last is None or last[0] is not policies or last[1] != defaulted:
                rules = await asyncio.to_thread(self._derive, policies, defaulted)
                self._last = last = policies, defaulted, rules
            return last[2]
