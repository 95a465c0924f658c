"""Schemas bound what rules of CustomResourceDefinitions may cost."""

import pytest

from policyd.cel.environments import base_environment
from policyd.cel.estimate.estimator import estimate_cost
from policyd.cel.estimate.sizes import LARGEST_REQUEST, schema_sizes
from policyd.cel.types import DYN, STRING, Type, list_of, map_of

WORDS = {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 10}}
SCHEMA = {
    "type": "object",
    "properties": {
        "words": WORDS,
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "things": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "size"],
                "properties": {"name": {"type": "string"}, "size": {"type": "boolean"}},
            },
        },
        "labels": {
            "type": "object",
            "maxProperties": 7,
            "additionalProperties": {"type": "string", "enum": ["a", "abc"]},
        },
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "anything": {"type": "object", "additionalProperties": True},
        "text": {"type": "string"},
        "date": {"type": "string", "format": "date"},
        "number": {"type": "integer"},
    },
}
KINDS = {"words": list_of(STRING), "labels": map_of(STRING, STRING), "text": STRING}
ENVIRONMENT = base_environment().extend(
    variables={"self": Type("test.Self"), "other": DYN}, structs={"test.Self": KINDS}
)
SIZES = schema_sizes(SCHEMA)


@pytest.mark.parametrize(
    ("path", "most"),
    [
        pytest.param(("self", "words"), 5, id="list"),
        pytest.param(("self", "words", "@items"), 40, id="string-in-bytes"),
        pytest.param(("self", "words", "@indices"), 1, id="index"),
        pytest.param(("self", "numbers"), (LARGEST_REQUEST - 2) // 2, id="list-of-a-request"),
        pytest.param(("self", "things"), (LARGEST_REQUEST - 2) // 25, id="list-of-objects"),
        pytest.param(("self", "labels"), 7, id="map"),
        pytest.param(("self", "labels", "@keys"), LARGEST_REQUEST - 2, id="keys"),
        pytest.param(("self", "labels", "@values"), 3, id="enum"),
        pytest.param(("self", "map"), (LARGEST_REQUEST - 2) // 7, id="map-of-a-request"),
        pytest.param(("self", "anything"), (LARGEST_REQUEST - 2) // 8, id="map-of-anything"),
        pytest.param(("oldSelf", "text"), LARGEST_REQUEST - 2, id="string-of-a-request"),
        pytest.param(("self", "date"), 12, id="format"),
    ],
)
def test_a_value_is_no_larger_than_its_schema_or_the_request(path, most):
    size = SIZES(path, DYN)

    assert (size.least, size.most) == (0 if path[-1] != "@indices" else 1, most)


@pytest.mark.parametrize(
    "path",
    [(), ("other", "words"), ("self", "number"), ("self", "none"), ("self", "words", "none")],
    ids=str,
)
def test_of_all_else_nothing_is_known(path):
    assert SIZES(path, DYN) is None


def test_rules_have_a_bounded_cost():
    rule = "self.words.all(w, w.contains('ab')) && self.labels.all(k, self.labels[k] != self.text)"

    span = estimate_cost(rule, ENVIRONMENT, sizes=SIZES)

    assert span.is_bounded
    assert str(span) == "3 to 116"
    assert not estimate_cost(rule, ENVIRONMENT).is_bounded
