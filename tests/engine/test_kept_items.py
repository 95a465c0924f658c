"""Large Lists are kept as texts: what is read of them is what a reader of all of YAML reads."""

import json
import random

import pytest

from policyd.cli.formats.documents import with_many_objects
from policyd.engine.documents import reading
from policyd.engine.documents.reading import LazyItems, each_kept, read_documents
from tests.bench.stored import stored
from tests.engine.documents.test_plain_yaml import mutated

LISTED = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}}


@pytest.fixture(autouse=True)
def all_texts_are_large(monkeypatch):
    monkeypatch.setattr(reading, "LARGE", 0)


def listed(items, **more):
    return json.dumps({**LISTED, "items": items, **more}, indent=4)


def used(text, folder):
    """The findings, and the values of documents, as a command with many objects sees them."""
    (file := folder / "f.json").write_text(text)
    values, findings = with_many_objects([str(file)], lambda many: [value for value, _ in many])
    return values, findings


def kept(text):
    return any(isinstance(each, LazyItems) for each in each_kept(text.encode(), "f.json"))


def differs(text, folder):
    """What is read otherwise if items are kept; None if nothing."""
    fast = used(text, folder)
    slow = read_documents(text.encode(), str(folder / "f.json"))
    plain = [document.value for document in slow[0]], slow[1]
    return None if fast == plain else f"{text!r}: {fast} and not {plain}"


def test_a_list_as_kubectl_writes_it_is_kept(tmp_path):
    text = listed([*stored(20, violations=0), {"kind": "A", "text": '<\\ "a"'}])

    assert kept(text.replace("<", "\\u003c"))
    assert differs(text.replace("<", "\\u003c"), tmp_path) is None


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
def test_an_odd_list_is_read_as_without_keeping(text, tmp_path):
    assert differs(text, tmp_path) is None


@pytest.mark.parametrize("seed", range(10))
def test_mutated_lists_are_read_as_without_keeping(seed, tmp_path):
    rng = random.Random(seed)
    text = listed([{"kind": "A", "n": [1, {"b": 'x"}'}], "t": "\\"}, {"kind": "B", "m": {}}])

    assert [found for _ in range(100) if (found := differs(mutated(text, rng), tmp_path))] == []


def test_an_item_has_its_place():
    text = listed([{"kind": "A"}, {"kind": "B", "n": 1}])

    (read,) = each_kept(text.encode(), "f.json")
    place = read.document(1).position(("n",))

    assert text.splitlines()[place.line - 1][place.column - 1 :] == "1"
