"""CronJobs: their Jobs queue where they say."""

import pytest

from policyd.jobs.integrations import Integrations
from policyd.jobs.rules.defaults import default_on_create, default_parent, holds
from policyd.patch.draft import Draft

QUEUE = "kueue.x-k8s.io/queue-name"
CLASS = "kueue.x-k8s.io/priority-class"


def cron_job(labels, **template):
    return {"metadata": {"labels": labels}, "spec": {"jobTemplate": {"spec": {}, **template}}}


@pytest.mark.parametrize("change", [default_on_create, default_parent])
@pytest.mark.parametrize(
    ("labels", "passed_on"),
    [
        pytest.param({QUEUE: "q", "a": "b"}, {"c": "d", QUEUE: "q"}, id="queue"),
        pytest.param(
            {QUEUE: "q", CLASS: "high"}, {"c": "d", QUEUE: "q", CLASS: "high"}, id="class"
        ),
        pytest.param({"a": "b"}, {"c": "d"}, id="none"),
    ],
)
def test_jobs_get_the_queue_of_their_cron_job(change, labels, passed_on):
    draft = Draft(cron_job(labels, metadata={"labels": {"c": "d"}}))

    change(draft, group="batch", kind="CronJob")

    assert draft.get(("spec", "jobTemplate", "metadata", "labels")) == passed_on


def test_a_cron_job_is_left_alone_where_jobs_do_not_queue():
    assert holds("batch", "CronJob")
    assert not holds("batch", "CronJob", Integrations(kinds=frozenset({("", "Pod")})))


def test_a_cron_job_of_another_shape_is_left_to_the_api_server():
    draft = Draft({"metadata": {"labels": {QUEUE: "q"}}, "spec": {"jobTemplate": 1}})

    default_on_create(draft, group="batch", kind="CronJob")

    assert not draft.changed
