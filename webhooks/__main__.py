"""Composition root of the admission server."""

import asyncio
import socket
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial

import click
import msgspec

from policyd.program import CommandProcess, uncollected

with uncollected():
    from policyd.config import Settings, configured
    from policyd.environment import environment
    from policyd.errors import ConfigurationError
    from policyd.kube.connection import connection_from
    from policyd.kube.http_client import HttpClient
    from policyd.process import keep_for_good, run
    from policyd.profiling import profiles
    from policyd.serving import listen
    from policyd.standard_input import STORED_FILE
    from policyd.telemetry import configure_logging
    from policyd.tracing import tracing
    from webhooks.queue_snapshots import asking
    from webhooks.server import WebhookServer, run_webhooks
    from webhooks.settings_checks import (
        certificate_files,
        check_callers,
        endpoint,
        needs_cluster,
        secret_name,
    )


@click.command(cls=CommandProcess)
@click.option(
    "--policies",
    multiple=True,
    type=STORED_FILE,
    metavar="PATH",
    help="File or folder; may be repeated.",
)
@click.option(
    "--from-cluster", is_flag=True, default=None, help="Policy objects of the cluster apply too."
)
@click.option(
    "--kyverno", is_flag=True, default=None, help="Kyverno's policies of the cluster apply too."
)
@click.option(
    "--exceptions",
    multiple=True,
    metavar="NAMESPACE",
    help="Namespaces whose PolicyExceptions count, with --kyverno.",
)
@click.option(
    "--reads",
    multiple=True,
    metavar="VERSION/PLURAL",
    help="Resources that Kyverno's policies may read.",
)
@click.option("--http", multiple=True, metavar="URL", help="URLs that they may call.")
@click.option("--registries", multiple=True, metavar="HOST", help="Registries that they may query.")
@click.option(
    "--registry-credentials",
    type=STORED_FILE,
    metavar="FILE",
    help="Passwords of the registries, a Docker configuration.",
)
@click.option("--kubeconfig", type=STORED_FILE, metavar="FILE", help="How to reach the API server.")
@click.option("--host", help="Address to listen on.  [0.0.0.0]")
@click.option("--port", type=int, help="Port to listen on; 0 chooses one.  [9443]")
@click.option("--metrics-port", type=int, help="Port of health and metrics.  [--port, and one]")
@click.option(
    "--client-ca", type=STORED_FILE, metavar="FILE", help="Authority of client certificates, PEM."
)
@click.option(
    "--client-names",
    multiple=True,
    metavar="NAME",
    help="Client names that may call; may be repeated.",
)
@click.option(
    "--plain-http", is_flag=True, default=None, help="Use uvicorn's HTTP implementation only."
)
@click.option("--certificate", type=STORED_FILE, metavar="FILE", help="Server certificate, PEM.")
@click.option("--key", type=STORED_FILE, metavar="FILE", help="Its private key, PEM.")
@click.option(
    "--authority", type=STORED_FILE, metavar="FILE", help="Its authority, PEM, for --register."
)
@click.option(
    "--secret", metavar="NAMESPACE/NAME", help="Secret for a self-managed authority instead."
)
@click.option(
    "--service", metavar="NAMESPACE/NAME[:PORT]", help="Service that the API server calls."
)
@click.option("--url", metavar="URL", help="URL that it calls instead of a Service.")
@click.option("--namespace", help="Namespace of policyd, which is excluded.  [policyd]")
@click.option("--queue/--no-queue", default=None, help="Hold jobs that name a queue.  [on]")
@click.option(
    "--queue-snapshots/--no-queue-snapshots",
    default=None,
    help="Read how the queues are from the controller.  [on]",
)
@click.option(
    "--verdicts/--no-verdicts",
    default=None,
    help="Warn new jobs whether they would start now.  [on]",
)
@click.option(
    "--starters", multiple=True, metavar="NAME", help="Other users that may start pending jobs."
)
@click.option(
    "--config", type=STORED_FILE, metavar="FILE", help="Kueue's Configuration: which jobs queue."
)
@click.option("--feature-gates", metavar="A=true,B=false", help="Kueue's feature gates.")
@click.option(
    "--failure-policy",
    type=click.Choice(["Fail", "Ignore"]),
    help="For jobs in queues, while the webhooks are down.  [Fail]",
)
@click.option(
    "--owner-references",
    type=click.Choice(["verify", "trust"]),
    help="Whether owner references that any user can write are trusted.  [verify]",
)
@click.option(
    "--makers",
    multiple=True,
    metavar="GROUP=ACCOUNT",
    help="Controller accounts of a group's kinds.",
)
@click.option("--register", is_flag=True, default=None, help="Create the webhook configurations.")
@click.option(
    "--leave-out",
    multiple=True,
    type=click.Choice(["secrets", "roles"]),
    help="Resources to exclude, with --register; may be repeated.",
)
@click.option("--serve-v1beta1", is_flag=True, default=None, help="Serve Kueue's v1beta1 too.")
@click.option("--remember", type=int, metavar="NUMBER", help="Decisions on pods to cache.  [256]")
@click.option("--reports", is_flag=True, default=None, help="Count denials in PolicyReports.")
@click.option("--timeout-seconds", type=int, help="Timeout of the API server's calls.  [5]")
@click.option("--drain-seconds", type=float, help="Delay from failing readiness to shutdown.  [5]")
@click.option("--traces", metavar="URL", help="Collector of traces, OTLP over HTTP.  [no traces]")
@click.option("--log-format", help="json, lines, or auto.  [auto]")
def main(**flags: object) -> None:
    """Answer the API server's admission reviews.

    Each option can be given as a variable instead: POLICYD_PORT for --port.
    """
    variables = environment()
    settings = Settings.load(variables, flags)
    configure_logging(json=_wants_json(settings))
    _check(settings)
    listener = listen(settings.host, settings.port)
    health = _listen_for_health(settings, listener)
    run(partial(_serve, settings, variables, (listener, health)))


async def _serve(
    settings: Settings,
    variables: Mapping[str, str],
    sockets: tuple[socket.socket, socket.socket],
    stop: asyncio.Event,
) -> None:
    async with AsyncExitStack() as stack:
        listener, health = (stack.enter_context(opened) for opened in sockets)
        kinds, tls, profiling = configured(settings.config, gates=settings.feature_gates)
        await stack.enter_async_context(profiles(profiling))
        kinds = replace(kinds, makers=settings.trusted_makers)
        server = WebhookServer(settings=settings, integrations=kinds, variables=variables, tls=tls)
        server.tracer = stack.enter_context(
            tracing(
                settings.traces, service="policyd-webhooks", dropped=server.metrics.spans_dropped
            )
        )
        if needs_cluster(settings):
            connection = connection_from(variables, kubeconfig=settings.kubeconfig)
            server.client = client = await stack.enter_async_context(
                HttpClient(connection, count=server.metrics.api_request)
            )
            server.ask_queues = asking(client)
            await _until_answered(client, stop)
        await run_webhooks(server, listener, stop=stop, health=health, loaded=keep_for_good)


def _listen_for_health(settings: Settings, listener: socket.socket) -> socket.socket:
    """Open the socket of health and metrics.

    Raises:
        ConfigurationError: If the port that is asked for is taken.
    """
    wanted, option = settings.metrics_port, "--metrics-port"
    if wanted is not None:
        return listen(settings.host, wanted, option=option)
    if settings.port:
        with suppress(ConfigurationError):
            return listen(settings.host, listener.getsockname()[1] + 1, option=option)
    return listen(settings.host, 0, option=option)


async def _until_answered(client: HttpClient, stop: asyncio.Event) -> None:
    """Ask the API server once, so that a wrong kubeconfig is reported at once; end early on `stop`.

    Raises:
        ApiError: If it cannot be reached, or does not want us.
    """
    asking = asyncio.ensure_future(client.fetch("/version", into=msgspec.Raw))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if asking.done():
        asking.result()
    asking.cancel()


def _check(settings: Settings) -> None:
    """Check that the settings agree before anything is opened."""
    endpoint(settings)
    check_callers(settings)
    if certificate_files(settings) is None:
        secret_name(settings)


def _wants_json(settings: Settings) -> bool:
    if settings.log_format == "auto":
        return not sys.stderr.isatty()
    return settings.log_format == "json"


if __name__ == "__main__":
    main()
