"""Events of the audit log become requests, with what the log knows of the objects."""

import json
from itertools import chain

import pytest

from policyd.api.admission import decode_object
from policyd.engine.offline import audit_log
from policyd.engine.offline.audit_log import (
    AuditError,
    AuditReader,
    Gone,
    LoggedKey,
    is_audit_log,
    read_events,
)
from tests.engine.audit_events import created, event, obj, pod


def reader(*, reads_old=True, as_stored=True, concerned=("pods", "configmaps", "deployments")):
    return AuditReader(
        lambda request: request.resource.resource in concerned,
        lambda _request: reads_old,
        as_stored=as_stored,
    )


def taken(events, read=None):
    read = read or reader()
    decoded = (each for one in events for each in read_events(json.dumps(one).encode()))
    return [*chain.from_iterable(map(read.take, decoded))], read


def requests(events, read=None):
    found, _ = taken(events, read)
    return [each for each in found if not isinstance(each, Gone)]


def test_a_creation_is_judged_as_it_was_stored():
    sent, stored = pod("a"), pod("a", labels={"default": "x"})

    (found,) = requests([event("create", "pods", "a", sent=sent, answer=stored)])

    assert (found.request.operation, found.request.kind.kind, found.request.name) == (
        *("CREATE", "Pod"),
        "a",
    )
    assert decode_object(found.request.object) == stored
    assert found.key == LoggedKey("", "pods", "team-a", "a")
    assert found.owner == ("Pod", "a")


def test_with_old_policies_a_creation_is_judged_as_it_was_sent():
    sent, stored = pod("a"), pod("a", labels={"default": "x"})

    (found,) = requests(
        [event("create", "pods", "a", sent=sent, answer=stored)], reader(as_stored=False)
    )

    assert decode_object(found.request.object) == sent


def test_the_impersonated_user_sends_the_request():
    made = created("pods", pod("a"), impersonatedUser={"username": "eve", "groups": ["g"]})

    (found,) = requests([made])

    assert (found.request.user_info.username, found.request.user_info.groups) == ("eve", ("g",))


def test_each_request_counts_once_when_it_is_complete():
    done = created("pods", pod("a"))
    started = done | {"stage": "RequestReceived"}

    found, read = taken([started, done, done])

    assert len(found) == 1
    assert (read.counts.events, read.counts.others, read.counts.repeated) == (3, 1, 1)


def test_a_made_up_name_is_that_of_the_answer():
    sent = pod("")
    sent["metadata"] = {"generateName": "a-"}
    events = [
        event("create", "pods", sent=sent, answer=pod("a-xyz")),
        event("create", "pods", sent=sent),
    ]

    known, unknown = requests(events)

    assert (known.key.name, unknown.key.name, unknown.name) == ("a-xyz", "", "a-*")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"level": "Metadata"}, "metadata", id="level-metadata"),
        pytest.param({"level": "Request"}, "body", id="no-object"),
        pytest.param(
            {"annotations": {"audit.k8s.io/truncated": "true"}}, "truncated", id="truncated"
        ),
        pytest.param({"verb": "patch", "requestObject": [{"op": "add"}]}, "patch", id="patch"),
        pytest.param({"verb": "deletecollection"}, "collection", id="collection"),
        pytest.param({"verb": "delete"}, "old-object", id="deletion"),
        pytest.param({"verb": "update", "requestObject": pod("a")}, "old-object", id="update"),
    ],
)
def test_what_cannot_be_judged_is_counted_with_its_reason(change, reason):
    found, read = taken([event("update", "pods", "a") | {"verb": "create"} | change])

    assert [each for each in found if not isinstance(each, Gone)] == []
    assert read.counts.unjudged == {reason: 1}
    assert read.counts.first[reason].endswith("pods team-a/a")


@pytest.mark.parametrize(
    ("verb", "level"), [("patch", "Request"), ("patch", "Metadata"), ("update", "Metadata")]
)
def test_a_namespace_that_changed_unseen_is_not_known_any_more(verb, level):
    sent = {"sent": {"metadata": {"labels": {"team": "y"}}}} if level == "Request" else {}
    made = created("namespaces", obj("namespaces", "team-a", labels={"team": "x"}))
    changed = event(verb, "namespaces", "team-a", level=level, **sent)

    _, read = taken([made, changed | {"subresource": "status"}, changed])

    assert read.namespaces == {}


def test_a_patch_is_judged_by_its_result():
    before, after = pod("a"), pod("a", labels={"b": "c"})
    patched = event("patch", "pods", "a", sent={"metadata": {}}, answer=after)

    _, found = requests([created("pods", before), patched])

    assert found.request.operation == "UPDATE"
    assert decode_object(found.request.object) == after
    assert decode_object(found.request.old_object) == before


def test_an_apply_that_creates_is_a_creation():
    patched = event("patch", "pods", "a", sent=pod("a"), answer=pod("a"))

    (found,) = requests([patched | {"responseStatus": {"code": 201}}])

    assert (found.request.operation, bytes(found.request.old_object)) == ("CREATE", b"null")


def test_the_object_before_a_change_may_have_been_read():
    before = pod("a")
    read = event("get", "pods", "a", answer=before)

    (found,) = requests([read, event("update", "pods", "a", sent=pod("a", labels={"b": "c"}))])

    assert decode_object(found.request.old_object) == before


def test_an_update_needs_no_old_object_if_no_policy_reads_it():
    update = event("update", "pods", "a", sent=pod("a"))

    (found,) = requests([update], reader(reads_old=False))

    assert found.request.old_object == found.request.object


def test_a_patch_without_its_result_makes_the_stored_object_unknown():
    events = [created("pods", pod("a")), event("patch", "pods", "a", sent={"a": "b"})]

    found, read = taken([*events, event("update", "pods", "a", sent=pod("a"))])

    assert len(found) == 1
    assert read.counts.unjudged == {"patch": 1, "old-object": 1}


def test_a_deletion_has_the_object_and_makes_it_gone():
    found, _ = taken(
        [created("pods", pod("a")), event("delete", "pods", "a", answer={"kind": "Status"})]
    )

    _, deletion, gone = found
    assert decode_object(deletion.request.old_object) == pod("a")
    assert (bytes(deletion.request.object), deletion.request.kind.kind) == (b"null", "Pod")
    assert gone == Gone(LoggedKey("", "pods", "team-a", "a"))


def test_the_answer_of_a_deletion_is_the_object_as_it_was():
    answer = pod("a")
    answer["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}

    (found,) = requests([event("delete", "pods", "a", answer=answer)])

    assert decode_object(found.request.old_object) == pod("a")


def test_each_object_of_a_deleted_collection_is_judged():
    items = [{"metadata": {"name": name, "namespace": "team-a"}} for name in "ab"]
    answer = {"apiVersion": "v1", "kind": "PodList", "items": items}

    found, _ = taken([event("deletecollection", "pods", answer=answer)])

    *deletions, gone = found
    assert [each.key.name for each in deletions] == ["a", "b"]
    assert decode_object(deletions[0].request.old_object)["kind"] == "Pod"
    assert gone == Gone(LoggedKey("", "pods", "team-a", ""))


def test_a_selected_collection_leaves_the_rest():
    items = [{"metadata": {"name": "a", "namespace": "team-a"}}]
    answer = {"apiVersion": "v1", "kind": "PodList", "items": items}
    uri = "/api/v1/namespaces/team-a/pods?labelSelector=a%3Db"

    found, _ = taken([event("deletecollection", "pods", answer=answer, requestURI=uri)])

    assert found[-1] == Gone(LoggedKey("", "pods", "team-a", "a"))


def test_a_deleted_namespace_takes_everything_in_it():
    deleted = event("delete", "namespaces", "team-a", answer=obj("namespaces", "team-a"))

    found, _ = taken([deleted])

    assert Gone(LoggedKey("", "", "team-a", "")) in found


def test_a_pod_that_has_ended_is_gone():
    ended = pod("a", status={"phase": "Succeeded"})

    found, _ = taken([event("patch", "pods", "a", subresource="status", answer=ended)])

    assert Gone(LoggedKey("", "pods", "team-a", "a")) in found


def test_an_evicted_pod_is_gone():
    found, _ = taken([event("create", "pods", "a", subresource="eviction", sent=pod("a"))])

    assert found[-1] == Gone(LoggedKey("", "pods", "team-a", "a"))


def test_the_owner_is_the_topmost_controller():
    events = [
        created("replicasets", obj("replicasets", "web-1", owner=("Deployment", "web"))),
        created("pods", pod("web-1-a", owner=("ReplicaSet", "web-1"))),
    ]

    (found,) = requests(events)

    assert (found.owner, found.controlled) == (("Deployment", "web"), True)


def test_owners_in_a_circle_end():
    events = [
        created("replicasets", obj("replicasets", "a", owner=("ReplicaSet", "b"))),
        created("replicasets", obj("replicasets", "b", owner=("ReplicaSet", "a"))),
        created("pods", pod("x", owner=("ReplicaSet", "a"))),
    ]

    (found,) = requests(events)

    assert found.owner[0] == "ReplicaSet"


def test_a_refused_request_is_marked_and_stores_nothing():
    refused = created("pods", pod("a"), responseStatus={"code": 403})
    refused["responseObject"] = {"kind": "Status", "apiVersion": "v1"}

    found, read = taken([refused, event("update", "pods", "a", sent=pod("a"))])

    assert [each.refused for each in found] == [True]
    assert read.counts.unjudged == {"old-object": 1}


def test_a_dry_run_stores_nothing():
    dry = created("pods", pod("a"), requestURI="/api/v1/pods?dryRun=All")

    found, read = taken([dry, event("update", "pods", "a", sent=pod("a"))])

    assert [each.request.dry_run for each in found] == [True]
    assert read.counts.unjudged == {"old-object": 1}


def test_the_options_of_a_connection_are_those_of_its_uri():
    uri = "/api/v1/namespaces/team-a/pods/a/exec?command=sh&command=-c&container=main&stdin=true"
    connected = event("get", "pods", "a", subresource="exec", requestURI=uri, level="Metadata")

    (found,) = requests([connected])

    assert (found.request.operation, found.request.sub_resource) == ("CONNECT", "exec")
    assert decode_object(found.request.object) == {
        "apiVersion": "v1",
        "kind": "PodExecOptions",
        "stdin": True,
        "container": "main",
        "command": ["sh", "-c"],
    }


def test_namespaces_are_known_as_they_were_last():
    events = [
        created("namespaces", obj("namespaces", "team-a", labels={"team": "x"})),
        event(
            "patch",
            "namespaces",
            "team-a",
            answer=obj("namespaces", "team-a", labels={"team": "y"}),
        ),
    ]

    _, read = taken(events)

    assert read.namespaces["team-a"]["metadata"]["labels"] == {"team": "y"}


def test_kept_objects_are_bounded(monkeypatch):
    monkeypatch.setattr(audit_log, "MOST_OLD_BYTES", 500)
    events = [created("pods", pod(f"p{number}")) for number in range(10)]
    updates = [event("update", "pods", name, sent=pod(name)) for name in ("p0", "p9")]

    _, read = taken([*events, *updates], reader())

    assert read.counts.unjudged == {"old-object": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(b"{", "not an audit event", id="cut"),
        pytest.param(b"[]", "not an audit event", id="a-list"),
        pytest.param(b'{"kind":"Event","apiVersion":"v1"}', "Event of v1", id="another-kind"),
        pytest.param(b'{"kind":"Event","apiVersion":"audit.k8s.io/v1beta1"}', "v1beta1", id="old"),
        pytest.param(b'{"a":' + b"[" * 100_000, "nested deeper", id="deep"),
        pytest.param(
            b'{"kind":"Event","apiVersion":"audit.k8s.io/v1","verb":7}', "not an audit", id="number"
        ),
    ],
)
def test_another_line_is_no_event(line, message):
    with pytest.raises(AuditError, match=message):
        list(read_events(line))


def test_a_list_has_its_events():
    listed = {
        "kind": "EventList",
        "apiVersion": "audit.k8s.io/v1",
        "items": [event("create", "pods")] * 2,
    }

    assert len(list(read_events(json.dumps(listed).encode()))) == 2


def test_invalid_unicode_is_read_as_the_api_server_reads_it():
    line = json.dumps(created("pods", pod("a"))).encode().replace(b'"ada"', b'"ad\xff"')

    assert is_audit_log(line)
