"""The start of policies: all sources are read before the first review, and then followed."""

from collections.abc import Callable
from pathlib import Path

from policyd.engine.model.surroundings import deny_all_permissions, no_claims
from policyd.jobs.frameworks import makers_of
from policyd.kube.informer import Informer
from policyd.kube.resources import NAMESPACES
from webhooks.certificate.files import fingerprint, follow
from webhooks.external_data.fetching import Fetcher
from webhooks.external_data.lookups import ExternalLookups
from webhooks.external_data.owners import Claims
from webhooks.external_data.passwords import Passwords
from webhooks.external_data.permissions import Permissions
from webhooks.external_data.reads import ClusterObjects
from webhooks.external_data.registries import Registries
from webhooks.external_data.web import Web
from webhooks.namespaces import Namespace, without_cluster
from webhooks.policies.in_force import Judged, PoliciesInForce
from webhooks.policies.loading import Loading
from webhooks.policies.params import FIRST_LIST_SECONDS, Params
from webhooks.policies.sources import FilePolicies, KyvernoPolicies, OwnPolicies, PolicySource
from webhooks.shared import Start, WebhookServer


async def read_policies(server: WebhookServer, start: Start) -> PoliciesInForce:
    """Read all policies and the data that they read, and start the tasks that keep both current."""
    settings, pace = server.settings, server.pace
    lookups = ExternalLookups(clock=pace.clock)
    http, images = _external(server, lookups, start)
    if server.client or settings.http or images:
        server.lookups = lookups
    permissions = Permissions(server.client, lookups) if server.client else None
    params = Params(server.client, pace=pace)
    reads = ClusterObjects(server.client, settings.reads, permissions, pace=pace)
    policies = PoliciesInForce(
        namespaces=server.namespaces.find if server.client else without_cluster,
        metrics=server.metrics,
        params=params,
        authorize=permissions.authorize if permissions else deny_all_permissions,
        claims=Claims(server.client, lookups).spec if server.client else no_claims,
        reads=reads,
        http=http,
        images=images,
        remember=settings.remember,
        makers=makers_of(server.integrations) if settings.queue else server.integrations.makers,
        queues=server.queue_facts.current,
        changed=_notifier(server, lambda: policies.loads),
        judged=_kyverno_judge(server, start),
        kyverno=settings.kyverno,
        exceptions=settings.exceptions,
    )
    loading = Loading(policies, pace=pace)
    start(loading.run())
    files, *stored = _sources(server, policies, loading)
    await files.read(start)
    if server.client is not None:
        await _namespaces(server, start)
    for source in stored:
        await source.read(start)
    await loading.settled()
    if server.client is not None:
        start(params.run(lambda: policies.loaded))
        await params.first_lists()
    if settings.reads:
        start(reads.run())
        await reads.first_lists(FIRST_LIST_SECONDS)
    return policies


def _kyverno_judge(server: WebhookServer, start: Start) -> Judged | None:
    """Start to write statuses of Kyverno's policies, if these are read; return what takes loads."""
    if not server.settings.kyverno:
        return None
    from webhooks.policies.kyverno_statuses import KyvernoStatuses  # noqa: PLC0415 - seldom needed

    server.kyverno_statuses = KyvernoStatuses(server.api_server, pace=server.pace)
    start(server.kyverno_statuses.run())
    return server.kyverno_statuses.judge


def _notifier(server: WebhookServer, loads: Callable[[], int]) -> Callable[[], None]:
    """Return what is called after each change of the policies in force."""

    def changed() -> None:
        server.policies_changed.set()
        if server.kyverno_statuses is not None and not server.settings.register:
            server.kyverno_statuses.registered(loads())  # another program registers the webhooks

    return changed


def _sources(
    server: WebhookServer, policies: PoliciesInForce, loading: Loading
) -> list[PolicySource]:
    settings, pace = server.settings, server.pace
    paths, every = tuple(Path(path) for path in settings.policies), settings.reload_seconds
    sources: list[PolicySource] = [FilePolicies(paths, policies, loading, every=every)]
    if settings.from_cluster:
        sources.append(OwnPolicies(server.api_server, policies, loading.note, pace=pace))
    if settings.kyverno:
        given = server.api_server, policies, loading.note
        sources.append(KyvernoPolicies(*given, pace=pace, exceptions=settings.exceptions))
    return sources


async def _namespaces(server: WebhookServer, start: Start) -> None:
    """Read the namespaces of the cluster, and keep them current."""
    take, pace = server.namespaces.take, server.pace
    known = Informer(server.api_server, NAMESPACES, into=Namespace, on_change=take, pace=pace)
    start(known.run())
    await known.synced.wait()


def _external(
    server: WebhookServer, lookups: ExternalLookups, start: Start
) -> tuple[Web, Registries | None]:
    """Return the HTTP and registry clients of Kyverno's policies."""
    settings = server.settings
    fetcher = Fetcher(server.variables)
    start(fetcher.run())
    hosts, passwords = settings.registries, _passwords(server, start)
    images = Registries(fetcher, lookups, hosts, passwords) if hosts else None
    return Web(fetcher, lookups, settings.http), images


def _passwords(server: WebhookServer, start: Start) -> Passwords:
    """Read the passwords of registries, and follow them."""
    named = server.settings.registry_credentials
    if not named:
        return Passwords()
    path, every = Path(named), server.settings.reload_seconds
    since = fingerprint([path])
    passwords = Passwords(path)
    passwords.read()
    start(follow([path], since=since, changed=passwords.read, every=every))
    return passwords
