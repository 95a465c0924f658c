"""Webhooks: both servers ask the same, in the same order, and take answers the same way."""

import asyncio
import itertools
import json
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from tests.e2e.likeness.asking import blanked, create, patch, path_of, read, remove, replace
from tests.e2e.likeness.objects import config_map, job, make, pod
from tests.e2e.likeness.servers import WAIT_SECONDS
from tests.e2e.likeness.telling import raw, run_story, unlike
from tests.local.apiserver.hooks import patching, serving_hooks

pytestmark = pytest.mark.e2e

CLOSED_PORT = 1
POLL_SECONDS = 0.02

LABEL = "hooked"
"""The label of the objects that webhooks are asked about; its value is the case's name."""

MARKED = config_map("marker", metadata={"labels": {"marked": "yes"}})
MARKING = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Webhooks, and what is done under them.

    A webhook is given as its path and what differs from the usual; its answer is found by the path.
    """

    answers: dict
    story: list
    mutating: list = field(default_factory=list)
    validating: list = field(default_factory=list)


def hook(path, **more):
    return path, more


def hooked(name="web", /, metadata=None, **spec):
    labels = {LABEL: "{case}", **(metadata or {}).pop("labels", {})}
    return pod(name, metadata={"labels": labels, **(metadata or {})}, **spec)


def rule(*operations, resources=("pods",), groups=("",), **more):
    versions = {"apiGroups": list(groups), "apiVersions": ["v1"], "resources": list(resources)}
    return [{**versions, "operations": list(operations), **more}]


async def slow(_request):
    await asyncio.sleep(2)


def page(text, **more):
    return lambda _: web.Response(text=text, **more)


def condition(expression):
    return [{"name": "only", "expression": expression}]


def cached(is_known):
    """Wait until the server's cache knows a pod's labels.

    The real server tries a change on what it has in its cache, and asks again where that is old.
    """

    def until(body):
        return is_known(body["metadata"].get("labels", {}))

    return read("Pod", "web", resourceVersion="0", until=until)


CREATED = [create(hooked()), read("Pod", "web")]
DENIED = {"allowed": False}

CASES = {
    "allowed": Case(mutating=[hook("/a")], answers={"/a": {}}, story=CREATED),
    "order": Case(
        mutating=[hook("/b"), hook("/a")],
        validating=[hook("/d"), hook("/c")],
        answers={"/a": {}, "/b": {}},
        story=[create(hooked())],
    ),
    "patched": Case(
        mutating=[hook("/a"), hook("/b")],
        answers={
            "/a": patching(("add", "/metadata/labels/a", "1")),
            "/b": patching(("add", "/spec/nodeSelector", {"gpu": "yes"})),
        },
        story=CREATED,
    ),
    "reinvoked": Case(
        mutating=[hook("/a", reinvocationPolicy="IfNeeded"), hook("/b"), hook("/c")],
        answers={"/a": {}, "/b": patching(("add", "/metadata/labels/b", "1")), "/c": {}},
        story=CREATED,
    ),
    "not-reinvoked": Case(
        mutating=[hook("/a", reinvocationPolicy="IfNeeded"), hook("/b")],
        answers={"/a": patching(("add", "/metadata/labels/a", "1")), "/b": {}},
        story=CREATED,
    ),
    "priority-class": Case(
        mutating=[hook("/a")],
        answers={"/a": patching(("add", "/spec/priorityClassName", "system-node-critical"))},
        story=CREATED,
    ),
    "unknown-priority-class": Case(
        mutating=[hook("/a")],
        answers={"/a": patching(("add", "/spec/priorityClassName", "nowhere"))},
        story=CREATED,
    ),
    "defaults-of-a-patch": Case(
        mutating=[hook("/a")],
        validating=[hook("/v")],
        answers={"/a": patching(("add", "/spec/containers/-", {"name": "b", "image": "x"}))},
        story=CREATED,
    ),
    "invalid-after-a-patch": Case(
        mutating=[hook("/a")],
        answers={"/a": patching(("replace", "/spec/restartPolicy", "Sometimes"))},
        story=CREATED,
    ),
    "unreadable-after-a-patch": Case(
        mutating=[hook("/a")],
        answers={"/a": patching(("replace", "/spec/containers", "none"))},
        story=CREATED,
    ),
    "unknown-after-a-patch": Case(
        mutating=[hook("/a")],
        answers={"/a": patching(("add", "/spec/colour", "red"))},
        story=CREATED,
    ),
    "renamed-by-a-patch": Case(
        mutating=[hook("/a")],
        answers={"/a": patching(("replace", "/metadata/name", "other"))},
        story=CREATED,
    ),
    "patch-does-not-fit": Case(
        mutating=[hook("/a")],
        answers={"/a": patching(("remove", "/spec/nothing", None))},
        story=CREATED,
    ),
    "patch-of-no-type": Case(
        mutating=[hook("/a")],
        answers={"/a": {"patch": patching(("remove", "/x", None))["patch"]}},
        story=CREATED,
    ),
    "patch-that-denies": Case(
        mutating=[hook("/a")],
        answers={"/a": DENIED | patching(("add", "/metadata/labels/a", "1"))},
        story=CREATED,
    ),
    "warned": Case(
        mutating=[hook("/a")],
        validating=[hook("/v")],
        answers={
            "/a": {"warnings": ["careful", 'say "no"']},
            "/v": {"warnings": ["careful", "two\nlines", "x" * 300]},
        },
        story=CREATED,
    ),
    "denied-without-a-word": Case(mutating=[hook("/a")], answers={"/a": DENIED}, story=CREATED),
    "denied": Case(
        mutating=[hook("/a")],
        answers={"/a": DENIED | {"status": {"message": "not today", "code": 400}}},
        story=CREATED,
    ),
    "denied-with-everything": Case(
        validating=[hook("/v")],
        answers={
            "/v": DENIED
            | {
                "warnings": ["careful"],
                "status": {
                    "message": "not today",
                    "code": 422,
                    "reason": "Invalid",
                    "details": {"causes": [{"field": "spec", "message": "bad"}]},
                },
            }
        },
        story=CREATED,
    ),
    "denied-by-a-reason": Case(
        validating=[hook("/v")],
        answers={"/v": DENIED | {"status": {"reason": "too many"}}},
        story=CREATED,
    ),
    "denied-by-the-first": Case(
        mutating=[hook("/a"), hook("/b")],
        answers={"/a": DENIED | {"status": {"message": "no"}}, "/b": {}},
        story=CREATED,
    ),
    "nobody-there-fail": Case(mutating=[hook("/a", port=CLOSED_PORT)], answers={}, story=CREATED),
    "nobody-there-ignore": Case(
        mutating=[hook("/a", port=CLOSED_PORT, failurePolicy="Ignore")],
        answers={},
        story=CREATED,
    ),
    "nobody-there-to-validate": Case(
        validating=[hook("/v", port=CLOSED_PORT)], answers={}, story=CREATED
    ),
    "slow-fail": Case(mutating=[hook("/a", timeoutSeconds=1)], answers={"/a": slow}, story=CREATED),
    "slow-ignore": Case(
        validating=[hook("/v", timeoutSeconds=1, failurePolicy="Ignore")],
        answers={"/v": slow},
        story=CREATED,
    ),
    "status-500": Case(
        mutating=[hook("/a")], answers={"/a": page("oh", status=500)}, story=CREATED
    ),
    "status-404": Case(mutating=[hook("/a")], answers={"/a": page("", status=404)}, story=CREATED),
    "no-json": Case(mutating=[hook("/a")], answers={"/a": page("hello")}, story=CREATED),
    "no-review": Case(
        mutating=[hook("/a")], answers={"/a": page('{"kind": "Pod"}')}, story=CREATED
    ),
    "other-uid": Case(mutating=[hook("/a")], answers={"/a": {"uid": "x"}}, story=CREATED),
    "other-uid-ignored": Case(
        mutating=[hook("/a", failurePolicy="Ignore")], answers={"/a": {"uid": "x"}}, story=CREATED
    ),
    "condition-met": Case(
        mutating=[hook("/a", matchConditions=condition("object.metadata.name == 'web'"))],
        answers={"/a": {}},
        story=CREATED,
    ),
    "condition-not-met": Case(
        mutating=[hook("/a", matchConditions=condition("request.operation == 'DELETE'"))],
        answers={"/a": DENIED},
        story=CREATED,
    ),
    "condition-fails": Case(
        mutating=[hook("/a", matchConditions=condition("object.spec.nothing == 'x'"))],
        answers={"/a": {}},
        story=CREATED,
    ),
    "condition-fails-ignore": Case(
        validating=[
            hook(
                "/v",
                failurePolicy="Ignore",
                matchConditions=condition("object.spec.nothing == 'x'"),
            )
        ],
        answers={"/v": DENIED},
        story=CREATED,
    ),
    "updates": Case(
        mutating=[hook("/a", rules=rule("CREATE", "UPDATE", "DELETE"))],
        validating=[hook("/v", rules=rule("*"))],
        answers={"/a": {}},
        story=[
            create(hooked()),
            cached(lambda labels: LABEL in labels),
            patch("Pod", "web", {"metadata": {"labels": {"a": "b"}}}),
            cached(lambda labels: "a" in labels),
            replace("Pod", "web", lambda found: found),
            patch("Pod", "web", {"status": {"phase": "Running"}}, part="status"),
        ],
    ),
    # Not of pods, whose deletion the real server asks about twice: when it begins and when it ends.
    "deletions": Case(
        mutating=[hook("/a", rules=rule("DELETE", resources=("configmaps",)))],
        validating=[hook("/v", rules=rule("DELETE", resources=("configmaps",)))],
        answers={"/a": {}},
        story=[
            create(config_map(metadata={"labels": {LABEL: "{case}"}})),
            remove("ConfigMap", "web", dryRun="All"),
            remove("ConfigMap", "web", {"propagationPolicy": "Background"}),
            create(config_map(metadata={"labels": {LABEL: "{case}"}})),
            remove("ConfigMap"),
        ],
    ),
    "deletion-denied": Case(
        validating=[hook("/v", rules=rule("DELETE", resources=("configmaps",)))],
        answers={"/v": DENIED | {"status": {"message": "keep it"}}},
        story=[
            create(config_map(metadata={"labels": {LABEL: "{case}"}})),
            remove("ConfigMap", "web"),
            remove("ConfigMap"),
            read("ConfigMap", "web"),
        ],
    ),
    "subresources": Case(
        validating=[
            hook("/v", rules=rule("*", resources=("pods/status",))),
            hook("/w", rules=rule("*", resources=("pods/*",)), objectSelector={}),
        ],
        answers={},
        story=[
            create(hooked()),
            patch("Pod", "web", {"status": {"phase": "Running"}}, part="status"),
            create(
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": "web"},
                    "target": {"kind": "Node", "name": "n"},
                },
                part="binding",
                name="web",
            ),
        ],
    ),
    "dry-run": Case(
        mutating=[hook("/a", sideEffects="NoneOnDryRun")],
        answers={"/a": {}},
        story=[create(hooked(), dryRun="All"), read("Pod", "web")],
    ),
    "generated-name": Case(
        mutating=[hook("/a")],
        validating=[hook("/v")],
        answers={"/a": {}},
        story=[create(hooked("", metadata={"generateName": "gen-"}))],
    ),
    "jobs": Case(
        mutating=[hook("/a", rules=rule("CREATE", resources=("jobs",), groups=("batch",)))],
        validating=[hook("/v", rules=rule("CREATE", resources=("jobs",), groups=("batch",)))],
        answers={"/a": patching(("add", "/spec/suspend", True))},
        story=[create(job(metadata={"labels": {LABEL: "{case}"}}))],
    ),
    "namespaces-left-out": Case(
        mutating=[
            hook("/a", namespaceSelector={"matchLabels": {"team": "a"}}),
            hook(
                "/b",
                namespaceSelector={
                    "matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]
                },
            ),
        ],
        answers={"/a": {}, "/b": {}},
        story=[create(hooked())],
    ),
    "cluster-scoped": Case(
        validating=[
            hook("/v", rules=rule("*", resources=("*",), scope="Cluster")),
            hook("/w", rules=rule("*", resources=("*",), scope="Namespaced")),
        ],
        answers={},
        story=[
            create(hooked()),
            create(make("Namespace", "webhook-{case}", metadata={"labels": {LABEL: "{case}"}})),
        ],
    ),
    "refused-before": Case(
        mutating=[hook("/a")],
        validating=[hook("/v")],
        answers={"/a": {}},
        story=[create(hooked(restartPolicy="Sometimes")), create(hooked(), fieldValidation="X")],
    ),
}


UNREADABLE = frozenset({"no-json", "no-review"})
"""Cases in which the real server says in Go's own words what it cannot read."""


def without_causes(calls):
    text = re.sub(
        r'(failed calling webhook \\"[a-z.]+\\": )(\\.|[^"\\])*', r"\1", json.dumps(calls)
    )
    return json.loads(text)


def registered(hooks, webhooks, case, kind):
    """Build a configuration; its first webhook shows when the server knows it."""
    marker = f"/marker-{case}-{kind.lower()}"
    hooks.answers[marker] = {}
    selector = {"matchLabels": {"marked": "yes"}}
    marking = [{**MARKING, "operations": ["CREATE"]}]
    built = [hooks.webhook(marker, rules=marking, objectSelector=selector)]
    for path, given in webhooks:
        more = {"objectSelector": {"matchLabels": {LABEL: case}}, **given}
        port = more.pop("port", None)
        own = f"/{case}{path}"
        webhook = hooks.webhook(own, **more)
        webhook |= {"name": f"{path.strip('/')}.example.com"}
        built.append(webhook | {"clientConfig": hooks.client(own, port)})
    return marker, make(kind, f"likeness-{case}", webhooks=built)


@contextmanager
def under(server, hooks, case):
    """Register a case's webhooks, wait until the server asks them, and take them away."""
    markers = []
    kinds = {
        "MutatingWebhookConfiguration": CASES[case].mutating,
        "ValidatingWebhookConfiguration": CASES[case].validating,
    }
    for kind, webhooks in kinds.items():
        marker, body = registered(hooks, webhooks, case, kind)
        code, _, body_text = raw(server, "POST", path_of(kind), json.dumps(body).encode())
        assert code == 201, body_text
        markers.append(marker)
    until_asked(server, hooks, markers)
    hooks.asked.clear()
    try:
        yield
    finally:
        for kind in kinds:
            raw(server, "DELETE", path_of(kind, f"likeness-{case}"), None)


def until_asked(server, hooks, markers):
    deadline = time.monotonic() + WAIT_SECONDS
    target = "/api/v1/namespaces/default/configmaps?dryRun=All"
    while not set(markers) <= set(hooks.paths()):
        assert time.monotonic() < deadline, "the webhooks are never asked"
        raw(server, "POST", target, json.dumps(MARKED).encode())
        time.sleep(POLL_SECONDS)


def describe_calls(ask, case):
    """Fill a case's name into a request."""
    if callable(ask.body) or ask.body is None:
        return ask
    return type(ask)(
        method=ask.method,
        path=ask.path,
        query=ask.query,
        body=json.dumps(ask.body).replace("{case}", case),
        content=ask.content,
    )


def asked_by(hooks, case):
    """Return what the case's webhooks were asked; who asks differs by its authenticator.

    The fields of a binding, which is not kept, have no owners here.
    The real server asks all validating webhooks of a request at once.
    """
    found = []
    for path, request in hooks.asked:
        if path.startswith(f"/{case}/"):
            request["userInfo"].pop("uid", None)
            request["userInfo"].pop("extra", None)
            if request.get("subResource") == "binding":
                request["object"]["metadata"].pop("managedFields", None)
            found.append([path, blanked(request)])
    together = {f"/{case}{path}" for path, _ in CASES[case].validating}
    runs = itertools.groupby(found, key=lambda asked: asked[0] in together)
    return [
        asked
        for validating, run in runs
        for asked in (sorted(run, key=json.dumps) if validating else run)
    ]


@pytest.fixture(scope="module")
def hooks(loop):
    with loop.entered(serving_hooks()) as hooks:
        yield hooks


@pytest.mark.parametrize("case", list(CASES))
def test_both_servers_ask_and_hear_the_same(servers, hooks, case):
    answers = {f"/{case}{path}": answer for path, answer in CASES[case].answers.items()}
    usual = {f"/{case}{path}": {} for path, _ in CASES[case].validating}
    hooks.answers |= usual | answers
    results = {}
    for who, server in servers.items():
        with under(server, hooks, case):
            given = run_story(server, [describe_calls(ask, case) for ask in CASES[case].story])
            results[who] = [[a.shown() for a in given], asked_by(hooks, case)]

    if case in UNREADABLE:
        results = {who: without_causes(calls) for who, calls in results.items()}
    assert results["embedded"] == results["real"], unlike(results)
