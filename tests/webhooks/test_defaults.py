"""The door knows what there is named `default`, from when there may be something."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import pytest

from policyd.admission.jobs import DefaultClass, JobAdmission
from policyd.api.admission import parse_review
from policyd.api.makers import makers_of
from policyd.engine.model.decision import ALLOWED
from policyd.jobs.integrations import Integrations
from policyd.kube.resources import LOCAL_QUEUES, WORKLOAD_PRIORITY_CLASSES
from policyd.patch.draft import Draft
from policyd.testing import FakeClient, FakeClock
from tests.webhooks.reviews import review
from webhooks.defaults import FIRST_LIST_SECONDS, DefaultQueues, DefaultsWatch, take_class

pytestmark = pytest.mark.anyio

QUEUE, MANAGED = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/managed"
CLASS = "kueue.x-k8s.io/priority-class"


class Late(FakeClient):
    """A server without Kueue's kinds, at first; or one that does not let us list them."""

    there = True
    hangs = False

    async def served(self, api_version):
        return await super().served(api_version) if self.there else ()

    async def page(self, *args, **options):
        if self.hangs:
            await asyncio.Event().wait()
        return await super().page(*args, **options)


def local_queue(namespace, name="default"):
    return {"metadata": {"name": name, "namespace": namespace}}


@asynccontextmanager
async def watching(**server):
    clock, changes = FakeClock(), []
    client = Late(resources=(LOCAL_QUEUES,))
    vars(client).update(server)
    client.store.create(LOCAL_QUEUES, local_queue("team-a"))
    client.store.create(LOCAL_QUEUES, local_queue("team-b", name="other"))
    queues = DefaultQueues(changed=lambda: changes.append(1))
    watch = DefaultsWatch(client, LOCAL_QUEUES, queues.take, pace=clock.pace())
    running = asyncio.ensure_future(watch.run())
    try:
        yield client, clock, queues, watch, changes
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_namespaces_come_and_go_with_their_default_queue():
    async with watching() as (client, clock, queues, watch, changes):
        await watch.first_list()
        at_first, told = queues.namespaces, len(changes)
        client.store.create(LOCAL_QUEUES, local_queue("team-b"))
        await clock.advance(1)
        then = queues.namespaces
        old = client.store.get(LOCAL_QUEUES, "team-a", "default")
        client.store.replace(LOCAL_QUEUES, old, {**old, "spec": {"stopPolicy": "Hold"}})
        await clock.advance(1)
        told_of_a_change = len(changes)
        client.store.delete(LOCAL_QUEUES, old, dry_run=False)
        await clock.advance(1)

        assert (at_first, told) == ({"team-a"}, 1)
        assert (then, told_of_a_change) == ({"team-a", "team-b"}, 2)
        assert (queues.namespaces, len(changes)) == ({"team-b"}, 3)


async def test_a_kind_that_is_not_there_is_not_waited_for_and_found_when_it_comes():
    async with watching(there=False) as (client, clock, queues, watch, _):
        await watch.first_list()
        before = queues.namespaces
        client.there = True
        await clock.advance(60)

        assert (before, queues.namespaces) == (frozenset(), {"team-a"})


async def test_a_list_that_does_not_come_does_not_keep_the_door_shut():
    async with watching(hangs=True) as (_, clock, queues, watch, _):
        waiting = asyncio.ensure_future(watch.first_list())
        await clock.advance(FIRST_LIST_SECONDS + 1)

        assert waiting.done()
        assert queues.namespaces == frozenset()


def job(*, labels=None, suspend=False):
    metadata = {"name": "train", "namespace": "team-a", "labels": labels or {}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": suspend, "template": {"spec": {"containers": []}}},
    }


def asked(obj, operation="CREATE", **more):
    return parse_review(review(obj, resource="jobs", operation=operation, **more))


def in_team_a(namespace):
    return namespace == "team-a"


@pytest.mark.parametrize(
    ("operation", "gives", "concerned"),
    [
        pytest.param("CREATE", in_team_a, True, id="new-where-there-is-a-default"),
        pytest.param("CREATE", lambda _: False, False, id="new-elsewhere"),
        pytest.param("UPDATE", in_team_a, False, id="there-before"),
    ],
)
def test_jobs_that_name_no_queue_are_looked_at_where_there_is_a_default(
    operation, gives, concerned
):
    decision = JobAdmission(gives_queue=gives).change(asked(job(), operation), ALLOWED)

    assert bool(decision.operations) is concerned


def test_a_new_job_is_put_into_the_default_queue_and_held():
    draft = Draft(job())

    JobAdmission(gives_queue=in_team_a).default(asked(job()), draft)

    assert draft.object["metadata"]["labels"][QUEUE] == "default"
    assert draft.object["spec"]["suspend"] is True


def test_a_job_cannot_leave_its_queue_where_there_is_a_default():
    request = asked(job(suspend=True), "UPDATE", old=job(labels={QUEUE: "default"}, suspend=True))

    refused = JobAdmission(gives_queue=in_team_a).check(request, ALLOWED)

    assert [denial.path for denial in refused.denials] == [f"metadata.labels[{QUEUE}]"]
    assert JobAdmission(integrations=Integrations()).check(request, ALLOWED) is ALLOWED


@pytest.mark.parametrize(
    ("owner", "annotations", "warned"),
    [
        pytest.param({"apiVersion": "batch/v1", "kind": "Job"}, {}, True, id="of-a-job"),
        pytest.param({"apiVersion": "apps/v1", "kind": "ReplicaSet"}, {}, False, id="of-others"),
        pytest.param(
            {"apiVersion": "apps/v1", "kind": "StatefulSet"},
            {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"},
            False,
            id="held-for-its-parent",
        ),
    ],
)
def test_who_marks_pods_of_a_queued_job_as_held_is_warned(owner, annotations, warned):
    owners = [{"name": "a", "uid": "u", "controller": True, **owner}]
    metadata = {
        "name": "a-0",
        "namespace": "team-a",
        "labels": {MANAGED: "true"},
        "annotations": annotations,
        "ownerReferences": owners,
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}
    request = parse_review(review(pod, user="system:kube-controller-manager"))

    decision = JobAdmission().check(request, ALLOWED)

    assert (decision.allowed, bool(decision.warnings)) == (True, warned)


async def test_the_class_of_default_comes_and_goes():
    clock, known = FakeClock(), DefaultClass()
    client = FakeClient(resources=(WORKLOAD_PRIORITY_CLASSES,))
    take = partial(take_class, known)
    watch = DefaultsWatch(client, WORKLOAD_PRIORITY_CLASSES, take, pace=clock.pace())
    running = asyncio.ensure_future(watch.run())
    client.store.create(WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "other"}, "value": 1})
    await watch.first_list()
    at_first = known.there
    client.store.create(WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "default"}, "value": 2})
    await clock.advance(1)
    then = known.there
    made = client.store.get(WORKLOAD_PRIORITY_CLASSES, "", "default")
    client.store.delete(WORKLOAD_PRIORITY_CLASSES, made, dry_run=False)
    await clock.advance(1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert (at_first, then, known.there) == (False, True, False)


def made_by(kind, api_version):
    return [{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": True}]


@pytest.mark.parametrize(
    ("labels", "owners", "off", "given"),
    [
        pytest.param({QUEUE: "q"}, [], (), "default", id="new"),
        pytest.param({QUEUE: "q", CLASS: "high"}, [], (), "high", id="has-one"),
        pytest.param({}, [], (), None, id="does-not-queue"),
        pytest.param({QUEUE: "q"}, made_by("JobSet", "jobset.x-k8s.io/v1alpha2"), (), None,
                     id="of-another-job"),
        pytest.param({QUEUE: "q"}, made_by("CronJob", "batch/v1"), (), "default",
                     id="of-what-does-not-queue"),
        pytest.param({QUEUE: "q"}, [], ("WorkloadPriorityClassDefaulting",), None, id="gate-off"),
    ],
)  # fmt: skip
@pytest.mark.gate("WorkloadPriorityClassDefaulting")
def test_a_new_job_that_queues_gets_the_class_of_default(labels, owners, off, given):
    known, sent = DefaultClass(), job(labels=labels)
    known.there = True
    sent["metadata"]["ownerReferences"] = owners
    draft = Draft(sent)

    makers = makers_of(["jobset.x-k8s.io=system:jobset"])
    integrations = Integrations(off=frozenset(off), makers=makers)
    request = asked(sent, user="system:jobset")

    JobAdmission(integrations=integrations, default_class=known).default(request, draft)

    assert draft.get(("metadata", "labels", CLASS)) == given


def test_the_templates_of_what_makes_pods_get_it_too():
    known, labels = DefaultClass(), {QUEUE: "q"}
    known.there = True
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "serve", "namespace": "team-a", "labels": labels},
        "spec": {"template": {"spec": {"containers": []}}},
    }
    draft = Draft(deployment)
    request = parse_review(review(deployment, resource="deployments", operation="CREATE"))

    JobAdmission(default_class=known).default(request, draft)

    where = ("spec", "template", "metadata", "labels", CLASS)
    assert draft.get(where) == "default"
