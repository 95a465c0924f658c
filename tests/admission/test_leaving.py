"""Nobody but the queue takes out of it what waits there, by whichever field."""

import copy
from pathlib import Path

import pytest
import yaml

from policyd.jobs.integrations import EVERYTHING
from policyd.registration.webhook_rules import derive_webhook_rules
from tests.attacks.leavings import MANAGED, QUEUE, Attempt, tries
from tests.attacks.membership import CONFIGURED, decider, is_refused, is_sent, membership

ALL = list(tries())
OWN = {"user": "system:serviceaccount:policyd:c", "groups": ("system:serviceaccounts:policyd",)}
JOB_CONTROLLER = {
    "user": "system:serviceaccount:kube-system:job-controller",
    "groups": ("system:serviceaccounts:kube-system",),
}
COLLECTOR = {
    "user": "system:serviceaccount:kube-system:generic-garbage-collector",
    "groups": ("system:serviceaccounts:kube-system",),
}


def test_a_tenant_gets_nothing_out_of_the_queue():
    """All of the table, under all configurations: refused, and sent to be refused."""
    figures = membership()

    assert figures.faults == ()
    assert figures.tried > 500


@pytest.mark.parametrize("how", CONFIGURED)
def test_the_queue_does_as_it_must(how):
    """None of it is refused to the controller's account."""
    decide = decider(CONFIGURED[how])

    assert [made.name for made in ALL if is_refused(made, decide, **OWN)] == []


def test_the_account_is_known_by_its_name_alone():
    """A certificate may name the account and other groups."""
    decide, user = decider(EVERYTHING), "system:serviceaccount:policyd:controller"
    gated = next(made for made in ALL if made.name == "a pod that waits: without gates")

    assert is_refused(gated, decide)
    assert not is_refused(gated, decide, user=user, groups=("system:masters",))


def test_where_no_queue_is_required_a_job_may_leave_it():
    """What was submitted by choice may be taken back by choice, as in Kueue."""
    decide = decider(EVERYTHING)
    free = [made for made in ALL if made.only_required]

    assert free
    assert [made.name for made in free if is_refused(made, decide)] == []


def test_kubernetes_own_controllers_may_change_owners():
    """A controller adopts what it makes; the garbage collector takes no gate away."""
    decide = decider(EVERYTHING)
    owners = [made for made in ALL if made.name.endswith((": an owner", ": with an owner"))]
    gates = [made for made in ALL if made.name.endswith(": without gates")]

    assert owners
    assert [made.name for made in owners if is_refused(made, decide, **JOB_CONTROLLER)] == []
    assert [made.name for made in gates if not is_refused(made, decide, **COLLECTOR)] == []


def pod(gates=(), cpu="1", **metadata):
    labels = {QUEUE: "lq", MANAGED: "true", **metadata.pop("labels", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "ns", "labels": labels, **metadata},
        "spec": {
            "schedulingGates": [{"name": each} for each in gates],
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
        },
    }


GATE = "kueue.x-k8s.io/admission"


@pytest.mark.parametrize(
    ("old", "new", "subresource"),
    [
        pytest.param(pod([GATE]), pod([GATE], labels={QUEUE: "other"}), "", id="another-queue"),
        pytest.param(pod([GATE]), pod([GATE], labels={"team": "a"}), "", id="a-label"),
        pytest.param(pod([GATE], finalizers=["a/b"]), pod([GATE]), "", id="a-finalizer-gone"),
        pytest.param(pod([GATE, "mine"]), pod([GATE]), "", id="a-gate-of-others"),
        pytest.param(pod(cpu="2"), pod(cpu="1"), "resize", id="resized-to-less"),
        pytest.param(pod(cpu="1"), pod(cpu="1000m"), "resize", id="resized-to-the-same"),
    ],
)
def test_fields_of_queued_objects_may_change(old, new, subresource):
    """What decides nothing about the queue is nobody's business here."""
    made = Attempt("", "", "Pod", "pods", old, new, subresource=subresource)

    assert not is_refused(made, decider(CONFIGURED["all that could queue"]))


def test_unheld_pods_may_leave_and_grow():
    """Pods that name no queue are their authors' own, unless all pods queue."""
    old = pod(labels={})
    old["metadata"]["labels"] = {"kueue.x-k8s.io/other": "x"}
    new = copy.deepcopy(old)
    new["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "9"
    made = Attempt("", "", "Pod", "pods", old, new, subresource="resize")

    assert not is_refused(made, decider(EVERYTHING))
    assert is_refused(made, decider(CONFIGURED["all that could queue"]))
    assert is_sent(
        made, derive_webhook_rules((), queue=CONFIGURED["all that could queue"]).validate
    )


def test_a_job_of_a_job_is_resumed_by_its_owner():
    """A JobSet resumes its Jobs: what they belong to was admitted."""
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "1"}
    metadata = {"name": "j", "labels": {QUEUE: "lq"}}
    metadata |= {"ownerReferences": [owner | {"controller": True}]}
    old = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"suspend": True}}
    new = old | {"spec": {"suspend": False}}

    assert not is_refused(Attempt("", "batch", "Job", "jobs", old, new), decider(EVERYTHING))


def test_the_charts_roles_give_users_nothing_that_admits():
    """Users may write LocalQueues, if anything: no Workload, no status, no pod."""
    chart = Path(__file__).parents[2] / "charts/policyd/templates/userroles.yaml"
    rules = [yaml.safe_load(line)[0] for line in chart.read_text().splitlines() if "verbs:" in line]
    written = {
        resource
        for rule in rules
        for resource in rule["resources"]
        if set(rule["verbs"]) - {"get", "list", "watch"}
    }

    assert len(rules) == 4
    assert written == {"localqueues"}


def test_a_set_of_endless_groups_is_refused_without_writing_them_out():
    spec = {"leaderWorkerTemplate": {"workerTemplate": {"spec": {"containers": []}}}}
    old, new = (
        {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": "a", "namespace": "ns", "labels": {QUEUE: "lq"}},
            "spec": {**spec, "replicas": replicas},
        }
        for replicas in (1, 2**31 - 1)
    )
    group, kind, plural = "leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkersets"

    assert is_refused(Attempt("endless", group, kind, plural, old, new), decider(EVERYTHING))
