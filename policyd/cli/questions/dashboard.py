"""`policyd dashboard`: show queues, nodes and jobs in a browser."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Unpack

import click

from policyd.cli.clusters import connection_for
from policyd.cli.options import CONTEXT, KUBECONFIG, ContextOptions
from policyd.connections import Listening
from policyd.dashboard.guard import LOOPBACK, Address, host_name
from policyd.dashboard.serve import BOUNDS, on_loopback, with_sign_in
from policyd.dashboard.signing_in import TrustedProxy
from policyd.dashboard.webhook_counts import WebhookCounts
from policyd.errors import ConfigurationError, system_reason
from policyd.kube.http_client import HttpClient
from policyd.process import run
from policyd.serving import server_context
from policyd.standard_input import STORED_FILE
from policyd.telemetry import configure_logging

SHORTEST_SECRET = 16
"""Characters of the secret of a proxy, at least."""


class _Given(ContextOptions):
    """The arguments of the command."""

    host: str
    port: int
    tokens: bool
    host_names: tuple[str, ...]
    behind_tls: bool
    certificate: str | None
    key: str | None
    client_ca: str | None
    proxy_name: tuple[str, ...]
    proxy_secret_file: str | None
    proxy_user_header: str
    proxy_groups_header: str
    proxy_user_prefix: str
    proxy_group_prefix: str
    webhook_metrics: tuple[str, ...]


@click.command("dashboard")
@KUBECONFIG
@CONTEXT
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default="a free one",
    help="Port of the page.",
)
@click.option(
    "--tokens", is_flag=True, help="Sign in by bearer tokens, which the API server reviews."
)
@click.option(
    "--host-name",
    "host_names",
    metavar="NAME",
    multiple=True,
    help="Name that browsers call the page by, besides those of loopback.",
)
@click.option("--behind-tls", is_flag=True, help="A proxy before the page speaks TLS to browsers.")
@click.option("--certificate", type=STORED_FILE, metavar="FILE", help="Server certificate, PEM.")
@click.option("--key", type=STORED_FILE, metavar="FILE", help="Its private key, PEM.")
@click.option(
    "--client-ca",
    type=STORED_FILE,
    metavar="FILE",
    help="Authority of the client certificate of a proxy that signs people in, PEM.",
)
@click.option(
    "--proxy-name",
    metavar="NAME",
    multiple=True,
    help="Name in that certificate. Other clients get no answer.",
)
@click.option(
    "--proxy-secret-file",
    type=STORED_FILE,
    metavar="FILE",
    help="What a proxy that signs people in sends in X-Policyd-Proxy-Secret; with --proxy-name, it"
    " needs both.",
)
@click.option(
    "--proxy-user-header", default="X-Forwarded-User", show_default=True, help="Its user header."
)
@click.option(
    "--proxy-groups-header",
    default="X-Forwarded-Groups",
    show_default=True,
    help="Its groups header.",
)
@click.option("--proxy-user-prefix", default="", help="What RBAC has before its users' names.")
@click.option("--proxy-group-prefix", default="", help="What RBAC has before its groups' names.")
@click.option(
    "--webhook-metrics",
    metavar="HOST:PORT",
    multiple=True,
    help="Metrics of webhooks, which count reviews; all addresses of a name are asked.",
)
def command(**given: Unpack[_Given]) -> None:
    r"""Show queues, nodes and jobs in a browser, as they change. Press Ctrl-C to stop it.

    The page is read-only, and shows what you may see with your kubeconfig. It is served on
    loopback, and opened by a link that is good for one browser and for ten minutes. Whenever the
    page is opened without a session, the terminal prints a new link.

    With --tokens or a proxy, it is a page for others, who see what the API server permits them.
    The chart runs it so.

    \b
    Examples:
      policyd dashboard
      policyd dashboard --context production --port 8090
      policyd dashboard --tokens --host 0.0.0.0 --host-name queues.example --behind-tls
    """
    configure_logging(json=False, least="warning")
    proxy = _proxy(given)
    own = not given["tokens"] and proxy is None
    if own and given["host"] not in LOOPBACK:
        raise ConfigurationError(
            f"a page on `{given['host']}` has to sign people in",
            hint="add `--tokens`, or a proxy; on loopback, a link does",
        )
    run(partial(_for_one if own else partial(_for_all, proxy), given), keep_buffers=False)


async def _for_one(given: _Given, stop: asyncio.Event) -> None:
    connection = connection_for(given)
    async with HttpClient(connection) as client:
        namespace, port = connection.namespace, given["port"]
        async with on_loopback(
            client,
            namespace=namespace,
            port=port,
            print_link=_print_link,
            reviews=_reviews(given),
        ) as link:
            _print_link(link)
            await stop.wait()


def _print_link(link: str) -> None:
    click.echo(f"open this in a browser, once, within ten minutes: {link}")


async def _for_all(proxy: TrustedProxy | None, given: _Given, stop: asyncio.Event) -> None:
    connection = connection_for(given)
    listening = _listening(given)
    address = Address(
        hosts=frozenset(map(host_name, given["host_names"])),
        secure=given["behind_tls"] or listening.tls is not None,
    )
    async with HttpClient(connection) as client:
        serving = with_sign_in(
            client,
            connection if given["tokens"] else None,
            proxy,
            address,
            listening,
            host=given["host"],
            port=given["port"],
            reviews=_reviews(given),
        )
        async with serving as port:
            scheme = "https" if listening.tls else "http"
            click.echo(f"the page is at {scheme}://{given['host']}:{port}/")
            await stop.wait()


def _reviews(given: _Given) -> WebhookCounts | None:
    addresses = given["webhook_metrics"]
    return WebhookCounts(addresses) if addresses else None


def _proxy(given: _Given) -> TrustedProxy | None:
    """Return the proxy that is trusted; None for none.

    Raises:
        ConfigurationError: If it cannot be distinguished from others.
    """
    names, file = frozenset(given["proxy_name"]), given["proxy_secret_file"]
    if bool(names) != bool(given["client_ca"]):
        raise ConfigurationError("`--client-ca` and `--proxy-name` go together")
    if not names and not file:
        return None
    secret = _text(file).decode("utf-8", "replace").strip() if file else ""
    if file and len(secret) < SHORTEST_SECRET:
        raise ConfigurationError(
            f"the secret of the proxy in `{file}` is shorter than {SHORTEST_SECRET} characters",
            hint="`openssl rand -hex 32` prints one",
        )
    return TrustedProxy(
        secret=secret,
        names=names,
        user_header=given["proxy_user_header"],
        groups_header=given["proxy_groups_header"],
        user_prefix=given["proxy_user_prefix"],
        group_prefix=given["proxy_group_prefix"],
    )


def _listening(given: _Given) -> Listening:
    """Return how connections are taken.

    Raises:
        ConfigurationError: If a certificate cannot be used.
    """
    certificate, key, authority = given["certificate"], given["key"], given["client_ca"]
    if not certificate or not key:
        if certificate or key or authority:
            raise ConfigurationError("`--client-ca` needs both of `--certificate` and `--key`")
        return Listening(bounds=BOUNDS)
    from policyd.certificates import CertificatePair  # noqa: PLC0415 - ten megabytes

    pair = CertificatePair(certificate_pem=_text(certificate), key_pem=_text(key))
    callers = _text(authority) if authority else b""
    tls = server_context(pair, callers_pem=callers)
    return Listening(bounds=BOUNDS, tls=tls, names=frozenset(given["proxy_name"]))


def _text(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read `{path}`: {system_reason(error)}") from error
