"""`policyd up`: all of policyd on an embedded cluster, in one process."""

import asyncio
import fcntl
import itertools
import os
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import (
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml
from rich.console import Console
from starlette.applications import Starlette

from policyd.api.kueue import visibility
from policyd.api.kueue.names import RESOURCE_IN_USE_FINALIZER
from policyd.api.meta import Json
from policyd.cli.bootstrap import bootstrap, shipped
from policyd.cli.configuring import CONFIG, configured
from policyd.cli.formats.documents import load
from policyd.cli.formats.report import exit_code, show_all
from policyd.cli.live import Live
from policyd.config import Settings
from policyd.controller.queues.pending_workloads import prepare_orders
from policyd.controller.queues.visibility import create_app
from policyd.controller.run import Controller
from policyd.controller.settings import ControllerSettings
from policyd.environment import environment
from policyd.errors import ConfigurationError, system_reason
from policyd.kube import resources
from policyd.kube.client import Client
from policyd.kube.connection import connection_from
from policyd.kube.errors import ApiError, NotFoundError
from policyd.kube.http_client import HttpClient
from policyd.local.apiserver.server import ApiServer, ServerOptions
from policyd.local.simulation import JOB_CONTROLLER, acting_as, run_simulation
from policyd.process import run
from policyd.profiling import profiles
from policyd.registration import configurations as registration
from policyd.serving import listen
from policyd.snapshot import values
from policyd.standard_input import STORED_FILE
from policyd.telemetry import configure_logging
from policyd.terminal import unfiltered
from webhooks.server import WebhookServer, asking, run_webhooks

if TYPE_CHECKING:
    from policyd.dashboard.view import CountReviews
    from policyd.dashboard.views.review_counts import Reviewed

HOST = "127.0.0.1"
READY_SECONDS = 60.0
OWN_ACCOUNT = "system:serviceaccount:policyd:policyd"
"""The account of the webhooks and the controller, which has rights that users do not have."""
HOURS = "kube-system/policyd-hours"
"""Where `policyd usage hours` looks for the record."""
REFUSED = {400, 401, 403, 413, 422}
"""The codes a policy can refuse with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """The options of `policyd up`."""

    port: int
    kubeconfig: Path
    policies: tuple[str, ...]
    config: str
    nodes: int
    racks: int
    state: Path | None
    dashboard: bool = True
    dashboard_port: int = 0
    serve_v1beta1: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The API server, as the parts of the cluster ask it."""

    user: Client
    own: HttpClient
    job_controller: Client


@click.command("up")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default="a free one",
    help="Port of the API server.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path(".policyd/kubeconfig"),
    show_default=True,
    help="Where to write the kubeconfig.",
)
@click.option(
    "--policies",
    type=STORED_FILE,
    metavar="PATH",
    multiple=True,
    show_default="the library",
    help="Policy files or folders, reloaded when they change, or -.",
)
@CONFIG
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Simulated nodes, 8 GPUs each.",
)
@click.option(
    "--racks",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Racks of the nodes.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep the cluster's objects in this file between runs.",
)
@click.option(
    "--dashboard/--no-dashboard",
    default=True,
    show_default=True,
    help="Serve the page, and print a one-time link to it.",
)
@click.option(
    "--dashboard-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default="a free one",
    help="Port of the page.",
)
@click.option("--serve-v1beta1", is_flag=True, help="Serve Kueue's v1beta1 too.")
def command(**given: Any) -> None:  # noqa: ANN401 - click gives each option its type
    r"""Start policyd on an embedded cluster. Press Ctrl-C to stop it.

    One process without Kubernetes: an API server on loopback for kubectl, simulated GPU nodes,
    the webhooks with the policy library, the controller, and two teams that share a cohort. The
    annotation policyd.io/run-for sets how long a pod runs.

    \b
    Examples:
      policyd up
      policyd up --policies my-policies/ --nodes 16 --racks 4
    """
    configure_logging(json=False, least="warning")
    options = UpOptions(**given)
    check_policies(options.policies)
    run(partial(_up, options))


def check_policies(paths: Sequence[str]) -> None:
    """Show the errors of policies, before anything is started.

    Raises:
        ConfigurationError: If one of them cannot be used.
    """
    if not paths:
        return
    loaded = load(paths)
    show_all(loaded.findings)
    if exit_code(loaded.findings):
        raise ConfigurationError(
            "the policies are invalid", hint="`policyd check` shows the same errors"
        )


async def _up(options: UpOptions, stop: asyncio.Event) -> None:
    settings = configured(ControllerSettings(hours_record=HOURS), path=options.config)
    with ExitStack() as kept:
        for path in (options.kubeconfig, options.state):
            if path is not None:
                kept.enter_context(kept_to_itself(path))
        async with profiles(settings.pprof_bind_address):
            await _serve(options, settings, stop)


async def _serve(options: UpOptions, settings: ControllerSettings, stop: asyncio.Event) -> None:
    server = ApiServer(ServerOptions(state_file=options.state), port=options.port)
    await server.start()
    try:
        write_kubeconfig(options.kubeconfig, server.kubeconfig())
        connection = connection_from(environment(), kubeconfig=str(options.kubeconfig))
        own = acting_as(connection, OWN_ACCOUNT)
        jobs = acting_as(connection, JOB_CONTROLLER)
        async with (
            HttpClient(connection) as client,
            HttpClient(own) as own_client,
            HttpClient(jobs) as job_controller,
        ):
            clients = Clients(user=client, own=own_client, job_controller=job_controller)
            await _run(clients, server, options, settings, stop)
    finally:
        await server.stop()


async def _run(
    clients: Clients,
    server: ApiServer,
    options: UpOptions,
    settings: ControllerSettings,
    stop: asyncio.Event,
) -> None:
    """Run everything that talks to the API server, until `stop` is set.

    policyd uses an account of its own: users may not start the jobs that it starts.
    """
    client = clients.user
    await forget_webhooks(client)
    library = not options.policies
    old = options.serve_v1beta1
    await bootstrap(client, nodes=options.nodes, racks=options.racks, library=library, old=old)
    listener = listen(HOST, 0)
    address = f"https://{HOST}:{listener.getsockname()[1]}"
    webhook_server = WebhookServer(
        settings=_webhook_settings(options, address),
        client=clients.own,
        ask_queues=asking(clients.own),
        integrations=settings.integrations,
    )
    controller = Controller(clients.own, settings)
    for api_group, application in visibility_of(controller).items():
        server.aggregate(api_group, application)
    parts: list[Coroutine[Any, Any, Any]] = [
        run_simulation(client, job_controller=clients.job_controller),
        controller.run(),
        prepare_orders(
            controller.cache, ready=lambda: controller.health.ready, pace=controller.pace
        ),
    ]
    closing = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        webhooks = group.create_task(run_webhooks(webhook_server, listener, stop=closing))
        tasks = [group.create_task(part) for part in parts]
        async with AsyncExitStack() as page:
            if await _opens(client, stop):
                reviews = partial(_reviewed, webhook_server)
                link = await page.enter_async_context(_page(client, options, reviews))
                click.echo(welcome(server.address, address, options, link))
                tasks.append(
                    group.create_task(Live(client, Console(file=unfiltered(sys.stderr))).run())
                )
            await stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # The webhooks end last: writes in progress call them.
        await server.drain()
        closing.set()
        webhooks.cancel()


@asynccontextmanager
async def _page(client: Client, options: UpOptions, reviews: "CountReviews") -> AsyncIterator[str]:
    """Serve the page while the block runs; give a link to it, "" if it is not to be served."""
    if not options.dashboard:
        yield ""
        return
    from policyd.dashboard.serve import on_loopback  # noqa: PLC0415 - after the start

    port, option = options.dashboard_port, "--dashboard-port"
    async with on_loopback(
        client,
        namespace="default",
        port=port,
        print_link=_print_link,
        option=option,
        reviews=reviews,
    ) as link:
        yield link


async def _reviewed(server: WebhookServer) -> "Reviewed":
    """Return what the webhooks of this process count."""
    from policyd.dashboard.views.review_counts import Reviewed, counts_in  # noqa: PLC0415 - later

    found = server.metrics.results.collect()
    return Reviewed(counts_in(sample for each in found for sample in each.samples), webhooks=1)


def _print_link(link: str) -> None:
    click.echo(f"a new link to the page, good once, for ten minutes: {link}")


def visibility_of(controller: Controller) -> dict[str, Starlette]:
    """Return what answers for pending workloads and queue snapshots, by API group.

    The API server of this process is the only one that calls it.
    """
    application = create_app(
        controller.cache,
        ready=lambda: controller.health.ready,
        names=frozenset,
        pace=controller.pace,
    )
    return dict.fromkeys((visibility.GROUP, values.GROUP), application)


async def _opens(client: Client, stop: asyncio.Event) -> bool:
    """Wait until an object comes back as the webhooks change it; False if `stop` is first.

    Raises:
        ConfigurationError: If it takes longer than READY_SECONDS.
    """
    deadline = asyncio.get_running_loop().time() + READY_SECONDS
    while not stop.is_set():
        if await _webhooks_are_called(client):
            return True
        if asyncio.get_running_loop().time() > deadline:
            raise ConfigurationError(
                f"not ready within {READY_SECONDS:.0f} seconds",
                hint="see the log above; `--policies` may name an invalid policy",
            )
        await asyncio.sleep(0.02)
    return False


def _webhook_settings(options: UpOptions, address: str) -> Settings:
    return Settings(
        policies=options.policies,
        from_cluster=True,
        host=HOST,
        secret="kube-system/policyd-webhooks",  # noqa: S106 - the name of a Secret
        url=address,
        register=True,
        drain_seconds=0.0,
    )


async def forget_webhooks(client: Client) -> None:
    """Delete the registration of an earlier run from the state: its address is not served now."""
    kinds = (
        resources.MUTATING_WEBHOOK_CONFIGURATIONS,
        resources.VALIDATING_WEBHOOK_CONFIGURATIONS,
    )
    names = (registration.NAME, registration.FORMER_NAME)
    for resource, name in itertools.product(kinds, names):
        with suppress(NotFoundError):
            await client.delete(resource, name)


async def _webhooks_are_called(client: Client) -> bool:
    """Tell whether the API server calls the webhooks: policies and jobs are registered at once."""
    flavor = resources.RESOURCE_FLAVORS
    names = {"apiVersion": flavor.api_version, "kind": flavor.kind, "metadata": {"name": "probe"}}
    try:
        answer = await client.create(flavor, {**names, "spec": {}}, into=dict, dry_run=True)
    except ApiError as error:
        # A policy of the user may refuse the probe: then the webhooks are called.
        return error.code in REFUSED
    return RESOURCE_IN_USE_FINALIZER in answer["metadata"].get("finalizers", ())


def write_kubeconfig(path: Path, content: Json) -> None:
    """Write the kubeconfig for its owner's eyes only: it has a token.

    Raises:
        ConfigurationError: If it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            yaml.safe_dump(content, file, sort_keys=False)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write the kubeconfig `{path}`: {error.strerror}",
            hint="name another file with `--kubeconfig`",
        ) from error


def welcome(api_server: str, webhooks: str, options: UpOptions, page: str = "") -> str:
    """Return the addresses, and commands to try."""
    kubeconfig = options.kubeconfig.resolve()
    examples = shipped("docs/examples")
    with suppress(ValueError):
        examples = examples.relative_to(Path.cwd())
    tries = {
        "get nodes,clusterqueues,policies": "what there is",
        f"create -f {examples}/pod.yaml -o yaml": "what the policies inject into a pod",
        f"create -f {examples}/greedy.yaml": "what they refuse, and what to do about it",
        f"create -f {examples}/first.yaml": "a Job of 8 GPUs: it runs",
        f"create -f {examples}/second.yaml": "another Job: it is pending, with a reason",
        "describe workloads -n team-a": "what is running, what is pending, and why",
        "policyd why job/second -n team-a": "why that one waits, and what would help it",
    }
    width = max(map(len, tries))
    lines = "\n".join(f"  kubectl {try_:<{width}}  # {why}" for try_, why in tries.items())
    return f"""
policyd is up, with {options.nodes} simulated GPU nodes in {options.racks} racks

  API server   {api_server}
  webhooks     {webhooks}
  kubeconfig   {kubeconfig}
{f"  page         {page}  (good once)" if page else ""}

export KUBECONFIG={kubeconfig}

Type that in another terminal, and then:

{lines}

Ctrl-C ends it.
"""


@contextmanager
def kept_to_itself(path: Path) -> Iterator[None]:
    """Keep other processes from using a file in this way while the block runs.

    The lock is a file beside it, since the file itself is replaced when it is written. It ends with
    the process, however that ends.

    Raises:
        ConfigurationError: If another process keeps it, or no file can be made there.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write next to `{path}`: {system_reason(error)}", hint="name another file"
        ) from error
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _taken(path, file.read().strip()) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _taken(path: Path, process: str) -> ConfigurationError:
    by = f"process {process}" if process else "another process"
    return ConfigurationError(
        f"`{path}` is in use by {by}, another `policyd up`",
        hint="stop that one, or name another file: `--kubeconfig`, and `--state` if there is one",
    )
