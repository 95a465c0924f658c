"""Policies read the queues: known facts, absent and unknown ones, and what a namespace may know."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings

from policyd.alloc.amount import UNLIMITED, total_of
from policyd.alloc.queue import FlavorSpec
from policyd.cel import Budget, CelError, compile_expression
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.functions import expression_environment
from policyd.engine.model.queue_facts import NOT_GIVEN
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import namespace_lookup
from policyd.engine.remember.remembering import Remembering
from policyd.snapshot.facts import MOST_WAITING, facts_of
from policyd.snapshot.latest import LatestFacts
from policyd.snapshot.reading import SnapshotError, read
from policyd.snapshot.rules import LocalQueueRule, QueueRules
from policyd.snapshot.taking import FullSnapshot, SnapshotTaker
from policyd.snapshot.values import FORMAT, ClusterQueueUse, PendingLine, QueueSnapshot
from policyd.snapshot.writing import write
from policyd.status.naming import Naming
from tests.alloc.builders import cohort, group, pod_set, queue, workload
from tests.alloc.choices import scenarios
from tests.alloc.preemption.test_preemption import running
from tests.alloc.test_properties import made, until_settled
from tests.alloc.worlds import world
from tests.engine.reviews import pod, policy, request
from tests.snapshot.taking import Jobs, finished, snapshot
from tests.status.test_pending_reasons import settled

GPU = "nvidia.com/gpu"
FLAVORS = FlavorSpec(name="h100"), FlavorSpec(name="spot")
BEHIND = {
    ("team-a", "lq"): "a",
    ("team-a", "empty"): "a",
    ("team-b", "lq"): "b",
    ("far", "lq"): "alone",
}


def gpus(number):
    return pod_set(**{GPU: number})


def some(**written):
    """A cohort of two queues, with a job that waits, and a queue of its own."""
    of = settled(
        *FLAVORS,
        cohort("top"),
        cohort("c", "top"),
        queue("a", "c", groups=[group(h100={GPU: 8}, spot={GPU: 2})]),
        queue("b", "c", groups=[group(h100={GPU: 8})]),
        queue("alone", groups=[group(h100={GPU: 1})]),
        running("team-a/runs", "a", local_queue="team-a/lq", flavor="h100", **{GPU: 7}),
        workload("team-a/job-big", "a", gpus(20), at=5, local_queue="team-a/lq"),
        workload("team-b/job-late", "b", gpus(30), at=9, local_queue="team-b/lq", priority=3),
        workload("far/job-x", "alone", gpus(2), at=7, local_queue="far/lq"),
    )
    return snapshot(of, **written)


def known(**written):
    return facts_of(some(**written), BEHIND)


def value(expression, facts, *, namespace="team-a", name="lq"):
    program = compile_expression(expression, expression_environment())
    return program.evaluate(facts.variables(namespace, name), Budget())


def fails(expression, facts, **named):
    with pytest.raises(CelError) as error:
        value(expression, facts, **named)
    return str(error.value)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("queue.namespace + '/' + queue.name + ' ' + queue.clusterQueue", "team-a/lq a"),
        ("[queue.pending, queue.holding]", [1, 1]),
        (f"[queue.requested['{GPU}'], queue.used['{GPU}']]", [20, 7]),
        ("int(queue.oldestPending)", 5),
        ("clusterQueue.cohort", "c"),
        ("clusterQueue.active && !clusterQueue.strict", True),
        (f"[clusterQueue.nominal['{GPU}'], clusterQueue.used['{GPU}']]", [10, 7]),
        (f"clusterQueue.flavors['h100'].available['{GPU}']", 9),
        (f"clusterQueue.flavors['spot'].nominal['{GPU}']", 2),
        (f"clusterQueue.borrowed['{GPU}']", 0),
        ("clusterQueue.waiting.map(w, w.namespace + ' ' + w.job)", ["team-a Job/big"]),
        (f"clusterQueue.waiting[0].requests['{GPU}']", 20),
        ("cluster.takenAt - clusterQueue.waiting[0].since > duration('16m')", True),
        ("cluster.clusterQueues['b'].waiting[0].priority", 3),
        ("cluster.cohorts['c'].parent", "top"),
        (
            f"[cluster.cohorts['c'].nominal['{GPU}'], cluster.cohorts['top'].idle['{GPU}']]",
            [18, 11],
        ),
        ("cluster.cohorts[clusterQueue.cohort].pending", 2),
        (f"[cluster.idle['{GPU}'], cluster.requested['{GPU}'], cluster.pending]", [12, 52, 3]),
        ("cluster.known && has(cluster.takenAt) && has(queue.oldestPending)", True),
        ("cluster.clusterQueues.exists(n, n == 'alone')", True),
    ],
)
def test_facts_are_those_of_the_snapshot(expression, expected):
    assert value(expression, known()) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("", "the object names no queue", id="no-label"),
        pytest.param("none", "there is no LocalQueue team-a/none", id="no-such-queue"),
    ],
)
@pytest.mark.parametrize("variable", ["queue", "clusterQueue"])
def test_a_queue_that_is_not_there_is_absent_like_any_field(variable, name, message):
    assert value(f"has({variable}.name)", known(), name=name) is False
    assert value(f"{variable}.?pending.orValue(-1)", known(), name=name) == -1
    assert message in fails(f"{variable}.pending > 0", known(), name=name)


def test_in_a_queue_without_workloads_nothing_waits():
    facts = known()

    assert value("[queue.pending, queue.holding]", facts, name="empty") == [0, 0]
    assert value("has(queue.oldestPending)", facts, name="empty") is False
    assert "nothing waits" in fails("queue.oldestPending > timestamp(0)", facts, name="empty")


EVERY_WAY = ("has({}.name)", "{}.?name.orValue('')", "{}.name")


@pytest.mark.parametrize("way", EVERY_WAY)
@pytest.mark.parametrize("variable", ["queue", "clusterQueue"])
def test_unknown_facts_fail_also_where_absent_ones_do_not(way, variable):
    assert "queues are unknown: no snapshot" in fails(way.format(variable), NOT_GIVEN)
    in_tables = facts_of(some())
    assert "team-a/empty, which has no" in fails(way.format(variable), in_tables, name="empty")


def test_that_nothing_is_known_can_be_asked():
    assert value("cluster.known", NOT_GIVEN) is False
    assert value("!cluster.known || cluster.pending > 0", NOT_GIVEN) is True
    for asked in ("has(cluster.takenAt)", "cluster.?pending.orValue(0)", "cluster.pending"):
        assert "unknown" in fails(asked, NOT_GIVEN)


def test_only_those_in_front_are_seen_one_by_one():
    line = [workload(f"ns/job-{n:03}", "q", gpus(9), at=n) for n in range(MOST_WAITING + 10)]
    found = facts_of(
        snapshot(settled(*FLAVORS, queue("q", groups=[group(h100={GPU: 1})]), *line)), {}
    )

    seen = value("cluster.clusterQueues['q'].waiting.map(w, w.job)", found)

    assert seen == [f"Job/{n:03}" for n in range(MOST_WAITING)]
    assert value("cluster.clusterQueues['q'].pending", found) == MOST_WAITING + 10


def test_the_cost_does_not_grow_with_the_workloads():
    def spent(number):
        line = [workload(f"ns/job-{n}", "q", gpus(9), at=n) for n in range(number)]
        of = settled(*FLAVORS, queue("q", groups=[group(h100={GPU: 1})]), *line)
        budget = Budget()
        asked = (
            "cluster.clusterQueues['q'].waiting.exists(w, w.priority > 5) || cluster.pending == 1"
        )
        program = compile_expression(asked, expression_environment())
        program.evaluate(facts_of(snapshot(of), {}).variables("ns", ""), budget)
        return budget.spent

    assert spent(3) < spent(MOST_WAITING) == spent(4 * MOST_WAITING)


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("queue.pendign > 0", id="mistyped-field"),
        pytest.param("queue.name > 0", id="wrong-type"),
        pytest.param("cluster.clusterQueues['a'].waiting[0].gpus > 0", id="deep-inside"),
        pytest.param("queue.exists(q, true)", id="no-map"),
    ],
)
def test_mistakes_are_found_when_a_policy_is_loaded(expression):
    assert load_policies(policy(f"validations: [{{expression: {expression!r}}}]"), "p").findings


NATIVE = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: a}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}]
  validations: [{expression: cluster.pending == 0}]
"""
NAMESPACED = """
apiVersion: policies.kyverno.io/v1
kind: NamespacedValidatingPolicy
metadata: {name: a, namespace: team-a}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}]
  validations: [{expression: cluster.pending == 0}]
"""


@pytest.mark.parametrize("text", [NATIVE, NAMESPACED])
def test_policies_of_other_kinds_have_no_facts(text):
    (finding,) = load_policies(text, "p", EVERY_FORMAT).findings

    assert "undeclared reference to 'cluster'" in finding.message
    assert finding.hint == "`cluster` is there in policyd's own policies only"


def test_a_struct_is_no_map_however_it_is_typed():
    assert "select their fields" in fails("dyn(queue).exists(q, true)", known())


# --- what a namespace may know


def test_a_policy_of_a_namespace_sees_the_trees_that_it_submits_to():
    facts = known().within("team-a")

    assert value("cluster.clusterQueues.map(n, n)", facts) == ["a", "b"]
    assert value(f"[cluster.pending, cluster.nominal['{GPU}']]", facts) == [2, 18]
    assert value("cluster.cohorts.map(n, n)", facts) == ["c", "top"]
    assert value("queue.pending", facts) == 1
    assert "no such key" in fails("cluster.clusterQueues['alone'].pending", facts)


def test_one_without_a_queue_sees_nothing():
    facts = known().within("nobody")

    assert value("[cluster.pending, size(cluster.clusterQueues)]", facts) == [0, 0]


@pytest.mark.parametrize(
    ("others", "namespace", "job"),
    [
        pytest.param("names", "team-b", "Job/late", id="names"),
        pytest.param("team", "team-b", None, id="team"),
        pytest.param("hidden", None, None, id="hidden"),
    ],
)
@pytest.mark.parametrize("written", ["for-the-namespace", "with-all-names"])
def test_jobs_of_others_are_named_as_far_as_that_is_wanted(others, namespace, job, written):
    """A namespace learns no more where the snapshot itself has all names."""
    if written == "for-the-namespace":
        facts = known(reader="team-a", others=others).within("team-a")
    else:
        whole = some(others="names")
        facts = facts_of(_marked(whole, others), BEHIND).within("team-a")

    for name, expected in (("namespace", namespace), ("job", job)):
        asked = f"cluster.clusterQueues['b'].waiting[0].{name}"
        if expected is None:
            assert "hides the jobs of other teams" in fails(asked, facts)
            assert "hides" in fails(f"has({asked})", facts)
        else:
            assert value(asked, facts) == expected
    assert value("cluster.clusterQueues['a'].waiting[0].job", facts) == "Job/big"


def _marked(whole, others):
    return msgspec.structs.replace(whole, other_teams=others)


def test_what_a_snapshot_hides_is_unknown_to_policies_of_the_cluster_too():
    facts = known(others="hidden")
    asked = "cluster.clusterQueues['b'].waiting.exists(w, w.namespace == 'team-b')"

    assert "hides" in fails(asked, facts)
    assert value("cluster.clusterQueues['b'].waiting[0].priority", facts) == 3


# --- in policies


def decide(spec, facts, obj=None, *, namespace=""):
    loaded = load_policies(policy(spec), "p")
    assert not loaded.findings, loaded.findings
    (compiled,) = loaded.policies
    compiled = _of_namespace(compiled, namespace)
    context = PolicyContext(namespaces=namespace_lookup((), {}), queues=lambda: facts)
    return PolicySet([compiled], surroundings=context).review(request(obj or queued()))


def _of_namespace(compiled, namespace):
    return replace(compiled, namespace=namespace)


def queued(name="lq", **more):
    return pod(labels={"kueue.x-k8s.io/queue-name": name}, **more)


STARVING = """
validations:
- expression: >-
    !clusterQueue.waiting.exists(w, w.namespace == 'team-a'
    && cluster.takenAt - w.since > duration('10m'))
  message: a gang is starving
"""
LABELLED = "inject: {labels: {line: {expression: string(queue.pending)}}}"


def test_a_validation_reads_the_queue_that_the_object_names():
    assert "starving" in str(decide(STARVING, known()).denials)
    assert decide(STARVING, known(), queued("lq", namespace="team-b") | _of("team-b")).allowed


def _of(namespace):
    return {"metadata": {**queued()["metadata"], "namespace": namespace}}


def test_an_injection_reads_them():
    (operation,) = decide(LABELLED, known()).operations

    assert operation.value == "1"


@pytest.mark.parametrize(("policy_on_failure", "allowed"), [("Fail", False), ("Ignore", True)])
@pytest.mark.parametrize("spec", [STARVING, LABELLED])
def test_the_failure_policy_decides_where_nothing_is_known(spec, policy_on_failure, allowed):
    decision = decide(f"failurePolicy: {policy_on_failure}\n{spec}", NOT_GIVEN)

    assert decision.allowed is allowed
    assert "the queues are unknown" in str(decision.failures)


def test_a_policy_that_reads_no_queue_needs_none():
    assert decide("validations: [{expression: object.kind == 'Pod'}]", NOT_GIVEN).allowed


def test_a_policy_of_a_namespace_is_confined():
    asked = "validations: [{expression: \"!('alone' in cluster.clusterQueues)\"}]"

    assert not decide(asked, known()).allowed
    assert decide(asked, known(), namespace="team-a").allowed


def test_a_policy_runs_again_where_a_later_one_chose_the_queue():
    reads = """
    inject:
      override: true
      labels: {line: {expression: string(queue.?pending.orValue(0))}}
    """
    texts = (policy(reads, "a-reads"), policy("inject: {queueName: lq}", "b-names"))
    loaded = load_policies("---\n".join(texts), "p")
    context = PolicyContext(namespaces=namespace_lookup((), {}), queues=known)

    decision = PolicySet(loaded.policies, surroundings=context).mutate(request(pod()))

    assert decision.object["metadata"]["labels"]["line"] == "1"


@pytest.mark.parametrize("read", ["queue.pending", "clusterQueue.pending", "cluster.pending"])
def test_a_decision_by_facts_is_never_remembered(read):
    changing = [
        known(),
        facts_of(snapshot(settled(*FLAVORS, queue("a", groups=[group(h100={GPU: 8})]))), BEHIND),
    ]
    loaded = load_policies(policy(f"validations: [{{expression: {read} > 0}}]"), "p")
    context = PolicyContext(namespaces=namespace_lookup((), {}), queues=lambda: changing[0])
    recalled = []
    remembering = Remembering(
        PolicySet(loaded.policies, surroundings=context),
        "validate",
        recalled=lambda: recalled.append(1),
    )

    assert [remembering.decide(request(queued())).allowed for _ in range(2)] == [True, True]
    del changing[0]
    assert not remembering.decide(request(queued())).allowed
    assert recalled == []


# --- of the webhooks' snapshot


def counted(of, **more):
    """The snapshot that webhooks get: all is counted, two rows of each queue, and the rules."""
    rules = QueueRules(local_queues=(LocalQueueRule("team-a", "empty", "a"),))
    taker = SnapshotTaker(of, Jobs(), most=2)
    full = finished(taker.take(FullSnapshot(1_000.0, of.revision, version="v", rules=rules), ()))
    return read(finished(write(full, Naming(), **more)), "test")


def test_counts_give_the_same_totals_as_rows():
    line = [
        workload(
            f"ns/job-{n}", "a", gpus(n + 9), at=n + 3, local_queue=f"ns/{n % 2}", priority=n % 3
        )
        for n in range(9)
    ]
    of = settled(*FLAVORS, queue("a", groups=[group(h100={GPU: 8})]), *line)

    for asked in ("pending", f"requested['{GPU}']", "oldestPending"):
        for expression in (f"queue.{asked}", f"clusterQueue.{asked}"):
            by_row, by_count = (
                value(expression, facts_of(each), namespace="ns", name="1")
                for each in (snapshot(of), counted(of))
            )
            assert by_row == by_count
    assert value("size(clusterQueue.waiting)", facts_of(counted(of)), namespace="ns", name="1") == 2


@settings(deadline=None, max_examples=60)
@given(scenarios(world, 180))
def test_in_any_cluster_counts_and_rows_agree_and_sums_are_those_of_the_queues(things):
    of = made(things)
    until_settled(of)
    by_row, by_count = (
        facts_of(each).variables("", "")["cluster"] for each in (snapshot(of), counted(of))
    )

    for name, each in by_row["clusterQueues"].items():
        other = by_count["clusterQueues"][name]
        for fact in ("pending", "holding", "requested", "used", "available"):
            assert each[fact] == other[fact]
        assert ("oldestPending" in each) is ("oldestPending" in other) is (each["pending"] > 0)
    for whole in (by_row, by_count):
        queues = whole["clusterQueues"].values()
        assert whole["pending"] == sum(each["pending"] for each in queues)
        assert whole["used"] == total_of(*(each["used"] for each in queues))
        tops = [
            each for each in whole["cohorts"].values() if each["parent"] not in whole["cohorts"]
        ]
        alone = [each for each in queues if each["cohort"] not in whole["cohorts"]]
        for fact in ("nominal", "used", "requested"):
            assert whole[fact] == total_of(*(each[fact] for each in (*tops, *alone)))


def test_what_has_no_limit_is_idle_without_one():
    endless = group(h100={GPU: UNLIMITED}), group(spot={"cpu": 4})
    of = settled(
        *FLAVORS,
        queue("a", "c", groups=endless),
        queue("b", "c", groups=[group(h100={GPU: 8})]),
        running("team-a/runs", "a", flavor="h100", **{GPU: 7}),
    )
    facts = facts_of(snapshot(of))

    assert value(f"cluster.cohorts['c'].idle['{GPU}']", facts) == UNLIMITED
    assert value("cluster.cohorts['c'].idle['cpu']", facts) == 4


def test_its_rules_say_which_local_queues_there_are():
    facts = facts_of(counted(settled(*FLAVORS, queue("a", groups=[group(h100={GPU: 8})]))))

    assert value("queue.pending", facts, name="empty") == 0
    assert value("has(queue.name)", facts, name="none") is False


def test_a_namespace_learns_of_it_what_it_may():
    of = settled(
        *FLAVORS,
        queue("a", groups=[group(h100={GPU: 8})]),
        workload("team-b/job-late", "a", gpus(30), local_queue="team-b/lq"),
    )
    facts = facts_of(counted(of, other_teams="hidden")).within("team-a")

    assert "hides" in fails("clusterQueue.waiting[0].namespace", facts, name="empty")
    assert value("clusterQueue.waiting[0].priority", facts, name="empty") == 0


def test_a_count_of_a_queue_that_is_not_there_is_damage():
    lost = ClusterQueueUse(name="a", lines=(PendingLine(0, 3, 1, 1, 5, {GPU: 1}),))
    found = QueueSnapshot(format=FORMAT, taken_at=1.0, cluster_queues=(lost,))

    with pytest.raises(SnapshotError, match="a row of ClusterQueue a names an entry"):
        read(msgspec.json.encode(found), "live")
    facts = LatestFacts(At(found))
    facts.take(found)
    assert "their snapshot is damaged" in fails("cluster.pending", facts.current())


# --- the latest


class At:
    """A snapshot in use, until another is."""

    def __init__(self, found):
        self.found = found

    def current(self):
        return self.found


def test_the_latest_facts_are_those_of_the_snapshot_in_use_and_made_once():
    first, second = some(), some(others="hidden")
    latest = At(None)
    facts = LatestFacts(latest)
    assert value("cluster.known", facts.current()) is False

    latest.found = first
    made = facts.current()
    facts.take(second)
    assert facts.current() is made

    latest.found = second
    assert facts.current() is facts.current() is not made
    latest.found = None
    assert "no current snapshot" in fails("cluster.pending", facts.current())
