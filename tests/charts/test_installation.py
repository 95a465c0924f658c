"""Installed by helm, policyd works with the rights that the chart gives, and needs them all."""

import json
import ssl
from contextlib import suppress
from functools import partial
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from policyd.jobs.gangs.schedulers import SCHEDULERS
from tests.charts import release, rights
from tests.charts.conftest import CONTROLLER, WEBHOOKS
from tests.charts.release import NAMESPACE
from tests.charts.rights import Right
from tests.controlplane.process import Program, probe
from tests.controlplane.programs import HOST
from tests.scenarios import foreign
from tests.scenarios.api import Refused, condition, eventually
from tests.scenarios.objects import job, pod
from tests.scenarios.test_parents import leader_worker_set, stateful_set
from tests.scenarios.test_queue import (
    admitted,
    finished,
    gang,
    phases,
    waiting,
    workload_of,
)

pytestmark = pytest.mark.e2e

QUEUE = "kueue.x-k8s.io/queue-name"


def test_both_deployments_are_available(whole):
    found = release.objects(whole.control_plane, "deployments", "-n", NAMESPACE)

    assert {d["metadata"]["name"]: d["status"]["availableReplicas"] for d in found} == {
        WEBHOOKS: 2,
        CONTROLLER: 2,
    }


def test_replicas_run_on_different_nodes(whole):
    pods = release.objects(whole.control_plane, "pods", "-n", NAMESPACE)

    places = {(p["metadata"]["generateName"], p["spec"]["nodeName"]) for p in pods}

    assert len(places) == len(pods) == 4


@pytest.mark.parametrize("name", [WEBHOOKS, CONTROLLER])
def test_requests_of_the_kubelet_are_answered(whole, name):
    found = whole.control_plane.kubectl("get", "deployment", name, "-n", NAMESPACE, "-o=json")
    container = json.loads(found)["spec"]["template"]["spec"]["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    asked = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]

    def answers():
        programs = [
            Program(name=name, command=(), health=address(get, ports[get["port"]])) for get in asked
        ]
        return [probe(program) for program in programs]

    eventually(lambda: answers() == ["ok"] * 3, what="all probes are answered")


def address(get, port):
    return f"{get.get('scheme', 'HTTP').lower()}://{HOST}:{port}{get['path']}"


def test_metrics_of_the_webhooks_are_scraped_beside_the_reviews(whole):
    with urlopen(f"http://{HOST}:{whole.values['webhooks.metricsPort']}/metrics") as answer:
        assert b"policyd_" in answer.read()

    with pytest.raises(HTTPError, match="404"):
        urlopen(
            f"https://{HOST}:{whole.values['webhooks.port']}/metrics",
            context=ssl._create_unverified_context(),
        )


def test_the_library_is_ready(whole):
    def ready():
        found = release.objects(whole.control_plane, "policies")
        return found and all(condition(p, "Ready").get("status") == "True" for p in found)

    eventually(ready, what="every policy of the library is ready")


def test_a_pod_gets_what_the_policies_inject(whole):
    shown = whole.api.create(pod("shown"), dry_run=True)

    assert shown["metadata"]["labels"][QUEUE] == "team-a"


def test_violations_of_policies_are_refused(whole):
    with pytest.raises(Refused, match="GPU"):
        whole.api.create(pod("greedy", gpus=64))


def test_a_policy_is_asked_with_its_params_and_may_ask_the_authorizer(limited):
    limited.patch("ConfigMap", "time", {"data": {"of-day": "evening"}}, namespace="team-a")
    eventually(lambda: "in the evening" in refused(limited), what="the new param counts")
    limited.delete("PolicyBinding", "no-pods", "")
    eventually(lambda: not refused(limited), what="nothing is bound any more")


def refused(api):
    """Say why a pod of a name is refused; nothing if it is not."""
    try:
        api.create(pod("plain", gpus=0), dry_run=True)
    except Refused as refusal:
        return refusal.message
    return ""


@pytest.fixture(scope="session")
def limited(whole):
    """A policy that refuses what has a name of ours, by a binding, and by what users may do."""
    meta = {"apiVersion": "policyd.io/v1alpha1", "metadata": {"name": "no-pods"}}
    may = "authorizer.group('').resource('nodes').check('delete').allowed()"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule | {"resources": ["pods"]}]},
        "matchConditions": [{"name": "plain", "expression": "object.metadata.name == 'plain'"}],
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [
            {
                "expression": f"params == null || !{may}",
                "messageExpression": "'no pods in the ' + string(params.data['of-day'])",
            }
        ],
    }
    data = {"data": {"of-day": "morning"}}
    of_day = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "time"}}
    bound = {"policyName": "no-pods", "paramRef": {"name": "time"}}
    whole.api.create(of_day | {"metadata": {"name": "time", "namespace": "team-a"}} | data)
    whole.api.create(meta | {"kind": "Policy", "spec": spec})
    whole.api.create(meta | {"kind": "PolicyBinding", "spec": bound})
    eventually(lambda: "in the morning" in refused(whole.api), what="the binding's param counts")
    return whole.api


@pytest.mark.parametrize("account", [WEBHOOKS, CONTROLLER])
def test_every_right_is_needed_and_none_is_lacking(whole, deeds, limited, reported, account):
    given, seldom = rights.given(whole.control_plane, account), set(SELDOM[account])

    # It takes the API server half a minute to learn of a new kind that owns something, and a moment
    # to learn of new roles: what was refused then is tried again.
    def unused():
        return given - rights.used(whole.folder, account) - seldom

    with suppress(AssertionError):
        eventually(lambda: not unused(), within=60)
    assert unused() == set()
    refused = rights.used(whole.folder, account, allowed=False)
    assert refused - rights.used(whole.folder, account) - given == set()
    assert seldom <= given


SELDOM = {
    WEBHOOKS: {
        **{
            Right("admissionregistration.k8s.io", f"{which}webhookconfigurations", "delete"): (
                "where those of the release before are"
            )
            for which in ("mutating", "validating")
        },
        Right("", "namespaces", "get"): "if the first pod is faster than the watch of namespaces",
        Right("kueue.x-k8s.io", "workloads", "get"): "for running jobs that are imported",
        **{
            Right("kueue.x-k8s.io", "clusterqueues", verb): "where a check sends jobs away"
            for verb in ("list", "watch")
        },
        **{
            Right("wgpolicyk8s.io", "clusterpolicyreports", verb): "for what is in no namespace"
            for verb in ("get", "create", "update")
        },
    },
    CONTROLLER: {
        Right("kueue.x-k8s.io", "workloads", "get"): "after a conflict",
        Right("kueue.x-k8s.io", "clusterqueues", "get"): "after a conflict",
        Right("kueue.x-k8s.io", "resourceflavors", "get"): "after a conflict",
        Right("kueue.x-k8s.io", "localqueues", "get"): "after a conflict",
        Right("kueue.x-k8s.io", "cohorts", "get"): "after a conflict",
        Right("kueue.x-k8s.io", "topologies", "get"): "after a conflict",
        Right("kueue.x-k8s.io", "cohorts/status", "patch"): "where cohorts share fairly",
        Right("kueue.x-k8s.io", "admissionchecks", "get"): "after a conflict",
        **{
            Right(group, resource, verb): "where a check asks an autoscaler for nodes"
            for group, resource, verbs in (
                ("kueue.x-k8s.io", "admissionchecks/status", ("patch",)),
                ("kueue.x-k8s.io", "provisioningrequestconfigs", ("list", "watch")),
                ("autoscaling.x-k8s.io", "provisioningrequests", ("list", "watch")),
                ("autoscaling.x-k8s.io", "provisioningrequests", ("create", "delete")),
                ("", "podtemplates", ("create", "patch")),
            )
            for verb in verbs
        },
        Right("", "nodes", "list"): "where a flavor has a topology",
        Right("", "nodes", "watch"): "where a flavor has a topology",
        Right("batch.volcano.sh", "jobs", "get"): "for pods whose job the watch does not have yet",
        Right("batch", "jobs/finalizers", "update"): "checked where owners of workloads are",
        **{
            Right(group, f"{foreign.plural(kind)}/finalizers", "update"): "the same"
            for kind, (group, _) in foreign.GROUPS.items()
            if kind not in foreign.CLUSTER_WIDE
        },
        Right("apps", "statefulsets/finalizers", "update"): "the same",
        Right(foreign.GROUPS["TrainJob"][0], "trainingruntimes", "get"): "of a namespace's runtime",
        Right("", "pods/finalizers", "update"): "checked where owners of workloads are",
        **{
            Right(scheduler.group, "podgroups", verb): "where gangs are handed over"
            for scheduler in SCHEDULERS.values()
            for verb in ("get", "create", "delete")
        },
        Right("wgpolicyk8s.io", "clusterpolicyreports", "update"): "when it is something else",
        Right("wgpolicyk8s.io", "clusterpolicyreports", "delete"): "when all is in order",
    },
}
"""Rights that are needed, though what is done below does not show it, and for what."""


@pytest.fixture(scope="session")
def reported(whole):
    """Scans have written reports and taken one away, and the webhook has counted into another."""
    api = whole.api
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quiet"}})
    params = {"name": "time", "namespace": "quiet"}  # what another policy asks for
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": params})
    bind_params(api)
    note_everything(api, "noted")
    eventually(lambda: report(api, "default"), within=60, what="the service is reported")
    for number in range(2):
        before = admitted_of(api)
        api.create(plain(f"pod-{number}"))
        eventually(lambda b=before: admitted_of(api) > b, within=60, what="it is counted")
    note_everything(api, "noted-again")
    eventually(lambda: "noted-again" in policies_of(api), within=60, what="the report follows")
    for name in ("noted", "noted-again"):
        api.delete("Policy", name, "")
    eventually(lambda: not report(api, "default"), within=60, what="nothing is to be reported")


def bind_params(api):
    """Have a policy with params bound, for long enough that the controller has a look at them."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule | {"resources": ["limitranges"]}]},
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "auditAnnotations": [{"key": "of-day", "valueExpression": "'any'"}],
    }
    meta = {"apiVersion": "policyd.io/v1alpha1", "metadata": {"name": "with-params"}}
    bound = {"policyName": "with-params", "paramRef": {"name": "time"}}
    api.create(meta | {"kind": "Policy", "spec": spec})
    api.create(meta | {"kind": "PolicyBinding", "spec": bound})
    eventually(
        lambda: condition(api.get("PolicyBinding", "with-params", ""), "Ready"),
        within=60,
        what="the binding has a status",
    )


def note_everything(api, name):
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule | {"resources": ["pods", "services"]}]},
        "validations": [{"expression": "false"}],
        "enforcement": "Audit",
    }
    meta = {"apiVersion": "policyd.io/v1alpha1", "kind": "Policy", "metadata": {"name": name}}
    api.create(meta | {"spec": spec})


def plain(name):
    container = {"name": "main", "image": "registry.example/train:1"}
    metadata = {"name": name, "namespace": "quiet"}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata} | {
        "spec": {"containers": [container]}
    }


def report(api, namespace):
    """Return the results of a namespace's report; none if there is none."""
    path = f"apis/wgpolicyk8s.io/v1alpha2/namespaces/{namespace}/policyreports"
    return [each for found in api.call("GET", path)["items"] for each in found["results"]]


def admitted_of(api):
    """Return how often the webhook has let pods through; twice each, if it is asked twice."""
    return sum(int(each["properties"].get("admitted", 0)) for each in report(api, "quiet"))


def policies_of(api):
    return [each["policy"] for each in report(api, "default")]


@pytest.fixture(scope="session")
def deeds(whole):
    """The controller has done all that it ever does to objects."""
    try:
        everything(whole.api)
    except AssertionError as error:
        refused = [rights.used(whole.folder, a, allowed=False) for a in (WEBHOOKS, CONTROLLER)]
        raise AssertionError(f"{error}; refused: {set().union(*refused)}") from error


def everything(api):
    foreign.install(api)
    api.create(job("first", run_for="60s"))
    eventually(lambda: admitted(api, "first"), what="the first job is admitted")
    api.create(job("second", run_for="1s"))
    eventually(lambda: waiting(api, "second"), what="the second job waits")
    for member in gang("ring", 2, of=2):
        member["metadata"]["annotations"]["policyd.io/run-for"] = "60s"
        api.create(member)
    eventually(lambda: phases(api, "ring") == ["Running"] * 2, what="the group runs")
    for _ in range(2):  # what happens again is the same event, counted
        stop_and_go(api)
    eventually(lambda: "Running" not in phases(api, "ring"), what="the group is stopped")
    api.delete("Workload", "ring", "team-a")
    eventually(lambda: not phases(api, "ring"), what="its pods, which wait for others, are let go")
    api.create(stray(workload_of(api, "first")))
    eventually(lambda: not api.exists("Workload", "stray", "team-a"), what="the stray is deleted")
    api.delete("Job", "first", "team-a")
    eventually(lambda: finished(api, "second"), what="the second job is complete")
    eventually(lambda: counted(api), what="an event is counted")
    come_and_go(api)
    run_foreign_jobs(api)
    run_parents(api)
    look_up_claims(api)


def look_up_claims(api):
    """Have the policies count the devices of a claim and of a template, which do not exist."""
    for kind in ("ResourceClaim", "ResourceClaimTemplate"):
        asks = pod("claiming", gpus=0)
        asks["spec"]["resourceClaims"] = [{"name": "gpu", f"r{kind[1:]}Name": "missing"}]
        with pytest.raises(Refused, match=f"there is no {kind} `missing`"):
            api.create(asks, dry_run=True)


def held(api, kind):
    return api.get(kind, "short-lived", "")["metadata"].get("finalizers")


def come_and_go(api):
    """Have a queue, its flavor, a topology and a check deleted, which the controller lets go."""
    meta = {"apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": "short-lived"}}
    quota = {"name": "cpu", "nominalQuota": "1"}
    flavors = [{"name": "short-lived", "resources": [quota]}]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    spec = {"spec": {"resourceGroups": groups, "namespaceSelector": {}}}
    api.create(meta | {"kind": "ResourceFlavor", "spec": {}})
    api.create(meta | {"kind": "ClusterQueue"} | spec)
    levels = [{"nodeLabel": "kubernetes.io/hostname"}]
    api.create(meta | {"kind": "Topology", "spec": {"levels": levels}})
    check = {"controllerName": "example.com/approval"}
    api.create(meta | {"kind": "AdmissionCheck", "spec": check})
    for kind in ("AdmissionCheck", "ClusterQueue", "ResourceFlavor", "Topology"):
        eventually(lambda kind=kind: held(api, kind), what=f"the {kind} is held")
        api.delete(kind, "short-lived", "")
        eventually(lambda kind=kind: not api.exists(kind, "short-lived", ""), what=f"{kind} goes")


def run_foreign_jobs(api):
    """Have a job of every kind started that comes with an operator of its own."""
    for kind, spec in foreign.SPECS.items():
        api.create(foreign.foreign(kind, kind.lower(), spec(4)))
        done = partial(admitted, api, kind.lower())
        eventually(done, within=60, what=f"a {kind} is admitted")
        api.delete(kind, kind.lower(), "team-a")


def run_parents(api):
    """Have what is not suspended itself queue: its workload is there before its pods are."""
    for item in (stateful_set(), leader_worker_set()):
        labels = {"kueue.x-k8s.io/queue-name": "team-a"}
        item["metadata"] = {"name": "serve", "namespace": "team-a", "labels": labels}
        api.create(item)
        done = partial(admitted, api, "serve")
        eventually(done, within=60, what=f"a {item['kind']} is admitted")
        api.delete(item["kind"], "serve", "team-a")
        eventually(lambda: not workload_of(api, "serve"), within=120, what="its workload is gone")


def stop_and_go(api):
    """Have the first job stopped, and admitted again."""
    api.patch("ClusterQueue", "team-a", {"spec": {"stopPolicy": "HoldAndDrain"}})
    eventually(lambda: not admitted(api, "first"), what="the job is evicted")
    eventually(lambda: api.get("Job", "first", "team-a")["spec"]["suspend"], what="it is stopped")
    api.patch("ClusterQueue", "team-a", {"spec": {"stopPolicy": "None"}})
    eventually(lambda: admitted(api, "first"), what="the job is admitted again")


def stray(workload):
    """A workload of the same job that does not fit it."""
    metadata = {
        "name": "stray",
        "namespace": "team-a",
        "ownerReferences": workload["metadata"]["ownerReferences"],
    }
    pod_sets = [pod_set | {"count": 7} for pod_set in workload["spec"]["podSets"]]
    spec = workload["spec"] | {"podSets": pod_sets}
    return {key: workload[key] for key in ("apiVersion", "kind")} | {
        "metadata": metadata,
        "spec": spec,
    }


def counted(api):
    return [event for event in api.find("Event", "team-a") if event.get("count", 1) > 1]
