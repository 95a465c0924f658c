"""What a structural schema lets a custom object keep."""

import pytest

from policyd.local.apiserver.custom.schema import prune

FREE = {"x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize(
    ("schema", "value", "kept"),
    [
        pytest.param({"properties": {"a": {}}}, {"a": 1, "b": 2}, {"a": 1}, id="what-is-known"),
        pytest.param(
            {"properties": {"a": FREE}}, {"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 1}}}, id="free"
        ),
        pytest.param(
            {"properties": {"a": FREE}}, {"a": [{"b": 1}]}, {"a": [{"b": 1}]}, id="a-free-list"
        ),
        pytest.param(
            {"properties": {"a": {"items": {"properties": {"b": {}}}}}},
            {"a": [{"b": 1, "c": 2}]},
            {"a": [{"b": 1}]},
            id="items-of-a-list",
        ),
        pytest.param(
            {"properties": {"a": {"additionalProperties": {"properties": {"b": {}}}}}},
            {"a": {"x": {"b": 1, "c": 2}}},
            {"a": {"x": {"b": 1}}},
            id="values-of-a-map",
        ),
    ],
)
def test_pruning_keeps(schema, value, kept):
    list(prune(value, schema))

    assert value == kept
