"""What the webhook refuses of pods, alone and in groups."""

import pytest

from policyd.jobs.pods import SUSPENDING_PARENT
from policyd.jobs.rules.surroundings import JobContext
from policyd.jobs.rules.validation import validate_job

P = "kueue.x-k8s.io/"
QUEUE, WPC, LIMIT = f"{P}queue-name", f"{P}priority-class", f"{P}max-exec-time-seconds"
SHARED, REQUIRED = f"{P}podset-group-name", f"{P}podset-required-topology"
GROUP, TOTAL, MANAGED = f"{P}pod-group-name", f"{P}pod-group-total-count", f"{P}managed"


def wrong(new, old=None):
    return [(e.path, e.message) for e in validate_job(new, old, group="", kind="Pod")]


def pod(labels=None, annotations=None, gates=()):
    metadata = {"labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"schedulingGates": [{"name": each} for each in gates]}}


WAITING = {"gates": [f"{P}admission"]}


@pytest.mark.parametrize(
    ("new", "old", "field"),
    [
        pytest.param(pod({GROUP: "g"}, {TOTAL: "2"}), None, None, id="group"),
        pytest.param(pod({MANAGED: "true"}), None, None, id="managed"),
        pytest.param(
            pod({MANAGED: "no"}), None, f"metadata.labels[{MANAGED}]", id="managed-or-not"
        ),
        pytest.param(
            pod({GROUP: "g"}), None, f"metadata.annotations[{TOTAL}]", id="group-without-total"
        ),
        pytest.param(
            pod({}, {TOTAL: "2"}), None, f"metadata.labels[{GROUP}]", id="total-without-group"
        ),
        pytest.param(
            pod({GROUP: "g"}, {TOTAL: "0"}), None, f"metadata.annotations[{TOTAL}]", id="total-zero"
        ),
        pytest.param(
            pod({GROUP: "g"}, {TOTAL: "9" * 5000}),
            None,
            f"metadata.annotations[{TOTAL}]",
            id="total-beyond-reading",
        ),
        pytest.param(pod({}, {TOTAL: "0"}), None, f"metadata.labels[{GROUP}]", id="total-alone"),
        pytest.param(
            pod({GROUP: "h"}, {TOTAL: "2"}),
            pod({GROUP: "g"}, {TOTAL: "2"}),
            f"metadata.labels[{GROUP}]",
            id="group-changed",
        ),
        pytest.param(
            pod({GROUP: "g"}, {TOTAL: "2"}),
            pod({}, {GROUP: "g", TOTAL: "2"}),
            None,
            id="group-from-annotation-to-label",
        ),
        pytest.param(
            pod({}, {SHARED: "g", REQUIRED: "rack"}), None, None, id="placed-with-pods-of-others"
        ),
        pytest.param(
            pod({}, {SHARED: "1", REQUIRED: "rack"}),
            None,
            f"metadata.annotations[{SHARED}]",
            id="placed-with-a-number",
        ),
        pytest.param(
            pod({QUEUE: "b"}), pod({QUEUE: "a"}), f"metadata.labels[{QUEUE}]", id="queue-changed"
        ),
        pytest.param(
            pod({QUEUE: "b"}, **WAITING), pod({QUEUE: "a"}, **WAITING), None, id="queue-in-time"
        ),
        pytest.param(
            pod({LIMIT: "9"}),
            pod({LIMIT: "9", WPC: "high"}),
            f"metadata.labels[{WPC}]",
            id="priority-removed",
        ),
        pytest.param(
            pod({LIMIT: "9"}),
            pod({LIMIT: "8"}, **WAITING),
            f"metadata.labels[{LIMIT}]",
            id="limit-changed-by-the-start",
        ),
        pytest.param(
            pod({}, {f"{P}retriable-in-group": "true"}),
            pod({}, {f"{P}retriable-in-group": "false"}),
            f"metadata.annotations[{P}retriable-in-group]",
            id="retriable-again",
        ),
    ],
)
def test_pods(new, old, field):
    assert [found for found, _ in wrong(new, old)] == ([field] if field else [])


@pytest.mark.parametrize(
    ("requester", "parent", "allowed"),
    [("queue", "statefulset", True), ("queue", "", False), ("user", "statefulset", False)],
)
@pytest.mark.parametrize("label", [QUEUE, WPC])
def test_only_the_controller_relabels_pods_that_started_and_only_those_of_a_parent(
    requester, parent, allowed, label
):
    notes = {SUSPENDING_PARENT: parent} if parent else {}
    old, new = pod({MANAGED: "true"}, notes), pod({MANAGED: "true", label: "other"}, notes)

    context = JobContext(requester=requester)
    errors = validate_job(new, old, group="", kind="Pod", surroundings=context)

    assert ([error.path for error in errors] == []) is allowed
