"""Kueue's tables of the check that asks an autoscaler for nodes."""

import asyncio
import copy
import json

from policyd.api.kueue import ProvisioningRequestConfig
from policyd.api.kueue.names import ACTIVE, API_VERSION
from policyd.api.meta import find_condition
from policyd.controller.queues.provisioning import Provisioning
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.writes import Writes
from policyd.jobs.provisioning import InconsistentError, is_needed
from policyd.jobs.provisioning_answers import answered
from policyd.kube.errors import ApiError
from policyd.kube.resources import POD_TEMPLATES, PROVISIONING_REQUESTS
from tests.conformance.kueue_objects import Cluster, decode, run_table, settings_of
from tests.conformance.kueue_scene import Notes, compared, difference, events, plain
from tests.conformance.kueue_writes import failure_of

INTERCEPTED = "interceptorFuncsCreate"
SILENT = "AlreadyExists"


class Autoscaled:
    """A case's objects, and what asks for nodes."""

    def __init__(self, case, bodies):
        self.cluster = Cluster(settings_of(case))
        cluster, pace = self.cluster, self.cluster.clock.pace()
        self.notes = Notes(cluster.client, pace)
        writes = Writes(cluster.client, self.notes, leading=lambda: True, pace=pace)
        self.code = Provisioning(cluster.cache, writes)
        by_kind = {each.resource.kind: each for each in cluster.mirrors.of_provisioning}
        for mirror in by_kind.values():
            mirror.informer.synced.set()
        for body in bodies:
            mirror = by_kind.get(body["kind"], cluster.mirror_of(body["kind"]))
            resource = POD_TEMPLATES if mirror is None else mirror.resource
            body["metadata"]["uid"] = body["metadata"]["name"]
            for owner in body["metadata"].get("ownerReferences", ()):
                # Go leaves out what an owner is in objects that a test makes up.
                owner.update(apiVersion=API_VERSION, kind="Workload", uid=owner["name"])
            stored = plain(cluster.client.store.put(resource, body))
            if mirror is not None:
                mirror.wrote(decode(stored, mirror.into, version=stored_version(stored)))

    def all(self, resource):
        found = [plain(each) for each in self.cluster.client.store.select(resource, {})]
        return {each["metadata"]["name"]: each for each in found}


def stored_version(stored):
    return int(stored["metadata"]["resourceVersion"])


def let_fail(case, client):
    """Let the call fail that Kueue's test lets fail; a name that is taken fails by itself."""
    error = case.want["wantReconcileError"]
    taken = case.input.get("requests") and error and error.get("reason") == SILENT
    if not case.input.get(INTERCEPTED) or taken or not error:
        return
    expected_events = events(case.want["wantEvents"])
    of_template = any("creating PodTemplate" in each["Message"] for each in expected_events)
    resource = POD_TEMPLATES if of_template else PROVISIONING_REQUESTS
    client.fail(failure_of(error), verb="create", plural=resource.plural)


def run_requests(path):
    """What is asked for a workload, and where its checks stand."""

    def failure(case):
        given, want = copy.deepcopy(case.input), case.want
        parts = ("checks", "configs", "flavors", "requests", "templates")
        bodies = [*(each for name in parts for each in given.get(name) or ()), given["workload"]]
        scene = Autoscaled(case, bodies)
        key = ReconcileKey("Provisioning", "ns", "wl")
        let_fail(case, scene.cluster.client)
        failed = ""
        try:
            asyncio.run(scene.code.reconcile(key))
        except ApiError as error:
            failed = str(error)
        wanted = (want["wantReconcileError"] or {}).get("$error", "")
        return difference(failed, wanted, "error") or unlike(scene, want)

    yield from run_table(path, failure)


def unlike(scene, want):
    requests, templates = scene.all(PROVISIONING_REQUESTS), scene.all(POD_TEMPLATES)
    workloads = scene.all(scene.cluster.mirrors.workloads.resource)
    pairs = [
        *((asked(requests.get(n)), asked(b), n) for n, b in (want["wantRequests"] or {}).items()),
        *((made(templates.get(n)), made(b), n) for n, b in (want["wantTemplates"] or {}).items()),
        *(
            (summarize(workloads.get(n)), summarize(b), n)
            for n, b in (want["wantWorkloads"] or {}).items()
        ),
        *((n in requests, False, n) for n in want["wantRequestsNotFound"] or ()),
        (scene.notes.recorded, events(want["wantEvents"]), "events"),
    ]
    return next(filter(None, (difference(got, wanted, n) for got, wanted, n in pairs)), "")


def asked(request):
    """Return what is compared of a request; one that is not there has no name."""
    metadata = (request or {}).get("metadata")
    return metadata and {"labels": metadata.get("labels"), "spec": request["spec"]}


def made(template):
    if template is None:
        return None
    metadata, body = template["metadata"], copy.deepcopy(template["template"])
    for each in body["spec"].get("tolerations", ()):
        each.setdefault("operator", "Equal")
    body["spec"].pop("restartPolicy", None)
    owners = [(each["kind"], each["name"]) for each in metadata.get("ownerReferences", ())]
    return {"labels": metadata.get("labels"), "owners": owners, "template": body}


def summarize(workload):
    return workload and compared(json.loads(json.dumps(workload)))


def run_checks(path):
    """Whether the parameters of a check can be used."""

    def failure(case):
        check = case.input["check"]
        scene = Autoscaled(case, copy.deepcopy([check, *(case.input.get("configs") or ())]))
        name = check["metadata"]["name"]
        asyncio.run(
            scene.code.reconcilers()["AdmissionCheck"](ReconcileKey("AdmissionCheck", "", name))
        )
        stored = scene.cluster.mirrors.checks.get(name)
        got = find_condition(stored.status.conditions, ACTIVE)
        wanted = case.want["wantCondition"]
        fields = got and {
            "type": got.type,
            "status": got.status,
            "reason": got.reason,
            "message": got.message,
            "observedGeneration": got.observed_generation,
        }
        return difference(fields, wanted, "condition")

    yield from run_table(path, failure)


def run_needs(path):
    """Whether any pods need nodes that are asked for."""

    def failure(case):
        workload = workload_in(case, copy.deepcopy(case.input["workload"]))
        wanted = (case.want["wantErr"] or {}).get("$error", case.want["want"])
        try:
            got = is_needed(workload, ProvisioningRequestConfig())
        except InconsistentError as error:
            got = str(error)
        return difference(got, wanted, "needed")

    yield from run_table(path, failure)


def workload_in(case, body):
    cluster = Cluster(settings_of(case))
    return decode(body, cluster.mirrors.workloads.into)


NEEDY = {
    "metadata": {"name": "wl", "namespace": "ns"},
    "spec": {"podSets": [{"count": 1, "template": {"spec": {"containers": []}}}]},
    "status": {"admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main"}]}},
}


def run_messages(path):
    """What a check says after an answer that says something else, or nothing."""

    def failure(case):
        given, want = case.input, case.want
        check = {"name": "check", "state": "Pending", "message": given["message"]}
        status = {**NEEDY["status"], "admissionChecks": [check]}
        workload = workload_in(case, {**NEEDY, "status": status})
        (old,) = workload.status.admission_checks
        provisioned = {"type": "Provisioned", "status": "False", "message": given["newMessage"]}
        accepted = {"type": "Accepted", "status": "True"}
        body = {"metadata": {"name": "r"}, "status": {"conditions": [provisioned, accepted]}}
        into = Cluster(settings_of(case)).mirrors.provisioning_requests.into
        new = answered(old, workload, ProvisioningRequestConfig(), decode(body, into))
        got = (new.message, new != old)
        return difference(got, (want["wantMessage"], want["wantChanged"]), "message")

    yield from run_table(path, failure)
