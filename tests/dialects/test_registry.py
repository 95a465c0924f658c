"""The engine reads the formats that it is given, and no other."""

import pytest

from policyd.dialects.exports import EXPORTS
from policyd.dialects.registry import EVERY_FORMAT, FORMATS
from policyd.engine.compile.load import load_policies
from policyd.engine.compile.native import read_policy
from policyd.engine.compile.placeholders import compiled_placeholders, draft_of
from policyd.engine.compile.policies import Form, compile_policy
from policyd.engine.documents.reading import Document
from policyd.engine.model.compiled import VALIDATING
from policyd.engine.model.dialects import Dialect, FormatContent, PolicyFormat, native_environments
from tests.engine.reviews import policy

FOREIGN = """\
apiVersion: example.com/v1
kind: Guard
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - expression: "%s"
"""
KYVERNO = FOREIGN.replace("example.com/v1", "policies.kyverno.io/v1").replace(
    "Guard", "ValidatingPolicy"
)
GUARD = Form(kind="Guard", environments=native_environments)


def is_guard(value):
    return value["apiVersion"] == "example.com/v1"


def load_guard(document, dialect):
    native = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": VALIDATING}
    read, findings = read_policy(Document(document.value | native, document.source))
    made = compile_policy(read, document, GUARD, dialect)
    if isinstance(made, list):
        return FormatContent([*findings, *made])
    return FormatContent(findings, [made])


def guard_placeholders(document, reason, dialect):
    return compiled_placeholders([draft_of(document, GUARD)], document, reason, dialect)


MADE_UP = PolicyFormat(
    name="guards",
    reads=is_guard,
    guards=is_guard,
    load=load_guard,
    placeholders=guard_placeholders,
    misnamed=lambda document: [document.finding("not a Guard", ("kind",))],
    environments=native_environments,
)


@pytest.mark.parametrize(
    ("dialect", "kinds"),
    [
        pytest.param(Dialect(), [], id="none"),
        pytest.param(Dialect(formats=(MADE_UP,)), ["Guard"], id="made-up"),
        pytest.param(EVERY_FORMAT, ["ValidatingPolicy"], id="registered"),
        pytest.param(
            Dialect(formats=(MADE_UP, *FORMATS)), ["Guard", "ValidatingPolicy"], id="both"
        ),
    ],
)
def test_policies_of_the_formats_that_are_given_are_loaded(dialect, kinds):
    loaded = load_policies(f"{FOREIGN % 'true'}---\n{KYVERNO % 'true'}", "p.yaml", dialect)

    assert [each.kind for each in loaded.policies] == kinds
    assert len(loaded.objects) == 2 - len(kinds)


def test_a_format_stands_in_for_its_broken_policies():
    loaded = load_policies(FOREIGN % "nobody", "p.yaml", Dialect(formats=(MADE_UP,)))

    (placeholder,) = loaded.placeholders
    assert not loaded.policies
    assert placeholder.kind == "Guard"
    assert "nobody" in placeholder.unusable


def test_a_format_says_what_is_none_of_its_kinds():
    config_map = "{apiVersion: v1, kind: ConfigMap}"
    loaded = load_policies(config_map, "p.yaml", Dialect(formats=(MADE_UP,)))

    assert [each.message for each in loaded.findings] == ["not a Guard"]


def test_the_own_kind_needs_no_format():
    text = policy("validations: [{expression: 'true'}]")

    assert [each.kind for each in load_policies(text, "p.yaml").policies] == ["Policy"]


def test_every_format_is_exported():
    assert set(EXPORTS) == set(FORMATS)
