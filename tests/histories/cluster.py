"""A cluster in simulated time: the real API server, webhooks and controller, and no real time."""

import asyncio
from collections import Counter
from contextlib import suppress
from functools import cache
from random import Random

from policyd.admission.handler import AdmissionHandler
from policyd.admission.jobs import JobAdmission, Requesters
from policyd.admission.queues import QueueAdmission
from policyd.cli.bootstrap import definitions
from policyd.controller.run import Controller
from policyd.controller.settings import ControllerSettings, ForecastsSettings
from policyd.engine.model.deadline import never
from policyd.engine.model.decision import ALLOWED
from policyd.jobs.integrations import Integrations
from policyd.kube import resources as r
from policyd.kube.auth import Header
from policyd.kube.connection import ApiConnection
from policyd.kube.errors import UnreachableError
from policyd.kube.http_client import HttpClient
from policyd.kube.leader import LeaseTerms
from policyd.kube.pace import Pace
from policyd.kube.transport import Limits
from policyd.local.apiserver.admission.caller import CallError, WebhookCaller
from policyd.local.apiserver.admission.chain import AdmissionChain
from policyd.local.apiserver.admission.policies import StoredPolicies
from policyd.local.apiserver.admission.webhooks import Webhooks
from policyd.local.apiserver.app import ApiApplication
from policyd.local.apiserver.builtin import builtin_kinds
from policyd.local.apiserver.custom.definitions import Definitions
from policyd.local.apiserver.housekeeping import Housekeeping, bootstrap
from policyd.local.apiserver.openapi.document import Documents
from policyd.local.apiserver.registry import Registry
from policyd.local.apiserver.requests import ApiUser
from policyd.local.apiserver.state import ServerState
from policyd.local.apiserver.store import Store
from policyd.local.apiserver.writing.shape import reshape
from policyd.local.simulation import JOB_CONTROLLER, run_simulation
from policyd.registration.configurations import (
    Registration,
    UrlEndpoint,
    exempt_groups,
    mutating_configuration,
    validating_configuration,
)
from policyd.registration.webhook_rules import derive_webhook_rules
from tests.histories.accounts import HOME, OWN, POLICIES, of_kind
from tests.histories.loop import START, Process, SimulatedLoop
from tests.histories.network import MemoryTransport, Network
from tests.histories.objects import FOREIGN
from tests.histories.trouble import Trouble
from tests.scenarios import foreign

JOB_SET_OPERATOR = min(foreign.DEFAULT_MAKERS["jobset.x-k8s.io"])
KINDS = frozenset({("", "Pod"), ("batch", "Job"), ("jobset.x-k8s.io", "JobSet")})
"""The kinds of jobs that queue in every history; others would be watched, and never come."""
ALL_KINDS = KINDS | {(foreign.GROUPS[kind][0], kind) for kind in FOREIGN}
OPERATORS = {kind: min(foreign.DEFAULT_MAKERS[foreign.GROUPS[kind][0]]) for kind in FOREIGN}

PATIENCE = Limits(silence_seconds=1800.0, watch_seconds=(2400, 7200))
"""Watches are not renewed all the time: most of what happens would be that."""

RESTART_SECONDS = 10.0
"""Until a controller that ended is started again, as by the kubelet."""

TERMS = LeaseTerms(
    lease_seconds=240, renew_seconds=160.0, retry_seconds=60.0, candidate_seconds=20.0,
    call_seconds=60,
)  # fmt: skip
"""Much longer than usual, so that hours do not consist of renewals."""


def account(name):
    """Return a user by the name of its account."""
    groups = ["system:authenticated"]
    if name.startswith("system:serviceaccount:"):
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{name.split(':')[2]}"]
    if name == "admin":
        groups.append("system:masters")
    return ApiUser(name=name, groups=tuple(groups))


USERS = {
    name: account(name) for name in ("admin", "alice", "mallory", OWN, JOB_CONTROLLER,
                                     JOB_SET_OPERATOR, "system:kube-scheduler",
                                     *OPERATORS.values())
}  # fmt: skip
INTEGRATIONS = Integrations(kinds=ALL_KINDS)


class Caller(WebhookCaller):
    """Asks the webhooks of this process, while they are up."""

    def __init__(self, trouble):
        super().__init__()
        self._handlers = handlers()
        self._trouble = trouble

    async def call(self, webhook, body):
        if self._trouble.webhooks_are_down():
            raise CallError(f'Post "{webhook.client["url"]}": connection refused')
        return await self._handlers[webhook.client["url"].rpartition("/")[2]].answer(body, never)


@cache
def handlers():
    """Return the handlers of both phases, which keep nothing of what they decide."""

    def nothing(*_given):
        return ALLOWED

    return {
        phase: AdmissionHandler(
            phase=phase,
            policies=nothing,
            jobs=JobAdmission(integrations=INTEGRATIONS, requesters=Requesters(HOME)),
            queues=QueueAdmission.of(INTEGRATIONS),
            exempt=exempt_groups(HOME),
        )
        for phase in ("mutate", "validate")
    }


@cache
def webhook_configurations():
    registration = Registration(
        endpoint=UrlEndpoint(url="https://webhooks"),
        rules=derive_webhook_rules((), queue=INTEGRATIONS),
        own_namespace=HOME,
        timeout_seconds=10,
    )
    return (
        (r.MUTATING_WEBHOOK_CONFIGURATIONS, mutating_configuration(registration)),
        (r.VALIDATING_WEBHOOK_CONFIGURATIONS, validating_configuration(registration)),
    )


class OwnPolicies(StoredPolicies):
    """Asks the chart's policies about writes of the controller: they bind nobody else here."""

    def validate(self, attributes):
        if attributes.user.name == OWN:
            super().validate(attributes)

    def mutate(self, _attributes, **_again):
        return False

    def know(self, template):
        """Take over what was compiled once."""
        self._stored, self._parts, self._all = template._stored, template._parts, template._all
        self._changed = False


class LightPace(Pace):
    """Waits without two tasks for each wait."""

    async def wait(self, event, seconds):
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
        return event.is_set()


class Cluster:
    """The processes of a cluster, and what was stored."""

    def __init__(self, loop, random, trouble, template=None):
        self.loop, self.random = loop, random
        self.trouble = trouble
        self.server = Process(loop, "api server")
        self.store = Store()
        registry = Registry(builtin_kinds()) if template is None else template.registry
        if template is None:
            bootstrap(self.store, START)
            Definitions(self.store, registry)
        else:
            self.store.version = template.version
            self.store._objects = {kind: dict(found) for kind, found in template.objects.items()}
            self.store.forget()
        webhooks = Webhooks(self.store, registry, Caller(trouble), reshape=reshape)
        if template is not None:
            webhooks._read = template.read
        self.webhooks, self.registry = webhooks, registry
        policies = OwnPolicies(self.store, registry, reshape=reshape)
        if template is not None:
            policies.know(template.policies)
        self.policies = policies
        self.state = ServerState(
            store=self.store,
            registry=registry,
            documents=Documents(registry),
            clock=self.server,
            admission=AdmissionChain(self.store, policies, webhooks),
        )
        application = ApiApplication(self.state, users=USERS)
        self.network = Network(self.server, application, random.random, trouble)
        self.server.start(Housekeeping(self.state).run())
        self.controllers = []
        self.started = Counter()

    def client(self, user, process, limits=PATIENCE):
        """Return the client of a process."""
        connection = ApiConnection(server="http://server", credentials=Header(f"Bearer {user}"))
        pace = self.pace(process)
        client = HttpClient(connection, limits=limits, pace=pace)
        client._transport = MemoryTransport(
            self.network, user, connection, limits=limits, pace=pace
        )
        return client

    def pace(self, process):
        return LightPace(clock=process, sleep=asyncio.sleep, jitter=self.random.random)

    def start_rest(self):
        """Start the scheduler, the kubelets and the Job controller."""
        rest = Process(self.loop, "kubelets")
        client = self.client("system:kube-scheduler", rest)
        jobs = self.client(JOB_CONTROLLER, rest)
        rest.start(run_simulation(client, self.pace(rest), job_controller=jobs))
        return rest

    def start_controller(self, *, elects=False, **settings):
        """Start a controller, which reads all it knows from what is stored."""
        number = self.started["controller"] = self.started["controller"] + 1
        process = Process(self.loop, f"controller {number}")
        settings = ControllerSettings(
            identity=process.name if elects else "",
            namespace=HOME,
            policies=False,
            workers=4,
            forecasts=ForecastsSettings(enabled=False),
            **settings,
        )

        async def run():
            while True:
                client = self.client(OWN, process)
                process.controller = Controller(client, settings, pace=self.pace(process))
                if elects:
                    process.controller.election._terms = TERMS
                with suppress(UnreachableError):  # at its start: the kubelet starts it again
                    await process.controller.run()
                await asyncio.sleep(RESTART_SECONDS)

        process.start(run())
        self.controllers.append(process)
        return process

    def kill(self, process):
        """Kill a controller, at whatever it waits for."""
        process.kill()
        self.network.cut(process)
        self.controllers.remove(process)

    def objects(self, resource):
        """Return all objects of a resource as they are stored."""
        name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        return [value for _, value in self.store.items(name)]


class Template:
    """What every cluster has: kinds, webhooks, priority classes."""

    def __init__(self, cluster):
        self.objects = {kind: dict(found) for kind, found in cluster.store._objects.items()}
        self.version, self.registry = cluster.store.version, cluster.registry
        self.read, self.policies = cluster.webhooks._read, cluster.policies


@cache
def template():
    """Set a cluster up once; what it stores is shared by all, as nothing changes it in place."""
    loop = SimulatedLoop(0)
    cluster = Cluster(loop, Random(0), Trouble(loop, Random(0).random))

    async def set_up():
        client = cluster.client("admin", cluster.server)
        made = [
            *definitions(),
            *(foreign.anything(*foreign.GROUPS[kind], kind) for kind in ("JobSet", *FOREIGN)),
        ]
        for each in made:
            await client.create(r.CUSTOM_RESOURCE_DEFINITIONS, each, into=dict)
        for resource, each in webhook_configurations():
            await client.create(resource, each, into=dict)
        await client.create(r.NAMESPACES, {"metadata": {"name": HOME}}, into=dict)
        for each in of_kind(*POLICIES, "Lease"):
            group, _, version = each["apiVersion"].partition("/")
            plural = f"{each['kind'].lower()}s".replace("policys", "policies")
            resource = r.Resource(group, version, plural, each["kind"], each["kind"] == "Lease")
            await client.create(resource, each, into=dict)
        cluster.policies._follow()

    loop.run_until_complete(set_up())
    cluster.loop.over = True
    found = Template(cluster)
    loop.close()
    return found
