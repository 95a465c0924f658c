"""Discovery and OpenAPI: what the embedded server serves, it describes as the real one does.

It serves less, and says so by leaving it out: some groups, some versions, some subresources.
"""

import pytest

from policyd.local.apiserver.builtin import builtin_kinds
from tests.e2e.likeness.telling import raw

pytestmark = pytest.mark.e2e

SERVED = sorted({(kind.group, kind.version) for kind in builtin_kinds()})

AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}

OWN_WAYS = frozenset({"storageVersionHash"})
"""What says how the real server stores things."""


ANY = "object"
"""What may be anything, in the real document, has a type of its own name."""

ANYTHING = (ANY, ["array", ANY], ["object", ANY])

LISTS = ("List", "ListMeta", "ShardInfo")
"""Schemas of lists, which are all alike; those of reviews are described here, and nobody asks."""


def path_of(group, version):
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def by_name(entries, name):
    return {
        entry[name]: {key: value for key, value in entry.items() if key not in OWN_WAYS}
        for entry in entries
    }


@pytest.mark.parametrize(("group", "version"), SERVED)
def test_resources_are_described_the_same(servers, group, version):
    found = {
        who: by_name(raw(server, "GET", path_of(group, version), None)[2]["resources"], "name")
        for who, server in servers.items()
    }

    assert found["embedded"] == {name: found["real"].get(name) for name in found["embedded"]}


@pytest.mark.parametrize("root", ["/api", "/apis"])
def test_aggregated_discovery_describes_resources_the_same(servers, root):
    found = {
        who: resources_of(raw(server, "GET", root, None, AGGREGATED)[2])
        for who, server in servers.items()
    }

    assert found["embedded"] == {key: found["real"].get(key) for key in found["embedded"]}


def resources_of(document):
    """Return kinds and subresources by where they are; what a kind leaves out is seen by itself."""
    found = {}
    for group in document["items"]:
        for version in group["versions"]:
            for resource in version["resources"]:
                place = (group["metadata"].get("name", ""), version["version"])
                place += (resource["resource"],)
                for part in resource.pop("subresources", ()):
                    found[*place, part["subresource"]] = part
                found[place] = resource
    return found


@pytest.mark.parametrize(("group", "version"), SERVED)
def test_openapi_documents_describe_the_kinds(servers, group, version):
    path = f"/openapi/v3{path_of(group, version)}"
    kinds = {
        who: kinds_of(raw(server, "GET", path, None)[2], group, version)
        for who, server in servers.items()
    }

    served = {k.kind for k in builtin_kinds() if (k.group, k.version) == (group, version)}
    assert served <= kinds["embedded"]
    assert served <= kinds["real"]


def kinds_of(document, group, version):
    return {
        about["kind"]
        for schema in document["components"]["schemas"].values()
        for about in schema.get("x-kubernetes-group-version-kind", ())
        if (about["group"], about["version"]) == (group, version)
    }


@pytest.mark.parametrize(("group", "version"), SERVED)
def test_openapi_documents_give_fields_the_same_types(servers, group, version):
    path = f"/openapi/v3{path_of(group, version)}"
    fields = {who: fields_of(raw(server, "GET", path, None)[2]) for who, server in servers.items()}

    ours = {name: kind for name, kind in fields["embedded"].items() if kind not in ANYTHING}
    assert ours == {name: fields["real"].get(name) for name in ours}


def fields_of(document):
    """Return the type of each field, by the schema's name and its own."""
    return {
        (name.rpartition(".")[2], field): type_of(schema)
        for name, owner in document["components"]["schemas"].items()
        if not name.endswith(LISTS)
        for field, schema in owner.get("properties", {}).items()
    }


def type_of(schema):
    """Return what kubectl explains a field with: its type, and that of what is in it."""
    references = [schema, *schema.get("allOf", ())]
    target = next((part["$ref"] for part in references if "$ref" in part), "")
    inner = schema.get("items") or schema.get("additionalProperties")
    kind = schema.get("type") or target.rpartition(".")[2]
    return [kind, type_of(inner)] if isinstance(inner, dict) else kind
