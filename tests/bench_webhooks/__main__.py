"""`make bench-webhooks`: what a pod costs the API server and its webhooks, in six ways.

CPU is that of the processes, as the scheduler accounts for it: API server and webhook together.
Each way has a namespace of its own, so that all are open at a time, and take turns in bursts of a
quarter of a second, in an order that changes: a machine that is fast now and slow in a minute is so
for all of them. The pods are alike but for their names, as those of a job are, and policyd decides
on them once; what it takes if no two are alike stands beside. Webhooks that decide nothing and
answer policyd's own patch are the floor that no engine gets below: the API server has the same to
apply and a larger pod to go on with.
What the API server does anyway, whether pods are created or not, is not counted: the slower the
machine, the more of that there would be to each pod.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench_webhooks.given import Published, changes_of, choose, pod
from tests.bench_webhooks.webhooks import CHANGES, Measured, empty, native, policyd, send
from tests.live.server import Live, live

ROUNDS, NATIVE_ROUNDS = 60, 5
BURST, WARM, ALONE = 60, 100, 40
IDLE_SECONDS = 5

OVER_EMPTY, UNDER_NATIVE = 1.3, 1 / 6
"""The goals: policyd's extra cost, by that of empty webhooks and of native policies."""

BARE, NATIVE = "bare", "native"
EMPTY, WITH_PATCH, POLICYD = "empty webhooks", "with its patch", "policyd"
UNLIKE = "none alike"
NAMESPACES = {BARE: "bare", EMPTY: "empty", WITH_PATCH: "patched", POLICYD: "reviewed"}

_ROOT = Path(__file__).parents[2]

Row = dict[str, float]


def main() -> int:
    """Measure, print a table, and return whether it could be done."""
    options = _options()
    cases = Path(os.environ.get("POLICYD_CASES") or _ROOT.parent / "shared" / "cases")
    if not cases.is_dir():
        print(f"no cases in {cases}: set POLICYD_CASES to their folder", file=sys.stderr)
        return 2
    with live() as running:
        running.namespace(NAMESPACES[BARE], {})
        seen = send(running, pod(NAMESPACES[BARE]))
        validating, mutating = choose(cases / "policy", seen)
        _introduce(validating, mutating, len(json.dumps(pod())))
        idle = _idle(running)
        print(f"idle, the API server takes {idle * 1e3:.1f} ms of CPU a second", flush=True)
        published, changes = [*validating, *mutating], changes_of(mutating, seen)
        rounds = _side_by_side(running, published, changes, idle, rounds=options.rounds)
        figures = {way: _median(found) for way, found in rounds.items()}
        with native(running, published):
            bursts = [_burst(running, BARE, Measured(), idle) for _ in range(NATIVE_ROUNDS)]
            figures[NATIVE] = _median(bursts) | _alone(running, BARE, Measured())
    verdicts = _report(figures, rounds)
    if options.json:
        Path(options.json).write_text(json.dumps({"figures": figures, **verdicts}, indent=2))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-webhooks")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each takes its turn")
    parser.add_argument("--json", default="", help="where to write the figures")
    return parser.parse_args()


def _introduce(validating: list[Published], mutating: list[Published], size: int) -> None:
    print(
        f"pod of {size} bytes, {len(validating)} validating and {len(mutating)} mutating policies"
    )
    print("validating:", ", ".join(policy.name for policy in validating))
    print("mutating:  ", ", ".join(policy.name for policy in mutating), flush=True)


def _idle(running: Live) -> float:
    """Return the CPU seconds that the API server takes in a second for nothing."""
    running.settle()
    before = running.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    return (running.cpu_seconds() - before) / IDLE_SECONDS


def _side_by_side(
    running: Live, published: list[Published], changes: list[Any], idle: float, *, rounds: int
) -> dict[str, list[Row]]:
    """Open all ways but the native one, let them take turns, and return what each took.

    Args:
        running: The API server.
        published: The policies.
        changes: What they make of the pod.
        idle: CPU seconds that the API server takes in a second for nothing.
        rounds: How often each takes its turn.
    """
    opened = {
        EMPTY: lambda namespace: empty(running, namespace, CHANGES),
        WITH_PATCH: lambda namespace: empty(running, namespace, changes),
        POLICYD: lambda namespace: policyd(running, namespace, published, changes),
    }
    with ExitStack() as stack:
        webhooks_by_way = {BARE: Measured()}
        for way, namespace in NAMESPACES.items():
            running.namespace(namespace, {})
            if way in opened:
                webhooks_by_way[way] = stack.enter_context(opened[way](namespace))
            running.all(lambda given: send(running, given), [pod(namespace)] * WARM)
        running.settle()
        webhooks_by_way[UNLIKE] = webhooks_by_way[POLICYD]
        found: dict[str, list[Row]] = {way: [] for way in webhooks_by_way}
        turns, order = list(webhooks_by_way.items()), random.Random(1)
        for number in range(rounds):
            order.shuffle(turns)
            for way, measured in turns:
                found[way].append(_burst(running, way, measured, idle))
            _print_progress(number + 1, rounds)
        alone = {way: _alone(running, way, measured) for way, measured in webhooks_by_way.items()}
    return {way: [row | alone[way] for row in rows] for way, rows in found.items()}


def _print_progress(number: int, rounds: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if number == rounds else ""
        print(f"\rround {number} of {rounds}", end=end, file=sys.stderr, flush=True)


def _burst(running: Live, way: str, measured: Measured, idle: float) -> Row:
    """Send some pods, several at a time."""
    pods = _pods(way, BURST)
    server, webhook, started = running.cpu_seconds(), measured.cpu_seconds(), time.perf_counter()
    running.all(lambda given: send(running, given), pods)
    wall = time.perf_counter() - started
    server = running.cpu_seconds() - server - idle * wall
    webhook = measured.cpu_seconds() - webhook
    return {
        "pods_per_second": BURST / wall,
        "server_ms": server / BURST * 1e3,
        "webhook_ms": webhook / BURST * 1e3,
        "cpu_ms": (server + webhook) / BURST * 1e3,
    }


def _alone(running: Live, way: str, measured: Measured) -> Row:
    """Send some pods one at a time."""
    taken = []
    for given in _pods(way, ALONE):
        started = time.perf_counter()
        send(running, given)
        taken.append(time.perf_counter() - started)
    return {"alone_ms": statistics.median(taken) * 1e3, "memory_mb": measured.memory_mb()}


def _pods(way: str, number: int) -> list[Any]:
    """Make pods with names of their own, that differ in what policies look at if none is alike."""
    namespace = NAMESPACES[POLICYD if way == UNLIKE else way]
    return [pod(namespace, unlike=way == UNLIKE) for _ in range(number)]


def _median(rows: list[Row]) -> Row:
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def _report(figures: dict[str, Row], rounds: dict[str, list[Row]]) -> dict[str, Any]:
    """Print the table, and what policyd costs by the others."""
    print(
        f"{'':<16}{'pods/s':>8}{'p50 alone':>12}{'API server CPU':>16}{'webhook CPU':>13}"
        f"{'both':>10}{'extra':>10}{'memory':>10}"
    )
    extra = {way: row["cpu_ms"] - figures[BARE]["cpu_ms"] for way, row in figures.items()}
    for way, row in figures.items():
        print(
            f"{way:<16}{row['pods_per_second']:>8.0f}{row['alone_ms']:>9.1f} ms"
            f"{row['server_ms']:>13.2f} ms{row['webhook_ms']:>10.2f} ms{row['cpu_ms']:>7.2f} ms"
            f"{extra[way]:>7.2f} ms{row['memory_mb']:>7.0f} MB"
        )
    by_empty, by_native = extra[POLICYD] / extra[EMPTY], extra[POLICYD] / extra[NATIVE]
    for what, value, goal in (
        ("policyd's extra by that of empty webhooks", by_empty, OVER_EMPTY),
        ("policyd's extra by that of native policies", by_native, UNDER_NATIVE),
    ):
        print(f"{what:<52} {value:.2f}   goal {goal:.2f}   {'ok' if value <= goal else 'OVER'}")
    by_patch = extra[POLICYD] / extra[WITH_PATCH]
    unlike = extra[UNLIKE] / extra[EMPTY]
    for what, value in (
        ("policyd's extra by empty webhooks' if none is alike", unlike),
        ("policyd's extra by that of webhooks with its patch", by_patch),
        ("theirs by that of empty webhooks: the patch alone", extra[WITH_PATCH] / extra[EMPTY]),
    ):
        print(f"{what:<52} {value:.2f}")
    least, _, most = statistics.quantiles(_ratios(rounds), n=4)
    print(
        f"in half of the rounds, policyd's by empty webhooks' is between {least:.2f} and {most:.2f}"
    )
    return {
        "extra_by_empty": by_empty,
        "extra_by_native": by_native,
        "extra_by_patch": by_patch,
        "unlike_by_empty": unlike,
    }


def _ratios(rounds: dict[str, list[Row]]) -> list[float]:
    """Return policyd's extra cost by that of empty webhooks, round by round."""
    rows = zip(rounds[BARE], rounds[EMPTY], rounds[POLICYD], strict=True)
    taken = ([row["cpu_ms"] for row in each] for each in rows)
    return [(ours - bare) / (theirs - bare) for bare, theirs, ours in taken]


if __name__ == "__main__":
    sys.exit(main())
