"""What a snapshot answers: why a job waits, who is in line, what the quotas give."""

import pytest
from msgspec.structs import replace

from policyd.alloc.queue import QueueSpec
from policyd.cli.questions.why import why_lines
from policyd.snapshot.answers import called, queue_lines, quota_lines, why_holding, why_pending
from policyd.snapshot.reading import find
from policyd.snapshot.values import PendingRow, QuotaHolder
from tests.alloc.builders import cohort, group, pod_set, queue, quota, state, workload
from tests.alloc.preemption.test_preemption import running
from tests.snapshot.taking import snapshot
from tests.status.test_pending_reasons import settled

LINE = (
    queue("q", gpu=8),
    running("ns/job-runs", "q", gpu=6, priority=5),
    workload("ns/job-next", "q", gpu=4, at=1, local_queue="ns/a", priority=5),
    workload("ns/job-behind", "q", gpu=4, at=2, local_queue="ns/b", priority=5),
)


def why(found, name, namespace="ns", kind="Job"):
    return why_pending(find(found, namespace, kind, name), kind, namespace, name)


def test_the_next_gets_the_shortfall_the_holders_and_remedies():
    answer = why(snapshot(settled(*LINE)), "next")

    (missing,) = answer.missing
    assert (answer.state, answer.reason, answer.ahead) == ("Pending", "WaitingForQuota", 0)
    assert (missing.missing, missing.requested, missing.available) == (2, 4, 2)
    assert (missing.holders, missing.others) == ((QuotaHolder("ns/job-runs", "q", 6),), 0)
    assert answer.user.startswith("wait until")
    assert answer.administrator.startswith("raise the nominalQuota")
    assert answer.requests == {"gpu": 4}
    assert answer.since == "1970-01-01T00:00:01Z"


def test_one_behind_it_gets_the_workload_it_waits_for_and_nothing_that_would_not_help_it():
    answer = why(snapshot(settled(*LINE)), "behind")

    assert answer.message == "behind ns/next, which needs 4 gpu of default; 2 are free"
    assert (answer.ahead, answer.ahead_in_local_queue, answer.behind) == (1, 0, "ns/next")
    assert (answer.user, answer.administrator) == ("", "")


def test_one_behind_a_job_that_can_never_start_gets_a_message():
    of = settled(
        queue("q", gpu=8, strict=True), workload("ns/job-huge", "q", gpu=12, at=1),
        workload("ns/job-small", "q", gpu=1, at=2),
    )  # fmt: skip
    answer = why(snapshot(of), "small")

    assert answer.message == (
        "behind ns/huge, which needs 12 gpu of default; its queue can have 8 at most"
    )


def test_one_behind_a_job_of_which_only_the_condition_is_known_has_its_words():
    of = settled(
        queue("q", gpu=8, strict=True, groups=[group(default={"gpu": 8})]),
        workload("ns/job-odd", "q", pod_set(other=1), at=1), workload("ns/job-w", "q", gpu=1, at=2),
    )  # fmt: skip
    answer = why(snapshot(of), "w")

    assert answer.message.startswith("behind ns/odd, which is pending: couldn't assign flavors")


def test_in_a_queue_that_gives_no_quota_that_is_the_reason():
    stopped = QueueSpec(name="q", groups=(group(default={"gpu": 8}),), stopped=True)
    answer = why(snapshot(state(stopped, workload("ns/job-w", "q", gpu=1))), "w")

    assert (answer.reason, answer.message) == (
        "Stopped",
        "Can't admit new workloads: is stopped.",
    )
    assert (answer.user, answer.administrator) == ("", "`policyd resume clusterqueue/q`")


@pytest.mark.parametrize(
    ("fields", "answered", "message"),
    [
        pytest.param({"admitted": True}, "Admitted", "it is not waiting for quota", id="runs"),
        pytest.param({}, "QuotaReserved", "waits for its admission checks", id="checks"),
        pytest.param({"evicted": True}, "Stopping", "still holds 6 gpu of default", id="evicted"),
    ],
)
def test_what_has_quota_says_what_it_holds(fields, answered, message):
    held = running("ns/job-w", "q", gpu=6)
    for name, value in {"admitted": False, **fields}.items():
        held = type(held)(
            **{each: getattr(held, each) for each in held.__struct_fields__} | {name: value}
        )
    found = find(snapshot(settled(queue("q", gpu=8), held)), "ns", "Job", "w")
    answer = why_holding(found, "Job", "ns", "w")

    assert (answer.state, answer.requests) == (answered, {"gpu": 6})
    assert message in answer.message


def test_a_job_that_waits_to_grow_says_what_it_holds_meanwhile():
    smaller, larger = running("ns/job-small", "q", gpu=6), workload("ns/job-w", "q", gpu=4, at=1)
    other = running("ns/job-other", "q", gpu=1)
    found = snapshot(settled(queue("q", gpu=8), smaller, other, larger))
    (of,) = found.cluster_queues
    rows = [replace(row, job="Job/w") if row.key == "ns/job-small" else row for row in of.holding]

    answer = why(replace(found, cluster_queues=(replace(of, holding=tuple(rows)),)), "w")

    assert (answer.requests, answer.held) == ({"gpu": 4}, {"gpu": 6})
    lines = why_lines(answer, wide=False)
    assert any(line.endswith("6 gpu, by another of its Workloads") for line in lines)


@pytest.mark.parametrize(
    ("key", "job", "name"),
    [
        pytest.param("ns/job-w", "Job/w", "ns/w", id="by-its-job"),
        pytest.param("ns/w", "", "ns/w", id="by-itself"),
        pytest.param("ns/", "", "a job of ns", id="by-its-team"),
        pytest.param("", "", "a job of another team", id="not-at-all"),
    ],
)
def test_a_workload_is_called_as_messages_call_it(key, job, name):
    assert called(PendingRow(key, job, 0, 0, 0)) == name


TREE = (
    cohort("top"), cohort("team", "top", 4), queue("a", "team", gpu=8), queue("alone", gpu=1),
    queue("b", "top", groups=[group(default={"gpu": quota(8, 2)})]),
    running("ns/r", "a", gpu=10), workload("ns/w1", "a", gpu=16, at=1),
    workload("ns/w2", "a", gpu=1, count=30, at=2),
)  # fmt: skip


def test_quotas_are_a_tree_with_what_waits():
    lines = list(quota_lines(snapshot(settled(*TREE))))

    assert [(line.depth, line.kind, line.name) for line in lines] == [
        (0, "Cohort", "top"), (1, "Cohort", "team"), (2, "ClusterQueue", "a"),
        (1, "ClusterQueue", "b"), (0, "ClusterQueue", "alone"),
    ]  # fmt: skip
    by_name = {line.name: line for line in lines}
    a = by_name["a"]
    assert (a.nominal, a.used, a.borrowed, a.pending, a.parent) == (8, 10, 2, 46, "team")
    assert (by_name["b"].borrowing_limit, a.borrowing_limit) == (2, None)
    assert by_name["top"].used == 10


def test_cohorts_that_lead_back_to_themselves_are_shown_once():
    of = state(cohort("x", "y", 2), cohort("y", "x", 4), queue("q", "x", gpu=8))
    lines = list(quota_lines(snapshot(of)))

    assert sorted({line.name for line in lines}) == ["q", "x", "y"]
    assert len(lines) == len({(line.name, line.resource) for line in lines})


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        pytest.param({"queue": "b"}, ["b"], id="of-a-queue"),
        pytest.param({"resource": "cpu"}, [], id="of-a-resource"),
        pytest.param({"queue": "team", "resource": "gpu"}, ["team"], id="of-both"),
    ],
)
def test_quotas_are_chosen(chosen, names):
    assert [line.name for line in quota_lines(snapshot(settled(*TREE)), **chosen)] == names


@pytest.mark.parametrize(
    ("chosen", "jobs"),
    [
        pytest.param({}, ["Job/next", "Job/behind", "Workload/plain"], id="all"),
        pytest.param({"queue": "q"}, ["Job/next", "Job/behind"], id="of-a-cluster-queue"),
        pytest.param({"queue": "b"}, ["Job/behind"], id="of-a-local-queue"),
        pytest.param({"team": "other"}, ["Workload/plain"], id="of-a-team"),
        pytest.param({"owner": "ann"}, ["Job/next", "Job/behind"], id="of-a-person"),
    ],
)
def test_the_line_is_chosen(chosen, jobs):
    of = settled(*LINE, queue("r", gpu=1), workload("other/plain", "r", gpu=1, count=2))

    assert [line.job for line in queue_lines(snapshot(of), **chosen)] == jobs


def test_a_line_says_of_a_hidden_job_its_place_requests_and_priority():
    found = snapshot(settled(*LINE), reader="other", others="hidden")
    first = next(queue_lines(found))

    assert (first.job, first.namespace, first.local_queue, first.workload) == ("", "", "", "")
    assert (first.ahead, first.priority, first.requests) == (0, 5, {"gpu": 4})
    assert (first.owner, list(queue_lines(found, owner="ann"))) == ("", [])
