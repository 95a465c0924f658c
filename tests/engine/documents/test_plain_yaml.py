"""The fast reader of YAML reads as the one of all of YAML does, or leaves a text to it."""

import json
import random
import sys
from pathlib import Path

import pytest

from policyd.engine.documents.nodes import build, compose
from policyd.engine.documents.plain_yaml import NotPlainError, read_plain
from policyd.engine.documents.reading import read_documents

PROJECT = Path(__file__).parents[3]
MANIFEST = """\
apiVersion: v1
kind: Pod
metadata:
  name: a
  labels: {}
  annotations:
    empty:
    quoted: 'a # b'
    double: "c: d"
    text: a b:c
spec:
  # a comment
  containers:
  - name: main
    args: []
    command:
    - sh
    - -c
    - "true"
    resources:
      limits:
        nvidia.com/gpu: 8
        cpu: 0.5
    env:
      - name: A
        value: "1"
      -
        name: B
  hostNetwork: true
  terminationGracePeriodSeconds: null
"""
PIECES = [
    *(
        ":",
        ": ",
        " ",
        "  ",
        "- ",
        "-",
        "\n",
        "#",
        " #",
        "'",
        '"',
        "{",
        "}",
        "[",
        "]",
        ",",
        "&a ",
        "*a",
    ),
    *(
        "|",
        ">",
        "!",
        "%",
        "@",
        "`",
        "?",
        "? ",
        "~",
        "yes",
        "0x1f",
        "1:30",
        "1e3",
        ".5",
        "<<",
        "=",
        "\t",
    ),
    *("---", "...", "\\", "null", "0o7", "010", "é", "\x07", "2001-01-01", "a: b", "\r"),
]


def slowly(text):
    node, shared = compose(text, sys.maxsize)
    return None if node is None else build(node, shared)


def differs(text):
    """What the fast reader reads otherwise; None if nothing."""
    try:
        fast = read_plain(text)
    except NotPlainError:
        return None
    try:
        slow = slowly(text)
    except Exception as error:  # noqa: BLE001 - whatever the reader of all of YAML raises
        return f"{text!r} is {error}"
    return None if json.dumps(fast) == json.dumps(slow) else f"{text!r}: {fast} and not {slow}"


def mutated(text, rng):
    characters = list(text)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(characters))
        match rng.randrange(4):
            case 0:
                characters[at] = rng.choice(PIECES)
            case 1:
                characters.insert(at, rng.choice(PIECES))
            case 2:
                del characters[at : at + rng.randint(1, 4)]
            case _:
                lines = "".join(characters).splitlines(keepends=True)
                rng.shuffle(lines)
                characters = list("".join(lines)) or ["a"]
    return "".join(characters)


def test_a_manifest_is_read_fast():
    assert read_plain(MANIFEST) == slowly(MANIFEST)


def test_all_that_the_project_has_is_read_alike():
    files = [*PROJECT.glob("policies/**/*.yaml"), *PROJECT.glob("docs/**/*.yaml")]

    assert [found for file in files if (found := differs(file.read_text()))] == []


@pytest.mark.parametrize("seed", range(20))
def test_mutated_manifests_are_read_alike(seed):
    rng = random.Random(seed)
    texts = (mutated(MANIFEST, rng) for _ in range(100))

    assert [found for text in texts if (found := differs(text))] == []


@pytest.mark.parametrize("seed", range(10))
def test_mutated_json_is_read_alike(seed):
    rng = random.Random(seed)
    text = json.dumps(slowly(MANIFEST))

    assert [found for _ in range(100) if (found := differs(mutated(text, rng)))] == []


def test_places_are_those_of_the_text():
    (document,), _ = read_documents(MANIFEST, "f.yaml")

    place = document.position(("spec", "containers", 0, "resources", "limits", "cpu"))
    assert (place.line, place.column) == (23, 14)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"a":"\\u003cb\\u003e \\u0026"}', id="as-go-escapes"),
        pytest.param('{"\\u003c\\u003c":{"b":1},"c":2}', id="merge"),
        pytest.param('{"a":1,"a":2}', id="twice"),
        pytest.param('{"a":1e17}', id="exponent"),
        pytest.param('{"a":1e-5}', id="small"),
        pytest.param('{"a":"\\ud800"}', id="surrogate"),
        pytest.param('{"a":"\\\\u003c"}', id="backslash"),
        pytest.param('{"a":"\\u0041"}', id="needless-escape"),
        pytest.param('{"a":1234567890123456789012}', id="long-number"),
        pytest.param('{"a":' + "[" * 150 + "]" * 150 + "}", id="deep"),
        pytest.param('{"a":' + "[" * 5000 + "]" * 5000 + "}", id="deeper"),
        pytest.param('{"a":1.50,"b":-0,"c":[],"d":null}', id="numbers"),
    ],
)
def test_json_is_read_alike(text):
    assert differs(text) is None
    assert differs(text.replace(":", ": ").replace(",", ",\n    ")) is None


def test_json_as_kubectl_writes_it_is_read_fast():
    text = json.dumps({**slowly(MANIFEST), "escaped": "<&>"}, indent=4)

    assert read_plain(text.replace("<", "\\u003c")) == json.loads(text)


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1234567890123456789},
        {"a": [-1234567890123456789]},
        {"a": [1, 1234567890123456789]},
        {"a": "1,1234567890123456789", "b": 1},
        {"a": 'x":1234567890123456789', "b": "\\"},
        {"a": "}}]]{{[[", '{"': "]", "b": ["{", {"c": '"}"'}]},
    ],
)
@pytest.mark.parametrize("indent", [None, 4])
def test_json_with_long_numbers_and_brackets_in_texts_is_read_alike(value, indent):
    assert differs(json.dumps(value, indent=indent)) is None
    assert differs(json.dumps(value, indent=indent, separators=(",", ":"))) is None


@pytest.mark.parametrize("number", ["1234567890123456789", "-1234567890123456789"])
@pytest.mark.parametrize("around", ['{"a":%s}', '{"a":[%s]}', '{"a":[1,%s]}', '{"a,b":{"c":%s}}'])
def test_json_with_a_long_number_is_left_to_the_reader_of_all_of_yaml(around, number):
    with pytest.raises(NotPlainError):
        read_plain(around % number)


def test_brackets_in_texts_hide_no_depth():
    levels = 150
    text = '{"}":' * levels + '"{"' + ',"b":"{"}' * levels

    with pytest.raises(NotPlainError):
        read_plain(text)
