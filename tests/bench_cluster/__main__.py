"""`make bench-cluster`: a queue on a real API server, beside a controller that decides nothing.

The processes share the machine's cores, as those of Kueue's own figures did: API server, etcd, the
controller, and the harness that makes and ends the workloads. The floor is what a null controller
takes in the same run. For policyd, Kueue's kinds and the policy for Workloads are installed as its
chart has them by default; the null controller has the kinds alone.
"""

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from policyd.kube.connection import connection_from
from policyd.kube.http_client import HttpClient
from policyd.kube.transport import Limits
from tests.bench_cluster import start
from tests.bench_cluster.harness import Harness, Stuck, prepare
from tests.bench_cluster.loads import LOADS, Load
from tests.bench_cluster.measures import AGAIN_SECONDS
from tests.bench_cluster.processes import MAKER, NULL, controller, install, tail
from tests.controlplane.programs import API_SERVER, ETCD
from tests.controlplane.server import ControlPlane
from tests.live.processes import cpu_seconds, most_memory_mb

GOALS = {"baseline": 1.2, "topology": 1.3, "large-scale": 1.3}
"""policyd's wall time by that of the null controller, at most."""

CPU_SECONDS, MEMORY_MB = 60, 200
"""What policyd may take for the whole baseline."""

LOST_PERCENT = 1.0
"""Of the work done, at most that much again may be lost by preemption."""

KUEUE = {
    "baseline": "446 s wall, 130 s CPU and 629 MB of its controller, 893 s CPU in all; usage 58.9%",
    "topology": "539 s wall, 146 s CPU and 668 MB of its controller",
    "large-scale": "breaks off: the API server's time is up after 145 s",
}
"""As measured on two cores with everything on them: see `reference/kueue-semantics.md` 11.1."""

FLAGS = {
    API_SERVER: [
        "--max-requests-inflight=5000",
        "--max-mutating-requests-inflight=2500",
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
    ]
}
"""As Kueue's harness has them; and nobody is there to take the taint of new nodes away."""

START = "start"
"""Not a load: how long a controller takes to begin where there are many nodes and pods."""

LABEL = re.compile(r'(\w+)="([^"]*)"')
WRITES = {"POST", "PUT", "PATCH", "APPLY"}


def main() -> int:
    """Run the loads with both controllers and print the tables, with OVER where a goal is missed.

    A goal of the wall time depends on the machine (ADR 39). So 1 is returned only if more quota was
    held than there is.
    """
    options = _options()
    rows = []
    for name in options.load or (*LOADS, START):
        if name == START:
            rows.append({"load": name, "share": options.share, "runs": _start(options.share)})
            continue
        load = LOADS[name].part(options.share)
        bound = options.accounts == "chart"
        runs = {who: _measured(load, who, bound=bound) for who in (NULL, "policyd")}
        rows.append({"load": name, "share": options.share, "runs": runs})
        _report(name, load, runs)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2))
    return 0 if all(_sound(row["runs"]) for row in rows) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-cluster")
    parser.add_argument("--load", action="append", choices=(*LOADS, START), help="else all")
    parser.add_argument("--share", type=float, default=1.0, help="of the workloads: 0.1 for a look")
    parser.add_argument(
        "--accounts",
        choices=("admin", "chart"),
        default="admin",
        help="who policyd's controller is: chart is its own account, and what binds that",
    )
    parser.add_argument("--json", default="", help="where to write the figures")
    return parser.parse_args()


def _start(share: float) -> dict[str, Any]:
    with _cluster("policyd", bound=False) as (control_plane, folder, _):
        found = asyncio.run(start.measured(share, control_plane, folder / "log"))
    print(f"\nstart with {found['pods']:.0f} pods: {found['cpu']:.1f} s of CPU")
    for what, value, goal in (
        ("start: seconds to the first decision", found["seconds"], start.SECONDS),
        ("start: memory of the controller, MB", found["memory_mb"], start.MEMORY_MB),
    ):
        _compare(what, value, goal)
    return {"policyd": {**found, "exceeded": []}}


@contextmanager
def _cluster(who: str, *, bound: bool) -> Iterator[tuple[ControlPlane, Path, Path]]:
    with (
        ControlPlane(components=(ETCD, API_SERVER), flags=FLAGS, users=[MAKER]) as control_plane,
        tempfile.TemporaryDirectory(prefix="policyd-bench-") as folder,
    ):
        kubeconfig = install(who, control_plane, Path(folder), bound=bound)
        yield control_plane, Path(folder), kubeconfig


def _measured(load: Load, who: str, *, bound: bool) -> dict[str, Any]:
    print(f"{load.name}, {who}: {load.workloads} workloads, all there after {load.seconds:.0f} s")
    with _cluster(who, bound=bound) as (control_plane, folder, kubeconfig):
        run = controller(who, str(kubeconfig), folder / "log")
        return asyncio.run(_run(load, control_plane, run, folder / "log"))


async def _run(
    load: Load, control_plane: ControlPlane, run: AbstractContextManager[int], log: Path
) -> dict[str, Any]:
    kubeconfig = str(control_plane.kubeconfig)
    connection = connection_from(os.environ, kubeconfig=kubeconfig, context=MAKER.name)
    admin = connection_from(os.environ, kubeconfig=kubeconfig)
    async with (
        HttpClient(admin, limits=Limits(in_flight=256)) as above,
        HttpClient(connection, limits=Limits(in_flight=256)) as client,
    ):
        await prepare(above, load)
        harness = Harness(client, load, write_line=_print_progress)
        with run as pid:
            pids = {
                "API server": control_plane.pid(API_SERVER),
                "etcd": control_plane.pid(ETCD),
                "controller": pid,
                "harness": os.getpid(),
            }
            before = {name: cpu_seconds(pid) for name, pid in pids.items()}
            served = _written(control_plane)
            try:
                wall = await harness.run()
            except* Stuck as stuck:
                raise SystemExit(f"{stuck.exceptions[0]}\n{tail(log)}") from None
            written = _written(control_plane) - served - harness.writes
            return {
                "wall": wall,
                "cpu": {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()},
                "memory_mb": most_memory_mb(pid),
                "usage": harness.usage.share(),
                "to_admission": harness.times.means(),
                "preemption": harness.losses.figures(),
                "writes": {what: count / load.workloads for what, count in written.items()},
                "exceeded": harness.ledger.exceeded(load),
            }


def _written(control_plane: ControlPlane) -> Counter[str]:
    """Return how many writes the API server has answered, by what was written."""
    found: Counter[str] = Counter()
    for line in control_plane.text("/metrics").splitlines():
        if line.startswith("apiserver_request_total{"):
            text, _, value = line.rpartition(" ")
            labels = dict(LABEL.findall(text))
            if labels["verb"] in WRITES and labels["resource"] != "leases":
                what = "/".join(filter(None, (labels["resource"], labels["subresource"])))
                found[f"{labels['verb']} {what}"] += int(float(value))
    return found


def _print_progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def _report(name: str, load: Load, runs: dict[str, Any]) -> None:
    floor, ours = runs[NULL], runs["policyd"]
    print(f"\n{name}: {load.workloads} workloads in {load.cohorts * load.queues} queues")
    print(
        f"{'':<18}{'wall':>8}{'CPU API server':>16}{'etcd':>8}{'controller':>12}{'harness':>9}"
        f"{'memory':>9}{'writes each':>13}{'usage':>8}{'evictions':>11}"
    )
    for who, run in runs.items():
        cpu = run["cpu"]
        usage = "" if who == NULL else f"{run['usage']:.1%}"
        print(
            f"{who:<18}{run['wall']:>6.0f} s{cpu['API server']:>14.0f} s{cpu['etcd']:>6.0f} s"
            f"{cpu['controller']:>10.0f} s{cpu['harness']:>7.0f} s{run['memory_mb']:>6.0f} MB"
            f"{sum(run['writes'].values()):>13.2f}{usage:>8}{run['preemption']['evictions']:>11}"
        )
    print(f"{'Kueue':<18}{KUEUE[name]}")
    print("installed: kinds, and for policyd its chart's policy for new Workloads (ADR 18)")
    classes = "  ".join(f"{k} {seconds:.1f} s" for k, seconds in ours["to_admission"].items())
    print(f"time to admission: {classes}")
    writes = sorted(ours["writes"].items(), key=lambda item: -item[1])
    print(f"writes a workload: {', '.join(f'{what} {count:.2f}' for what, count in writes)}")
    print(f"quota exceeded:    {', '.join(ours['exceeded']) or 'never'}")
    _report_losses(ours["preemption"])
    for what, value, goal in _goals(name, load, floor, ours):
        _compare(what, value, goal)


def _report_losses(found: dict[str, Any]) -> None:
    """Say what evictions cost, and how many of them another one undid."""
    rights = ", ".join(f"{right} {count}" for right, count in sorted(found["rights"].items()))
    lost = ", ".join(f"{kind} {work:.0f}" for kind, work in sorted(found["lost"].items()))
    print(f"evictions:         {found['evictions']} ({rights or 'none'})")
    print(f"work lost:         {lost or 'none'} of {found['done']:.0f} CPU seconds done")
    undone = found["undone"]
    print(
        f"undone:            {undone['count']} by who waited already when they were admitted,"
        f" {undone['lost']:.0f} CPU seconds"
    )
    print(f"evicted again:     {found['repeated']} workloads twice or more")
    print(f"in vain:           {found['in_vain']} preemptors evicted within {AGAIN_SECONDS} s")


def _compare(what: str, value: float, goal: float) -> None:
    print(f"{what:<40} {value:>7.2f}   goal {goal:>6.2f}   {'ok' if value <= goal else 'OVER'}")


def _goals(
    name: str, load: Load, floor: dict[str, Any], ours: dict[str, Any]
) -> Iterator[tuple[str, float, float]]:
    yield "wall by that of the null controller", ours["wall"] / floor["wall"], GOALS[name]
    yield "work lost, % of work done", 100 * ours["preemption"]["share"], LOST_PERCENT
    if load == LOADS["baseline"]:
        yield "CPU of the controller, s", ours["cpu"]["controller"], CPU_SECONDS
        yield "memory of the controller, MB", ours["memory_mb"], MEMORY_MB


def _sound(runs: dict[str, Any]) -> bool:
    return not runs["policyd"]["exceeded"]


if __name__ == "__main__":
    sys.exit(main())
