"""Kueue's tables of who is told to wait in a queue, and at which place."""

import json

import msgspec

from policyd.controller.queues.pending_workloads import (
    PendingPage,
    QueueNotFoundError,
    summary,
    waiting_in_cluster_queue,
    waiting_in_local_queue,
)
from tests.conformance.kueue_objects import Cluster, run_table, settings_of
from tests.conformance.kueue_scene import difference


def run_summaries(path):
    """Requests for who waits in a ClusterQueue, or in a LocalQueue of a namespace."""
    of_local_queue = path.stem.endswith("LQ")

    def failure(case):
        cluster = Cluster(settings_of(case))
        cluster.put_all(case)
        asked, wanted = case.input["req"] or {}, case.want["wantResp"] or {}
        params = asked.get("queryParams") or {}
        chosen = PendingPage(
            **{name: params[name] for name in ("offset", "limit") if name in params}
        )
        name = asked.get("queueName", "")
        try:
            if of_local_queue:
                namespace = asked.get("nsName", "")
                found = waiting_in_local_queue(cluster.cache, namespace, name, chosen)
            else:
                found = waiting_in_cluster_queue(cluster.cache, name, chosen)
        except QueueNotFoundError as error:
            return difference(str(error), case.data["observed"]["err"]["$error"], "error")
        given = json.loads(msgspec.json.encode(summary("v1beta2", found)))
        return difference(given["items"], wanted.get("wantPendingWorkloads") or [], "items")

    yield from run_table(path, failure)
