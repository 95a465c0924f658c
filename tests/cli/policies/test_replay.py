"""`policyd replay`: recorded requests, and what changed policies would answer."""

import base64
import json

import pytest
from click.testing import CliRunner

from policyd.cli import main

POLICY = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: few-gpus}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: ["*"], operations: [CREATE], resources: [pods]}
  validations: [{expression: pod.gpus() <= 4, message: too many}]
"""
STRICTER = POLICY.replace("<= 4", "<= 1")
LABELLING = POLICY.replace("  validations:", "  inject: {labels: {team: a}}\n  validations:")


def review(gpus, **more):
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    request = {
        "uid": f"u-{gpus}",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "name": f"p{gpus}",
        "namespace": "team-a",
        "userInfo": {"username": "someone"},
        "object": {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{gpus}", "namespace": "team-a"},
            "spec": {"containers": [container]},
        },
    }
    head = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return {**head, "request": request, **more}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "old.yaml").write_text(POLICY)
    (tmp_path / "new.yaml").write_text(STRICTER)
    lines = [json.dumps(review(gpus)) for gpus in (0, 2, 8)]
    (tmp_path / "reviews.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def run(folder, *arguments):
    recorded = folder / "reviews.jsonl"
    return CliRunner().invoke(main, ["replay", str(recorded), *map(str, arguments)])


def test_newly_refused_objects_are_reported(folder):
    result = run(folder, "-p", folder / "new.yaml", "--against", folder / "old.yaml")

    assert result.exit_code == 1
    assert result.stdout == (
        "CREATE Pod team-a/p2: denied now\n"
        "  + denied: few-gpus: too many\n"
        "2 of 3 reviews answered as before, 1 denied now\n"
    )


def test_no_longer_refused_objects_are_reported(folder):
    result = run(folder, "-p", folder / "old.yaml", "--against", folder / "new.yaml")

    assert "CREATE Pod team-a/p2: allowed now\n  - denied: few-gpus: too many" in result.stdout


def test_another_object_is_an_answer_otherwise(folder):
    (folder / "new.yaml").write_text(LABELLING)

    result = run(folder, "-p", folder / "new.yaml", "--against", folder / "old.yaml")

    assert 'add /metadata/labels = {"team": "a"}' in result.stdout
    assert "1 of 3 reviews answered as before, 2 answered differently" in result.stdout


def test_the_same_policies_answer_the_same(folder):
    result = run(folder, "-p", folder / "old.yaml", "--against", folder / "old.yaml")

    assert (result.exit_code, result.stdout) == (0, "3 of 3 reviews answered as before\n")


def test_as_json_it_is_for_machines(folder):
    result = run(folder, "-p", folder / "new.yaml", "--against", folder / "old.yaml", "-o", "json")

    answer = json.loads(result.stdout)
    (one,) = answer["differences"]
    assert answer["counts"] == {"same": 2, "denied": 1}
    assert (one["request"], one["uid"]) == ("CREATE Pod team-a/p2", "u-2")
    assert one["after"] == {"allowed": False, "messages": ["denied: few-gpus: too many"]}


def test_the_recorded_response_counts_where_no_old_policies_are_named(folder):
    patch = [{"op": "add", "path": "/metadata/labels", "value": {"team": "a"}}]
    encoded = base64.b64encode(json.dumps(patch).encode()).decode()
    reviews = [
        review(0, response={"uid": "u-0", "allowed": True, "patch": encoded}),
        review(8, response={"uid": "u-8", "allowed": False}),
    ]
    (folder / "reviews.jsonl").write_text("\n".join(map(json.dumps, reviews)))
    (folder / "new.yaml").write_text(LABELLING)

    result = run(folder, "-p", folder / "new.yaml")

    assert (result.exit_code, result.stdout) == (0, "2 of 2 reviews answered as before\n")


def test_a_file_may_hold_one_review_on_many_lines(folder):
    (folder / "recorded").mkdir()
    (folder / "recorded" / "one.json").write_text(json.dumps(review(2), indent=2))
    arguments = ["replay", folder / "recorded", "-p", folder / "new.yaml"]

    result = CliRunner().invoke(main, [str(argument) for argument in arguments])

    assert "0 of 1 review answered as before, 1 denied now" in result.stdout


NO_PATCH = {**review(0), "response": {"allowed": True, "patch": "…"}}


@pytest.mark.parametrize(
    ("first", "message"),
    [
        pytest.param({"kind": "Pod"}, "not an AdmissionReview", id="another-kind"),
        pytest.param(NO_PATCH, "string argument should contain only ASCII", id="no-patch"),
    ],
)
def test_an_invalid_review_is_a_finding_and_does_not_affect_others(folder, first, message):
    (folder / "reviews.jsonl").write_text(f"{json.dumps(first)}\n{json.dumps(review(0))}\n")

    result = run(folder, "-p", folder / "old.yaml")

    assert result.exit_code == 2
    assert f"reviews.jsonl: review 1: error: {message}" in result.stderr
    assert "hint: a recording is JSON" in result.stderr
    assert "1 of 1 review answered as before" in result.stdout


def test_namespaces_are_seen_with_their_labels(folder):
    (folder / "new.yaml").write_text(
        STRICTER.replace(
            "    resourceRules:",
            "    namespaceSelector: {matchLabels: {tier: gold}}\n    resourceRules:",
        )
    )
    given = ["-p", folder / "new.yaml", "--against", folder / "old.yaml"]

    without, labelled = (
        json.loads(run(folder, *given, "-o", "json", *more).stdout)["counts"]
        for more in ([], ["--namespace-labels", "tier=gold"])
    )

    assert without == {"same": 2, "allowed": 1}
    assert labelled == {"same": 2, "denied": 1}


def test_a_recording_without_reviews_is_a_wrong_call(folder):
    (folder / "reviews.jsonl").write_text("")

    assert run(folder, "-p", folder / "old.yaml").exit_code == 2


QUEUED = {"kueue.x-k8s.io/queue-name": "main"}


def queued(**more):
    """Return a review of a new Job that names a queue."""
    made = review(1, **more)
    request = made["request"]
    request["kind"] = {"group": "batch", "version": "v1", "kind": "Job"}
    request["resource"] = {"group": "batch", "version": "v1", "resource": "jobs"}
    metadata = {"name": "train", "namespace": "team-a", "labels": QUEUED}
    spec = {"template": {"spec": request["object"]["spec"]}}
    request["object"] = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec
    }  # fmt: skip
    request["name"] = "train"
    return made


def test_a_warning_counts_what_the_rules_of_queues_concern(folder):
    reviews = [queued(), review(1)]
    (folder / "reviews.jsonl").write_text("\n".join(map(json.dumps, reviews)))

    result = run(folder, "-p", folder / "new.yaml")

    assert (result.exit_code, result.stdout) == (0, "2 of 2 reviews answered as before\n")
    assert "the rules of queues concern 1 request, such as this one, and are left out" in (
        result.stderr
    )
    assert "CREATE Job team-a/train: warning: " in result.stderr


def test_the_rules_of_queues_can_be_applied(folder):
    patch = [{"op": "add", "path": "/spec/suspend", "value": True}]
    encoded = base64.b64encode(json.dumps(patch).encode()).decode()
    reviews = [queued(response={"uid": "u-1", "allowed": True, "patch": encoded})]
    (folder / "reviews.jsonl").write_text(json.dumps(reviews[0]))

    without = run(folder, "-p", folder / "new.yaml")
    result = run(folder, "-p", folder / "new.yaml", "--queue")

    assert "remove /spec/suspend" in without.stdout
    assert (result.exit_code, result.stdout) == (0, "1 of 1 review answered as before\n")
    assert result.stderr == ""


def test_queues_say_nothing_about_what_policies_refuse(folder):
    of_jobs = STRICTER.replace('[""]', '["*"]').replace("pods]", "jobs]")
    (folder / "new.yaml").write_text(of_jobs.replace("pod.gpus() <= 1", '"false"'))
    (folder / "reviews.jsonl").write_text(json.dumps(queued()))

    result = run(folder, "-p", folder / "new.yaml")

    assert "denied now" in result.stdout
    assert "rules of queues" not in result.stderr
