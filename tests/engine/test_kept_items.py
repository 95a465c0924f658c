"""Large Lists are kept as texts: what is read of them is what a reader of all of YAML reads."""

import json
import random

import pytest

from policyd.engine.documents import reading
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import LazyItems, each_document, each_kept
from tests.bench.stored import stored
from tests.engine.documents.test_plain_yaml import mutated

LISTED = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}}


@pytest.fixture(autouse=True)
def all_texts_are_large(monkeypatch):
    monkeypatch.setattr(reading, "LARGE", 0)


def listed(items, **more):
    return json.dumps({**LISTED, "items": items, **more}, indent=4)


def values(read):
    """The findings, and the values of documents."""
    for each in read:
        if isinstance(each, LazyItems):
            yield from (each.document(index).value for index in range(len(each.items.kinds)))
        else:
            yield each if isinstance(each, Finding) else each.value


def kept(text):
    return any(isinstance(each, LazyItems) for each in each_kept(text.encode(), "f.json"))


def differs(text):
    """What is read otherwise if items are kept; None if nothing."""
    fast = list(values(each_kept(text.encode(), "f.json")))
    slow = list(values(each_document(text.encode(), "f.json")))
    return None if fast == slow else f"{text!r}: {fast} and not {slow}"


def test_a_list_as_kubectl_writes_it_is_kept():
    text = listed([*stored(20, violations=0), {"kind": "A", "text": '<\\ "a"'}])

    assert kept(text.replace("<", "\\u003c"))
    assert differs(text.replace("<", "\\u003c")) is None


def test_kinds_are_found_without_decoding():
    text = listed([{"kind": "A"}, {"kind": 1}, {}])

    (read,) = each_kept(text.encode(), "f.json")

    assert list(read.items.kinds) == ["A", "", ""]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"kind": "List", "items": [{"a": 1, "a": 2}]}', id="a-field-twice"),
        pytest.param('{"kind": "List", "items": [], "items": [{"a": 1}]}', id="items-twice"),
        pytest.param('{"kind": "List", "items": [{"a": {"<<": {"b": 1}}}]}', id="merge"),
        pytest.param('{"kind": "List", "items": [{"a": 1234567890123456789012}]}', id="long"),
        pytest.param('{"kind": "List", "items": [{"a": 1e400}]}', id="infinite"),
        pytest.param('{"kind": "List", "items": [1, null, "a", []]}', id="no-objects"),
        pytest.param('{"kind": "List", "items": {"a": 1}}', id="no-list"),
        pytest.param('{"kind": "List"}', id="no-items"),
        pytest.param('{"kind": "Pod", "items": [{}]}', id="another-kind"),
        pytest.param('{"kind": ["List"], "items": [{}]}', id="odd-kind"),
        pytest.param('{"items": [{}], "kind": "List", "x": {"y": 1, "y": 2}}', id="field-beside"),
        pytest.param('{"kind": "List", "items": [{}]}\n---\n{"kind": "A"}', id="another-document"),
        pytest.param('{"kind": "List", "items": [{"a": "\\u0041"}]}', id="needless-escape"),
        pytest.param('{"kind": "List", "items": [{"a": "\\\\u003c"}]}', id="backslash"),
        pytest.param('{"kind": "List", "items": [{"a": "é"}]}', id="not-ascii"),
        pytest.param(
            '{"kind": "List", "items": [{"a": ' + "[" * 150 + "]" * 150 + "}]}", id="deep"
        ),
        pytest.param('{"kind": "List", "items": [' + "[" * 5000 + "]" * 5000 + "]}", id="deeper"),
        pytest.param('{"kind": "List", "items": [{"a": "' + "{" * 200 + '"}]}', id="brackets"),
    ],
)
def test_an_odd_list_is_read_as_without_keeping(text):
    assert differs(text) is None


@pytest.mark.parametrize("seed", range(10))
def test_mutated_lists_are_read_as_without_keeping(seed):
    rng = random.Random(seed)
    text = listed([{"kind": "A", "n": [1, {"b": 'x"}'}], "t": "\\"}, {"kind": "B", "m": {}}])

    assert [found for _ in range(100) if (found := differs(mutated(text, rng)))] == []


def test_an_item_has_its_place():
    text = listed([{"kind": "A"}, {"kind": "B", "n": 1}])

    (read,) = each_kept(text.encode(), "f.json")
    place = read.document(1).position(("n",))

    assert text.splitlines()[place.line - 1][place.column - 1 :] == "1"
