"""Reports: a result for each policy and outcome, however many objects there are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.offline.report import (
    APIS,
    FORGOTTEN_SECONDS,
    MOST_NAMED,
    MOST_RESULTS,
    ReportBook,
    ReportSubject,
    ResultCount,
    ResultKey,
    admitted,
    same_report,
    scanned,
)
from policyd.engine.offline.requests import namespace_lookup
from policyd.engine.offline.scan import Listed, PolicyScan, ScannedObject, resources_to_list
from tests.engine.reviews import job, pod, policies, policy

OPEN, WORKING_GROUP = APIS
NOW = 1_800_000_000.0
FAIL = ResultKey("p", "v", "fail", "Audit")
POD = ReportSubject("v1", "Pod", "team-a", "a")


def found(obj, plural="pods"):
    group, _, version = obj["apiVersion"].rpartition("/")
    metadata = obj["metadata"]
    return ScannedObject(
        resource=Listed(group, version, plural),
        kind=obj["kind"],
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        value=obj,
    )


def look(text, obj=None, plural="pods"):
    """Scan an object, and say what was found: policy, validation, result, enforcement, count."""
    scan = PolicyScan(policies(text))
    scan.evaluate(found(obj or pod(), plural))
    return {
        (namespace, key.policy, key.validation, key.result, key.enforcement): row.count
        for namespace, rows in scan.book.namespaces.items()
        for key, row in rows.items()
    }


def demand(expression, more=""):
    return policy(
        f'validations: [{{expression: "{expression}", name: v, message: no good}}]\n{more}'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(demand("true"), {("team-a", "p", "", "pass", ""): 1}, id="passes"),
        pytest.param(demand("false"), {("team-a", "p", "v", "fail", "Deny"): 1}, id="fails"),
        pytest.param(
            demand("false", "enforcement: Audit"),
            {("team-a", "p", "v", "fail", "Audit"): 1},
            id="fails-without-being-refused",
        ),
        pytest.param(
            demand("object.spec.nothing == 1"),
            {("team-a", "p", "", "error", "Deny"): 1},
            id="cannot-be-evaluated",
        ),
        pytest.param(
            demand("object.spec.nothing == 1", "failurePolicy: Ignore"),
            {("team-a", "p", "", "error", ""): 1},
            id="cannot-be-evaluated-and-is-ignored",
        ),
        pytest.param(
            demand("request.userInfo.username == 'root'"),
            {("", "p", "", "skip", ""): 0},
            id="asks-who-it-was",
        ),
        pytest.param(
            demand("authorizer.group('').resource('pods').check('get').allowed()"),
            {("", "p", "", "skip", ""): 0},
            id="asks-what-users-may-do",
        ),
        pytest.param(
            demand("cluster.pending > 0"), {("", "p", "", "skip", ""): 0}, id="reads-the-queues"
        ),
        pytest.param(
            demand("false", "matchConditions: [{name: a, expression: 'false'}]"),
            {},
            id="does-not-match",
        ),
        pytest.param(
            demand("false", "rollout: [{enforcement: Warn}]"),
            {("team-a", "p", "v", "fail", "Warn"): 1},
            id="is-being-rolled-out",
        ),
        pytest.param(policy("inject: {queueName: a}"), {}, id="demands-nothing"),
    ],
)
def test_existing_objects_are_evaluated(text, expected):
    assert look(text) == expected


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        pytest.param("[CREATE]", 1, id="creation"),
        pytest.param("[UPDATE]", 1, id="update-as-it-is"),
        pytest.param("[DELETE]", 0, id="deletion-only"),
        pytest.param("['*']", 1, id="any"),
    ],
)
def test_the_evaluated_policies_depend_on_the_operations(operations, expected):
    text = demand("request.operation == 'CREATE' || oldObject == object").replace(
        'operations: ["*"]', f"operations: {operations}"
    )

    assert sum(look(text).values()) == expected


def test_exempt_objects_are_reported_as_skipped():
    lifted = "exceptions: [{namespaces: [team-a], reason: agreed, owner: ada}]"
    scan = PolicyScan(policies(demand("false", lifted)))
    scan.evaluate(found(pod()))

    ((key, row),) = scan.book.namespaces["team-a"].items()
    assert (key, row.count) == (ResultKey("p", "", "skip", ""), 1)
    assert row.message == "lifted: agreed (ada)"


def test_a_policy_that_is_lifted_in_part_is_reported_as_what_it_says():
    lifted = "exceptions: [{namespaces: [team-a], reason: agreed, validations: [v]}]"

    assert look(demand("false", lifted)) == {("team-a", "p", "", "pass", ""): 1}


def test_a_shadow_is_reported_beside_the_policy():
    shadow = policy('shadowOf: p\nvalidations: [{expression: "false", name: v}]', name="p2")
    scan = PolicyScan(policies(demand("true"), shadow))

    scan.evaluate(found(pod()))

    assert set(scan.book.namespaces["team-a"]) == {
        ResultKey("p", "", "pass", ""),
        ResultKey("p2", "v", "fail", "", "p"),
    }


def test_a_result_counts_all_objects_and_names_the_first():
    scan = PolicyScan(policies(demand("false")))

    for number in range(50):
        scan.evaluate(found(pod(name=f"pod-{number}")))

    [row] = scan.book.namespaces["team-a"].values()
    assert row.count == 50
    assert [subject.name for subject in row.subjects] == [f"pod-{n}" for n in range(MOST_NAMED)]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        pytest.param({"resources": "[pods]"}, [("", "v1", "pods")], id="one"),
        pytest.param({"resources": "[pods/exec]"}, [], id="subresource"),
        pytest.param(
            {"groups": "[batch]", "versions": "['*']", "resources": "[jobs, cronjobs]"},
            [("batch", "v1", "cronjobs"), ("batch", "v1", "jobs")],
            id="any-version",
        ),
        pytest.param(
            {"groups": "[example.com]", "versions": "[v1]", "resources": "[widgets]"},
            [("example.com", "v1", "widgets")],
            id="custom-and-spelled-out",
        ),
        pytest.param(
            {"groups": "[example.com]", "versions": "['*']", "resources": "[widgets]"},
            [],
            id="custom-of-a-version-that-nobody-knows",
        ),
        pytest.param(
            {"groups": "[jobset.x-k8s.io]", "versions": "['*']", "resources": "[jobsets]"},
            [("jobset.x-k8s.io", "v1alpha2", "jobsets")],
            id="custom-and-known",
        ),
        pytest.param(
            {"groups": "[batch]", "versions": "[v1beta1]", "resources": "[cronjobs]"},
            [("batch", "v1", "cronjobs")],
            id="version-that-is-served-no-more",
        ),
        pytest.param({"resources": "[events]"}, [("", "v1", "events")], id="events-if-named"),
    ],
)
def test_only_what_policies_name_is_listed(rule, expected):
    fields = {"groups": "['']", "versions": "[v1]"} | rule
    old = 'apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]'
    new = (
        f"apiGroups: {fields['groups']}, apiVersions: {fields['versions']}, "
        f"operations: [CREATE], resources: {fields['resources']}"
    )
    asked = policies(demand("true").replace(old, new))
    known = [Listed("jobset.x-k8s.io", "v1alpha2", "jobsets")]

    assert resources_to_list(asked.policies, known) == expected


def test_a_rule_for_everything_lists_no_events():
    listed = {each.plural for each in resources_to_list(policies(demand("true")).policies)}

    assert {"pods", "jobs", "namespaces"} <= listed
    assert listed.isdisjoint({"events", "leases", "tokenreviews", "bindings"})


def rows(**counts):
    book = ReportBook()
    for policy_, count in counts.items():
        for number in range(count):
            subject = POD._replace(name=f"{policy_}-{number}")
            book.note("team-a", FAIL._replace(policy=policy_), message="no", subject=subject)
    return book.namespaces["team-a"]


def test_a_report_in_the_words_of_the_working_group():
    report = scanned(WORKING_GROUP, "team-a", rows(p=1), None, now=NOW)

    assert report == {
        "apiVersion": "wgpolicyk8s.io/v1alpha2",
        "kind": "PolicyReport",
        "metadata": {
            "name": "policyd",
            "namespace": "team-a",
            "labels": {"app.kubernetes.io/managed-by": "policyd"},
        },
        "scope": {"apiVersion": "v1", "kind": "Namespace", "name": "team-a"},
        "summary": {"pass": 0, "fail": 1, "warn": 0, "error": 0, "skip": 0},
        "results": [
            {
                "source": "policyd",
                "policy": "p",
                "rule": "v",
                "result": "fail",
                "message": "no",
                "resources": [
                    {"apiVersion": "v1", "kind": "Pod", "namespace": "team-a", "name": "p-0"}
                ],
                "properties": {"count": "1", "enforcement": "Audit"},
                "timestamp": {"seconds": int(NOW), "nanos": 0},
            }
        ],
    }


def test_a_report_of_the_cluster_belongs_to_no_namespace():
    report = scanned(OPEN, "", rows(p=1), None, now=NOW)

    assert (report["apiVersion"], report["kind"]) == ("openreports.io/v1alpha1", "ClusterReport")
    assert "namespace" not in report["metadata"]
    assert "scope" not in report


def test_a_result_keeps_the_moment_since_when_it_is_so():
    first = scanned(OPEN, "team-a", rows(p=1, q=1), None, now=NOW)

    again = scanned(OPEN, "team-a", rows(p=1, q=1), first, now=NOW + 60)
    more = scanned(OPEN, "team-a", rows(p=1, q=2), first, now=NOW + 60)

    assert same_report(first, again)
    assert [r["timestamp"]["seconds"] - NOW for r in more["results"]] == [0, 60]
    assert not same_report(first, more)


def test_admitted_violations_are_counted_beside_found_ones():
    report = scanned(OPEN, "team-a", rows(p=1), None, now=NOW)

    report = admitted(
        OPEN, "team-a", {FAIL: ResultCount(count=3, message="late")}, report, now=NOW + 1
    )
    report = admitted(
        OPEN, "team-a", {FAIL: ResultCount(count=2, message="later")}, report, now=NOW + 2
    )

    [result] = report["results"]
    assert result["properties"] == {"count": "1", "enforcement": "Audit", "admitted": "5"}
    assert result["message"] == "later"
    assert report["summary"]["fail"] == 1


@pytest.mark.parametrize(
    ("later", "kept"),
    [
        pytest.param(60, True, id="soon"),
        pytest.param(FORGOTTEN_SECONDS + 60, False, id="a-day-later"),
    ],
)
def test_admitted_violations_are_dropped_after_a_day(later, kept):
    report = admitted(OPEN, "team-a", {FAIL: ResultCount(count=3, message="no")}, None, now=NOW)

    report = scanned(OPEN, "team-a", {}, report, now=NOW + later)

    assert (report is not None) == kept


def test_a_report_with_nothing_in_it_is_none():
    assert scanned(OPEN, "team-a", {}, None, now=NOW) is None


def test_a_report_is_replaced_only_as_it_was_read():
    old = {"metadata": {"resourceVersion": "7"}}

    assert scanned(OPEN, "a", rows(p=1), old, now=NOW)["metadata"]["resourceVersion"] == "7"


def test_a_report_has_an_end_and_keeps_what_is_wrong():
    many = {
        ResultKey(f"p{n:04}", "", "pass", ""): ResultCount(count=1)
        for n in range(MOST_RESULTS + 50)
    }
    failed = {ResultKey("z", "v", "fail", "Deny"): ResultCount(count=1)}

    report = scanned(OPEN, "team-a", many | failed, None, now=NOW)

    assert len(report["results"]) == MOST_RESULTS
    assert report["results"][-1]["policy"] == "z"
    assert report["summary"]["pass"] == MOST_RESULTS + 50


def test_a_job_and_a_pod_are_both_looked_at():
    found_of_jobs = look(demand("true"), job(), "jobs")

    assert found_of_jobs == {("team-a", "p", "", "pass", ""): 1}


VALIDATING_POLICY = """
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: p}
spec:
  %s
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations: [{expression: "false"}]
"""

CLUSTER_POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  %s
  rules:
  - name: r
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {cel: {expressions: [{expression: "false", message: not so}]}}
"""


@pytest.mark.parametrize(
    ("text", "switched", "scanned_"),
    [
        pytest.param(VALIDATING_POLICY, "", True, id="validating"),
        pytest.param(
            VALIDATING_POLICY,
            "evaluation: {background: {enabled: false}}",
            False,
            id="validating-off",
        ),
        pytest.param(CLUSTER_POLICY, "", True, id="cluster"),
        pytest.param(CLUSTER_POLICY, "background: false", False, id="cluster-off"),
    ],
)
def test_kyverno_s_policies_say_whether_they_are_for_what_exists(text, switched, scanned_):
    loaded = load_policies(text % switched, "p.yaml", EVERY_FORMAT)
    lookup = namespace_lookup((), {})

    assert bool(PolicyScan(PolicySet(loaded.policies, namespaces=lookup)).policies) == scanned_


def test_results_of_others_in_a_report_are_not_ours():
    ours = scanned(OPEN, "team-a", rows(p=1), None, now=NOW)
    [result] = ours["results"]
    foreign = [{"policy": "x"}, "nonsense", {**result, "source": "other"}, {"source": "policyd"}]
    spoilt = {**result, "policy": "q", "properties": {"count": "many", "admitted": "-1"}}

    report = admitted(
        OPEN,
        "team-a",
        {FAIL: ResultCount(count=1, message="no")},
        {**ours, "results": [*foreign, result, spoilt]},
        now=NOW,
    )

    assert [each["policy"] for each in report["results"]] == ["p", "q"]
    assert report["summary"]["fail"] == 1


KEYS = st.builds(
    ResultKey,
    st.sampled_from(["p", "q"]),
    st.sampled_from(["", "v", "w"]),
    st.sampled_from(["pass", "fail", "error", "skip"]),
    st.sampled_from(["", "Warn", "Deny"]),
    st.sampled_from(["", "old"]),
)
ROWS = st.dictionaries(
    KEYS, st.builds(ResultCount, st.integers(0, 9), st.text(max_size=3), st.just([POD])), max_size=6
)


@given(ROWS, ROWS)
def test_reports_say_the_same_again_and_lose_no_counts(found_, let_through):
    first = scanned(OPEN, "team-a", found_, None, now=NOW)
    counted = admitted(OPEN, "team-a", let_through, first, now=NOW + 1)
    again = scanned(OPEN, "team-a", found_, counted, now=NOW + 2)

    assert same_report(first, scanned(OPEN, "team-a", found_, first, now=NOW + 2))
    assert counts_of(again, "admitted") == {
        key: row.count for key, row in let_through.items() if row.count
    }
    assert counts_of(again, "count") == {key: row.count for key, row in found_.items() if row.count}
    assert again == scanned(OPEN, "team-a", found_, again, now=NOW + 3)


def counts_of(report, name):
    """Return the counts of a report that are more than nothing, by what they are about."""
    counts = {
        ResultKey(
            each["policy"],
            each.get("rule", ""),
            each["result"],
            each["properties"].get("enforcement", ""),
            each["properties"].get("shadowOf", ""),
        ): int(each["properties"].get(name, "0"))
        for each in (report or {}).get("results", ())
    }
    return {key: count for key, count in counts.items() if count}
