"""The order of the workloads that wait, and which of them wait aside."""

import msgspec
import pytest
from hypothesis import given, settings

from policyd.alloc.flavors.assignment import Progress
from policyd.alloc.pending import PendingQueue, becomes_inadmissible
from policyd.alloc.plan import Requeue
from policyd.alloc.reasons import Refusal
from policyd.alloc.workload import Objection
from policyd.status.pending_order import order_of
from tests.alloc.builders import workload
from tests.alloc.choices import scenarios


def pending(*workloads):
    queue = PendingQueue()
    for each in workloads:
        queue.put(each)
    return queue


def attempt(key, reason="Generic", *, inadmissible=True):
    refusal = Refusal("WaitingForQuota")
    return Requeue(
        workload=workload(key, "q"),
        reason=reason,
        refusal=refusal,
        requests={},
        inadmissible=inadmissible,
    )


def preempting(key):
    return attempt(key, "PendingPreemption", inadmissible=False)


def park(queue, key, reason="Generic", *, equivalents=False):
    queue.requeue(attempt(key, reason), strict=False, equivalents=equivalents)


def drain(queue):
    order = []
    while (head := queue.head()) is not None:
        order.append(head.workload.key)
        queue.remove(head.workload.key)
    return order


def head(queue):
    ticket = queue.head()
    return ticket and ticket.workload.key


@pytest.mark.parametrize(
    ("workloads", "expected"),
    [
        pytest.param([], [], id="empty"),
        pytest.param(
            [workload("late", "q", at=2), workload("early", "q", at=1)],
            ["early", "late"],
            id="older-first",
        ),
        pytest.param(
            [workload("low", "q", at=1), workload("high", "q", at=2, priority=1)],
            ["high", "low"],
            id="priority-before-age",
        ),
        pytest.param(
            [workload("a", "q", uid="2"), workload("b", "q", uid="1")],
            ["b", "a"],
            id="uid-breaks-ties",
        ),
    ],
)
def test_the_order_is_priority_age_uid(workloads, expected):
    assert drain(pending(*workloads)) == expected


def test_the_shortest_of_the_same_priority_goes_first_where_run_time_orders():
    """Those that run as long go by age, and those that do not say come last."""
    queue = pending(
        workload("silent", "q", at=0),
        workload("long", "q", at=1, run_seconds=60.0),
        workload("young", "q", at=3, run_seconds=5.0),
    )
    queue.order_by_run_time(shortest=True)
    queue.put(workload("old", "q", at=2, run_seconds=5.0))
    queue.put(workload("urgent", "q", at=4, priority=1))

    assert [ticket.workload.key for ticket in order_of(queue).in_order()] == [
        "urgent", "old", "young", "long", "silent"
    ]  # fmt: skip
    assert head(queue) == "urgent"
    assert order_of(queue).oldest("", 0) == 0
    queue.order_by_run_time(shortest=False)
    assert [ticket.workload.key for ticket in order_of(queue).in_order()][1:] == [
        "silent", "long", "old", "young"
    ]  # fmt: skip
    assert drain(queue) == ["urgent", "silent", "long", "old", "young"]


def test_looking_at_the_head_leaves_it_there():
    queue = pending(workload("a", "q"))

    assert (head(queue), head(queue), len(queue)) == ("a", "a", 1)


def test_inadmissible_workloads_are_skipped_until_the_queue_is_reactivated():
    queue = pending(workload("a", "q", at=1), workload("b", "q", at=2))

    park(queue, "a")
    assert (head(queue), queue.inadmissible, len(queue)) == ("b", 1, 2)

    queue.wake()
    assert (head(queue), queue.inadmissible) == ("a", 0)


def test_putting_an_inadmissible_workload_again_unchanged_leaves_it_so():
    queue = pending(workload("a", "q"))
    park(queue, "a")

    queue.put(workload("a", "q"))

    assert queue.inadmissible == 1


def test_a_change_of_a_parked_workload_gives_it_another_try():
    queue = pending(workload("a", "q", gpu=4))
    park(queue, "a")

    queue.put(workload("a", "q", gpu=2))

    assert (head(queue), queue.inadmissible) == ("a", 0)


def test_a_change_of_priority_changes_the_place():
    queue = pending(workload("a", "q", at=1), workload("b", "q", at=2))

    queue.put(workload("b", "q", at=2, priority=5))

    assert drain(queue) == ["b", "a"]


def test_a_workload_in_backoff_is_inadmissible_and_ignores_reactivation():
    queue = pending(workload("a", "q", backing_off=True))
    queue.wake()
    assert (head(queue), queue.inadmissible) == (None, 1)

    queue.put(workload("a", "q"))
    assert (head(queue), queue.inadmissible) == ("a", 0)


def test_a_workload_that_starts_to_back_off_is_no_longer_tried():
    queue = pending(workload("a", "q"))

    queue.put(workload("a", "q", backing_off=True))

    assert (head(queue), queue.inadmissible) == (None, 1)


@pytest.mark.parametrize(
    ("misplaced", "expected"),
    [
        pytest.param(True, None, id="of-a-namespace-the-queue-does-not-take"),
        pytest.param(False, "a", id="of-another-kind"),
    ],
)
def test_a_wake_up_spares_who_is_misplaced(misplaced, expected):
    objection = Objection(reason="Misconfigured", message="no", misplaced=misplaced)
    queue = pending(workload("a", "q", objection=objection))
    park(queue, "a")

    queue.wake()

    assert head(queue) == expected


def test_removing_a_missing_key_does_nothing():
    assert pending().remove("a") is None


@pytest.mark.parametrize(
    ("reason", "strict", "inadmissible"),
    [
        pytest.param("NoFit", False, True, id="what-does-not-fit"),
        pytest.param("NoFit", True, False, id="what-does-not-fit-and-lets-nobody-pass"),
        pytest.param("NamespaceMismatch", True, True, id="who-is-in-the-wrong-queue"),
        pytest.param("PendingPreemption", False, False, id="who-preempts"),
        pytest.param("FailedAfterNomination", False, False, id="who-lost-its-turn"),
    ],
)
def test_the_reason_of_a_failure_says_who_waits_aside(reason, strict, inadmissible):
    assert becomes_inadmissible(reason, None, strict=strict) is inadmissible


def test_a_preemptor_goes_first_until_it_leaves():
    queue = pending(workload("first", "q", priority=9), workload("preemptor", "q"))

    queue.requeue(
        preempting("preemptor"),
        strict=False,
        equivalents=True,
    )
    before = head(queue)
    queue.remove("preemptor")

    assert (before, head(queue)) == ("preemptor", "first")


def test_no_workload_passes_the_head_of_a_strict_queue_by_preempting():
    queue = pending(workload("first", "q", priority=9), workload("preemptor", "q"))

    queue.requeue(preempting("preemptor"), strict=True, equivalents=True)

    assert head(queue) == "first"


def test_a_failed_request_is_not_tried_again_for_the_next_equal_one():
    queue = pending(
        workload("a", "q", gpu=8, at=1), workload("b", "q", gpu=8, at=2), workload("c", "q", at=3)
    )

    park(queue, "a", "NoFit", equivalents=True)
    queue.put(workload("late", "q", gpu=8, at=0))

    assert (head(queue), queue.inadmissible) == ("c", 3)
    assert queue.shared_refusal("late") == "WaitingForQuota"


@pytest.mark.parametrize(
    ("reason", "equivalents"),
    [
        pytest.param("Generic", True, id="for-a-reason-of-its-own"),
        pytest.param("NoFit", False, id="when-nobody-asked"),
    ],
)
def test_others_are_tried_that_ask_for_the_same_as_who_failed(reason, equivalents):
    queue = pending(workload("a", "q", at=1), workload("b", "q", at=2))

    park(queue, "a", reason, equivalents=equivalents)

    assert (head(queue), queue.shared_refusal("a")) == ("b", None)


def test_a_wake_up_gives_everybody_another_try_that_asks_for_the_same():
    queue = pending(workload("a", "q", at=1), workload("b", "q", at=2))
    park(queue, "a", "NoFit", equivalents=True)
    assert (head(queue), queue.inadmissible) == (None, 2)

    queue.wake()

    assert drain(queue) == ["a", "b"]


def of(local_queue, name, **facts):
    return msgspec.structs.replace(workload(name, "q", **facts), local_queue=local_queue)


def test_local_queues_that_used_least_go_first_before_priority_and_age():
    usage = {"busy": 2.0}
    queue = pending(
        of("busy", "important", priority=9), of("idle", "modest"), of("idle", "late", at=5)
    )
    queue.order_by(usage)

    first = head(queue)
    usage["idle"] = 3.0

    assert (first, drain(queue)) == ("modest", ["important", "modest", "late"])


def test_a_queue_that_stops_counting_usage_goes_by_priority():
    queue = pending(of("busy", "important", priority=9), of("idle", "modest"))
    queue.order_by({"busy": 2.0})

    queue.order_by(None)

    assert drain(queue) == ["important", "modest"]


def steps(choose):
    kinds = ("put", "put", "boost", "remove", "park", "exhaust", "wake")
    return [(choose.one(kinds), choose.number(0, 5)) for _ in range(choose.number(0, 100))]


@settings(deadline=None)
@given(scenarios(steps, 201))
def test_the_order_agrees_with_sorting_whatever_happens(ops):
    queue, active, inadmissible, exhausted = PendingQueue(), {}, {}, set()
    for op, n in ops:
        key = f"w{n}"
        known = active.get(key) or inadmissible.get(key)
        match op:
            case "put" if known is None:
                active[key] = workload(key, "q", at=n % 3, priority=n % 2, gpu=1 + n % 4)
                queue.put(active[key])
            case "boost" if known is not None:
                inadmissible.pop(key, None)
                active[key] = msgspec.structs.replace(known, priority=known.priority + 1)
                queue.put(active[key])
            case "remove":
                active.pop(key, None)
                inadmissible.pop(key, None)
                queue.remove(key)
            case "park" if key in active:
                inadmissible[key] = active.pop(key)
                park(queue, key)
            case "exhaust" if key in active:
                exhausted.add(asked(active[key]))
                park(queue, key, "NoFit", equivalents=True)
            case "wake":
                active |= inadmissible
                inadmissible, exhausted = {}, set()
                queue.wake()
        assert set(ordered(queue)) == {*active, *inadmissible}
        able = [each for each in active.values() if asked(each) not in exhausted]
        assert queue.inadmissible == len(inadmissible) + len(active) - len(able)
        first = min(able, key=rank, default=None)
        assert head(queue) == (first and first.key)


def ordered(queue):
    """The keys in order, as the queue keeps it."""
    order = order_of(queue)
    found = order.in_order()
    assert found == sorted(queue, key=queue.turn)
    assert [(n, ticket) for n, _, ticket in order.places("", 0, 9)] == [*enumerate(found[:9])]
    assert order.places("", 2, 4) == order.places("", 0, 9)[2:4]
    groups = [*order.groups()]
    assert sum(group.size for group in groups) == len(found)
    assert sum(group.trying for group in groups) == len(queue.active)
    for each in found:
        first = order.oldest(each.workload.local_queue, each.workload.priority)
        assert first <= each.workload.queued_at
    for name in {ticket.workload.local_queue for ticket in found} - {""}:
        own = [each for each in order.places("", 0, 9) if each.ticket.workload.local_queue == name]
        assert order.places(name, 0, 9) == own
        assert [each.in_local_queue for each in own] == [*range(len(own))]
        assert order.places(name, 1, 2) == own[1:2]
    return [ticket.workload.key for ticket in found]


def asked(each):
    (pod_set,) = each.pod_sets
    return each.priority, tuple(pod_set.requests.items())


def rank(each):
    return -each.priority, each.queued_at, each.uid


def test_the_order_does_not_grow_with_parking_and_waking():
    queue = pending(*(workload(f"w{n}", "q", at=n) for n in range(10)))

    for n in range(1_000):
        queue.put(workload("w0", "q", priority=n))
        park(queue, "w0")
        queue.wake()

    assert len(queue._heaps[""]) < 200
    assert head(queue) == "w0"


def test_a_preemptor_stays_one_while_it_asks_the_same():
    queue = pending(workload("a", "q"))
    queue.requeue(preempting("a"), strict=False, equivalents=True)

    queue.put(workload("a", "q", gated=True))
    same = queue.head().preemptor
    queue.put(workload("a", "q", gpu=2))

    assert (same, queue.head().preemptor) == (True, False)


@pytest.mark.parametrize("carries", [pytest.param(True, id="on"), pytest.param(False, id="off")])
def test_a_search_goes_on_after_a_change_where_that_is_wanted(carries):
    queue = pending(workload("a", "q"))
    progress = queue.head().progress = Progress(
        tried=((0,),), request_key=None, generation=0, cycle=1
    )

    queue.put(workload("a", "q", gated=True), carries=carries)

    assert (queue.head().progress is progress) is carries


@pytest.mark.parametrize("usage", [None, {"ns/less": 1.0, "ns/more": 2.0}])
def test_the_order_is_kept_with_preemptors_and_usage(usage):
    queue = pending(
        *(
            workload(f"w{n}", "q", at=n, local_queue=f"ns/{'more' if n % 2 else 'less'}")
            for n in range(6)
        )
    )
    queue.order_by(usage)
    before = ordered(queue)
    park(queue, "w5", "PendingPreemption")
    queue.remove("w1")
    queue.put(workload("w2", "q", at=9, local_queue="ns/less"))

    assert len(before) == 6
    assert ordered(queue)[0] == ("w5" if usage is None else "w0")


def test_an_order_that_nobody_asks_for_any_more_is_forgotten():
    queue = pending(*(workload(f"w{n}", "q", at=n) for n in range(200)))
    order_of(queue).in_order()
    for n in range(200):
        queue.put(workload(f"w{n}", "q", at=n, priority=1))
        queue.put(workload(f"w{n}", "q", at=n, priority=2))

    assert queue.follower is None
    assert len(ordered(queue)) == 200
