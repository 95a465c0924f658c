"""Where policies come from, and what they look at: read before the first review, then followed."""

from functools import partial
from pathlib import Path

import structlog

from policyd.api.policy import BindingObject, PolicyObject
from policyd.engine.model.surroundings import authorize_nobody
from policyd.jobs.frameworks import makers_of
from policyd.kube.client import PartialObject
from policyd.kube.errors import ApiError, NotFoundError
from policyd.kube.informer import Informer
from policyd.kube.resources import NAMESPACES, POLICIES, POLICY_BINDINGS
from webhooks.certificate.files import fingerprint, follow
from webhooks.external_data.fetching import Fetcher
from webhooks.external_data.inquiries import Inquiries
from webhooks.external_data.passwords import Passwords
from webhooks.external_data.permissions import Permissions
from webhooks.external_data.reads import ClusterObjects
from webhooks.external_data.registries import Registries
from webhooks.external_data.web import Web
from webhooks.namespaces import Namespace, without_cluster
from webhooks.policies.in_force import PoliciesInForce
from webhooks.policies.kyverno import KyvernoPolicies
from webhooks.policies.loading import Loading
from webhooks.policies.params import FIRST_LIST_SECONDS, Params
from webhooks.shared import Start, WebhookServer

log = structlog.get_logger(__name__)


async def read_policies(door: WebhookServer, start: Start) -> PoliciesInForce:
    """Read the policies and what they look at, and keep both current."""
    inquiries = Inquiries(clock=door.pace.clock)
    http, images = _external(door, inquiries, start)
    if door.client or door.settings.http or images:
        door.inquiries = inquiries
    permissions = Permissions(door.client, inquiries) if door.client else None
    params = Params(door.client, pace=door.pace)
    reads = ClusterObjects(door.client, door.settings.reads, permissions, pace=door.pace)
    policies = PoliciesInForce(
        namespaces=door.namespaces.find if door.client else without_cluster,
        metrics=door.metrics,
        params=params,
        authorize=permissions.authorize if permissions else authorize_nobody,
        reads=reads,
        http=http,
        images=images,
        remember=door.settings.remember,
        makers=makers_of(door.integrations) if door.settings.queue else door.integrations.makers,
        changed=door.policies_changed.set,
    )
    loading = Loading(policies, pace=door.pace)
    start(loading.run())
    await _files(door, policies, loading, start)
    if door.client is not None:
        await _namespaces(door, start)
    if door.settings.from_cluster:
        await _objects(door, policies, loading, start)
    if door.settings.kyverno:
        take = loading.taking(policies.take_kyverno, lambda policy: str(policy.value["kind"]))
        kyverno = KyvernoPolicies(door.api_server, take, start, pace=door.pace)
        await kyverno.first_lists()
        start(kyverno.run())
    await loading.settled()
    if door.client is not None:
        start(params.run(lambda: policies.loaded))
        await params.first_lists()
    if door.settings.reads:
        start(reads.run())
        await reads.first_lists(FIRST_LIST_SECONDS)
    return policies


def _external(
    door: WebhookServer, inquiries: Inquiries, start: Start
) -> tuple[Web, Registries | None]:
    """Return what Kyverno's policies may ask by HTTP, and of registries, if anything."""
    settings = door.settings
    fetcher = Fetcher(door.variables)
    start(fetcher.run())
    hosts, passwords = settings.registries, _passwords(door, start)
    images = Registries(fetcher, inquiries, hosts, passwords) if hosts else None
    return Web(fetcher, inquiries, settings.http), images


def _passwords(door: WebhookServer, start: Start) -> Passwords:
    """Read the passwords of registries, and follow them."""
    named = door.settings.registry_credentials
    if not named:
        return Passwords()
    path, every = Path(named), door.settings.reload_seconds
    since = fingerprint([path])
    passwords = Passwords(path)
    passwords.read()
    start(follow([path], since=since, changed=passwords.read, every=every))
    return passwords


async def _files(
    door: WebhookServer, policies: PoliciesInForce, loading: Loading, start: Start
) -> None:
    """Read the files that policies are in."""
    paths = tuple(Path(path) for path in door.settings.policies)
    since = fingerprint(paths)
    read = partial(policies.read_files, paths)
    await loading.first(read)
    if paths:
        again = partial(loading.read, "files", read)
        start(follow(paths, since=since, changed=again, every=door.settings.reload_seconds))


async def _namespaces(door: WebhookServer, start: Start) -> None:
    """Know the namespaces of the cluster."""
    known = Informer(
        door.api_server, NAMESPACES, into=Namespace, on_change=door.namespaces.take, pace=door.pace
    )
    start(known.run())
    await known.synced.wait()


async def _objects(
    door: WebhookServer, policies: PoliciesInForce, loading: Loading, start: Start
) -> None:
    """Read what the API server has of policies and bindings, and keep it current.

    Bindings come first, so that no policy applies where its binding does not.
    """
    client, pace = door.api_server, door.pace
    take_binding = loading.taking(policies.take_binding)
    bindings = Informer(
        client, POLICY_BINDINGS, into=BindingObject, on_change=take_binding, pace=pace
    )
    take = loading.taking(policies.take)
    objects = Informer(client, POLICIES, into=PolicyObject, on_change=take, pace=pace)
    start(bindings.run())
    start(objects.run())
    try:
        await client.page(POLICY_BINDINGS, into=PartialObject, limit=1)
    except NotFoundError:
        log.warning("bindings_not_served", hint="`policyd crds | kubectl apply --server-side -f -`")
    except ApiError:
        await bindings.synced.wait()  # what is wrong, the informer says, and goes on trying
    else:
        await bindings.synced.wait()
    await objects.synced.wait()
