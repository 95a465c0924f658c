"""Composition root of the admission server."""

import asyncio
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack

import click
import uvicorn

from policyd.config import Settings, environment
from policyd.errors import PolicydError
from policyd.kube.connection import connection_from
from policyd.kube.http_client import HttpClient
from policyd.telemetry import configure_logging
from webhooks.choices import certificate_files, endpoint, needs_cluster, secret_name
from webhooks.door import Door, run_door
from webhooks.tls import listen


@click.command()
@click.option("--policies", multiple=True, metavar="PATH", help="File or folder; may be repeated.")
@click.option("--from-cluster", is_flag=True, default=None, help="Policy objects apply too.")
@click.option("--kubeconfig", metavar="FILE", help="How to reach the API server.")
@click.option("--host", help="Address to listen on.  [0.0.0.0]")
@click.option("--port", type=int, help="Port to listen on; 0 chooses one.  [9443]")
@click.option("--certificate", metavar="FILE", help="Server certificate, PEM.")
@click.option("--key", metavar="FILE", help="Its private key, PEM.")
@click.option("--authority", metavar="FILE", help="Who signed it, PEM, for --register.")
@click.option("--secret", metavar="NAMESPACE/NAME", help="Keep an own authority there instead.")
@click.option("--service", metavar="NAMESPACE/NAME[:PORT]", help="What the API server calls.")
@click.option("--url", metavar="URL", help="What it calls instead of a Service.")
@click.option("--namespace", help="Our own namespace, which is left out.  [policyd]")
@click.option("--queue/--no-queue", default=None, help="Hold jobs that name a queue.  [on]")
@click.option("--register", is_flag=True, default=None, help="Make the webhook configurations.")
@click.option("--timeout-seconds", type=int, help="How long the API server waits.  [5]")
@click.option("--drain-seconds", type=float, help="From failing readiness to closing.  [5]")
@click.option("--log-format", help="json, lines, or auto.  [auto]")
def main(**flags: object) -> None:
    """Answer the API server's admission reviews by policies.

    Each option can be given as a variable instead: POLICYD_PORT for --port.
    """
    variables = environment()
    try:
        settings = Settings.load(variables, flags)
        configure_logging(json=_wants_json(settings))
        _check(settings)
        with listen(settings.host, settings.port) as listener:
            _run(settings, variables, listener)
    except* PolicydError as group:
        _report(group)
        sys.exit(2)


def _run(settings: Settings, variables: Mapping[str, str], listener: socket.socket) -> None:
    # The loop that uvicorn would choose: uvloop, where there is one.
    loop_factory = uvicorn.Config("", loop="auto").get_loop_factory()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(_serve(settings, variables, listener))


async def _serve(settings: Settings, variables: Mapping[str, str], listener: socket.socket) -> None:
    stop = asyncio.Event()
    _stop_on_signals(stop)
    async with AsyncExitStack() as stack:
        door = Door(settings=settings)
        if needs_cluster(settings):
            connection = connection_from(variables, kubeconfig=settings.kubeconfig)
            door.client = await stack.enter_async_context(HttpClient(connection))
        await run_door(door, listener, stop=stop)


def _stop_on_signals(stop: asyncio.Event) -> None:
    """Close properly at the first signal, and at once at the second."""
    loop, running = asyncio.get_running_loop(), asyncio.current_task()
    assert running is not None, "a coroutine runs in a task"

    def end() -> None:
        if stop.is_set():
            running.cancel()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)


def _check(settings: Settings) -> None:
    """Find out what does not go together before anything is opened."""
    endpoint(settings)
    if certificate_files(settings) is None:
        secret_name(settings)


def _wants_json(settings: Settings) -> bool:
    if settings.log_format == "auto":
        return not sys.stderr.isatty()
    return settings.log_format == "json"


def _report(errors: BaseExceptionGroup[PolicydError]) -> None:
    """Show each error once, and what to do about it."""
    for error in _flat(errors):
        click.secho(f"error: {error}", fg="red", err=True)
        if error.hint:
            click.secho(f"hint: {error.hint}", fg="cyan", err=True)


def _flat(errors: BaseExceptionGroup[PolicydError]) -> list[PolicydError]:
    flat: list[PolicydError] = []
    for error in errors.exceptions:
        flat += _flat(error) if isinstance(error, BaseExceptionGroup) else [error]
    return flat


if __name__ == "__main__":
    main()
