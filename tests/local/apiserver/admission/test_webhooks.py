import asyncio
import ssl

import pytest
from aiohttp import web

from policyd.certificates import Authority
from policyd.local.apiserver import ApiServer, ServerOptions
from tests.local.apiserver.client import CONFIG_MAPS, NAMESPACES, PODS, pod, session_with
from tests.local.apiserver.hooks import (
    MUTATING,
    VALIDATING,
    configuration,
    patching,
    serving_hooks,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def hooks():
    async with serving_hooks() as hooks:
        yield hooks


async def register(api, path, *webhooks, name="test"):
    await api.create(path, configuration(*webhooks, name=name))


async def test_a_mutating_webhook_changes_what_is_stored(api, hooks):
    hooks.answers["/a"] = patching(("add", "/spec/nodeSelector", {"gpu": "yes"}))
    await register(api, MUTATING, hooks.webhook("/a"))

    created = await api.create(PODS, pod())

    assert created["spec"]["nodeSelector"] == {"gpu": "yes"}
    assert (await api.get(f"{PODS}/one")).body == created


async def test_the_review_says_everything_of_the_request(api, hooks):
    hooks.answers["/a"] = {}
    await register(api, MUTATING, hooks.webhook("/a"))

    await api.create(PODS, pod(), dryRun="All", fieldManager="tester")

    ((_, request),) = hooks.asked
    assert (
        request["kind"] == request["requestKind"] == {"group": "", "version": "v1", "kind": "Pod"}
    )
    assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert (request["namespace"], request["name"]) == ("default", "one")
    assert (request["operation"], request["dryRun"]) == ("CREATE", True)
    assert request["userInfo"]["username"] == "kubernetes-admin"
    assert request["userInfo"]["groups"] == ["system:masters", "system:authenticated"]
    assert request["options"] == {
        "kind": "CreateOptions",
        "apiVersion": "meta.k8s.io/v1",
        "fieldManager": "tester",
        "dryRun": ["All"],
    }
    assert request["oldObject"] is None
    assert request["object"]["spec"]["schedulerName"] == "default-scheduler"
    assert "uid" not in request["object"]["metadata"]


async def test_validating_webhooks_see_what_mutation_left(api, hooks):
    hooks.answers["/a"] = patching(("add", "/spec/nodeSelector", {"gpu": "yes"}))
    hooks.answers["/b"] = {}
    await register(api, VALIDATING, hooks.webhook("/b"))
    await register(api, MUTATING, hooks.webhook("/a"))

    await api.create(PODS, pod())

    path, request = hooks.asked[1]
    assert path == "/b"
    assert request["object"]["spec"]["nodeSelector"] == {"gpu": "yes"}
    assert len(request["object"]["metadata"]["uid"]) == 36


async def test_deletions_show_the_old_object(api, hooks):
    await api.create(PODS, pod())
    hooks.answers["/a"] = {}
    webhook = hooks.webhook("/a")
    webhook["rules"][0]["operations"] = ["DELETE"]
    await register(api, VALIDATING, webhook)

    await api.delete(f"{PODS}/one")

    ((_, request),) = hooks.asked
    assert request["object"] is None
    assert request["oldObject"]["metadata"]["name"] == "one"
    assert request["options"]["kind"] == "DeleteOptions"


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        pytest.param(
            {"message": "not today", "code": 403, "reason": "Forbidden"},
            403,
            'admission webhook "a.example.com" denied the request: not today',
            id="with-code-and-reason",
        ),
        pytest.param(
            {"message": "not today"},
            400,
            'admission webhook "a.example.com" denied the request: not today',
            id="with-a-message-alone",
        ),
        pytest.param(
            None,
            400,
            'admission webhook "a.example.com" denied the request without explanation',
            id="without-a-word",
        ),
    ],
)
async def test_a_denial_is_passed_on(api, hooks, status, code, message):
    hooks.answers["/a"] = {"allowed": False} | ({"status": status} if status else {})
    await register(api, VALIDATING, hooks.webhook("/a"))

    reply = await api.send("POST", PODS, pod())

    assert (reply.code, reply.message) == (code, message)
    assert reply.body.get("reason") == (status or {}).get("reason")
    assert (await api.get(f"{PODS}/one")).code == 404


async def test_warnings_reach_the_client(api, hooks):
    hooks.answers["/a"] = {"warnings": ["mind the gap"]}
    await register(api, VALIDATING, hooks.webhook("/a"))

    reply = await api.send("POST", PODS, pod())

    assert reply.headers["Warning"] == '299 - "mind the gap"'


async def test_webhooks_run_by_the_names_of_their_configurations(api, hooks):
    for path in ("/a", "/b", "/c"):
        hooks.answers[path] = {}
    await register(api, MUTATING, hooks.webhook("/c"), name="2")
    await register(api, MUTATING, hooks.webhook("/b"), hooks.webhook("/a"), name="1")

    await api.create(PODS, pod())

    assert hooks.paths() == ["/b", "/a", "/c"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param("IfNeeded", ["/a", "/b", "/a"], id="if-needed"),
        pytest.param("Never", ["/a", "/b"], id="never"),
    ],
)
async def test_a_policy_before_a_change_runs_once_more(api, hooks, policy, expected):
    hooks.answers["/a"] = {}
    hooks.answers["/b"] = patching(("add", "/spec/nodeSelector", {"gpu": "yes"}))
    await register(
        api, MUTATING, hooks.webhook("/a", reinvocationPolicy=policy), hooks.webhook("/b")
    )

    await api.create(PODS, pod())

    assert hooks.paths() == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param("Never", ["/a"], id="never"),
        pytest.param("IfNeeded", ["/a", "/a"], id="if-needed"),
    ],
)
async def test_built_in_admission_runs_again_after_changes_of_webhooks(
    api, hooks, policy, expected
):
    def give_class(request):
        spec = request["object"]["spec"]
        if "priorityClassName" in spec:
            return {}
        return patching(
            ("remove", "/spec/priority", None), ("add", "/spec/priorityClassName", "high")
        )

    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await api.create(classes, {"metadata": {"name": "high"}, "value": 7})
    hooks.answers["/a"] = give_class
    await register(api, MUTATING, hooks.webhook("/a", reinvocationPolicy=policy))

    created = await api.create(PODS, pod())

    assert created["spec"]["priority"] == 7
    assert hooks.paths() == expected


async def test_two_that_disagree_are_asked_twice_and_no_more(api, hooks):
    def flip(request):
        found = request["object"]["spec"].get("nodeSelector", {}).get("x", "0")
        return patching(("add", "/spec/nodeSelector", {"x": str(int(found) + 1)}))

    hooks.answers["/a"] = hooks.answers["/b"] = flip
    webhooks = [hooks.webhook(path, reinvocationPolicy="IfNeeded") for path in ("/a", "/b")]
    await register(api, MUTATING, *webhooks)

    created = await api.create(PODS, pod())

    assert hooks.paths() == ["/a", "/b", "/a"]
    assert created["spec"]["nodeSelector"] == {"x": "3"}


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        pytest.param({}, True, id="no-selectors"),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}},
            True,
            id="namespace-selected",
        ),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"tier": "research"}}},
            False,
            id="namespace-not-selected",
        ),
        pytest.param(
            {"objectSelector": {"matchLabels": {"app": "web"}}}, False, id="object-not-selected"
        ),
        pytest.param(
            {"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'one'"}]},
            True,
            id="condition-holds",
        ),
        pytest.param(
            {
                "matchConditions": [
                    {"name": "broken", "expression": "object.nothing.here == 1"},
                    {"name": "c", "expression": "request.operation == 'UPDATE'"},
                ]
            },
            False,
            id="condition-does-not-hold",
        ),
    ],
)
async def test_selectors_and_conditions_decide_who_is_asked(api, hooks, more, asked):
    hooks.answers["/a"] = {}
    await register(api, VALIDATING, hooks.webhook("/a", **more))

    await api.create(PODS, pod())

    assert bool(hooks.asked) is asked


async def test_other_kinds_and_operations_are_not_asked_about(api, hooks):
    await api.create(PODS, pod())
    await register(api, VALIDATING, hooks.webhook("/a"))

    await api.patch(f"{PODS}/one", {"metadata": {"labels": {"a": "b"}}})
    await api.create(NAMESPACES, {"metadata": {"name": "team"}})
    await api.create(CONFIG_MAPS, {"metadata": {"name": "x"}})

    assert hooks.asked == []


async def test_a_condition_that_fails_denies_requests(api, hooks):
    broken = [{"name": "broken", "expression": "object.nothing.here == 1"}]
    await register(api, VALIDATING, hooks.webhook("/a", matchConditions=broken))

    reply = await api.send("POST", PODS, pod())

    assert reply.code == 403
    assert reply.message.startswith('pods "one" is forbidden: ')
    assert "no such key: nothing" in reply.message


async def test_a_condition_that_fails_is_passed_over_when_failing_open(api, hooks):
    broken = [{"name": "broken", "expression": "object.nothing.here == 1"}]
    webhook = hooks.webhook("/a", matchConditions=broken, failurePolicy="Ignore")
    await register(api, VALIDATING, webhook)

    await api.create(PODS, pod())

    assert hooks.asked == []


FAILURES = [
    pytest.param(
        lambda _request: web.Response(status=500, text="oh no"),
        'an error on the server ("oh no") has prevented the request from succeeding',
        id="server-error",
    ),
    pytest.param(
        lambda _request: web.Response(status=404),
        "the server could not find the requested resource",
        id="no-such-path",
    ),
    pytest.param(
        lambda _request: web.Response(text="nonsense"),
        "received invalid webhook response: JSON is malformed",
        id="no-json",
    ),
    pytest.param(
        {"uid": "other"},
        'received invalid webhook response: expected response.uid="',
        id="other-uid",
    ),
    pytest.param(
        {"patch": "W10="},
        "received invalid webhook response: webhook returned response.patch but not"
        " response.patchType",
        id="patch-without-type",
    ),
    pytest.param(
        lambda _request: web.json_response(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        ),
        "Webhook response was absent",
        id="no-response",
    ),
]


@pytest.mark.parametrize(("answer", "why"), FAILURES)
async def test_a_webhook_that_fails_denies_requests(api, hooks, answer, why):
    hooks.answers["/a"] = answer
    await register(api, MUTATING, hooks.webhook("/a"))

    reply = await api.send("POST", PODS, pod())

    prefix = 'Internal error occurred: failed calling webhook "a.example.com": '
    assert (reply.code, reply.body["reason"]) == (500, "InternalError")
    assert reply.message.startswith(prefix)
    assert why in reply.message


@pytest.mark.parametrize(("answer", "why"), FAILURES)
async def test_a_webhook_that_fails_open_is_passed_over(api, hooks, answer, why):
    hooks.answers["/a"] = answer
    await register(api, MUTATING, hooks.webhook("/a", failurePolicy="Ignore"))

    await api.create(PODS, pod())

    assert hooks.paths() == ["/a"]


async def test_nobody_there_denies_requests(api, hooks):
    webhook = hooks.webhook("/a", clientConfig=hooks.client("/a", port=1))
    await register(api, VALIDATING, webhook)

    reply = await api.send("POST", PODS, pod())

    assert reply.message == (
        'Internal error occurred: failed calling webhook "a.example.com": failed to call webhook:'
        ' Post "https://127.0.0.1:1/a?timeout=10s": dial tcp 127.0.0.1:1: connect: connection'
        " refused"
    )


async def test_a_stranger_is_not_trusted(api, hooks):
    stranger = Authority.create(now=hooks.authority.not_after - 86400 * 3650, name="stranger")
    hooks.authority, trusted = stranger, hooks.authority
    webhook = hooks.webhook("/a")
    hooks.authority = trusted
    await register(api, VALIDATING, webhook)

    reply = await api.send("POST", PODS, pod())

    assert "failed to verify certificate" in reply.message
    assert hooks.asked == []


async def test_a_slow_webhook_is_not_waited_for(api, hooks):
    release = asyncio.Event()
    hooks.answers["/a"] = lambda _request: release.wait()
    await register(api, VALIDATING, hooks.webhook("/a", timeoutSeconds=1))

    reply = await api.send("POST", PODS, pod())
    release.set()

    assert reply.message.endswith('?timeout=1s": context deadline exceeded')


async def test_a_patch_that_does_not_fit_is_an_error(api, hooks):
    hooks.answers["/a"] = patching(("remove", "/spec/nothing", None))
    await register(api, MUTATING, hooks.webhook("/a", failurePolicy="Ignore"))

    reply = await api.send("POST", PODS, pod())

    assert (reply.code, reply.body["reason"]) == (500, "InternalError")


async def test_a_patch_cannot_move_an_object(api, hooks):
    hooks.answers["/a"] = patching(("add", "/metadata/colour", "red"), ("add", "/spec/x", 1))
    await register(api, MUTATING, hooks.webhook("/a"))

    created = await api.create(PODS, pod())

    assert "x" not in created["spec"]
    assert "colour" not in created["metadata"]


async def test_webhooks_are_not_asked_about_webhooks(api, hooks):
    webhook = hooks.webhook("/a")
    webhook["rules"][0] |= {"apiGroups": ["*"], "resources": ["*"], "operations": ["*"]}
    await register(api, VALIDATING, webhook)

    await api.delete(f"{VALIDATING}/test")

    assert hooks.asked == []


async def test_a_webhook_behind_a_service_is_found_by_whoever_knows_services(hooks):
    hooks.answers["/a"] = {}
    known = {("tools", "hook", 443): ("127.0.0.1", hooks.port)}
    server = ApiServer(ServerOptions(resolve_service=lambda *service: known.get(service)))
    await server.start()
    service = {"namespace": "tools", "name": "hook", "path": "/a"}
    bundle = hooks.client("/a")["caBundle"]
    async with session_with(server) as api:
        client = {"service": service, "caBundle": bundle}
        await register(api, VALIDATING, hooks.webhook("/a", clientConfig=client))

        await api.create(PODS, pod())

    await server.stop()
    assert hooks.paths() == ["/a"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        pytest.param(
            {"name": "short"},
            "should be a domain with at least three segments separated by dots",
            id="name",
        ),
        pytest.param(
            {"sideEffects": "Some"}, "must specify one of None, NoneOnDryRun", id="effects"
        ),
        pytest.param({"timeoutSeconds": 31}, "must be between 1 and 30 seconds", id="timeout"),
        pytest.param(
            {"matchConditions": [{"name": "c", "expression": "object."}]},
            "compilation failed: ERROR: <input>:1:",
            id="condition",
        ),
        pytest.param(
            {"clientConfig": {}}, "exactly one of url or service is required", id="client"
        ),
    ],
)
async def test_a_configuration_that_makes_no_sense_is_invalid(api, hooks, more, message):
    reply = await api.send("POST", VALIDATING, configuration(hooks.webhook("/a", **more)))

    assert (reply.code, message in reply.message) == (422, True), reply.message


async def test_creating_a_namespace_is_judged_by_its_own_labels(api, hooks):
    hooks.answers["/a"] = {}
    webhook = hooks.webhook("/a", namespaceSelector={"matchLabels": {"tier": "research"}})
    webhook["rules"][0]["resources"] = ["namespaces"]
    await register(api, VALIDATING, webhook)

    for name, tier in (("one", "research"), ("two", "office")):
        await api.create(NAMESPACES, {"metadata": {"name": name, "labels": {"tier": tier}}})

    assert [(r["name"], r["namespace"]) for _, r in hooks.asked] == [("one", "one")]


async def test_subresources_are_shown_with_their_own_kind(api, hooks):
    hooks.answers["/a"] = {}
    webhook = hooks.webhook("/a")
    webhook["rules"][0]["resources"] = ["pods/binding"]
    await register(api, VALIDATING, webhook)
    await api.create(PODS, pod())

    target = {"kind": "Node", "name": "n1"}
    binding = {"metadata": {"name": "one"}, "target": target}
    await api.send("POST", f"{PODS}/one/binding", binding)

    ((_, request),) = hooks.asked
    assert (request["kind"]["kind"], request["subResource"]) == ("Binding", "binding")
    assert request["object"]["target"]["name"] == "n1"


async def test_the_authorities_of_the_system_are_not_read_for_a_webhook_with_its_own(
    api, hooks, monkeypatch
):
    read = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: read.append(True))
    hooks.answers["/a"] = {}
    await register(api, VALIDATING, hooks.webhook("/a"))

    await api.create(PODS, pod())

    assert hooks.paths() == ["/a"]
    assert read == []
