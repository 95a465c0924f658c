"""Watches: both servers tell the same of the same changes, in the same order."""

import json
from urllib.parse import quote, urlencode

import pytest

from tests.e2e.likeness.asking import blanked, create, patch, path_of, remove
from tests.e2e.likeness.objects import config_map, job, pod
from tests.e2e.likeness.stories.reading import PARTIAL, TABLE
from tests.e2e.likeness.telling import answer, new_namespace, raw, unlike

pytestmark = pytest.mark.e2e

LABELLED = {"labels": {"a": "b"}}

CHANGES = [
    create(config_map("first", metadata=LABELLED)),
    patch("ConfigMap", "first", {"data": {"a": "c"}}),
    create(config_map("second")),
    patch("ConfigMap", "second", {"metadata": LABELLED}),
    patch("ConfigMap", "first", {"metadata": {"labels": None}}),
    remove("ConfigMap", "second"),
    remove("ConfigMap", "first"),
]
"""What happens while somebody watches config maps."""

PODS = [
    create(pod("waiting")),
    remove("Pod", "waiting"),
    create(pod("placed", nodeName="n1")),
    patch("Pod", "placed", {"status": {"phase": "Running"}}, part="status"),
    remove("Pod", "placed"),
    remove("Pod", "placed", gracePeriodSeconds="0"),
    create(pod("held", metadata={"finalizers": ["example.com/x"]})),
    remove("Pod", "held"),
    patch("Pod", "held", {"metadata": {"finalizers": None}}),
]

JOBS = [
    create(job(suspend=True)),
    patch("Job", "web", {"spec": {"suspend": False}}),
    patch("Job", "web", {"spec": {"suspend": False}}),
    remove("Job", "web", propagationPolicy="Background"),
]


def watched(server, changes, kind, query, headers=None):
    """Make changes under a watch from before them; return its events, up to the mark at the end."""
    namespace = new_namespace(server)
    collection = path_of(kind).replace("{namespace}", namespace)
    _, _, found = raw(server, "GET", f"{collection}?limit=1", None)
    options = {"watch": "1", "resourceVersion": found["metadata"]["resourceVersion"], **query}
    last = None
    for change in changes:
        _, _, last = answer(server, change, namespace, last)
    mark = {"ConfigMap": config_map, "Pod": pod, "Job": job}[kind]("mark", metadata=LABELLED)
    answer(server, create(mark), namespace, None)
    target = f"{collection}?{urlencode(options)}"
    events = []
    with server.watching(target, headers) as following:
        while not events or "mark" not in json.dumps(events[-1]):
            events.append(following())
    return [blanked(event) for event in events]


@pytest.mark.parametrize(
    ("changes", "kind", "query", "accept"),
    [
        pytest.param(CHANGES, "ConfigMap", {}, "application/json", id="everything"),
        pytest.param(
            CHANGES, "ConfigMap", {"labelSelector": "a=b"}, "application/json", id="label"
        ),
        pytest.param(
            CHANGES,
            "ConfigMap",
            {"fieldSelector": "metadata.name!=second"},
            "application/json",
            id="field",
        ),
        pytest.param(CHANGES, "ConfigMap", {}, PARTIAL, id="metadata"),
        pytest.param(CHANGES, "ConfigMap", {}, TABLE, id="table"),
        pytest.param(PODS, "Pod", {}, "application/json", id="pods"),
        pytest.param(PODS, "Pod", {}, TABLE, id="table-of-pods"),
        pytest.param(JOBS, "Job", {}, "application/json", id="jobs"),
    ],
)
def test_both_servers_send_the_same_events(servers, changes, kind, query, accept):
    received = {
        who: watched(server, changes, kind, query, {"Accept": accept})
        for who, server in servers.items()
    }

    for events in received.values():
        without_prose(events)
    assert received["embedded"] == received["real"], unlike(received)


def without_prose(events):
    for event in events:
        for column in event["object"].get("columnDefinitions") or ():
            del column["description"]


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({}, id="from-now-on-with-what-is-there"),
        pytest.param({"resourceVersion": "0"}, id="from-any-version"),
        pytest.param(
            {
                "sendInitialEvents": "true",
                "resourceVersionMatch": "NotOlderThan",
                "allowWatchBookmarks": "true",
            },
            id="initial-events-and-a-bookmark",
        ),
    ],
)
def test_both_servers_begin_with_what_is_there(servers, query):
    events = {}
    for who, server in servers.items():
        namespace = new_namespace(server)
        answer(server, create(config_map("one")), namespace, None)
        answer(server, create(config_map("two")), namespace, None)
        collection = path_of("ConfigMap").replace("{namespace}", namespace)
        with server.watching(f"{collection}?{urlencode({'watch': '1', **query})}") as following:
            count = 3 if "sendInitialEvents" in query else 2
            events[who] = [blanked(following()) for _ in range(count)]
            answer(server, create(config_map("three")), namespace, None)
            events[who].append(blanked(following()))

    assert events["embedded"] == events["real"], unlike(events)


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({"resourceVersion": "x"}, id="no-version"),
        pytest.param({"sendInitialEvents": "true"}, id="initial-events-without-match"),
        pytest.param({"labelSelector": "a in"}, id="no-selector"),
        pytest.param({"fieldSelector": "spec.x=y"}, id="no-field"),
    ],
)
def test_both_servers_refuse_the_same_watches(servers, query):
    target = "/api/v1/namespaces/default/pods?" + urlencode(
        {"watch": "1", **query}, quote_via=quote
    )
    answers = {who: raw(server, "GET", target, None) for who, server in servers.items()}

    codes = {who: (code, body.get("reason")) for who, (code, _, body) in answers.items()}
    assert codes["embedded"] == codes["real"]
