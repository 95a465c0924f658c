"""Answers of the webhooks: policies first, then jobs; and hostile bodies."""

import json
import re

import pytest
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from policyd.admission.handler import AdmissionHandler
from policyd.admission.jobs import JobAdmission
from policyd.testing import FakeClock
from tests.webhooks.conftest import figures
from tests.webhooks.reviews import POD, patch, patched, policy, queued, response, review
from webhooks.app import create_app
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.observe.observing import Verdicts
from webhooks.observe.review_log import EACH
from webhooks.policies.in_force import PoliciesInForce

JSON = {"content-type": "application/json"}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "team-a"},
    "spec": {"template": POD["spec"]},
}


def client_with(folder, *policies, clock=None, prepare=None):
    """Build the webhooks, without a socket, on these policies."""
    (folder / "policies.yaml").write_text("\n---\n".join(map(json.dumps, policies)))
    metrics = WebhookMetrics(CollectorRegistry())
    loaded = PoliciesInForce(namespaces=without_cluster, metrics=metrics)
    loaded.read_files([folder])
    jobs = JobAdmission()
    app = create_app(
        {
            f"/{phase}": AdmissionHandler(
                phase=phase,
                policies=policies,
                jobs=jobs,
                prepare=prepare,
                observe=Verdicts(metrics, phase, clock=clock).take,
            ).answer
            for phase, policies in (("mutate", loaded.mutate), ("validate", loaded.validate))
        },
        metrics=metrics,
        clock=clock,
    )
    client = TestClient(app)
    client.registry = metrics.registry
    return client


def ask(client, path, body):
    answer = client.post(path, content=body, headers=JSON)
    assert answer.status_code == 200, answer.text
    return answer.content


def test_a_queue_name_that_a_policy_gives_holds_the_pod(tmp_path):
    client = client_with(tmp_path, policy("queue", inject={"queueName": "gpus"}))

    held = patched(ask(client, "/mutate", review()))

    assert held["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert held["spec"]["schedulingGates"]


def test_so_does_one_that_is_remembered(tmp_path):
    client = client_with(tmp_path, policy("queue", inject={"queueName": "gpus"}))
    pods = [{**POD, "metadata": {**POD["metadata"], "name": f"train-{n}"}} for n in range(3)]

    patches = [patch(ask(client, "/mutate", review(pod))) for pod in pods]

    assert {"/spec/schedulingGates"} < {operation["path"] for operation in patches[0]}
    assert patches == [patches[0]] * len(pods)
    metrics = figures(client.registry)
    assert 'policyd_recalled_decisions_total{phase="mutate"} 2.0' in metrics


def test_a_policy_that_has_nothing_to_do_with_queues_holds_nothing(tmp_path):
    client = client_with(tmp_path, policy("class", inject={"priorityClassName": "low"}))

    operations = patch(ask(client, "/mutate", review()))

    assert operations == [{"op": "add", "path": "/spec/priorityClassName", "value": "low"}]


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        pytest.param(review(queued(JOB), resource="jobs"), ["/spec/suspend"], id="job"),
        pytest.param(review(JOB, resource="jobs"), [], id="job-without-queue"),
        pytest.param(
            review(queued(JOB), resource="jobs", operation="UPDATE", old=queued(JOB)),
            [],
            id="job-that-runs-already",
        ),
    ],
)
def test_only_new_jobs_in_a_queue_are_held(tmp_path, body, paths):
    operations = patch(ask(client_with(tmp_path), "/mutate", body))

    assert [operation["path"] for operation in operations] == paths


def test_refusals_of_the_queue_and_of_policies_come_in_one_answer(tmp_path):
    refusing = policy("no", validations=[{"expression": "false", "message": "never"}])
    client = client_with(tmp_path, refusing)

    answered = response(ask(client, "/validate", review(queued(POD, queue="Bad_Name"))))

    lines = answered["status"]["message"].splitlines()
    assert lines[0] == "no: never"
    assert lines[1].startswith("queue: metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value")


def test_objects_that_cannot_be_changed_any_more_are_not_validated_as_jobs(tmp_path):
    body = review(queued(POD, queue="Bad_Name"), operation="DELETE")

    assert response(ask(client_with(tmp_path), "/validate", body))["allowed"]


def test_a_review_that_takes_too_long_is_refused_in_time(tmp_path):
    slow = policy("slow", validations=[{"expression": "true"}])
    late = FakeClock()

    async def arrive_late(_request):
        await late.skip(8.5)

    answered = response(
        ask(client_with(tmp_path, slow, clock=late, prepare=arrive_late), "/validate", review())
    )

    assert not answered["allowed"]
    assert "slow: cannot be evaluated: not decided in time" in answered["status"]["message"]


def policy_results(text):
    """Return the counts of policies in a text of metrics, by policy, phase and result."""
    found = re.findall(
        r'policyd_policy_results_total{phase="(.*)",policy="(.*)",result="(.*)"} (.*)', text
    )
    return {(policy, phase, result): float(n) for phase, policy, result, n in found}


def test_policies_that_change_or_warn_are_counted(tmp_path):
    client = client_with(
        tmp_path,
        policy("label", inject={"labels": {"a": "b"}}),
        policy("wary", enforcement="Warn", validations=[{"expression": "false"}]),
    )

    ask(client, "/mutate", review())
    ask(client, "/validate", review())

    assert policy_results(figures(client.registry)) == {
        ("label", "mutate", "matched"): 1,
        ("label", "mutate", "changed"): 1,
        ("wary", "validate", "matched"): 1,
        ("wary", "validate", "warned"): 1,
    }


def test_verdicts_and_failures_are_counted(tmp_path, capsys):
    client = client_with(
        tmp_path,
        policy("no", validations=[{"expression": "object.metadata.name != 'train'"}]),
        policy(
            "fragile", validations=[{"expression": "object.spec.none == 1"}], failurePolicy="Ignore"
        ),
    )
    other = {**POD, "metadata": {"name": "other", "namespace": "team-a"}}

    ask(client, "/validate", review())
    ask(client, "/validate", review(other))

    counted = figures(client.registry)
    assert 'policyd_reviews_total{outcome="denied",path="/validate"} 1.0' in counted
    assert 'policyd_reviews_total{outcome="allowed",path="/validate"} 1.0' in counted
    assert 'policyd_policy_failures_total{outcome="ignored"} 2.0' in counted
    assert policy_results(counted) == {
        ("fragile", "validate", "error"): 2,
        ("fragile", "validate", "matched"): 2,
        ("no", "validate", "matched"): 2,
        ("no", "validate", "refused"): 1,
    }
    assert "policyd_policies 2.0" in counted
    output = capsys.readouterr()
    assert "policy_failed" in output.out + output.err


def envelope(**changes):
    document = json.loads(review())
    document["request"] |= changes
    return document


def without(*path):
    document = json.loads(review())
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return document


def nested(levels):
    text = json.dumps(envelope(object="HERE"))
    return text.replace('"HERE"', '{"a":' * levels + "1" + "}" * levels)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        pytest.param(b"", "not an AdmissionReview", id="empty"),
        pytest.param(b"no json", "not an AdmissionReview", id="no-json"),
        pytest.param(b"[]", "not an AdmissionReview", id="a-list"),
        pytest.param(b"\xff\xfe", "not an AdmissionReview", id="no-utf-8"),
        pytest.param(json.dumps(POD), "not an AdmissionReview", id="a-pod"),
        pytest.param(json.dumps(without("request")), "`request`", id="no-request"),
        pytest.param(json.dumps(without("request", "uid")), "`uid`", id="no-uid"),
        pytest.param(json.dumps(envelope(uid="")), "no uid", id="empty-uid"),
        pytest.param(json.dumps(envelope(uid=7)), "Expected `str`", id="uid-is-a-number"),
    ],
)
@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_an_invalid_review_is_refused_and_the_next_one_is_answered(tmp_path, path, body, sentence):
    policies = [policy("any", validations=[{"expression": "true"}], inject={"queueName": "a"})]
    client = client_with(tmp_path, *policies)

    answer = client.post(path, content=body, headers=JSON)

    assert answer.status_code == 400
    message = answer.json()["message"]
    assert sentence in message
    assert "\n" not in message
    assert "Traceback" not in answer.text
    assert response(ask(client, path, review()))["uid"] == "u-1"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        pytest.param(json.dumps(envelope(operation="STEAL")), "'STEAL'", id="unknown-operation"),
        pytest.param(
            json.dumps(json.loads(review()) | {"apiVersion": "admission.k8s.io/v1beta1"}),
            "v1beta1",
            id="version-of-long-ago",
        ),
        pytest.param(
            json.dumps(json.loads(review()) | {"kind": "TokenReview"}),
            "TokenReview",
            id="another-kind-of-review",
        ),
        pytest.param(nested(1_000), "nested too deep", id="1000-levels"),
        pytest.param(nested(100_000), "nested too deep", id="100000-levels"),
        pytest.param(review()[:-10], "not an AdmissionReview", id="cut-short"),
        pytest.param(review() + b"{}", "not an AdmissionReview", id="something-after-it"),
    ],
)
@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_a_review_that_cannot_be_read_is_answered_by_its_uid(tmp_path, path, body, sentence):
    policies = [policy("any", validations=[{"expression": "true"}], inject={"queueName": "a"})]
    client = client_with(tmp_path, *policies)

    answer = response(ask(client, path, body))

    assert (answer["uid"], answer["allowed"]) == ("u-1", False)
    assert sentence in answer["status"]["message"]
    assert response(ask(client, path, review()))["uid"] == "u-1"


HOSTILE = {
    "containers-are-null": {"spec": {"containers": None}},
    "containers-are-a-text": {"spec": {"containers": "none"}},
    "labels-are-a-list": {"metadata": {"labels": ["a"]}, "spec": {}},
    "no-metadata": {"metadata": None},
    "numbers-beyond-int64": {"spec": {"containers": [{"name": 2**70}]}},
    "spec-is-a-number": {"spec": 1},
    "containers-are-texts": {"spec": {"containers": ["main"]}},
    "resources-are-a-list": {"spec": {"containers": [{"resources": [1]}]}},
    "resources-of-the-pod-are-a-text": {"spec": {"resources": "many"}},
    "gates-are-texts": {"spec": {"schedulingGates": ["a"]}},
    "a-label-is-a-number": {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "a", "b": 1}}},
    "annotations-are-a-text": {
        "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "a"}, "annotations": "all"}
    },
    "owners-are-a-number": {
        "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "a"}, "ownerReferences": 1}
    },
    "requests-are-wide": {"spec": {"containers": [{"resources": {"requests": {"cpu": 2**70}}}]}},
    "500-levels": {"spec": json.loads('{"a":' * 500 + "1" + "}" * 500)},
    "wide": {"spec": {"containers": [{"name": f"c{n}"} for n in range(5_000)]}},
}


DEMANDING = policy(
    "any",
    validations=[{"expression": "object.spec.containers.all(c, c.name != '')"}],
    inject={
        "queueName": "a",
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "nodeSelector": {"pool": {"expression": "string(object.spec.containers[0].name)"}},
    },
)


def in_a_queue(shape):
    label = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "a"}}}
    return {"apiVersion": "v1", "kind": "Pod"} | label | shape


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("shape", [pytest.param(o, id=name) for name, o in HOSTILE.items()])
def test_policies_decide_on_hostile_objects_and_the_next_one_is_answered(tmp_path, shape, path):
    client = client_with(tmp_path, DEMANDING)

    answered = response(ask(client, path, json.dumps(envelope(object=in_a_queue(shape)))))

    assert isinstance(answered["allowed"], bool)
    assert response(ask(client, path, review()))["uid"] == "u-1"


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("shape", [pytest.param(o, id=name) for name, o in HOSTILE.items()])
def test_hostile_jobs_are_refused_with_a_reason_or_pass(tmp_path, shape, path):
    client = client_with(tmp_path)

    answered = response(ask(client, path, json.dumps(envelope(object=in_a_queue(shape)))))

    assert answered["allowed"] or answered["status"]["message"].startswith("queue: ")
    assert response(ask(client, path, review()))["uid"] == "u-1"


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_a_pod_that_is_none_gets_the_place(tmp_path, path):
    body = json.dumps(envelope(object=in_a_queue(HOSTILE["containers-are-texts"])))

    answered = response(ask(client_with(tmp_path), path, body))

    assert answered["status"]["message"] == (
        "queue: the object is not a Pod: Expected `object`, got `str` - at `$.spec.containers[0]`"
    )


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param({**POD, "kind": "Gadget", "apiVersion": "example.com/v1"}, id="unknown-kind"),
        pytest.param({"kind": "Pod", "apiVersion": "v1", "metadata": {}}, id="bare"),
    ],
)
def test_unknown_objects_pass(tmp_path, obj):
    body = review(obj, resource="gadgets")

    assert response(ask(client_with(tmp_path), "/validate", body))["allowed"]


def test_repeated_refusals_do_not_fill_the_log(tmp_path):
    broken = policy("broken", validations=[{"expression": "object.nothing == 1"}])
    refusing = policy("no", validations=[{"expression": "false"}])
    client = client_with(tmp_path, refusing, broken, clock=FakeClock())

    with capture_logs() as log:
        for _ in range(100):
            ask(client, "/validate", review())

    for event in ("request_denied", "policy_failed"):
        assert sum(line["event"] == event for line in log) == EACH
    assert 'policyd_reviews_total{outcome="denied",path="/validate"} 100.0' in figures(
        client.registry
    )


def test_unevaluable_requests_do_not_fill_the_log(tmp_path):
    client = client_with(tmp_path, clock=FakeClock())

    with capture_logs() as log:
        for _ in range(100):
            ask(client, "/validate", b'{"request": {"uid": "u-1", "object": ')

    assert sum(line["event"] == "review_unevaluated" for line in log) == EACH
