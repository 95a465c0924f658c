"""Kueue's tables of what is the same for jobs of all kinds."""

import copy
import json

import msgspec

from policyd.api.configuration.frameworks import KINDS as FRAMEWORKS
from policyd.api.configuration.frameworks import kind_of
from policyd.api.kueue import PodSet, Workload, WorkloadSpec
from policyd.api.kueue.names import ELASTIC_JOB, QUEUE_NAME
from policyd.api.meta import ObjectMeta, OwnerReference
from policyd.api.selectors import LabelSelector
from policyd.jobs.ancestors import AncestorError, managed_ancestor
from policyd.jobs.integrations import POD, Integrations
from policyd.jobs.kinds.registry import find_kind, find_parent
from policyd.jobs.rules.defaults import default_on_create
from policyd.jobs.rules.surroundings import JobContext
from policyd.jobs.rules.topology_validation import TopologyTemplate, topology_errors
from policyd.jobs.slices import fit_of, settle
from policyd.jobs.topology import topology_request
from policyd.jobs.workload import body_of
from policyd.patch.draft import Draft
from tests.conformance.kueue_objects import TRUSTING, convert, read_table, run_table
from tests.conformance.kueue_parts import LISTS, all_left_out, workload_of
from tests.conformance.kueue_scene import Scene, compared, difference, events, job_key
from tests.conformance.kueue_writes import failure_of, raised


def run_jobs(path):
    """Workloads of a job that may be of any kind: here, a Job with the case's pod sets."""

    def failure(case):
        scene = Scene(case)
        job = copy.deepcopy(case.input["job"])
        (pod_set,) = case.input["podSets"]
        job["spec"]["template"], job["spec"]["parallelism"] = pod_set["template"], pod_set["count"]
        for body in (*copy.deepcopy(case.input.get("objs") or ()), job):
            scene.put(body)
        return scene.unlike_once_reconciled([job_key(job)], lambda: unlike(scene, case.want))

    yield from run_table(path, failure)


def unlike(scene, want):
    got, wanted = (
        sorted((summarize(each) for each in workloads), key=json.dumps)
        for workloads in (scene.all("Workload"), want["wantWorkloads"] or ())
    )
    expected_events = events(want["wantEvents"]) if want["wantEvents"] else scene.notes.recorded
    return difference(got, wanted, "workloads") or difference(
        scene.notes.recorded, expected_events, "events"
    )


def summarize(workload):
    metadata = workload["metadata"]
    owners = [each["name"] for each in metadata.get("ownerReferences", ())]
    pod_sets = copy.deepcopy(workload["spec"]["podSets"])
    for each in pod_sets:
        # Kueue's test has a job without indexes.
        each.pop("topologyRequest", None)
    body = {**workload, "spec": {**workload["spec"], "podSets": pod_sets}}
    return {**compared(body), "owners": owners, "annotations": metadata.get("annotations") or {}}


def run_requests(path):
    """What a pod template asks of a topology; what cannot be read is refused at the webhook."""

    def failure(case):
        given, annotations = case.input, (case.input.get("meta") or {}).get("annotations") or {}
        if case.want["wantErr"]:
            refused = list(topology_errors([TopologyTemplate("annotations", annotations)]))
            return "" if refused else f"nothing speaks against {annotations}"
        found = topology_request(
            annotations,
            pod_index_label=given.get("podIndexLabel") or "",
            sub_group_index_label=given.get("subGroupIndexLabel") or "",
            sub_group_count=given.get("subGroupCount"),
        )
        got = None if found is None else json.loads(msgspec.json.encode(found))
        return difference(got, case.want["wantReq"], "request")

    yield from run_table(path, failure)


def run_ancestors(path):
    """Which job an object belongs to."""

    def failure(case):
        given, want = case.input, case.want
        by_name = {each["metadata"]["name"]: each for each in given.get("ancestors") or ()}

        def lookup(owner):
            found = by_name.get(owner.name) or (
                given["job"] if given["job"]["metadata"]["name"] == owner.name else None
            )
            return None if found is None else metadata_of(found)

        try:
            found = managed_ancestor(
                metadata_of(given["job"]), lookup, integrations=integrations_of(given)
            )
        except AncestorError as error:
            return "" if want["wantErr"] else str(error)
        if want["wantErr"]:
            return "no error"
        wanted = (want["wantManaged"] or {}).get("metadata", {}).get("name")
        return difference(None if found is None else found.name, wanted, "ancestor")

    yield from run_table(path, failure)


def metadata_of(body):
    metadata = copy.deepcopy(body["metadata"])
    owners = [
        OwnerReference(o["apiVersion"], o["kind"], o["name"], o["uid"], o.get("controller", False))
        for o in metadata.pop("ownerReferences", ())
    ]
    return msgspec.structs.replace(convert(metadata, ObjectMeta), owner_references=tuple(owners))


def integrations_of(given):
    """Return which kinds queue; those that the product does not know are somebody else's."""
    others = [kind_of(text) for text in given.get("externalFrameworks") or ()]
    others = {(group, kind) for group, _, kind in others}
    everywhere = bool(given.get("manageJobsWithoutQueueName"))
    if "integrations" not in given:
        return Integrations(external=frozenset(others), manages_all=everywhere, makers=TRUSTING)
    names = [FRAMEWORKS[name] for name in given.get("integrations") or ()]
    names = {(group, kind) for group, _, kind in names}
    known = {name for name in names if name == POD or find_kind(*name) or find_parent(*name)}
    return Integrations(
        kinds=frozenset(known),
        external=frozenset(others | names - known),
        manages_all=everywhere,
        makers=TRUSTING,
    )


def run_environments(path):
    """Variables of containers that are said twice."""

    def failure(case):
        given = case.input.get("podSets") or []
        pod_sets = convert(given, tuple[PodSet, ...])
        workload = Workload(spec=WorkloadSpec(pod_sets=pod_sets))
        body = body_of(workload, [copy.deepcopy(each["template"]) for each in given])
        got = [each["template"] for each in body["spec"].get("podSets", ())]
        return difference(got, [e["template"] for e in case.want["expectedPodSets"] or ()], "")

    yield from run_table(path, failure)


def run_slices(path):
    """Which slice of an elastic job stands for it, and how big it is then."""

    def failure(case):
        args, want = case.input["args"], case.want["want"]
        if want.get("error"):
            return unwritten(case)
        slices = [workload_of(each) for each in args["clnt"]["$fakeClient"]]
        newest = settle(slices).newest
        if newest is None:
            return difference([None, True], [want.get("workload"), want.get("compatible")], "")
        pod_sets = convert(args.get("jobPodSets") or (), tuple[PodSet, ...])
        fit = fit_of(pod_sets, newest)
        got = newest.metadata.name if fit in {"Same", "Resize"} else None
        wanted = want.get("workload") or {}
        counts = {each.name: each.count for each in pod_sets} if got else {}
        sizes = {e["name"]: e["count"] for e in wanted.get("spec", {}).get("podSets", ())}
        return difference(
            [got, fit != "Different", counts],
            [wanted.get("metadata", {}).get("name"), want.get("compatible", False), sizes],
            "slice",
        )

    yield from run_table(path, failure, rule=lists)


def lists(case):
    """Leave out lists that fail."""
    wrong = case.data["observed"].get("gotError") or {}
    return LISTS if "failed to find" in wrong.get("$error", "") else ""


def unwritten(case):
    """Say what is wrong after a slice could not be written: nothing may change until it can."""
    scene, job = elastic_scene(case)
    before = scene.all("Workload")
    expected = failure_of(case.data["observed"]["gotError"])
    scene.cluster.client.fail(expected, verb="patch", plural="workloads")
    error = raised(scene.reconcile, job_key(job))
    after = scene.all("Workload")
    scene.reconcile(job_key(job))
    return difference([error, after, scene.wrote], [expected, before, True], "at first, then")


def elastic_scene(case):
    """Return a scene in which a job and its slices are, and the job."""
    scene, args = Scene(case), case.input["args"]
    job = copy.deepcopy(args["jobObject"])
    (pod_set,) = args["jobPodSets"]
    notes = {ELASTIC_JOB: "true"}
    job["metadata"] |= {"namespace": "default", "labels": {QUEUE_NAME: "lq"}, "annotations": notes}
    job["spec"] = {"parallelism": pod_set["count"], "template": pod_set["template"]}
    scene.put(job)
    for body in copy.deepcopy(args["clnt"]["$fakeClient"]):
        body["metadata"]["ownerReferences"][0]["uid"] = job["metadata"]["uid"]
        scene.put(body)
    return scene, job


def run_released(path):
    """What a workload is told once its job has stopped, and the reason that the table names.

    Server-side apply leaves the admission, which nobody owns; ours is cleared.
    """

    def failure(case):
        scene = Scene(case)
        (job,) = scene.all("Job")

        def unlike():
            (workload,) = scene.all("Workload")
            got, wanted = (
                compared(each)["status"]
                for each in copy.deepcopy((workload, case.data["observed"]["gotWl"]))
            )
            for each in (*got["conditions"], *wanted["conditions"]):
                each.setdefault("message", each["reason"])  # ours says no less than that
            reasons = {c["type"]: c["reason"] for c in got["conditions"]}
            return difference(
                [reasons["QuotaReserved"], got.get("admission"), got["conditions"]],
                [case.want["wantReason"], None, wanted["conditions"]],
                "workload",
            )

        return scene.unlike_once_reconciled([job_key(job)], unlike)

    yield from run_table(path, failure)


run_go_options = all_left_out("options of Go constructors")
run_activation = all_left_out("jobs that say themselves whether they are active: no kind does")


def run_default_queues(path):
    """Which jobs get the queue of their namespace's default."""
    (selector,) = [
        fixture
        for fixture in read_table(path)["fixtures"].values()
        if isinstance(fixture, dict) and "matchExpressions" in fixture
    ]

    def failure(case):
        job = copy.deepcopy(case.input["job"])
        chosen = Integrations(namespaces=convert(selector, LabelSelector), makers=TRUSTING)
        namespace = case.objects[f"Namespace/{job['metadata']['namespace']}"]
        covered = chosen.covers(namespace["metadata"]["labels"])
        draft = Draft(job)
        default_on_create(
            draft,
            group="batch",
            kind="Job",
            surroundings=JobContext(default_queue=covered, integrations=chosen),
        )
        got = draft.get(("metadata", "labels", QUEUE_NAME)) or ""
        return difference(got, case.want["wantQueueLabel"], "queue")

    yield from run_table(path, failure)
