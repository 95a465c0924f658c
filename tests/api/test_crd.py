"""The CustomResourceDefinitions follow from the wire types, and are written down."""

import gzip
import json
from base64 import b64encode
from typing import Annotated, Literal

import msgspec
import pytest
import yaml

from policyd.api.crd import KINDS, definition, schema
from policyd.api.crd_v1beta1 import old_versions
from policyd.api.meta import Wire
from policyd.api.schema import PRESERVED, REQUIRED, QuantityText, at_least, keyed, unordered
from policyd.field_descriptions import field_descriptions
from tests.generate_crds import FOLDER, FULL_FOLDER, documents
from tests.schemas import undescribed

ANNOTATIONS = 256 * 1024
"""Bytes that all annotations of an object may have: kubectl keeps a definition in one."""
SECRET = 1024 * 1024
"""Bytes that a Secret may have: helm keeps a release in one, packed."""

OBJECT = {
    "type": "object",
    "description": "One of many.",
    "properties": {"name": {"type": "string"}},
}


class Part(Wire, frozen=True):
    """One of many."""

    name: str


class Whole(Wire, frozen=True):
    """Everything a field can be."""

    text: str
    quantity: QuantityText
    either: str | Part
    needed: Annotated[tuple[str, ...], REQUIRED] = ()
    choice: Literal["Hold", "None"] = "None"
    count: Annotated[int, at_least(1)] = 1
    flag: bool = True
    empty: str = ""
    maybe: int | None = None
    labels: dict[str, str] = {}
    parts: Annotated[tuple[Part, ...], keyed("name", limit=8)] = ()
    names: Annotated[tuple[str, ...], unordered()] = ()
    template: Annotated[Part | None, PRESERVED] = None


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        pytest.param("text", {"type": "string"}, id="text"),
        pytest.param("quantity", {"x-kubernetes-int-or-string": True}, id="quantity"),
        pytest.param("either", {"x-kubernetes-preserve-unknown-fields": True}, id="union"),
        pytest.param(
            "choice",
            {"type": "string", "enum": ["Hold", "None"], "default": "None"},
            id="closed-set-with-default",
        ),
        pytest.param("count", {"type": "integer", "minimum": 1, "default": 1}, id="bounded"),
        pytest.param("flag", {"type": "boolean", "default": True}, id="true-by-default"),
        pytest.param("empty", {"type": "string"}, id="empty-default-is-none"),
        pytest.param("maybe", {"type": "integer"}, id="optional"),
        pytest.param(
            "labels",
            {"type": "object", "additionalProperties": {"type": "string"}},
            id="map",
        ),
        pytest.param(
            "parts",
            {
                "type": "array",
                "items": {**OBJECT, "required": ["name"]},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "maxItems": 8,
            },
            id="list-with-keys",
        ),
        pytest.param(
            "names",
            {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            id="set",
        ),
        pytest.param(
            "template",
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            id="stored-unread",
        ),
    ],
)
def test_a_field_becomes_the_schema_of_its_type(field, expected):
    assert schema(Whole)["properties"][field] == expected


def test_fields_without_default_are_required_and_so_are_those_marked():
    assert schema(Whole)["required"] == ["text", "quantity", "either", "needed"]


def test_a_type_without_schema_is_refused():
    class Odd(Wire, frozen=True):
        number: float

    with pytest.raises(TypeError, match="no schema"):
        schema(Odd)


def test_every_list_with_keys_requires_or_defaults_them():
    for kind in KINDS:
        for items, keys in keyed_lists(schema(kind.type)):
            for key in keys:
                given = key in items.get("required", ()) or "default" in items["properties"][key]
                assert given, f"{kind.plural}: {key}"


def keyed_lists(part):
    if not isinstance(part, dict):
        return
    if part.get("x-kubernetes-list-type") == "map":
        yield part["items"], part["x-kubernetes-list-map-keys"]
    for value in part.values():
        yield from keyed_lists(value)


def test_columns_and_selectable_fields_name_fields_of_the_schema():
    for kind in KINDS:
        properties = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for path in [*(column.path for column in kind.columns), *kind.selectable]:
            step = properties
            for name in path.split("[")[0].strip(".").split("."):
                if step == {"type": "object"}:
                    break
                step = step["properties"][name]


def properties_of(name, part, **options):
    (kind,) = (kind for kind in KINDS if kind.type.__name__ == name)
    whole = definition(kind, **options)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return whole["properties"][part]["properties"]


def test_kubectl_prints_zero_where_nothing_waits():
    for kind in ("ClusterQueue", "LocalQueue"):
        status = properties_of(kind, "status")
        assert status["pendingWorkloads"]["default"] == 0
        assert status["admittedWorkloads"]["default"] == 0


def definitions_with_notes():
    for full in (False, True):
        for kind in KINDS:
            made = definition(kind, notes=field_descriptions, full=full)
            yield f"{kind.plural} full={full}", made["spec"]["versions"][0]
    yield from old_versions(notes=field_descriptions).items()


DESCRIBED = dict(definitions_with_notes())


@pytest.mark.parametrize("version", DESCRIBED.values(), ids=DESCRIBED)
def test_every_field_says_what_it_means(version):
    assert undescribed(version["schema"]["openAPIV3Schema"]) == []


def test_without_notes_only_descriptions_above_fields_are_kept():
    spec = properties_of("ClusterQueue", "spec")
    assert "description" not in spec["cohortName"]
    assert spec["preemption"]["description"] == (
        "The workloads that the queue's workloads may preempt."
    )

    spec = properties_of("Policy", "spec", notes=field_descriptions)
    assert spec["matchConditions"]["description"].startswith("Which of those it concerns, by CEL")
    rules = spec["matchConstraints"]["properties"]["resourceRules"]
    assert rules["description"].startswith("The requests that the policy matches")


def test_no_definition_is_too_large_for_kubectl_nor_all_of_them_for_helm():
    texts = [json.dumps(yaml.safe_load(text)) for text in documents(full=True).values()]
    assert max(map(len, texts)) < ANNOTATIONS / 4

    files = [file for file in FOLDER.parent.rglob("*") if file.is_file()]
    chart = b64encode(b"".join(file.read_bytes() for file in files))
    assert len(b64encode(gzip.compress(chart))) < SECRET / 4


def test_a_status_is_a_subresource():
    with_status = {
        kind.type.__name__
        for kind in KINDS
        if definition(kind)["spec"]["versions"][0].get("subresources") == {"status": {}}
    }

    assert with_status == {
        "AdmissionCheck",
        "ClusterQueue",
        "Cohort",
        "LocalQueue",
        "MultiKueueCluster",
        "Policy",
        "PolicyBinding",
        "Workload",
    }


def test_default_values_are_accepted_on_reading():
    for kind in KINDS:
        if not any(field.required for field in msgspec.structs.fields(kind.type)):
            assert msgspec.json.decode(b"{}", type=kind.type).kind == kind.type.__name__


@pytest.mark.parametrize(("folder", "full"), [(FOLDER, False), (FULL_FOLDER, True)])
def test_the_chart_has_the_definitions_as_they_are_now(folder, full):
    written = {path.name: path.read_text() for path in folder.glob("*.yaml")}

    assert written == documents(full=full), "renew them: python -m tests.generate_crds"


def test_the_slim_schemas_have_neither_patterns_nor_rules():
    for kind in KINDS:
        schema = json.dumps(definition(kind))
        assert not any(f'"{word}"' in schema for word in ("pattern", "x-kubernetes-validations"))
        assert "x-policyd" not in schema + json.dumps(definition(kind, full=True))
