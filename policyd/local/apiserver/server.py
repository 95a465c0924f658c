"""The server: its address, its certificate, its users, and its life from start to stop."""

import asyncio
import base64
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from policyd.certificates import Authority
from policyd.clock import Clock, SystemClock
from policyd.connections import Listening
from policyd.local.apiserver.admission.caller import (
    ResolveService,
    WebhookCaller,
    no_services,
)
from policyd.local.apiserver.admission.chain import AdmissionChain
from policyd.local.apiserver.admission.policies import StoredPolicies
from policyd.local.apiserver.admission.webhooks import Webhooks
from policyd.local.apiserver.app import ApiApplication, Application
from policyd.local.apiserver.builtin import builtin_kinds
from policyd.local.apiserver.custom.definitions import Definitions
from policyd.local.apiserver.housekeeping import Housekeeping, bootstrap
from policyd.local.apiserver.journal import Journal
from policyd.local.apiserver.openapi.document import Documents
from policyd.local.apiserver.registry import Registry
from policyd.local.apiserver.requests import ApiUser
from policyd.local.apiserver.state import PodLog, ServerState, no_log
from policyd.local.apiserver.status import Object
from policyd.local.apiserver.store import HISTORY, Store
from policyd.local.apiserver.writing.shape import reshape
from policyd.serving import Server, listen, server_config, server_context

HOST = "127.0.0.1"

ADMIN = ApiUser(name="kubernetes-admin", groups=("system:masters", "system:authenticated"))
"""The default user of a kubeconfig."""

CLUSTER = "policyd"
"""The name of cluster and context in the kubeconfig."""

GRACE_SECONDS = 2
"""How long requests under way may take when the server stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server is set up."""

    history: int = HISTORY
    """Changes of each resource that a watch can catch up on."""
    state_file: Path | None = None
    """Where to keep the objects between runs; only in memory if None."""
    pod_log: PodLog = no_log
    """Gives the log of a pod's container."""
    resolve_service: ResolveService = no_services
    """Finds the webhooks that are registered as Services."""


DEFAULT_OPTIONS = ServerOptions()


class ApiServer:
    """An API server on loopback, with TLS and tokens.

    It runs in the event loop of its caller. `address` and `kubeconfig` are known from the
    beginning, as the port is taken then.
    """

    def __init__(
        self,
        options: ServerOptions = DEFAULT_OPTIONS,
        *,
        port: int = 0,
        clock: Clock | None = None,
    ) -> None:
        """Take the port, and load the objects of the state file.

        Args:
            options: How the server is set up.
            port: Where to listen, on loopback; a free port if 0.
            clock: The clock.

        Raises:
            ConfigurationError: If the port is taken, or the file cannot be used.
        """
        self._clock = clock or SystemClock()
        self._authority = Authority.create(now=self._clock.now(), name="policyd api server")
        self._users: dict[str, ApiUser] = {}
        registry, store = Registry(builtin_kinds()), Store(history=options.history)
        self._caller = WebhookCaller(options.resolve_service)
        policies = StoredPolicies(store, registry, reshape=reshape)
        webhooks = Webhooks(store, registry, self._caller, reshape=reshape)
        self._state = ServerState(
            store=store,
            registry=registry,
            documents=Documents(registry),
            clock=self._clock,
            admission=AdmissionChain(store, policies, webhooks),
            pod_log=options.pod_log,
        )
        self._running: asyncio.Task[None] | None = None
        self._app = ApiApplication(self._state, users=self._users)
        self._stopping = asyncio.Event()
        self._journal = Journal(options.state_file, store) if options.state_file else None
        bootstrap(store, self._clock.now())
        Definitions(store, registry)
        self._socket = listen(HOST, port)

    @property
    def address(self) -> str:
        """The server's URL."""
        return f"https://{HOST}:{self._socket.getsockname()[1]}"

    def aggregate(self, group: str, application: Application) -> None:
        """Pass requests for an API group on to another server in this process.

        As with an APIService, it gets the user in headers. Discovery does not list the group.
        """
        self._app.aggregate(group, application)

    async def start(self) -> None:
        """Begin to answer; return once the server does."""
        pair = self._authority.issue([HOST, "localhost"], now=self._clock.now())
        context = server_context(pair)
        config = server_config(self._app, grace_seconds=GRACE_SECONDS)
        server = Server(config, Listening(tls=context), stop=self._stopping)
        self._running = asyncio.create_task(self._run(server))
        await server.ready.wait()

    async def _run(self, server: Server) -> None:
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(Housekeeping(self._state).run())
            await server.serve_on(self._socket)
            keeping.cancel()

    async def drain(self) -> None:
        """Refuse writes from now on, and let the writes in progress finish: they call webhooks."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self._app.drain()

    async def stop(self) -> None:
        """End the watches, let requests under way finish, and close the port."""
        for watcher in list(self._state.watchers):
            watcher.close()
        self._stopping.set()
        if self._running is not None:
            await self._running
        await self._caller.close()
        if self._journal is not None:
            self._journal.close()
        self._socket.close()

    def kubeconfig(self, user: ApiUser = ADMIN, *, namespace: str = "default") -> Object:
        """Return a kubeconfig for `user`, with a new token."""
        token = secrets.token_urlsafe(24)
        self._users[token] = user
        authority = base64.b64encode(self._authority.certificate_pem).decode()
        cluster = {"server": self.address, "certificate-authority-data": authority}
        context = {"cluster": CLUSTER, "user": user.name, "namespace": namespace}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": CLUSTER, "cluster": cluster}],
            "users": [{"name": user.name, "user": {"token": token}}],
            "contexts": [{"name": CLUSTER, "context": context}],
            "current-context": CLUSTER,
        }
