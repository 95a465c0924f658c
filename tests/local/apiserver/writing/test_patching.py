import asyncio

import pytest

from tests.local.apiserver.client import (
    APPLY,
    CONFIG_MAPS,
    JSON_PATCH,
    MERGE,
    PODS,
    STRATEGIC,
    config_map,
    pod,
)

pytestmark = pytest.mark.anyio

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def deployment(replicas=1, image="nginx:1"):
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": image}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template,
        },
    }


async def apply(api, body, manager, **query):
    path = f"{DEPLOYMENTS}/web"
    return await api.patch(path, body, APPLY, fieldManager=manager, **query)


@pytest.mark.parametrize(
    ("content_type", "change", "expected"),
    [
        pytest.param(
            JSON_PATCH,
            [
                {"op": "test", "path": "/data/a", "value": "1"},
                {"op": "replace", "path": "/data/a", "value": "2"},
                {"op": "add", "path": "/data/c", "value": "3"},
            ],
            {"a": "2", "b": "1", "c": "3"},
            id="json-patch",
        ),
        pytest.param(MERGE, {"data": {"a": None, "c": "3"}}, {"b": "1", "c": "3"}, id="merge"),
        pytest.param(STRATEGIC, {"data": {"a": "2"}}, {"a": "2", "b": "1"}, id="strategic"),
    ],
)
async def test_three_kinds_of_patches(api, content_type, change, expected):
    await api.create(CONFIG_MAPS, config_map(a="1", b="1"))

    reply = await api.patch(f"{CONFIG_MAPS}/one", change, content_type)

    assert (reply.code, reply.body["data"]) == (200, expected)


async def test_a_strategic_patch_merges_lists_by_their_keys(api):
    await api.create(DEPLOYMENTS, deployment())
    containers = [{"name": "web", "image": "nginx:2"}, {"name": "side", "image": "log:1"}]

    change = {"spec": {"template": {"spec": {"containers": containers}}}}
    reply = await api.patch(f"{DEPLOYMENTS}/web", change, STRATEGIC)

    found = reply.body["spec"]["template"]["spec"]["containers"]
    assert {c["name"]: c["image"] for c in found} == {"web": "nginx:2", "side": "log:1"}
    assert all(c["terminationMessagePolicy"] == "File" for c in found)


@pytest.mark.parametrize(
    ("content_type", "change", "code"),
    [
        pytest.param(
            JSON_PATCH,
            [{"op": "test", "path": "/data/a", "value": "9"}],
            422,
            id="test-fails",
        ),
        pytest.param(JSON_PATCH, [{"op": "remove", "path": "/data/z"}], 422, id="nothing-there"),
        pytest.param(JSON_PATCH, [{"op": "dance", "path": "/"}], 400, id="unknown-operation"),
        pytest.param(JSON_PATCH, {"data": {}}, 400, id="no-list"),
        pytest.param(JSON_PATCH, [{"op": "replace", "path": "", "value": []}], 422, id="no-object"),
        pytest.param(MERGE, [], 400, id="merge-of-a-list"),
        pytest.param(MERGE, {"kind": "Secret"}, 422, id="other-kind"),
        pytest.param(MERGE, {"data": "text"}, 422, id="other-type"),
        pytest.param("text/plain", {}, 415, id="other-format"),
    ],
)
async def test_a_patch_that_does_not_fit_changes_nothing(api, content_type, change, code):
    created = await api.create(CONFIG_MAPS, config_map(a="1"))

    reply = await api.patch(f"{CONFIG_MAPS}/one", change, content_type)

    assert reply.code == code
    assert (await api.get(f"{CONFIG_MAPS}/one")).body == created


async def test_a_patch_may_insist_on_a_version(api):
    created = await api.create(CONFIG_MAPS, config_map(a="1"))
    version = created["metadata"]["resourceVersion"]
    change = {"metadata": {"resourceVersion": version}, "data": {"a": "2"}}

    first = await api.patch(f"{CONFIG_MAPS}/one", change)
    second = await api.patch(f"{CONFIG_MAPS}/one", change)

    assert (first.code, second.code) == (200, 409)


async def test_patches_at_the_same_time_all_count(api):
    await api.create(CONFIG_MAPS, config_map())

    await asyncio.gather(
        *(api.patch(f"{CONFIG_MAPS}/one", {"data": {f"k{n}": "v"}}) for n in range(20))
    )

    assert len((await api.get(f"{CONFIG_MAPS}/one")).body["data"]) == 20


async def test_unknown_fields_in_a_patch_are_reported_of_the_patch(api):
    await api.create(PODS, pod())
    change = {"spec": {"colour": "red"}}

    warned = await api.patch(f"{PODS}/one", change)
    refused = await api.patch(f"{PODS}/one", change, fieldValidation="Strict")

    assert warned.headers["Warning"] == '299 - "unknown field \\"spec.colour\\""'
    assert refused.code == 422
    assert 'strict decoding error: unknown field "spec.colour"' in refused.message


async def test_applying_creates_and_then_changes(api):
    created = await apply(api, deployment(replicas=1), "ada")
    changed = await apply(api, deployment(replicas=2), "ada")

    assert (created.code, changed.code) == (201, 200)
    assert changed.body["spec"]["replicas"] == 2
    (entry,) = changed.body["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("ada", "Apply")


async def test_applying_the_same_again_is_no_change(api):
    first = await apply(api, deployment(), "ada")
    second = await apply(api, deployment(), "ada")

    assert second.body == first.body


async def test_omitted_fields_of_an_applier_are_dropped(api):
    full = deployment()
    full["metadata"]["labels"] = {"a": "1", "b": "2"}
    await apply(api, full, "ada")
    full["metadata"]["labels"] = {"a": "1"}

    reply = await apply(api, full, "ada")

    assert reply.body["metadata"]["labels"] == {"a": "1"}


async def test_appliers_conflict_until_one_forces(api):
    await apply(api, deployment(replicas=1), "ada")
    wish = {**deployment(), "spec": {"replicas": 5}}

    refused = await apply(api, wish, "bob")
    forced = await apply(api, wish, "bob", force="true")

    assert (refused.code, refused.body["reason"]) == (409, "Conflict")
    assert refused.message == 'Apply failed with 1 conflict: conflict with "ada": .spec.replicas'
    assert refused.body["details"]["causes"] == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "ada"',
            "field": ".spec.replicas",
        }
    ]
    assert (forced.code, forced.body["spec"]["replicas"]) == (200, 5)


async def test_applying_needs_to_say_who(api):
    reply = await api.patch(f"{DEPLOYMENTS}/web", deployment(), APPLY)

    assert reply.code == 422
    assert reply.message == (
        'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for'
        " apply patch"
    )


async def test_applying_as_a_dry_run_stores_nothing(api):
    reply = await apply(api, deployment(), "ada", dryRun="All")

    assert reply.code == 201
    assert (await api.get(f"{DEPLOYMENTS}/web")).code == 404


async def test_an_unknown_field_that_a_patch_sets_to_null_is_left_out(api):
    await api.create(CONFIG_MAPS, config_map(a="1"))

    change = [{"op": "add", "path": "/metadata/foo", "value": None}]
    change.append({"op": "add", "path": "/foo", "value": None})
    reply = await api.patch(f"{CONFIG_MAPS}/one", change, JSON_PATCH, fieldValidation="Strict")

    assert reply.code == 422
    assert 'unknown field "foo"' in reply.message
    assert 'unknown field "metadata.foo"' in reply.message
