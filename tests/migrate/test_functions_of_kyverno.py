"""Functions of JMESPath that need Kyverno's CEL, or that CEL has by other means."""

import jmespath
import pytest

from policyd.cel import Budget, admission_environment, compile_expression
from policyd.cel.values_as_json import as_json
from policyd.dialects.kyverno.environments import kyverno_environment, kyverno_values
from policyd.engine.model.dialects import Volatile
from policyd.migrate.cel_values import OutsideError, Untranslatable
from policyd.migrate.jmespath import translate, value_of

ROOTS = {"request.object": "object"}
NOW = 1_767_225_600 * 10**9  # 2026-01-01
OBJECT = {
    "metadata": {"name": "a", "labels": {"x": "1", "y": "2"}},
    "spec": {"replicas": 3},
    "data": {"json": '{"a": [1, 2]}', "yaml": "a: {b: c}", "text": "eu.gcr.io/team/app:1"},
    "created": "2025-12-31T00:00:00Z",
}


def evaluated(text, environment):
    program = compile_expression(text, environment)
    return as_json(program.evaluate({**kyverno_values(), "object": OBJECT}, Budget()))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("md5('a')", "0cc175b9c0f1b6a831c399e269772661"),
        ("sha1('a')", "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8"),
        ("length(sha256(request.object.metadata.name))", 64),
        ("base64_encode('a')", "YQ=="),
        ("base64_decode('YQ==')", "a"),
        ("parse_json(request.object.data.json).a[1]", 2),
        ("parse_yaml(request.object.data.yaml).a.b", "c"),
        ("regex_replace_all('^(\\w+)\\.gcr\\.io/', request.object.data.text, '$1-${1}$$/')",
         "eu-eu$/team/app:1"),
        ("regex_replace_all_literal('a.', 'abac', '$1')", "$1$1"),
        ("to_string(request.object.metadata.labels)", '{"x":"1","y":"2"}'),
        ("time_now_utc()", "2026-01-01T00:00:00Z"),
        ("time_add(time_now(), '1h')", "2026-01-01T01:00:00Z"),
        ("time_since('', request.object.created, '')", "86400s"),
        ("time_truncate(time_now(), '24h')", "2026-01-01T00:00:00Z"),
        ("time_to_cron(time_now())", "0 0 1 1 4"),
        ("length(random('[a-z]{5}'))", 5),
    ],
)  # fmt: skip
def test_functions_become_those_of_kyverno(expression, expected):
    environment = kyverno_environment(
        volatile=Volatile(now=lambda: NOW, random_below=lambda _most: 0)
    )

    text = value_of(expression, ROOTS, kyverno=True).text

    assert evaluated(text, environment) == expected
    with pytest.raises(OutsideError, match="of Kyverno's own kinds"):
        value_of(expression, ROOTS)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("avg(`[1, 2, 6]`)", 3.0),
        ("compare('a', 'b')", -1),
        ("compare('b', 'b')", 0),
        ("merge(request.object.metadata.labels, {x: null})", {"x": None, "y": "2"}),
        ("merge(request.object.metadata.labels, `{\"x\": \"3\", \"z\": \"4\"}`)",
         {"x": "3", "y": "2", "z": "4"}),
        ("merge(`{\"a\": 1}`, {b: request.object.metadata.name, c: request.object.metadata.gone})",
         {"a": 1, "b": "a", "c": None}),
        ("object_from_lists(`[\"a\", \"b\"]`, `[1, 2]`)", {"a": 1, "b": 2}),
        ("time_after('2025-01-01T00:00:00Z', '2024-01-01T00:00:00Z')", True),
        ("time_before('2025-01-01T00:00:00Z', '2024-01-01T00:00:00Z')", False),
        ("time_between(request.object.created, '2025-01-01T00:00:00Z', '2026-01-01T00:00:00Z')",
         True),
        ("time_diff('', '2025-01-01T00:00:00Z', '2025-01-01T00:01:00Z')", "60s"),
        ("time_since('', '2025-01-01T00:00:00Z', '2025-01-01T00:01:00Z')", "60s"),
        ("time_utc('2025-01-01T01:00:00+01:00')", "2025-01-01T00:00:00Z"),
        ("regex_replace_all(':.*', request.object.data.text, '')", "eu.gcr.io/team/app"),
    ],
)  # fmt: skip
def test_functions_that_any_kind_of_policy_has(expression, expected):
    text = translate(expression, ROOTS)

    assert evaluated(text, admission_environment()) == expected


def test_merge_is_that_of_jmespath():
    expression = "merge(a, b, {d: a.x})"
    given = {"a": {"x": 1, "y": 2}, "b": {"y": 3, "z": 4}}
    roots = {name: f"{{{', '.join(f'{k!r}: {v}' for k, v in of.items())}}}"
             for name, of in given.items()}  # fmt: skip

    found = evaluated(translate(expression, roots), admission_environment())

    assert found == jmespath.search(expression, given)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("regex_replace_all('a', 'b', '$name')", "names the group `name`"),
        ("regex_replace_all('a', 'b', '$10')", "names the group `10`"),
        ("regex_replace_all('a', 'b', request.object.metadata.name)", "that is computed"),
        ("time_since('2006', 'a', '')", "RFC 3339 only"),
        ("path_canonicalize('a')", "no function such as path_canonicalize"),
        ("md5()", "does not take 0 arguments"),
    ],
)
def test_what_has_no_counterpart_is_refused(expression, reason):
    with pytest.raises(Untranslatable, match=reason):
        value_of(expression, ROOTS, kyverno=True)
