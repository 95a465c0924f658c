"""An API server with a large cluster, for the page: bodies that are made once and sent as they are.

Run as `python -m tests.bench.page_api PENDING NODES`; it prints its port.
"""

import itertools
import json
import random
import sys
import time

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from policyd.snapshot.values import API_VERSION, CLUSTER_PLURAL
from tests.dashboard.made import GPU, cohort, made_queue, made_snapshot

QUEUES, COHORTS, RACK, PAGE = 100, 10, 16, 500
EMPTY = {"metadata": {"resourceVersion": "1"}, "items": []}


def snapshot(pending: int, running: int, number: int) -> bytes:
    """The snapshot, with a pending job more in the first queue for each number."""
    queues = [
        made_queue(
            f"team-{n:03}",
            cohort=f"cohort-{n % COHORTS}",
            pending=pending // QUEUES + (number % 50 if n == 0 else 0),
            holding=running // QUEUES,
            used=40 + n % 40,
        )
        for n in range(QUEUES)
    ]
    cohorts = tuple(cohort(f"cohort-{n}", "all") for n in range(COHORTS))
    found = made_snapshot(
        *queues, cohorts=(cohort("all"), *cohorts), taken_at=time.time(), generation=number
    )
    return msgspec.json.encode(found)


def cluster(nodes: int) -> tuple[list[dict], list[dict]]:
    """Nodes of eight devices in racks, and pods on four fifths of them."""
    rng = random.Random(7)
    found, pods = [], []
    for n in range(nodes):
        name = f"gpu-{n:05}"
        labels = {"kubernetes.io/hostname": name, "rack": f"rack-{n // RACK:03}"}
        allocatable = {GPU: "8", "cpu": "96", "memory": "1Ti", "pods": "110"}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": allocatable, "conditions": ready}
        found.append({"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status})
        left = 8
        while left and rng.random() < 0.8:
            size = min(left, rng.choice((1, 2, 4, 8)))
            left -= size
            pods.append(pod(f"{name}-{left}", name, rng.randrange(nodes // 4), size))
    return found, pods


def pod(name: str, node: str, job: int, size: int) -> dict:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"run-{job}", "uid": f"u{job}"}
    metadata = {
        "name": name,
        "namespace": f"team-{job % QUEUES:03}",
        "creationTimestamp": "2026-11-26T10:00:00Z",
        "ownerReferences": [{**owner, "controller": True}],
    }
    requests = {GPU: str(size), "cpu": str(8 * size), "memory": f"{64 * size}Gi"}
    containers = [{"name": "main", "resources": {"requests": requests}}]
    spec = {"nodeName": node, "containers": containers}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def application(pending: int, nodes: int) -> Starlette:
    numbers = itertools.count(1)
    bodies = [snapshot(pending, pending // 2, next(numbers)) for _ in range(4)]
    known = dict(zip(("nodes", "pods"), cluster(nodes), strict=True))
    served: list[float] = []

    async def queues(_request: Request) -> Response:
        body = bodies[len(served) % len(bodies)]
        served.append(time.time())
        now = f'"takenAt":{time.time():.1f}'.encode()
        return Response(_stamped(body, now), media_type="application/json")

    async def objects(request: Request) -> Response:
        items = known.get(request.path_params["plural"], [])
        first = int(request.query_params.get("continue") or 0)
        metadata = {"resourceVersion": "1"}
        if first + PAGE < len(items):
            metadata["continue"] = str(first + PAGE)
        return JSONResponse({"metadata": metadata, "items": items[first : first + PAGE]})

    async def custom(request: Request) -> Response:
        levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
        racks = {"metadata": {"name": "racks"}, "spec": {"levels": levels}}
        items = [racks] if request.path_params["plural"] == "topologies" else []
        return JSONResponse({**EMPTY, "items": items})

    async def allowed(_request: Request) -> Response:
        return JSONResponse({"status": {"allowed": True}}, 201)

    async def moments(_request: Request) -> Response:
        return JSONResponse(served)

    reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return Starlette(
        routes=[
            Route(f"/apis/{API_VERSION}/{CLUSTER_PLURAL}/current", queues),
            Route(reviews, allowed, methods=["POST"]),
            Route("/served", moments),
            Route("/api/v1/{plural}", objects),
            Route("/apis/kueue.x-k8s.io/v1beta2/{plural}", custom),
        ]
    )


def _stamped(body: bytes, now: bytes) -> bytes:
    start = body.index(b'"takenAt":')
    return body[:start] + now + body[body.index(b",", start) :]


def main() -> None:
    pending, nodes = map(int, sys.argv[1:])
    app = application(pending, nodes)
    # As an API server, it leaves connections open that are idle for a while.
    config = uvicorn.Config(app, port=0, log_level="error", timeout_keep_alive=600)
    server = uvicorn.Server(config)
    sockets = [config.bind_socket()]
    print(json.dumps({"port": sockets[0].getsockname()[1]}), flush=True)
    server.run(sockets=sockets)


if __name__ == "__main__":
    main()
