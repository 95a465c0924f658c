"""One admission server, put together: policies, certificate, socket, and what keeps them current.

The order of the start is the order of trust. The policies are read first, since a server that does
not know them would let everything pass; then the certificate is there and published; then the
socket answers, and the API server is told to call it.
"""

import asyncio
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import structlog
from starlette.types import ASGIApp

from policyd.admission.conversion import PATH as CONVERT
from policyd.admission.conversion import convert
from policyd.admission.decisions import Decide
from policyd.admission.handler import AdmissionHandler
from policyd.admission.jobs import JobAdmission
from policyd.admission.queues import QueueAdmission
from policyd.admission.unjudged import Unasked
from policyd.connections import Bounds, Listening
from policyd.engine.evaluate.policy_set import PHASES, Phase
from policyd.errors import PolicydError
from policyd.jobs.integrations import Integrations
from policyd.kube.resources import LOCAL_QUEUES, WORKLOAD_PRIORITY_CLASSES
from policyd.registration.configurations import NAME, Registration, exempt_groups
from policyd.registration.webhook_rules import derive_webhook_rules
from webhooks.app import Answer, create_app
from webhooks.certificate.files import fingerprint, follow, read_file
from webhooks.certificate.old_versions import OldVersions
from webhooks.certificate.publication import REMEDY, Publication
from webhooks.certificate.secret import KeptCertificate
from webhooks.certificate.tls import CertificateFiles, serve
from webhooks.defaults import DefaultsWatch
from webhooks.external_data.owners import Owners, include_own_account
from webhooks.health import create_health_app
from webhooks.namespaces import without_cluster
from webhooks.observe.observing import observers
from webhooks.policies.in_force import PoliciesInForce
from webhooks.policies.own_policies import OWN_CALL
from webhooks.policies.reading import read_policies
from webhooks.protocol import ReviewProtocol
from webhooks.rules import Rules
from webhooks.settings_checks import (
    certificate_files,
    endpoint,
    names_to_serve,
    secret_name,
    serves_old_versions,
)
from webhooks.shared import Start, WebhookServer
from webhooks.workers import SWITCH_SECONDS, WORKERS, Workers

REGISTRATION_SECONDS = 60.0
"""How often the webhook configurations are looked at if nothing changes here: somebody may have
changed them there."""

RETRY_SECONDS = 5.0
"""When to try again what the API server did not let us do."""

NOT_REGISTERED = (
    f"the webhook configurations `{NAME}` are gone, and not to be made from here: {REMEDY}"
)
"""Why a server that starts is not ready, as long as nobody can call it."""

BESIDE = Bounds(connections=64, first=10.0, body=5.0)
"""What connections to health and metrics may take: probes, and a few that scrape."""

__all__ = ["NOT_REGISTERED", "WebhookServer", "read_policies", "run_webhooks"]

log = structlog.get_logger(__name__)


async def run_webhooks(
    door: WebhookServer,
    listener: socket.socket,
    *,
    stop: asyncio.Event,
    beside: socket.socket | None = None,
    loaded: Callable[[], None] = lambda: None,
) -> None:
    """Run an admission server until `stop` is set; any part of it that fails ends it.

    Args:
        door: Settings, and the API server if they need one.
        listener: The socket to answer reviews on; closed at the end.
        stop: Set it to end: readiness fails, `drain_seconds` pass, what is in flight finishes.
        beside: The socket of health and metrics, closed as well; None if nobody asks for them.
        loaded: Called once all policies are read, before the first review is answered.

    Raises:
        ExceptionGroup: Of what failed; a PolicydError in it is for the user.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    with listener, beside or nullcontext(), _workers(door) as workers:
        async with asyncio.TaskGroup() as group:
            await _run(door, (listener, beside), group, stop, (loaded, workers))
    log.info("webhooks_stopped")


async def _run(
    door: WebhookServer,
    listeners: tuple[socket.socket, socket.socket | None],
    group: asyncio.TaskGroup,
    stop: asyncio.Event,
    given: tuple[Callable[[], None], Workers],
) -> None:
    loaded, workers = given
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
        policies = preparation.result()
        loaded()
        app = application(door, policies, workers, start)
        listener, beside = listeners
        tasks.append(group.create_task(_serve_health(door, beside, drained)))
        _say_opened(listener, beside, policies=len(policies.loaded))
        await _serve_reviews(door, app, listener, drained)
    for task in tasks:
        task.cancel()


def _say_opened(listener: socket.socket, beside: socket.socket | None, *, policies: int) -> None:
    host, port, *_ = listener.getsockname()
    more = {} if beside is None else {"metrics_port": beside.getsockname()[1]}
    log.info("webhooks_started", host=host, port=port, policies=policies, **more)


async def _serve_reviews(
    door: WebhookServer, app: ASGIApp, listener: socket.socket, drained: asyncio.Event
) -> None:
    listening = Listening(
        tls=None if door.context is None else door.context.front,
        count=door.metrics.connection_closed,
        names=frozenset(door.settings.client_names),
    )
    http = "httptools" if door.settings.plain_http else ReviewProtocol
    await serve(app, listener, listening=listening, stop=drained, http=http)


async def _serve_health(
    door: WebhookServer, listener: socket.socket | None, drained: asyncio.Event
) -> None:
    if listener is not None:
        app = create_health_app(door.readiness, door.metrics.registry)
        listening = Listening(bounds=BESIDE, count=door.metrics.connection_closed)
        await serve(app, listener, listening=listening, stop=drained, http="httptools")


@contextmanager
def _workers(door: WebhookServer) -> Iterator[Workers]:
    """Have threads for what is heavy; those that are at it are not waited for in the end."""
    executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="review")
    try:
        yield Workers(executor, clock=door.pace.clock)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


async def _prepare(door: WebhookServer, start: Start) -> PoliciesInForce:
    """Have everything there that the first review needs."""
    policies = await read_policies(door, start)
    if door.client is not None and door.settings.queue:
        await include_own_account(door.authors, door.client)
        watches = [
            DefaultsWatch(door.client, resource, take, pace=door.pace)
            for resource, take in (
                (LOCAL_QUEUES, door.default_queues.take),
                (WORKLOAD_PRIORITY_CLASSES, door.default_class.take),
            )
        ]
        for watch in watches:
            start(watch.run())
        await asyncio.gather(*(watch.first_list() for watch in watches))
    await _certificate(door, policies, start)
    return policies


def application(
    door: WebhookServer, policies: PoliciesInForce, workers: Workers, start: Start
) -> ASGIApp:
    """Put the handlers of reviews together."""
    workers.inquiries = door.inquiries
    queue = door.integrations if door.settings.queue else None
    jobs = None if queue is None else _jobs(door, queue)
    queues = None if queue is None else QueueAdmission.of(queue)
    observe = observers(door, policies, workers.decide, start)
    decide: dict[Phase, Decide] = {"mutate": policies.mutate, "validate": policies.validate}
    answers: dict[str, Answer] = {
        f"/{phase}": AdmissionHandler(
            phase=phase,
            policies=decide[phase],
            jobs=jobs,
            queues=queues,
            exempt=exempt_groups(door.settings.namespace),
            prepare=partial(door.namespaces.fetch, door.client) if door.client else None,
            with_external_data=workers.decide,
            observe=observe[phase],
            run=workers.run,
        ).answer
        for phase in PHASES
    }
    if serves_old_versions(door.settings):
        answers[CONVERT] = partial(convert, rest=partial(asyncio.sleep, 0))
    unasked = Unasked(
        policies=lambda: policies.in_force,
        namespaces=door.namespaces.find if door.client else without_cluster,
        own_namespace=door.settings.namespace,
        queue=queue,
        gives_queue=door.gives_queue,
        count=door.metrics.review_not_judged,
    )
    return create_app(
        answers,
        metrics=door.metrics,
        clock=door.pace.clock,
        unjudged={f"/{phase}": unasked.answers(phase) for phase in PHASES},
    )


def _jobs(door: WebhookServer, queue: Integrations) -> JobAdmission:
    """Return what is done for jobs; owners are looked up only where makers are not asked."""
    asked = door.inquiries if door.client and door.integrations.makers.trusted else None
    return JobAdmission(
        integrations=queue,
        gives_queue=door.gives_queue,
        default_class=door.default_class,
        authors=door.authors,
        owner_is_there=Owners(door.api_server, asked).is_there if asked else None,
    )


async def _certificate(door: WebhookServer, policies: PoliciesInForce, start: Start) -> None:
    """Have a certificate in use and, where it is asked for, the API server told to call."""
    called, settings = endpoint(door.settings), door.settings
    _follow_callers(door, start)
    queue = door.integrations if settings.queue else None
    own = (OWN_CALL,) if settings.from_cluster else ()
    rules = Rules(
        partial(
            derive_webhook_rules, queue=queue, failure_policy=settings.failure_policy, besides=own
        )
    )

    async def wanted(ca_bundle_pem: bytes) -> Registration:
        return Registration(
            endpoint=called,
            rules=await rules.of(policies.loaded, defaulted=door.default_queues.namespaces),
            own_namespace=settings.namespace,
            timeout_seconds=settings.timeout_seconds,
            ca_bundle_pem=ca_bundle_pem,
            left_out=settings.leave_out,
        )

    files = certificate_files(settings)
    if door.client is None and files is not None:
        _use_files(door, files, start)
        return
    old = OldVersions(door.api_server, called) if serves_old_versions(settings) else None
    publication = Publication(door.api_server, wanted if settings.register else None, old)
    if files is None:
        trusted = await _use_secret(door, publication, start)
    else:
        trusted = _use_files(door, files, start)
    if settings.register:
        _note_missing(door, publication)
        start(_keep_registered(door, publication, trusted))


async def _use_secret(
    door: WebhookServer, publication: Publication, start: Start
) -> Callable[[], bytes]:
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


def _use_files(door: WebhookServer, files: CertificateFiles, start: Start) -> Callable[[], bytes]:
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


def _follow_callers(door: WebhookServer, start: Start) -> None:
    """Know who vouches for callers, and follow the file that says so."""
    if not door.settings.client_ca:
        return
    path = Path(door.settings.client_ca)
    since = fingerprint([path])

    def trust() -> None:
        door.trust(read_file(path))

    trust()
    start(follow([path], since=since, changed=trust, every=door.settings.reload_seconds))


async def _keep_registered(
    door: WebhookServer, publication: Publication, trusted: Callable[[], bytes]
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


def _note_missing(door: WebhookServer, publication: Publication) -> None:
    """Say whether configurations are missing that are not ours to make.

    One that was registered before stays ready: it is to answer as soon as they are back.
    """
    door.metrics.missing_configurations.set(len(publication.missing))
    if not publication.missing:
        door.registered = True
        door.readiness.unblock(NOT_REGISTERED)
    elif not door.registered:
        door.readiness.block(NOT_REGISTERED)


async def _drain(door: WebhookServer, stop: asyncio.Event, drained: asyncio.Event) -> None:
    await stop.wait()
    door.readiness.block("shutting down")
    log.info("webhooks_stopping", seconds=door.settings.drain_seconds)
    await door.pace.sleep(door.settings.drain_seconds)
    drained.set()
