"""What users may do is asked of the API server, within the time that a review has."""

import asyncio
import json

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from policyd.admission.handler import AdmissionHandler
from policyd.api.admission import parse_review
from policyd.kube.errors import ForbiddenError
from policyd.kube.pace import Pace
from policyd.kube.resources import SUBJECT_ACCESS_REVIEWS
from policyd.testing import FakeClient, FakeClock
from tests.webhooks.outside import AskingPolicies
from tests.webhooks.reviews import policy, response, review
from webhooks.external_data.lookups import MOST_QUESTIONS, ExternalLookups
from webhooks.external_data.permissions import FRESH_SECONDS, Permissions
from webhooks.external_data.reads import ClusterObjects
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies.in_force import PoliciesInForce

pytestmark = pytest.mark.anyio

MAY = "authorizer.group('').resource('pods').namespace('ml').check('{}').allowed()"


class CountingClient(FakeClient):
    """An API server that lets everybody do some verbs, and notes what it is asked."""

    def __init__(self, *verbs):
        super().__init__()
        self.verbs = verbs
        self.specs = []
        self.let = asyncio.Event()
        self.let.set()

    async def create(self, resource, body, *, into, **options):
        assert resource == SUBJECT_ACCESS_REVIEWS
        self.specs.append(body["spec"])
        self._fail_if_set("create", resource)
        await self.let.wait()
        about = body["spec"].get("resourceAttributes") or body["spec"]["nonResourceAttributes"]
        allowed = about["verb"] in self.verbs
        status = {"allowed": allowed, "reason": f"{about['verb']} is {allowed}"}
        return msgspec.convert({"status": status}, into)


class Case:
    """Policies over such an API server."""

    def __init__(self, folder, client, *expressions, **more):
        validations = [
            {"name": f"v{n}", "expression": text, "message": f"no {n}"}
            for n, text in enumerate(expressions)
        ]
        (folder / "a.yaml").write_text(json.dumps(policy("asks", validations=validations, **more)))
        self.clock = FakeClock()
        lookups = ExternalLookups(clock=self.clock)
        permissions = Permissions(client, lookups)
        metrics = WebhookMetrics(CollectorRegistry())
        policies = PoliciesInForce(
            namespaces=without_cluster, metrics=metrics, authorize=permissions.authorize
        )
        policies.read_files([folder])
        self.out_of_time = False
        self._answer = AdmissionHandler(
            phase="validate", policies=policies.validate, with_external_data=lookups.decide
        ).answer

    async def refusal(self, body=None):
        answer = await self._answer(body or review(), lambda: self.out_of_time)
        reply = response(answer)
        return reply["status"]["message"] if not reply["allowed"] else ""


@pytest.mark.parametrize(
    ("verbs", "refusal"),
    [
        pytest.param(["create"], "", id="allowed"),
        pytest.param(["get"], "asks: no 0", id="denied"),
    ],
)
async def test_the_api_server_says_what_a_user_may_do(tmp_path, verbs, refusal):
    client = CountingClient(*verbs)

    assert await Case(tmp_path, client, MAY.format("create")).refusal() == refusal
    assert client.specs == [
        {
            "user": "alice",
            "groups": ["system:authenticated"],
            "resourceAttributes": {
                "verb": "create",
                "resource": "pods",
                "namespace": "ml",
                "version": "*",
            },
        }
    ]


@pytest.mark.parametrize(
    ("expression", "spec"),
    [
        pytest.param(
            "authorizer.path('/healthz').check('get').allowed()",
            {"user": "alice", "nonResourceAttributes": {"path": "/healthz", "verb": "get"}},
            id="path",
        ),
        pytest.param(
            "authorizer.requestResource.check('get').allowed()",
            {
                "user": "alice",
                "resourceAttributes": {
                    "verb": "get",
                    "resource": "pods",
                    "namespace": "team-a",
                    "name": "train",
                    "version": "*",
                },
            },
            id="the-request-itself",
        ),
        pytest.param(
            "authorizer.serviceAccount('ml', 'bot').group('apps').resource('deployments')"
            ".subresource('scale').labelSelector('a=b').fieldSelector('c=d').check('get').allowed()",
            {
                "user": "system:serviceaccount:ml:bot",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:ml"],
                "resourceAttributes": {
                    "verb": "get",
                    "group": "apps",
                    "resource": "deployments",
                    "subresource": "scale",
                    "version": "*",
                    "labelSelector": {"rawSelector": "a=b"},
                    "fieldSelector": {"rawSelector": "c=d"},
                },
            },
            id="a-service-account",
        ),
    ],
)
async def test_questions_are_asked_in_the_api_servers_words(tmp_path, expression, spec):
    client = CountingClient("get")

    assert await Case(tmp_path, client, expression).refusal() == ""
    [asked] = client.specs
    assert asked == {"groups": ["system:authenticated"]} | spec


async def test_combined_questions_are_sent_at_once(tmp_path):
    client = CountingClient("b")
    client.let.clear()
    case = Case(tmp_path, client, *(MAY.format(verb) for verb in "abc"))

    asking = asyncio.create_task(case.refusal())
    while len(client.specs) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    client.let.set()

    assert await asking == "asks: no 0\nasks: no 2"


async def test_a_question_that_depends_on_an_answer_is_asked_in_its_turn(tmp_path):
    client = CountingClient("get")
    chain = " && ".join(MAY.format(verb) for verb in ("get", "list"))

    assert await Case(tmp_path, client, chain).refusal() == "asks: no 0"
    assert [spec["resourceAttributes"]["verb"] for spec in client.specs] == ["get", "list"]


async def test_many_reviews_ask_once_and_again_when_the_answer_is_old(tmp_path):
    client = CountingClient("get")
    case = Case(tmp_path, client, MAY.format("get"))

    assert set(await asyncio.gather(*(case.refusal() for _ in range(20)))) == {""}
    assert len(client.specs) == 1

    client.verbs = ()
    await case.clock.advance(FRESH_SECONDS)
    assert await case.refusal() == "asks: no 0"


@pytest.mark.parametrize(
    ("failure_policy", "refusal"),
    [pytest.param("Fail", True, id="fail"), pytest.param("Ignore", False, id="ignore")],
)
async def test_without_an_answer_the_failure_policy_decides(tmp_path, failure_policy, refusal):
    client = CountingClient("get")
    client.fail(ForbiddenError("subjectaccessreviews is forbidden"))
    case = Case(tmp_path, client, "!" + MAY.format("get"), failurePolicy=failure_policy)

    answer = await case.refusal()

    assert bool(answer) is refusal
    assert not refusal or "did not answer: subjectaccessreviews is forbidden" in answer
    assert await case.refusal() == "asks: no 0", "a failure is not kept"


async def test_a_review_waits_no_longer_than_its_caller(tmp_path):
    client = CountingClient("get")
    client.let.clear()
    case = Case(tmp_path, client, MAY.format("get"))

    asking = asyncio.create_task(case.refusal())
    while not client.specs:  # noqa: ASYNC110
        await asyncio.sleep(0)
    case.out_of_time = True

    assert "not decided in time" in await asking
    client.let.set()


async def test_a_review_asks_no_more_than_it_may(tmp_path):
    client = CountingClient()
    for name in "bcd":  # one policy alone has no budget for as many
        asked = [{"expression": "!" + MAY.format(f"{name}{n}")} for n in range(25)]
        (tmp_path / f"{name}.yaml").write_text(json.dumps(policy(name, validations=asked)))

    answer = await Case(tmp_path, client, "true").refusal()

    assert f"more than {MOST_QUESTIONS} external requests in one review" in answer
    assert len(client.specs) == MOST_QUESTIONS


async def test_unrequested_data_costs_no_call(tmp_path):
    client = CountingClient()

    assert await Case(tmp_path, client, "true").refusal() == ""
    assert client.specs == []
    assert parse_review(review()).user_info.username == "alice"


POST = "resource.Post('authorization.k8s.io/v1', 'subjectaccessreviews', {})"
SPEC = {"user": "bob", "resourceAttributes": {"verb": "get", "resource": "secrets"}}
ABOUT = f"dyn({json.dumps(SPEC['resourceAttributes'])})"
REVIEW = f'{{"spec": {{"user": dyn("bob"), "resourceAttributes": {ABOUT}}}}}'


def posting(folder, client):
    policies = AskingPolicies(folder)
    permissions = Permissions(client, policies.lookups)
    reads = ClusterObjects(client, [], permissions, pace=Pace())

    async def evaluate(body, field):
        return await policies.evaluate(f"{POST.replace('{}', body)}{field}", reads=reads)

    policies.ask = evaluate
    return policies


@pytest.mark.parametrize(
    ("field", "message"),
    [
        pytest.param(".status.allowed", "true", id="allowed"),
        pytest.param(".status.reason", "get is True", id="reason"),
        pytest.param(".kind", "SubjectAccessReview", id="kind"),
        pytest.param(".spec.user", "bob", id="question"),
    ],
)
async def test_a_review_that_a_policy_posts_is_answered(tmp_path, field, message):
    client = CountingClient("get")

    assert await posting(tmp_path, client).ask(REVIEW, field) == message
    assert client.specs == [SPEC]


async def test_a_posted_review_is_asked_again_after_a_moment(tmp_path):
    client = CountingClient("get")
    policies = posting(tmp_path, client)

    assert await policies.ask(REVIEW, ".status.allowed") == "true"
    client.verbs = ()
    assert await policies.ask(REVIEW, ".status.allowed") == "true"
    await policies.clock.advance(FRESH_SECONDS)
    assert await policies.ask(REVIEW, ".status.allowed") == "false"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param('{"kind": "a"}', "needs a `spec`", id="nothing"),
        pytest.param('{"spec": "a"}', "needs a `spec`", id="no-spec"),
        pytest.param('{"spec": {"a": type(1)}}', "is not JSON", id="no-json"),
    ],
)
async def test_a_review_that_asks_nothing_is_not_sent(tmp_path, body, why):
    client = CountingClient("get")

    assert why in await posting(tmp_path, client).ask(body, ".kind")
    assert client.specs == []


async def test_a_posted_review_that_is_refused_says_so(tmp_path):
    client = CountingClient("get")
    client.fail(ForbiddenError("subjectaccessreviews is forbidden"))

    answer = await posting(tmp_path, client).ask(REVIEW, ".kind")
    assert "failed to post resource: subjectaccessreviews is forbidden" in answer
