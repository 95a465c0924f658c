"""Answers of the API server that are nested deeper than Python decodes."""

import json

import msgspec
import pytest

from policyd.kube.decoding import MOST_LEVELS, decode_event, decode_object, decode_page
from policyd.kube.errors import UndecodableError
from tests.kube.objects import Pod

DEEP = "[" * (MOST_LEVELS - 10) + "]" * (MOST_LEVELS - 10)


def obj(name, extra="[]"):
    metadata = json.dumps({"name": name, "namespace": "ml", "resourceVersion": "7"})
    return f'{{"kind":"Pod","metadata":{metadata},"status":{{"unknown":{extra}}}}}'


def test_an_object_that_is_nested_too_deep_is_named():
    with pytest.raises(
        UndecodableError, match="`ml/a` cannot be read: it is nested too deep"
    ) as caught:
        decode_object(obj("a", DEEP).encode(), Pod)

    assert (caught.value.key, caught.value.resource_version) == ("ml/a", "7")


@pytest.mark.parametrize(("type_", "deleted"), [("ADDED", False), ("DELETED", True)])
def test_so_is_that_of_an_event(type_, deleted):
    line = f'{{"type":"{type_}","object":{obj("a", DEEP)}}}'.encode()

    with pytest.raises(UndecodableError) as caught:
        decode_event(line, Pod)

    assert (caught.value.key, caught.value.deleted) == ("ml/a", deleted)


def test_the_other_objects_of_its_page_can_be_read():
    body = (
        f'{{"items":[{obj("a", DEEP)},{obj("b")}],"metadata":{{"resourceVersion":"9"}}}}'.encode()
    )

    with pytest.raises(UndecodableError):
        decode_page(body, Pod)
    page = decode_page(body, msgspec.Raw)

    assert decode_object(page.items[1], Pod).metadata.name == "b"
