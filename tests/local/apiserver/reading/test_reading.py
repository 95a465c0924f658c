import pytest

from tests.local.apiserver.client import CONFIG_MAPS, NAMESPACES, PODS, config_map, pod

pytestmark = pytest.mark.anyio

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
METADATA = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}


def names(reply):
    return [item["metadata"]["name"] for item in reply.body["items"]]


async def test_an_object_is_read_as_it_was_stored(api):
    created = await api.create(CONFIG_MAPS, config_map(key="value"))

    found = await api.get(f"{CONFIG_MAPS}/one")

    assert found.body == created
    assert created["data"] == {"key": "value"}


async def test_missing_objects_are_not_found(api):
    reply = await api.get(f"{PODS}/nobody")

    assert reply.code == 404
    assert reply.message == 'pods "nobody" not found'
    assert reply.body["reason"] == "NotFound"
    assert reply.body["details"] == {"name": "nobody", "kind": "pods"}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({}, ["a", "b", "c"], id="all-by-name"),
        pytest.param({"labelSelector": "team=x"}, ["a", "b"], id="label-equals"),
        pytest.param({"labelSelector": "team!=x"}, ["c"], id="label-differs"),
        pytest.param({"labelSelector": "team in (y, z)"}, ["c"], id="label-in-a-set"),
        pytest.param({"labelSelector": "!team"}, [], id="label-absent"),
        pytest.param({"fieldSelector": "metadata.name=b"}, ["b"], id="field-equals"),
        pytest.param({"fieldSelector": "metadata.name!=b"}, ["a", "c"], id="field-differs"),
    ],
)
async def test_lists_are_filtered_by_selectors(api, query, expected):
    for name, team in (("b", "x"), ("a", "x"), ("c", "y")):
        await api.create(CONFIG_MAPS, config_map(name, labels={"team": team}))

    assert names(await api.get(CONFIG_MAPS, **query)) == expected


@pytest.mark.parametrize(
    ("query", "message"),
    [
        pytest.param(
            {"fieldSelector": "spec.colour=red"},
            "field label not supported: spec.colour",
            id="unknown-field",
        ),
        pytest.param(
            {"fieldSelector": "colour"},
            "invalid selector: 'colour'; can't understand 'colour'",
            id="no-operator",
        ),
        pytest.param(
            {"limit": "many"},
            'strconv.ParseInt: parsing "many": invalid syntax',
            id="no-number",
        ),
        pytest.param({"continue": "xx"}, "continue key is not valid", id="broken-token"),
    ],
)
async def test_a_query_that_makes_no_sense_is_a_bad_request(api, query, message):
    reply = await api.get(PODS, **query)

    assert (reply.code, reply.message) == (400, message)


async def test_pages_together_are_the_whole_list(api):
    for name in "abcde":
        await api.create(CONFIG_MAPS, config_map(name))

    first = await api.get(CONFIG_MAPS, limit="2")
    token = first.body["metadata"]["continue"]
    second = await api.get(CONFIG_MAPS, limit="3", **{"continue": token})

    assert names(first) + names(second) == list("abcde")
    assert first.body["metadata"]["remainingItemCount"] == 3
    assert "continue" not in second.body["metadata"]


async def test_later_pages_keep_the_version_of_the_first(api):
    for name in "abc":
        await api.create(CONFIG_MAPS, config_map(name))
    first = await api.get(CONFIG_MAPS, limit="1")
    await api.create(CONFIG_MAPS, config_map("later"))

    token = first.body["metadata"]["continue"]
    second = await api.get(CONFIG_MAPS, **{"continue": token})

    version = first.body["metadata"]["resourceVersion"]
    assert second.body["metadata"]["resourceVersion"] == version


async def test_pods_are_selected_by_node_and_phase(api):
    await api.create(PODS, pod("bound", nodeName="n1"))
    await api.create(PODS, pod("free"))

    assert names(await api.get(PODS, fieldSelector="spec.nodeName=n1")) == ["bound"]
    unbound = await api.get("/api/v1/pods", fieldSelector="spec.nodeName=,status.phase=Pending")
    assert names(unbound) == ["free"]


async def test_a_table_has_the_columns_that_kubectl_prints(api):
    await api.create(PODS, pod("gated", schedulingGates=[{"name": "example.com/wait"}]))

    reply = await api.get(PODS, headers=TABLE)

    columns = [column["name"] for column in reply.body["columnDefinitions"]]
    row = reply.body["rows"][0]
    assert columns[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert row["cells"][:4] == ["gated", "0/1", "SchedulingGated", "0"]
    assert row["object"]["kind"] == "PartialObjectMetadata"


async def test_metadata_alone_can_be_asked_for(api):
    reply = await api.get(NAMESPACES, headers=METADATA)

    assert reply.body["kind"] == "PartialObjectMetadataList"
    assert set(reply.body["items"][0]) == {"kind", "apiVersion", "metadata"}


async def test_a_format_that_cannot_be_given_is_refused(api):
    reply = await api.get(PODS, headers={"Accept": "application/vnd.kubernetes.protobuf"})

    assert reply.code == 406


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/apis/nope/v1/things", id="unknown-group"),
        pytest.param("/anything", id="unknown-path"),
    ],
)
async def test_paths_that_lead_nowhere_are_no_pages(api, path):
    reply = await api.get(path)

    assert (reply.code, reply.body) == (404, "404 page not found\n")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/api/v1/things", id="unknown-resource"),
        pytest.param("/api/v2/pods", id="unknown-version"),
        pytest.param("/api/v1/namespaces/default/nodes", id="cluster-scoped-in-a-namespace"),
    ],
)
async def test_a_group_that_is_served_says_what_it_does_not_have(api, path):
    reply = await api.get(path)

    assert (reply.code, reply.body["reason"]) == (404, "NotFound")


async def test_events_are_the_same_objects_in_both_groups(api):
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e1", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "one", "namespace": "default"},
        "reason": "Started",
        "message": "it started",
        "count": 2,
    }
    await api.create("/api/v1/namespaces/default/events", event)

    found = await api.get("/apis/events.k8s.io/v1/namespaces/default/events/e1")

    assert found.body["apiVersion"] == "events.k8s.io/v1"
    assert found.body["note"] == "it started"
    assert found.body["regarding"]["name"] == "one"
    assert found.body["deprecatedCount"] == 2
