"""How reviews are read."""

import json
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.api.admission import (
    ReviewError,
    decode_object,
    has_more_values,
    nested_deeper,
    parse_review,
    read_head,
)


@pytest.mark.parametrize(
    ("text", "levels", "deeper"),
    [
        pytest.param(b"{}", 0, True, id="one-level"),
        pytest.param(b"{}", 1, False, id="just-as-deep"),
        pytest.param(b"[" * 501 + b"]" * 501, 500, True, id="too-deep"),
        pytest.param(b"[[],[],[],[]]", 2, False, id="wide-is-not-deep"),
        pytest.param(b'["[[[[", "\\"[[["]', 2, False, id="brackets-in-strings-do-not-count"),
        pytest.param(rb'["\n\"[\\",["]"]]', 2, False, id="escapes-before-quotes"),
        pytest.param(b"[[[[", 3, True, id="never-closed"),
        pytest.param(b'"' * 10_000 + b"[" * 10, 3, True, id="unbalanced-quotes"),
    ],
)
def test_nesting(text, levels, deeper):
    assert nested_deeper(text, levels) is deeper


@pytest.mark.parametrize(
    ("text", "most", "more"),
    [
        pytest.param(b"[0,0,0]", 3, False, id="a-list-and-two-parts"),
        pytest.param(b"[0,0,0,0]", 3, True, id="one-more"),
        pytest.param(b'{"a":"[[[[[[,,,,,:::"}', 2, False, id="those-in-texts-do-not-count"),
        pytest.param(rb'{"a":"\",,,,,"}', 2, False, id="nor-after-an-escaped-quote"),
        pytest.param(b"[" + b"{}," * 100 + b"0]", 150, True, id="objects"),
    ],
)
def test_values_are_counted_outside_of_texts(text, most, more):
    assert has_more_values(text, most) is more


REQUEST = {
    "uid": "u-1",
    "kind": {"group": "", "version": "v1", "kind": "Pod"},
    "resource": {"group": "", "version": "v1", "resource": "pods"},
    "subResource": "exec",
    "name": "a",
    "namespace": "team",
    "operation": "CREATE",
    "userInfo": {"username": "alice", "groups": ["g"]},
    "object": {"metadata": {"name": "b", "userInfo": {"username": "mallory"}}, "uid": "u-2"},
    "oldObject": None,
    "dryRun": False,
}
ENVELOPE = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}


def written(**fields):
    return json.dumps({**ENVELOPE, "request": {**REQUEST, **fields}}).encode()


def seen(head):
    request = head.request
    return (
        request.uid,
        request.resource.resource,
        request.sub_resource,
        request.namespace,
        request.operation,
        request.user_info.username,
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(written(), id="whole"),
        pytest.param(written().split(b'"b"')[0], id="cut-in-the-object"),
        pytest.param(written(object={"a": "x" * 100_000})[:70_000], id="cut-in-a-text"),
        pytest.param(written(object="HERE").replace(b'"HERE"', b"[" * 20_000), id="too-deep"),
        pytest.param(written(object="HERE").replace(b'"HERE"', b"1e400}"), id="misshapen-object"),
        pytest.param(written().replace(b'"b"', b'"\xff\\ud800\x01"'), id="no-unicode"),
        pytest.param(json.dumps(json.loads(written()), indent=2).encode(), id="with-spaces"),
        pytest.param(
            json.dumps({"request": dict(reversed(REQUEST.items())), **ENVELOPE}).encode(),
            id="in-another-order",
        ),
    ],
)
def test_a_head_names_the_user_and_the_object(text):
    head = read_head(text)

    assert head.whole
    assert seen(head) == ("u-1", "pods", "exec", "team", "CREATE", "alice")
    assert bytes(head.request.object) == b"null"


@pytest.mark.parametrize(
    ("text", "known"),
    [
        pytest.param(written(name="x" * 100_000)[:65_536], {"uid", "kind"}, id="a-long-name"),
        pytest.param(written(operation=7), {"uid", "userInfo"}, id="a-misshapen-field"),
        pytest.param(
            json.dumps({"request": {"uid": "u", "object": "x" * 100}}).encode()[:60],
            {"uid"},
            id="another-order-cut",
        ),
    ],
)
def test_a_head_that_does_not_say_all_says_so(text, known):
    head = read_head(text)

    assert not head.whole
    assert known <= head.known


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"[]", id="a-list"),
        pytest.param(written(uid=""), id="no-uid"),
        pytest.param(written(uid=7), id="uid-is-a-number"),
        pytest.param(written(uid='"}'), id="uid-that-is-none"),
        pytest.param(b'{"object":{"uid":"u-2"', id="uid-of-the-object"),
        pytest.param(b"{" * 100_000, id="deep"),
    ],
)
def test_a_head_without_a_uid_is_none_of_a_review(text):
    with pytest.raises(ReviewError):
        read_head(text)


@given(st.binary(max_size=200), st.integers(0, 700))
def test_no_head_raises_anything_else(noise, at):
    text = written()

    for given_text in (noise, text[:at] + noise, text[:at] + noise + text[at:]):
        with suppress(ReviewError):
            read_head(given_text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param(rb'"\ud800"', "\ufffd", id="half-a-pair"),
        pytest.param(rb'"\udc00\ud800a"', "\ufffd\ufffda", id="the-wrong-way-round"),
        pytest.param(rb'"\ud83d\ude00\\ud800\udfff"', "😀\\ud800\ufffd", id="a-pair-stays"),
        pytest.param(b'"a\xff\xfe"', "a\ufffd\ufffd", id="no-utf-8"),
        pytest.param(b'"\xed\xa0\x80"', "\ufffd\ufffd\ufffd", id="a-surrogate-in-utf-8"),
        pytest.param(rb'{"\udc00": 1}', {"\ufffd": 1}, id="a-key"),
        pytest.param(b'{"a": 1, "a": 2}', {"a": 2}, id="twice"),
        pytest.param(rb'"\u0000"', "\0", id="nul"),
        pytest.param(b"1180591620717411303424", 2**70, id="a-large-number"),
        pytest.param(b"1e-400", 0.0, id="a-small-number"),
    ],
)
def test_an_object_is_read_as_the_api_server_reads_it(text, value):
    """Of a ControllerRevision's data, a real API server sends all of these as they came."""
    assert decode_object(msgspec.Raw(text)) == value
    assert parse_review(written(object="HERE").replace(b'"HERE"', text)).uid == "u-1"
