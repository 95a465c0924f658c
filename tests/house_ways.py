"""How far one object travels through the product: the files and calls that it passes.

Counted while one object goes its way; nothing here is timed. `python -m tests.house_ways` lists
them. A resumed generator counts as a call, as the profiler has it.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from policyd.config import Settings
from policyd.jobs.integrations import EVERYTHING
from policyd.kube.pace import Pace
from tests.controller.world import pod_spec
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce
from webhooks.server import application
from webhooks.shared import WebhookServer
from webhooks.workers import Workers

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("policyd", "webhooks")
LATER = {
    "cap-devices-per-claim", "checkpoint-before-preempt", "dra-only", "gpu-bin-packing",
    "gpu-fractions", "karpenter-node-pools", "numa-alignment", "prefer-spot", "price-ceiling",
    "replica-spread", "service-tiers",
    "zones-of-namespace",
}  # fmt: skip
"""Policies that came later than the figures of a review, which are those of fifty policies."""

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "train",
        "namespace": "team-a",
        "labels": {"kueue.x-k8s.io/queue-name": "lq"},
    },
    "spec": pod_spec(8),
}


class _Still:
    """A clock that stands still, so that no review is late on a busy machine."""

    def now(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0


@contextmanager
def travelled() -> Iterator[Counter[str]]:
    """Count the calls of the product's functions, by file, while this is open."""
    tops = tuple(f"{ROOT / top}/" for top in PRODUCT)
    calls: Counter[str] = Counter()

    def count(frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(tops):
            calls[str(Path(file).relative_to(ROOT))] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def review_of(pod: dict) -> bytes:
    """Return the review of a pod that is created."""
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request = {
        "uid": "1",
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": pod["metadata"]["name"],
        "namespace": pod["metadata"]["namespace"],
        "operation": "CREATE",
        "userInfo": {"username": "alice"},
        "object": pod,
        "dryRun": False,
    }
    envelope = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps({**envelope, "request": request}).encode()


async def review_way() -> Counter[str]:
    """Count what a queued GPU pod passes on `/mutate`, the first of its kind, under the library."""
    pace = Pace(clock=_Still())
    server = WebhookServer(settings=Settings(), integrations=EVERYTHING, pace=pace)
    policies = PoliciesInForce(namespaces=without_cluster, metrics=server.metrics)
    library = (each.parent for each in (ROOT / "policies").glob("*/*/policy.yaml"))
    policies.read_files(sorted(each for each in library if each.name not in LATER))
    with ThreadPoolExecutor(1) as executor:
        workers = Workers(executor, clock=server.pace.clock)
        app = application(server, policies, workers, lambda work: work.close())
        other = {**POD, "spec": pod_spec(4)}
        await _ask(app, review_of(other))  # now modules are imported, and no decision is remembered
        with travelled() as calls:
            answer = await _ask(app, review_of(POD))
    assert "patch" in json.loads(answer)["response"], answer
    return calls


def figures(calls: Counter[str]) -> dict[str, int]:
    """Return the figures of a way, by what they count."""
    return {"files": len(calls), "calls": calls.total()}


async def _ask(app, body: bytes) -> bytes:
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/mutate",
        "query_string": b"timeout=10s",
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ],
    }
    sent: list[bytes] = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message.get("body", b""))

    await app(scope, receive, send)
    return b"".join(sent)


def main() -> None:
    """Print the files that a review passes, and how many calls of each."""
    calls = asyncio.run(review_way())
    print(f"a review: {len(calls)} files, {calls.total():,} calls")
    for file, count in calls.most_common():
        print(f"{count:6,}  {file}")


if __name__ == "__main__":
    main()
