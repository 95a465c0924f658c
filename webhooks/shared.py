"""The state that the parts of one admission server share."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import structlog
from prometheus_client import CollectorRegistry

from policyd.admission.jobs import DefaultClass, Requesters, keeps_all
from policyd.api.configuration.tls import SYSTEM, TlsRules
from policyd.certificates import CertificatePair, certificate_facts
from policyd.config import Settings
from policyd.engine.objects.match import labels_of
from policyd.jobs.integrations import EVERYTHING, Integrations
from policyd.kube.client import Client
from policyd.kube.pace import Pace
from policyd.snapshot.latest import LatestFacts, LatestSnapshot
from policyd.tracing import Tracer
from webhooks.certificate.tls import LiveContext
from webhooks.defaults import DefaultQueues
from webhooks.external_data.lookups import ExternalLookups
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import Namespaces
from webhooks.queue_snapshots import Ask
from webhooks.verdicts import JobVerdicts

if TYPE_CHECKING:
    from webhooks.policies.kyverno_statuses import KyvernoStatuses

Start = Callable[[Coroutine[Any, Any, NoReturn]], None]
"""Starts work that runs as long as the server does."""

log = structlog.get_logger(__name__)


class Readiness:
    """The reasons why this process is not ready; without a reason, it is."""

    def __init__(self, *reasons: str) -> None:
        self._reasons = dict.fromkeys(reasons)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons, in the order they were added."""
        return tuple(self._reasons)

    def block(self, reason: str) -> None:
        """Add a reason."""
        self._reasons[reason] = None

    def unblock(self, reason: str) -> None:
        """Remove a reason, if it is set."""
        self._reasons.pop(reason, None)


@dataclass(slots=True, kw_only=True)
class WebhookServer:
    """One admission server: its settings, clients, metrics and shared state."""

    settings: Settings
    client: Client | None = None
    """The API server; None where nothing needs one."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The environment's, which may name a proxy."""
    ask_queues: Ask | None = None
    """Asks the controller for a snapshot of the queues; None where there is none to be asked."""
    queues: LatestSnapshot = field(init=False)
    """The latest of them."""
    queue_facts: LatestFacts = field(init=False)
    """What policies read of the latest."""
    verdicts: JobVerdicts = field(init=False)
    """Says by it what new jobs can expect."""
    pace: Pace = field(default_factory=Pace)
    tracer: Tracer | None = None
    """Makes a span for each review, if traces are on."""
    metrics: WebhookMetrics = field(default_factory=lambda: WebhookMetrics(CollectorRegistry()))
    readiness: Readiness = field(default_factory=Readiness)
    policies_changed: asyncio.Event = field(default_factory=asyncio.Event)
    namespaces: Namespaces = field(default_factory=Namespaces)
    default_queues: DefaultQueues = field(init=False)
    """Where jobs that name no queue are put into one."""
    default_class: DefaultClass = field(default_factory=DefaultClass)
    """Whether jobs that name no priority class get one."""
    sent: Callable[[str, str], bool] = keeps_all
    """Tells whether the jobs of a LocalQueue, by namespace and name, go to other clusters."""
    tls: TlsRules = SYSTEM
    """Restrictions of the versions and suites of TLS."""
    context: LiveContext | None = None
    """The certificate in use, once there is one."""
    callers_pem: bytes = b""
    """The authority of the callers' certificates; empty if callers need none."""
    kyverno_statuses: "KyvernoStatuses | None" = None
    """Writes the statuses of Kyverno's policies; None where these are not read."""
    registered: bool = False
    """Whether the API server was configured to call, at least once."""
    integrations: Integrations = EVERYTHING
    """Which kinds of jobs queue, and where."""
    lookups: ExternalLookups | None = None
    """Fetches the external data of reviews; None if there is none to fetch."""
    requesters: Requesters = field(init=False)
    """Tells which users may start pending jobs."""

    def __post_init__(self) -> None:
        """Derive the webhook rules anew when the namespaces with a default queue change."""
        self.queues = LatestSnapshot(self.pace.clock.monotonic)
        self.queue_facts = LatestFacts(self.queues)
        self.verdicts = JobVerdicts(self.queues, self.namespaces.find, clock=self.pace.clock)
        self.requesters = Requesters(self.settings.namespace, self.settings.starters)
        self.default_queues = DefaultQueues(changed=self.policies_changed.set)

    def covers(self, namespace: str) -> bool:
        """Tell whether the jobs of a namespace queue; those of one that is not known do."""
        if self.integrations.namespaces is None:
            return True
        found = self.namespaces.find(namespace)
        return found is None or self.integrations.covers(labels_of(found))

    def sends_away(self, namespace: str, queue: str) -> bool:
        """Tell whether the jobs of a LocalQueue go to other clusters, as far as is known now."""
        return self.sent(namespace, queue)

    def gives_queue(self, namespace: str) -> bool:
        """Tell whether jobs of a namespace that name no queue are put into its default one."""
        return namespace in self.default_queues.namespaces and self.covers(namespace)

    def use(self, pair: CertificatePair) -> None:
        """Serve a certificate from now on."""
        if self.context is None:
            self.context = LiveContext(pair, callers_pem=self.callers_pem, rules=self.tls)
        else:
            self.context.replace(pair)
        expires_at = certificate_facts(pair.certificate_pem).not_after
        self.metrics.certificate_expiry.set(expires_at)
        self.metrics.certificate_loads.inc()
        log.info("certificate_in_use", expires_at=expires_at)

    def trust(self, callers_pem: bytes) -> None:
        """Answer from now on those alone whose certificates these sign."""
        if self.context is not None:
            self.context.trust(callers_pem)
        self.callers_pem = callers_pem
        log.info("callers_authority_in_use")

    @property
    def api_server(self) -> Client:
        """The API server, for settings that require one."""
        assert self.client is not None, "settings that need an API server come with a client"
        return self.client
