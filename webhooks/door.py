"""One admission server, put together: policies, certificate, socket, and what keeps them current.

The order of the start is the order of trust. The policies are read first, since a door that does
not know them would let everything pass; then the certificate is there and published; then the
socket answers, and the API server is told to call it.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import structlog
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from policyd.certificates import CertificatePair, certificate_facts
from policyd.config import Settings
from policyd.controller.policies import BindingObject, PolicyObject
from policyd.engine.surroundings import authorize_nobody
from policyd.errors import PolicydError
from policyd.kube.client import Client, PartialObject
from policyd.kube.errors import ApiError, NotFoundError
from policyd.kube.informer import Informer
from policyd.kube.pace import Pace
from policyd.kube.resources import NAMESPACES, POLICIES, POLICY_BINDINGS
from webhooks.app import create_app
from webhooks.calls import door_rules
from webhooks.choices import certificate_files, endpoint, names_to_serve, secret_name
from webhooks.decisions import answer_with, mutate_in_turn, validate_together
from webhooks.files import fingerprint, follow, read_file
from webhooks.health import Readiness
from webhooks.jobs import JOB_DEFAULTS, validate_jobs
from webhooks.metrics import DoorMetrics
from webhooks.namespaces import Namespace, Namespaces, without_cluster
from webhooks.params import FIRST_LIST_SECONDS, Params
from webhooks.permissions import Permissions
from webhooks.policies import Policies
from webhooks.publication import REMEDY, Publication
from webhooks.queues import QUEUE_DEFAULTS, validate_queues
from webhooks.reads import ClusterObjects
from webhooks.registration import NAME, Registration
from webhooks.rules import Rules
from webhooks.secret import KeptCertificate
from webhooks.tls import CertificateFiles, LiveContext, serve

REGISTRATION_SECONDS = 60.0
"""How often the webhook configurations are looked at if nothing changes here: somebody may have
changed them there."""

RETRY_SECONDS = 5.0
"""When to try again what the API server did not let us do."""

NOT_REGISTERED = (
    f"the webhook configurations `{NAME}` are gone, and not to be made from here: {REMEDY}"
)
"""Why a server that starts is not ready, as long as nobody can call it."""

Start = Callable[[Coroutine[Any, Any, NoReturn]], None]
"""Starts what runs as long as the server does."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Door:
    """What the parts of one admission server share."""

    settings: Settings
    client: Client | None = None
    """The API server; None where nothing needs one."""
    pace: Pace = field(default_factory=Pace)
    metrics: DoorMetrics = field(default_factory=lambda: DoorMetrics(CollectorRegistry()))
    readiness: Readiness = field(default_factory=Readiness)
    policies_changed: asyncio.Event = field(default_factory=asyncio.Event)
    namespaces: Namespaces = field(default_factory=Namespaces)
    context: LiveContext | None = None
    """The certificate in use, once there is one."""
    registered: bool = False
    """Whether the API server was told to call, at least once."""
    permissions: Permissions | None = None
    """What users may do; None where there is no API server to ask."""

    def use(self, pair: CertificatePair) -> None:
        """Serve a certificate from now on."""
        if self.context is None:
            self.context = LiveContext(pair)
        else:
            self.context.replace(pair)
        expires_at = certificate_facts(pair.certificate_pem).not_after
        self.metrics.certificate_expiry.set(expires_at)
        self.metrics.certificate_loads.inc()
        log.info("certificate_in_use", expires_at=expires_at)

    @property
    def api_server(self) -> Client:
        """The API server, for what is only asked for where there is one."""
        assert self.client is not None, "settings that need an API server come with a client"
        return self.client


async def run_door(door: Door, listener: socket.socket, *, stop: asyncio.Event) -> None:
    """Run an admission server until `stop` is set; any part of it that fails ends it.

    Args:
        door: Settings, and the API server if they need one.
        listener: The socket to answer on; closed at the end.
        stop: Set it to end: readiness fails, `drain_seconds` pass, what is in flight finishes.

    Raises:
        ExceptionGroup: Of what failed; a PolicydError in it is for the user.
    """
    with listener:
        async with asyncio.TaskGroup() as group:
            await _run(door, listener, group, stop)
    log.info("door_closed")


async def _run(
    door: Door, listener: socket.socket, group: asyncio.TaskGroup, stop: asyncio.Event
) -> None:
    tasks: list[asyncio.Task[Any]] = []

    def start(work: Coroutine[Any, Any, NoReturn]) -> None:
        tasks.append(group.create_task(work))

    preparation = group.create_task(_prepare(door, start))
    stopping = group.create_task(stop.wait())
    tasks += [preparation, stopping]
    # An API server that does not answer must not keep us from ending.
    await asyncio.wait({preparation, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if preparation.done():
        drained = asyncio.Event()
        tasks.append(group.create_task(_drain(door, stop, drained)))
        host, port, *_ = listener.getsockname()
        policies = preparation.result()
        log.info("door_opened", host=host, port=port, policies=len(policies.loaded))
        app = _application(door, policies)
        await serve(app, listener, context=door.context, stop=drained)
    for task in tasks:
        task.cancel()


async def _prepare(door: Door, start: Start) -> Policies:
    """Have everything there that the first review needs."""
    policies = await _policies(door, start)
    await _certificate(door, policies, start)
    return policies


def _application(door: Door, policies: Policies) -> ASGIApp:
    queue = door.settings.queue
    mutate = mutate_in_turn(policies.mutate, [JOB_DEFAULTS, QUEUE_DEFAULTS] if queue else [])
    validate = validate_together(
        policies.validate, [validate_jobs, validate_queues] if queue else []
    )
    prepare = partial(door.namespaces.fetch, door.client) if door.client else None
    inquire = door.permissions.decide if door.permissions else None
    answer = partial(answer_with, metrics=door.metrics, prepare=prepare, inquire=inquire)
    return create_app(
        mutate=answer(mutate, path="/mutate"),
        validate=answer(validate, path="/validate"),
        readiness=door.readiness,
        metrics=door.metrics,
        clock=door.pace.clock,
    )


async def _policies(door: Door, start: Start) -> Policies:
    """Read the policies, and keep them current."""
    params = Params(door.client, pace=door.pace)
    if door.client is not None:
        door.permissions = Permissions(door.client, clock=door.pace.clock)
    reads = None
    if door.settings.reads:
        reads = ClusterObjects(door.api_server, door.settings.reads, pace=door.pace)
    policies = Policies(
        namespaces=door.namespaces.find if door.client else without_cluster,
        metrics=door.metrics,
        params=params,
        authorize=door.permissions.authorize if door.permissions else authorize_nobody,
        reads=reads,
        changed=door.policies_changed.set,
    )
    paths = tuple(Path(path) for path in door.settings.policies)
    since = fingerprint(paths)
    policies.read_files(paths)
    if paths:
        read = partial(policies.read_files, paths)
        start(follow(paths, since=since, changed=read, every=door.settings.reload_seconds))
    if door.client is not None:
        known = Informer(
            door.client, NAMESPACES, into=Namespace, on_change=door.namespaces.take, pace=door.pace
        )
        start(known.run())
        await known.synced.wait()
    if door.settings.from_cluster:
        await _objects(door, policies, start)
    if door.client is not None:
        start(params.run(lambda: policies.loaded))
        await params.first_lists()
    if reads is not None:
        start(reads.run())
        await reads.first_lists(FIRST_LIST_SECONDS)
    return policies


async def _objects(door: Door, policies: Policies, start: Start) -> None:
    """Read what the API server has of policies and bindings, and keep it current.

    Bindings come first, so that no policy applies where its binding does not.
    """
    client, pace = door.api_server, door.pace
    bindings = Informer(
        client, POLICY_BINDINGS, into=BindingObject, on_change=policies.take_binding, pace=pace
    )
    objects = Informer(client, POLICIES, into=PolicyObject, on_change=policies.take, pace=pace)
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


async def _certificate(door: Door, policies: Policies, start: Start) -> None:
    """Have a certificate in use and, where it is asked for, the API server told to call."""
    called, settings = endpoint(door.settings), door.settings
    rules = Rules(partial(door_rules, queue=settings.queue))

    async def wanted(ca_bundle_pem: bytes) -> Registration:
        return Registration(
            endpoint=called,
            rules=await rules.of(policies.loaded),
            own_namespace=settings.namespace,
            timeout_seconds=settings.timeout_seconds,
            ca_bundle_pem=ca_bundle_pem,
        )

    files = certificate_files(settings)
    if door.client is None and files is not None:
        _use_files(door, files, start)
        return
    publication = Publication(door.api_server, wanted if settings.register else None)
    if files is None:
        trusted = await _use_secret(door, publication, start)
    else:
        trusted = _use_files(door, files, start)
    if settings.register:
        _note_missing(door, publication)
        start(_keep_registered(door, publication, trusted))


async def _use_secret(door: Door, publication: Publication, start: Start) -> Callable[[], bytes]:
    """Serve the certificate that a Secret keeps; return what tells the authorities to trust."""
    kept = KeptCertificate(
        door.api_server,
        secret_name(door.settings),
        names=names_to_serve(endpoint(door.settings)),
        publish=publication.publish,
        use=door.use,
        pace=door.pace,
    )
    await kept.refresh()
    start(kept.run())
    return lambda: kept.bundle_pem


def _use_files(door: Door, files: CertificateFiles, start: Start) -> Callable[[], bytes]:
    """Serve the certificate that files hold; return what tells the authorities to trust."""
    authority = door.settings.authority
    paths = (*files.paths, *([Path(authority)] if authority else []))

    def use() -> None:
        pair, _ = files.read(now=door.pace.clock.now())
        door.use(pair)
        door.policies_changed.set()  # its authority may be another, which is registered too

    def trusted() -> bytes:
        return read_file(Path(authority)) if authority else b""

    since = fingerprint(paths)
    use()
    trusted()
    start(follow(paths, since=since, changed=use, every=door.settings.reload_seconds))
    return trusted


async def _keep_registered(
    door: Door, publication: Publication, trusted: Callable[[], bytes]
) -> NoReturn:
    while True:
        door.policies_changed.clear()
        pause = REGISTRATION_SECONDS
        try:
            await publication.publish(trusted())
        except PolicydError as error:
            log.warning("registration_failed", reason=str(error), hint=error.hint)
            pause = RETRY_SECONDS
        else:
            _note_missing(door, publication)
            pause = RETRY_SECONDS if publication.missing else REGISTRATION_SECONDS
        await door.pace.wait(door.policies_changed, pause)


def _note_missing(door: Door, publication: Publication) -> None:
    """Say whether configurations are missing that are not ours to make.

    One that was registered before stays ready: it is to answer as soon as they are back.
    """
    door.metrics.missing_configurations.set(len(publication.missing))
    if not publication.missing:
        door.registered = True
        door.readiness.unblock(NOT_REGISTERED)
    elif not door.registered:
        door.readiness.block(NOT_REGISTERED)


async def _drain(door: Door, stop: asyncio.Event, drained: asyncio.Event) -> None:
    await stop.wait()
    door.readiness.block("shutting down")
    log.info("door_closing", seconds=door.settings.drain_seconds)
    await door.pace.sleep(door.settings.drain_seconds)
    drained.set()
