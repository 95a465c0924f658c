import io

import pytest

from policyd.local.apiserver import ApiUser
from policyd.local.apiserver.requests import BODY_LIMIT
from tests.local.apiserver.client import CONFIG_MAPS, JOBS, PODS, config_map, job, pod, session_with

pytestmark = pytest.mark.anyio


async def test_a_new_object_gets_what_only_the_server_knows(api):
    created = await api.create(CONFIG_MAPS, config_map())

    about = created["metadata"]
    assert about["namespace"] == "default"
    assert len(about["uid"]) == 36
    assert about["creationTimestamp"].endswith("Z")
    assert int(about["resourceVersion"]) > 0


async def test_a_client_cannot_choose_uid_or_age(api):
    given = config_map()
    given["metadata"] |= {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z"}

    created = await api.create(CONFIG_MAPS, given)

    assert created["metadata"]["uid"] != "mine"
    assert not created["metadata"]["creationTimestamp"].startswith("2001")


async def test_names_are_generated_from_a_prefix(api):
    given = config_map()
    given["metadata"] = {"generateName": "run-"}

    first, second = [await api.create(CONFIG_MAPS, given) for _ in range(2)]

    assert first["metadata"]["name"].startswith("run-")
    assert len(first["metadata"]["name"]) == len("run-") + 5
    assert first["metadata"]["name"] != second["metadata"]["name"]


async def test_a_name_is_taken_only_once(api):
    await api.create(CONFIG_MAPS, config_map())

    reply = await api.send("POST", CONFIG_MAPS, config_map())

    assert (reply.code, reply.body["reason"]) == (409, "AlreadyExists")
    assert reply.message == 'configmaps "one" already exists'


@pytest.mark.parametrize(
    ("path", "body", "code", "message"),
    [
        pytest.param(
            "/api/v1/namespaces/nowhere/configmaps",
            config_map(),
            404,
            'namespaces "nowhere" not found',
            id="missing-namespace",
        ),
        pytest.param(
            CONFIG_MAPS,
            {**config_map(), "metadata": {"name": "a", "namespace": "other"}},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
            id="other-namespace",
        ),
        pytest.param(
            CONFIG_MAPS,
            {**config_map(), "apiVersion": "v2"},
            400,
            "the API version in the data (v2) does not match the expected API version (v1)",
            id="other-version",
        ),
        pytest.param(
            JOBS,
            job(parallelism="x"),
            400,
            'Job in version "v1" cannot be handled as a Job: json: cannot unmarshal string into Go'
            " struct field JobSpec.spec.parallelism of type int32",
            id="other-type",
        ),
        pytest.param(
            PODS,
            pod(containers=[{"name": "a", "image": "b", "resources": {"limits": {"cpu": "1x"}}}]),
            400,
            'Pod in version "v1" cannot be handled as a Pod: quantities must match the regular'
            " expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            id="no-quantity",
        ),
    ],
)
async def test_invalid_objects_are_refused_in_the_api_servers_words(api, path, body, code, message):
    reply = await api.send("POST", path, body)

    assert (reply.code, reply.message) == (code, message)


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        pytest.param(b"{", "application/json", 400, id="broken-json"),
        pytest.param(b"[]", "application/json", 400, id="no-object"),
        pytest.param(b"[" * 3000 + b"]" * 3000, "application/json", 400, id="too-deep"),
        pytest.param(b"\xff\xfe", "application/json", 400, id="no-text"),
        pytest.param(b"a: [", "application/yaml", 400, id="broken-yaml"),
        pytest.param(b"{}", "text/plain", 415, id="other-format"),
    ],
)
async def test_a_body_that_cannot_be_read_is_the_clients_fault(api, body, content_type, code):
    reply = await api.send("POST", CONFIG_MAPS, body, content_type=content_type)

    assert reply.code == code
    assert (await api.get(CONFIG_MAPS)).code == 200


async def test_a_body_that_is_too_large_is_refused(api):
    body = io.BytesIO(b'"' + b"x" * BODY_LIMIT + b'"')

    reply = await api.send("POST", CONFIG_MAPS, body)

    assert (reply.code, reply.message) == (413, "Request entity too large: limit is 3145728")


async def test_yaml_is_read_too(api):
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata: {a: b}\n"

    created = await api.create(CONFIG_MAPS, body, content_type="application/yaml")

    assert created["data"] == {"a": "b"}


async def test_an_update_needs_the_version_that_is_there(api):
    created = await api.create(CONFIG_MAPS, config_map(a="1"))
    changed = {**created, "data": {"a": "2"}}
    await api.send("PUT", f"{CONFIG_MAPS}/one", changed)

    reply = await api.send("PUT", f"{CONFIG_MAPS}/one", changed | {"data": {"a": "3"}})

    assert (reply.code, reply.body["reason"]) == (409, "Conflict")
    assert reply.message == (
        'Operation cannot be fulfilled on configmaps "one": the object has been modified; please'
        " apply your changes to the latest version and try again"
    )


async def test_an_update_without_a_version_always_wins(api):
    await api.create(CONFIG_MAPS, config_map(a="1"))

    reply = await api.send("PUT", f"{CONFIG_MAPS}/one", config_map(a="2"))

    assert (reply.code, reply.body["data"]) == (200, {"a": "2"})


async def test_an_update_that_changes_nothing_is_no_new_version(api):
    created = await api.create(CONFIG_MAPS, config_map(a="1"))

    reply = await api.send("PUT", f"{CONFIG_MAPS}/one", created)

    assert reply.body == created


async def test_versions_count_all_writes_of_all_kinds(api):
    first = await api.create(CONFIG_MAPS, config_map())
    second = await api.create(PODS, pod())

    versions = [int(x["metadata"]["resourceVersion"]) for x in (first, second)]
    assert versions[0] < versions[1]


async def test_the_generation_counts_changes_of_the_spec_alone(api):
    await api.create(JOBS, job(suspend=True))

    labelled = await api.patch(f"{JOBS}/one", {"metadata": {"labels": {"a": "b"}}})
    resumed = await api.patch(f"{JOBS}/one", {"spec": {"suspend": False}})

    assert labelled.body["metadata"]["generation"] == 1
    assert resumed.body["metadata"]["generation"] == 2


async def test_status_and_the_rest_are_written_by_different_paths(api):
    await api.create(JOBS, job())

    both = {"spec": {"parallelism": 3}, "status": {"active": 1}}
    main = await api.patch(f"{JOBS}/one", both)
    status = await api.patch(f"{JOBS}/one/status", {"spec": {"parallelism": 9}, **both})

    assert (main.body["spec"]["parallelism"], main.body["status"]) == (3, {})
    assert status.body["spec"]["parallelism"] == 3
    assert status.body["status"] == {"active": 1}


@pytest.mark.parametrize(
    "send",
    [
        pytest.param(
            lambda api: api.send("POST", CONFIG_MAPS, config_map("new"), dryRun="All"), id="create"
        ),
        pytest.param(
            lambda api: api.send("PUT", f"{CONFIG_MAPS}/one", config_map(b="2"), dryRun="All"),
            id="update",
        ),
        pytest.param(
            lambda api: api.patch(f"{CONFIG_MAPS}/one", {"data": {"b": "2"}}, dryRun="All"),
            id="patch",
        ),
        pytest.param(lambda api: api.delete(f"{CONFIG_MAPS}/one", dryRun="All"), id="delete"),
        pytest.param(
            lambda api: api.delete(f"{CONFIG_MAPS}/one", {"dryRun": ["All"]}),
            id="delete-by-its-body",
        ),
        pytest.param(lambda api: api.delete(CONFIG_MAPS, dryRun="All"), id="delete-collection"),
    ],
)
async def test_a_dry_run_answers_and_stores_nothing(api, send):
    await api.create(CONFIG_MAPS, config_map(a="1"))
    before = await api.get(CONFIG_MAPS)

    reply = await send(api)

    assert reply.code in {200, 201}
    assert (await api.get(CONFIG_MAPS)).body == before.body


async def test_unknown_fields_are_warned_of(api):
    reply = await api.send("POST", PODS, pod(colour="red"))

    assert reply.code == 201
    assert reply.headers.getall("Warning") == ['299 - "unknown field \\"spec.colour\\""']
    assert "colour" not in reply.body["spec"]


async def test_unknown_fields_can_be_refused(api):
    reply = await api.send("POST", PODS, pod(colour="red"), fieldValidation="Strict")

    assert reply.code == 400
    assert reply.message == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field'
        ' "spec.colour"'
    )


async def test_unknown_fields_can_be_ignored(api):
    reply = await api.send("POST", PODS, pod(colour="red"), fieldValidation="Ignore")

    assert reply.code == 201
    assert "Warning" not in reply.headers


async def test_owners_of_fields_are_recorded(api):
    created = await api.create(CONFIG_MAPS, config_map(a="1"), fieldManager="tester")

    (entry,) = created["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("tester", "Update")
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:a": {}}}


async def test_a_wrong_token_is_not_a_user(api):
    reply = await api.get(PODS, headers={"Authorization": "Bearer wrong"})

    assert (reply.code, reply.body["reason"]) == (401, "Unauthorized")


async def test_health_and_version_are_public(api):
    for path in ("/livez", "/readyz", "/healthz", "/version"):
        assert (await api.get(path, headers={"Authorization": ""})).code == 200


async def test_nothing_is_created_outside_a_namespace(api):
    reply = await api.send("POST", "/api/v1/pods", pod())

    assert reply.code == 405
    assert (await api.get("/api/v1/pods/one")).code == 404


async def test_each_kubeconfig_has_its_own_user(server):
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    async with session_with(server, ApiUser(name="ada", groups=("team-a",))) as api:
        reply = await api.send("POST", path, {})

    assert reply.body["status"]["userInfo"] == {"username": "ada", "groups": ["team-a"]}


async def test_a_user_may_act_as_another(api):
    headers = {"Impersonate-User": "bob", "Impersonate-Group": "team-b"}

    reply = await api.send(
        "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, headers=headers
    )

    who = {"username": "bob", "groups": ["team-b", "system:authenticated"]}
    assert reply.body["status"]["userInfo"] == who


async def test_a_verb_that_a_kind_lacks_is_not_allowed(api):
    reply = await api.send("PUT", CONFIG_MAPS, config_map())

    assert (reply.code, reply.body["reason"]) == (405, "MethodNotAllowed")
