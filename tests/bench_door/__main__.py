"""`make bench-door`: what a pod costs the API server and its webhooks, in five ways.

CPU is that of the processes, as the scheduler accounts for it: API server and webhook together.
The ways take turns, and the median of their rounds counts, so that neighbours on the machine
disturb all of them alike. Webhooks that decide nothing and answer policyd's own patch are the floor
that no engine gets below: the API server has the same to apply and a larger pod to go on with.
What the API server does anyway, whether pods are created or not, is not counted: the slower the
machine, the more of that there would be to each pod.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.bench_door.doors import Door, bare, empty, native, policyd
from tests.bench_door.given import Published, changes_of, choose, pod
from tests.live.server import Live, live, path_of

ROUNDS = 3
PODS = {"native": 200}
"""Pods of a round, where they are so slow that fewer will do."""

MOST_PODS, WARM, ALONE = 600, 60, 40
IDLE_SECONDS = 5

OVER_EMPTY, UNDER_NATIVE = 1.3, 1 / 6
"""The goals: policyd's extra cost, by that of empty webhooks and of native policies."""

_ROOT = Path(__file__).parents[2]


def main() -> int:
    """Measure, print a table, and return whether the goals are met."""
    options = _options()
    cases = Path(os.environ.get("POLICYD_CASES") or _ROOT.parent / "shared" / "cases")
    if not cases.is_dir():
        print(f"no cases in {cases}: set POLICYD_CASES to their folder", file=sys.stderr)
        return 2
    with live() as running:
        running.namespace("bench", {})
        given = pod()
        seen = running.ask("POST", path_of(given), given, query={"dryRun": "All"})
        assert seen.allowed, seen.message
        validating, mutating = choose(cases / "policy", seen.object)
        _introduce(validating, mutating, len(json.dumps(given)))
        changes = changes_of(mutating, seen.object)
        doors = {
            "bare": bare,
            "native": lambda: native(running, [*validating, *mutating]),
            "empty webhooks": lambda: empty(running),
            "with its patch": lambda: empty(running, changes),
            "policyd": lambda: policyd(running, [*validating, *mutating]),
        }
        idle = _idle(running)
        print(f"idle, the API server takes {idle * 1e3:.1f} ms of CPU a second", flush=True)
        figures = _measure(running, given, doors, idle, rounds=options.rounds)
    verdicts = _report(figures)
    if options.json:
        Path(options.json).write_text(json.dumps({"figures": figures, **verdicts}, indent=2))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-door")
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


def _measure(
    running: Live, given: Any, doors: dict[str, Callable[[], Any]], idle: float, *, rounds: int
) -> dict[str, dict[str, float]]:
    """Let the ways take turns; return the medians of each.

    Args:
        running: The API server.
        given: The pod that is created.
        doors: The ways.
        idle: CPU seconds that the API server takes in a second for nothing.
        rounds: How often each takes its turn.
    """
    found: dict[str, list[dict[str, float]]] = {name: [] for name in doors}
    for _ in range(rounds):
        for name, opened in doors.items():
            with ExitStack() as stack:
                door = stack.enter_context(_settled(running, opened))
                found[name].append(_round(running, given, door, idle, PODS.get(name, MOST_PODS)))
    return {
        name: {key: statistics.median(r[key] for r in results) for key in results[0]}
        for name, results in found.items()
    }


@contextmanager
def _settled(running: Live, opened: Callable[[], Any]) -> Iterator[Door]:
    with opened() as door:
        running.settle()
        yield door
    running.settle()


def _round(running: Live, given: Any, door: Door, idle: float, pods: int) -> dict[str, float]:
    """Send pods, several and then one at a time."""

    def send(_number: int) -> float:
        started = time.perf_counter()
        answer = running.ask("POST", path_of(given), given, query={"dryRun": "All"})
        assert answer.allowed, answer.message
        return time.perf_counter() - started

    assert door.acts(running.ask("POST", path_of(given), given, query={"dryRun": "All"}).body)
    running.all(send, range(WARM))
    server, webhook, started = running.cpu_seconds(), door.cpu_seconds(), time.perf_counter()
    running.all(send, range(pods))
    wall = time.perf_counter() - started
    server = running.cpu_seconds() - server - idle * wall
    webhook = door.cpu_seconds() - webhook
    alone = statistics.median(send(number) for number in range(ALONE))
    return {
        "pods_per_second": pods / wall,
        "alone_ms": alone * 1e3,
        "server_ms": server / pods * 1e3,
        "webhook_ms": webhook / pods * 1e3,
        "cpu_ms": (server + webhook) / pods * 1e3,
        "memory_mb": door.memory_mb(),
    }


def _report(figures: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Print the table, and what policyd costs by the others."""
    print(
        f"{'':<16}{'pods/s':>8}{'p50 alone':>12}{'API server CPU':>16}{'webhook CPU':>13}"
        f"{'both':>10}{'extra':>10}{'memory':>10}"
    )
    least = figures["bare"]["cpu_ms"]
    for name, row in figures.items():
        print(
            f"{name:<16}{row['pods_per_second']:>8.0f}{row['alone_ms']:>9.1f} ms"
            f"{row['server_ms']:>13.2f} ms{row['webhook_ms']:>10.2f} ms{row['cpu_ms']:>7.2f} ms"
            f"{row['cpu_ms'] - least:>7.2f} ms{row['memory_mb']:>7.0f} MB"
        )
    extra = {name: row["cpu_ms"] - least for name, row in figures.items()}
    by_empty = extra["policyd"] / extra["empty webhooks"]
    by_patch = extra["policyd"] / extra["with its patch"]
    patch_alone = extra["with its patch"] / extra["empty webhooks"]
    by_native = extra["policyd"] / extra["native"]
    for what, value, goal in (
        ("policyd's extra by that of empty webhooks", by_empty, OVER_EMPTY),
        ("policyd's extra by that of native policies", by_native, UNDER_NATIVE),
    ):
        print(f"{what:<50} {value:.2f}   goal {goal:.2f}   {'ok' if value <= goal else 'OVER'}")
    for what, value in (
        ("policyd's extra by that of webhooks with its patch", by_patch),
        ("theirs by that of empty webhooks: the patch alone", patch_alone),
    ):
        print(f"{what:<50} {value:.2f}")
    return {"extra_by_empty": by_empty, "extra_by_native": by_native, "extra_by_patch": by_patch}


if __name__ == "__main__":
    sys.exit(main())
