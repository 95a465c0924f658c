"""One job on the page: its life, its pods, and by whom its fields were set."""

import pytest

from policyd.dashboard.pages.job import VIEW
from policyd.dashboard.views.job import MOST_NODES, ReadJob, job_view
from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError
from policyd.patch.recorded import FieldOrigin, ObjectOrigins
from policyd.questions.unqueued_jobs import JOBS
from policyd.snapshot.answers import WhyAnswer
from policyd.workload.job_answer import JobAnswer, PodsOnNode
from policyd.workload.timeline import TimelineEvent
from tests.cli.questions.test_job import client as client_with_a_job
from tests.dashboard.looking import Looking
from tests.questions.test_unqueued_jobs import put

NOW = 1_800_000_000.0
WHY = WhyAnswer(kind="Job", namespace="ns", name="j", state="Admitted", message="it runs")


def shown(**read):
    return job_view(ReadJob(**{"answer": JobAnswer(why=WHY), **read}), {}, NOW)


@pytest.fixture
def looking():
    """A page of a cluster with a job, and somebody who has signed in by a link."""
    looking = Looking(views=(VIEW,))
    looking.api.store = client_with_a_job.__wrapped__().store
    looking.enter()
    return looking


def test_a_job_is_shown_with_its_life(looking):
    put(looking.api, r.EVENTS, "e", involvedObject={"kind": "Job", "name": "j"})
    answer = looking.get("/jobs/ns/Job/j")

    assert answer.status_code == 200
    for text in ("Job ns/j", "Quota reserved", "Admitted", "n1", "1 Preempted", "not record"):
        assert text in answer.text


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/jobs/ns/Job/nobody", "Job ns/nobody not found"),
        ("/jobs/ns/Jbo/j", "is not a kind that can be in a queue"),
        ("/jobs/other/Job/j", "Job other/j not found"),
    ],
)
def test_a_job_that_is_not_there_is_named(looking, path, text):
    answer = looking.get(path)

    assert answer.status_code == 404
    assert text in answer.text


def test_what_may_not_be_read_is_named_and_the_rest_is_shown(looking):
    looking.api.failures = {("page", r.EVENTS): ForbiddenError("events are forbidden")}
    page = looking.api.page

    async def refusing(resource, *, into, **options):
        if resource in {r.EVENTS, r.POLICIES}:
            raise ForbiddenError(f"{resource.plural} are forbidden")
        return await page(resource, into=into, **options)

    looking.api.page = refusing
    answer = looking.get("/jobs/ns/Job/j")

    assert answer.status_code == 200
    assert "earlier events: events are forbidden" in answer.text
    assert "which policy set a field: policies are forbidden" in answer.text


def test_fields_are_named_as_people_write_them():
    origins = ObjectOrigins(
        (
            FieldOrigin("/metadata/labels/a~1b", '"x"', ("p", "q")),
            FieldOrigin("/spec/tolerations/0", "{}"),
            FieldOrigin("/spec/suspend", "false", manager="policyd"),
        ),
        more=3,
        not_there={"late": ("/a", "/b", "/c", "/d")},
    )

    view = shown(origins=origins)

    assert [(each.path, each.by) for each in view.fields] == [
        ('metadata.labels["a/b"]', "p, q"),
        ("spec.tolerations[0]", "the API server, or an unknown policy"),
        ("spec.suspend", "policyd's controller, as it started the job"),
    ]
    assert view.more_fields == 3
    assert view.not_there == (("late", "a, b, c and 1 more"),)


def test_a_preemptor_is_named_where_the_event_does_not():
    answer = JobAnswer(why=WHY, preempted_by="ns/other")
    event = TimelineEvent(NOW, "Preempted", "to accommodate a workload")

    view = shown(answer=answer, events=(event,))

    assert view.moments[0].message == "to accommodate a workload (for ns/other)"


@pytest.mark.parametrize(
    ("status", "texts"),
    [
        pytest.param(
            {"clusterName": "west"},
            ["<dt>Cluster</dt><dd>west</dd>", "It runs in the cluster west"],
            id="sent",
        ),
        pytest.param(
            {"nominatedClusterNames": ["west", "east"]},
            ["<dt>May go to</dt><dd>west, east</dd>"],
            id="nominated",
        ),
    ],
)
def test_a_job_that_goes_to_another_cluster_names_it(looking, status, texts):
    store = looking.api.store
    stored = store.get(r.WORKLOADS, "ns", "w")
    store.put(r.WORKLOADS, {**stored, "status": {**stored["status"], **status}})
    for pod in "abcd":
        store.delete(r.PODS, store.get(r.PODS, "ns", pod), dry_run=False)

    answer = looking.get("/jobs/ns/Job/j")

    assert all(text in answer.text for text in texts)


def test_events_of_a_job_of_volcano_are_found_by_the_kind_that_objects_have(looking):
    volcano = JOBS["Job.batch.volcano.sh"]
    put(looking.api, volcano, "v", labels={"kueue.x-k8s.io/queue-name": "lq"})
    asked = []
    page = looking.api.page

    async def noting(resource, *, into, **options):
        asked.append(options.get("field_selector", ""))
        return await page(resource, into=into, **options)

    looking.api.page = noting
    answer = looking.get("/jobs/ns/vcjob/v")

    assert answer.status_code == 200
    assert "Job.batch.volcano.sh ns/v" in answer.text
    assert "involvedObject.kind=Job,involvedObject.name=v" in asked


def test_of_many_nodes_the_first_are_listed():
    pods = tuple(PodsOnNode(f"n{number}", "Running", 1) for number in range(MOST_NODES + 2))

    view = shown(answer=JobAnswer(why=WHY, pods=pods))

    assert (len(view.pods), view.more_pods, view.placed) == (MOST_NODES, 2, True)
