"""The operator of JobSets: it makes the Jobs of one that may run, late, and says when they end."""

import asyncio
from contextlib import suppress

from policyd.kube import resources as r
from policyd.kube.errors import ApiError
from tests.histories.cluster import JOB_SET_OPERATOR
from tests.histories.loop import Process
from tests.histories.objects import JOB_SETS
from tests.histories.record import is_true

LATE = (0.1, 0.1, 2.0, 30.0)
"""Seconds after a change until it is looked at; it may be looked at twice, and out of order."""


class Operators:
    """Follows the store without a watch: how it learns of changes is not what is tested."""

    def __init__(self, cluster, random):
        self._cluster, self._random = cluster, random
        self._process = Process(cluster.loop, "operators")
        self._client = cluster.client(JOB_SET_OPERATOR, self._process)

    def start(self):
        self._cluster.store.listen(self._notice, f"{JOB_SETS.plural}.{JOB_SETS.group}")
        self._cluster.store.listen(self._notice_job, "jobs.batch")

    def _notice(self, event):
        if event.type != "DELETED":
            self._later(event.object["metadata"]["name"])

    def _notice_job(self, event):
        for owner in event.object["metadata"].get("ownerReferences", ()):
            if owner["kind"] == "JobSet":
                self._later(owner["name"])

    def _later(self, name):
        for _ in range(1 + (self._random.random() < 0.1)):
            delay = LATE[int(self._random.random() * len(LATE))] * self._random.random()
            self._process.start(self._look(name, delay))

    async def _look(self, name, delay):
        await asyncio.sleep(delay)
        with suppress(ApiError):
            await self._operate(name)

    async def _operate(self, name):
        store = self._cluster.store
        job_set = store.get(f"{JOB_SETS.plural}.{JOB_SETS.group}", "team", name)
        if job_set is None or job_set["metadata"].get("deletionTimestamp"):
            return
        uid = job_set["metadata"]["uid"]
        jobs = [j for _, j in store.items("jobs.batch") if _owner(j) == uid]
        if is_true(job_set, "Completed") or is_true(job_set, "Failed"):
            return
        suspend = bool(job_set["spec"].get("suspend"))
        for each in job_set["spec"]["replicatedJobs"]:
            for number in range(each["replicas"]):
                await self._have(job_set, each, f"{name}-{each['name']}-{number}", jobs, suspend)
        if jobs and any(is_true(job, "Failed") for job in jobs):
            await self._end(job_set, "Failed")
        elif jobs and all(is_true(job, "Complete") for job in jobs):
            await self._end(job_set, "Completed")

    async def _have(self, job_set, part, name, jobs, suspend):
        there = next((job for job in jobs if job["metadata"]["name"] == name), None)
        metadata = job_set["metadata"]
        wanted = part["template"]["spec"]
        if there is None:
            owner = {
                "apiVersion": JOB_SETS.api_version, "kind": "JobSet", "name": metadata["name"],
                "uid": metadata["uid"], "controller": True,
            }  # fmt: skip
            about = {"name": name, "namespace": "team", "ownerReferences": [owner]}
            body = {"metadata": about, "spec": {**wanted, "suspend": suspend}}
            await self._client.create(r.JOBS, body, into=dict, namespace="team")
        elif bool(there["spec"].get("suspend")) != suspend:
            patch = {"spec": {"suspend": suspend}}
            if not suspend:  # what the queue chose goes into its pods
                patch["spec"]["template"] = {
                    "metadata": wanted["template"].get("metadata", {}),
                    "spec": {"nodeSelector": wanted["template"]["spec"].get("nodeSelector", {})},
                }
            await self._client.patch(r.JOBS, name, patch, into=dict, namespace="team")

    async def _end(self, job_set, kind):
        ended = {"type": kind, "status": "True", "reason": "Done", "message": "the end",
                 "lastTransitionTime": "2026-01-05T00:00:00Z"}  # fmt: skip
        await self._client.patch(
            JOB_SETS, job_set["metadata"]["name"], {"status": {"conditions": [ended]}}, into=dict,
            namespace="team", subresource="status",
        )  # fmt: skip


def _owner(job):
    owners = job["metadata"].get("ownerReferences") or ({"uid": ""},)
    return owners[0]["uid"]
