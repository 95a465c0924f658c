"""Documents keep their positions, and one that cannot be read leaves the others readable."""

import pytest

from policyd.engine.documents.findings import Position, caret_lines
from policyd.engine.documents.reading import Document, read_documents

TWO = """\
# a comment
kind: One
spec:
  list:
  - {name: a}
  - {name: b}
---
kind: Two
"""


def only(text):
    documents, findings = read_documents(text, "f.yaml")
    assert not findings
    assert len(documents) == 1
    return documents[0]


@pytest.mark.parametrize(
    ("path", "of_key", "expected"),
    [
        pytest.param(("kind",), False, (2, 7), id="value"),
        pytest.param(("kind",), True, (2, 1), id="key"),
        pytest.param(("spec", "list", 1, "name"), False, (6, 12), id="deep-value"),
        pytest.param(("spec", "list", 1, "missing"), False, (6, 5), id="nearest-parent"),
        pytest.param((), False, (2, 1), id="document"),
    ],
)
def test_every_value_has_a_place(path, of_key, expected):
    documents, _ = read_documents(TWO, "f.yaml")

    assert documents[0].position(path, of_key=of_key) == Position(*expected)


def test_later_documents_count_lines_from_the_top_of_the_file():
    documents, _ = read_documents(TWO, "f.yaml")

    assert [d.value["kind"] for d in documents] == ["One", "Two"]
    assert documents[1].position(("kind",)) == Position(8, 7)


EXPRESSION = "object.spec.x &&\n  wrong"


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        pytest.param("e: a.b", (1, 3), (1, 6), id="plain"),
        pytest.param("e: 'a.b'", (1, 3), (1, 7), id="single-quoted"),
        pytest.param("e: 'a == '''' && b'", (1, 12), (1, 18), id="doubled-quotes"),
        pytest.param('e: "a == \\"x\\" && b"', (1, 13), (1, 19), id="escaped-quotes"),
        pytest.param('e: "\\u0061 && b"', (1, 6), (1, 15), id="unicode-escape"),
        pytest.param("e: |\n  a &&\n  b", (2, 1), (3, 3), id="literal"),
        pytest.param("e: |  # why\n\n    a &&\n      b", (2, 1), (3, 5), id="literal-after-blank"),
        pytest.param("e: |\n  a == '' &&\n  b", (2, 1), (3, 3), id="literal-with-quotes"),
        pytest.param("e: >-\n  a &&\n  b", (1, 6), (3, 3), id="folded"),
        pytest.param("e: a &&\n   b", (1, 6), (2, 4), id="plain-over-two-lines"),
        pytest.param("e: a", (9, 9), (1, 5), id="beyond-the-end"),
        pytest.param("k: 1\n---\ne: |\n  a\n  b", (2, 1), (5, 3), id="second-document"),
    ],
)
def test_a_place_within_a_scalar_is_found_in_the_file(text, place, expected):
    document = read_documents(text, "f.yaml")[0][-1]

    assert document.position_within(("e",), *place) == Position(*expected)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        pytest.param("a: [1", (1, 6), "not YAML", id="unclosed"),
        pytest.param("a: 1\na: 2", (2, 1), "field `a` is given twice", id="duplicate-key"),
        pytest.param("a: {? [x] : 1}", (1, 7), "a field's name must be a string", id="complex-key"),
        pytest.param("a: !!python/object:os.x {}", (1, 4), "unknown tag", id="unknown-tag"),
        pytest.param("a: !mine x", (1, 4), "unknown tag `!mine`", id="own-tag"),
        pytest.param("a: !!bool x", (1, 4), "`x` is not `true` or `false`", id="no-bool"),
        pytest.param("a: !!int ''", (1, 4), "`` is not a number", id="no-number"),
        pytest.param("a: .nan", (1, 4), "JSON has no `.nan`", id="not-a-number"),
        pytest.param("a: &x [*x]", (1, 4), "an alias contains itself", id="endless-alias"),
        pytest.param("a: b: c", (1, 5), "mapping values are not allowed", id="colon"),
        pytest.param(b"ok: 1\nb: \xff", (2, 1), "not UTF-8: byte 0xff", id="not-utf-8"),
        pytest.param("[" * 100_000, (1, 201), "nested too deep", id="deep"),
    ],
)
def test_unreadable_data_is_reported_with_its_place(text, place, message):
    documents, findings = read_documents(text, "f.yaml")

    assert not documents
    assert message in findings[0].message
    assert (findings[0].line, findings[0].column) == place


def test_an_alias_bomb_is_refused():
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 40)}]" for n in range(1, 40)]

    _, findings = read_documents("\n".join(lines), "bomb.yaml")

    assert findings[0].message == "too many aliases"


def test_the_documents_around_a_broken_one_are_read():
    documents, findings = read_documents("a: 1\n---\na: [\n---\na: 3\n", "f.yaml")

    assert [d.value for d in documents] == [{"a": 1}, {"a": 3}]
    assert [f.line for f in findings] == [3]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a: 2027-01-31", "2027-01-31", id="dates-stay-text"),
        pytest.param("a: 1:30", "1:30", id="no-sexagesimal"),
        pytest.param("a: yes", True, id="yes-is-true"),
        pytest.param("a: 010", 8, id="octal"),
        pytest.param("a: 1.5", 1.5, id="float"),
        pytest.param("a: 123456789012345678901234567890", 123456789012345678901234567890, id="big"),
        pytest.param("a:", None, id="null"),
        pytest.param("a: 'yes'", "yes", id="quoted"),
    ],
)
def test_scalars_are_read_as_the_api_servers_tools_do(text, expected):
    assert only(text).value == {"a": expected}


def test_merge_keys_are_merged_and_explicit_fields_win():
    document = only("base: &b {x: 1, y: 2}\nmine: {<<: *b, y: 3}\n")

    assert document.value["mine"] == {"x": 1, "y": 3}
    assert document.position(("mine", "x")) == Position(1, 14)


def test_a_list_is_taken_apart_with_its_positions():
    documents, _ = read_documents("kind: List\nitems:\n- kind: A\n- kind: B\n", "f.yaml")

    assert [d.value["kind"] for d in documents] == ["A", "B"]
    assert documents[1].position(("kind",)) == Position(4, 9)


def test_a_finding_shows_its_line_with_a_caret_below_the_column():
    document = only("kind: Policy\nspec: {x: 1}\n")

    finding = document.finding("unknown field `x`", ("spec", "x"), of_key=True)

    assert str(finding) == "f.yaml:2:8: unknown field `x`"
    assert caret_lines(finding) == ["  2 | spec: {x: 1}", "    |        ^"]


def test_a_finding_without_a_text_names_the_field():
    finding = Document({"a": [1]}, "Policy/x").finding("is no text", ("a", 0))

    assert str(finding) == "Policy/x: a[0]: is no text"


ALIASES = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(ALIASES, "too many aliases", id="of-aliases"),
        pytest.param(
            f"a: &a {'x' * 2_000}\nb: [{','.join(['*a'] * 60)}]", "too many aliases", id="of-a-text"
        ),
        pytest.param(
            f"a: &a {{k: {'x' * 2_000}}}\n" + "".join(f"b{n}: {{<<: *a}}\n" for n in range(60)),
            "too many aliases",
            id="merged",
        ),
        pytest.param(f"a: 0x{'f' * 1_000}", "the number is too large", id="number"),
        pytest.param(f"a: {'9' * 400}", "the number is too large", id="decimal"),
    ],
)
def test_oversized_expansions_are_not_read(text, message):
    documents, findings = read_documents(f"good: 1\n---\n{text}", "a.yaml")

    assert [document.value for document in documents] == [{"good": 1}]
    assert message in findings[0].message
    assert findings[0].line > 1


def test_as_many_aliases_as_people_write_are_read():
    text = "a: &a {k: [1, 2]}\n" + "".join(f"b{n}: *a\n" for n in range(500))

    assert read_documents(text, "a.yaml")[1] == []


def test_documents_are_counted(monkeypatch):
    monkeypatch.setattr("policyd.engine.documents.reading.MOST_DOCUMENTS", 3)
    documents, findings = read_documents("a: 1\n---\n---\n# no\n---\na: 2\n---\na: 3\n", "a.yaml")

    assert [document.value for document in documents] == [{"a": 1}]
    assert (findings[0].line, findings[0].hint) == (5, "split the file")


def test_a_million_empty_documents_are_no_findings():
    documents, findings = read_documents("---\n" * 1_000_000, "a.yaml")

    assert documents == []
    assert len(findings) == 1
