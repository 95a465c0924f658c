"""The clients of other clusters: made of kubeconfigs, watched, and renewed.

A connection that breaks is made anew, later each time. A kubeconfig that changes replaces the
client, without a restart. Each cluster is connected by a task of its own, so that a slow one keeps
no other waiting.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

import msgspec
import structlog

from policyd.api.kueue import AdmissionCheck, ClusterQueue
from policyd.api.kueue.multikueue import MultiKueueCluster
from policyd.api.meta import Condition, ObjectMeta, Wire, with_condition
from policyd.controller.multikueue.context import ManagerContext
from policyd.controller.multikueue.credentials import connection_to
from policyd.controller.patches import status_difference
from policyd.controller.watch.mirror import Mirror
from policyd.controller.writes import Writes
from policyd.errors import ConfigurationError, PolicydError
from policyd.jobs.base import prebuilt_name
from policyd.kube.client import Bookmark, Client, PartialObject
from policyd.kube.errors import (
    ApiError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    UnauthorizedError,
    UnreachableError,
)
from policyd.kube.http_client import HttpClient
from policyd.kube.pace import Pace
from policyd.kube.pages import pages
from policyd.kube.resources import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    SECRETS,
    WORKLOADS,
    Resource,
)
from policyd.kube.transport import OF_WORKERS
from policyd.multikueue.connections import (
    BAD_KUBECONFIG,
    BAD_PROFILE,
    BAD_REST_CONFIG,
    DEPRECATED_PATH,
    DEPRECATED_PATH_MESSAGE,
    INSECURE_KUBECONFIG,
    KUBECONFIG_KEY,
    NOT_CONNECTED,
    PROFILES_OFF,
    ConnectionConfig,
    ConnectionProblem,
    ConnectionState,
    connected_condition,
    establish_seconds,
    failure_message,
    path_problem,
    read_kubeconfig,
    read_profile,
    retry_seconds,
    validate_connection,
)
from policyd.multikueue.settings import KUBECONFIG_FOLDER, ORIGIN

log = structlog.get_logger()

STEADY_SECONDS = 60.0
"""How long a connection has to last: one that is lost sooner is an attempt that failed."""
MOST_QUEUES = 20_000
"""Queues of a worker; no more are added up."""
WORKER_PAGE = 100
"""Objects that a worker is asked for at a time: so many are not too long an answer."""
LONGEST_KUBECONFIG = 1_048_576
"""Bytes; a Secret has no room for more."""
INSECURE_SECONDS = 60.0
"""Between looks at a kubeconfig that cannot be used: a file changes without an event."""
PROFILES = Resource("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles", "ClusterProfile")


FromProfile = Callable[[dict[str, Any]], ConnectionConfig | str]
"""Returns the connection of a ClusterProfile; a message if there is none."""

C = TypeVar("C", MultiKueueCluster, AdmissionCheck, ClusterQueue)


class KubeconfigSecret(Wire, frozen=True):
    """A Secret, trimmed to the key that may hold a kubeconfig."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class LoadedConnection(NamedTuple):
    """A connection, and the text that it was read from: another text is another connection."""

    config: ConnectionConfig
    source: bytes


class Connect(Protocol):
    """Connects to a cluster."""

    def __call__(self, loaded: LoadedConnection) -> AbstractAsyncContextManager[Client]:
        """Open a client. Raises an ApiError or a ConfigurationError if it cannot be had."""
        ...


class Reported(Protocol):
    """Takes in an object of a worker that is there, was changed, or is gone."""

    def __call__(self, metadata: ObjectMeta, /, *, gone: bool = False) -> None:
        """Take it in."""
        ...


@dataclass
class Remote:
    """One cluster.

    Attributes:
        name: Its name here.
        source: The text of its kubeconfig.
        state: Whether it is connected.
        client: Its API server, while it is.
        failures: Attempts in a row that failed.
        next_at: When the next attempt is, on the monotonic clock.
        before: The same before it was connected.
        connected_at: When that was, on the monotonic clock.
        stop: Ends its connection and its watches.
    """

    name: str
    source: bytes
    state: ConnectionState
    client: Client | None = None
    failures: int = 0
    next_at: float = 0.0
    before: int = 0
    connected_at: float = 0.0
    stop: Callable[[], Awaitable[None]] | None = None
    watched: set[Resource] = field(default_factory=set)
    watch: Callable[[Resource], None] = lambda _resource: None

    def follow(self, resource: Resource) -> None:
        """Watch the jobs of a kind there, from now on."""
        if resource not in self.watched:
            self.watched.add(resource)
            self.watch(resource)


class Remotes:
    """Keeps the clients of all clusters, and says of each whether it is connected."""

    def __init__(
        self,
        clusters: Mirror[MultiKueueCluster],
        context: ManagerContext,
        *,
        changed: Callable[[str, str], None] = lambda _namespace, _name: None,
        requoted: Callable[[str], None] = lambda _name: None,
        lost: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self._clusters = clusters
        self._writes = context.writes
        self._settings = context.settings
        self._pace = context.writes.pace
        self.namespace = context.namespace
        self._changed = changed
        self._requoted = requoted
        self._lost = lost
        self.by_name: dict[str, Remote] = {}
        self._missed: dict[str, float] = {}
        self.connect: Connect = self._connect
        providers = context.settings.providers
        self.from_profile: FromProfile = lambda profile: read_profile(profile, providers)
        self.folder = KUBECONFIG_FOLDER
        self.tasks: asyncio.TaskGroup | None = None
        """Where connections run; set while the controller does."""

    def connected(self, name: str) -> Client | None:
        """Return the client of a cluster; None if it is not connected."""
        remote = self.by_name.get(name)
        return remote.client if remote is not None and remote.state.connected else None

    def lost_at(self, names: Iterable[str]) -> dict[str, float]:
        """Return since when each of some clusters is not connected, in seconds since the epoch.

        One of which that is not known, as after a start, counts from when it was first missed.
        """
        found, now = {}, self._pace.clock.now()
        for name in names:
            remote = self.by_name.get(name)
            lost_at = None if remote is None else remote.state.lost_at
            found[name] = self._missed.setdefault(name, now) if lost_at is None else lost_at
        return found

    async def reconcile(self, name: str) -> float | None:
        """Connect to a cluster, if it is not. Returns the seconds until it should be tried again.

        Raises:
            ApiError: If the status could not be written.
        """
        cluster = self._clusters.get(name)
        if cluster is None or cluster.metadata.deletion_timestamp is not None:
            await self._disconnect(name)
            self.by_name.pop(name, None)
            return None
        loaded = await self.load(cluster)
        if isinstance(loaded, ConnectionProblem):
            await self._disconnect(name)
            message = f"load client config failed: {loaded.message}"
            await self._write(cluster, (loaded.reason, message))
            log.warning("cluster_not_connected", cluster=name, reason=loaded.reason)
            return None if loaded.absent else INSECURE_SECONDS
        wait = await self._connect_as(cluster, loaded)
        if wait is None:
            await self._write(cluster, None)
        return wait

    async def load(self, cluster: MultiKueueCluster) -> LoadedConnection | ConnectionProblem:
        """Return how to reach a cluster, as its object says."""
        source = cluster.spec.cluster_source
        if source.cluster_profile_ref is not None:
            return await self._load_profile(source.cluster_profile_ref.name)
        reference = source.kube_config
        if reference is None:
            return ConnectionProblem(BAD_KUBECONFIG, "kubeconfig reference is nil")
        try:
            if reference.location_type == "Path":
                content = self._read_file(cluster, reference.location)
            else:
                content = await self._read_secret(reference.location)
        except NotFoundError as error:
            return ConnectionProblem(BAD_KUBECONFIG, str(error), absent=True)
        except PolicydError as error:
            return ConnectionProblem(BAD_KUBECONFIG, str(error))
        config = read_kubeconfig(content)
        if isinstance(config, str):
            return ConnectionProblem(INSECURE_KUBECONFIG, config)
        return LoadedConnection(config, content)

    async def _load_profile(self, name: str) -> LoadedConnection | ConnectionProblem:
        if not self._settings.profiles:
            message = "MultiKueueClusterProfile feature gate is disabled"
            return ConnectionProblem(PROFILES_OFF, message)
        try:
            profile = await self._writes.client.get(
                PROFILES, name, namespace=self.namespace, into=dict[str, Any]
            )
            config = self.from_profile(profile)
            if isinstance(config, str):
                return ConnectionProblem(BAD_PROFILE, config)
        except NotFoundError:
            message = f'{PROFILES.kind}.{PROFILES.group} "{name}" not found'
            return ConnectionProblem(BAD_PROFILE, message, absent=True)
        except PolicydError as error:
            return ConnectionProblem(BAD_PROFILE, str(error))
        if problem := validate_connection(config, may_run=True):
            return ConnectionProblem(BAD_REST_CONFIG, problem)
        return LoadedConnection(config, repr(config).encode())

    async def _read_secret(self, name: str) -> bytes:
        try:
            secret = await self._writes.client.get(
                SECRETS, name, namespace=self.namespace, into=KubeconfigSecret
            )
        except NotFoundError as error:
            message = f'{SECRETS.kind} "{name}" not found in namespace "{self.namespace}"'
            raise NotFoundError(message) from error
        content = secret.data.get(KUBECONFIG_KEY)
        if content is None:
            raise ConfigurationError(f'key "{KUBECONFIG_KEY}" not found in secret "{name}"')
        return base64.b64decode(content)

    def _read_file(self, cluster: MultiKueueCluster, path: str) -> bytes:
        file = Path(path)
        try:
            if self._settings.checks_paths:
                folder = str(Path(self.folder).resolve())
                if problem := path_problem(path, str(file.resolve()), folder):
                    raise ConfigurationError(problem)
            else:
                self._writes.record(
                    MULTIKUEUE_CLUSTERS,
                    cluster.metadata,
                    DEPRECATED_PATH,
                    DEPRECATED_PATH_MESSAGE,
                    warning=True,
                )
            with file.open("rb") as opened:
                return opened.read(LONGEST_KUBECONFIG)
        except OSError as error:
            reason = (error.strerror or "it cannot be read").lower()
            raise ConfigurationError(f"open {path}: {reason}") from error

    async def _connect_as(
        self, cluster: MultiKueueCluster, loaded: LoadedConnection
    ) -> float | None:
        """Connect, if that is needed and due; return the seconds until it is."""
        name, clock = cluster.metadata.name, self._pace.clock
        remote = self.by_name.get(name)
        if remote is None or remote.source != loaded.source:
            await self._disconnect(name)
            lost = ConnectionState() if remote is None else remote.state
            remote = self.by_name[name] = Remote(name, loaded.source, lost.lost(clock.now()))
        if remote.state.connected:
            return None
        left = remote.next_at - clock.monotonic()
        if remote.failures and left > 0:
            return left
        await self._stop(remote)
        try:
            await self._pace.within(establish_seconds(remote.failures), self._open(remote, loaded))
        except TimeoutError:
            return await self._failed(cluster, remote, "watch establishment timed out")
        except PolicydError as error:
            return await self._failed(cluster, remote, str(error))
        remote.before, remote.failures = remote.failures, 0
        remote.connected_at = clock.monotonic()
        remote.state = ConnectionState()
        self._missed.pop(name, None)
        log.info("cluster_connected", cluster=name)
        return None

    async def _open(self, remote: Remote, loaded: LoadedConnection) -> None:
        """Open a client, and see whether it may read; then watch the workloads there."""
        context = self.connect(loaded)
        client = await context.__aenter__()
        tasks: list[asyncio.Task[None]] = []

        def run(work: Coroutine[Any, Any, None]) -> None:
            if self.tasks is None:
                work.close()
            else:
                tasks.append(self.tasks.create_task(self._until_lost(remote, client, work)))

        origin = f"{ORIGIN}={self._settings.origin}"

        def watch(resource: Resource) -> None:
            report = partial(_report, resource, self._changed)
            run(self._where_served(remote, client, resource, origin, report))

        async def stop() -> None:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)  # none of them says anything of this connection any more
            await context.__aexit__(None, None, None)

        remote.client, remote.stop, remote.watch, remote.watched = client, stop, watch, set()
        await client.page(WORKLOADS, into=PartialObject, limit=1, label_selector=origin)
        report = partial(_report, WORKLOADS, self._changed)
        run(watch_remote(client, WORKLOADS, origin, self._pace, report))
        for each in (LOCAL_QUEUES, CLUSTER_QUEUES) if self._settings.automates else ():
            run(self._where_served(remote, client, each, "", self._quota_report(remote.name)))
        run(probe(client, self._pace))

    async def _where_served(
        self, remote: Remote, client: Client, resource: Resource, selector: str, report: Reported
    ) -> None:
        """Watch a kind. One that the worker does not serve or show is no lost connection.

        Users of the manager decide which kinds are sent.
        """
        try:
            await watch_remote(client, resource, selector, self._pace, report)
        except (ForbiddenError, NotFoundError) as error:
            what = resource.plural
            log.warning("kind_not_watched", cluster=remote.name, resource=what, error=str(error))
            await self._pace.sleep(KIND_SECONDS)
            remote.watched.discard(resource)

    def _quota_report(self, name: str) -> Reported:
        """Return what takes in changes of the queues that the quotas of a worker are made of."""
        known: dict[str, int] = {}

        def report(metadata: ObjectMeta, *, gone: bool = False) -> None:
            generation = metadata.generation or 0
            if gone or known.get(metadata.key) != generation:
                self._requoted(name)
            if gone or len(known) > MOST_QUEUES:
                known.clear()
            known[metadata.key] = generation

        return report

    async def _until_lost(self, remote: Remote, client: Client, watching: Awaitable[None]) -> None:
        """Watch until the cluster is out of reach, and have it connected again."""
        try:
            await watching
        except ApiError as error:
            if remote.client is client:
                self.lose(remote.name, str(error))

    def lose(self, name: str, error: str = "") -> None:
        """Note that a cluster does not answer, and have it connected again."""
        remote = self.by_name.get(name)
        if remote is not None and remote.state.connected:
            remote.state = remote.state.lost(self._pace.clock.now())
            now = self._pace.clock.monotonic()
            if now - remote.connected_at < STEADY_SECONDS:
                remote.failures = remote.before + 1
                remote.next_at = now + retry_seconds(remote.failures)
            log.warning("cluster_lost", cluster=name, error=error)
            self._lost(name)

    async def _failed(self, cluster: MultiKueueCluster, remote: Remote, problem: str) -> float:
        await self._stop(remote)
        remote.failures += 1
        wait = retry_seconds(remote.failures)
        remote.next_at = self._pace.clock.monotonic() + wait
        next_at = self._pace.clock.now() + wait
        message = failure_message(problem, remote.failures, next_at)
        await self._write(cluster, (NOT_CONNECTED, message))
        log.warning("cluster_not_connected", cluster=remote.name, error=problem)
        return wait

    async def _write(self, cluster: MultiKueueCluster, problem: tuple[str, str] | None) -> None:
        condition = connected_condition(cluster, problem, now=self._pace.clock.now())
        if condition is not None:
            await write_condition(self._clusters, cluster, condition, self._writes)

    async def _disconnect(self, name: str) -> None:
        remote = self.by_name.get(name)
        if remote is not None:
            remote.state = remote.state.lost(self._pace.clock.now())
            await self._stop(remote)

    async def _stop(self, remote: Remote) -> None:
        stop, remote.stop, remote.client = remote.stop, None, None
        if stop is not None:
            await stop()

    async def close(self) -> None:
        """Close all clients."""
        for name in tuple(self.by_name):
            await self._disconnect(name)

    @asynccontextmanager
    async def _connect(self, loaded: LoadedConnection) -> AsyncIterator[Client]:
        connection = connection_to(loaded.config, self._pace.clock)
        async with HttpClient(connection, limits=OF_WORKERS, pace=self._pace) as client:
            yield client


async def write_condition(mirror: Mirror[C], obj: C, condition: Condition, writes: Writes) -> None:
    """Write one condition of an object.

    Args:
        mirror: The objects of its kind.
        obj: The object, with conditions in its status.
        condition: The condition.
        writes: Writes.

    Raises:
        ApiError: If it could not be written.
    """
    old = obj.status.conditions
    before, after = (
        {"conditions": msgspec.to_builtins(conditions)}
        for conditions in (old, with_condition(old, condition))
    )
    patch = status_difference(obj.metadata, before, after)
    if patch is not None:
        await writes.patch(mirror, obj, patch, subresource="status")


WATCH_SECONDS = 1.0
"""Between two watches, or two lists, of one kind: a worker may end them at once."""
KIND_SECONDS = 60.0
"""Until a kind is watched again that a worker does not serve or show."""
PROBE_SECONDS = 10.0
"""Between looks whether a cluster still answers: a watch does not notice a cable that is cut."""
PROBE_TIMEOUT_SECONDS = 20.0
"""How long it may take to answer."""

Notify = Callable[[str, str], None]
"""Called with the namespace and the name of a workload."""


async def watch_remote(
    client: Client, resource: Resource, selector: str, pace: Pace, report: Reported
) -> None:
    """Report each change of the objects of one kind that a selector of labels selects.

    Raises:
        ApiError: If the cluster is out of reach.
    """
    while True:
        version = ""
        async for page in pages(
            client, resource, into=PartialObject, limit=WORKER_PAGE, label_selector=selector
        ):
            version = page.resource_version or version
            for obj in page.items:
                report(obj.metadata)
        try:
            while True:
                began = pace.clock.monotonic()
                version = await _watch(client, resource, version, selector, report)
                await pace.sleep(max(0.0, began + WATCH_SECONDS - pace.clock.monotonic()))
        except GoneError:
            await pace.sleep(WATCH_SECONDS)


async def _watch(
    client: Client, resource: Resource, version: str, selector: str, report: Reported
) -> str:
    """Watch until the server ends the watch; return the last version that was seen."""
    stream = client.watch(
        resource, into=PartialObject, resource_version=version, label_selector=selector
    )
    async with aclosing(stream) as events:
        async for event in events:
            if isinstance(event, Bookmark):
                version = event.resource_version
                continue
            metadata = event.object.metadata
            version = metadata.resource_version or version
            report(metadata, gone=event.type == "DELETED")
    return version


def _report(
    resource: Resource, notify: Notify, metadata: ObjectMeta, *, gone: bool = False
) -> None:
    del gone  # what is gone is a change like any other
    name = metadata.name if resource == WORKLOADS else prebuilt_name(metadata)
    if name:
        notify(metadata.namespace, name)


async def probe(client: Client, pace: Pace) -> NoReturn:
    """Ask a cluster now and then whether it is there.

    Raises:
        ApiError: If it does not answer.
    """
    while True:
        await pace.sleep(PROBE_SECONDS)
        try:
            await pace.within(PROBE_TIMEOUT_SECONDS, client.served(WORKLOADS.api_version))
        except TimeoutError as error:
            raise UnreachableError("the cluster does not answer") from error
        except (UnreachableError, UnauthorizedError):
            raise
        except ApiError as error:
            log.debug("cluster_probed", error=str(error))  # it answers, and that was the question
