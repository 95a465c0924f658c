import pytest

from policyd.api import kinds
from tests.local.apiserver.client import PODS, pod
from tests.local.apiserver.test_custom_kinds import DEFINITIONS, definition

pytestmark = pytest.mark.anyio

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def references(value):
    """Yield every $ref in a document."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for part in value.values():
            yield from references(part)
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


async def test_groups_are_listed_with_their_versions(api):
    groups = (await api.get("/apis")).body["groups"]

    batch = next(group for group in groups if group["name"] == "batch")
    assert batch["preferredVersion"] == {"groupVersion": "batch/v1", "version": "v1"}
    assert (await api.get("/api")).body["versions"] == ["v1"]


async def test_resources_are_as_the_table_of_kinds_has_them(api):
    resources = (await api.get("/api/v1")).body["resources"]

    found = {resource["name"]: resource for resource in resources}
    known = kinds.resource("", "v1", "pods")
    assert found["pods"]["shortNames"] == list(known.short_names)
    assert found["pods"]["verbs"] == list(known.verbs)
    assert found["pods/eviction"]["kind"] == "Eviction"
    assert found["pods/eviction"]["group"] == "policy"


async def test_all_of_discovery_comes_in_one_document_when_asked_for(api):
    await api.create(DEFINITIONS, definition())

    reply = await api.get("/apis", headers={"Accept": AGGREGATED})

    assert reply.headers["Content-Type"] == AGGREGATED
    groups = {item["metadata"]["name"]: item for item in reply.body["items"]}
    (resource,) = groups["example.com"]["versions"][0]["resources"]
    assert (resource["resource"], resource["scope"]) == ("crontabs", "Namespaced")
    assert resource["shortNames"] == ["ct"]


async def test_custom_kinds_come_and_go(api):
    await api.create(DEFINITIONS, definition())
    served = await api.get("/apis/example.com/v1")
    await api.delete(f"{DEFINITIONS}/crontabs.example.com")
    gone = await api.get("/apis/example.com/v1")

    assert served.body["resources"][0]["kind"] == "CronTab"
    assert gone.code == 404


async def test_every_document_of_the_index_is_whole(api):
    await api.create(DEFINITIONS, definition())
    index = (await api.get("/openapi/v3")).body["paths"]

    for path, entry in index.items():
        document = (await api.get(f"/openapi/v3/{path}")).body
        schemas = document["components"]["schemas"]
        wanted = {ref.removeprefix("#/components/schemas/") for ref in references(document)}
        assert wanted <= schemas.keys(), path
        assert entry["serverRelativeURL"].startswith(f"/openapi/v3/{path}?hash=")


async def test_documents_say_how_lists_merge_and_what_patches_take(api):
    document = (await api.get("/openapi/v3/api/v1")).body

    spec = document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert spec["containers"]["x-kubernetes-patch-merge-key"] == "name"
    assert spec["containers"]["x-kubernetes-list-map-keys"] == ["name"]
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}} in patch[
        "parameters"
    ]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Pod"


async def test_the_index_changes_with_the_kinds(api):
    before = (await api.get("/openapi/v3")).body["paths"]
    await api.create(DEFINITIONS, definition())
    after = (await api.get("/openapi/v3")).body["paths"]

    assert "apis/example.com/v1" in after.keys() - before.keys()
    schema = (await api.get("/openapi/v3/apis/example.com/v1")).body["components"]["schemas"]
    assert schema["com.example.v1.CronTab"]["properties"]["metadata"]


async def test_the_second_version_of_openapi_has_nothing_in_it(api):
    assert (await api.get("/openapi/v2")).body == "\n\x032.0"


async def test_every_kind_that_is_listed_can_be_listed(api):
    await api.create(PODS, pod())
    reply = await api.get("/apis", headers={"Accept": AGGREGATED})

    for item in reply.body["items"]:
        for version in item["versions"]:
            for resource in version["resources"]:
                if "list" in resource["verbs"]:
                    group = f"{item['metadata']['name']}/{version['version']}"
                    path = f"/apis/{group}/{resource['resource']}"
                    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
                    assert (await api.get(path, headers=accept)).body["kind"] == "Table"
