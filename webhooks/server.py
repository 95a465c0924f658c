"""One admission server: policies, certificate, handlers and sockets.

A server starts in this order: it reads the policies, as without them it would allow everything; it
puts the certificate in use and publishes its authority; then it answers reviews. It ends in this
order: readiness fails, the API server is given time to notice, and the reviews in flight finish.
"""

import asyncio
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NoReturn

import structlog
from starlette.types import ASGIApp

from policyd.admission.conversion import PATH as CONVERT
from policyd.admission.conversion import convert
from policyd.admission.decisions import Decide
from policyd.admission.handler import AdmissionHandler
from policyd.admission.jobs import JobAdmission
from policyd.admission.queues import QueueAdmission
from policyd.admission.unevaluated import UnevaluatedReviews
from policyd.connections import Listening
from policyd.engine.evaluate.policy_set import PHASES, Phase
from policyd.health import HEALTH_BOUNDS, create_health_app
from policyd.jobs.integrations import Integrations
from policyd.kube.client import PartialObject
from policyd.kube.resources import LOCAL_QUEUES, WORKLOAD_PRIORITY_CLASSES
from policyd.registration.configurations import exempt_groups
from policyd.snapshot.values import QueueSnapshot
from webhooks.app import Answer, create_app
from webhooks.certificate.tls import serve
from webhooks.defaults import DefaultsWatch, Followed, take_class
from webhooks.external_data.owners import Owners, ReservedQuotas, include_own_account
from webhooks.namespaces import without_cluster
from webhooks.observe.observing import observers, traced
from webhooks.policies.in_force import PoliciesInForce
from webhooks.policies.reading import read_policies
from webhooks.protocol import ReviewProtocol
from webhooks.queue_snapshots import POLL_SECONDS, Ask, asking, follow_queues
from webhooks.registering import use_certificate
from webhooks.sent_queues import SentQueues
from webhooks.settings_checks import serves_old_versions
from webhooks.shared import Start, WebhookServer
from webhooks.workers import SWITCH_SECONDS, WORKERS, Workers

__all__ = ["WebhookServer", "asking", "read_policies", "run_webhooks"]

log = structlog.get_logger(__name__)


async def run_webhooks(
    server: WebhookServer,
    listener: socket.socket,
    *,
    stop: asyncio.Event,
    health: socket.socket | None = None,
    loaded: Callable[[], None] = lambda: None,
) -> None:
    """Run an admission server until `stop` is set; an error in any part of it ends it.

    Args:
        server: Its settings, and the API server if they need one.
        listener: The socket for reviews; closed at the end.
        stop: Set it to end the server: readiness fails, `drain_seconds` pass, and the reviews in
            flight finish.
        health: The socket for health and metrics, closed as well; None serves neither.
        loaded: Called once all policies are read, before the first review is answered.

    Raises:
        ExceptionGroup: The errors of its parts; a PolicydError in it is for the user.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    with listener, health or nullcontext(), _workers(server) as workers:
        async with asyncio.TaskGroup() as group:
            tasks: list[asyncio.Task[Any]] = []

            def start(work: Coroutine[Any, Any, NoReturn]) -> None:
                tasks.append(group.create_task(work))

            policies = await _prepared(server, group, start, stop)
            if policies is not None:
                loaded()
                app, drained = application(server, policies, workers, start), asyncio.Event()
                tasks.append(group.create_task(_drain(server, stop, drained)))
                tasks.append(group.create_task(_serve_health(server, health, drained)))
                _log_started(listener, health, policies=len(policies.loaded))
                await _serve_reviews(server, app, listener, drained)
            for task in tasks:
                task.cancel()
    log.info("webhooks_stopped")


@contextmanager
def _workers(server: WebhookServer) -> Iterator[Workers]:
    """Open the threads for large reviews; their work is not awaited at the end."""
    executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="review")
    try:
        yield Workers(executor, clock=server.pace.clock)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


async def _prepared(
    server: WebhookServer, group: asyncio.TaskGroup, start: Start, stop: asyncio.Event
) -> PoliciesInForce | None:
    """Prepare for the first review; return None if `stop` is set first.

    An API server that does not answer must not keep the process from ending.
    """
    preparation = group.create_task(_prepare(server, start))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({preparation, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if preparation.done():
        return preparation.result()
    preparation.cancel()
    return None


async def _prepare(server: WebhookServer, start: Start) -> PoliciesInForce:
    policies = await read_policies(server, start)
    if server.client is not None and server.settings.queue:
        await include_own_account(server.requesters, server.client)
        watches = [
            DefaultsWatch(server.client, Followed(resource, PartialObject, take), pace=server.pace)
            for resource, take in (
                (LOCAL_QUEUES, server.default_queues.take),
                (WORKLOAD_PRIORITY_CLASSES, partial(take_class, server.default_class)),
            )
        ]
        for watch in watches:
            start(watch.run())
        first = [watch.first_list() for watch in watches]
        if "MultiKueue" not in server.integrations.off:
            sent = SentQueues(server.client, start, pace=server.pace)
            server.sent = sent.sends_away
            first.append(sent.first_list())
        await asyncio.gather(*first)
    settings = server.settings
    if server.ask_queues is not None and settings.queue and settings.queue_snapshots:
        start(_follow_queues(server, server.ask_queues, policies))
    await use_certificate(server, policies, start)
    return policies


async def _follow_queues(server: WebhookServer, ask: Ask, policies: PoliciesInForce) -> NoReturn:
    """Keep the snapshot of the queues current, once the start has ended."""
    await server.pace.sleep(POLL_SECONDS)
    took = partial(take_snapshot, server, policies)
    await follow_queues(server.queues, ask, pace=server.pace, took=took)


def take_snapshot(
    server: WebhookServer, policies: PoliciesInForce, snapshot: QueueSnapshot
) -> None:
    """Prepare what verdicts and policies read of a snapshot, as far as there are any."""
    if server.settings.verdicts:
        server.verdicts.take(snapshot)
    if any(policy.reads_queues for policy in policies.loaded):
        server.queue_facts.take(snapshot)


def _log_started(listener: socket.socket, health: socket.socket | None, *, policies: int) -> None:
    host, port, *_ = listener.getsockname()
    more = {} if health is None else {"metrics_port": health.getsockname()[1]}
    log.info("webhooks_started", host=host, port=port, policies=policies, **more)


async def _serve_reviews(
    server: WebhookServer, app: ASGIApp, listener: socket.socket, drained: asyncio.Event
) -> None:
    listening = Listening(
        tls=None if server.context is None else server.context.front,
        count=server.metrics.connection_closed,
        names=frozenset(server.settings.client_names),
    )
    http = "httptools" if server.settings.plain_http else ReviewProtocol
    await serve(app, listener, listening=listening, stop=drained, http=http)


async def _serve_health(
    server: WebhookServer, listener: socket.socket | None, drained: asyncio.Event
) -> None:
    if listener is not None:
        app = create_health_app(server.metrics.registry, lambda: server.readiness.reasons)
        listening = Listening(bounds=HEALTH_BOUNDS, count=server.metrics.connection_closed)
        await serve(app, listener, listening=listening, stop=drained, http="httptools")


def application(
    server: WebhookServer, policies: PoliciesInForce, workers: Workers, start: Start
) -> ASGIApp:
    """Return the application that answers reviews, with its handlers."""
    workers.lookups = server.lookups
    queue = server.integrations if server.settings.queue else None
    jobs = None if queue is None else _jobs(server, queue)
    queues = None if queue is None else QueueAdmission.of(queue)
    observe = observers(server, policies, workers.decide, start)
    decide: dict[Phase, Decide] = {"mutate": policies.mutate, "validate": policies.validate}
    handlers: dict[Phase, AdmissionHandler] = {
        phase: AdmissionHandler(
            phase=phase,
            policies=decide[phase],
            jobs=jobs,
            queues=queues,
            exempt=exempt_groups(server.settings.namespace),
            prepare=partial(server.namespaces.fetch, server.client) if server.client else None,
            with_external_data=workers.decide,
            observe=observe[phase],
            run=workers.run,
        )
        for phase in PHASES
    }
    answers = {f"/{phase}": _answer(server, each) for phase, each in handlers.items()}
    if serves_old_versions(server.settings):
        answers[CONVERT] = partial(convert, rest=partial(asyncio.sleep, 0))
    unevaluated = UnevaluatedReviews(
        policies=lambda: policies.in_force,
        namespaces=server.namespaces.find if server.client else without_cluster,
        own_namespace=server.settings.namespace,
        queue=queue,
        gives_queue=server.gives_queue,
        count=server.metrics.review_not_evaluated,
    )
    return create_app(
        answers,
        metrics=server.metrics,
        clock=server.pace.clock,
        unevaluated={f"/{phase}": unevaluated.answers(phase) for phase in PHASES},
    )


def _answer(server: WebhookServer, handler: AdmissionHandler) -> Answer:
    """Return how reviews are answered: with a span for each if traces are on."""
    return handler.answer if server.tracer is None else traced(handler, server.tracer)


def _jobs(server: WebhookServer, queue: Integrations) -> JobAdmission:
    """Return the part for jobs; owners are looked up only where owner references are trusted."""
    lookups = server.lookups if server.client else None
    asked = lookups if server.integrations.makers.trusted else None
    return JobAdmission(
        integrations=queue,
        covers=server.covers,
        gives_queue=server.gives_queue,
        default_class=server.default_class,
        sends_away=server.sends_away,
        requesters=server.requesters,
        owner_exists=Owners(server.api_server, asked).is_there if asked else None,
        foresee=server.verdicts if server.settings.verdicts else None,
        has_quota=ReservedQuotas(server.api_server, lookups).has_quota if lookups else None,
    )


async def _drain(server: WebhookServer, stop: asyncio.Event, drained: asyncio.Event) -> None:
    await stop.wait()
    server.readiness.block("shutting down")
    log.info("webhooks_stopping", seconds=server.settings.drain_seconds)
    await server.pace.sleep(server.settings.drain_seconds)
    drained.set()
