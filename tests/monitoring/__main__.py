"""`make monitoring`: a real Prometheus scrapes a real control plane with policyd under load.

Every query of every dashboard must return numbers, and every rule must be evaluated. Prints a
table, and ends with 1 if a query or a rule fails.
"""

import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.controlplane.programs import free_ports
from tests.controlplane.server import ControlPlane
from tests.monitoring import load
from tests.monitoring.collector import SPANS, collecting
from tests.monitoring.dashboards import plain, queries
from tests.monitoring.expressions import unknown
from tests.monitoring.prometheus import Prometheus, check_rules, lint, programs, scraping
from tests.scenarios.api import Api, eventually
from tests.scenarios.clusters import (
    Process,
    accounts_on,
    controller_command,
    install,
    webhooks_are_ready,
    webhooks_command,
)

MOST_SECONDS = 100.0
"""Of load: it ends as soon as every query has data, which on an idle machine is soon."""
RATE = "30s"
WITHOUT_POLICYD = ("PolicydWebhooksDown", "PolicydLeaderMissing")
"""Alerts that begin when both processes have ended."""


class Stage(NamedTuple):
    """What is watched, and what watches it.

    Attributes:
        api: The API server.
        prometheus: It scrapes policyd.
        ports: Of the metrics, by job.
        webhooks_port: Of the reviews.
        processes: policyd's.
        spans: Those that policyd has sent, by service and name.
    """

    api: Api
    prometheus: Prometheus
    ports: dict[str, int]
    webhooks_port: int
    processes: tuple[Process, ...]
    spans: set[tuple[str, str]]


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Start control plane, policyd and Prometheus."""
    ports = free_ports(["policyd-webhooks", "policyd-controller"])
    with ControlPlane() as control_plane, ExitStack() as stack:
        api = Api(control_plane.kubeconfig)
        install(api)
        load.prepare(api)
        accounts = accounts_on(control_plane)
        address, spans = stack.enter_context(collecting())
        options = {
            "policyd-webhooks": [*webhooks_command(accounts), "--metrics-port"],
            "policyd-controller": [*controller_command(accounts), "--health-port"],
        }
        commands = {
            name: [*command, str(ports[name]), "--traces", address]
            for name, command in options.items()
        }
        processes = tuple(Process(c, folder / f"{name}.log") for name, c in commands.items())
        for process in processes:
            process.start()
            stack.callback(process.stop)
        eventually(lambda: webhooks_are_ready(api, processes), within=120, what="they answer")
        prometheus = stack.enter_context(scraping(folder, ports))
        yield Stage(api, prometheus, ports, accounts.port, processes, spans)


def all_have_data(prometheus: Prometheus) -> bool:
    """Tell whether every query has data."""
    wanted = (plain(query.expression, interval=RATE) for query in queries())
    return all(prometheus.numbers(expression) for expression in wanted)


def findings(prometheus: Prometheus) -> Iterator[str]:
    """Print how many series each query has; yield what is wrong."""
    for query in queries():
        expression = plain(query.expression, interval=RATE)
        try:
            found = prometheus.numbers(expression)
        except AssertionError as error:
            found = {}
            yield f"{query.dashboard}: {query.panel}: {error}: {expression}"
        print(f"{query.dashboard:<10} {query.panel:<58} {len(found):>4}")
        if not found:
            yield f"{query.dashboard}: {query.panel}: no data: {expression}"
    for rule in prometheus.rules():
        print(f"{'alerts':<10} {rule['name']:<58} {rule['state']:>8}")
        if rule.get("health") != "ok":
            yield f"{rule['name']}: {rule.get('lastError') or rule.get('health')}"
        yield from (f"{rule['name']}: `{name}` is not exposed" for name in unknown(rule["query"]))


def unnoticed(prometheus: Prometheus) -> Iterator[str]:
    """Yield the alerts that do not begin though policyd has ended."""

    def begun() -> bool:
        states = {rule["name"]: rule["state"] for rule in prometheus.rules()}
        return all(states[name] != "inactive" for name in WITHOUT_POLICYD)

    try:
        eventually(begun, within=20, what=f"{WITHOUT_POLICYD} begin")
        print(f"{'alerts':<10} {', '.join(WITHOUT_POLICYD):<58} begin once policyd has ended")
    except AssertionError as error:
        yield str(error)


def exposed_badly(ports: dict[str, int], binaries: Path) -> Iterator[str]:
    """Yield what promtool has against our metrics."""
    for job, port in ports.items():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        yield from (f"{job}: {line}" for line in lint(text, binaries))


def main() -> int:
    """Run it all; return the exit code."""
    began = time.monotonic()
    try:
        binaries = programs()
    except subprocess.CalledProcessError as error:
        print(f"monitoring: skipped, as Debian's prometheus cannot be had: {error}")
        return 0
    with tempfile.TemporaryDirectory(prefix="policyd-monitoring-") as name:
        folder = Path(name)
        check_rules(folder, binaries)
        print(f"{time.monotonic() - began:.0f} s: promtool has checked and tested the rules")
        with stage(folder) as (api, prometheus, ports, webhooks_port, processes, spans):
            print(f"{time.monotonic() - began:.0f} s: policyd and Prometheus run")
            load.policies(api)
            enough = partial(all_have_data, prometheus)
            load.run(api, webhooks_port, enough=enough, most_seconds=MOST_SECONDS)
            print(f"{time.monotonic() - began:.0f} s: the load is over")
            wrong = [*findings(prometheus), *exposed_badly(ports, binaries)]
            for process in processes:
                process.stop()
            wrong += unnoticed(prometheus)
            wrong += [f"no span {name} of {service}" for service, name in SPANS - spans]
            print(f"{'traces':<10} {'spans by service and name':<58} {len(SPANS & spans):>4}")
    for line in wrong:
        print(f"wrong: {line}", file=sys.stderr)
    print(f"{time.monotonic() - began:.0f} s: {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
