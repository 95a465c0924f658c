"""Objects that are checked at once are those that can be read value by value."""

import copy
import random

import pytest

from policyd.patch import readable
from policyd.patch.builtin_types import MistypedError, decode_typed
from policyd.patch.builtin_views import type_of
from tests.live.edits import edited

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "a", "labels": {"a": "b"}},
    "spec": {
        "replicas": 3,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "a",
                        "image": "b",
                        "ports": [{"containerPort": 80}],
                        "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
                    }
                ],
            }
        },
    },
}


def refusal(check, obj):
    try:
        check(copy.deepcopy(obj), type_of(obj))
    except MistypedError as error:
        return str(error)
    return ""


def test_it_agrees_with_the_reading_of_each_value(monkeypatch):
    monkeypatch.setattr(readable, "FEW", 0)
    check, choice = readable.Readability().check, random.Random(26)
    objects = [edited(DEPLOYMENT, choice) for _ in range(2000)]

    found = [refusal(check, obj) for obj in objects]

    assert found == [refusal(decode_typed, obj) for obj in objects]
    assert 300 < sum(map(bool, found)) < 1700


@pytest.mark.parametrize("amount", ["1e3", "-1", "0.0001", 1.5])
def test_what_is_rare_is_read_value_by_value(amount, monkeypatch):
    monkeypatch.setattr(readable, "FEW", 0)
    obj = copy.deepcopy(DEPLOYMENT)
    obj["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = amount

    assert not refusal(readable.Readability().check, obj)


def test_a_type_that_holds_itself_is_read_value_by_value(monkeypatch):
    monkeypatch.setattr(readable, "FEW", 0)
    schema = {"properties": {"a": {"maxLength": "long"}}}
    obj = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "a"},
        "spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]},
    }

    assert "maxLength of type int64" in refusal(readable.Readability().check, obj)


@pytest.mark.parametrize(
    ("field", "struct"),
    [("creationTimestamp", "metadata"), ("time", "managedFields")],
    ids=["a-field", "of-managed-fields"],
)
def test_an_empty_text_is_no_time(field, struct):
    part = {field: ""}
    obj = copy.deepcopy(DEPLOYMENT)
    obj["metadata"] |= part if struct == "metadata" else {struct: [part]}

    assert refusal(decode_typed, obj) == (
        'parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"'
    )
