import json

import pytest

from tests.local.apiserver.client import APPLY, STRATEGIC

pytestmark = pytest.mark.anyio

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRON_TABS = "/apis/example.com/v1/namespaces/default/crontabs"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}

SPEC = {
    "type": "object",
    "required": ["schedule"],
    "properties": {
        "schedule": {"type": "string", "pattern": "^[0-9* ]+$", "maxLength": 9, "minLength": 2},
        "replicas": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
        "mode": {"type": "string", "enum": ["a", "b"]},
        "port": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
        "when": {"type": "string", "format": "date-time"},
        "nothing": {"type": "string", "nullable": True},
        "steps": {
            "type": "array",
            "maxItems": 3,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "tries": {"type": "integer", "default": 3},
                },
            },
        },
    },
}


def version(name="v1", *, storage=True, spec=SPEC, **more):
    status = {
        "type": "object",
        "properties": {"replicas": {"type": "integer"}, "ready": {"type": "string"}},
    }
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        **more,
    }


def definition(*versions):
    names = {"plural": "crontabs", "kind": "CronTab", "shortNames": ["ct"]}
    group = {"group": "example.com", "scope": "Namespaced", "names": names}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "crontabs.example.com"},
        "spec": {**group, "versions": list(versions or [version()])},
    }


def cron_tab(*, name="one", api_version="example.com/v1", **spec):
    kind = {"apiVersion": api_version, "kind": "CronTab", "metadata": {"name": name}}
    return kind | {"spec": {"schedule": "* *", **spec}}


async def test_a_definition_is_established_and_served_at_once(api):
    created = await api.create(DEFINITIONS, definition())

    conditions = {c["type"]: c["status"] for c in created["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert created["status"]["storedVersions"] == ["v1"]
    assert (await api.get(CRON_TABS)).body["kind"] == "CronTabList"


async def test_defaults_are_filled_in_and_unknown_fields_pruned(api):
    await api.create(DEFINITIONS, definition())

    given = cron_tab(colour="red", steps=[{"name": "a", "x": 1}], free={"any": {"thing": 1}})
    reply = await api.send("POST", CRON_TABS, given)

    assert reply.body["spec"] == {
        "schedule": "* *",
        "replicas": 1,
        "steps": [{"name": "a", "tries": 3}],
        "free": {"any": {"thing": 1}},
    }
    assert sorted(reply.headers.getall("Warning")) == [
        '299 - "unknown field \\"spec.colour\\""',
        '299 - "unknown field \\"spec.steps[0].x\\""',
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"schedule": None}, "spec.schedule: Required value", id="required"),
        pytest.param(
            {"schedule": "daily"},
            'spec.schedule: Invalid value: "daily": spec.schedule in body should match'
            " '^[0-9* ]+$'",
            id="pattern",
        ),
        pytest.param(
            {"schedule": "* * * * * *"},
            "spec.schedule: Too long: may not be more than 9 bytes",
            id="too-long",
        ),
        pytest.param(
            {"replicas": 0},
            "spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or"
            " equal to 1",
            id="minimum",
        ),
        pytest.param(
            {"replicas": "2"},
            'spec.replicas: Invalid value: "string": spec.replicas in body must be of type'
            ' integer: "string"',
            id="type",
        ),
        pytest.param(
            {"mode": "c"},
            'spec.mode: Unsupported value: "c": supported values: "a", "b"',
            id="enum",
        ),
        pytest.param(
            {"when": "now"},
            'spec.when: Invalid value: "now": spec.when in body must be of type date-time: "now"',
            id="format",
        ),
        pytest.param(
            {"limits": {"x": "y"}},
            'spec.limits.x: Invalid value: "string": spec.limits.x in body must be of type'
            ' integer: "string"',
            id="map-value",
        ),
        pytest.param(
            {"steps": [{"name": "a"}, {"name": "a"}]},
            'spec.steps[1]: Duplicate value: {"name":"a"}',
            id="duplicate-key",
        ),
        pytest.param(
            {"steps": [{"name": n} for n in "abcd"]},
            "spec.steps: Too many: 4: must have at most 3 items",
            id="too-many",
        ),
    ],
)
async def test_violations_of_the_schema_are_invalid(api, spec, message):
    await api.create(DEFINITIONS, definition())
    given = cron_tab(**spec)
    given["spec"] = {name: value for name, value in given["spec"].items() if value is not None}

    reply = await api.send("POST", CRON_TABS, given)

    assert reply.code == 422
    assert reply.message == f'CronTab.example.com "one" is invalid: {message}'


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"port": 80}, id="int-or-string-as-int"),
        pytest.param({"port": "http"}, id="int-or-string-as-string"),
        pytest.param({"nothing": None}, id="nullable"),
        pytest.param({"limits": {"a": 1}}, id="map"),
        pytest.param({"when": "2026-01-02T03:04:05Z"}, id="moment"),
    ],
)
async def test_valid_objects_are_stored_unchanged(api, spec):
    await api.create(DEFINITIONS, definition())

    created = await api.create(CRON_TABS, cron_tab(**spec))

    assert created["spec"].items() >= spec.items()


@pytest.mark.parametrize("depth", [pytest.param(d, id=f"{d}-levels") for d in (300, 950, 1500)])
async def test_depth_has_an_end_and_the_server_none(api, depth):
    await api.create(DEFINITIONS, definition())
    body = json.dumps(cron_tab(free={"x": 0})).replace(
        '{"x": 0}', '{"x":' * depth + "0" + "}" * depth
    )

    reply = await api.send("POST", CRON_TABS, body.encode())

    assert reply.code == (201 if depth == 300 else 400)
    assert (await api.get(CRON_TABS)).code == 200


async def test_rules_are_checked_on_creation_and_on_change(api):
    rules = [
        {"rule": "self.replicas <= 5", "message": "too many"},
        {"rule": "self.replicas >= oldSelf.replicas", "messageExpression": "'only up'"},
    ]
    await api.create(
        DEFINITIONS, definition(version(spec=SPEC | {"x-kubernetes-validations": rules}))
    )

    refused = await api.send("POST", CRON_TABS, cron_tab(replicas=6))
    await api.create(CRON_TABS, cron_tab(replicas=3))
    down = await api.patch(f"{CRON_TABS}/one", {"spec": {"replicas": 2}})

    assert refused.message == (
        'CronTab.example.com "one" is invalid: spec: Invalid value: too many'
    )
    assert down.message.endswith("spec: Invalid value: only up")


async def test_a_rule_that_does_not_compile_is_refused_with_the_definition(api):
    rules = [{"rule": "self.replicas +"}]
    broken = definition(version(spec=SPEC | {"x-kubernetes-validations": rules}))

    reply = await api.send("POST", DEFINITIONS, broken)

    assert reply.code == 422
    assert "compilation failed: ERROR: <input>:1:" in reply.message


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        pytest.param({"mode": "b"}, 200, id="another-field-changes"),
        pytest.param({"replicas": 9}, 200, id="it-becomes-valid"),
        pytest.param({"replicas": 4}, 422, id="it-stays-invalid-and-changes"),
        pytest.param({"limits": {"x": True}}, 422, id="an-equal-value-of-another-type"),
    ],
)
async def test_a_field_may_stay_that_a_stricter_schema_forbids(api, spec, code):
    await api.create(DEFINITIONS, definition())
    await api.create(CRON_TABS, cron_tab(schedule="* *", replicas=5, limits={"x": 1}))
    stricter = {**SPEC["properties"], "replicas": {"type": "integer", "minimum": 6}}
    versions = [version(spec={**SPEC, "properties": stricter})]
    await api.patch(f"{DEFINITIONS}/crontabs.example.com", {"spec": {"versions": versions}})

    reply = await api.patch(f"{CRON_TABS}/one", {"spec": spec})

    assert reply.code == code


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            {"metadata": {"name": "other.example.com"}},
            'metadata.name: Invalid value: "other.example.com": must be'
            ' spec.names.plural+"."+spec.group',
            id="name",
        ),
        pytest.param(
            {"spec": {**definition()["spec"], "versions": []}},
            "spec.versions: Invalid value: []: must have exactly one version marked as storage"
            " version",
            id="no-version",
        ),
        pytest.param(
            {"spec": {**definition()["spec"], "scope": "World"}},
            'spec.scope: Unsupported value: "World": supported values: "Cluster", "Namespaced"',
            id="scope",
        ),
    ],
)
async def test_a_definition_that_makes_no_sense_is_invalid(api, change, message):
    reply = await api.send("POST", DEFINITIONS, definition() | change)

    assert (reply.code, message in reply.message) == (422, True), reply.message


async def test_a_status_subresource_keeps_status_and_spec_apart(api):
    await api.create(DEFINITIONS, definition(version(subresources={"status": {}})))
    created = await api.create(CRON_TABS, cron_tab() | {"status": {"ready": "yes"}})

    both = {"spec": {"replicas": 2}, "status": {"ready": "yes"}}
    main = await api.patch(f"{CRON_TABS}/one", both)
    status = await api.patch(f"{CRON_TABS}/one/status", {**both, "spec": {"replicas": 9}})

    assert "status" not in created
    assert "status" not in main.body
    assert status.body["status"] == {"ready": "yes"}
    assert status.body["spec"]["replicas"] == 2
    assert status.body["metadata"]["generation"] == 2


async def test_a_scale_subresource_follows_the_paths_of_the_definition(api):
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    await api.create(DEFINITIONS, definition(version(subresources={"scale": scale})))
    await api.create(CRON_TABS, cron_tab(replicas=2))

    reply = await api.patch(f"{CRON_TABS}/one/scale", {"spec": {"replicas": 4}})

    assert reply.body["spec"] == {"replicas": 4}
    assert (await api.get(f"{CRON_TABS}/one")).body["spec"]["replicas"] == 4


async def test_printer_columns_fill_the_table(api):
    columns = [
        {"name": "Schedule", "type": "string", "jsonPath": ".spec.schedule"},
        {"name": "Tries", "type": "integer", "jsonPath": ".spec.steps[?(@.name=='b')].tries"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    await api.create(DEFINITIONS, definition(version(additionalPrinterColumns=columns)))
    await api.create(CRON_TABS, cron_tab(steps=[{"name": "a"}, {"name": "b", "tries": 7}]))

    table = (await api.get(CRON_TABS, headers=TABLE)).body

    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Schedule", "Tries", "Age"]
    assert table["rows"][0]["cells"][:3] == ["one", "* *", 7]


async def test_one_object_is_served_in_every_version(api):
    await api.create(DEFINITIONS, definition(version("v1"), version("v2", storage=False)))
    await api.create(CRON_TABS, cron_tab())

    path = CRON_TABS.replace("v1", "v2")
    found = await api.get(f"{path}/one")
    changed = await api.patch(f"{path}/one", {"spec": {"replicas": 2}})

    assert found.body["apiVersion"] == "example.com/v2"
    assert changed.body["apiVersion"] == "example.com/v2"
    assert (await api.get(f"{CRON_TABS}/one")).body["spec"]["replicas"] == 2


async def test_applying_merges_lists_by_the_keys_of_the_schema(api):
    await api.create(DEFINITIONS, definition())
    path = f"{CRON_TABS}/one"
    await api.patch(path, cron_tab(steps=[{"name": "a"}]), APPLY, fieldManager="ada")
    given = cron_tab(steps=[{"name": "b"}])

    reply = await api.patch(path, given, APPLY, fieldManager="bob", force="true")

    assert [step["name"] for step in reply.body["spec"]["steps"]] == ["a", "b"]


async def test_custom_kinds_have_no_strategic_merge(api):
    await api.create(DEFINITIONS, definition())
    await api.create(CRON_TABS, cron_tab())

    assert (await api.patch(f"{CRON_TABS}/one", {}, STRATEGIC)).code == 415


async def test_an_update_of_a_custom_object_needs_its_version(api):
    await api.create(DEFINITIONS, definition())
    await api.create(CRON_TABS, cron_tab())

    reply = await api.send("PUT", f"{CRON_TABS}/one", cron_tab())

    assert reply.code == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified" in reply.message


async def test_objects_go_with_their_definition(api):
    await api.create(DEFINITIONS, definition())
    await api.create(CRON_TABS, cron_tab())

    await api.delete(f"{DEFINITIONS}/crontabs.example.com")
    gone = await api.get(CRON_TABS)
    await api.create(DEFINITIONS, definition())

    assert (gone.code, gone.body) == (404, "404 page not found\n")
    assert (await api.get(CRON_TABS)).body["items"] == []


async def test_a_selectable_field_can_be_selected_by(api):
    fields = [{"jsonPath": ".spec.mode"}]
    await api.create(DEFINITIONS, definition(version(selectableFields=fields)))
    for name, mode in (("x", "a"), ("y", "b")):
        await api.create(CRON_TABS, cron_tab(name=name, mode=mode))

    reply = await api.get(CRON_TABS, fieldSelector="spec.mode=b")

    assert [item["metadata"]["name"] for item in reply.body["items"]] == ["y"]
