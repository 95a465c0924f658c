"""Params of the API server: watched while a policy is about their kind, and no longer."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from policyd.api.admission import parse_review
from policyd.kube.errors import ForbiddenError, UnreachableError
from policyd.kube.pace import Pace
from policyd.kube.resources import CONFIG_MAPS, Resource
from policyd.testing import FakeClient
from tests.webhooks.policies import stored as stored_as
from tests.webhooks.reviews import policy, review
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import without_cluster
from webhooks.policies import params as module
from webhooks.policies.in_force import PoliciesInForce
from webhooks.policies.params import MOST_NAMESPACES, Params

pytestmark = pytest.mark.anyio

LIMITS = Resource("example.com", "v1", "limits", "Limit")
WORDS = Resource("example.com", "v1", "words", "Word", namespaced=False)
REF = {"name": "word", "namespace": "rules", "parameterNotFoundAction": "Deny"}


async def soon(_seconds):
    await asyncio.sleep(0.002)


class Case:
    """Policies over an API server in memory."""

    def __init__(self, client):
        self.client = client
        self.params = Params(client, pace=Pace(sleep=soon))
        self.policies = PoliciesInForce(
            namespaces=without_cluster,
            metrics=WebhookMetrics(CollectorRegistry()),
            params=self.params,
        )

    @property
    def answer(self):
        return messages(self.policies.validate(parse_review(review())))

    async def answers(self, expected):
        async with asyncio.timeout(4):  # the loop turns meanwhile: there is nothing to be told by
            while self.answer != expected:  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    async def evaluate(self, *expected):
        """Wait until these are said, each by one policy, in the order of their names."""
        async with asyncio.timeout(4):
            while True:
                denials = self.policies.validate(parse_review(review())).denials
                if len(denials) == len(expected) and all(
                    words in denial.message for words, denial in zip(expected, denials, strict=True)
                ):
                    return
                await asyncio.sleep(0.002)

    def add(self, name="says", kind="ConfigMap", version="v1", ref=REF, **more):
        self.policies.take(stored(name, kind, version, ref, **more))


def messages(decision):
    return decision.denials[0].message if decision.denials else "allowed"


def stored(name, kind, version="v1", ref=REF, **more):
    word = "string(params.data.word)" if kind == "ConfigMap" else "string(params.word)"
    spec = {
        "paramKind": {"apiVersion": version, "kind": kind},
        "validations": [{"expression": "false", "messageExpression": word}],
    }
    spec |= {"paramRef": ref} if ref else {}
    return stored_as(name, policy(name, **spec, **more)["spec"])


def binding(name, ref=REF, policy_name="says", **more):
    spec = {"policyName": policy_name, "paramRef": ref, **more}
    return stored_as(name, spec, kind="PolicyBinding")


def config_map(word, name="word", namespace="rules", **labels):
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"metadata": metadata, "data": {"word": word}}


@asynccontextmanager
async def running(client):
    case = Case(client)
    watching = asyncio.create_task(case.params.run(lambda: case.policies.loaded))
    yield case
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def create_word(client, word, **more):
    await client.create(CONFIG_MAPS, config_map(word, **more), into=dict)


async def test_params_come_change_and_go_without_a_restart():
    client = FakeClient()
    await create_word(client, "first")

    async with running(client) as case:
        case.add()
        await case.answers("first")

        await client.patch(
            CONFIG_MAPS, "word", {"data": {"word": "second"}}, namespace="rules", into=dict
        )
        await case.answers("second")

        await client.delete(CONFIG_MAPS, "word", namespace="rules")
        none = "no params found for policy binding with `Deny` parameterNotFoundAction"
        await case.answers(f"cannot be evaluated: {none}")


@pytest.mark.parametrize(
    ("resource", "obj", "ref"),
    [
        pytest.param(
            LIMITS,
            {"metadata": {"name": "word", "namespace": "rules"}, "word": "found"},
            REF,
            id="in-namespaces",
        ),
        pytest.param(
            WORDS, {"metadata": {"name": "word"}, "word": "found"}, {"name": "word"}, id="in-none"
        ),
    ],
)
async def test_custom_kinds_are_found_once_they_are_served(resource, obj, ref):
    client = FakeClient()

    async with running(client) as case:
        case.add(kind=resource.kind, version="example.com/v1", ref=ref)
        name = f"example.com/v1, Kind={resource.kind}"
        await case.answers(
            f"cannot be evaluated: paramKind kind `{name}` not yet synced to use for admission:"
            " the server could not find the requested resource"
        )

        client.resources.append(resource)
        await client.create(resource, obj, into=dict)
        await case.answers("found")


@pytest.mark.parametrize(
    ("failure_policy", "answer"),
    [
        pytest.param(
            "Fail",
            "cannot be evaluated: paramKind kind `v1, Kind=ConfigMap` not yet synced to use for"
            " admission: configmaps is forbidden",
            id="fail",
        ),
        pytest.param("Ignore", "allowed", id="ignore"),
    ],
)
async def test_params_that_may_not_be_read_leave_it_to_the_failure_policy(failure_policy, answer):
    client = FakeClient()
    client.fail(ForbiddenError("configmaps is forbidden"), plural="configmaps", times=100_000)

    async with running(client) as case:
        case.add(failurePolicy=failure_policy)
        await case.answers(answer)


async def test_the_last_known_state_counts_while_the_api_server_is_unreachable():
    client = FakeClient()
    await create_word(client, "known")

    async with running(client) as case:
        case.add()
        await case.answers("known")
        client.fail(UnreachableError("no route"), plural="configmaps", times=100_000)
        client.end_watches()
        for _ in range(20):
            await asyncio.sleep(0)

        assert case.answer == "known"


async def test_a_kind_that_no_policy_names_any_more_is_not_watched():
    client = FakeClient()
    await create_word(client, "known")

    async with running(client) as case:
        case.add()
        await case.answers("known")
        case.policies.drop(stored("says", "ConfigMap").key)
        await asyncio.sleep(0)
        client.fail(UnreachableError("no route"), verb="page", plural="configmaps", times=100_000)

        case.add()

        assert "not yet synced" in case.answer
        await case.answers(
            "cannot be evaluated: paramKind kind `v1, Kind=ConfigMap` not yet synced to use for"
            " admission: no route"
        )


async def test_bindings_come_change_and_go_without_a_restart():
    client = FakeClient()
    await create_word(client, "here")
    await create_word(client, "there", name="other")

    async with running(client) as case:
        case.add(ref=None)
        first, second = binding("b"), binding("b", ref=REF | {"name": "other"})

        case.policies.take(first)
        await case.answers("here")
        case.policies.take(second)
        assert case.answer == "there"
        case.policies.take(binding("b", ref={"name": "a", "selector": {}}))
        assert case.answer == "there", "a broken edit leaves the last good one in force"
        case.policies.drop(second.key)
        assert case.answer != "there"


async def test_a_selector_picks_params_each_in_its_turn():
    client = FakeClient()
    ref = {"selector": {"matchLabels": {"for": "all"}}, "namespace": "rules"}
    for name in ("b", "a", "c"):
        labels = {} if name == "c" else {"for": "all"}
        await create_word(client, name, name=name, **labels)

    async with running(client) as case:
        case.add(ref=ref)
        await case.answers("a")

        decision = case.policies.validate(parse_review(review()))

    assert [denial.message for denial in decision.denials] == ["a", "b"]


async def test_policies_of_files_have_priority_over_those_of_the_api_server(tmp_path):
    client = FakeClient()
    await create_word(client, "served")
    await create_word(client, "other", name="other")
    named = {"apiVersion": "v1", "kind": "ConfigMap"}
    (tmp_path / "a.yaml").write_text(json.dumps(named | config_map("filed")))

    async with running(client) as case:
        case.policies.read_files([tmp_path])
        case.add()
        await case.answers("filed")
        case.add("two", ref=REF | {"name": "other"})
        case.policies.drop(stored("says", "ConfigMap").key)
        await case.answers("other")


async def test_the_start_does_not_wait_for_params_for_ever():
    client = FakeClient()
    client.fail(ForbiddenError("configmaps is forbidden"), plural="configmaps", times=100_000)

    async with running(client) as case, asyncio.timeout(10):
        case.add()
        await case.params.first_lists()

        assert "configmaps is forbidden" in case.answer


class Noting(FakeClient):
    """Notes which namespaces are listed."""

    listed: tuple = ()

    async def page(self, resource, *, into, **options):
        self.listed += (options.get("namespace", ""),)
        return await super().page(resource, into=into, **options)


@pytest.mark.parametrize(
    ("refs", "listed"),
    [
        pytest.param([REF], {"rules"}, id="one-namespace"),
        pytest.param([REF, REF | {"namespace": "more"}], {"more", "rules"}, id="two"),
        pytest.param([{"name": "word"}], {""}, id="of-the-request"),
        pytest.param(
            [REF | {"namespace": f"n{n}"} for n in range(MOST_NAMESPACES + 1)], {""}, id="too-many"
        ),
    ],
)
async def test_only_the_namespaces_that_bindings_name_are_watched(refs, listed):
    client = Noting()

    async with running(client) as case:
        for number, ref in enumerate(refs):
            case.add(f"p{number}", ref=ref)
        await case.params.first_lists()

        assert set(client.listed) == listed


async def test_watched_objects_count_until_newer_ones_are_known():
    client = FakeClient()
    await create_word(client, "here")

    async with running(client) as case:
        case.add(ref=None)
        case.policies.take(binding("b"))
        await case.answers("here")
        client.fail(UnreachableError("gone"), verb="page", times=50)
        others = [
            binding(f"b{n}", ref={"name": "word", "namespace": f"n{n}"}, policy_name="what")
            for n in range(MOST_NAMESPACES + 1)
        ]
        for other in others:
            case.policies.take(other)
        case.add("what", ref=None)
        for _ in range(10):
            await asyncio.sleep(0.002)

        assert case.answer == "here"


async def test_params_that_there_is_no_room_for_are_missed_by_those_who_need_them(monkeypatch):
    monkeypatch.setattr(module, "MOST_PARAMS", 2)
    client = FakeClient()
    await create_word(client, "first", name="a")
    await create_word(client, "second", name="b")
    await create_word(client, "third")
    await create_word(client, "fourth", name="word", namespace="other")
    missed = "`word` is left out, as `rules` has more ConfigMap than are kept (2 objects or 16 MiB)"

    async with running(client) as case:
        case.add()
        case.add("elsewhere", ref={**REF, "namespace": "other"})
        await case.evaluate("fourth", missed)

        await client.delete(CONFIG_MAPS, "a", namespace="rules")
        change = {"data": {"word": "again"}}
        await client.patch(CONFIG_MAPS, "word", change, namespace="rules", into=dict)
        await case.evaluate("fourth", "again")
