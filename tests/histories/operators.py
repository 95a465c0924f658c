"""The operators of foreign kinds, which act late, twice, and out of order; and the admission check.

That of JobSets makes the Jobs of one that may run, the others make pods; they say when these end.
"""

import asyncio
from collections import defaultdict
from contextlib import suppress
from functools import partial

from policyd.api.kueue.names import QUOTA_RESERVED
from policyd.api.meta import rfc3339
from policyd.kube import resources as r
from policyd.kube.errors import ApiError
from tests.histories.cluster import JOB_SET_OPERATOR, OPERATORS
from tests.histories.loop import Process
from tests.histories.objects import INVALID, JOB_SETS, RESOURCES, TEAM
from tests.histories.record import WORKLOADS, is_true
from tests.scenarios import foreign
from tests.soak.operators import is_over, progress

ANSWERS = ("Ready",) * 8 + ("Retry", "Retry")
LATE = (0.1, 0.1, 2.0, 30.0)
"""Seconds after a change until it is looked at; it may be looked at twice, and out of order."""
ANSWERED_LATE = (0.1, 2.0, 30.0, 600.0)
"""The same of admission checks."""


class Operators:
    """Follows the store without a watch: how it learns of changes is not what is tested."""

    def __init__(self, cluster, random):
        self._cluster, self._random = cluster, random
        self._process = Process(cluster.loop, "operators")
        self._client = cluster.client(JOB_SET_OPERATOR, self._process)
        self._clients = {
            kind: cluster.client(account, self._process) for kind, account in OPERATORS.items()
        }
        self._admin = cluster.client("admin", self._process)
        self._owned = defaultdict(dict)
        """Pods and Jobs by name, by the uid of their owner."""

    def start(self):
        for kind in RESOURCES:
            self._cluster.store.listen(partial(self._notice_foreign, kind), _stored(kind))
        self._cluster.store.listen(self._notice_pod, "pods")
        self._cluster.store.listen(self._notice_workload, WORKLOADS)
        self._cluster.store.listen(self._notice, f"{JOB_SETS.plural}.{JOB_SETS.group}")
        self._cluster.store.listen(self._notice_job, "jobs.batch")

    def _notice(self, event):
        if event.type != "DELETED":
            self._later(event.object["metadata"]["name"])

    def _own(self, event):
        name = event.object["metadata"]["name"]
        self._owned[_owner(event.previous or event.object)].pop(name, None)
        if event.type != "DELETED":
            self._owned[_owner(event.object)][name] = event.object

    def _of(self, uid):
        """Return the pods or Jobs of an owner, in the order of their names."""
        return dict(sorted(self._owned[uid].items()))

    def _notice_job(self, event):
        self._own(event)
        for owner in event.object["metadata"].get("ownerReferences", ()):
            if owner["kind"] == "JobSet":
                self._later(owner["name"])

    def _notice_foreign(self, kind, event):
        if event.type != "DELETED":
            self._later(event.object["metadata"]["name"], partial(self._run, kind))

    def _notice_pod(self, event):
        self._own(event)
        for owner in event.object["metadata"].get("ownerReferences", ()):
            if owner["kind"] in RESOURCES:
                self._later(owner["name"], partial(self._run, owner["kind"]))

    def _notice_workload(self, event):
        states = event.object.get("status", {}).get("admissionChecks") or ()
        if event.type != "DELETED" and any(each["state"] == "Pending" for each in states):
            self._later(event.object["metadata"]["name"], self._answer, ANSWERED_LATE)

    def _later(self, name, act=None, late=LATE):
        for _ in range(1 + (self._random.random() < 0.1)):
            delay = late[int(self._random.random() * len(late))] * self._random.random()
            self._process.start(self._look(name, act or self._operate, delay))

    async def _look(self, name, act, delay):
        await asyncio.sleep(delay)
        with suppress(ApiError):
            await act(name)

    async def _answer(self, name):
        """Answer the admission check of a workload that has quota."""
        workload = self._cluster.store.get(WORKLOADS, TEAM, name)
        if workload is None or not is_true(workload, QUOTA_RESERVED):
            return
        states = workload["status"].get("admissionChecks") or ()
        answer = ANSWERS[int(self._random.random() * len(ANSWERS))]
        now = rfc3339(self._process.now())
        given = {"state": answer, "message": "the answer", "lastTransitionTime": now}
        answered = [{**each, **given} if each["state"] == "Pending" else each for each in states]
        if answered != states:
            version = {"resourceVersion": workload["metadata"]["resourceVersion"]}
            body = {"metadata": version, "status": {"admissionChecks": answered}}
            await self._admin.patch(
                r.WORKLOADS, name, body, into=dict, namespace=TEAM, subresource="status"
            )

    async def _run(self, kind, name):
        """Make the pods of a job that may run, or delete them; say how far it is."""
        store, client = self._cluster.store, self._clients[kind]
        job = store.get(_stored(kind), TEAM, name)
        if job is None or _is_left_alone(job):
            return
        uid = job["metadata"]["uid"]
        pods = self._of(uid)
        phases = {pod["status"].get("phase") for pod in pods.values()}
        if foreign.suspended(job):
            for pod in pods:
                await client.delete(r.PODS, pod, namespace=TEAM)
            await self._write_status(kind, job, progress(job, runs=False))
            return
        templates = foreign.templates(job)
        if len(pods) == len(templates) and phases <= {"Succeeded", "Failed"}:
            await self._write_status(kind, job, foreign.done(kind))
            return
        owner = {"apiVersion": job["apiVersion"], "kind": kind, "name": name, "uid": uid,
                 "controller": True}  # fmt: skip
        for number, template in enumerate(templates):
            about = {"name": f"{name}-{number}", "namespace": TEAM, "ownerReferences": [owner]}
            if about["name"] not in pods:
                metadata = {**template.get("metadata", {}), **about}
                body = {"metadata": metadata, "spec": template["spec"]}
                await client.create(r.PODS, body, into=dict, namespace=TEAM)
        if phases == {"Running"}:
            await self._write_status(kind, job, progress(job, runs=True))

    async def _write_status(self, kind, job, status):
        known = job.get("status", {})
        if any(known.get(name) != part for name, part in status.items()):
            await self._clients[kind].patch(
                RESOURCES[kind], job["metadata"]["name"], {"status": status}, into=dict,
                namespace=TEAM, subresource="status",
            )  # fmt: skip

    async def _operate(self, name):
        store = self._cluster.store
        job_set = store.get(f"{JOB_SETS.plural}.{JOB_SETS.group}", "team", name)
        if job_set is None or job_set["metadata"].get("deletionTimestamp"):
            return
        uid = job_set["metadata"]["uid"]
        jobs = list(self._of(uid).values())
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


def _is_left_alone(job):
    invalid = job.get("status", {}).get("jobDeploymentStatus") == INVALID
    return invalid or job["metadata"].get("deletionTimestamp") or is_over(job)


def _stored(kind):
    return f"{RESOURCES[kind].plural}.{RESOURCES[kind].group}"


def _owner(job):
    owners = job["metadata"].get("ownerReferences") or ({"uid": ""},)
    return owners[0]["uid"]
